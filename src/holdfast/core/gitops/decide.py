"""What is done next about one drift, and how the drift stands after that.

`core.policy.decide` decides; here its circumstances are read off a drift, and the state of the
drift is derived from the decision. Asked for each open drift in each pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from holdfast.core import fight
from holdfast.core.drift import DriftKind, Situation
from holdfast.core.gitops.application import GuardSpec, PullRequestKind, Remediation
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.guard import ApprovalRequirement, approval_for_heals
from holdfast.core.gitops.hold import Hold
from holdfast.core.gitops.objects import ForeignOwner
from holdfast.core.gitops.window import WindowState
from holdfast.core.policy import Circumstances, Decision, DecisionAction, Reason, decide

ADMISSION_RECHECK = timedelta(minutes=5)
"""How long what the server's admission changes is left alone where nobody says otherwise."""
FIGHT_TRUCE = timedelta(minutes=30)
"""How long a drift that somebody keeps putting back is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSituation:
    """One drift, and what else counts for it now."""

    drift: ObjectDrift
    now: datetime
    window: WindowState
    owner: ForeignOwner | None = None
    hold: Hold | None = None
    recheck_at: datetime | None = None
    """When the server is asked again about what its admission changes."""
    guard: ApprovalRequirement | None = None
    """Why drift is not healed unasked now, by `guard_heals`."""

    def decide(self) -> Decision:
        """Say what to do about the drift."""
        return decide(Situation.DRIFTED, self.drift.remediation.policy, self._circumstances())

    def _circumstances(self) -> Circumstances:
        drift, now, hold = self.drift, self.now, self.hold
        snoozed = drift.state is DriftState.SNOOZED and drift.until is not None
        resting = _resting_until(drift, now)
        fighting = resting if drift.state is DriftState.FIGHTING else None
        if fighting is None and drift.fought and fight.is_fighting(drift.rounds, now):
            fighting = now + FIGHT_TRUCE
        return Circumstances(
            foreign=self.owner is not None,
            held=hold is not None,
            held_until=hold.until if hold else None,
            approved=drift.state is DriftState.APPROVED,
            rejected=drift.state is DriftState.REJECTED,
            snoozed_until=drift.until if snoozed and drift.until and now < drift.until else None,
            unhealable=not drift.healable,
            altered=drift.altered,
            recheck_at=self.recheck_at or now + ADMISSION_RECHECK,
            retry_at=resting if drift.state in (DriftState.APPROVED, DriftState.HEALING) else None,
            reverts=drift.remediation is Remediation.PULL_REQUEST
            and drift.pull is PullRequestKind.REVERT,
            window_open=self.window.open,
            window_until=self.window.until,
            fight_until=fighting,
            backoff_until=fight.next_heal_at(drift.rounds, now),
            guarded=self.guard is not None,
        )

    def drift_after(self, decision: Decision) -> ObjectDrift:
        """How the drift stands once this was decided. Total over every reason."""
        drift = self.drift
        state, note = drift.state, drift.note
        match decision.reason:
            case Reason.REJECTED | Reason.SNOOZED | Reason.RETRYING:
                return drift
            case Reason.FIGHT if (
                drift.state is DriftState.FIGHTING and decision.until == drift.until
            ):
                return drift
            case Reason.POLICY if decision.action is DecisionAction.PROPOSE:
                if state not in (DriftState.HELD, DriftState.SNOOZED):
                    return drift
                state, note = DriftState.DETECTED, ""
            case Reason.POLICY if decision.action is DecisionAction.REVIEW:
                state = DriftState.AWAITING
            case Reason.POLICY if decision.action is DecisionAction.HEAL:
                state, note = DriftState.HEALING, ""
            case Reason.POLICY:
                state, note = DriftState.DETECTED, ""
            case Reason.APPROVED:
                state = DriftState.APPROVED
            case Reason.HELD:
                state = DriftState.HELD
            case Reason.FOREIGN:
                state = DriftState.DETECTED
            case Reason.UNHEALABLE | Reason.ALTERED | Reason.WINDOW_CLOSED | Reason.GUARD:
                state = DriftState.BLOCKED
            case Reason.FIGHT:
                state = DriftState.FIGHTING
            case Reason.BACKING_OFF:
                state = DriftState.HEALING
            case (
                Reason.UNREAD
                | Reason.INCOMPLETE
                | Reason.TERMINATING
                | Reason.IN_SYNC
                | Reason.ABSENT
                | Reason.NEWLY_DECLARED
                | Reason.UNKNOWN_FIELDS
            ):
                return drift  # no reason about a drift of an object that was read
            case _:
                assert_never(decision.reason)
        note = self.explain(decision.reason) or note
        return replace(drift, state=state, note=note, reason=None, until=decision.until)

    def explain(self, reason: Reason) -> str:
        """Say why a drift is left as it is; empty for reasons that need no words."""
        drift = self.drift
        match reason:
            case Reason.HELD if self.hold is not None:
                return f"On hold by {self.hold.by}: {self.hold.reason}"
            case Reason.FOREIGN:
                return f"{self.owner} applies this object, so it is observed and never written."
            case Reason.UNHEALABLE if DriftKind.MODEL in drift.kinds:
                return (
                    "No apply can change this: what runs is as Git says, and the branch of its "
                    "model moved on. A pull request can bump the pin."
                )
            case Reason.UNHEALABLE:
                return "No apply can put this back: the object is right, and its pods are not."
            case Reason.ALTERED:
                return fight.describe_admission_change(drift.entries)
            case Reason.WINDOW_CLOSED:
                return self.window.why
            case Reason.FIGHT:
                return fight.describe_fight(drift.entries)
            case Reason.GUARD if self.guard is not None:
                return self.guard.message
            case Reason.BACKING_OFF:
                count = len(fight.recent_rounds(drift.rounds, self.now))
                return f"Healed {count} times already; waiting."
            case _:
                return ""


def guard_heals(
    situations: Sequence[DriftSituation],
    *,
    now: datetime,
    rounds: Sequence[datetime],
    inventory: int,
    guard: GuardSpec | None,
) -> tuple[DriftSituation, ...]:
    """Put drifts under the guard where more objects than it allows would be healed unasked.

    Decides about each once without it, to count them. What somebody approved does not count, and
    is healed all the same.
    """
    unasked = {
        each.drift.object
        for each in situations
        if each.decide() == Decision(action=DecisionAction.HEAL, reason=Reason.POLICY)
    }
    required = approval_for_heals(
        now, healing=len(unasked), rounds=rounds, inventory=inventory, guard=guard
    )
    return tuple(replace(each, guard=required) for each in situations)


def _resting_until(drift: ObjectDrift, now: datetime) -> datetime | None:
    """The end of a pause of our own making. A clock that was set back makes none longer."""
    until = drift.until
    return until if until is not None and now < until <= now + FIGHT_TRUCE else None
