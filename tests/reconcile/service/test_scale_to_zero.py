"""A service without replicas for as long as nobody asks: what is written, and what is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.support.operator_world import KIND, NAME, OperatorWorld

from holdfast.apps.operator.watches import service_changed
from holdfast.core.errors import TargetUnavailable
from holdfast.core.service.idle import DATA_PLANE_ANNOTATION, LAST_REQUEST_ANNOTATION

UNREAD = ("get", "Deployment")
REST: dict[str, Any] = {
    "replicas": 1,
    "minReplicas": 0,
    "maxReplicas": 1,
    "autoscaling": {"idleAfter": "1m"},
}


def annotate(world: OperatorWorld, *names: str) -> None:
    """Write a data plane's annotations, of this moment."""
    now = f"{world.clock.time:%Y-%m-%dT%H:%M:%SZ}"
    held = world.get(KIND, NAME)["metadata"].get("annotations") or {}
    value = {**held, **dict.fromkeys(names, now)}
    operation = {"op": "add", "path": "/metadata/annotations", "value": value}
    world.edit(KIND, NAME, operation, by="holdfast-server")


def seen(world: OperatorWorld) -> None:
    annotate(world, DATA_PLANE_ANNOTATION)


def asked(world: OperatorWorld) -> None:
    annotate(world, DATA_PLANE_ANNOTATION, LAST_REQUEST_ANNOTATION)


def later(world: OperatorWorld, seconds: float) -> None:
    world.clock.time += timedelta(seconds=seconds)


def at_rest(world: OperatorWorld, **change: Any) -> None:
    world.declare({**REST, **change})
    world.converge()
    assert replicas(world) >= 1
    later(world, 61)
    seen(world)
    world.reconcile()
    world.settle()
    world.reconcile()
    assert replicas(world) == 0


def replicas(world: OperatorWorld) -> int:
    return int(world.primary()["spec"]["replicas"])


def test_it_is_put_to_rest_woken_and_put_to_rest_again(world: OperatorWorld) -> None:
    at_rest(world)
    assert world.condition("Ready") == ("True", "ScaledToZero")
    assert world.condition("ScaledToZero") == ("True", "Idle")
    assert world.condition("Available") == ("False", "ScaledToZero")
    assert world.condition("Degraded") == ("False", "Healthy")
    assert world.condition("DriftDetected")[0] == "False"
    assert "Scaled to zero since" in world.says("Ready")
    since = world.says("Ready")
    later(world, 30)
    seen(world)
    world.reconcile()
    assert world.says("Ready") == since
    asked(world)
    world.reconcile()
    assert replicas(world) == 1
    assert world.condition("Ready")[0] == "False"
    world.settle()
    world.reconcile()
    assert world.condition("Ready") == ("True", "Serving")
    assert world.condition("ScaledToZero") == ("False", "Requested")
    later(world, 61)
    seen(world)
    world.reconcile()
    assert replicas(world) == 0


def events(world: OperatorWorld) -> list[tuple[bool, str]]:
    """Make a pass, and give the Events of it: whether each is a warning, and its reason."""
    return [(note.warning, note.reason) for note in world.reconcile().notes]


def test_a_cycle_of_rest_and_waking_is_told_by_events_none_of_them_a_warning(
    world: OperatorWorld,
) -> None:
    world.declare(REST)
    world.converge()
    later(world, 61)
    seen(world)
    told = events(world)
    assert replicas(world) == 0
    told += events(world)  # its controller has not seen the new number yet
    world.settle()
    told += events(world)
    asked(world)
    told += events(world)
    told += events(world)
    world.settle()
    told += events(world)
    assert told == [(False, "ScaledToZero"), (False, "Woken"), (False, "Ready")]


def test_the_pass_that_puts_it_to_rest_leaves_it_ready(world: OperatorWorld) -> None:
    world.declare(REST)
    world.converge()
    later(world, 61)
    seen(world)
    world.reconcile()
    assert replicas(world) == 0
    assert world.condition("Ready") == ("True", "ScaledToZero")
    assert world.condition("UpToDate")[0] == "True"
    assert world.condition("Progressing") == ("True", "ScalingToZero")
    world.settle()
    world.reconcile()
    assert world.condition("Progressing") == ("False", "Done")


def test_until_its_first_pod_is_ready_a_woken_service_is_waking(world: OperatorWorld) -> None:
    at_rest(world)
    world.settle()
    asked(world)
    world.reconcile()
    assert world.condition("Ready") == ("False", "Waking")
    assert "after it was scaled to zero" in world.says("Ready")
    world.restart()
    world.settle(primary=0)
    world.reconcile()
    assert world.condition("Ready") == ("False", "Waking")
    world.settle()
    world.reconcile()
    assert world.condition("Ready") == ("True", "Serving")
    world.settle(primary=0)
    notes = world.reconcile().notes
    assert world.condition("Ready") == ("False", "NoReplicaReady"), "it has been ready since"
    assert [(note.warning, note.reason) for note in notes] == [(True, "NotReady")]


def crash(world: OperatorWorld) -> None:
    """Have a pod of the service crash."""
    name, labels = f"{NAME}-primary-x", {"holdfast.dev/workload": NAME}
    waiting = {"name": "server", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    spec = {"containers": [{"name": "server", "image": "server:1"}]}
    metadata = {"name": name, "labels": labels}
    world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    status = {"op": "add", "path": "/status", "value": {"containerStatuses": [waiting]}}
    world.edit("Pod", name, status, by="kubelet", at="status")


def test_a_woken_service_whose_pods_fail_says_that_they_fail(world: OperatorWorld) -> None:
    at_rest(world)
    world.settle()
    asked(world)
    world.reconcile()
    world.settle(primary=0)
    crash(world)
    later(world, 30)
    told = events(world)
    later(world, 30)
    told += events(world)
    assert world.condition("Ready") == ("False", "PodsFailing")
    assert (True, "PodsFailing") in told


def test_a_cluster_that_does_not_answer_ends_no_rest(world: OperatorWorld) -> None:
    at_rest(world)
    world.settle()
    world.reconcile()
    since = world.says("ScaledToZero")
    world.client.failing = lambda call: (
        TargetUnavailable("The API server did not answer.")
        if (call.verb, call.kind) == UNREAD
        else None
    )
    later(world, 20)
    seen(world)
    with pytest.raises(TargetUnavailable):
        world.reconcile()
    assert world.says("ScaledToZero") == since
    world.client.failing = lambda call: None
    later(world, 20)
    told = events(world)
    assert world.says("ScaledToZero") == since
    assert not {"ScaledToZero", "Woken"} & {reason for _, reason in told}


def test_a_resting_service_whose_minimum_is_raised_is_woken_too(world: OperatorWorld) -> None:
    at_rest(world)
    world.settle()
    world.declare({**REST, "minReplicas": 1, "autoscaling": None})
    told = events(world)
    assert replicas(world) == 1
    world.settle()
    told += events(world)
    told += events(world)
    written = {"Created", "Updated", "Deleted"}
    told = [each for each in told if each[1] not in written]
    assert told == [(False, "Woken"), (False, "Ready")]
    assert not world.has_condition("ScaledToZero")


AWAKE = {**REST, "minReplicas": 1, "autoscaling": {}}


def test_a_failed_call_does_not_leave_a_service_without_replicas_for_good(
    world: OperatorWorld,
) -> None:
    """That it was put to rest was forgotten, and an autoscaler never starts what has none."""
    at_rest(world)
    world.declare(AWAKE)
    world.client.failing = lambda call: (
        TargetUnavailable("It did not answer.")
        if (call.verb, call.kind) == ("list", "HorizontalPodAutoscaler")
        else None
    )
    with pytest.raises(TargetUnavailable):
        world.reconcile()
    assert replicas(world) == 0
    world.client.failing = lambda call: None
    world.converge()
    assert replicas(world) == 1
    assert not world.has_condition("ScaledToZero")


def test_a_suspension_does_not_leave_a_service_without_replicas_for_good(
    world: OperatorWorld,
) -> None:
    at_rest(world)
    world.declare({**AWAKE, "suspend": {"reason": "INC-1"}})
    world.reconcile()
    assert replicas(world) == 0
    assert world.condition("ScaledToZero")[0] == "True"
    world.declare(AWAKE)
    world.converge()
    assert replicas(world) == 1


def test_a_suspended_service_that_is_asked_at_rest_is_not_said_to_be_woken(
    world: OperatorWorld,
) -> None:
    at_rest(world)
    world.settle()
    world.declare({**REST, "suspend": {"reason": "INC-1"}})
    asked(world)
    assert "Woken" not in [reason for _, reason in events(world)]


def test_a_data_plane_that_leaves_a_resting_service_is_worth_a_warning(
    world: OperatorWorld,
) -> None:
    at_rest(world)
    later(world, 600)
    assert events(world) == [(True, "NotReady")]
    seen(world)
    assert events(world) == [(False, "Ready")]


def test_time_alone_puts_it_to_rest_once_it_is_ready(world: OperatorWorld) -> None:
    """However it became ready: the pass that sees it comes back by itself, and no event does."""
    world.declare(REST)
    result = world.reconcile()
    world.settle()
    for _ in range(3):
        seen(world)
        result = world.reconcile()
        if world.condition("ScaledToZero") == ("False", "Requested"):
            assert result.requeue_after is not None
            assert result.requeue_after <= 61
        later(world, result.requeue_after or 0)
    seen(world)
    world.reconcile()
    assert replicas(world) == 0


def test_no_replicas_cost_no_write_and_are_no_drift(world: OperatorWorld) -> None:
    at_rest(world)
    for _ in range(3):
        later(world, 20)
        seen(world)
        world.reconcile()
        assert [call for call in world.client.writes if call.subresource != "status"] == []
    assert world.condition("DriftDetected")[0] == "False"
    status = world.service().status
    assert status is not None
    assert status.drift == "none"


def test_it_is_never_put_to_rest_where_nobody_would_wake_it(world: OperatorWorld) -> None:
    world.declare(REST)
    world.converge()
    for _ in range(5):
        later(world, 600)
        world.reconcile()
        assert replicas(world) == 1
    assert world.condition("ScaledToZero") == ("False", "NoDataPlane")
    assert world.condition("Ready") == ("True", "Serving")


def test_at_rest_without_a_data_plane_it_is_not_ready_and_stays_so(world: OperatorWorld) -> None:
    at_rest(world)
    later(world, 600)
    world.reconcile()
    assert replicas(world) == 0
    assert world.condition("Ready") == ("False", "NoDataPlane")
    assert "holdfast serve" in world.says("Ready")
    seen(world)
    world.reconcile()
    assert world.condition("Ready") == ("True", "ScaledToZero")


def test_a_new_operator_finds_it_as_the_last_one_left_it(world: OperatorWorld) -> None:
    at_rest(world)
    since = world.says("Ready")
    world.restart()
    seen(world)
    world.reconcile()
    assert replicas(world) == 0
    assert world.says("Ready") == since
    asked(world)
    world.restart()
    world.reconcile()
    assert replicas(world) == 1


def test_an_autoscaler_has_one_replica_at_least_and_its_number_is_left(
    world: OperatorWorld,
) -> None:
    world.declare({**REST, "maxReplicas": 3})
    world.converge()
    autoscaler = world.get("HorizontalPodAutoscaler", f"{NAME}-hpa")
    assert (autoscaler["spec"]["minReplicas"], autoscaler["spec"]["maxReplicas"]) == (1, 3)
    world.scale(3, by="horizontal-pod-autoscaler")
    world.settle()
    asked(world)
    world.reconcile()
    assert replicas(world) == 3
    later(world, 61)
    seen(world)
    world.reconcile()
    assert replicas(world) == 0
    world.settle()
    asked(world)
    world.reconcile()
    assert replicas(world) == 1


def test_one_replica_or_none_needs_no_autoscaler(world: OperatorWorld) -> None:
    world.declare(REST)
    world.converge()
    assert world.find("HorizontalPodAutoscaler", f"{NAME}-hpa") is None
    assert not world.has_condition("AutoscalingReady")


def test_a_suspended_service_is_neither_put_to_rest_nor_woken(world: OperatorWorld) -> None:
    at_rest(world)
    world.declare({**REST, "suspend": {"reason": "INC-1"}})
    asked(world)
    world.reconcile()
    assert replicas(world) == 0


@pytest.mark.parametrize("most", [1, 3], ids=["no autoscaler", "an autoscaler"])
@pytest.mark.parametrize("on_drift", ["reconcile", "fail", "dry_run", "warn", "ignore"])
def test_a_lower_bound_of_one_wakes_it_for_good(
    world: OperatorWorld, most: int, on_drift: str
) -> None:
    """Under every policy, as its pods are declared anew and have not drifted."""
    at_rest(world, maxReplicas=most, onDrift=on_drift)
    awake = {"maxReplicas": most, "minReplicas": 1, "autoscaling": {}, "onDrift": on_drift}
    world.declare({**REST, **awake})
    world.converge()
    assert replicas(world) == 1
    assert world.condition("Ready") == ("True", "Serving")
    later(world, 6000)
    seen(world)
    world.reconcile()
    assert replicas(world) == 1
    assert not world.has_condition("ScaledToZero")


def test_one_that_somebody_stopped_is_not_woken(world: OperatorWorld) -> None:
    """That is how an autoscaler is paused."""
    world.declare({"replicas": 1, "minReplicas": 1, "maxReplicas": 3})
    world.converge()
    world.scale(0, by="kubectl")
    world.converge()
    assert replicas(world) == 0


@pytest.mark.parametrize("number", [0, 1])
def test_without_minreplicas_0_a_number_is_as_it_was(world: OperatorWorld, number: int) -> None:
    world.declare({"replicas": 2})
    world.converge()
    later(world, 6000)
    if number:
        seen(world)
    world.reconcile()
    assert replicas(world) == 2
    assert not world.has_condition("ScaledToZero")


def test_signs_of_life_cost_no_pass_and_a_request_to_a_resting_service_does(
    world: OperatorWorld,
) -> None:
    at_rest(world)
    before = world.get(KIND, NAME)
    later(world, 5)
    seen(world)
    after = world.get(KIND, NAME)
    assert not service_changed(before, after)
    asked(world)
    assert service_changed(after, world.get(KIND, NAME))
    world.reconcile()
    world.settle()
    world.reconcile()
    before = world.get(KIND, NAME)
    later(world, 5)
    asked(world)
    assert not service_changed(before, world.get(KIND, NAME))
