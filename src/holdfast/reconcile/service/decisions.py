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
from holdfast.core.fight import Heal, is_fighting, next_heal_at
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.object_diff import ObjectDiff, ObjectState
from holdfast.core.ownership.signals import Declaration, FieldDrift
from holdfast.core.policy import OnDrift
from holdfast.core.tree import Fields, show_path
from holdfast.reconcile.kube import ObjectRef
from holdfast.reconcile.objects.resource_manager import WriteResult
from holdfast.reconcile.service.observe import ChildRole


class ChildAction(StrEnum):
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


WRITING_ACTIONS = frozenset(
    {ChildAction.CREATE, ChildAction.UPDATE, ChildAction.HEAL, ChildAction.BESIDE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildDecision:
    """One child: what is declared, what is there, and what is to be done about it."""

    part: ChildRole
    ref: ObjectRef
    move: ChildAction
    declared: Declaration | None = None
    live: Fields | None = None
    verdict: ObjectDiff | None = None
    policy: OnDrift = OnDrift.RECONCILE
    error: HoldfastError | None = None
    """Why it could not be looked at or written."""
    written: WriteResult | None = None
    """What became of the write, by the server's answer; None when nothing was written."""
    deleted: bool = False
    """It was there before, and somebody deleted it."""
    contested: tuple[FieldDrift, ...] = ()
    """What somebody changes each time it is put back, and is left for now."""
    until: datetime | None = None
    """When what is contested may be put back again."""

    @property
    def altered(self) -> tuple[FieldDrift, ...]:
        """What cannot be as declared, since the server stores it differently than it is sent."""
        if self.written is not None:
            return self.written.altered
        return self.verdict.altered if self.verdict and self.move is ChildAction.BLOCKED else ()

    @property
    def drifted(self) -> tuple[FieldDrift, ...]:
        """What moved without being declared."""
        if self.verdict is None or self.move in (
            ChildAction.CREATE,
            ChildAction.AVOID,
            ChildAction.AWAIT,
            ChildAction.HOLD,
        ):
            return ()
        return self.verdict.drifted

    @property
    def put_back(self) -> bool:
        """True when a heal ended something, by the server's answer to it."""
        if self.move is not ChildAction.HEAL or self.written is None or self.verdict is None:
            return False
        kept = {found.change.path for found in (*self.altered, *self.contested)}
        wiped = self.verdict.state is ObjectState.WIPED
        return wiped or any(found.change.path not in kept for found in self.drifted)

    @property
    def landing(self) -> tuple[FieldDrift, ...]:
        """What was declared anew and is not there yet."""
        return () if self.verdict is None else landing(self.verdict)

    @property
    def changes(self) -> frozenset[tuple[str, str]]:
        """What putting it back ends: each field with the tool that had changed it."""
        if self.move is ChildAction.CREATE:
            return frozenset({_WHOLE_OBJECT}) if self.deleted else frozenset()
        left = {found.change.path for found in (*self.contested, *self.altered)}
        ended = {_changed(found) for found in self.drifted if found.change.path not in left}
        return frozenset(ended or {_OWNERSHIP_RECORD})


_WHOLE_OBJECT = ("", "")
"""A deletion: all of the object, by somebody who left no trace."""
_OWNERSHIP_RECORD = ("metadata.managedFields", "")
"""The record of ownership, by somebody who wiped themselves off it, too."""


def _changed(finding: FieldDrift) -> tuple[str, str]:
    return show_path(finding.change.path), finding.writer.manager if finding.writer else ""


def back_off_from_fights(
    intent: ChildDecision, heals: Sequence[Heal], now: datetime
) -> ChildDecision:
    """Leave what somebody changes each time it is put back, until its time has come again.

    Counted for each field and writer: other drift of the same object is put back at once.
    """
    if intent.move is ChildAction.CREATE and intent.deleted:
        until = _not_before(_WHOLE_OBJECT, heals, now)
        return replace(intent, move=ChildAction.BACK_OFF, until=until) if until else intent
    if intent.move is not ChildAction.HEAL:
        return intent
    waits = [(found, _not_before(_changed(found), heals, now)) for found in intent.drifted]
    times = [until for _, until in waits if until is not None]
    if not waits:
        until = _not_before(_OWNERSHIP_RECORD, heals, now)
        return replace(intent, move=ChildAction.BACK_OFF, until=until) if until else intent
    if not times:
        return intent
    contested = tuple(found for found, until in waits if until is not None)
    move = ChildAction.HEAL
    if len(contested) == len(waits):
        move = ChildAction.BESIDE if intent.landing else ChildAction.BACK_OFF
    return replace(intent, move=move, contested=contested, until=min(times))


def _not_before(change: tuple[str, str], heals: Sequence[Heal], now: datetime) -> datetime | None:
    """When a change that came back after each of several heals may be ended again."""
    rounds = [heal.at for heal in heals if change in heal.fields]
    return next_heal_at(rounds, now) if is_fighting(rounds, now) else None


def keep_unknown_fields(intent: ChildDecision) -> ChildDecision:
    """Change nothing about a child that may differ only by what is declared and not understood.

    What is absent is created, and drift is put back where nothing else differs.
    """
    if (
        intent.move is ChildAction.CREATE
        or intent.move not in WRITING_ACTIONS
        or not intent.landing
    ):
        return intent
    return replace(intent, move=ChildAction.LEAVE if intent.drifted else ChildAction.NOTHING)


def landing(verdict: ObjectDiff) -> tuple[FieldDrift, ...]:
    """What was declared since the last apply. The digest tells, so no dry run has to confirm it."""
    return tuple(
        found
        for found in verdict.field_drifts
        if found.pending and found.field_class is FieldClass.OWNED
    )


def decide(verdict: ObjectDiff, policy: OnDrift) -> ChildAction:
    """Say what to do about a child that is there and ours.

    Total over every verdict and policy. An object whose record of ownership was wiped counts as
    drifted: what moved on it cannot be told any more.
    """
    wiped = verdict.state is ObjectState.WIPED
    if policy is OnDrift.RECONCILE and verdict.altered and not verdict.healable and not wiped:
        return ChildAction.UPDATE if landing(verdict) else ChildAction.BLOCKED
    if not verdict.drifted and not wiped:
        return ChildAction.UPDATE if verdict.differing else ChildAction.NOTHING
    match policy:
        case OnDrift.RECONCILE:
            return ChildAction.HEAL
        case OnDrift.FAIL:
            return ChildAction.REFUSE
        case OnDrift.DRY_RUN:
            return ChildAction.PLAN
        case OnDrift.WARN | OnDrift.IGNORE:
            return ChildAction.BESIDE if landing(verdict) else ChildAction.LEAVE
        case _:
            assert_never(policy)
