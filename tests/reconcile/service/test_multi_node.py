"""A replica of several nodes is a LeaderWorkerSet, or it is refused; it is never half of one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.operator_world import NAME, OperatorWorld

from holdfast.adapters.memory.kube import MemoryKube, custom_kind
from holdfast.core.errors import PermissionDenied

NODES = {"nodes": 2}
LWS = "LeaderWorkerSet"
PRIMARY = f"{NAME}-primary"


@pytest.fixture
def installed(world: OperatorWorld) -> OperatorWorld:
    """A cluster that serves LeaderWorkerSets."""
    kube = world.client.client
    assert isinstance(kube, MemoryKube)
    kube.serve(custom_kind("leaderworkerset.x-k8s.io/v1", LWS, scale=True))
    return world


def play(world: OperatorWorld, ready: int | None = None, **more: Any) -> None:
    """Write the status that the controller of LeaderWorkerSets would."""
    found = world.get(LWS, PRIMARY)
    wanted = found["spec"]["replicas"]
    status = {
        "observedGeneration": found["metadata"]["generation"],
        "replicas": wanted,
        "updatedReplicas": wanted,
        "readyReplicas": wanted if ready is None else ready,
        **more,
    }
    operation = {"op": "add", "path": "/status", "value": status}
    world.edit(LWS, PRIMARY, operation, by="lws", at="status")


def serving(world: OperatorWorld, **change: Any) -> None:
    world.declare({**NODES, **change})
    world.reconcile()
    play(world)
    world.reconcile()


def test_without_leader_worker_sets_it_is_refused_and_nothing_is_made(
    world: OperatorWorld,
) -> None:
    world.declare(NODES)
    result = world.reconcile()
    assert world.condition("Ready") == ("False", "MultiNodeNotInstalled")
    assert world.condition("UpToDate") == ("False", "MultiNodeNotInstalled")
    assert world.condition("DriftDetected")[0] == "Unknown"
    assert [call.subresource for call in world.client.writes] == ["status"]
    assert [note.reason for note in result.notes] == ["MultiNodeNotInstalled"]
    assert result.requeue_after is not None
    assert world.reconcile().notes == ()


def test_a_service_that_runs_is_left_as_it_is_where_several_nodes_are_refused(
    world: OperatorWorld,
) -> None:
    world.declare()
    world.converge()
    before = world.primary()
    world.declare({**NODES, "replicas": 5})
    world.reconcile()
    assert world.primary() == before
    assert world.condition("Ready") == ("False", "MultiNodeNotInstalled")
    assert world.condition("Available") == ("True", "Serving")


def test_it_is_taken_up_once_they_are_installed(world: OperatorWorld) -> None:
    world.declare(NODES)
    world.reconcile()
    kube = world.client.client
    assert isinstance(kube, MemoryKube)
    kube.serve(custom_kind("leaderworkerset.x-k8s.io/v1", LWS, scale=True))
    world.reconcile()
    assert world.find(LWS, PRIMARY)
    assert world.find("Deployment", PRIMARY) is None


def test_it_is_ready_once_all_its_groups_are(installed: OperatorWorld) -> None:
    installed.declare(NODES)
    installed.reconcile()
    assert installed.condition("Ready")[0] == "False"
    play(installed, ready=1)
    installed.reconcile()
    assert installed.condition("Ready") == ("False", "ReplicasNotReady")
    assert installed.condition("Available") == ("True", "Serving")
    play(installed)
    installed.reconcile()
    assert installed.condition("Ready") == ("True", "Serving")
    status = installed.service().status
    assert status is not None
    assert (status.replicas, status.ready_replicas) == (2, 2)
    installed.reconcile()
    assert installed.client.writes == []


def test_a_status_of_an_older_spec_is_not_taken_for_ready(installed: OperatorWorld) -> None:
    serving(installed)
    installed.declare({**NODES, "env": {"A": "1"}})
    installed.reconcile()
    assert installed.condition("Ready") == ("False", "RollingOut")
    play(installed, updatedReplicas=1)
    installed.reconcile()
    assert installed.condition("Progressing") == ("True", "RollingOut")


def test_a_controller_that_does_not_say_what_it_has_read_is_told_of(
    installed: OperatorWorld,
) -> None:
    serving(installed)
    condition = {"type": "Available", "status": "True", "reason": "x", "message": ""}
    status = {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "conditions": [condition]}
    operation = {"op": "replace", "path": "/status", "value": status}
    installed.edit(LWS, PRIMARY, operation, by="lws", at="status")
    installed.reconcile()
    assert installed.condition("Ready") == ("False", "RolloutStuck")
    assert "0.9" in installed.says("Ready")


def test_drift_of_a_group_is_put_back_with_its_writer(installed: OperatorWorld) -> None:
    serving(installed)
    path = "/spec/leaderWorkerTemplate/size"
    installed.edit(LWS, PRIMARY, {"op": "replace", "path": path, "value": 1})
    result = installed.reconcile()
    assert installed.get(LWS, PRIMARY)["spec"]["leaderWorkerTemplate"]["size"] == 2
    assert "DriftHealed" in [note.reason for note in result.notes]
    assert "kubectl-edit changed" in installed.says("DriftDetected")


def test_an_autoscalers_number_is_left_alone(installed: OperatorWorld) -> None:
    installed.declare({**NODES, "minReplicas": 2, "maxReplicas": 5})
    installed.reconcile()
    installed.reconcile()
    assert installed.find("HorizontalPodAutoscaler", f"{NAME}-hpa")
    operation = {"op": "replace", "path": "/spec/replicas", "value": 4}
    installed.edit(LWS, PRIMARY, operation, by="horizontal-pod-autoscaler", at="scale")
    play(installed)
    installed.reconcile()
    assert installed.get(LWS, PRIMARY)["spec"]["replicas"] == 4
    assert installed.condition("DriftDetected")[0] == "False"
    installed.declare({**NODES, "env": {"A": "1"}, "minReplicas": 2, "maxReplicas": 5})
    installed.reconcile()
    assert installed.get(LWS, PRIMARY)["spec"]["replicas"] == 4


@pytest.mark.parametrize(
    ("surge", "gpu"), [(None, None), (1, 1), (None, 1)], ids=["spare", "surge", "no-spare-gpu"]
)
def test_the_old_one_serves_until_the_new_one_does_unless_it_has_the_gpus(
    installed: OperatorWorld, surge: int | None, gpu: int | None
) -> None:
    change: dict[str, Any] = {"resources": {"gpu": gpu}, "rollout": {"maxSurge": surge}}
    change = {k: v for k, v in change.items() if None not in v.values()}
    installed.declare(change)
    installed.converge()
    installed.declare({**change, **NODES})
    installed.reconcile()
    assert installed.find(LWS, PRIMARY)
    waits = gpu is None or surge is not None
    assert (installed.find("Deployment", PRIMARY) is not None) == waits
    play(installed)
    installed.reconcile()
    assert installed.find("Deployment", PRIMARY) is None
    installed.reconcile()
    assert installed.condition("Ready") == ("True", "Serving")
    installed.declare({**change, "nodes": None})
    installed.reconcile()
    installed.settle()
    installed.reconcile()
    assert installed.find(LWS, PRIMARY) is None
    installed.converge()
    assert installed.condition("Ready") == ("True", "Serving")


def test_an_operator_that_may_not_read_them_serves_one_node_as_ever(
    installed: OperatorWorld,
) -> None:
    """As after an upgrade of the operator without its new rights."""
    installed.client.failing = lambda call: PermissionDenied("no") if call.kind == LWS else None
    installed.declare()
    installed.converge()
    assert installed.condition("Ready") == ("True", "Serving")
