"""What is to be done about one child, decided from its verdict and the user's policy.

Pure. The pass asks for every child before it writes anything, so that the writers of drift are
on record before healing erases them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from holdfast.core.errors import HoldfastError
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.signals import Declaration, Finding
from holdfast.core.ownership.verdict import State, Verdict
from holdfast.core.policy import OnDrift
from holdfast.core.tree import Fields
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

    @property
    def drifted(self) -> tuple[Finding, ...]:
        """What moved without being declared."""
        if self.verdict is None or self.move in (Move.CREATE, Move.AVOID, Move.AWAIT, Move.HOLD):
            return ()
        return self.verdict.drifted

    @property
    def landing(self) -> tuple[Finding, ...]:
        """What was declared anew and is not there yet."""
        return () if self.verdict is None else landing(self.verdict)


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
