"""The one decision: from a situation, a policy and the circumstances to an action and its reason.

`ensure()`, the operator and the GitOps controller all ask `decide`. Pure: who holds what, which
window is closed and what was fought over is found out by the caller, and the sentences about a
decision are made from its reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import assert_never

from holdfast.core.drift import Situation


class Policy(IntEnum):
    """What may be done about drift, from leaving it alone to putting it back."""

    IGNORE = 0
    REPORT = 1
    PLAN = 2
    REFUSE = 3
    REVIEW = 4
    PROPOSE = 5
    """Ask by a change that somebody accepts elsewhere, such as a pull request."""
    HEAL = 6


class OnDrift(StrEnum):
    """What `ensure()` does when the live workload has drifted."""

    RECONCILE = "reconcile"
    FAIL = "fail"
    DRY_RUN = "dry_run"
    WARN = "warn"
    IGNORE = "ignore"

    @property
    def policy(self) -> Policy:
        """Its place on the one scale."""
        return _ON_DRIFT[self]


_ON_DRIFT = {
    OnDrift.RECONCILE: Policy.HEAL,
    OnDrift.FAIL: Policy.REFUSE,
    OnDrift.DRY_RUN: Policy.PLAN,
    OnDrift.WARN: Policy.REPORT,
    OnDrift.IGNORE: Policy.IGNORE,
}


class OnAbsent(StrEnum):
    """What `ensure()` does when there is no such workload."""

    CREATE = "create"
    PLAN = "plan"
    FAIL = "fail"


class DecisionAction(StrEnum):
    """What is to be done about one workload or object."""

    NOTHING = "nothing"
    CREATE = "create"
    UPDATE = "update"
    """Write what was declared anew; nothing else differs."""
    HEAL = "heal"
    """Put back what moved, and write what was declared anew."""
    UPDATE_AROUND_DRIFT = "update-around-drift"
    """Write what was declared anew, and leave what moved beside it."""
    LEAVE = "leave"
    REPORT = "report"
    PLAN = "plan"
    REFUSE = "refuse"
    REVIEW = "review"
    """Keep a plan until a person approves it."""
    PROPOSE = "propose"
    WAIT = "wait"
    """It is being deleted."""
    HOLD = "hold"
    """Not seen, so not touched."""

    @property
    def writes(self) -> bool:
        """True for what changes the live side now."""
        return self in _WRITES


_WRITES = frozenset(
    {
        DecisionAction.CREATE,
        DecisionAction.UPDATE,
        DecisionAction.HEAL,
        DecisionAction.UPDATE_AROUND_DRIFT,
    }
)


class Reason(StrEnum):
    """Why that is to be done."""

    UNREAD = "unread"
    """The live side could not be read."""
    INCOMPLETE = "incomplete"
    """Something that it depends on could not be read."""
    TERMINATING = "terminating"
    IN_SYNC = "in-sync"
    REJECTED = "rejected"
    SNOOZED = "snoozed"
    HELD = "held"
    FOREIGN = "foreign"
    """Another tool applies it."""
    UNHEALABLE = "unhealable"
    """No apply can put it back."""
    ALTERED = "altered-by-admission"
    """The server stores it otherwise than it is sent."""
    RETRYING = "retrying"
    """The last attempt failed a moment ago."""
    APPROVED = "approved"
    ABSENT = "absent"
    NEWLY_DECLARED = "newly-declared"
    UNKNOWN_FIELDS = "unknown-fields"
    """The declaration has fields of a later version, which a write might undo."""
    WINDOW_CLOSED = "window-closed"
    FIGHT = "fight"
    """Somebody changes it each time it is put back."""
    BACKING_OFF = "backing-off"
    GUARD = "guard"
    """A guard asks for a person's approval first."""
    POLICY = "policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What else counts. Times are given only while they lie ahead."""

    pending: bool = False
    """Beside what moved, something was declared anew and is not there yet."""
    incomplete: bool = False
    unknown_fields: bool = False
    terminating: bool = False
    foreign: bool = False
    held: bool = False
    held_until: datetime | None = None
    approved: bool = False
    rejected: bool = False
    snoozed_until: datetime | None = None
    unhealable: bool = False
    altered: bool = False
    """All that moved was altered by the server's admission."""
    recheck_at: datetime | None = None
    """When the server is asked again whether it still does."""
    retry_at: datetime | None = None
    reverts: bool = False
    """Its pull request proposes the declared value, so that merging it would write."""
    window_open: bool = True
    window_until: datetime | None = None
    fight_until: datetime | None = None
    backoff_until: datetime | None = None
    guarded: bool = False


NO_CIRCUMSTANCES = Circumstances()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to be done, why, and until when that holds; None until something changes."""

    action: DecisionAction
    reason: Reason
    until: datetime | None = None


def decide(
    situation: Situation,
    policy: Policy,
    circumstances: Circumstances = NO_CIRCUMSTANCES,
    on_absent: OnAbsent = OnAbsent.CREATE,
) -> Decision:
    """Say what to do about one workload or object.

    Total over every situation, policy and circumstance; the first rung that holds decides. What
    was not seen is held under every policy. What a person said should stay, stays; a hold beats
    every write, and nobody's approval makes us write what another tool applies. What a person
    approved is done outside of windows too: they were there to see it.
    """
    now = circumstances
    action, reason = DecisionAction, Reason
    if situation is Situation.UNKNOWN:
        return Decision(action=action.HOLD, reason=reason.UNREAD)
    if now.incomplete:
        return Decision(action=action.HOLD, reason=reason.INCOMPLETE)
    if now.terminating:
        return Decision(action=action.WAIT, reason=reason.TERMINATING)
    if situation is Situation.IN_SYNC:
        return Decision(action=action.NOTHING, reason=reason.IN_SYNC)
    if now.snoozed_until is not None:
        return Decision(action=action.LEAVE, reason=reason.SNOOZED, until=now.snoozed_until)
    if now.rejected:
        return Decision(action=action.LEAVE, reason=reason.REJECTED)
    if now.held:
        return Decision(action=action.LEAVE, reason=reason.HELD, until=now.held_until)
    heals = policy in (Policy.HEAL, Policy.REVIEW) or now.approved or now.reverts
    if now.foreign and (heals or now.pending or situation is not Situation.DRIFTED):
        return Decision(action=action.LEAVE, reason=reason.FOREIGN)
    if situation is Situation.DRIFTED and heals:
        if now.unhealable:
            return Decision(action=action.LEAVE, reason=reason.UNHEALABLE)
        if now.altered and not now.pending:
            return Decision(action=action.LEAVE, reason=reason.ALTERED, until=now.recheck_at)
        if now.altered:
            return _unless_unknown(action.UPDATE, reason.NEWLY_DECLARED, now)
    if now.retry_at is not None:
        return Decision(action=action.LEAVE, reason=reason.RETRYING, until=now.retry_at)
    if now.approved:
        return Decision(action=action.HEAL, reason=reason.APPROVED)
    match situation:
        case Situation.ABSENT:
            return _decide_absent(on_absent, now)
        case Situation.PENDING:
            if now.unknown_fields:
                return Decision(action=action.NOTHING, reason=reason.UNKNOWN_FIELDS)
            return _obstacle(now) or Decision(action=action.UPDATE, reason=reason.NEWLY_DECLARED)
        case Situation.DRIFTED:
            return _decide_drifted(policy, now)
        case _:
            assert_never(situation)


def _decide_absent(policy: OnAbsent, now: Circumstances) -> Decision:
    match policy:
        case OnAbsent.CREATE:
            create = Decision(action=DecisionAction.CREATE, reason=Reason.ABSENT)
            return _obstacle(now) or create
        case OnAbsent.PLAN:
            return Decision(action=DecisionAction.PLAN, reason=Reason.ABSENT)
        case OnAbsent.FAIL:
            return Decision(action=DecisionAction.REFUSE, reason=Reason.ABSENT)
        case _:
            assert_never(policy)


def _decide_drifted(policy: Policy, now: Circumstances) -> Decision:
    around = DecisionAction.UPDATE_AROUND_DRIFT
    match policy:
        case Policy.IGNORE | Policy.REPORT if now.pending:
            return _unless_unknown(around, Reason.NEWLY_DECLARED, now)
        case Policy.IGNORE:
            return Decision(action=DecisionAction.LEAVE, reason=Reason.POLICY)
        case Policy.REPORT:
            return Decision(action=DecisionAction.REPORT, reason=Reason.POLICY)
        case Policy.PLAN:
            return Decision(action=DecisionAction.PLAN, reason=Reason.POLICY)
        case Policy.REFUSE:
            return Decision(action=DecisionAction.REFUSE, reason=Reason.POLICY)
        case Policy.REVIEW:
            return Decision(action=DecisionAction.REVIEW, reason=Reason.POLICY)
        case Policy.PROPOSE:
            return Decision(action=DecisionAction.PROPOSE, reason=Reason.POLICY)
        case Policy.HEAL:
            obstacle = _obstacle(now)
            if obstacle is None:
                return _unless_unknown(DecisionAction.HEAL, Reason.POLICY, now)
            if obstacle.reason is Reason.FIGHT and now.pending:
                return replace(_unless_unknown(around, Reason.FIGHT, now), until=obstacle.until)
            return obstacle
        case _:
            assert_never(policy)


def _obstacle(now: Circumstances) -> Decision | None:
    """What keeps us from writing on our own account."""
    leave = DecisionAction.LEAVE
    if not now.window_open:
        return Decision(action=leave, reason=Reason.WINDOW_CLOSED, until=now.window_until)
    if now.fight_until is not None:
        return Decision(action=leave, reason=Reason.FIGHT, until=now.fight_until)
    if now.backoff_until is not None:
        return Decision(action=leave, reason=Reason.BACKING_OFF, until=now.backoff_until)
    if now.guarded:
        return Decision(action=DecisionAction.REVIEW, reason=Reason.GUARD)
    return None


def _unless_unknown(action: DecisionAction, reason: Reason, now: Circumstances) -> Decision:
    """Leave an object alone that may differ only by what is declared and not understood."""
    if now.unknown_fields and now.pending:
        return Decision(action=DecisionAction.LEAVE, reason=Reason.UNKNOWN_FIELDS)
    return Decision(action=action, reason=reason)
