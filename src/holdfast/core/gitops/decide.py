"""What is done next about one drift: the table from remediation and circumstances to a move.

Asked for each open drift in each pass, by `reconcile/gitops/heal.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from holdfast.core import fight
from holdfast.core.gitops.application import PullRequestKind, Remediation
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.hold import Hold
from holdfast.core.gitops.objects import ForeignOwner
from holdfast.core.gitops.window import WindowState

ADMISSION_RECHECK = timedelta(minutes=5)
"""How long what the server's admission changes is left alone where nobody says otherwise."""
FIGHT_TRUCE = timedelta(minutes=30)
"""How long a drift that somebody keeps putting back is left alone."""


class DriftAction(StrEnum):
    """What is done now."""

    LEAVE = "leave"
    HEAL = "heal"
    ASK = "ask"
    """Keep a plan and wait for its approval."""
    PULL = "pull"
    """See to its pull request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftDecision:
    """A move, and how the drift stands from now on."""

    move: DriftAction
    state: DriftState
    note: str = ""
    until: datetime | None = None


def decide_drift(
    drift: ObjectDrift,
    *,
    owner: ForeignOwner | None,
    hold: Hold | None,
    window: WindowState,
    now: datetime,
    recheck_at: datetime | None = None,
) -> DriftDecision:
    """Say what to do about a drift. Total over every remediation and state.

    A hold beats every move; what a person said should stay is not asked again when it ends. An
    object of another tool is never written, whoever approved it.
    What a person approved is done outside of windows too: they were there to see it. What the
    server stores otherwise each time is not written again before `recheck_at`.
    """
    if drift.state is DriftState.SNOOZED and _is_waiting(drift, now):
        return _unchanged(drift)
    if drift.state is DriftState.REJECTED:
        return _unchanged(drift)
    if hold is not None:
        told = f"On hold by {hold.by}: {hold.reason}"
        return DriftDecision(
            move=DriftAction.LEAVE, state=DriftState.HELD, note=told, until=hold.until
        )
    writes = drift.remediation in (Remediation.SELF_HEAL, Remediation.REVIEW) or (
        drift.state is DriftState.APPROVED
        or (drift.remediation is Remediation.PULL_REQUEST and drift.pull is PullRequestKind.REVERT)
    )
    if writes and owner is not None:
        told = f"{owner} applies this object, so it is observed and never written."
        return DriftDecision(move=DriftAction.LEAVE, state=DriftState.DETECTED, note=told)
    if writes and not drift.healable:
        told = "No apply can put this back: the object is right, and its pods are not."
        return DriftDecision(move=DriftAction.LEAVE, state=DriftState.BLOCKED, note=told)
    if writes and drift.altered:
        return DriftDecision(
            move=DriftAction.LEAVE,
            state=DriftState.BLOCKED,
            note=fight.describe_admission_change(drift.entries),
            until=recheck_at or now + ADMISSION_RECHECK,
        )
    if drift.state in (DriftState.APPROVED, DriftState.HEALING) and _is_resting(drift, now):
        return _unchanged(drift)  # the last try failed a moment ago
    if drift.state is DriftState.APPROVED:
        return DriftDecision(move=DriftAction.HEAL, state=DriftState.APPROVED, note=drift.note)
    match drift.remediation:
        case Remediation.REPORT | Remediation.IGNORE:
            return DriftDecision(move=DriftAction.LEAVE, state=DriftState.DETECTED)
        case Remediation.SELF_HEAL:
            return _self_heal(drift, window, now)
        case Remediation.REVIEW:
            return DriftDecision(move=DriftAction.ASK, state=DriftState.AWAITING, note=drift.note)
        case Remediation.PULL_REQUEST:
            if drift.state in (DriftState.HELD, DriftState.SNOOZED):
                return DriftDecision(move=DriftAction.PULL, state=DriftState.DETECTED)
            return DriftDecision(
                move=DriftAction.PULL, state=drift.state, note=drift.note, until=drift.until
            )
        case _:
            assert_never(drift.remediation)


def _self_heal(drift: ObjectDrift, window: WindowState, now: datetime) -> DriftDecision:
    if not window.open:
        return DriftDecision(
            move=DriftAction.LEAVE, state=DriftState.BLOCKED, note=window.why, until=window.until
        )
    if drift.state is DriftState.FIGHTING and _is_resting(drift, now):
        return _unchanged(drift)
    if drift.fought and fight.is_fighting(drift.rounds, now):
        return DriftDecision(
            move=DriftAction.LEAVE, state=DriftState.FIGHTING, note=fight.describe_fight(drift.entries),
            until=now + FIGHT_TRUCE,
        )  # fmt: skip
    later = fight.next_heal_at(drift.rounds, now)
    if later is not None:
        told = f"Healed {len(fight.recent_rounds(drift.rounds, now))} times already; waiting."
        return DriftDecision(
            move=DriftAction.LEAVE, state=DriftState.HEALING, note=told, until=later
        )
    return DriftDecision(move=DriftAction.HEAL, state=DriftState.HEALING)


def _is_waiting(drift: ObjectDrift, now: datetime) -> bool:
    return drift.until is not None and now < drift.until


def _is_resting(drift: ObjectDrift, now: datetime) -> bool:
    """True during a pause of our own making. A clock that was set back makes none longer."""
    return drift.until is not None and now < drift.until <= now + FIGHT_TRUCE


def _unchanged(drift: ObjectDrift) -> DriftDecision:
    return DriftDecision(
        move=DriftAction.LEAVE, state=drift.state, note=drift.note, until=drift.until
    )
