"""The reference operator's own tests, put to Holdfast: every behaviour that they assert.

Where the reference is right, so are we; where it is not, `test_corrected.py` says what is.
"""

from __future__ import annotations

import pytest
from tests.support.inference_services import canary, document
from tests.support.operator_world import NAME, OperatorWorld

from holdfast.core.errors import InvalidSpec
from holdfast.wire.inference_service_v1alpha1 import service_from_json

BOUNDS = {"minReplicas": 2, "maxReplicas": 10}


def test_the_first_pass_creates_one_deployment_and_one_front_service(world: OperatorWorld) -> None:
    world.declare()
    world.reconcile()
    (created,) = [call for call in world.client.of("Deployment") if call.created]
    assert created.name == "my-llama-primary"
    assert world.primary()["metadata"]["namespace"] == world.namespace
    fronts = [call for call in world.client.of("Service") if call.name == "my-llama-svc"]
    assert [call.created for call in fronts] == [True]


def test_number_model_and_gpu_memory_reach_the_deployment(world: OperatorWorld) -> None:
    world.declare(large=True)
    world.reconcile()
    spec = world.primary()["spec"]
    assert spec["replicas"] == 2
    notes = spec["template"]["metadata"]["annotations"]
    assert notes["holdfast.dev/model"] == "llama3-8b-q4"
    assert notes["holdfast.dev/gpu-memory"] == "24Gi"
    requests = spec["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}


def test_another_number_is_one_update(world: OperatorWorld) -> None:
    world.declare()
    world.reconcile()
    world.declare({"replicas": 5})
    world.reconcile()
    (update,) = world.client.of("Deployment")
    assert not update.created
    assert world.primary()["spec"]["replicas"] == 5


def test_a_canary_is_a_second_deployment_with_a_model_of_its_own(world: OperatorWorld) -> None:
    world.declare({"replicas": 5, **canary()})
    world.reconcile()
    created = {call.name for call in world.client.of("Deployment") if call.created}
    assert created == {"my-llama-primary", "my-llama-canary"}
    template = world.get("Deployment", "my-llama-canary")["spec"]["template"]
    assert template["metadata"]["annotations"]["holdfast.dev/model"] == "llama3-8b-q8"


def test_a_canary_gets_its_weight_and_the_primary_the_rest(world: OperatorWorld) -> None:
    world.declare({"replicas": 5, **canary()})
    result = world.converge()
    assert result.status.canary_weight == 20
    assert world.primary()["spec"]["replicas"] == 4
    assert world.get("Deployment", "my-llama-canary")["spec"]["replicas"] == 1
    assert "holdfast.dev/role" not in world.get("Service", "my-llama-svc")["spec"]["selector"]


def test_the_health_check_reaches_the_probes(world: OperatorWorld) -> None:
    check = {"path": "/ready", "interval": "30s", "timeout": "10s"}
    world.declare({"healthCheck": check})
    world.reconcile()
    probe = world.primary()["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
    assert probe["httpGet"]["path"] == "/ready"
    assert (probe["periodSeconds"], probe["timeoutSeconds"]) == (30, 10)


@pytest.mark.parametrize("change", [{}, canary(weight=50), BOUNDS], ids=str)
def test_a_right_spec_passes(change: dict[str, object]) -> None:
    service_from_json(document(change)).spec.validate()


@pytest.mark.parametrize(
    "change",
    [
        {"modelRef": ""},
        {"replicas": 0},
        {"replicas": -1},
        {"minReplicas": 10, "maxReplicas": 5},
        canary(modelRef=""),
        canary(weight=101),
        canary(weight=-1),
        {"healthCheck": {"path": ""}},
        {"healthCheck": {"interval": 0}},
        {"healthCheck": {"timeout": 0}},
    ],
    ids=str,
)
def test_a_wrong_spec_is_invalid(change: dict[str, object]) -> None:
    with pytest.raises(InvalidSpec):
        service_from_json(document(change))


def test_deleting_removes_both_deployments_and_everything_else(world: OperatorWorld) -> None:
    service = world.declare(canary())
    world.converge()
    world.client.calls.clear()
    assert world.run(world.reconciler.delete(service))
    gone = sorted(call.name for call in world.client.of("Deployment", "delete"))
    assert gone == ["my-llama-canary", "my-llama-primary"]
    for kind, name in (
        ("Deployment", "my-llama-primary"),
        ("Deployment", "my-llama-canary"),
        ("Service", "my-llama-svc"),
        ("Service", "my-llama-primary"),
        ("PodDisruptionBudget", "my-llama-pdb"),
    ):
        world.eventually(lambda k=kind, n=name: world.find(k, n) is None, f"{kind} {name} is gone")


def test_bounds_make_one_autoscaler_of_the_primary(world: OperatorWorld) -> None:
    world.declare(BOUNDS)
    world.reconcile()
    (created,) = world.client.of("HorizontalPodAutoscaler")
    assert created.created
    spec = world.get("HorizontalPodAutoscaler", "my-llama-hpa")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 10)
    assert spec["scaleTargetRef"]["name"] == "my-llama-primary"


def test_without_bounds_there_is_no_autoscaler(world: OperatorWorld) -> None:
    world.declare({"minReplicas": 0, "maxReplicas": 0})
    world.reconcile()
    assert not world.client.of("HorizontalPodAutoscaler")
    assert world.find("HorizontalPodAutoscaler", "my-llama-hpa") is None


def test_a_deployment_that_is_there_is_updated_and_not_created(world: OperatorWorld) -> None:
    world.declare({"replicas": 1})
    world.converge()
    world.declare()
    world.restart()
    world.reconcile()
    (update,) = world.client.of("Deployment")
    assert not update.created
    assert world.primary()["spec"]["replicas"] == 2


def test_a_canary_that_is_no_longer_declared_is_deleted(world: OperatorWorld) -> None:
    world.declare({"replicas": 4, **canary(weight=25)})
    world.converge()
    assert world.find("Deployment", f"{NAME}-canary")
    world.declare({"replicas": 4})
    world.converge()
    world.eventually(lambda: world.find("Deployment", f"{NAME}-canary") is None, "it is gone")
    assert (
        world.get("Service", "my-llama-svc")["spec"]["selector"]["holdfast.dev/role"] == "primary"
    )
