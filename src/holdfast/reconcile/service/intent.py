"""What is to be done about one child, decided from its verdict and the user's policy.

Pure. The pass asks for every child before it writes anything, so that the writers of drift are
on record before healing erases them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from holdfast.core.errors import HoldfastError
from holdfast.core.gitops.fight import Heal, fighting, not_before
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.signals import Declaration, Finding
from holdfast.core.ownership.verdict import State, Verdict
from holdfast.core.policy import OnDrift
from holdfast.core.tree import Fields, show_path
from holdfast.reconcile.keeper import Written
from holdfast.reconcile.kube import ObjectRef
from holdfast.reconcile.service.family import Part


class Move(StrEnum):
    """What is done about a child."""

    NOTHING = "nothing"
    """It is as declared."""
    CREATE = "create"
    UPDATE = "update"
    """Only what was declared anew differs."""
    HEAL = "heal"
    BESIDE = "beside"
    """What was declared anew lands; drift beside it stays."""
    BACK_OFF = "back-off"
    """Somebody changes it each time it is put back, so it is left for a while."""
    BLOCKED = "blocked"
    """The server stores it differently each time it is written, so no apply can put it back."""
    LEAVE = "leave"
    REFUSE = "refuse"
    PLAN = "plan"
    AVOID = "avoid"
    """It is somebody else's."""
    AWAIT = "await"
    """It is being deleted."""
    HOLD = "hold"
    """It, or what it depends on, was not seen, so it is not touched."""


WRITES = frozenset({Move.CREATE, Move.UPDATE, Move.HEAL, Move.BESIDE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One child: what is declared, what is there, and what is to be done about it."""

    part: Part
    ref: ObjectRef
    move: Move
    declared: Declaration | None = None
    live: Fields | None = None
    verdict: Verdict | None = None
    policy: OnDrift = OnDrift.RECONCILE
    error: HoldfastError | None = None
    """Why it could not be looked at or written."""
    written: Written | None = None
    """What became of the write, by the server's answer; None when nothing was written."""
    deleted: bool = False
    """It was there before, and somebody deleted it."""
    contested: tuple[Finding, ...] = ()
    """What somebody changes each time it is put back, and is left for now."""
    until: datetime | None = None
    """When what is contested may be put back again."""

    @property
    def altered(self) -> tuple[Finding, ...]:
        """What cannot be as declared, since the server stores it differently than it is sent."""
        if self.written is not None:
            return self.written.altered
        return self.verdict.altered if self.verdict and self.move is Move.BLOCKED else ()

    @property
    def drifted(self) -> tuple[Finding, ...]:
        """What moved without being declared."""
        if self.verdict is None or self.move in (Move.CREATE, Move.AVOID, Move.AWAIT, Move.HOLD):
            return ()
        return self.verdict.drifted

    @property
    def put_back(self) -> bool:
        """True when a heal ended something, by the server's answer to it."""
        if self.move is not Move.HEAL or self.written is None or self.verdict is None:
            return False
        kept = {found.change.path for found in (*self.altered, *self.contested)}
        wiped = self.verdict.state is State.WIPED
        return wiped or any(found.change.path not in kept for found in self.drifted)

    @property
    def landing(self) -> tuple[Finding, ...]:
        """What was declared anew and is not there yet."""
        return () if self.verdict is None else landing(self.verdict)

    @property
    def changes(self) -> frozenset[tuple[str, str]]:
        """What putting it back ends: each field with the tool that had changed it."""
        if self.move is Move.CREATE:
            return frozenset({_WHOLE}) if self.deleted else frozenset()
        left = {found.change.path for found in (*self.contested, *self.altered)}
        ended = {_changed(found) for found in self.drifted if found.change.path not in left}
        return frozenset(ended or {_RECORD})


_WHOLE = ("", "")
"""A deletion: all of the object, by somebody who left no trace."""
_RECORD = ("metadata.managedFields", "")
"""The record of ownership, by somebody who wiped themselves off it, too."""


def _changed(finding: Finding) -> tuple[str, str]:
    return show_path(finding.change.path), finding.writer.manager if finding.writer else ""


def yielding(intent: Intent, heals: Sequence[Heal], now: datetime) -> Intent:
    """Leave what somebody changes each time it is put back, until its time has come again.

    Counted for each field and writer: other drift of the same object is put back at once.
    """
    if intent.move is Move.CREATE and intent.deleted:
        until = _not_before(_WHOLE, heals, now)
        return replace(intent, move=Move.BACK_OFF, until=until) if until else intent
    if intent.move is not Move.HEAL:
        return intent
    waits = [(found, _not_before(_changed(found), heals, now)) for found in intent.drifted]
    times = [until for _, until in waits if until is not None]
    if not waits:
        until = _not_before(_RECORD, heals, now)
        return replace(intent, move=Move.BACK_OFF, until=until) if until else intent
    if not times:
        return intent
    contested = tuple(found for found, until in waits if until is not None)
    move = Move.HEAL
    if len(contested) == len(waits):
        move = Move.BESIDE if intent.landing else Move.BACK_OFF
    return replace(intent, move=move, contested=contested, until=min(times))


def _not_before(change: tuple[str, str], heals: Sequence[Heal], now: datetime) -> datetime | None:
    """When a change that came back after each of several heals may be ended again."""
    rounds = [heal.at for heal in heals if change in heal.fields]
    return not_before(rounds, now) if fighting(rounds, now) else None


def holding_back(intent: Intent) -> Intent:
    """Change nothing about a child that may differ only by what is declared and not understood.

    What is absent is created, and drift is put back where nothing else differs.
    """
    if intent.move is Move.CREATE or intent.move not in WRITES or not intent.landing:
        return intent
    return replace(intent, move=Move.LEAVE if intent.drifted else Move.NOTHING)


def landing(verdict: Verdict) -> tuple[Finding, ...]:
    """What was declared since the last apply. The digest tells, so no dry run has to confirm it."""
    return tuple(
        found
        for found in verdict.findings
        if found.pending and found.field_class is FieldClass.OWNED
    )


def decide(verdict: Verdict, policy: OnDrift) -> Move:
    """Say what to do about a child that is there and ours.

    Total over every verdict and policy. An object whose record of ownership was wiped counts as
    drifted: what moved on it cannot be told any more.
    """
    wiped = verdict.state is State.WIPED
    if policy is OnDrift.RECONCILE and verdict.altered and not verdict.healable and not wiped:
        return Move.UPDATE if landing(verdict) else Move.BLOCKED
    if not verdict.drifted and not wiped:
        return Move.UPDATE if verdict.differing else Move.NOTHING
    match policy:
        case OnDrift.RECONCILE:
            return Move.HEAL
        case OnDrift.FAIL:
            return Move.REFUSE
        case OnDrift.DRY_RUN:
            return Move.PLAN
        case OnDrift.WARN | OnDrift.IGNORE:
            return Move.BESIDE if landing(verdict) else Move.LEAVE
        case _:
            assert_never(policy)
