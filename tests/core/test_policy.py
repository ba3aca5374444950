"""The decision table, cell by cell."""

from __future__ import annotations

from itertools import product

import pytest

from holdfast.core.desired import Desired
from holdfast.core.drift import Drift, Situation
from holdfast.core.live import Unknown
from holdfast.core.names import WorkloadId
from holdfast.core.policy import Decision, OnAbsent, OnDrift, decide

WHERE = WorkloadId(project="acme", slug="chat")
DRIFTED = {
    OnDrift.RECONCILE: Decision.UPDATE,
    OnDrift.FAIL: Decision.REFUSE,
    OnDrift.DRY_RUN: Decision.PLAN,
    OnDrift.WARN: Decision.WARN,
    OnDrift.IGNORE: Decision.LEAVE,
}
ABSENT = {
    OnAbsent.CREATE: Decision.CREATE,
    OnAbsent.PLAN: Decision.PLAN,
    OnAbsent.FAIL: Decision.REFUSE,
}


def expected(situation: Situation, on_drift: OnDrift, on_absent: OnAbsent) -> Decision:
    return {
        Situation.UNKNOWN: Decision.HOLD,
        Situation.IN_SYNC: Decision.KEEP,
        Situation.DRIFTED: DRIFTED[on_drift],
        Situation.ABSENT: ABSENT[on_absent],
    }[situation]


@pytest.mark.parametrize(("situation", "on_drift", "on_absent"),
                         list(product(Situation, OnDrift, OnAbsent)))  # fmt: skip
def test_every_cell_of_the_table(
    situation: Situation, on_drift: OnDrift, on_absent: OnAbsent
) -> None:
    drift = Drift(
        desired=Desired(id=WHERE, fields={}),
        live=Unknown(id=WHERE, reason=""),
        situation=situation,
    )
    assert decide(drift, on_drift, on_absent) is expected(situation, on_drift, on_absent)


@pytest.mark.parametrize("on_drift", OnDrift)
def test_an_absent_workload_is_created_unless_the_caller_says_otherwise(on_drift: OnDrift) -> None:
    drift = Drift(
        desired=Desired(id=WHERE, fields={}),
        live=Unknown(id=WHERE, reason=""),
        situation=Situation.ABSENT,
    )
    assert decide(drift, on_drift) is Decision.CREATE


@pytest.mark.parametrize("bad", ["situation", "on_drift", "on_absent"])
def test_a_value_outside_the_table_is_an_error_and_not_a_default(bad: str) -> None:
    situation = {"on_drift": Situation.DRIFTED, "on_absent": Situation.ABSENT}.get(bad, "?")
    drift = Drift(
        desired=Desired(id=WHERE, fields={}),
        live=Unknown(id=WHERE, reason=""),
        situation=situation,  # type: ignore[arg-type]
    )
    with pytest.raises(AssertionError):
        decide(drift, "?", "?")  # type: ignore[arg-type]
