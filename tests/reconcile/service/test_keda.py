"""Scaling by KEDA: chosen by name, refused where it is missing, exchanged without two at a time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.inference_services import scaled
from tests.support.operator_world import NAME, OperatorWorld

from holdfast.adapters.memory.kube import MemoryKube, custom_kind

HPA = "HorizontalPodAutoscaler"
SCALED = "ScaledObject"
SCALER = f"{NAME}-scaler"
PROMETHEUS = "http://prometheus:9090"
BY_HPA = scaled(preset="queue")
BY_KEDA = scaled(preset="queue", scaler="keda")


def serve_keda(world: OperatorWorld) -> None:
    kube = world.client.client
    assert isinstance(kube, MemoryKube)
    kube.serve(custom_kind("keda.sh/v1alpha1", SCALED))


@pytest.fixture
def installed(world: OperatorWorld) -> OperatorWorld:
    """A cluster with KEDA, and an operator that knows a Prometheus."""
    serve_keda(world)
    world.restart(prometheus=PROMETHEUS)
    return world


def keda_hpa(world: OperatorWorld) -> dict[str, Any]:
    """What KEDA makes of our ScaledObject."""
    owner = world.get(SCALED, SCALER)
    return {
        "apiVersion": "autoscaling/v2",
        "kind": HPA,
        "metadata": {
            "name": f"keda-hpa-{SCALER}",
            "ownerReferences": [
                {
                    "apiVersion": "keda.sh/v1alpha1",
                    "kind": SCALED,
                    "name": SCALER,
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1", "kind": "Deployment", "name": f"{NAME}-primary"
            },
            "minReplicas": 1,
            "maxReplicas": 5,
        },
    }  # fmt: skip


def test_keda_scales_where_it_is_chosen_and_its_own_autoscaler_is_no_other(
    installed: OperatorWorld,
) -> None:
    installed.declare(BY_KEDA)
    installed.converge()
    assert installed.find(SCALED, SCALER)
    assert installed.find(HPA, f"{NAME}-hpa") is None
    installed.apply(keda_hpa(installed), by="keda")
    installed.scale(4, by="horizontal-pod-autoscaler")
    installed.converge()
    assert installed.primary()["spec"]["replicas"] == 4
    assert installed.condition("DriftDetected")[0] == "False"
    assert installed.condition("Ready") == ("True", "Serving")
    assert installed.condition("AutoscalingReady") == ("Unknown", "NotReported")
    said = [{"type": "Ready", "status": "True", "reason": "ScaledObjectReady"}]
    operation = {"op": "add", "path": "/status", "value": {"conditions": said}}
    installed.edit(SCALED, SCALER, operation, by="keda", at="status")
    installed.reconcile()
    assert installed.condition("AutoscalingReady") == ("True", "Scaling")


def test_an_installed_keda_changes_nothing_for_who_did_not_choose_it(
    installed: OperatorWorld,
) -> None:
    installed.declare(BY_HPA)
    installed.converge()
    assert installed.find(HPA, f"{NAME}-hpa")
    assert installed.find(SCALED, SCALER) is None


@pytest.mark.parametrize("missing", ["KedaNotInstalled", "NoPrometheus"])
def test_what_keda_lacks_is_said_and_the_autoscaler_that_there_is_goes_on(
    world: OperatorWorld, missing: str
) -> None:
    if missing == "KedaNotInstalled":
        world.restart(prometheus=PROMETHEUS)
    else:
        serve_keda(world)
    world.declare(BY_HPA)
    world.converge()
    world.scale(3, by="horizontal-pod-autoscaler")
    world.declare(BY_KEDA)
    result = world.reconcile()
    assert world.condition("AutoscalingReady") == ("False", missing)
    assert world.condition("Ready") == ("False", missing)
    assert world.condition("Available") == ("True", "Serving")
    assert world.find(HPA, f"{NAME}-hpa")
    assert world.primary()["spec"]["replicas"] == 3
    assert result.requeue_after is not None
    assert "AutoscalingBlocked" in [note.reason for note in result.notes]
    assert "AutoscalingBlocked" not in [note.reason for note in world.reconcile().notes]
    serve_keda(world)
    world.restart(prometheus=PROMETHEUS)
    world.converge()
    assert world.find(HPA, f"{NAME}-hpa") is None
    assert world.find(SCALED, SCALER)
    assert world.primary()["spec"]["replicas"] == 3


def test_the_other_scaler_is_gone_before_the_new_one_is_made(installed: OperatorWorld) -> None:
    installed.declare(BY_HPA)
    installed.converge()
    installed.scale(4, by="horizontal-pod-autoscaler")
    installed.declare(BY_KEDA)
    installed.reconcile()
    order = [(call.verb, call.kind) for call in installed.client.writes]
    assert order.index(("delete", HPA)) < order.index(("apply", SCALED))
    assert installed.primary()["spec"]["replicas"] == 4


def test_what_keda_leaves_behind_is_waited_for(installed: OperatorWorld) -> None:
    installed.declare(BY_KEDA)
    installed.converge()
    installed.apply(keda_hpa(installed), by="keda")
    installed.scale(4, by="horizontal-pod-autoscaler")
    installed.declare({**BY_HPA})
    installed.reconcile()
    assert installed.find(SCALED, SCALER) is None
    assert installed.find(HPA, f"{NAME}-hpa") is None
    assert installed.condition("AutoscalingReady") == ("False", "AnotherAutoscaler")
    installed.converge()
    assert installed.find(HPA, f"{NAME}-hpa")
    assert installed.primary()["spec"]["replicas"] == 4


def test_an_edited_scaled_object_is_put_back(installed: OperatorWorld) -> None:
    installed.declare(BY_KEDA)
    installed.converge()
    operation = {"op": "replace", "path": "/spec/maxReplicaCount", "value": 99}
    installed.edit(SCALED, SCALER, operation)
    installed.reconcile()
    assert installed.get(SCALED, SCALER)["spec"]["maxReplicaCount"] == 5
    assert "kubectl-edit changed" in installed.says("DriftDetected")


def test_without_bounds_both_scalers_go(installed: OperatorWorld) -> None:
    installed.declare(BY_KEDA)
    installed.converge()
    installed.declare({"minReplicas": None, "maxReplicas": None, "autoscaling": None})
    installed.converge()
    assert installed.find(SCALED, SCALER) is None
    assert installed.primary()["spec"]["replicas"] == 2


def test_somebody_elses_autoscaler_is_still_another(installed: OperatorWorld) -> None:
    installed.declare(BY_KEDA)
    installed.converge()
    other = keda_hpa(installed)
    other["metadata"] = {"name": "mine"}
    installed.apply(other)
    installed.reconcile()
    assert installed.condition("AutoscalingReady") == ("False", "AnotherAutoscaler")
