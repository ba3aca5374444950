"""Each field of an InferenceService × each policy × absent, in sync, drifted and suspended.

What a field puts into a child is created and then quiet under every policy. Changed behind the
operator's back it is told by its path and its writer, put back under `reconcile`, planned under
`dry_run`, left under the others, and under all of them while the service is suspended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.reconcile.service.test_model_cache import CACHED, CLAIM, served
from tests.reconcile.service.test_runtime import LLAMA, SQL, VLLM, RuntimeWorld, llama, runtime
from tests.reconcile.service.test_scale_to_zero import REST, at_rest, later, replicas, seen
from tests.support.fake_engines import FakeEngine
from tests.support.inference_services import BEHAVIOR, COMMIT, DIGEST, scaled
from tests.support.operator_world import NAME, OperatorWorld

from holdfast.core.tree import Tree

__all__ = ["runtime"]

POLICIES = ("reconcile", "fail", "dry_run", "warn", "ignore")
TOLD = {
    "fail": ("True", "Refused"),
    "dry_run": ("True", "Planned"),
    "warn": ("True", "Left"),
    "ignore": ("False", "Ignored"),
}
PRIMARY = ("Deployment", f"{NAME}-primary")
POD = "/spec/template/spec"
SERVER = f"{POD}/containers/0"


def rested(world: OperatorWorld, change: dict[str, Any]) -> None:
    at_rest(world, **change)
    world.settle()
    world.reconcile()


def started(world: OperatorWorld, change: dict[str, Any]) -> None:
    world.declare(change)
    world.converge()


@dataclass(frozen=True, kw_only=True)
class Row:
    """A field, and one place of a child that it puts something into."""

    declared: dict[str, Any]  # Any: a part of a spec, as JSON
    path: str
    """A JSON pointer into the child; `edit` finds a list item by its name instead."""
    evil: Tree
    said: str
    """What the drift is told by."""
    child: tuple[str, str] = PRIMARY
    op: str = "replace"
    start: Callable[[OperatorWorld, dict[str, Any]], None] = started

    def value(self, world: OperatorWorld) -> Any:  # Any: a part of an object of the API
        found = world.get(*self.child)
        for part in self.path.strip("/").split("/"):
            key = part.replace("~1", "/")
            if isinstance(found, list):
                if int(key) >= len(found):
                    return None
                found = found[int(key)]
            else:
                found = found.get(key)
            if found is None:
                return None
        return found

    def edit(self, world: OperatorWorld) -> None:
        operation = {"op": self.op, "path": self.path}
        if self.op != "remove":
            operation["value"] = self.evil  # type: ignore[assignment]  # any tree
        world.edit(*self.child, dict[str, Tree](operation))


def overlay(**spec: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": spec}}


SIDECAR = {"name": "exporter", "image": "registry.example/exporter:1"}
VOLUME = {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}
CLAIMS = {"gpuMemory": None, "claims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}
LORA = [{"name": "sql", "source": "/lora/sql"}]

ROWS = {
    "podTemplate: a label": Row(
        declared={"podTemplate": {"metadata": {"labels": {"team": "chat"}}}},
        path="/spec/template/metadata/labels/team",
        evil="other",
        said="spec.template.metadata.labels.team",
    ),
    "podTemplate: an annotation taken away": Row(
        declared={"podTemplate": {"metadata": {"annotations": {"sidecar": "off"}}}},
        path="/spec/template/metadata/annotations/sidecar",
        evil=None,
        op="remove",
        said="spec.template.metadata.annotations.sidecar",
    ),
    "podTemplate: a sidecar": Row(
        declared=overlay(containers=[SIDECAR]),
        path=f"{POD}/containers/1/image",
        evil="evil:1",
        said="containers[name=exporter].image",
    ),
    "podTemplate: a sidecar taken away": Row(
        declared=overlay(containers=[SIDECAR]),
        path=f"{POD}/containers/1",
        evil=None,
        op="remove",
        said="containers[name=exporter]",
    ),
    "podTemplate: a volume": Row(
        declared=overlay(volumes=[VOLUME]),
        path=f"{POD}/volumes/0/emptyDir/sizeLimit",
        evil="1Mi",
        said="volumes[name=shared-memory].emptyDir.sizeLimit",
    ),
    "podTemplate: a security context": Row(
        declared=overlay(securityContext={"runAsNonRoot": True, "runAsUser": 10001}),
        path=f"{POD}/securityContext/runAsUser",
        evil=0,
        said="spec.template.spec.securityContext.runAsUser",
    ),
    "podTemplate: a priority": Row(
        declared=overlay(priorityClassName="serving"),
        path=f"{POD}/priorityClassName",
        evil="batch",
        said="spec.template.spec.priorityClassName",
    ),
    "service: a port": Row(
        declared={"service": {"ports": [{"name": "grpc", "port": 8001}]}},
        child=("Service", f"{NAME}-svc"),
        path="/spec/ports/1/targetPort",
        evil=9,
        said="targetPort",
    ),
    "service: an annotation": Row(
        declared={"service": {"annotations": {"example.com/scheme": "internal"}}},
        child=("Service", f"{NAME}-svc"),
        path="/metadata/annotations/example.com~1scheme",
        evil="internet-facing",
        said="metadata.annotations.example.com/scheme",
    ),
    "service: the type": Row(
        declared={"service": {"type": "LoadBalancer"}},
        child=("Service", f"{NAME}-svc"),
        path="/spec/type",
        evil="ClusterIP",
        said="spec.type",
    ),
    "resources: an accelerator": Row(
        declared={"resources": {"gpuMemory": None, "accelerators": {"amd.com/gpu": 2}}},
        path=f"{SERVER}/resources/limits/amd.com~1gpu",
        evil="1",
        said="resources.limits.amd.com/gpu",
    ),
    "resources: a claim": Row(
        declared={"resources": CLAIMS},
        path=f"{POD}/resourceClaims/0/resourceClaimTemplateName",
        evil="all-gpus",
        said="resourceClaims",
    ),
    "resources: a claim that the server does not use": Row(
        declared={"resources": CLAIMS},
        path=f"{SERVER}/resources/claims/0",
        evil=None,
        op="remove",
        said="resources.claims",
    ),
    "autoscaling: behavior": Row(
        declared=scaled(metric="cpu", behavior=BEHAVIOR),
        child=("HorizontalPodAutoscaler", f"{NAME}-hpa"),
        path="/spec/behavior/scaleDown/stabilizationWindowSeconds",
        evil=0,
        said="spec.behavior.scaleDown.stabilizationWindowSeconds",
    ),
    "autoscaling: at least one while awake": Row(
        declared={**REST, "maxReplicas": 3},
        child=("HorizontalPodAutoscaler", f"{NAME}-hpa"),
        path="/spec/minReplicas",
        evil=2,
        said="spec.minReplicas",
    ),
    "modelRevision": Row(
        declared={"modelRef": "org/chat", "modelRevision": COMMIT},
        path=f"{SERVER}/args",
        evil=["--port", "8000", "--revision", "f" * 40],
        said="containers[name=server].args",
    ),
    "adapters: what pods are started with": Row(
        declared={"modelRef": "org/chat", "adapters": LORA},
        path=f"{SERVER}/args",
        evil=["--port", "8000"],
        said="containers[name=server].args",
    ),
    "cache: the model in the pods": Row(
        declared={**CACHED, "modelDigest": DIGEST},
        start=served,
        path="/spec/template/metadata/annotations/holdfast.dev~1model-cache",
        evil="elsewhere",
        said="spec.template.metadata.annotations.holdfast.dev/model-cache",
    ),
    "cache: the check before a pod serves": Row(
        declared={**CACHED, "modelDigest": DIGEST},
        start=served,
        path=f"{POD}/initContainers",
        evil=None,
        op="remove",
        said="initContainers",
    ),
    "cache: the claim": Row(
        declared=CACHED,
        start=served,
        child=("PersistentVolumeClaim", CLAIM),
        path="/metadata/labels/holdfast.dev~1workload",
        evil="other",
        said="metadata.labels.holdfast.dev/workload",
    ),
    "at rest: the pods that will be": Row(
        declared=REST,
        start=rested,
        path=f"{SERVER}/image",
        evil="evil:1",
        said="containers[name=server].image",
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ROWS)
def test_what_is_absent_is_made_and_then_in_sync(
    world: OperatorWorld, name: str, policy: str
) -> None:
    row = ROWS[name]
    row.start(world, {**row.declared, "onDrift": policy})
    assert row.value(world) not in (None, row.evil)
    for _ in range(2):
        world.reconcile()
        assert [call for call in world.client.writes if call.subresource != "status"] == []
    assert world.condition("DriftDetected") == ("False", "None")
    assert world.condition("UpToDate")[0] == "True"
    status = world.service().status
    assert status is not None
    assert (status.drift, status.plan) == ("none", None)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ROWS)
def test_what_was_moved_is_told_and_put_back_or_left(
    world: OperatorWorld, name: str, policy: str
) -> None:
    row = ROWS[name]
    row.start(world, {**row.declared, "onDrift": policy})
    declared = row.value(world)
    row.edit(world)
    result = world.reconcile()
    status = result.status
    if policy == "reconcile":
        assert row.value(world) == declared
        assert world.condition("DriftDetected") == ("False", "Healed")
        assert status.drift == "none"
    else:
        assert row.value(world) == row.evil
        assert [call for call in world.client.writes if call.subresource != "status"] == []
        assert world.condition("DriftDetected") == TOLD[policy]
        assert status.drift not in (None, "none")
        world.settle()  # the pods of the edited template
        world.reconcile()
        assert world.condition("UpToDate")[0] == str(policy == "ignore")
    assert row.said in world.says("DriftDetected")
    assert "kubectl-edit" in world.says("DriftDetected") or row.op == "remove"
    planned = [line for line in status.plan or () if row.said in line]
    assert bool(planned) == (policy == "dry_run")
    warned = {note.reason for note in result.notes if note.warning}
    assert bool(warned) == (policy != "ignore")
    if policy == "reconcile":
        return
    world.declare({**row.declared, "onDrift": "reconcile"})
    world.converge()
    assert row.value(world) == declared


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ROWS)
def test_what_was_moved_is_left_under_every_policy_while_suspended(
    world: OperatorWorld, name: str, policy: str
) -> None:
    row = ROWS[name]
    change = {**row.declared, "onDrift": policy}
    row.start(world, change)
    declared = row.value(world)
    world.declare({**change, "suspend": {"reason": "INC-1432"}})
    row.edit(world)
    for _ in range(2):
        world.reconcile()
        assert [call for call in world.client.writes if call.subresource != "status"] == []
    assert row.value(world) == row.evil
    assert world.condition("DriftDetected") == TOLD.get(policy, ("True", "Left"))
    assert row.said in world.says("DriftDetected")
    assert world.condition("Suspended") == ("True", "Suspended")
    assert row.value(world) != declared


STORAGE = "/spec/resources/requests/storage"


def resize(world: OperatorWorld, size: str) -> None:
    operation: dict[str, Tree] = {"op": "replace", "path": STORAGE, "value": size}
    world.edit("PersistentVolumeClaim", CLAIM, operation)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_claim_that_somebody_made_larger_is_told_and_holds_nothing_up(
    world: OperatorWorld, policy: str
) -> None:
    """No API server takes a claim that is to become smaller: the heal failed for ever."""
    served(world, {**CACHED, "onDrift": policy})
    resize(world, "80Gi")
    result = world.reconcile()
    assert [call for call in world.client.writes if call.subresource != "status"] == []
    assert world.condition("DriftDetected") == TOLD.get(policy, ("True", "Left"))
    assert "spec.resources.requests.storage" in world.says("DriftDetected")
    assert result.status.drift == "1 field"
    assert world.condition("UpToDate")[0] == str(policy == "ignore")
    assert world.condition("Ready")[0] == str(policy != "fail")
    if policy != "reconcile":
        return
    assert "cannot be made smaller" in world.says("DriftDetected")
    assert "DriftLeft" in [note.reason for note in result.notes]
    world.set_image()
    world.reconcile()
    assert world.condition("DriftDetected") == ("False", "Healed")
    assert "storage" not in world.says("DriftDetected"), "which was not put back"
    world.settle()
    world.reconcile()
    assert world.condition("DriftDetected") == ("True", "Left")
    world.declare({**CACHED, "cache": {"size": "80Gi"}})
    world.converge()
    assert world.condition("UpToDate") == ("True", "AsDeclared")


def test_a_claim_that_somebody_made_smaller_is_put_back(world: OperatorWorld) -> None:
    """Which an API server allows for what was asked for and never granted."""
    served(world)
    resize(world, "20Gi")
    world.reconcile()
    claim = world.get("PersistentVolumeClaim", CLAIM)
    assert claim["spec"]["resources"]["requests"]["storage"] == "50Gi"
    assert world.condition("DriftDetected") == ("False", "Healed")


@pytest.mark.parametrize("most", [1, 3], ids=["no autoscaler", "an autoscaler"])
@pytest.mark.parametrize("policy", POLICIES)
def test_no_replicas_at_rest_are_in_sync_under_every_policy(
    world: OperatorWorld, policy: str, most: int
) -> None:
    change = {"onDrift": policy, "maxReplicas": most}
    rested(world, change)
    for restarted in (False, True):
        if restarted:
            world.restart()
        later(world, 20)
        seen(world)
        result = world.reconcile()
        assert replicas(world) == 0
        assert [call for call in world.client.writes if call.subresource != "status"] == []
        assert world.condition("DriftDetected") == ("False", "None")
        assert world.condition("Ready") == ("True", "ScaledToZero")
        assert (result.status.drift, result.status.plan) == ("none", None)
        assert result.notes == ()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_resting_service_that_is_scaled_up_by_hand_rests_on_and_has_not_drifted(
    world: OperatorWorld, policy: str
) -> None:
    """The number is chosen by who asks, as an autoscaler chooses one: it is not declared."""
    rested(world, {"onDrift": policy})
    world.scale(2, by="kubectl")
    result = world.reconcile()
    assert (replicas(world), result.status.drift) == (0, "none")
    assert world.condition("DriftDetected") == ("False", "None")
    assert result.notes == ()


@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_moved_at_rest_is_put_back_without_waking_anybody(
    world: OperatorWorld, policy: str
) -> None:
    rested(world, {"onDrift": policy})
    world.set_image()
    world.reconcile()
    assert replicas(world) == 0
    image = world.primary()["spec"]["template"]["spec"]["containers"][0]["image"]
    assert (image == "evil:1") == (policy != "reconcile")
    later(world, 20)
    seen(world)
    world.reconcile()
    assert replicas(world) == 0


def vllm(**adapters: str) -> FakeEngine:
    return FakeEngine(model="org/base", names=[NAME, "org/base"], adapters=adapters)


SERVED: dict[str, tuple[dict[str, Any], Callable[[], FakeEngine], dict[str, Any], str]] = {
    "a scale": (LLAMA, llama, {SQL: 0.25}, "adapters.sql.scale"),
    "one unloaded": (VLLM, lambda: vllm(sql="/lora/sql"), {}, "adapters.sql"),
    "one loaded beside it": (
        VLLM,
        lambda: vllm(sql="/lora/sql"),
        {"sql": "/lora/sql", "extra": "/lora/extra"},
        "adapters.extra",
    ),
    "one from elsewhere": (
        VLLM,
        lambda: vllm(sql="/lora/sql"),
        {"sql": "/lora/evil"},
        "adapters.sql",
    ),
    "one where none is declared": (
        {**VLLM, "adapters": []},
        vllm,
        {"extra": "/lora/extra"},
        "adapters.extra",
    ),
}
"""What is declared, an engine that serves it, what somebody makes of its adapters, and the field
that tells it."""


@pytest.mark.parametrize("suspended", [False, True], ids=["", "suspended"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", SERVED)
def test_adapters_that_somebody_changed_are_told_and_put_back_or_left(
    runtime: RuntimeWorld, name: str, policy: str, suspended: bool
) -> None:
    declared, make, moved, said = SERVED[name]
    change = {**declared, "onDrift": policy}
    runtime.declare(change)
    engine = make()
    right = dict(engine.adapters)
    pod = runtime.add_pod(engine)
    runtime.ask()
    assert runtime.verified() == ("True", "AsDeclared")
    if suspended:
        runtime.declare({**change, "suspend": {"reason": "INC-1432"}})
    engine.adapters = dict(moved)
    status = runtime.ask().status
    assert runtime.pods() == [pod]
    if policy == "reconcile" and not suspended:
        assert engine.adapters == right
        assert runtime.verified() == ("True", "AsDeclared")
        assert said in runtime.world.says("DriftDetected")
        assert (status.runtime, status.drift) == (None, "none")
        return
    assert engine.adapters == moved
    assert runtime.engines.sent == []
    assert runtime.verified() == ("False", "RuntimeDrift")
    assert said in [each.field for each in status.runtime or ()]
    assert said in runtime.world.says("RuntimeVerified")
    assert runtime.world.condition("DriftDetected")[0] == str(policy != "ignore")
    assert bool(status.plan) == (policy == "dry_run")
