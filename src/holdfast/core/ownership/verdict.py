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

from holdfast.core.diff import Change, same
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.ownership.delegated import (
    ALONE,
    FieldClass,
    Surroundings,
    delegated_inside,
    delegated_kind,
    delegated_to,
    welcome,
)
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.ownership.objects import at
from holdfast.core.ownership.recognize import learn, recognized
from holdfast.core.ownership.signals import APPLIED, Case, Declaration, Finding, Signal
from holdfast.core.tree import Fields, Path


class State(StrEnum):
    """How a live object stands to its declaration."""

    IN_SYNC = "in-sync"
    DRIFTED = "drifted"
    SUSPECT = "suspect"
    """Not told from what was given: ask the server for a dry run and judge again."""
    WIPED = "wiped"
    """Our record of ownership is gone, so what else moved cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer for one object, with everything that was seen on the way."""

    state: State
    findings: tuple[Finding, ...] = ()
    around: Surroundings = field(default=ALONE, compare=False, repr=False)
    ignore: tuple[IgnoreRule, ...] = field(default=(), compare=False, repr=False)
    """What it was judged under: the answer to a write is judged under the same."""
    recheck_at: datetime | None = field(default=None, compare=False)
    """When to ask the server again. A policy of its own that goes away leaves no event."""

    @property
    def differing(self) -> tuple[Finding, ...]:
        """The findings that an apply is there to end."""
        return tuple(
            found
            for found in self.findings
            if found.field_class is FieldClass.OWNED and found.confirmed
        )

    @property
    def drifted(self) -> tuple[Finding, ...]:
        """What moved without being declared."""
        return tuple(found for found in self.differing if not found.pending)

    @property
    def altered(self) -> tuple[Finding, ...]:
        """What the server itself stores differently from what is sent: no apply can end that."""
        return tuple(found for found in self.drifted if found.cause is Cause.ADMISSION)

    @property
    def healable(self) -> tuple[Finding, ...]:
        """What moved and an apply can put back."""
        return tuple(found for found in self.drifted if found.cause is not Cause.ADMISSION)

    @property
    def unsettled(self) -> bool:
        """True when a dry run would tell more: whether it moved at all, or, of an object that
        did, what of it was declared anew or stands there under our name. That the declaration is
        another is known already."""
        return self.state is State.SUSPECT or any(
            (found.pending or found.signal is Signal.KEPT)
            and not found.confirmed
            and found.field_class is FieldClass.OWNED
            for found in self.findings
            if found.change.path != APPLIED
        )

    def leaving(self, paths: frozenset[Path]) -> Verdict:
        """The same, with some of what moved only observed."""
        if not paths:
            return self
        findings = tuple(
            replace(found, field_class=FieldClass.OBSERVED) if found.change.path in paths else found
            for found in self.findings
        )
        return replace(self, findings=findings)

    @property
    def hidden(self) -> tuple[tuple[str, Path], ...]:
        """Which rule hid what."""
        return tuple((found.rule, found.change.path) for found in self.findings if found.rule)


_IN_SYNC = Verdict(state=State.IN_SYNC)


def memo_key(live: Fields, desired_digest: str) -> tuple[str, str, str]:
    """The world a verdict holds for: while none of the three changes, neither does it."""
    metadata = live.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    return str(found.get("uid")), str(found.get("resourceVersion")), desired_digest


def judge(
    *,
    declared: Declaration,
    live: Fields | None,
    key: bytes,
    now: datetime,
    around: Surroundings = ALONE,
    ignore: Sequence[IgnoreRule] = (),
    dry_run: Fields | None = None,
) -> Verdict:
    """Join the signals into one verdict.

    `live` is None when the server said that there is no such object; an unanswered question
    must not get here. `dry_run` is what a forced server-side dry run of the declaration
    returned. `key` marks the values of Secrets, so that they can be compared and not read.
    """
    if live is None or dry_run is not None:
        return weigh(
            declared=declared, live=live, key=key, now=now,
            around=around, ignore=ignore, dry_run=dry_run,
        )  # fmt: skip
    if recognized(declared, live):
        return _IN_SYNC
    verdict = weigh(declared=declared, live=live, key=key, now=now, around=around, ignore=ignore)
    if verdict == _IN_SYNC:
        learn(declared, live)
    return verdict


def weigh(
    *,
    declared: Declaration,
    live: Fields | None,
    key: bytes,
    now: datetime,
    around: Surroundings = ALONE,
    ignore: Sequence[IgnoreRule] = (),
    dry_run: Fields | None = None,
) -> Verdict:
    """Judge without any short cut, which the short cut is held to."""
    whole = _whole_object(declared, live)
    if live is None or whole is not None:
        return Verdict(state=State.DRIFTED, findings=(whole,) if whole else ())
    case = Case.open(declared, live, key=key, dry_run=dry_run)
    raw = [*case.values()]
    for more in (case.lost, case.kept, case.additions, case.unforeseen):
        known = frozenset(found.change.path for found in raw)
        raw.extend(found for found in more() if not _around(known, found.change.path))
    findings = tuple(
        _classified(found, case, around=around, ignore=ignore, now=now)
        for found in sorted(raw, key=lambda found: found.change.path)
        if not _spelled_otherwise(found, case, ignore=ignore, now=now)
    )
    return Verdict(state=_state(findings, wiped=case.wiped), findings=findings)


def altered(
    *,
    declared: Declaration,
    sent: Fields,
    answer: Fields,
    key: bytes,
    now: datetime,
    around: Surroundings = ALONE,
    ignore: Sequence[IgnoreRule] = (),
) -> tuple[Finding, ...]:
    """Say which fields the server stored otherwise than they were sent.

    `answer` is what it returned for the apply of `sent`, so nobody else was in between: a
    mutating admission policy or webhook did it, or the schema of the kind.
    """
    if sent is declared.item and recognized(declared, answer):
        return ()
    judged = weigh(
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


def blame_admission(verdict: Verdict, altered: Sequence[Finding]) -> Verdict:
    """Name admission as the cause of what has just the value that the server made of a write.

    The record of ownership may name somebody else: who happened to set that value before.
    """
    made = {found.change.path: found for found in altered}

    def judged(found: Finding) -> Finding:
        match = made.get(found.change.path)
        if match is None or found.pending or not same(match.change.live, found.change.live):
            return found
        return replace(found, writer=None, cause=match.cause, evidence=match.evidence)

    return replace(verdict, findings=tuple(judged(found) for found in verdict.findings))


def refused(verdict: Verdict, why: str) -> Verdict:
    """Settle a suspect whose dry run the server refused: what would heal it is blocked."""
    return _settled(verdict, lambda found: replace(
        found, confirmed=True, evidence=f"{found.evidence}; the server refuses to put it back{why}"
    ))  # fmt: skip


def unasked(verdict: Verdict) -> Verdict:
    """Settle a suspect by what can be seen, for an account that may not ask for a dry run.

    A value that differs is drift; a doubt about ownership alone is none.
    """
    told = "a dry run is not permitted to this account"

    def seen(found: Finding) -> Finding:
        known = found.signal is Signal.VALUE
        to = FieldClass.OWNED if known else FieldClass.OBSERVED
        return replace(found, confirmed=True, field_class=to, evidence=f"{found.evidence}; {told}")

    return _settled(verdict, seen)


def _settled(verdict: Verdict, settle: Callable[[Finding], Finding]) -> Verdict:
    findings = tuple(found if found.confirmed else settle(found) for found in verdict.findings)
    return Verdict(state=_state(findings, wiped=verdict.state is State.WIPED), findings=findings)


def _whole_object(declared: Declaration, live: Fields | None) -> Finding | None:
    """The finding that there is no object, or another of the same name."""
    if live is None:
        evidence = "the server has no such object; a deletion leaves no trace of its writer"
    elif declared.uid is not None and at(live, ("metadata", "uid")) != declared.uid:
        evidence = "another object has the name: it was deleted and created again"
    else:
        return None
    return Finding(
        change=Change(path=(), desired=None, live=None),
        kind=DriftKind.RESOURCE,
        signal=Signal.VALUE,
        field_class=FieldClass.OWNED,
        evidence=evidence,
    )


def _classified(
    found: Finding,
    case: Case,
    *,
    around: Surroundings,
    ignore: Sequence[IgnoreRule],
    now: datetime,
) -> Finding:
    if found.field_class is not FieldClass.OWNED:
        return found
    path = found.change.path
    to = (
        delegated_to(path, found.writer, around)
        or delegated_kind(path, case.desired)
        or delegated_inside(path, found.change.desired, found.change.live, around)
    )
    if to is not None:
        told = f"{found.evidence}; left to {to}"
        return replace(found, field_class=FieldClass.DELEGATED, evidence=told, confirmed=True)
    if found.signal is Signal.ADDED and found.writer is not None:
        declared = isinstance(at(case.desired, path[:-1]), dict)
        if welcome(path, found.writer, around, map_declared=declared):
            return replace(found, field_class=FieldClass.OBSERVED)
    for rule in ignore:
        if rule.hides(path, item=case.raw, rules=case.rules, writer=found.writer, now=now):
            if rule.lands and case.declared_anew(found):
                return replace(found, pending=True)
            return replace(found, field_class=FieldClass.IGNORED, rule=rule.name, confirmed=True)
    return found


def _spelled_otherwise(
    found: Finding, case: Case, *, ignore: Sequence[IgnoreRule], now: datetime
) -> bool:
    """True for a value that a rule says is the declared one in other words."""
    return any(
        rule.equates(found.change, item=case.raw, rules=case.rules, writer=found.writer, now=now)
        for rule in ignore
    )


def _state(findings: tuple[Finding, ...], *, wiped: bool) -> State:
    if wiped:
        return State.WIPED
    owned = [found for found in findings if found.field_class is FieldClass.OWNED]
    if any(found.confirmed for found in owned):
        return State.DRIFTED
    return State.SUSPECT if owned else State.IN_SYNC


def _around(known: frozenset[Path], path: Path) -> bool:
    """True when a path, or one inside or around it, was found before."""
    return any(path[: len(found)] == found or found[: len(path)] == path for found in known)
