"""What is done next about one drift: the table from remediation and circumstances to a move.

Asked for each open drift in each pass, by `reconcile/gitops/heal.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from holdfast.core.gitops import fight
from holdfast.core.gitops.application import PullKind, Remediation
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.hold import Hold
from holdfast.core.gitops.standing import Owner
from holdfast.core.gitops.window import WindowState

RECHECK = timedelta(minutes=5)
"""How long what the server's admission changes is left alone where nobody says otherwise."""
TRUCE = timedelta(minutes=30)
"""How long a drift that somebody keeps putting back is left alone."""


class Move(StrEnum):
    """What is done now."""

    LEAVE = "leave"
    HEAL = "heal"
    ASK = "ask"
    """Keep a plan and wait for its approval."""
    PULL = "pull"
    """See to its pull request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A move, and how the drift stands from now on."""

    move: Move
    state: DriftState
    note: str = ""
    until: datetime | None = None


def decide(
    drift: ObjectDrift,
    *,
    owner: Owner | None,
    hold: Hold | None,
    window: WindowState,
    now: datetime,
    recheck_at: datetime | None = None,
) -> Decision:
    """Say what to do about a drift. Total over every remediation and state.

    A hold beats every move; what a person said should stay is not asked again when it ends. An
    object of another tool is never written, whoever approved it.
    What a person approved is done outside of windows too: they were there to see it. What the
    server stores otherwise each time is not written again before `recheck_at`.
    """
    if drift.state is DriftState.SNOOZED and _waits(drift, now):
        return _as_it_is(drift)
    if drift.state is DriftState.REJECTED:
        return _as_it_is(drift)
    if hold is not None:
        told = f"On hold by {hold.by}: {hold.reason}"
        return Decision(move=Move.LEAVE, state=DriftState.HELD, note=told, until=hold.until)
    writes = drift.remediation in (Remediation.SELF_HEAL, Remediation.REVIEW) or (
        drift.state is DriftState.APPROVED
        or (drift.remediation is Remediation.PULL_REQUEST and drift.pull is PullKind.REVERT)
    )
    if writes and owner is not None:
        told = f"{owner} applies this object, so it is observed and never written."
        return Decision(move=Move.LEAVE, state=DriftState.DETECTED, note=told)
    if writes and not drift.healable:
        told = "No apply can put this back: the object is right, and its pods are not."
        return Decision(move=Move.LEAVE, state=DriftState.PARKED, note=told)
    if writes and drift.altered:
        return Decision(
            move=Move.LEAVE,
            state=DriftState.PARKED,
            note=fight.altered(drift.entries),
            until=recheck_at or now + RECHECK,
        )
    if drift.state in (DriftState.APPROVED, DriftState.HEALING) and _rests(drift, now):
        return _as_it_is(drift)  # the last try failed a moment ago
    if drift.state is DriftState.APPROVED:
        return Decision(move=Move.HEAL, state=DriftState.APPROVED, note=drift.note)
    match drift.remediation:
        case Remediation.REPORT | Remediation.IGNORE:
            return Decision(move=Move.LEAVE, state=DriftState.DETECTED)
        case Remediation.SELF_HEAL:
            return _self_heal(drift, window, now)
        case Remediation.REVIEW:
            return Decision(move=Move.ASK, state=DriftState.AWAITING, note=drift.note)
        case Remediation.PULL_REQUEST:
            if drift.state in (DriftState.HELD, DriftState.SNOOZED):
                return Decision(move=Move.PULL, state=DriftState.DETECTED)
            return Decision(move=Move.PULL, state=drift.state, note=drift.note, until=drift.until)
        case _:
            assert_never(drift.remediation)


def _self_heal(drift: ObjectDrift, window: WindowState, now: datetime) -> Decision:
    if not window.open:
        return Decision(
            move=Move.LEAVE, state=DriftState.PARKED, note=window.why, until=window.until
        )
    if drift.state is DriftState.FIGHTING and _rests(drift, now):
        return _as_it_is(drift)
    if drift.fought and fight.fighting(drift.rounds, now):
        return Decision(
            move=Move.LEAVE, state=DriftState.FIGHTING, note=fight.kept_up(drift.entries),
            until=now + TRUCE,
        )  # fmt: skip
    later = fight.not_before(drift.rounds, now)
    if later is not None:
        told = f"Healed {len(fight.recent(drift.rounds, now))} times already; waiting."
        return Decision(move=Move.LEAVE, state=DriftState.HEALING, note=told, until=later)
    return Decision(move=Move.HEAL, state=DriftState.HEALING)


def _waits(drift: ObjectDrift, now: datetime) -> bool:
    return drift.until is not None and now < drift.until


def _rests(drift: ObjectDrift, now: datetime) -> bool:
    """True during a pause of our own making. A clock that was set back makes none longer."""
    return drift.until is not None and now < drift.until <= now + TRUCE


def _as_it_is(drift: ObjectDrift) -> Decision:
    return Decision(move=Move.LEAVE, state=drift.state, note=drift.note, until=drift.until)
