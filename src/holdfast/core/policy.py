"""The user's rule, and the table from drift to decision."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from holdfast.core.drift import Drift, Situation


class OnDrift(StrEnum):
    """What `ensure()` does when the live workload has drifted."""

    RECONCILE = "reconcile"
    FAIL = "fail"
    DRY_RUN = "dry_run"
    WARN = "warn"
    IGNORE = "ignore"


class OnAbsent(StrEnum):
    """What `ensure()` does when there is no such workload."""

    CREATE = "create"
    PLAN = "plan"
    FAIL = "fail"


class Decision(StrEnum):
    """What is to be done about one workload."""

    CREATE = "create"
    UPDATE = "update"
    KEEP = "keep"
    """In sync: nothing to do."""
    REFUSE = "refuse"
    PLAN = "plan"
    WARN = "warn"
    LEAVE = "leave"
    HOLD = "hold"
    """Not seen, so not touched."""


def decide(drift: Drift, on_drift: OnDrift, on_absent: OnAbsent = OnAbsent.CREATE) -> Decision:
    """Say what to do about one workload.

    Total over every situation and policy. A live side that could not be read is held under
    every policy: Holdfast does not act on what it has not seen.
    """
    match drift.situation:
        case Situation.UNKNOWN:
            return Decision.HOLD
        case Situation.IN_SYNC:
            return Decision.KEEP
        case Situation.ABSENT:
            return _decide_absent(on_absent)
        case Situation.DRIFTED:
            return _decide_drifted(on_drift)
        case _:
            assert_never(drift.situation)


def _decide_absent(policy: OnAbsent) -> Decision:
    match policy:
        case OnAbsent.CREATE:
            return Decision.CREATE
        case OnAbsent.PLAN:
            return Decision.PLAN
        case OnAbsent.FAIL:
            return Decision.REFUSE
        case _:
            assert_never(policy)


def _decide_drifted(policy: OnDrift) -> Decision:
    match policy:
        case OnDrift.RECONCILE:
            return Decision.UPDATE
        case OnDrift.FAIL:
            return Decision.REFUSE
        case OnDrift.DRY_RUN:
            return Decision.PLAN
        case OnDrift.WARN:
            return Decision.WARN
        case OnDrift.IGNORE:
            return Decision.LEAVE
        case _:
            assert_never(policy)
