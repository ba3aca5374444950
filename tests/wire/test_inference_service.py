"""The custom resource as JSON, and as a workload: nothing is lost and nothing is guessed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.strategies import specs
from tests.support.inference_services import ACCEPTED, canary, document

from holdfast.core.custom_resource import schema_fields
from holdfast.core.errors import InvalidSpec
from holdfast.core.normalize import normalize_workload
from holdfast.core.policy import OnDrift
from holdfast.core.quantity import parse_duration
from holdfast.core.service.spec import (
    CanaryState,
    Condition,
    InferenceService,
    InferenceServiceSpec,
    InferenceServiceStatus,
    SchedulingSpec,
)
from holdfast.core.workload import Canary, ScalingMetric, SecretRef, WorkloadSpec
from holdfast.wire.crd import INFERENCE_SERVICE, make_crd
from holdfast.wire.inference_service_v1alpha1 import (
    service_from_json,
    service_to_json,
    status_from_json,
    status_to_json,
)
from holdfast.wire.service_mapping import service_of, spec_of
from holdfast.wire.spec_v1 import spec_from_document

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("why", ACCEPTED)
def test_an_object_survives_being_written_and_read(why: str) -> None:
    service = service_from_json(document(ACCEPTED[why]))
    again = service_to_json(service)
    assert service_from_json(again) == service
    assert service_to_json(service_from_json(again)) == again


def test_only_what_was_set_is_written() -> None:
    alone = document({"replicas": None, "resources": None, "healthCheck": None})
    assert service_to_json(service_from_json(alone)) == alone


def test_whole_numbers_are_nanoseconds() -> None:
    check = {"interval": 90_000_000_000, "timeout": 5_000_000_000}
    found = service_from_json(document({"healthCheck": check})).spec.health_check
    assert found is not None
    assert (found.interval, found.timeout) == ("90s", "5s")


@pytest.mark.parametrize(
    "wrong",
    [
        document({"modelReference": "x"}),
        document({"canary": {"modelRef": "b", "weight": 1, "wait": 3}}),
        {**document(), "data": {}},
        {**document(), "kind": "Workload"},
        {"apiVersion": "holdfast.dev/v1alpha1", "spec": []},
        {"spec": {"replicas": 1}},
        [],
        document({"healthCheck": {"interval": True}}),
        document({"secrets": {"A": {"name": "x"}}}),
        document({"env": ["A=1"]}),
        document({"args": "--x"}),
    ],
)
def test_what_cannot_be_read_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidSpec):
        service_from_json(wrong)


def test_a_status_survives_and_fields_of_a_later_version_are_passed_over() -> None:
    status = InferenceServiceStatus(
        ready=True,
        replicas=2,
        observed_generation=3,
        canary_weight=20,
        split_mode="Gateway",
        conditions=(Condition(type="Ready", status="True", reason="Succeeded"),),
    )
    written = {**status_to_json(status), "fromTheFuture": 1}
    assert status_from_json(written) == status


@given(spec=specs())
def test_a_workload_becomes_an_object_and_back_or_is_refused_with_reasons(
    spec: WorkloadSpec,
) -> None:
    try:
        service = service_of(spec, namespace="acme")
    except InvalidSpec:
        return
    survives(spec, service)


@given(spec=specs())
def test_a_workload_that_kubernetes_can_run_is_never_refused(spec: WorkloadSpec) -> None:
    able = runnable(spec)
    if able.resources and (able.resources.accelerators or able.resources.claims is not None):
        # Memory of a GPU goes with `gpu`, and NVIDIA's own are not named twice.
        able = replace(able, resources=replace(able.resources, gpu_memory=None))
    survives(able, service_of(able, namespace="acme"))


def runnable(spec: WorkloadSpec) -> WorkloadSpec:
    """The same workload without what Kubernetes cannot honour."""
    scale, resources, health = spec.autoscaling, spec.resources, spec.health
    image = None if spec.image is None else "registry.example/x:1"
    rollout = spec.rollout and replace(spec.rollout, drain_timeout="90s")
    shown = {"worker_id": None, "gpu_resource_id": None, "config": None, "vllm_version": None}
    # Whether a backend takes them has a table of its own.
    shown |= {"model_revision": None, "model_digest": None, "cache": None}
    if spec.command is not None or spec.canary is not None:
        shown |= {"nodes": None}
    if spec.execution_policy in ("scheduled", "autoscaling"):
        shown |= {"execution_policy": None, "execution_policy_config": None}
    if spec.replicas == 0 or spec.execution_policy_config == {"replicas": 0}:
        shown |= {"replicas": None, "execution_policy": None, "execution_policy_config": None}
    if resources and resources.gpu == 0:
        resources = replace(resources, gpu=None)
    if scale:
        metrics = scale.metrics and (ScalingMetric(metric="queued", target=2.5),)
        metric = None if metrics or scale.preset else "queued"
        target = None if metrics and not scale.preset else 2.5
        scale = replace(
            scale,
            min=max(scale.min, 1),
            idle_after=None,
            metric=metric,
            target=target,
            metrics=metrics,
        )
    if health:
        health = replace(health, interval=30, timeout="5s", startup="1h")
    canary = spec.canary and replace(
        spec.canary,
        image=image,
        model=f"{spec.model}-next",
        model_revision=None,
        model_digest=None,
        analysis=None,
    )
    return replace(
        spec,
        slug=f"s-{spec.slug}",
        backend="vllm",
        image=image,
        autoscaling=scale,
        resources=resources,
        health=health,
        rollout=rollout,
        canary=canary,
        **shown,
    )


def survives(spec: WorkloadSpec, service: InferenceService) -> None:
    assert service_from_json(service_to_json(service)) == service
    again = spec_of(service)
    assert said(again) == said(spec)
    assert again.project == "acme"
    assert service_of(again, namespace="acme") == service


def said(spec: WorkloadSpec) -> dict[str, Any]:
    """What a workload says, in one spelling for what has several."""
    fields: dict[str, Any] = spec.fields()
    policy, details = (
        fields.pop("execution_policy", None),
        fields.pop("execution_policy_config", None),
    )
    if policy == "fixed":
        fields["replicas"] = (details or {}).get("replicas", 1)
    elif policy == "autoscaling":
        fields["autoscaling"] = {"min": details["min_workers"], "max": details["max_workers"]}
    for group, names in (
        ("health", ("interval", "timeout", "startup")),
        ("rollout", ("drain_timeout",)),
    ):
        for name in names:
            if name in fields.get(group, {}):
                fields[group][name] = parse_duration(fields[group][name])
    analysis = fields.get("canary", {}).get("analysis", {})
    if "interval" in analysis:
        analysis["interval"] = parse_duration(analysis["interval"])
    if fields.get("config") == {}:
        fields.pop("config")
    for name in ("command",):
        if name in fields:
            fields[name] = fields[name].split()
        if name in fields.get("canary", {}):
            fields["canary"][name] = fields["canary"][name].split()
    return fields


def full() -> WorkloadSpec:
    return WorkloadSpec(
        name="Support Bot",
        slug="support-bot",
        model="a/b",
        backend="vllm",
        task_type="text2text",
        args=("--max-model-len", "8192"),
        secrets={"HF_TOKEN": SecretRef(name="hub", key="token")},
        replicas=3,
        canary=Canary(model="a/c", weight=10),
    )


def test_a_usual_workload_is_carried_whole() -> None:
    service = service_of(full(), namespace="acme")
    assert (service.name, service.spec.model_ref, service.spec.replicas) == (
        "support-bot", "a/b", 3,
    )  # fmt: skip
    assert spec_of(service) == replace(full(), project="acme")


def test_what_a_workload_does_not_say_is_kept_from_the_object_that_is_there() -> None:
    old = service_of(full(), namespace="acme")
    pinned = replace(
        old,
        uid="u1",
        resource_version="7",
        spec=replace(
            old.spec,
            scheduling=SchedulingSpec(node_selector={"pool": "gpu"}),
            on_drift=OnDrift.WARN,
        ),
    )
    new = service_of(replace(full(), replicas=5), namespace="acme", base=pinned)
    assert new.spec.scheduling == pinned.spec.scheduling
    assert new.spec.on_drift is OnDrift.WARN
    assert (new.uid, new.spec.replicas) == ("u1", 5)


def test_a_command_beside_an_image_and_arguments_of_the_canary_are_not_lost() -> None:
    change = {
        "image": "registry.example/vllm:1",
        "command": ["python3", "-m", "serve"],
        "args": ["--a", "b c"],
        **canary(args=["--x"]),
    }
    service = service_from_json(document(change))
    assert service_of(spec_of(service), namespace="default").spec == replace(
        service.spec, backend="vllm"
    )


@pytest.mark.parametrize(
    "given",
    [
        {"worker_id": "w1"},
        {"gpu_resource_id": "g1"},
        {"execution_policy": "scheduled", "execution_policy_config": {"cron": "0 8 * * *"}},
        {"config": {"max_model_len": 8192}},
        {"backend": "my-own"},
        {"replicas": 0},
    ],
)
def test_what_kubernetes_cannot_honour_is_refused(given: dict[str, Any]) -> None:
    base: dict[str, Any] = {"name": "bot", "model": "a/b", "backend": "vllm"}
    with pytest.raises(InvalidSpec):
        service_of(WorkloadSpec(**{**base, **given}), namespace="acme")


def test_the_definition_in_the_repository_is_up_to_date() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "crd.py", "--check"], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr


def test_the_definition_writes_no_default_into_anyones_object() -> None:
    def keys(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value) | {key for item in value.values() for key in keys(item)}
        return {key for item in value for key in keys(item)} if isinstance(value, list) else set()

    assert "default" not in keys(make_crd(INFERENCE_SERVICE))


def test_every_field_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "inference-service.md").read_text()

    def names(kind: type) -> set[str]:
        found = {part.wire for part in schema_fields(kind)}
        inner = [part.shape.base for part in schema_fields(kind) if part.shape.is_nested]
        return found.union(*(names(each) for each in inner if each not in (SecretRef, CanaryState)))

    known = names(InferenceServiceSpec) | names(InferenceServiceStatus)
    assert {name for name in known if f"`{name}`" not in page} == set()


def test_what_a_workload_has_no_word_for_stays_when_it_is_written() -> None:
    own = {
        "imagePullSecrets": ["registry"],
        "serviceAccountName": "models",
        "modelVolume": {"claim": "weights", "path": "/models"},
        "service": {"type": "NodePort"},
        "resources": {"gpuMemory": None, "claims": [{"name": "a", "resourceClaimName": "b"}]},
    }
    base = service_from_json(document(own))
    after = service_of(replace(spec_of(base), replicas=5), namespace="default", base=base)
    assert after.spec == replace(base.spec, replicas=5, backend="vllm")


def test_what_only_a_cluster_has_goes_to_a_workload_and_back() -> None:
    base = service_from_json(
        document(
            {
                "service": {
                    "type": "LoadBalancer",
                    "annotations": {"timeout": "60s"},
                    "ports": [{"name": "grpc", "port": 9000, "targetPort": 9001}],
                },
                "resources": {
                    "gpuMemory": None,
                    "cpu": "1",
                    "claims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
                },
                "minReplicas": 1,
                "maxReplicas": 3,
                "replicas": None,
                "autoscaling": {"scaler": "keda", "metric": "queued", "target": 2.0},
            }
        )
    )
    fields: dict[str, Any] = spec_of(base).fields()
    assert fields["service"] == {
        "type": "LoadBalancer",
        "annotations": {"timeout": "60s"},
        "ports": [{"name": "grpc", "port": 9000, "target_port": "9001"}],
    }
    assert fields["autoscaling"]["scaler"] == "keda"
    assert fields["resources"]["claims"] == [
        {"name": "gpu", "resource_claim_template_name": "one-gpu"}
    ]
    # A file may have a port as a number; an annotation is text, whatever its name.
    fields["service"]["ports"][0]["target_port"] = 9001
    again = spec_from_document({**fields, "slug": base.name})
    assert service_of(again, namespace="default").spec == replace(base.spec, backend="vllm")
    assert normalize_workload(fields)["service"]["annotations"] == {"timeout": "60s"}


def test_claims_and_the_scaler_stay_where_a_workload_does_not_name_them() -> None:
    own = {
        "minReplicas": 1,
        "maxReplicas": 3,
        "replicas": None,
        "autoscaling": {"scaler": "keda", "metric": "queued", "target": 2.0},
        "resources": {
            "gpuMemory": None,
            "memory": None,
            "claims": [{"name": "a", "resourceClaimName": "b"}],
        },
    }
    base = service_from_json(document(own))
    given = {"min": 1, "max": 4, "metric": "queued", "target": 2.0}
    said = replace(spec_of(base), autoscaling=given, resources={"cpu": "2"})
    after = service_of(said, namespace="default", base=base)
    assert after.spec.autoscaling == base.spec.autoscaling
    assert base.spec.resources is not None
    assert after.spec.resources == replace(base.spec.resources, cpu="2")


def test_what_only_pods_have_goes_to_a_workload_and_back() -> None:
    base = service_from_json(
        document(
            {
                "podTemplate": {"spec": {"hostIPC": True, "enableServiceLinks": None}},
                "resources": {"gpuMemory": None, "accelerators": {"amd.com/gpu": 2}},
                "canary": {"weight": 5, "env": {"A": "1"}, "resources": {"memory": "2Gi"}},
            }
        )
    )
    workload = spec_of(base)
    assert workload.pod_template == {"spec": {"hostIPC": True, "enableServiceLinks": None}}
    assert service_of(workload, namespace="default").spec == replace(base.spec, backend="vllm")
