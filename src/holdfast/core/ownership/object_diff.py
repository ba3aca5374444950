"""Whether a Kubernetes object is as declared, and if not, what moved and who moved it.

No single signal is complete, so four are joined: the declared values against the live ones, what
we own against what we should own, what others own beside us, and the answer of a server-side dry
run where the first three leave a doubt. Target adapters and the GitOps app call `judge`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from holdfast.core.diff import Change, same_value
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.delegated import (
    NO_CONTEXT,
    FieldClass,
    OwnershipContext,
    delegated_by_kind,
    delegated_by_writer,
    delegated_inside_list,
    is_accepted_addition,
)
from holdfast.core.ownership.fast_path import is_unchanged, remember_unchanged
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.ownership.signals import (
    APPLIED_PATH,
    Declaration,
    FieldDrift,
    ObjectComparison,
    Signal,
)
from holdfast.core.tree import Fields, Path


class ObjectState(StrEnum):
    """How a live object stands to its declaration."""

    IN_SYNC = "in-sync"
    DRIFTED = "drifted"
    SUSPECT = "suspect"
    """Not told from what was given: ask the server for a dry run and judge again."""
    WIPED = "wiped"
    """Our record of ownership is gone, so what else moved cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectDiff:
    """The answer for one object, with everything that was seen on the way."""

    state: ObjectState
    field_drifts: tuple[FieldDrift, ...] = ()
    around: OwnershipContext = field(default=NO_CONTEXT, compare=False, repr=False)
    ignore: tuple[IgnoreRule, ...] = field(default=(), compare=False, repr=False)
    """What it was judged under: the answer to a write is judged under the same."""
    recheck_at: datetime | None = field(default=None, compare=False)
    """When to ask the server again. A policy of its own that goes away leaves no event."""

    @property
    def differing(self) -> tuple[FieldDrift, ...]:
        """The findings that an apply is there to end."""
        return tuple(
            found
            for found in self.field_drifts
            if found.field_class is FieldClass.OWNED and found.confirmed
        )

    @property
    def drifted(self) -> tuple[FieldDrift, ...]:
        """What moved without being declared."""
        return tuple(found for found in self.differing if not found.pending)

    @property
    def altered(self) -> tuple[FieldDrift, ...]:
        """What the server itself stores differently from what is sent: no apply can end that."""
        return tuple(found for found in self.drifted if found.cause is Cause.ADMISSION)

    @property
    def healable(self) -> tuple[FieldDrift, ...]:
        """What moved and an apply can put back."""
        return tuple(found for found in self.drifted if found.cause is not Cause.ADMISSION)

    @property
    def needs_dry_run(self) -> bool:
        """True when a dry run would tell more: whether it moved at all, or, of an object that
        did, what of it was declared anew or stands there under our name. That the declaration is
        another is known already."""
        return self.state is ObjectState.SUSPECT or any(
            (found.pending or found.signal is Signal.KEPT)
            and not found.confirmed
            and found.field_class is FieldClass.OWNED
            for found in self.field_drifts
            if found.change.path != APPLIED_PATH
        )

    def observing_only(self, paths: frozenset[Path]) -> ObjectDiff:
        """The same, with some of what moved only observed."""
        if not paths:
            return self
        findings = tuple(
            replace(found, field_class=FieldClass.OBSERVED) if found.change.path in paths else found
            for found in self.field_drifts
        )
        return replace(self, field_drifts=findings)

    @property
    def ignored_paths(self) -> tuple[tuple[str, Path], ...]:
        """Which rule hid what."""
        return tuple((found.rule, found.change.path) for found in self.field_drifts if found.rule)


_IN_SYNC = ObjectDiff(state=ObjectState.IN_SYNC)


def cache_key(live: Fields, desired_digest: str) -> tuple[str, str, str]:
    """The world a verdict holds for: while none of the three changes, neither does it."""
    metadata = live.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    return str(found.get("uid")), str(found.get("resourceVersion")), desired_digest


def diff_object(
    *,
    declared: Declaration,
    live: Fields | None,
    key: bytes,
    now: datetime,
    around: OwnershipContext = NO_CONTEXT,
    ignore: Sequence[IgnoreRule] = (),
    dry_run: Fields | None = None,
) -> ObjectDiff:
    """Join the signals into one verdict.

    `live` is None when the server said that there is no such object; an unanswered question
    must not get here. `dry_run` is what a forced server-side dry run of the declaration
    returned. `key` marks the values of Secrets, so that they can be compared and not read.
    """
    if live is None or dry_run is not None:
        return diff_object_fully(
            declared=declared, live=live, key=key, now=now,
            around=around, ignore=ignore, dry_run=dry_run,
        )  # fmt: skip
    if is_unchanged(declared, live):
        return _IN_SYNC
    verdict = diff_object_fully(
        declared=declared, live=live, key=key, now=now, around=around, ignore=ignore
    )
    if verdict == _IN_SYNC:
        remember_unchanged(declared, live)
    return verdict


def diff_object_fully(
    *,
    declared: Declaration,
    live: Fields | None,
    key: bytes,
    now: datetime,
    around: OwnershipContext = NO_CONTEXT,
    ignore: Sequence[IgnoreRule] = (),
    dry_run: Fields | None = None,
) -> ObjectDiff:
    """Judge without any short cut, which the short cut is held to."""
    whole = _missing_or_replaced(declared, live)
    if live is None or whole is not None:
        return ObjectDiff(state=ObjectState.DRIFTED, field_drifts=(whole,) if whole else ())
    case = ObjectComparison.open(declared, live, key=key, dry_run=dry_run)
    raw = [*case.values()]
    for more in (case.lost, case.kept, case.additions, case.unforeseen):
        known = frozenset(found.change.path for found in raw)
        raw.extend(found for found in more() if not _overlaps_known(known, found.change.path))
    findings = tuple(
        _classify(found, case, around=around, ignore=ignore, now=now)
        for found in sorted(raw, key=lambda found: found.change.path)
        if not _is_other_spelling(found, case, ignore=ignore, now=now)
    )
    return ObjectDiff(state=_state(findings, wiped=case.wiped), field_drifts=findings)


def server_alterations(
    *,
    declared: Declaration,
    sent: Fields,
    answer: Fields,
    key: bytes,
    now: datetime,
    around: OwnershipContext = NO_CONTEXT,
    ignore: Sequence[IgnoreRule] = (),
) -> tuple[FieldDrift, ...]:
    """Say which fields the server stored otherwise than they were sent.

    `answer` is what it returned for the apply of `sent`, so nobody else was in between: a
    mutating admission policy or webhook did it, or the schema of the kind.
    """
    if sent is declared.item and is_unchanged(declared, answer):
        return ()
    judged = diff_object_fully(
        declared=replace(declared, item=sent, uid=None, applied=False),
        live=answer,
        key=key,
        now=now,
        around=around,
        ignore=ignore,
        dry_run=answer,
    )
    told = "the server answered the apply with another value than was sent"
    return tuple(
        replace(found, writer=None, cause=Cause.ADMISSION, pending=False, evidence=told)
        for found in judged.differing
        if found.signal is Signal.VALUE
    )


def attribute_to_admission(verdict: ObjectDiff, altered: Sequence[FieldDrift]) -> ObjectDiff:
    """Name admission as the cause of what has just the value that the server made of a write.

    The record of ownership may name somebody else: who happened to set that value before.
    """
    made = {found.change.path: found for found in altered}

    def judged(found: FieldDrift) -> FieldDrift:
        match = made.get(found.change.path)
        if match is None or found.pending or not same_value(match.change.live, found.change.live):
            return found
        return replace(found, writer=None, cause=match.cause, evidence=match.evidence)

    return replace(verdict, field_drifts=tuple(judged(found) for found in verdict.field_drifts))


def settle_as_refused(verdict: ObjectDiff, why: str) -> ObjectDiff:
    """Settle a suspect whose dry run the server refused: what would heal it is blocked."""
    return _settle(verdict, lambda found: replace(
        found, confirmed=True, evidence=f"{found.evidence}; the server refuses to put it back{why}"
    ))  # fmt: skip


def settle_without_dry_run(verdict: ObjectDiff) -> ObjectDiff:
    """Settle a suspect by what can be seen, for an account that may not ask for a dry run.

    A value that differs is drift; a doubt about ownership alone is none.
    """
    told = "a dry run is not permitted to this account"

    def seen(found: FieldDrift) -> FieldDrift:
        known = found.signal is Signal.VALUE
        to = FieldClass.OWNED if known else FieldClass.OBSERVED
        return replace(found, confirmed=True, field_class=to, evidence=f"{found.evidence}; {told}")

    return _settle(verdict, seen)


def _settle(verdict: ObjectDiff, settle: Callable[[FieldDrift], FieldDrift]) -> ObjectDiff:
    findings = tuple(found if found.confirmed else settle(found) for found in verdict.field_drifts)
    return ObjectDiff(
        state=_state(findings, wiped=verdict.state is ObjectState.WIPED), field_drifts=findings
    )


def _missing_or_replaced(declared: Declaration, live: Fields | None) -> FieldDrift | None:
    """The finding that there is no object, or another of the same name."""
    if live is None:
        evidence = "the server has no such object; a deletion leaves no trace of its writer"
    elif declared.uid is not None and value_at(live, ("metadata", "uid")) != declared.uid:
        evidence = "another object has the name: it was deleted and created again"
    else:
        return None
    return FieldDrift(
        change=Change(path=(), desired=None, live=None),
        kind=DriftKind.RESOURCE,
        signal=Signal.VALUE,
        field_class=FieldClass.OWNED,
        evidence=evidence,
    )


def _classify(
    found: FieldDrift,
    case: ObjectComparison,
    *,
    around: OwnershipContext,
    ignore: Sequence[IgnoreRule],
    now: datetime,
) -> FieldDrift:
    if found.field_class is not FieldClass.OWNED:
        return found
    path = found.change.path
    to = (
        delegated_by_writer(path, found.writer, around)
        or delegated_by_kind(path, case.desired)
        or delegated_inside_list(path, found.change.desired, found.change.live, around)
    )
    if to is not None:
        told = f"{found.evidence}; left to {to}"
        return replace(found, field_class=FieldClass.DELEGATED, evidence=told, confirmed=True)
    if found.signal is Signal.ADDED and found.writer is not None:
        declared = isinstance(value_at(case.desired, path[:-1]), dict)
        if is_accepted_addition(path, found.writer, around, map_declared=declared):
            return replace(found, field_class=FieldClass.OBSERVED)
    for rule in ignore:
        if rule.hides(path, item=case.raw, rules=case.rules, writer=found.writer, now=now):
            if rule.lands and case.declared_anew(found):
                return replace(found, pending=True)
            return replace(found, field_class=FieldClass.IGNORED, rule=rule.name, confirmed=True)
    return found


def _is_other_spelling(
    found: FieldDrift, case: ObjectComparison, *, ignore: Sequence[IgnoreRule], now: datetime
) -> bool:
    """True for a value that a rule says is the declared one in other words."""
    return any(
        rule.equates(found.change, item=case.raw, rules=case.rules, writer=found.writer, now=now)
        for rule in ignore
    )


def _state(field_drifts: tuple[FieldDrift, ...], *, wiped: bool) -> ObjectState:
    if wiped:
        return ObjectState.WIPED
    owned = [found for found in field_drifts if found.field_class is FieldClass.OWNED]
    if any(found.confirmed for found in owned):
        return ObjectState.DRIFTED
    return ObjectState.SUSPECT if owned else ObjectState.IN_SYNC


def _overlaps_known(known: frozenset[Path], path: Path) -> bool:
    """True when a path, or one inside or around it, was found before."""
    return any(path[: len(found)] == found or found[: len(path)] == path for found in known)
