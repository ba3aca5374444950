"""A canary's way, step by step and in random walks: who answers, and what happens when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.service.canary_world import CanaryWorld, through_json
from tests.support.inference_services import canary, document

from holdfast.core.service.analysis import MAX_FAILED_ROUNDS, MAX_INCONCLUSIVE_ROUNDS, metric_query
from holdfast.core.service.canary import (
    CanaryDecision,
    advance,
    canary_digest,
    primary_digest,
    primary_spec,
)
from holdfast.core.service.children import Facts, manifests
from holdfast.core.service.spec import (
    AnalysisSpec,
    CanaryObservation,
    CanaryPhase,
    CanarySpec,
    CanaryState,
    InferenceServiceSpec,
    RolloutSpec,
)
from holdfast.core.service.split import SplitMode
from holdfast.reconcile.service.messages import note_of
from holdfast.wire.inference_service_v1alpha1 import service_from_json

OLD, NEW, OTHER = "llama-old", "llama-new", "llama-other"
GRACE = 15.0
"""Five seconds to leave the endpoints, ten to drain."""
JUDGED = AnalysisSpec(metric="errors", max=0.01, interval="60s", rounds=3)


def spec(weight: int | None = 20, **fields: Any) -> InferenceServiceSpec:
    trial = None
    if weight is not None:
        trial = CanarySpec(weight=weight, model_ref=NEW, analysis=fields.pop("analysis", None))
    given = {"replicas": 10, "rollout": RolloutSpec(drain_timeout="10s"), **fields}
    return InferenceServiceSpec(model_ref=OLD, canary=trial, **given)


def running(**fields: Any) -> CanaryWorld:
    """A canary that has its share, and whose route was taken over."""
    gateway = fields.pop("gateway", True)
    world = CanaryWorld(spec(**fields), gateway=gateway)
    for _ in range(6):
        world.primary.settle()
        if world.canary:
            world.canary.settle()
        world.accept()
        world.go()
    assert phase(world) is CanaryPhase.RUNNING
    return world


def phase(world: CanaryWorld) -> CanaryPhase | None:
    return world.state.phase if world.state else None


def model_of_primary(world: CanaryWorld) -> str:
    return primary_spec(world.spec, world.state).model_ref


# Coming


def test_without_a_canary_there_is_nothing_to_do() -> None:
    world = CanaryWorld(spec(None))
    move = world.go()
    assert (move.state, move.weight, move.keep, move.apply) == (None, 0, False, False)
    assert (move.requeue_after, move.facts, move.message) == (None, (), "")
    assert move.split.mode is SplitMode.NONE


@pytest.mark.parametrize("gateway", [True, False])
def test_a_canary_is_created_then_ready_then_attached(gateway: bool) -> None:
    world = CanaryWorld(spec(), gateway=gateway)
    move = world.go()
    assert (move.apply, move.weight) == (True, 0)
    assert world.canary is not None
    assert world.canary.wanted == 2
    assert world.primary.wanted == 10, "the primary gives nothing up before its canary is ready"

    world.canary.ready = world.canary.updated = 1
    assert world.go().weight == 0, "one of two pods is not all of them"
    world.canary.settle()
    assert world.go().weight == 20
    assert phase(world) is CanaryPhase.SHIFTING
    world.accept()
    world.go()
    assert phase(world) is CanaryPhase.RUNNING


def test_pods_of_another_variant_are_not_taken_for_the_canary() -> None:
    world = CanaryWorld(spec())
    world.go()
    assert world.canary is not None
    world.canary.settle()
    world.canary.variant = "left over from a canary that nobody remembers"
    assert world.go().weight == 0


def test_a_share_counts_only_once_every_parent_has_taken_the_route_over() -> None:
    world = CanaryWorld(spec())
    world.go()
    assert world.canary is not None
    world.canary.settle()
    world.go()
    for _ in range(3):
        world.go()
        assert phase(world) is CanaryPhase.SHIFTING
        assert "not all routes" in world.moves[-1].message
    world.accept()
    world.go()
    assert phase(world) is CanaryPhase.RUNNING


def test_a_weight_of_nothing_runs_a_canary_without_requests() -> None:
    world = CanaryWorld(spec(0))
    world.settle()
    assert world.canary is not None
    assert world.routed == 0
    assert phase(world) is CanaryPhase.STARTING
    assert "declared weight is 0" in world.moves[-1].message


# Stepping


def test_a_step_is_written_then_accepted_then_observed() -> None:
    world = running()
    world.change(canary=replace(world.spec.canary, weight=50))
    move = world.go()
    assert move.weight == 20, "more requests wait for the pods that they need"
    assert move.split.canary == 5
    assert world.canary is not None
    world.canary.settle()
    assert world.go().weight == 50
    assert phase(world) is CanaryPhase.SHIFTING
    world.accept()
    world.go()
    assert phase(world) is CanaryPhase.RUNNING


def test_a_smaller_weight_is_given_at_once() -> None:
    world = running(weight=50)
    world.change(canary=replace(world.spec.canary, weight=10))
    assert world.go().weight == 10


def test_all_requests_can_go_to_a_canary_and_come_back() -> None:
    world = running()
    world.change(canary=replace(world.spec.canary, weight=100))
    world.settle()
    assert world.routed == 100
    assert world.primary.wanted == 10
    world.change(canary=None)
    world.settle()
    assert (world.routed, world.canary, world.state) == (0, None, None)


def test_requests_are_not_given_back_to_a_primary_that_cannot_answer() -> None:
    world = running(weight=100)
    world.primary.ready = 0
    world.change(canary=replace(world.spec.canary, weight=50))
    assert world.go().weight == 100
    world.change(canary=None)
    assert world.go().weight == 100
    world.primary.ready = 1
    assert world.go().weight == 0


# Being unwell


@pytest.mark.parametrize("gateway", [True, False])
@pytest.mark.parametrize("weight", [20, 100])
def test_a_canary_that_is_not_ready_any_more_loses_its_share_at_once(
    gateway: bool, weight: int
) -> None:
    world = running(weight=weight, gateway=gateway)
    assert world.canary is not None
    world.canary.ready = 0
    move = world.go()
    assert move.weight == 0
    assert move.keep
    (note,) = map(note_of, move.facts)
    assert (note.warning, note.reason) == (True, "CanaryNotReady")
    assert world.primary.wanted == 10
    assert world.go().facts == (), "it is said once"
    world.canary.settle()
    assert world.go().weight == weight


def test_a_canary_gets_its_share_back_only_when_all_its_pods_are_ready() -> None:
    world = running(weight=50)
    assert world.canary is not None
    world.canary.ready = 0
    world.go()
    world.canary.ready = world.canary.wanted - 1
    assert world.go().weight == 0
    world.canary.settle()
    assert world.go().weight == 50


def test_a_share_stays_while_some_pods_of_the_canary_answer() -> None:
    """Only ready pods get requests anyway; to come and go with each of them helps nobody."""
    world = running(weight=50)
    assert world.canary is not None
    world.canary.ready = 1
    assert world.go().weight == 50


# Leaving


@pytest.mark.parametrize("gateway", [True, False])
def test_a_canary_leaves_in_order(gateway: bool) -> None:
    """Share off, taken over, drained, deleted: each is seen before the next."""
    world = running(gateway=gateway)
    world.change(canary=None)
    world.go()
    world.primary.settle()
    if not gateway:
        assert world.routed, "the primary gets its pods back first"
        world.go()
    assert world.routed == 0
    assert world.canary is not None
    world.go()
    if gateway:
        assert phase(world) is CanaryPhase.DETACHING, "the gateway has not said that it knows"
        world.accept()
        world.go()
    assert phase(world) is CanaryPhase.DRAINING
    world.wait(GRACE - 1)
    move = world.go()
    assert move.keep
    assert move.requeue_after == 1
    world.wait(1)
    assert not world.go().keep
    assert world.canary is None
    move = world.go()
    assert move.state is None
    assert [note.reason for note in map(note_of, move.facts)] == ["CanaryEnded"]


def test_a_route_that_was_read_too_early_does_not_count_as_detached() -> None:
    """A cache may still show the route as it was before the canary got its share."""
    world = running()
    world.change(canary=None)
    stale = replace(world.observed(), routed=0, accepted=True)
    move = advance(world.spec, world.state, stale, world.now)
    assert move.state is not None
    assert move.state.phase is CanaryPhase.DETACHING
    assert (move.weight, move.keep, move.requeue_after) == (0, True, 1)


def test_a_canary_that_never_had_requests_is_not_waited_for() -> None:
    world = CanaryWorld(spec())
    world.go()
    world.change(canary=None)
    world.go()
    world.go()
    assert world.canary is None


def test_a_canary_is_drained_anew_when_someone_sends_it_requests_again() -> None:
    world = running()
    world.change(canary=None)
    world.go()
    world.accept()
    world.go()
    assert phase(world) is CanaryPhase.DRAINING
    world.routed, world.generation = 20, world.generation + 1
    world.accept()
    world.wait(GRACE)
    assert world.go().keep
    assert phase(world) is CanaryPhase.DETACHING


def test_a_left_over_canary_without_a_memory_leaves_in_order_too() -> None:
    world = running()
    world.state = None
    world.change(canary=None)
    assert world.go().keep
    assert world.routed == 0
    world.settle()
    assert (world.canary, world.state) == (None, None)


def test_a_lost_memory_takes_no_requests_from_a_canary_that_answers() -> None:
    world = running()
    world.state = None
    assert world.go().weight == 20
    assert phase(world) is CanaryPhase.RUNNING


def test_another_canary_takes_the_place_of_one_only_after_it_has_left() -> None:
    world = running()
    first = world.canary
    world.change(canary=CanarySpec(weight=20, model_ref=OTHER))
    for _ in range(3):
        move = world.go()
        assert not move.apply, "the pods that drain keep their model"
        world.accept()
    assert world.canary == first
    world.settle()
    assert world.canary is not None
    assert world.canary.variant == canary_digest(world.spec)
    assert world.routed == 20


@pytest.mark.parametrize("passes", range(5))
def test_a_canary_that_is_brought_back_goes_on(passes: int) -> None:
    world = running()
    before = world.spec
    world.change(canary=None)
    for _ in range(passes):
        world.accept()
        world.go()
        world.wait(8)
    world.spec = before
    world.settle()
    assert phase(world) is CanaryPhase.RUNNING
    assert world.routed == 20


# Promoted by its user


@pytest.mark.parametrize("gateway", [True, False])
def test_a_promotion_changes_the_primary_before_the_canary_goes(gateway: bool) -> None:
    world = running(gateway=gateway)
    world.change(model_ref=NEW, canary=None)
    for _ in range(3):
        assert world.go().weight == 20, "the canary keeps its share while the primary changes"
        world.accept()
    assert world.primary.variant == primary_digest(world.spec)
    world.primary.settle()
    assert world.go().weight == 0
    assert world.canary is not None
    world.settle()
    assert (world.canary, world.state, world.routed) == (None, None, 0)


def test_a_promotion_waits_for_a_primary_that_does_not_come_up() -> None:
    world = running()
    world.change(model_ref=NEW, canary=None)
    world.go()
    world.primary.ready = 0
    world.wait(100_000)
    assert world.go().weight == 20


def test_a_promotion_can_be_taken_back() -> None:
    world = running()
    before = world.spec
    world.change(model_ref=NEW, canary=None)
    world.go()
    world.spec = before
    assert world.go().weight == 20
    assert world.primary.variant == primary_digest(before)
    world.settle()
    assert phase(world) is CanaryPhase.RUNNING


# Judged by a metric


def rounds(world: CanaryWorld, *values: float | None) -> list[CanaryDecision]:
    moves = []
    for value in values:
        world.metric = value
        world.wait(60)
        moves.append(world.go())
        world.accept()
    return moves


def test_a_canary_that_stays_within_bounds_becomes_the_primary() -> None:
    world = running(analysis=JUDGED)
    rounds(world, 0.0, 0.01)
    assert phase(world) is CanaryPhase.RUNNING
    (move,) = rounds(world, 0.002)
    assert move.promoted
    assert move.weight == 20, "the primary changes first"
    assert [note.reason for note in map(note_of, move.facts)] == ["AnalysisPassed"]
    assert model_of_primary(world) == NEW
    world.settle()
    assert phase(world) is CanaryPhase.PROMOTED
    assert world.canary is None
    assert world.routed == 0
    assert f"declare modelRef: {NEW}" in world.moves[-1].message
    assert world.spec.model_ref == OLD, "what the user declared is not touched"


def test_declaring_what_was_promoted_restarts_nothing() -> None:
    world = running(analysis=JUDGED)
    rounds(world, 0, 0, 0)
    world.settle()
    before = world.primary
    world.change(model_ref=NEW, canary=None)
    move = world.go()
    assert (move.state, move.promoted) == (None, False)
    assert world.primary == before


def test_declaring_what_was_promoted_while_it_is_under_way_restarts_nothing() -> None:
    world = running(analysis=JUDGED)
    rounds(world, 0, 0, 0)
    before = world.primary
    world.change(model_ref=NEW, canary=None)
    world.go()
    assert world.primary == before
    world.settle()
    assert (world.canary, world.state) == (None, None)


def test_a_promoted_variant_renders_the_bytes_that_its_declaration_renders() -> None:
    service = service_from_json(document(canary(image="registry.example/server:2")))
    state = CanaryState(
        phase=CanaryPhase.PROMOTED,
        ending="Promoted",  # type: ignore[arg-type]  # as a careless reader might leave it
        digest=canary_digest(service.spec) or "",
        base=primary_digest(service.spec),
    )
    state = through_json(state) or state
    standing_in = replace(service, spec=primary_spec(service.spec, state))
    declared = service_from_json(
        document({"modelRef": "llama3-8b-q8", "image": "registry.example/server:2"})
    )
    one, other = (manifests(each, Facts())[0] for each in (standing_in, declared))
    assert one == other


def test_a_promotion_ends_when_another_primary_is_declared() -> None:
    world = running(analysis=JUDGED)
    rounds(world, 0, 0, 0)
    world.settle()
    world.change(model_ref=OTHER)
    world.go()
    assert model_of_primary(world) == OTHER
    assert phase(world) is CanaryPhase.STARTING, "beside it, the canary is judged again"


def test_a_promotion_that_is_withdrawn_goes_back_to_what_is_declared() -> None:
    world = running(analysis=JUDGED)
    rounds(world, 0, 0, 0)
    world.settle()
    world.change(canary=None)
    world.go()
    assert model_of_primary(world) == OLD
    assert world.state is None


def test_a_canary_out_of_bounds_is_rolled_back_and_stays_away() -> None:
    world = running(analysis=JUDGED)
    rounds(world, *[0.5] * (MAX_FAILED_ROUNDS - 1))
    assert phase(world) is CanaryPhase.RUNNING, "one failure may be an accident"
    (move,) = rounds(world, 0.5)
    assert move.weight == 0
    (note,) = map(note_of, move.facts)
    assert (note.warning, note.reason) == (True, "AnalysisFailed")
    world.settle()
    assert phase(world) is CanaryPhase.ROLLED_BACK
    assert world.canary is None
    assert model_of_primary(world) == OLD
    for weight in (50, 0, 20):
        world.change(canary=replace(world.spec.canary, weight=weight))
        world.settle()
        assert world.canary is None, "a weight is no other variant"
    world.metric = None
    world.change(canary=replace(world.spec.canary, model_ref=OTHER))
    world.settle()
    assert world.routed == 20


def test_failures_count_only_in_a_row() -> None:
    world = running(analysis=JUDGED)
    rounds(world, 0.5, 0.0, 0.5, 0.0, 0.5, 0.0, 0.0)
    assert phase(world) is CanaryPhase.RUNNING
    rounds(world, 0.0)
    assert world.state is not None
    assert world.state.ending == "Promoted"


def test_a_metric_without_a_value_decides_nothing_and_is_reported_once() -> None:
    world = running(analysis=JUDGED)
    rounds(world, 0.0, 0.0)
    moves = rounds(world, *[None] * (MAX_INCONCLUSIVE_ROUNDS + 3))
    said = [note.reason for move in moves for note in map(note_of, move.facts)]
    assert said == ["AnalysisInconclusive"]
    assert moves[-1].state == moves[-2].state, "nothing to write while nothing changes"
    assert moves[-1].requeue_after is not None
    assert "no value" in moves[-1].message
    rounds(world, 0.0)
    assert world.state is not None
    assert world.state.ending == "Promoted", "what passed before still counts"


def test_no_round_is_counted_before_its_time_or_without_a_share() -> None:
    world = running(analysis=JUDGED)
    world.metric = 0.0
    for _ in range(10):
        world.wait(5)
        world.go()
    assert world.state is not None
    assert world.state.passed == 0
    world.wait(10)
    world.go()
    assert world.state.passed == 1
    observed = replace(world.observed(), asked=True, metric=0.0)
    assert advance(world.spec, world.state, observed, world.now).state == world.state


def test_another_weight_is_judged_from_the_beginning() -> None:
    world = running(analysis=JUDGED)
    rounds(world, 0, 0)
    world.change(canary=replace(world.spec.canary, weight=10))
    world.go()
    assert world.state is not None
    assert world.state.passed == 0


def test_a_query_knows_whose_canary_it_asks_about() -> None:
    metric = 'rate(errors{pod=~"${CANARY}-.*", namespace="${NAMESPACE}", app="${NAME}"}[1m])'
    service = service_from_json(document(canary(analysis={"metric": metric, "max": 1})))
    assert metric_query(service) == (
        'rate(errors{pod=~"my-llama-canary-.*", namespace="default", app="my-llama"}[1m])'
    )
    assert metric_query(service_from_json(document())) is None


# The ratio of pods


def test_a_ratio_of_pods_follows_the_weight() -> None:
    world = running(gateway=False)
    world.settle()
    assert (world.primary.wanted, world.canary and world.canary.wanted) == (8, 2)
    world.change(canary=replace(world.spec.canary, weight=50))
    world.go()
    assert (world.primary.wanted, world.canary and world.canary.wanted) == (8, 5)
    world.settle()
    assert (world.primary.wanted, world.canary and world.canary.wanted) == (5, 5)
    world.change(canary=replace(world.spec.canary, weight=20))
    world.go()
    world.go()
    assert (world.primary.wanted, world.canary and world.canary.wanted) == (8, 5)
    world.settle()
    assert (world.primary.wanted, world.canary and world.canary.wanted) == (8, 2)


def test_a_weight_that_pods_cannot_give_is_refused_with_the_nearest_they_can() -> None:
    world = CanaryWorld(spec(10, replicas=2), gateway=False)
    world.settle()
    assert world.routed == 0
    assert world.canary is not None
    text = world.moves[-1].message
    assert "10 %" in text
    assert "nearest is 50 %" in text
    world.change(canary=replace(world.spec.canary, weight=45))
    world.settle()
    assert world.routed
    assert world.moves[-1].weight == 50, "the share that the pods really give"


def test_a_canary_that_carries_everything_leaves_a_way_back() -> None:
    world = running(weight=100, gateway=False)
    world.settle()
    assert world.routed == 100
    assert world.primary.wanted == 1
    world.change(canary=None)
    world.go()
    assert world.routed == 100, "one pod is no match for ten"
    assert world.primary.wanted == 10
    world.primary.settle()
    world.go()
    assert world.routed == 0


def test_a_primary_that_never_gets_all_its_pods_does_not_keep_a_canary_for_ever() -> None:
    world = running(gateway=False)
    world.settle()
    world.change(canary=None)
    world.go()
    world.primary.ready = 9
    world.wait(299)
    assert world.go().weight == 20
    world.wait(1)
    assert world.go().weight == 0


# Any order of things


WEIGHTS = st.sampled_from([0, 1, 5, 20, 50, 99, 100])
TRIALS = st.none() | st.builds(
    CanarySpec,
    weight=WEIGHTS,
    model_ref=st.sampled_from([NEW, OTHER]),
    analysis=st.none() | st.just(JUDGED),
)
ACTIONS = st.one_of(
    st.tuples(st.just("declare"), st.sampled_from([OLD, NEW, OTHER]), TRIALS),
    st.tuples(st.just("primary"), st.integers(0, 10)),
    st.tuples(st.just("canary"), st.integers(0, 10)),
    st.tuples(st.just("accept")),
    st.tuples(st.just("wait"), st.sampled_from([1, 10, 60, 400])),
    st.tuples(st.just("metric"), st.sampled_from([None, 0.0, 0.5])),
    st.tuples(st.just("settle")),
)


@settings(max_examples=300, deadline=None)
@given(
    actions=st.lists(ACTIONS, max_size=40),
    gateway=st.booleans(),
    replicas=st.sampled_from([1, 2, 4, 10, None]),
)
def test_whatever_happens_requests_are_answered_and_the_end_is_what_is_declared(
    actions: list[tuple[Any, ...]], gateway: bool, replicas: int | None
) -> None:
    """Every pass reads its state back from the status, so each is a restart as well."""
    world = CanaryWorld(spec(None, replicas=replicas), gateway=gateway)
    for action in actions:
        act(world, action)
        watched_pass(world)
    end(world)


def act(world: CanaryWorld, action: tuple[Any, ...]) -> None:
    match action:
        case ("declare", model, trial):
            if trial is None or trial.model_ref != model:
                world.change(model_ref=model, canary=trial)
        case ("primary", count):
            world.primary.ready = min(count, world.primary.wanted)
            world.primary.updated = max(world.primary.updated, world.primary.ready)
        case ("canary", count):
            if world.canary:
                world.canary.ready = min(count, world.canary.wanted)
                world.canary.updated = max(world.canary.updated, world.canary.ready)
        case ("accept",):
            world.accept()
        case ("wait", seconds):
            world.wait(seconds)
        case ("metric", value):
            world.metric = value
        case ("settle",):
            world.primary.settle()
            if world.canary:
                world.canary.settle()


def watched_pass(world: CanaryWorld) -> None:
    """One pass, and everything that must never happen in it."""
    routed, taken, before = world.routed, world.taken, world.canary
    ready = before.ready if before else 0
    answering = answers(world, routed)
    move = world.go()
    assert 0 <= move.weight <= 100
    if move.weight:
        assert ready, "requests to a canary that cannot answer"
    if move.weight and not routed:
        assert before is not None
        assert ready >= before.wanted, "attached before all its pods were ready"
        assert before.variant == canary_digest(world.spec)
    if before is not None and world.canary is None:
        assert taken == 0, "deleted while a gateway may still send it requests"
    if before is not None and world.canary is not None and world.routed:
        assert before.variant == world.canary.variant, "exchanged under its requests"
    if answering:
        assert answers(world, world.routed), "nobody answers, although somebody could"
    assert through_json(move.state) == move.state


def answers(world: CanaryWorld, weight: int) -> int:
    primary = world.primary.ready if weight < 100 else 0
    canary = world.canary.ready if world.canary and weight else 0
    return primary + canary


def end(world: CanaryWorld) -> None:
    """Left alone with everything ready, the world becomes what is declared, and then rests."""
    world.metric = None
    world.settle(passes=60)
    trial = world.spec.canary
    state = world.state
    if trial is None:
        assert (world.canary, state, world.routed) == (None, None, 0)
    else:
        assert state is not None
        assert state.digest == canary_digest(world.spec)
        if state.phase is CanaryPhase.RUNNING:
            assert world.routed
        elif state.phase is CanaryPhase.STARTING:
            assert state.reason in ("CanaryWithoutShare", "WeightNotPossible")
            assert world.routed == 0
        else:
            assert state.phase in (CanaryPhase.PROMOTED, CanaryPhase.ROLLED_BACK)
            assert (world.canary, world.routed) == (None, 0)
    assert world.primary.variant == primary_digest(primary_spec(world.spec, state))
    for _ in range(3):
        world.wait(100)
        assert world.go().state == state, "at rest, nothing is written"


@settings(deadline=None)
@given(
    phase=st.sampled_from(CanaryPhase),
    weight=WEIGHTS,
    since=st.sampled_from(["", "yesterday", "2026-01-01", "2999-01-01T00:00:00Z"]),
    trial=TRIALS,
    exists=st.booleans(),
    ready=st.integers(0, 3),
)
def test_every_state_can_meet_every_world(
    phase: CanaryPhase, weight: int, since: str, trial: CanarySpec | None, exists: bool, ready: int
) -> None:
    """Also one that somebody edited: it must lead somewhere, and never to an exception."""
    world = CanaryWorld(replace(spec(None), canary=trial))
    state = CanaryState(phase=phase, weight=weight, since=since, digest="edited by hand")
    observed = CanaryObservation(
        gateway=True, exists=exists, ready=ready, replicas=3, primary_ready=3
    )
    move = advance(world.spec, state, observed, world.now)
    assert not move.weight or ready
    world.state = move.state
    world.settle(passes=60)
    end(world)
