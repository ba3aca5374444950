"""What the reference operator does not do, or does wrongly, and Holdfast has to do.

Each test is one sentence about an outcome that a user would notice.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.inference_services import canary
from tests.support.operator_world import NAME, OperatorWorld, RecordedCall

from holdfast.core.errors import HoldfastError, TargetUnavailable
from holdfast.reconcile.service.observe import child_refs

BOUNDS = {"minReplicas": 2, "maxReplicas": 10}
HPA = "HorizontalPodAutoscaler"
UNANSWERED = TargetUnavailable("The API server gave no answer.")


def fails(**wanted: str) -> Any:
    """Let the calls fail that have these attributes."""

    def failing(call: RecordedCall) -> HoldfastError | None:
        hit = all(getattr(call, name) == value for name, value in wanted.items())
        return UNANSWERED if hit else None

    return failing


def test_a_second_identical_pass_writes_nothing(world: OperatorWorld) -> None:
    world.declare({**BOUNDS, **canary(weight=50)})
    world.converge()
    world.reconcile()
    assert world.client.writes == []


def test_an_operator_that_starts_anew_writes_nothing(world: OperatorWorld) -> None:
    world.declare({"replicas": 4, **canary(weight=25)})
    world.converge()
    world.restart()
    world.reconcile()
    assert world.client.writes == []


@pytest.mark.parametrize("kind", ["Deployment", "Service", "PodDisruptionBudget"])
def test_a_read_that_fails_creates_nothing(world: OperatorWorld, kind: str) -> None:
    world.declare()
    world.client.failing = fails(verb="get", kind=kind)
    with pytest.raises(TargetUnavailable):
        world.reconcile()
    assert not [call for call in world.client.writes if call.kind == kind]
    assert world.condition("Reconciling") == ("False", "ApiError")
    world.client.failing = lambda call: None
    world.converge()
    assert not world.has_condition("Reconciling")


def test_a_canary_that_cannot_be_read_is_not_leaked_nor_made_twice(world: OperatorWorld) -> None:
    world.declare({"replicas": 4, **canary(weight=25)})
    world.converge()
    world.declare({"replicas": 4})
    world.client.failing = fails(verb="get", name=f"{NAME}-canary")
    with pytest.raises(TargetUnavailable):
        world.reconcile()
    assert world.find("Deployment", f"{NAME}-canary")
    world.client.failing = lambda call: None
    world.converge()
    world.eventually(lambda: world.find("Deployment", f"{NAME}-canary") is None, "it is gone")


def test_what_an_autoscaler_chose_stays_through_every_pass(world: OperatorWorld) -> None:
    world.declare(BOUNDS)
    world.converge()
    world.scale(7, by="kube-controller-manager")
    world.declare({**BOUNDS, "env": {"A": "1"}})
    world.converge()
    assert world.primary()["spec"]["replicas"] == 7
    assert world.condition("DriftDetected") == ("False", "None")


def test_turning_autoscaling_on_never_passes_through_a_single_pod(world: OperatorWorld) -> None:
    world.declare({"replicas": 5})
    world.converge()
    world.declare({**BOUNDS, "replicas": None})
    world.reconcile()
    numbers = [
        call.item["spec"].get("replicas")  # type: ignore[index, union-attr]
        for call in world.client.of("Deployment")
    ]
    assert numbers == [5, None], "parked first, then left out"
    assert world.primary()["spec"]["replicas"] == 5
    assert world.find(HPA, f"{NAME}-hpa")


def test_turning_autoscaling_off_removes_the_autoscaler_and_sets_the_number(
    world: OperatorWorld,
) -> None:
    world.declare(BOUNDS)
    world.converge()
    world.scale(7, by="kube-controller-manager")
    world.declare({"replicas": 3})
    world.converge()
    assert world.find(HPA, f"{NAME}-hpa") is None
    assert world.primary()["spec"]["replicas"] == 3
    world.scale(6, by="kube-controller-manager")  # a write that was still under way
    world.converge()
    assert world.primary()["spec"]["replicas"] == 3


def test_a_deployment_that_was_deleted_comes_back_with_as_many_pods(world: OperatorWorld) -> None:
    world.declare(BOUNDS)
    world.converge()
    world.scale(6, by="kube-controller-manager")
    world.converge()
    assert world.service().status.replicas == 6  # type: ignore[union-attr]
    world.delete("Deployment", f"{NAME}-primary")
    world.eventually(lambda: world.find("Deployment", f"{NAME}-primary") is None, "it is gone")
    world.reconcile()
    assert world.primary()["spec"]["replicas"] == 6


def test_bounds_that_change_change_the_autoscaler(world: OperatorWorld) -> None:
    world.declare(BOUNDS)
    world.converge()
    world.declare({"minReplicas": 3, "maxReplicas": 4, "replicas": None})
    world.reconcile()
    (update,) = world.client.of(HPA)
    assert not update.created
    spec = world.get(HPA, f"{NAME}-hpa")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 4)


def test_an_autoscaler_that_points_elsewhere_is_put_back(world: OperatorWorld) -> None:
    world.declare(BOUNDS)
    world.converge()
    other: Any = {"op": "replace", "path": "/spec/scaleTargetRef/name", "value": "other"}
    world.edit(HPA, f"{NAME}-hpa", other)
    world.reconcile()
    assert world.get(HPA, f"{NAME}-hpa")["spec"]["scaleTargetRef"]["name"] == f"{NAME}-primary"
    assert "kubectl-edit" in world.says("DriftDetected")


def test_another_health_check_is_one_update(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    world.declare({"healthCheck": {"path": "/other"}})
    world.reconcile()
    assert len(world.client.of("Deployment")) == 1
    container = world.primary()["spec"]["template"]["spec"]["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == "/other"


def test_another_model_of_the_canary_changes_the_canary_alone(world: OperatorWorld) -> None:
    world.declare({"replicas": 4, **canary(weight=25)})
    world.converge()
    before = world.primary()["metadata"]["generation"]
    world.declare({"replicas": 4, **canary(weight=25, modelRef="llama3-8b-q6")})
    world.converge()
    template = world.get("Deployment", f"{NAME}-canary")["spec"]["template"]
    assert template["metadata"]["annotations"]["holdfast.dev/model"] == "llama3-8b-q6"
    template = world.primary()["spec"]["template"]
    assert template["metadata"]["annotations"]["holdfast.dev/model"] == "llama3-8b-q4"
    assert world.primary()["metadata"]["generation"] >= before


def test_a_canary_gets_nothing_until_it_is_ready(world: OperatorWorld) -> None:
    world.declare({"replicas": 4, **canary(weight=25)})
    world.reconcile()
    front = world.get("Service", f"{NAME}-svc")["spec"]["selector"]
    assert front["holdfast.dev/role"] == "primary"
    status = world.service().status
    assert status is not None
    assert status.canary_weight == 0
    assert world.condition("CanaryReady")[0] == "False"


def test_a_canary_that_leaves_loses_its_share_before_its_pods(world: OperatorWorld) -> None:
    world.declare({"replicas": 4, **canary(weight=25)})
    world.converge()
    world.declare({"replicas": 4})
    world.reconcile()
    assert world.find("Deployment", f"{NAME}-canary"), "its pods go last"
    world.converge()
    front = world.get("Service", f"{NAME}-svc")["spec"]["selector"]
    assert front["holdfast.dev/role"] == "primary"
    status = world.service().status
    assert status is not None
    assert (status.split_mode, status.canary_weight) == ("None", None)


@pytest.mark.parametrize(("weight", "role"), [(0, "primary"), (100, "canary")])
def test_the_whole_share_goes_to_one_side(world: OperatorWorld, weight: int, role: str) -> None:
    world.declare({"replicas": 2, **canary(weight=weight)})
    result = world.converge()
    front = world.get("Service", f"{NAME}-svc")["spec"]["selector"]
    assert front["holdfast.dev/role"] == role
    assert result.status.canary_weight == weight


OPTIONAL = ("HTTPRoute", "LeaderWorkerSet", "ScaledObject")
"""Kinds of children that not every cluster serves."""


def test_children_belong_to_the_service(world: OperatorWorld) -> None:
    service = world.declare(BOUNDS)
    world.reconcile()
    for ref in child_refs(service).values():
        found = world.run(world.client.client.get(ref)) if ref.kind not in OPTIONAL else None
        if found is not None:
            (owner,) = found["metadata"]["ownerReferences"]  # type: ignore[call-overload, index]
            assert (owner["uid"], owner["controller"]) == (service.uid, True)


def test_deleting_twice_is_no_error(world: OperatorWorld) -> None:
    service = world.declare()
    world.reconcile()
    assert world.run(world.reconciler.delete(service))
    for ref in child_refs(service).values():
        if ref.kind not in OPTIONAL:
            world.eventually(
                lambda r=ref: world.run(world.client.client.get(r)) is None, f"{ref} is gone"
            )
    assert not world.run(world.reconciler.delete(service))


def test_a_sidecar_of_an_injector_and_foreign_labels_stay(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    label: Any = {"op": "add", "path": "/metadata/labels/team", "value": "infra"}
    world.edit("Deployment", f"{NAME}-primary", label, by="label-controller")
    world.declare({"replicas": 3})
    world.converge()
    found = world.primary()
    assert found["metadata"]["labels"]["team"] == "infra"
    assert found["spec"]["replicas"] == 3


def test_an_object_of_somebody_else_is_not_adopted(world: OperatorWorld) -> None:
    world.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"{NAME}-svc"},
            "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
        }
    )
    world.declare()
    world.reconcile()
    assert world.get("Service", f"{NAME}-svc")["spec"]["selector"] == {"app": "theirs"}
    assert world.condition("Ready") == ("False", "ForeignObject")
    assert f"Service {NAME}-svc" in world.says("UpToDate")
    assert world.find("Deployment", f"{NAME}-primary"), "the others are not held up"


def test_the_status_tells_how_far_it_is(world: OperatorWorld) -> None:
    service = world.declare()
    world.converge()
    status = world.service().status
    assert status is not None
    assert (status.ready, status.replicas, status.ready_replicas) == (True, 2, 2)
    assert status.observed_generation == service.generation
    assert status.selector == "holdfast.dev/workload=my-llama,holdfast.dev/role=primary"
    assert status.url == f"http://{NAME}-svc.{world.namespace}.svc:8000"
    assert world.condition("Ready") == ("True", "Serving")
    assert world.condition("Available")[0] == "True"


@pytest.mark.parametrize("verb", ["get", "apply"])
@pytest.mark.parametrize("kind", ["Deployment", "Service", HPA, "PodDisruptionBudget"])
def test_whatever_fails_is_made_good_by_the_next_pass(
    world: OperatorWorld, verb: str, kind: str
) -> None:
    world.declare(BOUNDS)
    world.client.failing = fails(verb=verb, kind=kind)
    with pytest.raises(TargetUnavailable):
        world.reconcile()
    world.client.failing = lambda call: None
    world.converge()
    assert not world.has_condition("Reconciling")
    assert world.find(HPA, f"{NAME}-hpa")


def test_a_change_by_hand_is_put_back_and_its_writer_is_named(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    image = world.primary()["spec"]["template"]["spec"]["containers"][0]["image"]
    world.set_image("evil:1")
    result = world.reconcile()
    assert world.primary()["spec"]["template"]["spec"]["containers"][0]["image"] == image
    (note,) = [note for note in result.notes if note.reason == "DriftHealed"]
    assert "kubectl-edit changed spec.template.spec.containers[name=server].image" in note.message
    assert world.condition("DriftDetected") == ("False", "Healed")
    world.converge()
    assert "kubectl-edit" in world.says("DriftDetected"), "still told, when the trace is gone"
