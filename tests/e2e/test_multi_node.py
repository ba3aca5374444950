"""A service of several nodes against a real API server with the real LeaderWorkerSet definition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.cluster import Cluster
from tests.support.operator_world import NAME, OperatorWorld, OperatorWorlds
from tests.support.scaling_kinds import leader_worker_sets

__all__ = ["leader_worker_sets"]

pytestmark = pytest.mark.cluster
KIND = "LeaderWorkerSet"
PRIMARY = f"{NAME}-primary"


@pytest.fixture
def world(
    definitions: Cluster, leader_worker_sets: Cluster, namespace: str
) -> Iterator[OperatorWorld]:
    with OperatorWorlds() as worlds:
        yield worlds.real(definitions.kubeconfig, namespace)


def play(world: OperatorWorld) -> None:
    """Say what the controller of LeaderWorkerSets would, once all groups are ready."""
    found = world.get(KIND, PRIMARY)
    count = found["spec"]["replicas"]
    status = {
        "observedGeneration": found["metadata"]["generation"],
        "replicas": count,
        "updatedReplicas": count,
        "readyReplicas": count,
    }
    operation = {"op": "add", "path": "/status", "value": status}
    world.edit(KIND, PRIMARY, operation, by="lws", at="status")


@pytest.mark.parametrize("backend", ["vllm", "sglang"])
def test_groups_are_made_kept_scaled_and_taken_away(world: OperatorWorld, backend: str) -> None:
    declared = {"backend": backend, "nodes": 2}
    world.declare(declared)
    world.reconcile()
    assert world.find("Deployment", PRIMARY) is None
    play(world)
    world.reconcile()
    assert world.condition("Ready") == ("True", "Serving")
    world.reconcile()
    assert world.client.writes == []
    path = "/spec/leaderWorkerTemplate/workerTemplate/spec/containers/0/image"
    world.edit(KIND, PRIMARY, {"op": "replace", "path": path, "value": "evil:1"})
    world.reconcile()
    template = world.get(KIND, PRIMARY)["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    assert template["spec"]["containers"][0]["image"] != "evil:1"
    assert "kubectl-edit changed" in world.says("DriftDetected")
    play(world)
    world.declare({**declared, "minReplicas": 2, "maxReplicas": 4})
    world.reconcile()
    operation = {"op": "replace", "path": "/spec/replicas", "value": 3}
    world.edit(KIND, PRIMARY, operation, by="horizontal-pod-autoscaler", at="scale")
    play(world)
    for _ in range(2):
        world.reconcile()
    assert world.get(KIND, PRIMARY)["spec"]["replicas"] == 3
    assert world.condition("DriftDetected")[0] == "False"
    world.declare({"backend": backend, "nodes": None})
    world.reconcile()
    world.wait(PRIMARY)
    world.reconcile()
    assert world.find(KIND, PRIMARY) is None
