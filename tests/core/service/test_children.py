"""What one InferenceService stands for: names, pods, shares and the order of changes.

The golden files pin every byte of the children: a change there restarts models on an upgrade of
the operator. Write them anew with `HOLDFAST_GOLDEN=1`, and only when that is meant.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.inference_services import ACCEPTED, canary, document

from holdfast.core.service.children import Facts, Gateway, WeightedTarget, children_of, manifests
from holdfast.core.service.pod import GPU_RESOURCE
from holdfast.core.service.spec import InferenceService
from holdfast.core.service.split import (
    SplitMode,
    canary_replicas_beside,
    canary_share,
    replicas_for,
)
from holdfast.wire.inference_service_v1alpha1 import service_from_json

GOLDEN = Path(__file__).parent / "children"
GATEWAY = Gateway(name="inference", namespace="infra", domain="example.com", section="https")
UID = "11111111-2222-3333-4444-555555555555"


def service(**change: Any) -> InferenceService:
    return replace(service_from_json(document(change)), uid=UID)


# Any: rendered objects are walked by hand here, and below.
def rendered(found: InferenceService, facts: Facts | None = None) -> dict[str, Any]:
    objects: tuple[Any, ...] = manifests(found, facts or Facts())
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in objects}


def pod(objects: dict[str, Any], variant: str = "primary") -> dict[str, Any]:
    found: dict[str, Any] = objects[f"Deployment/my-llama-{variant}"]["spec"]["template"]["spec"]
    return found


def container(objects: dict[str, Any], variant: str = "primary") -> dict[str, Any]:
    found: dict[str, Any] = pod(objects, variant)["containers"][0]
    return found


CASES: dict[str, tuple[dict[str, Any], Facts]] = {
    **{
        backend: ({"backend": backend}, Facts())
        for backend in ("vllm", "sglang", "llamacpp", "ollama")
    },
    "custom": ({"backend": "tei", "image": "registry.example/tei:1", "args": ["--x"]}, Facts()),
    "canary-through-a-gateway": (canary(), Facts(gateway=GATEWAY, canary_ready=True)),
    "canary-by-ratio": ({"replicas": 5, **canary()}, Facts(canary_ready=True)),
    "private-image-and-volume": (ACCEPTED["with a private image and a volume"], Facts()),
    "volume-without-shared-memory": (
        {"backend": "llamacpp", "modelVolume": {"claim": "weights", "path": "/models"}},
        Facts(),
    ),
    "everything": (ACCEPTED["with everything"], Facts(canary_ready=True, primary_replicas=4)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_children_are_byte_for_byte_what_they_were(case: str) -> None:
    change, facts = CASES[case]
    text = json.dumps(manifests(service(**change), facts), indent=1) + "\n"
    file = GOLDEN / f"{case}.json"
    if os.environ.get("HOLDFAST_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def test_a_volume_for_weights_is_mounted_beside_the_shared_memory() -> None:
    objects = rendered(service(modelVolume={"claim": "weights", "path": "/models"}))
    mounts = {each["mountPath"]: each["name"] for each in container(objects)["volumeMounts"]}
    assert mounts == {"/dev/shm": "shared-memory", "/models": "model"}
    assert pod(objects)["volumes"][1] == {
        "name": "model",
        "persistentVolumeClaim": {"claimName": "weights"},
    }


def test_a_promoted_primary_runs_what_is_declared_for_the_canary() -> None:
    """Exactly as if it had been declared: doing so later restarts nothing."""
    promoted = rendered(service(**canary()), Facts(promoted=True, canary_applied=False))
    declared = rendered(service(modelRef="llama3-8b-q8"))
    assert promoted["Deployment/my-llama-primary"] == declared["Deployment/my-llama-primary"]
    assert "Deployment/my-llama-canary" not in promoted


def test_one_deployment_carries_the_service() -> None:
    children = children_of(service(), Facts())
    (primary,) = children.deployments
    assert (primary.name, primary.namespace) == ("my-llama-primary", "default")
    assert (primary.replicas, primary.model_ref) == (2, "llama3-8b-q4")
    assert primary.resources.gpu_memory == "24Gi"
    assert children.services[-1].name == "my-llama-svc"
    assert children.services[-1].weights == ()


def test_a_canary_is_a_second_deployment_with_its_own_model() -> None:
    children = children_of(service(**canary()), Facts(gateway=GATEWAY, canary_ready=True))
    assert [each.name for each in children.deployments] == ["my-llama-primary", "my-llama-canary"]
    assert children.deployments[1].model_ref == "llama3-8b-q8"


def test_a_canary_gets_its_weight() -> None:
    children = children_of(service(**canary()), Facts(gateway=GATEWAY, canary_ready=True))
    expected = (
        WeightedTarget(name="my-llama-primary", weight=80),
        WeightedTarget(name="my-llama-canary", weight=20),
    )
    assert children.services[-1].weights == expected
    assert children.route is not None
    assert children.route.targets == expected


@pytest.mark.parametrize("gateway", [None, GATEWAY])
def test_a_canary_that_is_not_ready_gets_nothing(gateway: Gateway | None) -> None:
    facts = Facts(gateway=gateway, canary_ready=False)
    children = children_of(service(replicas=5, **canary()), facts)
    assert children.split.weight == 0
    assert children.deployments[0].replicas == 5
    assert children.services[-1].selector["holdfast.dev/role"] == "primary"
    if children.route:
        assert [each.name for each in children.route.targets] == ["my-llama-primary"]


def test_a_weight_of_nothing_leaves_the_canary_out_of_the_route() -> None:
    """Some gateways send requests to a backend of weight 0."""
    facts = Facts(gateway=GATEWAY, canary_ready=True)
    for weight, names in ((0, ["my-llama-primary"]), (100, ["my-llama-canary"])):
        route = children_of(service(**canary(weight=weight)), facts).route
        assert route is not None
        assert [each.name for each in route.targets] == names


def test_without_a_gateway_the_pods_are_divided() -> None:
    children = children_of(service(replicas=5, **canary()), Facts(canary_ready=True))
    assert children.split.mode is SplitMode.REPLICA_RATIO
    assert [each.replicas for each in children.deployments] == [4, 1]
    assert children.split.weight == 20
    assert children.services[-1].selector == {"holdfast.dev/workload": "my-llama"}


def test_a_health_check_reaches_every_probe() -> None:
    check = {"path": "/ready", "interval": "30s", "timeout": "10s"}
    serving = container(rendered(service(healthCheck=check)))
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert serving[name]["httpGet"]["path"] == "/ready"
        assert (serving[name]["periodSeconds"], serving[name]["timeoutSeconds"]) == (30, 10)


def test_the_start_up_budget_is_kept_by_probe_and_rollout() -> None:
    objects = rendered(service(healthCheck={"startup": "20m"}))
    probe = container(objects)["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 1200
    assert objects["Deployment/my-llama-primary"]["spec"]["progressDeadlineSeconds"] > 1200


def test_bounds_make_an_autoscaler_and_leave_the_number_to_it() -> None:
    objects = rendered(service(minReplicas=2, maxReplicas=10))
    scaler = objects["HorizontalPodAutoscaler/my-llama-hpa"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 10)
    assert scaler["scaleTargetRef"]["name"] == "my-llama-primary"
    assert scaler["metrics"]
    assert "replicas" not in objects["Deployment/my-llama-primary"]["spec"]


@pytest.mark.parametrize("bounds", [{}, {"minReplicas": 0, "maxReplicas": 0}])
def test_without_bounds_there_is_no_autoscaler(bounds: dict[str, int]) -> None:
    assert children_of(service(**bounds), Facts()).hpa is None


def test_a_number_that_is_not_declared_is_not_written() -> None:
    objects = rendered(service(replicas=None))
    assert "replicas" not in objects["Deployment/my-llama-primary"]["spec"]


def test_the_variants_select_different_pods_and_nothing_declared_changes_that() -> None:
    before = rendered(service(**canary()))
    after = rendered(service(**{**ACCEPTED["with everything"], "backend": "sglang"}))
    for variant in ("primary", "canary"):
        name = f"Deployment/my-llama-{variant}"
        assert before[name]["spec"]["selector"] == after[name]["spec"]["selector"]
        chosen = before[name]["spec"]["selector"]["matchLabels"].items()
        assert chosen <= before[name]["spec"]["template"]["metadata"]["labels"].items()
    selectors = [before[f"Deployment/my-llama-{each}"]["spec"]["selector"] for each in (
        "primary", "canary"
    )]  # fmt: skip
    assert selectors[0] != selectors[1]


def test_a_canary_leaves_the_primary_pods_as_they_are() -> None:
    alone, beside = rendered(service()), rendered(service(**canary()))
    assert pod(alone) == pod(beside)


def test_gpus_stand_in_the_limits_and_their_memory_chooses_the_node() -> None:
    objects = rendered(service(resources={"gpu": 2}))
    assert container(objects)["resources"]["limits"][GPU_RESOURCE] == "2"
    node = pod(objects)["affinity"]["nodeAffinity"]
    (term,) = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (wanted,) = term["matchExpressions"]
    assert (wanted["key"], wanted["operator"]) == ("nvidia.com/gpu.memory", "Gt")
    assert 22_000 < int(wanted["values"][0]) < 22_700  # below what cards of 24 GB report


def test_gpu_memory_joins_every_alternative_of_the_users_own_affinity() -> None:
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    zones = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
        for zone in ("a", "b")
    ]
    own = {"affinity": {"nodeAffinity": {key: {"nodeSelectorTerms": zones}}}}
    terms = pod(rendered(service(scheduling=own)))["affinity"]["nodeAffinity"][key]
    assert [len(term["matchExpressions"]) for term in terms["nodeSelectorTerms"]] == [2, 2]


def test_secrets_are_named_and_never_held() -> None:
    objects = rendered(service(secrets={"HF_TOKEN": {"name": "hub", "key": "token"}}))
    (variable,) = [each for each in container(objects)["env"] if each["name"] == "HF_TOKEN"]
    assert variable == {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"key": "token", "name": "hub"}},
    }


def test_both_variants_answer_to_the_same_names() -> None:
    objects = rendered(service(**canary()))
    for variant in ("primary", "canary"):
        args = container(objects, variant)["args"]
        at = args.index("--served-model-name")
        assert args[at + 1 : at + 3] == ["my-llama", "llama3-8b-q4"]


def test_what_the_user_says_in_args_is_not_said_again() -> None:
    args = ["--port", "8000", "--served-model-name=x", "--tensor-parallel-size", "1"]
    objects = rendered(service(command=["vllm", "serve", "${MODEL}"], args=args))
    said = container(objects)["args"]
    assert said.count("--port") == 1
    assert container(objects)["command"] == ["vllm", "serve", "llama3-8b-q4"]


def test_a_local_model_is_not_looked_up_elsewhere() -> None:
    objects = rendered(service(backend="llamacpp", modelRef="/models/a.gguf"))
    assert container(objects)["command"][1:3] == ["--model", "/models/a.gguf"]


def test_everything_is_owned_and_labelled() -> None:
    facts = Facts(gateway=GATEWAY, canary_ready=True)
    for each in rendered(service(minReplicas=2, maxReplicas=3, **canary()), facts).values():
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (UID, True)
        assert each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "holdfast"
        assert each["metadata"]["labels"]["holdfast.dev/workload"] == "my-llama"


def test_a_spare_gpu_is_not_counted_on() -> None:
    def rolling(**change: Any) -> Any:
        found = rendered(service(**change))["Deployment/my-llama-primary"]["spec"]
        return found["strategy"]["rollingUpdate"]

    assert rolling() == {"maxSurge": 0, "maxUnavailable": 1}
    assert rolling(resources={"gpuMemory": None}) == {"maxSurge": 1, "maxUnavailable": 0}
    assert rolling(rollout={"maxSurge": 2}) == {"maxSurge": 2, "maxUnavailable": 0}


@given(weight=st.integers(0, 100), total=st.integers(1, 200))
def test_a_ratio_uses_all_pods_and_comes_as_close_as_pods_can(weight: int, total: int) -> None:
    primary, beside = replicas_for(weight, total)
    assert primary + beside == total
    if weight in (0, 100):
        assert (primary if weight else beside) == 0
    elif total >= 2:
        assert primary >= 1
        assert beside >= 1
        for other in range(1, total):
            assert abs(100 * beside - weight * total) <= abs(100 * other - weight * total)


@given(weight=st.integers(1, 99), primary=st.integers(1, 200))
def test_a_canary_beside_a_scaled_primary_comes_close_to_its_weight(
    weight: int, primary: int
) -> None:
    count = canary_replicas_beside(weight, primary)
    best = min(
        range(1, 100 * primary + 2), key=lambda each: abs(canary_share(primary, each) - weight)
    )
    got = abs(canary_share(primary, count) - weight)
    assert got <= abs(canary_share(primary, best) - weight) + 100 // (primary + 1)


def test_a_declared_variable_is_written_as_the_kubelet_fills_it_in() -> None:
    """`${NAME}` means nothing to a kubelet: it would be handed to the server as it stands."""
    found = service(
        args=["--api-key", "${VLLM_API_KEY}", "--root=$(ROOT)/x", "--other", "$$(ROOT)"],
        env={"ROOT": "/srv"},
        secrets={"VLLM_API_KEY": {"name": "keys", "key": "vllm"}},
    )
    args = container(rendered(found))["args"]
    assert args[args.index("--api-key") + 1] == "$(VLLM_API_KEY)"
    assert args[-3:] == ["--root=$(ROOT)/x", "--other", "$$(ROOT)"]


def test_the_variables_of_a_script_are_left_to_its_shell() -> None:
    found = service(
        command=["sh", "-c"],
        args=["exec vllm serve --api-key ${VLLM_API_KEY}"],
        secrets={"VLLM_API_KEY": {"name": "keys", "key": "vllm"}},
    )
    assert "${VLLM_API_KEY}" in container(rendered(found))["args"][-1]
