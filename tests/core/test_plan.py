"""A plan is computed from what was seen, leaves no drift behind, and knows when it is stale."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.strategies import EXECUTION, desired_and_live, drifts, specs
from tests.support.plans import predict

from holdfast.core.backends import backend_profile
from holdfast.core.diff import Change
from holdfast.core.drift import Cause, Drift, DriftedField, DriftKind, Situation, find_drift
from holdfast.core.errors import StalePlan
from holdfast.core.live import Absent, Live, Observation, Unknown, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.plan import (
    Action,
    Disruption,
    Plan,
    Step,
    check_fresh,
    delete_plan,
    make_plan,
)
from holdfast.core.tree import Fields
from holdfast.core.workload import Desired
from holdfast.wire.spec_v1 import spec_from_fields

WHERE = WorkloadId(project="acme", slug="chat")


def live(fields: Fields, *, uid: str = "u1", version: str = "v1") -> Live:
    return Live(id=WHERE, uid=uid, version=version, generation=1, fields=fields)


def step_for(desired: Fields, observed: Observation) -> Step:
    drift = find_drift(desired=Desired(id=WHERE, fields=desired), live=observed)
    (step,) = make_plan([drift]).steps
    return step


@given(desired_and_live())
def test_a_plan_leaves_no_drift_behind(pair: tuple[Desired, Live]) -> None:
    """Once a plan is applied, looking again finds nothing to do."""
    desired, seen = pair
    (step,) = make_plan([find_drift(desired=desired, live=seen)]).steps
    after = replace(seen, fields=predict(step, seen.fields))
    assert find_drift(desired=desired, live=after).situation is Situation.IN_SYNC


@given(EXECUTION, EXECUTION, st.booleans())
def test_a_change_of_policy_leaves_no_drift_behind(
    wanted: Fields, seen: Fields, mixed: bool
) -> None:
    """The fields with the most spellings, drawn by themselves so that they meet often."""
    desired = {**wanted}
    if mixed and "execution_policy_config" in seen:
        desired["execution_policy_config"] = seen["execution_policy_config"]
    step = step_for(desired, live(seen))
    assert step_for(desired, live(predict(step, seen))).action is Action.NOTHING


@given(desired_and_live())
def test_a_plan_leaves_a_valid_workload_behind(pair: tuple[Desired, Live]) -> None:
    """Two valid sides never make an update that the target has to refuse.

    Save one: adapters that somebody else declared stay, and the new engine may not take any. It is
    refused, since only their owner can say what should become of them.
    """
    desired, seen = pair
    (step,) = make_plan([find_drift(desired=desired, live=seen)]).steps
    after = predict(step, seen.fields)
    profile = backend_profile(str(after["backend"]))
    assume("adapters" not in after or profile.adapter_loading is not None)
    spec_from_fields(seen.id.slug, after)


@given(specs())
def test_a_created_workload_is_as_declared(spec: object) -> None:
    fields = spec.fields()  # type: ignore[attr-defined]
    step = step_for(fields, Absent(id=WHERE))
    assert step.action is Action.CREATE
    assert step_for(fields, live(predict(step, {}))).action is Action.NOTHING


@given(drifts())
def test_a_plan_writes_nothing_that_has_not_drifted(drift: Drift) -> None:
    (step,) = make_plan([drift]).steps
    drifted = {field.change.path[0] for field in drift.fields}
    amount = {"replicas", "autoscaling", "execution_policy", "execution_policy_config"}
    start = {"command", "image", "args"}
    for group in (amount, start):
        if drifted & group:
            drifted |= group
    assert set(step.write) <= drifted
    assert (step.action is Action.NOTHING) is (not drift.fields)


@given(drifts())
def test_the_same_world_gives_the_same_digest(drift: Drift) -> None:
    assert make_plan([drift]).digest == make_plan([drift]).digest
    assert make_plan([drift]) == make_plan([drift])


@pytest.mark.parametrize(
    ("desired", "seen", "write"),
    [
        ({"replicas": 2}, {"replicas": 3}, {"replicas": 2}),
        ({"replicas": 2}, {"replicas": 2}, {}),
        (
            {"replicas": 2},
            {"execution_policy": "fixed", "execution_policy_config": {"replicas": 3}},
            {"replicas": 2, "execution_policy": None, "execution_policy_config": None},
        ),
        (
            {"execution_policy": "autoscaling", "execution_policy_config": {"max_workers": 2}},
            {"execution_policy": "scheduled", "execution_policy_config": {"cron": "x"}},
            {"execution_policy": "autoscaling", "execution_policy_config": {"max_workers": 2}},
        ),
        (
            {"autoscaling": {"min": 1, "max": 2}},
            {"autoscaling": {"min": 1, "max": 3, "metric": "theirs"}},
            {"autoscaling": {"min": 1, "max": 2, "metric": "theirs"}},
        ),
        (
            {"execution_policy": "fixed", "execution_policy_config": {}},
            {"execution_policy": "fixed", "execution_policy_config": {"replicas": 0}},
            {"execution_policy": "fixed", "execution_policy_config": {}},
        ),
        (
            {"execution_policy": "autoscaling", "execution_policy_config": {"max_workers": 2}},
            {"execution_policy": "autoscaling",
             "execution_policy_config": {"max_workers": 3, "max_hourly_cost_usd": 5}},
            {"execution_policy": "autoscaling",
             "execution_policy_config": {"max_workers": 2, "max_hourly_cost_usd": 5}},
        ),
        (
            {"autoscaling": {"min": 1, "max": 2}},
            {"replicas": 5},
            {"autoscaling": {"min": 1, "max": 2}, "replicas": None},
        ),
        (
            {"autoscaling": {"min": 1, "max": 2}},
            {"autoscaling": {"min": 0, "max": 2, "metric": "cpu", "idle_after": 60}},
            {"autoscaling": {"min": 1, "max": 2, "metric": "cpu"}},
        ),
        (
            {"autoscaling": {"min": 1, "max": 2, "metrics": [{"metric": "m", "target": 1.0}]}},
            {"autoscaling": {"min": 1, "max": 3, "metric": "cpu", "target": 60.0}},
            {"autoscaling": {"min": 1, "max": 2, "metrics": [{"metric": "m", "target": 1.0}]}},
        ),
        (
            {"autoscaling": {"min": 1, "max": 2, "target": 60.0}},
            {"autoscaling": {"min": 1, "max": 2, "metrics": [{"metric": "m", "target": 1.0}]}},
            {"autoscaling": {"min": 1, "max": 2, "target": 60.0}},
        ),
        ({"command": "a"}, {"image": "i", "args": []},
         {"command": "a", "image": None, "args": None}),
        ({"image": "i"}, {"command": "a"}, {"image": "i", "command": None}),
        ({"env": {"A": "1"}}, {"env": {"A": "1", "B": "2"}}, {"env": {"A": "1"}}),
        (
            {"resources": {"cpu": "1"}},
            {"resources": {"cpu": "2", "gpu": 1}},
            {"resources": {"cpu": "1", "gpu": 1}},
        ),
        (
            {"canary": {"weight": 5, "model": "n"}},
            {"canary": {"weight": 9, "model": "n", "analysis": {"metric": "x", "max": 1}}},
            {"canary": {"weight": 5, "model": "n"}},
        ),
    ],
)  # fmt: skip
def test_an_update_writes_drifted_fields_whole_and_keeps_what_is_not_ours(
    desired: Fields, seen: Fields, write: Fields
) -> None:
    assert step_for(desired, live(seen)).write == write


@pytest.mark.parametrize(
    ("desired", "disruption"),
    [
        ({"model": "n"}, Disruption.RESTART),
        ({"env": {"A": "1"}}, Disruption.RESTART),
        ({"description": "x"}, Disruption.NONE),
        ({"replicas": 9}, Disruption.NONE),
        ({"description": "x", "command": "b"}, Disruption.RESTART),
        ({"service": {"type": "NodePort"}}, Disruption.NONE),
        ({"service": {"ports": [{"name": "grpc", "port": 9000}]}}, Disruption.RESTART),
    ],
)
def test_a_step_says_what_requests_will_notice(desired: Fields, disruption: Disruption) -> None:
    seen: Fields = {"model": "m", "command": "a", "replicas": 1}
    assert step_for(desired, live(seen)).disruption is disruption


def test_an_unknown_side_gets_no_step() -> None:
    drift = find_drift(
        desired=Desired(id=WHERE, fields={"model": "m"}), live=Unknown(id=WHERE, reason="?")
    )
    assert make_plan([drift]).steps == ()


def test_steps_are_ordered_by_workload() -> None:
    ids = [WorkloadId(project="acme", slug=slug) for slug in ("c", "a", "b")]
    drifts_ = [
        find_drift(desired=Desired(id=each, fields={}), live=Absent(id=each)) for each in ids
    ]
    plan = make_plan(drifts_)
    assert [step.id.slug for step in plan.steps] == ["a", "b", "c"]
    assert plan.digest == make_plan(reversed(drifts_)).digest


def test_a_plan_is_true_when_it_would_change_something() -> None:
    assert not Plan(steps=())
    assert not Plan(steps=(step_for({"model": "m"}, live({"model": "m"})),))
    assert Plan(steps=(step_for({"model": "m"}, live({"model": "n"})),))


def test_a_deletion_is_guarded_by_what_was_seen_and_leaves_nothing() -> None:
    (step,) = delete_plan(live({"model": "m"})).steps
    assert (step.action, step.uid, step.version) == (Action.DELETE, "u1", "v1")
    assert predict(step, {"model": "m"}) == {}


FIELD = DriftedField(
    change=Change(path=("model",), desired="m", live="n"),
    kind=DriftKind.CONFIGURATION,
    writer=Writer(manager="curl", at=datetime(2030, 1, 1, tzinfo=UTC)),
)
STEP = Step(
    id=WHERE, action=Action.UPDATE, reason="1 field differs", disruption=Disruption.RESTART,
    fields=(FIELD,), write={"model": "m"}, uid="u1", version="v1",
)  # fmt: skip


def with_field(**changes: object) -> Step:
    return replace(STEP, fields=(replace(FIELD, **changes),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other",
    [
        replace(STEP, id=WorkloadId(project="acme", slug="other")),
        replace(STEP, id=WorkloadId(project="other", slug="chat")),
        replace(STEP, action=Action.CREATE),
        replace(STEP, reason="because"),
        replace(STEP, disruption=Disruption.NONE),
        replace(STEP, fields=()),
        replace(STEP, write={"model": "x"}),
        replace(STEP, write={"model": None}),
        replace(STEP, write={}),
        replace(STEP, uid="u2"),
        replace(STEP, uid=None),
        replace(STEP, version="v2"),
        replace(STEP, version=None),
        with_field(change=replace(FIELD.change, path=("backend",))),
        with_field(change=replace(FIELD.change, desired="x")),
        with_field(change=replace(FIELD.change, live="x")),
        with_field(change=replace(FIELD.change, live=None)),
        with_field(kind=DriftKind.IMAGE),
        with_field(cause=Cause.PERSON),
        with_field(writer=None),
        with_field(writer=Writer(manager="wget")),
        with_field(writer=Writer(manager="curl")),
    ],
)
def test_the_digest_covers_every_part_of_a_step(other: Step) -> None:
    assert Plan(steps=(other,)).digest != Plan(steps=(STEP,)).digest
    assert Plan(steps=(other,)).id != Plan(steps=(STEP,)).id


def test_the_digest_covers_the_number_and_the_order_of_steps() -> None:
    other = replace(STEP, id=WorkloadId(project="acme", slug="other"))
    digests = {
        Plan(steps=steps).digest
        for steps in ((), (STEP,), (STEP, STEP), (STEP, other), (other, STEP))
    }
    assert len(digests) == 5


def dated(at: int) -> Writer:
    return Writer(manager=f"tool-{at}", at=datetime(2030, 1, at, tzinfo=UTC))


FRESH: list[tuple[str, Observation | None, Observation | None, str | None]] = [
    ("the same", live({}), live({}), None),
    ("still absent", Absent(id=WHERE), Absent(id=WHERE), None),
    ("created", Absent(id=WHERE), live({}), "was created meanwhile"),
    ("replaced", live({}), live({}, uid="u2"), "was replaced by another"),
    ("changed", live({}), live({}, version="v2"), "was changed meanwhile,"),
    (
        "changed by someone",
        live({}),
        replace(live({}, version="v2"), writers={"a": dated(2), "b": dated(9), "c": dated(3)}),
        "was changed meanwhile by tool-9",
    ),
    ("deleted", live({}), Absent(id=WHERE), "was deleted meanwhile"),
    ("unread", live({}), Unknown(id=WHERE, reason="timed out"), "could not be observed"),
    ("unread, planned absent", Absent(id=WHERE), Unknown(id=WHERE, reason="?"), "could not be"),
    ("not asked", live({}), None, "could not be observed"),
]


@pytest.mark.parametrize(("then", "now", "moved"), [row[1:] for row in FRESH],
                         ids=[row[0] for row in FRESH])  # fmt: skip
def test_a_plan_is_fresh_only_in_the_world_it_saw(
    then: Observation, now: Observation | None, moved: str | None
) -> None:
    plan = Plan(steps=(step_for({"model": "m"}, then),))
    observed = {} if now is None else {WHERE: now}
    if moved is None:
        check_fresh(plan, observed)
        return
    with pytest.raises(StalePlan) as caught:
        check_fresh(plan, observed)
    assert moved in str(caught.value)
    assert plan.id in str(caught.value)
    assert "Nothing was changed." in str(caught.value)
