"""Says drift in words: which tool changed which field of which object, and when.

For conditions, events and the plan of a dry run. Values pass the mask for secrets first.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.drift import DriftedField
from holdfast.core.ink import clean
from holdfast.core.live import Writer
from holdfast.core.ownership.owned import MERGED, UNTRACKED
from holdfast.core.ownership.signals import APPLIED, Finding
from holdfast.core.redact import redact
from holdfast.core.show import show_value
from holdfast.core.tree import show_path
from holdfast.reconcile.service.intent import Intent

_MOST = 5
"""Fields named in one sentence."""
_WIDTH = 80
LIMIT = 1024
"""What an event's message may have at the most."""


def told(intents: Iterable[Intent]) -> str:
    """Everything that drifted, one sentence for each writer and object."""
    return cut(" ".join(sentence for each in intents for sentence in _sentences(each)))


def plan_lines(intents: Iterable[Intent]) -> tuple[str, ...]:
    """What would be put back, one line for each field, live to declared."""
    return tuple(
        _line(intent, finding)
        for intent in intents
        for finding in (*intent.drifted, *intent.landing)
        if finding.change.path != APPLIED  # a mark of ours, which tells a reader nothing
    )


def who(writer: Writer | None) -> str:
    """Name a writer as far as the API server knows it."""
    if writer is None or writer.manager in (MERGED, UNTRACKED):
        return "somebody unknown"
    return clean(redact(str(writer)), ascii_only=False)


def cut(text: str) -> str:
    return text if len(text) <= LIMIT else f"{text[: LIMIT - 1]}…"


def _sentences(intent: Intent) -> list[str]:
    by_writer: dict[tuple[str, str], list[str]] = {}
    for finding in intent.drifted:
        at = finding.writer.at if finding.writer else None
        when = f" at {at:%Y-%m-%dT%H:%M:%SZ}" if at else ""
        by_writer.setdefault((who(finding.writer), when), []).append(_path(finding))
    sentences = [
        f"{name} changed {_listed(paths)} of {intent.ref.kind} {intent.ref.name}{when}."
        for (name, when), paths in by_writer.items()
    ]
    if not sentences:
        sentences = [f"The record of who owns what of {intent.ref.kind} {intent.ref.name} is gone."]
    return sentences


def _listed(paths: list[str]) -> str:
    shown = ", ".join(paths[:_MOST])
    return f"{shown} and {len(paths) - _MOST} more" if len(paths) > _MOST else shown


def _line(intent: Intent, finding: Finding) -> str:
    field = DriftedField(change=finding.change, kind=finding.kind, writer=finding.writer)
    live, wanted = (show_value(field, live=side, width=_WIDTH) for side in (True, False))
    by = "declared anew" if finding.pending else f"by {who(finding.writer)}"
    return f"{intent.ref.kind} {intent.ref.name}: {_path(finding)}: {live} → {wanted} ({by})"


def _path(finding: Finding) -> str:
    return clean(redact(show_path(finding.change.path)), ascii_only=False) or "the whole object"
