"""Says drift in words: which tool changed which field of which object, and when.

For conditions, events and the plan of a dry run. Values pass the mask for secrets first.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.drift import Cause, DriftedField
from holdfast.core.live import Writer
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.managed_fields import MERGED_MANAGER, UNTRACKED_MANAGER
from holdfast.core.ownership.signals import APPLIED_PATH, FieldDrift
from holdfast.core.redact import redact
from holdfast.core.show import show_value
from holdfast.core.text_style import escape_unprintable
from holdfast.core.tree import show_path
from holdfast.reconcile.service.decisions import ChildDecision
from holdfast.reconcile.service.observe import OPERATOR_MANAGER

_MAX_FIELDS = 5
"""Fields named in one sentence."""
_WIDTH = 80
MAX_MESSAGE = 1024
"""What an event's message may have at the most."""


def describe_drift(children: Iterable[ChildDecision], *, healed: bool = False) -> str:
    """Everything that drifted, one sentence for each writer and object.

    With `healed`, only what was put back: not what the server stored otherwise again.
    """
    return truncate(
        " ".join(sentence for each in children for sentence in _sentences(each, healed=healed))
    )


def describe_altered(children: Iterable[ChildDecision]) -> str:
    """What cannot be as declared because the server stores it differently, and what helps."""
    sentences = [
        f"The API server stores {_join_paths([_path(found) for found in each.altered])} of"
        f" {each.ref.kind} {each.ref.name} differently from what was sent: an admission policy or"
        " webhook changes it."
        for each in children
        if each.altered
    ]
    helps = "It cannot be put back. Declare what is stored, or change the policy."
    return truncate(" ".join((*sentences, helps)))


def describe_fights(children: Iterable[ChildDecision]) -> str:
    """Who keeps changing what after it was put back, and until when it is left.

    Without the times of their writes: those change every second, and this is told once a round.
    """
    sentences = []
    for each in children:
        if each.fight_until is None:
            continue
        ref, left = f"{each.ref.kind} {each.ref.name}", f"{each.fight_until:%Y-%m-%dT%H:%M:%SZ}"
        others = " and ".join(sorted({writer_name(found.writer) for found in each.contested}))
        paths = _join_paths([_path(found) for found in each.contested])
        fight = f"{others} and {OPERATOR_MANAGER} keep changing {paths} of {ref}."
        if each.deleted:
            fight = f"Somebody deletes {ref} each time {OPERATOR_MANAGER} creates it."
        elif not each.contested:
            fight = f"Somebody wipes the record of who owns what of {ref} each time it is restored."
        sentences.append(f"{fight} It is left until {left}, and put back then.")
    return truncate(" ".join((*sentences, "Let one of the two set it.")))


def describe_delegated(children: Iterable[ChildDecision]) -> str:
    """Which fields differ that are left to an autoscaler or its like, and who wrote them."""
    sentences = []
    for each in children:
        lent = [
            found
            for found in (each.diff.field_drifts if each.diff else ())
            if found.field_class is FieldClass.DELEGATED
        ]
        by_writer: dict[str, list[str]] = {}
        for found in lent:
            by_writer.setdefault(writer_name(found.writer), []).append(_path(found))
        sentences += [
            f"{name} sets {_join_paths(paths)} of {each.ref.kind} {each.ref.name}."
            for name, paths in by_writer.items()
        ]
    return truncate(" ".join(sentences))


def plan_lines(children: Iterable[ChildDecision]) -> tuple[str, ...]:
    """What would be put back, one line for each field, live to declared."""
    return tuple(
        _plan_line(child, field)
        for child in children
        for field in (*child.drifted, *child.pending)
        if field.change.path != APPLIED_PATH  # a mark of ours, which tells a reader nothing
    )


def writer_name(writer: Writer | None) -> str:
    """Name a writer as far as the API server knows it."""
    if writer is None or writer.manager in (MERGED_MANAGER, UNTRACKED_MANAGER):
        return "somebody unknown"
    return escape_unprintable(redact(str(writer)), ascii_only=False)


def truncate(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"


def _sentences(child: ChildDecision, *, healed: bool = False) -> list[str]:
    by_writer: dict[tuple[str, str], list[str]] = {}
    if child.deleted:
        return [f"Somebody deleted {child.ref.kind} {child.ref.name}."]
    kept = {found.change.path for found in (*child.altered, *child.contested)} if healed else ()
    for field in child.drifted:
        if field.change.path in kept:
            continue
        at = field.writer.at if field.writer else None
        when = f" at {at:%Y-%m-%dT%H:%M:%SZ}" if at else ""
        by_writer.setdefault((_by(field), when), []).append(_path(field))
    sentences = [
        f"{name} changed {_join_paths(paths)} of {child.ref.kind} {child.ref.name}{when}."
        for (name, when), paths in by_writer.items()
    ]
    if not sentences:
        sentences = [f"The record of who owns what of {child.ref.kind} {child.ref.name} is gone."]
    return sentences


def _by(field: FieldDrift) -> str:
    """Say who changed a field; what admission changes has no writer, and is nobody's secret."""
    if field.cause is Cause.ADMISSION:
        return "an admission policy or webhook"
    return writer_name(field.writer)


def _join_paths(paths: list[str]) -> str:
    shown = ", ".join(paths[:_MAX_FIELDS])
    return f"{shown} and {len(paths) - _MAX_FIELDS} more" if len(paths) > _MAX_FIELDS else shown


def _plan_line(child: ChildDecision, field: FieldDrift) -> str:
    shown = DriftedField(change=field.change, kind=field.kind, writer=field.writer)
    live, desired = (show_value(shown, live=side, width=_WIDTH) for side in (True, False))
    by = "declared anew" if field.pending else f"by {_by(field)}"
    return f"{child.ref.kind} {child.ref.name}: {_path(field)}: {live} → {desired} ({by})"


def _path(field: FieldDrift) -> str:
    return (
        escape_unprintable(redact(show_path(field.change.path)), ascii_only=False)
        or "the whole object"
    )
