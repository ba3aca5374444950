"""A target that cannot honour a field says so when it plans, and never drops it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.targets import FACTORIES, PROJECT

from holdfast.core.cluster_parts import ServiceSpec, ServiceType
from holdfast.core.errors import ValidationError
from holdfast.core.live import Absent
from holdfast.core.policy import OnDrift
from holdfast.core.single_machine import unsupported_fields
from holdfast.core.workload import Resources, Suspend, WorkloadSpec, desired_of
from holdfast.reconcile import reconciler
from holdfast.wire.service_mapping import unsupported_on_kubernetes

ON_ONE_MACHINE = ("embedded", "embedded-submitting", "remote")
SPEC = WorkloadSpec(
    name="chat", model="m", backend="vllm", command="vllm serve m", resources=Resources(gpu=2)
)


ONLY_ON_A_CLUSTER = {
    r"resources\.gpu": SPEC,
    "nodes": replace(SPEC, resources=None, command=None, nodes=2),
    "suspend": replace(SPEC, resources=None, suspend=Suspend(reason="INC-1432")),
    "service": replace(SPEC, resources=None, service=ServiceSpec(type=ServiceType.LOAD_BALANCER)),
}


@pytest.mark.parametrize("field", ONLY_ON_A_CLUSTER)
@pytest.mark.parametrize("name", ON_ONE_MACHINE)
def test_one_machine_refuses_what_only_a_cluster_has_when_it_plans_and_when_it_ensures(
    name: str, field: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with FACTORIES[name](tmp_path) as target:
            desired = desired_of(ONLY_ON_A_CLUSTER[field], project=PROJECT)
            with pytest.raises(ValidationError, match=field):
                await reconciler.plan(target, [desired])
            for policy in OnDrift:
                with pytest.raises(ValidationError, match=field):
                    await reconciler.ensure(target, desired, on_drift=policy, key=policy)
            assert await target.observe(desired.id) == Absent(id=desired.id)

    asyncio.run(story())


REFUSED: dict[str, dict[str, object]] = {
    "worker_id": {"worker_id": "w1"},
    "gpu_resource_id": {"gpu_resource_id": "g1"},
    "execution_policy": {
        "execution_policy": "scheduled",
        "execution_policy_config": {"cron": "0 8 * * *", "window": "8h"},
    },
    "config": {"config": {"threads": 4}},
    "image": {"backend": "custom"},
    "command": {"command": "vllm serve m --port 9000"},
    "nodes": {"backend": "llamacpp", "nodes": 2},
    "autoscaling, by behavior": {
        "autoscaling": {"min": 1, "max": 3, "behavior": {"scaleSideways": {}}},
        "resources": {"cpu": "1"},
    },
    "autoscaling, by preset": {
        "backend": "llamacpp",
        "autoscaling": {"min": 1, "max": 3, "preset": "kv-cache"},
    },
    "autoscaling": {"autoscaling": {"min": 0, "max": 3}},
    "health": {"health": {"interval": "500ms"}},
    "pod_template": {"pod_template": {"spec": {"containers": [{"name": "server", "image": "x"}]}}},
    "autoscaling, by scaler": {
        "autoscaling": {"min": 1, "max": 3, "metric": "a-b", "target": 1.0, "scaler": "keda"}
    },
    "resources": {
        "resources": {
            "gpu_memory": "8Gi",
            "claims": [{"name": "gpu", "resource_claim_name": "one-gpu"}],
        }
    },
}


@pytest.mark.parametrize("field", REFUSED)
def test_kubernetes_refuses_under_the_workloads_own_names_what_it_cannot_honour(
    field: str,
) -> None:
    given: dict[str, object] = {"name": "chat", "model": "m", "backend": "vllm", **REFUSED[field]}
    desired = desired_of(WorkloadSpec(**given), project=PROJECT)  # type: ignore[arg-type]
    problems = unsupported_on_kubernetes(desired.id.slug, desired.fields)
    assert problems
    assert {problem.field.split(".")[0].split("[")[0] for problem in problems} == {
        field.partition(",")[0]
    }
    assert all(problem.reason and problem.fix for problem in problems)


@pytest.mark.parametrize("field", ONLY_ON_A_CLUSTER)
def test_kubernetes_honours_what_one_machine_cannot(field: str) -> None:
    assert unsupported_on_kubernetes("chat", ONLY_ON_A_CLUSTER[field].fields()) == []


def test_parts_of_a_workload_are_judged_without_the_rest() -> None:
    """An update names only what it changes: what is not in it cannot be its fault."""
    assert unsupported_on_kubernetes("chat", {"replicas": 3}) == []
    assert [
        problem.field for problem in unsupported_on_kubernetes("chat", {"worker_id": "w1"})
    ] == ["worker_id"]


ON_PODS = {
    "pod_template": {"pod_template": {"metadata": {"labels": {"team": "chat"}}}},
    "resources.accelerators": {"resources": {"accelerators": {"amd.com/gpu": 1}}},
    "resources.claims": {
        "resources": {"claims": [{"name": "gpu", "resource_claim_template_name": "one-gpu"}]}
    },
    "service": {"service": {"type": "NodePort", "ports": [{"name": "grpc", "port": 9000}]}},
    "autoscaling": {
        "autoscaling": {"min": 1, "max": 1, "scaler": "keda"},
        "resources": {"cpu": "1"},
    },
    "canary.env": {"canary": {"weight": 5, "env": {"A": "1"}}},
    "canary.resources": {"canary": {"weight": 5, "resources": {"memory": "2Gi"}}},
}


@pytest.mark.parametrize("field", ON_PODS)
def test_what_only_pods_have_is_refused_on_one_machine_and_honoured_by_kubernetes(
    field: str,
) -> None:
    given: dict[str, Any] = {"name": "chat", "model": "m", "backend": "vllm", **ON_PODS[field]}
    fields = WorkloadSpec(**given).fields()
    assert field in [problem.field for problem in unsupported_fields(fields)]
    assert unsupported_on_kubernetes("chat", fields) == []
