"""Whether a Kubernetes object is as declared, and if not, what moved and who moved it.

No single signal is complete, so four are joined: the declared values against the live ones, what
we own against what we should own, what others own beside us, and the answer of a server-side dry
run where the first three leave a doubt. The resource manager calls `diff_object`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from holdfast.core.cost import NO_COST, Cost
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


class Pricing(Protocol):
    """Knows what it costs to make fields of one object as declared."""

    def cost_of(self, fields: Iterable[FieldDrift]) -> Cost | None:
        """What that costs for all of them at once; None where nobody can tell."""
        ...


class ObjectState(StrEnum):
    """How a live object stands to its declaration."""

    IN_SYNC = "in-sync"
    DRIFTED = "drifted"
    SUSPECT = "suspect"
    """Not clear from what was given: ask the server for a dry run and compare again."""
    WIPED = "wiped"
    """Our record of ownership is gone, so what else moved is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectDiff:
    """How one object differs from its declaration, with every signal that was seen."""

    state: ObjectState
    field_drifts: tuple[FieldDrift, ...] = ()
    context: OwnershipContext = field(default=NO_CONTEXT, compare=False, repr=False)
    ignore: tuple[IgnoreRule, ...] = field(default=(), compare=False, repr=False)
    """What it was compared under: the answer to a write is compared under the same."""
    recheck_at: datetime | None = field(default=None, compare=False)
    """When to ask the server again. A policy of its own that goes away leaves no event."""
    pricing: Pricing | None = field(default=None, compare=False, repr=False)
    """None where nobody asked for costs."""

    def cost_of(self, fields: Iterable[FieldDrift]) -> Cost | None:
        """What it costs to do away with some of what was found, all at once.

        That is not the sum of what each field costs: a scaling and a rollout are one. None where
        nobody asked, or nobody can tell, such as of what pods run instead.
        """
        found = tuple(fields)
        if self.pricing is not None and not any(each.signal is Signal.RUNNING for each in found):
            return self.pricing.cost_of(found)
        costs = {each.cost for each in found}
        return costs.pop() if len(costs) == 1 else None if costs else NO_COST

    @property
    def differing(self) -> tuple[FieldDrift, ...]:
        """The findings that an apply is there to end."""
        return tuple(
            drift
            for drift in self.field_drifts
            if drift.field_class is FieldClass.OWNED and drift.confirmed
        )

    @property
    def drifted(self) -> tuple[FieldDrift, ...]:
        """What moved without being declared."""
        return tuple(drift for drift in self.differing if not drift.pending)

    @property
    def altered(self) -> tuple[FieldDrift, ...]:
        """What the server itself stores differently from what is sent: no apply can end that."""
        return tuple(drift for drift in self.drifted if drift.cause is Cause.ADMISSION)

    @property
    def healable(self) -> tuple[FieldDrift, ...]:
        """What moved and an apply can put back."""
        return tuple(drift for drift in self.drifted if drift.cause is not Cause.ADMISSION)

    @property
    def needs_dry_run(self) -> bool:
        """True when a dry run would tell more: whether it moved at all, or, of an object that
        did, what of it was declared anew or stands there under our name. That the declaration is
        another is known already."""
        return self.state is ObjectState.SUSPECT or any(
            (drift.pending or drift.signal is Signal.KEPT)
            and not drift.confirmed
            and drift.field_class is FieldClass.OWNED
            for drift in self.field_drifts
            if drift.change.path != APPLIED_PATH
        )

    def observing_only(self, paths: frozenset[Path]) -> ObjectDiff:
        """The same, with some of what moved only observed."""
        if not paths:
            return self
        drifts = tuple(
            replace(drift, field_class=FieldClass.OBSERVED) if drift.change.path in paths else drift
            for drift in self.field_drifts
        )
        return replace(self, field_drifts=drifts)

    @property
    def ignored_paths(self) -> tuple[tuple[str, Path], ...]:
        """Which rule hid what."""
        return tuple((drift.rule, drift.change.path) for drift in self.field_drifts if drift.rule)


_IN_SYNC = ObjectDiff(state=ObjectState.IN_SYNC)


def cache_key(live: Fields, desired_digest: str) -> tuple[str, str, str]:
    """The world a diff holds for: while none of the three changes, neither does it."""
    metadata = live.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    return str(fields.get("uid")), str(fields.get("resourceVersion")), desired_digest


def diff_object(
    *,
    declared: Declaration,
    live: Fields | None,
    key: bytes,
    now: datetime,
    context: OwnershipContext = NO_CONTEXT,
    ignore: Sequence[IgnoreRule] = (),
    dry_run: Fields | None = None,
    fast_path: bool = True,
) -> ObjectDiff:
    """Compare one object with its declaration, by all four signals.

    `live` is None when the server said that there is no such object; an unanswered question
    must not get here. `dry_run` is what a forced server-side dry run of the declaration
    returned. `key` is for the fingerprints of Secrets, so that they can be compared and not read.
    """
    whole = _missing_or_replaced(declared, live)
    if live is None or whole is not None:
        return ObjectDiff(state=ObjectState.DRIFTED, field_drifts=(whole,) if whole else ())
    if fast_path and dry_run is None and is_unchanged(declared, live):
        return _IN_SYNC
    compared = ObjectComparison.open(declared, live, key=key, dry_run=dry_run)
    raw = [*compared.values()]
    for signal in (compared.lost, compared.kept, compared.additions, compared.unforeseen):
        known = frozenset(drift.change.path for drift in raw)
        raw.extend(drift for drift in signal() if not _overlaps_known(known, drift.change.path))
    drifts = tuple(
        _classify(drift, compared, context=context, ignore=ignore, now=now)
        for drift in sorted(raw, key=lambda drift: drift.change.path)
        if not _is_other_spelling(drift, compared, ignore=ignore, now=now)
    )
    diff = ObjectDiff(state=_state(drifts, wiped=compared.wiped), field_drifts=drifts)
    if fast_path and dry_run is None and diff == _IN_SYNC:
        remember_unchanged(declared, live)
    return diff


def server_alterations(
    *,
    declared: Declaration,
    sent: Fields,
    answer: Fields,
    key: bytes,
    now: datetime,
    context: OwnershipContext = NO_CONTEXT,
    ignore: Sequence[IgnoreRule] = (),
) -> tuple[FieldDrift, ...]:
    """Say which fields the server stored otherwise than they were sent.

    `answer` is what it returned for the apply of `sent`, so nobody else was in between: a
    mutating admission policy or webhook did it, or the schema of the kind.
    """
    if sent is declared.item and is_unchanged(declared, answer):
        return ()
    stored = diff_object(
        declared=replace(declared, item=sent, uid=None, applied=False),
        live=answer,
        key=key,
        now=now,
        context=context,
        ignore=ignore,
        dry_run=answer,
    )
    evidence = "the server answered the apply with another value than was sent"
    return tuple(
        replace(drift, writer=None, cause=Cause.ADMISSION, pending=False, evidence=evidence)
        for drift in stored.differing
        if drift.signal is Signal.VALUE
    )


def attribute_to_admission(diff: ObjectDiff, altered: Sequence[FieldDrift]) -> ObjectDiff:
    """Name admission as the cause of what has just the value that the server made of a write.

    The record of ownership may name somebody else: who happened to set that value before.
    """
    made = {drift.change.path: drift for drift in altered}

    def attribute(drift: FieldDrift) -> FieldDrift:
        match = made.get(drift.change.path)
        if match is None or drift.pending or not same_value(match.change.live, drift.change.live):
            return drift
        return replace(drift, writer=None, cause=match.cause, evidence=match.evidence)

    return replace(diff, field_drifts=tuple(attribute(drift) for drift in diff.field_drifts))


def settle_as_refused(diff: ObjectDiff, why: str) -> ObjectDiff:
    """Settle a suspect whose dry run the server refused: what would heal it is blocked."""

    def settle(drift: FieldDrift) -> FieldDrift:
        evidence = f"{drift.evidence}; the server refuses to put it back{why}"
        return replace(drift, confirmed=True, evidence=evidence)

    return _settle(diff, settle)


def settle_without_dry_run(diff: ObjectDiff) -> ObjectDiff:
    """Settle a suspect by what can be seen, for an account that may not ask for a dry run.

    A value that differs is drift; a doubt about ownership alone is none.
    """

    def settle(drift: FieldDrift) -> FieldDrift:
        owned = FieldClass.OWNED if drift.signal is Signal.VALUE else FieldClass.OBSERVED
        evidence = f"{drift.evidence}; a dry run is not permitted to this account"
        return replace(drift, confirmed=True, field_class=owned, evidence=evidence)

    return _settle(diff, settle)


def _settle(diff: ObjectDiff, settle: Callable[[FieldDrift], FieldDrift]) -> ObjectDiff:
    drifts = tuple(drift if drift.confirmed else settle(drift) for drift in diff.field_drifts)
    return ObjectDiff(
        state=_state(drifts, wiped=diff.state is ObjectState.WIPED), field_drifts=drifts
    )


def _missing_or_replaced(declared: Declaration, live: Fields | None) -> FieldDrift | None:
    """Says that there is no object, or another of the same name."""
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
    drift: FieldDrift,
    compared: ObjectComparison,
    *,
    context: OwnershipContext,
    ignore: Sequence[IgnoreRule],
    now: datetime,
) -> FieldDrift:
    if drift.field_class is not FieldClass.OWNED:
        return drift
    path = drift.change.path
    owner = (
        delegated_by_writer(path, drift.writer, context)
        or delegated_by_kind(path, compared.desired)
        or delegated_inside_list(path, drift.change.desired, drift.change.live, context)
    )
    if owner is not None:
        evidence = f"{drift.evidence}; left to {owner}"
        return replace(drift, field_class=FieldClass.DELEGATED, evidence=evidence, confirmed=True)
    if drift.signal is Signal.ADDED and drift.writer is not None:
        declared = isinstance(value_at(compared.desired, path[:-1]), dict)
        if is_accepted_addition(path, drift.writer, context, map_declared=declared):
            return replace(drift, field_class=FieldClass.OBSERVED)
    for rule in ignore:
        if rule.hides(path, item=compared.raw, rules=compared.rules, writer=drift.writer, now=now):
            if rule.lands and compared.declared_anew(drift):
                return replace(drift, pending=True)
            return replace(drift, field_class=FieldClass.IGNORED, rule=rule.name, confirmed=True)
    return drift


def _is_other_spelling(
    drift: FieldDrift, compared: ObjectComparison, *, ignore: Sequence[IgnoreRule], now: datetime
) -> bool:
    """True for a value that a rule says is the declared one in other words."""
    return any(
        rule.equates(
            drift.change, item=compared.raw, rules=compared.rules, writer=drift.writer, now=now
        )
        for rule in ignore
    )


def _state(field_drifts: tuple[FieldDrift, ...], *, wiped: bool) -> ObjectState:
    if wiped:
        return ObjectState.WIPED
    owned = [drift for drift in field_drifts if drift.field_class is FieldClass.OWNED]
    if any(drift.confirmed for drift in owned):
        return ObjectState.DRIFTED
    return ObjectState.SUSPECT if owned else ObjectState.IN_SYNC


def _overlaps_known(known: frozenset[Path], path: Path) -> bool:
    """True when a path, or one inside or around it, is known already."""
    return any(path[: len(each)] == each or each[: len(path)] == path for each in known)
