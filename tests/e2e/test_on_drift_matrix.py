"""Rows of the operator's OnDrift table against a real API server: its defaults, its merges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.reconcile.service.test_model_cache import CACHED, CLAIM
from tests.reconcile.service.test_on_drift_matrix import POLICIES, ROWS, TOLD, resize, rested
from tests.reconcile.service.test_scale_to_zero import later, replicas, seen
from tests.support.cluster import Cluster
from tests.support.operator_world import OperatorWorld, OperatorWorlds

pytestmark = pytest.mark.cluster
CHOSEN = (
    "podTemplate: an annotation taken away",
    "podTemplate: a sidecar taken away",
    "podTemplate: a volume",
    "podTemplate: a security context",
    "service: a port",
    "service: the type",
    "resources: a claim",
    "resources: a claim that the server does not use",
    "autoscaling: behavior",
    "adapters: what pods are started with",
)


@pytest.fixture
def world(definitions: Cluster, namespace: str) -> Iterator[OperatorWorld]:
    with OperatorWorlds() as worlds:
        yield worlds.real(definitions.kubeconfig, namespace)


def children_written(world: OperatorWorld) -> list[Any]:
    return [call for call in world.client.writes if call.subresource != "status"]


def written_out(world: OperatorWorld) -> None:
    """Pass after pass until nothing is left to write; no pod has to run."""
    for _ in range(10):
        world.reconcile()
        if not children_written(world):
            return
    raise AssertionError(f"no rest: {world.client.writes}")


@pytest.mark.parametrize("name", CHOSEN)
def test_a_field_is_made_quiet_told_and_put_back_or_left(world: OperatorWorld, name: str) -> None:
    row = ROWS[name]
    world.declare(row.declared)
    written_out(world)
    declared = row.value(world)
    assert declared not in (None, row.evil)
    assert world.condition("DriftDetected") == ("False", "None")
    for policy in (*POLICIES[1:], "reconcile"):
        world.declare({**row.declared, "onDrift": policy})
        world.reconcile()
        assert children_written(world) == []
        assert row.value(world) == declared
        row.edit(world)
        status = world.reconcile().status
        assert row.said in world.says("DriftDetected")
        assert any(row.said in line for line in status.plan or ()) == (policy == "dry_run")
        if policy == "reconcile":
            assert row.value(world) == declared
            assert world.condition("DriftDetected") == ("False", "Healed")
            world.reconcile()
            assert children_written(world) == []
            return
        assert row.value(world) == row.evil
        assert children_written(world) == []
        assert world.condition("DriftDetected") == TOLD[policy]
        later(world, 3600)  # or it is a fight after a few rounds
        world.declare({**row.declared, "onDrift": "reconcile"})
        written_out(world)
        assert row.value(world) == declared


def test_no_replicas_at_rest_are_no_drift_and_what_was_moved_then_is_put_back(
    world: OperatorWorld,
) -> None:
    rested(world, {"maxReplicas": 3})
    for policy in POLICIES:
        world.restart()
        later(world, 20)
        seen(world)
        result = world.reconcile()
        assert (replicas(world), result.status.drift) == (0, "none"), policy
        assert children_written(world) == []
        assert world.condition("DriftDetected") == ("False", "None")
        assert world.condition("Ready") == ("True", "ScaledToZero")
    world.set_image()
    world.reconcile()
    assert replicas(world) == 0
    assert world.condition("DriftDetected") == ("False", "Healed")


EXPANDABLE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "expandable"},
    "provisioner": "kubernetes.io/no-provisioner",
    "allowVolumeExpansion": True,
}


def test_a_claim_that_somebody_made_larger_is_told_and_holds_nothing_up(
    world: OperatorWorld, definitions: Cluster, namespace: str, request: pytest.FixtureRequest
) -> None:
    """No apply can make a claim smaller again."""
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": namespace},
        "spec": {
            "capacity": {"storage": "50Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "expandable",
            "claimRef": {"namespace": namespace, "name": CLAIM},
            "hostPath": {"path": "/models"},
        },
    }
    definitions.apply(EXPANDABLE, volume)
    request.addfinalizer(lambda: definitions.kubectl("delete", "pv", namespace, "--wait=false"))
    world.declare({**CACHED, "cache": {"size": "50Gi", "storageClass": "expandable"}})
    world.reconcile()

    def bound() -> bool:
        claim = world.get("PersistentVolumeClaim", CLAIM)
        return bool(claim["status"].get("phase") == "Bound")

    world.eventually(bound, "the claim to be bound")
    resize(world, "80Gi")
    world.reconcile()
    assert world.client.of("PersistentVolumeClaim") == []
    assert world.condition("DriftDetected") == ("True", "Left")
    assert "cannot be made smaller" in world.says("DriftDetected")
    assert world.condition("ModelCached") == ("False", "Downloading"), "and it goes on"
    world.declare({**CACHED, "cache": {"size": "90Gi", "storageClass": "expandable"}})
    world.reconcile()
    claim = world.get("PersistentVolumeClaim", CLAIM)
    assert claim["spec"]["resources"]["requests"]["storage"] == "90Gi"
