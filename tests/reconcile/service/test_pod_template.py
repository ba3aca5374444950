"""What a podTemplate declares is owned: its drift is told, planned and put back like any other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.operator_world import OperatorWorld
from tests.support.pod_templates import OVERLAYS

from holdfast.core.service.spec import PodTemplateSpec

POD = "/spec/template/spec"


def test_an_edit_of_what_the_overlay_declares_is_drift_and_put_back(world: OperatorWorld) -> None:
    world.declare({"podTemplate": OVERLAYS["shared-memory-of-a-size"]})
    world.converge()
    path = f"{POD}/volumes/0/emptyDir/sizeLimit"
    world.edit("Deployment", "my-llama-primary", {"op": "replace", "path": path, "value": "1Mi"})
    world.reconcile()
    found: Any = world.primary()["spec"]["template"]["spec"]["volumes"]
    assert found[0]["emptyDir"]["sizeLimit"] == "16Gi"
    assert "sizeLimit" in world.says("DriftDetected")


def test_a_plan_shows_what_of_the_overlay_would_be_put_back(world: OperatorWorld) -> None:
    world.declare({"podTemplate": OVERLAYS["security-contexts"], "onDrift": "dry_run"})
    world.converge()
    path = f"{POD}/securityContext/runAsUser"
    world.edit("Deployment", "my-llama-primary", {"op": "replace", "path": path, "value": 0})
    result = world.reconcile()
    assert result.status.plan
    assert any("runAsUser" in line for line in result.status.plan)


def test_what_is_no_longer_in_the_overlay_goes(world: OperatorWorld) -> None:
    world.declare({"podTemplate": OVERLAYS["sidecar"]})
    world.converge()
    world.declare({"podTemplate": None})
    world.converge()
    containers = world.primary()["spec"]["template"]["spec"]["containers"]
    assert [each["name"] for each in containers] == ["server"]


def test_an_overlay_that_is_refused_is_told(world: OperatorWorld) -> None:
    service = world.declare()
    overlay = PodTemplateSpec(spec={"containers": [{"name": "server", "image": "x:1"}]})
    spec = replace(service.spec, pod_template=overlay)
    result = world.run(world.reconciler.reconcile(replace(service, spec=spec)))
    ready = next(each for each in result.status.conditions if each.type == "Ready")
    assert ready.reason == "InvalidSpec"
    assert "podTemplate.spec.containers[name=server].image" in ready.message
