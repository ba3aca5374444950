"""A service that KEDA scales, against a real API server with KEDA's real definition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.cluster import Cluster
from tests.support.inference_services import BEHAVIOR, scaled
from tests.support.operator_world import NAME, OperatorWorld, OperatorWorlds
from tests.support.scaling_kinds import keda

__all__ = ["keda"]

pytestmark = pytest.mark.cluster
SCALER = f"{NAME}-scaler"


@pytest.fixture
def world(definitions: Cluster, keda: Cluster, namespace: str) -> Iterator[OperatorWorld]:
    with OperatorWorlds() as worlds:
        made = worlds.real(definitions.kubeconfig, namespace)
        made.restart(prometheus="http://prometheus:9090")
        yield made


def test_a_scaled_object_takes_the_place_of_the_autoscaler_and_gives_it_back(
    world: OperatorWorld,
) -> None:
    metrics = [{"metric": "cpu", "target": 70}]
    by_hpa = scaled(preset="queue", metrics=metrics, behavior=BEHAVIOR)
    world.declare(by_hpa)
    for _ in range(2):
        world.reconcile()
    assert len(world.get("HorizontalPodAutoscaler", f"{NAME}-hpa")["spec"]["metrics"]) == 2
    world.reconcile()
    assert [call for call in world.client.writes if call.subresource != "status"] == []
    world.declare(scaled(preset="queue", metrics=metrics, behavior=BEHAVIOR, scaler="keda"))
    for _ in range(2):
        world.reconcile()
    assert world.find("HorizontalPodAutoscaler", f"{NAME}-hpa") is None
    assert len(world.get("ScaledObject", SCALER)["spec"]["triggers"]) == 2
    world.reconcile()
    assert [call for call in world.client.writes if call.subresource != "status"] == []
    assert world.condition("DriftDetected")[0] == "False"
    world.declare({**by_hpa, "autoscaling": {"preset": "queue"}})
    for _ in range(2):
        world.reconcile()
    assert world.find("ScaledObject", SCALER) is None
    assert world.find("HorizontalPodAutoscaler", f"{NAME}-hpa")
