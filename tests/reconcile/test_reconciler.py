"""One pass over one workload, against a target of a few lines."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest
from tests.support.plans import predict

from holdfast.core.cost import NO_COST, Cost, CostKind
from holdfast.core.drift import Situation
from holdfast.core.errors import (
    OUTCOME_UNKNOWN,
    Conflict,
    HoldfastError,
    PermissionDenied,
    Problem,
    StalePlan,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.live import Absent, Live
from holdfast.core.names import WorkloadId
from holdfast.core.outcome import Outcome
from holdfast.core.plan import Action, Disruption, Plan, Step, delete_plan, make_plan
from holdfast.core.policy import OnAbsent, OnDrift
from holdfast.core.tree import Fields
from holdfast.core.workload import Desired
from holdfast.reconcile import reconciler
from holdfast.reconcile.reconciler import MAX_ATTEMPTS
from holdfast.reconcile.sync_bridge import run_sync

T = TypeVar("T")
CHAT = WorkloadId(project="acme", slug="chat")
EMBED = WorkloadId(project="acme", slug="embed")
DESIRED = Desired(id=CHAT, fields={"model": "m"})


def live(where: WorkloadId = CHAT, version: int = 1, **fields: Any) -> Live:  # Any: a tree
    return Live(id=where, uid="u-" + where.slug, version=f"v{version}", generation=1, fields=fields)


@dataclass
class World:
    """A target in a dictionary, with hooks to go wrong at a chosen moment."""

    workloads: dict[WorkloadId, Live] = field(default_factory=dict)
    refused: Sequence[Problem] = ()
    keys: list[str] = field(default_factory=list)
    writes: int = 0
    price: Cost | None = None
    asked: list[Step] = field(default_factory=list)
    before_observe: Callable[[], None] = lambda: None
    before_perform: Callable[[Step], None] = lambda step: None

    def refuses(self, desired: Desired) -> Sequence[Problem]:
        return self.refused

    async def observe(self, workload: WorkloadId) -> Live | Absent:
        self.before_observe()
        return self.workloads.get(workload, Absent(id=workload))

    async def perform(self, step: Step, *, key: str) -> Live | Absent:
        self.keys.append(key)
        self.before_perform(step)
        seen = self.workloads.get(step.id)
        if (seen.uid if seen else None, seen.version if seen else None) != (step.uid, step.version):
            raise Conflict(f"Workload {step.id} moved.")
        if step.action is Action.NOTHING:
            return seen or Absent(id=step.id)
        self.writes += 1
        if step.action is Action.DELETE:
            del self.workloads[step.id]
            return Absent(id=step.id)
        after = live(step.id, self.writes + 10, **predict(step, seen.fields if seen else {}))
        self.workloads[step.id] = after
        return after

    async def cost(self, step: Step) -> Cost | None:
        self.asked.append(step)
        return self.price

    def meddle(self, **fields: Any) -> None:
        """Another writer changes the workload."""
        seen = self.workloads[CHAT]
        version = seen.version + "x"
        self.workloads[CHAT] = replace(seen, version=version, fields={**seen.fields, **fields})


def ensure(world: World, desired: Desired = DESIRED, **given: Any) -> Any:
    return run_sync(reconciler.ensure(world, desired, key="k", **given))


def test_an_absent_workload_is_created() -> None:
    world = World()
    ref = ensure(world)
    assert ref.outcome is Outcome.CREATED
    assert world.workloads[CHAT].fields == {"model": "m"}
    assert ref.live == world.workloads[CHAT]
    assert (ref.project_slug, ref.workload_slug) == ("acme", "chat")


def test_a_drifted_workload_is_put_back() -> None:
    world = World({CHAT: live(model="other", name="kept")})
    ref = ensure(world)
    assert ref.outcome is Outcome.UPDATED
    assert world.workloads[CHAT].fields == {"model": "m", "name": "kept"}
    assert ref.drift.situation is Situation.DRIFTED
    assert [step.action for step in ref.plan.steps] == [Action.UPDATE]


def test_a_plan_says_what_its_steps_cost_and_what_that_means_for_requests() -> None:
    """By its fields alone a health check restarts nothing; the target knows better."""
    gap = Cost(kind=CostKind.GAP, pods=1)
    world = World({CHAT: live(health={"path": "/a"})}, price=gap)
    desired = Desired(id=CHAT, fields={"health": {"path": "/b"}})
    (step,) = ensure(world, desired, on_drift=OnDrift.DRY_RUN).plan.steps
    assert (step.cost, step.disruption) == (gap, Disruption.STOP)
    plan, _ = run_sync(reconciler.plan(world, [desired]))
    assert plan.steps[0].disruption is Disruption.NONE
    assert run_sync(reconciler.add_costs(world, plan)).steps == (step,)
    world.price = None
    (unknown,) = run_sync(reconciler.add_costs(world, plan)).steps
    assert (unknown.cost, unknown.disruption) == (None, Disruption.NONE)


def test_nobody_is_asked_what_doing_nothing_costs_nor_before_a_write() -> None:
    world = World({CHAT: live(model="m")})
    assert ensure(world).plan.steps[0].cost == NO_COST
    world.meddle(model="other")
    assert ensure(world).outcome is Outcome.UPDATED
    assert world.asked == []


@pytest.mark.parametrize("on_drift", OnDrift)
def test_a_workload_in_sync_is_left_alone(on_drift: OnDrift) -> None:
    world = World({CHAT: live(model="m", extra=1)})
    ref = ensure(world, on_drift=on_drift)
    assert ref.outcome is Outcome.UNCHANGED
    assert world.keys == []


@pytest.mark.parametrize(
    ("on_drift", "outcome"),
    [
        (OnDrift.FAIL, Outcome.REFUSED),
        (OnDrift.DRY_RUN, Outcome.PLANNED),
        (OnDrift.WARN, Outcome.LEFT),
        (OnDrift.IGNORE, Outcome.LEFT),
    ],
)
def test_other_policies_perform_nothing_on_drift(on_drift: OnDrift, outcome: Outcome) -> None:
    seen = live(model="other")
    world = World({CHAT: seen})
    ref = ensure(world, on_drift=on_drift)
    assert ref.outcome is outcome
    assert ref.plan
    assert ref.live == seen
    assert world.keys == []
    assert world.workloads == {CHAT: seen}


@pytest.mark.parametrize(
    ("on_absent", "outcome"),
    [(OnAbsent.PLAN, Outcome.PLANNED), (OnAbsent.FAIL, Outcome.REFUSED)],
)
@pytest.mark.parametrize("on_drift", OnDrift)
def test_an_absent_workload_is_not_created_when_the_caller_says_so(
    on_absent: OnAbsent, outcome: Outcome, on_drift: OnDrift
) -> None:
    world = World()
    ref = ensure(world, on_drift=on_drift, on_absent=on_absent)
    assert ref.outcome is outcome
    assert ref.live is None
    assert ref.plan.steps[0].action is Action.CREATE
    assert world.keys == []
    assert world.workloads == {}


def unavailable() -> None:
    raise TargetUnavailable("No reply in 5 s.")


@pytest.mark.parametrize("on_drift", OnDrift)
@pytest.mark.parametrize("on_absent", OnAbsent)
def test_a_target_that_does_not_answer_is_never_taken_as_absent(
    on_drift: OnDrift, on_absent: OnAbsent
) -> None:
    world = World(before_observe=unavailable)
    with pytest.raises(TargetUnavailable):
        ensure(world, on_drift=on_drift, on_absent=on_absent)
    assert world.keys == []
    assert world.workloads == {}


def test_a_pass_begins_anew_when_another_writer_was_first() -> None:
    world = World({CHAT: live(model="other")})
    meddling = iter([{"name": "a"}, {"name": "b"}])

    def meddle(step: Step) -> None:
        for fields in meddling:
            world.meddle(**fields)
            return

    world.before_perform = meddle
    ref = ensure(world)
    assert ref.outcome is Outcome.UPDATED
    assert world.workloads[CHAT].fields == {"model": "m", "name": "b"}
    assert world.keys == ["k-0", "k-1", "k-2"]


def test_another_writer_who_did_our_work_leaves_nothing_to_do() -> None:
    world = World()

    def create(step: Step) -> None:
        world.workloads[CHAT] = live(model="m")

    world.before_perform = create
    assert ensure(world).outcome is Outcome.UNCHANGED


def test_a_workload_deleted_in_the_middle_is_created_as_the_policy_for_absence_says() -> None:
    world = World({CHAT: live(model="other")})
    world.before_perform = lambda step: world.workloads.pop(CHAT, None) and None
    assert ensure(world, on_absent=OnAbsent.PLAN).outcome is Outcome.PLANNED
    assert world.workloads == {}


def test_endless_conflict_ends_in_an_error_that_changed_nothing() -> None:
    world = World({CHAT: live(model="other")})
    world.before_perform = lambda step: world.meddle(name="again")
    with pytest.raises(Conflict, match=f"{MAX_ATTEMPTS} times"):
        ensure(world)
    assert len(world.keys) == len(set(world.keys)) == MAX_ATTEMPTS
    assert world.workloads[CHAT].fields["model"] == "other"


@pytest.mark.parametrize("call", ["ensure", "plan"])
def test_what_the_target_cannot_honour_is_refused_before_anything_is_written(call: str) -> None:
    problem = Problem(field="image", reason="no engine.", fix="Give a command.")
    world = World(refused=[problem])
    calls: dict[str, Callable[[], object]] = {
        "ensure": lambda: ensure(world),
        "plan": lambda: run_sync(reconciler.plan(world, [DESIRED])),
    }
    with pytest.raises(ValidationError) as caught:
        calls[call]()
    assert caught.value.problems == (problem,)
    assert world.keys == []


def test_planning_changes_nothing() -> None:
    world = World({EMBED: live(EMBED, model="other")})
    other = Desired(id=EMBED, fields={"model": "m"})
    plan, drifts = run_sync(reconciler.plan(world, [other, DESIRED]))
    assert [step.action for step in plan.steps] == [Action.CREATE, Action.UPDATE]
    assert [drift.desired.id for drift in drifts] == [EMBED, CHAT]
    assert world.keys == []


def planned(world: World, **wanted: Fields) -> Plan:
    desired = [
        Desired(id=WorkloadId(project="acme", slug=slug), fields=fields)
        for slug, fields in wanted.items()
    ]
    return run_sync(reconciler.plan(world, desired))[0]


def test_a_plan_is_applied_in_order_and_answers_for_each_step() -> None:
    world = World({EMBED: live(EMBED, model="e")})
    plan = planned(world, chat={"model": "m"}, embed={"model": "e"})
    results = run_sync(reconciler.apply(world, plan, key="k"))
    assert results == (world.workloads[CHAT], world.workloads[EMBED])
    assert world.writes == 1
    assert not planned(world, chat={"model": "m"}, embed={"model": "e"})


def test_an_applied_deletion_answers_with_nothing() -> None:
    world = World({CHAT: live(model="m")})
    assert run_sync(reconciler.apply(world, delete_plan(world.workloads[CHAT]), key="k")) == (None,)
    assert world.workloads == {}


def test_a_plan_is_applied_once() -> None:
    world = World({CHAT: live(model="other")})
    plan = planned(world, chat={"model": "m"})
    run_sync(reconciler.apply(world, plan, key="k"))
    with pytest.raises(StalePlan):
        run_sync(reconciler.apply(world, plan, key="other"))
    assert world.writes == 1


def test_a_stale_plan_is_refused_before_the_first_write() -> None:
    world = World({EMBED: live(EMBED, model="other")})
    plan = planned(world, chat={"model": "m"}, embed={"model": "e"})
    world.workloads[EMBED] = live(EMBED, version=2, model="moved")
    with pytest.raises(StalePlan, match="acme/embed was changed meanwhile"):
        run_sync(reconciler.apply(world, plan, key="k"))
    assert world.keys == []
    assert CHAT not in world.workloads


def test_a_plan_is_not_called_stale_because_the_target_is_silent() -> None:
    world = World({CHAT: live(model="other")})
    plan = planned(world, chat={"model": "m"})
    world.before_observe = unavailable
    with pytest.raises(TargetUnavailable) as caught:
        run_sync(reconciler.apply(world, plan, key="k"))
    assert caught.value.changed == "Nothing was changed."
    assert world.keys == []


ERRORS: list[tuple[HoldfastError, str]] = [
    (PermissionDenied("No."), "1 of 2 changes were made before that."),
    (
        TargetUnavailable("Cut off.", changed=OUTCOME_UNKNOWN),
        f"1 of 2 changes were made before that. {OUTCOME_UNKNOWN}",
    ),
    (
        ValidationError(problems=[Problem(field="a", reason="bad.", fix="Fix it.")]),
        "1 of 2 changes were made before that.\n  a: bad. Fix it.",
    ),
]


@pytest.mark.parametrize(("error", "changed"), ERRORS)
def test_an_error_in_the_middle_says_how_many_changes_were_made(
    error: HoldfastError, changed: str
) -> None:
    in_sync = WorkloadId(project="acme", slug="a")
    world = World({in_sync: live(in_sync, model="a")})
    plan = planned(world, a={"model": "a"}, chat={"model": "m"}, embed={"model": "e"})

    def fail(step: Step) -> None:
        if step.id == EMBED:
            raise error

    world.before_perform = fail
    with pytest.raises(type(error)) as caught:
        run_sync(reconciler.apply(world, plan, key="k"))
    assert caught.value.changed == changed
    assert set(world.workloads) == {in_sync, CHAT}


def test_keys_differ_by_step() -> None:
    world = World()
    run_sync(reconciler.apply(world, planned(world, chat={}, embed={}), key="k"))
    assert world.keys == ["k-0", "k-1"]


def test_an_empty_plan_does_nothing() -> None:
    world = World(before_observe=unavailable)
    coroutine: Coroutine[Any, Any, tuple[Live | None, ...]] = reconciler.apply(
        world, make_plan([]), key="k"
    )
    assert run_sync(coroutine) == ()
