"""What one InferenceService stands for: names, pods, shares and the order of changes.

The golden files pin every byte of the children: a change there restarts models on an upgrade of
the operator. Write them anew with `HOLDFAST_GOLDEN=1`, and only when that is meant.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.inference_services import (
    ACCEPTED,
    BEHAVIOR,
    COMMIT,
    MODEL_IMAGE,
    canary,
    document,
    scaled,
)

from holdfast.core.service.children import Facts, Gateway, WeightedTarget, children_of, manifests
from holdfast.core.service.pod import GPU_RESOURCE
from holdfast.core.service.spec import InferenceService, ServiceSpec
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
    "model-from-an-image": (ACCEPTED["with a model from an image"], Facts()),
    "pinned-model-and-canary": (
        ACCEPTED["with a pinned model and a canary of its next revision"],
        Facts(canary_ready=True),
    ),
    "pinned-sglang": ({"backend": "sglang", "modelRevision": COMMIT}, Facts()),
    "llamacpp-from-an-image": (
        {"backend": "llamacpp", "modelRef": f"{MODEL_IMAGE}#chat.gguf"},
        Facts(),
    ),
    "sglang-from-an-image": ({"backend": "sglang", "modelRef": MODEL_IMAGE}, Facts()),
    "adapters-vllm": (
        {
            "modelRef": "org/base",
            "adapters": [
                {"name": "sql", "source": "org/sql-lora"},
                {"name": "chat", "source": "/adapters/chat"},
            ],
            "args": ["--max-model-len", "8192"],
        },
        Facts(),
    ),
    "adapters-sglang": (
        {"backend": "sglang", "adapters": [{"name": "sql", "source": "org/sql-lora"}]},
        Facts(),
    ),
    "adapters-llamacpp": (
        {
            "backend": "llamacpp",
            "modelRef": "/models/base.gguf",
            "adapters": [
                {"name": "sql", "source": "/models/sql.gguf", "scale": 0.5},
                {"name": "chat", "source": "/models/chat.gguf"},
            ],
        },
        Facts(),
    ),
    "pod-template": (ACCEPTED["with a pod template"], Facts()),
    "further-ports": (ACCEPTED["with further ports"], Facts()),
    "accelerators": (ACCEPTED["with accelerators"], Facts()),
    "claims": (ACCEPTED["with claims"], Facts()),
    "canary-of-other-variables": (
        ACCEPTED["with a canary of other variables and resources"],
        Facts(gateway=GATEWAY, canary_ready=True),
    ),
    "cached": (ACCEPTED["with a cache"], Facts()),
    "cached-llamacpp-and-canary": (
        ACCEPTED["with a cached file for llama.cpp"],
        Facts(canary_ready=True),
    ),
    "several-metrics": (ACCEPTED["with several metrics"], Facts()),
    "preset": (ACCEPTED["with a preset"], Facts()),
    "keda": (
        {
            **ACCEPTED["with a preset beside metrics, by KEDA"],
            "autoscaling": {
                "preset": "queue",
                "metrics": [{"metric": "memory", "target": 70}],
                "scaler": "keda",
                "behavior": BEHAVIOR,
            },
        },
        Facts(prometheus="http://prometheus.monitoring:9090"),
    ),
    "vllm-on-several-nodes": (
        {"backend": "vllm", "nodes": 2, "resources": {"gpu": 8}, "args": ["--max-model-len", "8"]},
        Facts(),
    ),
    "sglang-on-several-nodes": (
        {
            "backend": "sglang",
            "nodes": 4,
            "resources": {"gpu": 8},
            "minReplicas": 1,
            "maxReplicas": 3,
        },
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


def test_no_adapters_render_as_if_none_were_declared() -> None:
    assert rendered(service(adapters=[])) == rendered(service())


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
        assert serving[name]["timeoutSeconds"] == 10
    periods = [serving[name]["periodSeconds"] for name in ("startupProbe", "readinessProbe")]
    assert periods == [2, 30]  # whoever starts is asked often, whatever is asked of it later


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


def test_a_canary_has_its_own_variables_and_resources_and_keeps_them_when_promoted() -> None:
    change = ACCEPTED["with a canary of other variables and resources"]
    objects = rendered(service(**change))
    env = {each["name"]: each.get("value") for each in container(objects, "canary")["env"]}
    assert (env["A"], env["B"]) == ("1", "3")
    assert container(objects, "canary")["resources"]["limits"]["memory"] == "32Gi"
    assert container(objects)["resources"]["limits"]["memory"] == "16Gi"
    promoted = rendered(service(**change), Facts(promoted=True, canary_applied=False))
    declared = rendered(service(env={"A": "1", "B": "3"}, resources={"memory": "32Gi"}))
    assert promoted["Deployment/my-llama-primary"] == declared["Deployment/my-llama-primary"]


def test_accelerators_are_requested_spread_over_and_handed_over_one_by_one() -> None:
    objects = rendered(service(**ACCEPTED["with accelerators"]))
    asked = {"cpu": "4", "memory": "16Gi", "amd.com/gpu": "2", "rdma/hca": "1"}
    assert container(objects)["resources"]["requests"] == asked
    assert GPU_RESOURCE not in asked
    args = container(objects)["args"]
    assert args[args.index("--tensor-parallel-size") + 1] == "2"
    strategy = objects["Deployment/my-llama-primary"]["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize("accelerators", [{"nvidia.com/mig-1g.10gb": 2}, {"rdma/hca": 2}])
def test_slices_and_adapters_are_nothing_to_spread_a_model_over(
    accelerators: dict[str, int],
) -> None:
    objects = rendered(service(resources={"gpuMemory": None, "accelerators": accelerators}))
    assert "--tensor-parallel-size" not in container(objects)["args"]


def test_claims_are_of_the_pod_and_of_the_server() -> None:
    objects = rendered(service(**ACCEPTED["with claims"]))
    assert pod(objects)["resourceClaims"] == [
        {"name": "gpu", "resourceClaimTemplateName": "one-gpu"},
        {"name": "shared", "resourceClaimName": "fabric"},
    ]
    claims = [{"name": "gpu", "request": "gpu"}, {"name": "shared"}]
    assert container(objects)["resources"]["claims"] == claims
    strategy = objects["Deployment/my-llama-primary"]["spec"]["strategy"]
    assert strategy["rollingUpdate"]["maxSurge"] == 0


def test_further_ports_are_of_every_service_and_a_number_of_the_container() -> None:
    objects = rendered(service(**ACCEPTED["with further ports"]))
    entry, primary = objects["Service/my-llama-svc"], objects["Service/my-llama-primary"]
    assert (entry["spec"]["type"], primary["spec"]["type"]) == ("LoadBalancer", "ClusterIP")
    assert entry["metadata"]["annotations"]["example.com/scheme"] == "internal"
    assert "example.com/scheme" not in primary["metadata"]["annotations"]
    assert entry["spec"]["ports"] == primary["spec"]["ports"]
    targets = {each["name"]: each["targetPort"] for each in entry["spec"]["ports"]}
    assert targets == {"http": "http", "grpc": 8001, "web": "http", "metrics": 8002}
    ports = {each["name"]: each["containerPort"] for each in container(objects)["ports"]}
    assert ports == {"http": 8000, "grpc": 8001, "metrics": 8002}


@pytest.mark.parametrize(
    ("name", "carried"),
    [
        ("team", True),
        ("example.com/cost-centre", True),
        ("app.kubernetes.io/name", False),
        ("holdfast.dev/project", False),
        ("helm.sh/chart", False),
        ("argocd.argoproj.io/instance", False),
        ("kustomize.toolkit.fluxcd.io/name", False),
        ("topology.kubernetes.io/zone", False),
    ],
)
def test_labels_of_the_user_are_carried_to_the_objects_and_not_to_the_pods(
    name: str, carried: bool
) -> None:
    plain = rendered(service())
    labelled = rendered(replace(service(), labels={name: "x"}))
    for key, item in labelled.items():
        assert (item["metadata"]["labels"].get(name) == "x") is carried
        assert item["spec"] == plain[key]["spec"]


def test_labels_of_the_service_do_not_take_the_place_of_ours() -> None:
    found = rendered(replace(service(), labels={"holdfast.dev/workload": "x", "team": "chat"}))
    labels = found["Deployment/my-llama-primary"]["metadata"]["labels"]
    assert labels["holdfast.dev/workload"] == "my-llama"


@pytest.mark.parametrize(
    ("name", "carried"),
    [
        ("description", True),
        ("example.com/cost-centre", True),
        ("prometheus.io/scrape", True),
        ("kubectl.kubernetes.io/last-applied-configuration", False),
        ("holdfast.dev/last-request", False),
        ("meta.helm.sh/release-name", False),
        ("argocd.argoproj.io/sync-wave", False),
        ("kustomize.toolkit.fluxcd.io/prune", False),
        ("kopf.zalando.org/last-handled-configuration", False),
        ("objectset.rio.cattle.io/applied", False),
        ("kapp.k14s.io/original", False),
    ],
)
def test_annotations_of_the_user_are_carried_to_the_objects_and_not_to_the_pods(
    name: str, carried: bool
) -> None:
    plain = rendered(service())
    annotated = rendered(replace(service(), annotations={name: "x"}))
    for key, item in annotated.items():
        assert (item["metadata"]["annotations"].get(name) == "x") is carried
        assert item["spec"] == plain[key]["spec"]


def test_annotations_of_the_service_do_not_take_the_place_of_those_of_its_address() -> None:
    address = ServiceSpec(annotations={"example.com/scheme": "internal"})
    base = service()
    base = replace(base, annotations={"example.com/scheme": "internet-facing"})
    found = rendered(replace(base, spec=replace(base.spec, service=address)))
    scheme = {
        key: item["metadata"]["annotations"]["example.com/scheme"] for key, item in found.items()
    }
    assert scheme["Service/my-llama-svc"] == "internal"
    assert scheme["Service/my-llama-primary"] == "internet-facing"


def flags(template: dict[str, Any]) -> dict[str, str]:
    """What follows each flag of a container's arguments."""
    args = template["spec"]["containers"][0]["args"]
    return dict(zip(args, [*args[1:], ""], strict=True))


def leader_worker_set(**change: Any) -> dict[str, Any]:
    objects = rendered(service(**{"nodes": 2, "resources": {"gpu": 8}, **change}))
    assert "Deployment/my-llama-primary" not in objects
    found: dict[str, Any] = objects["LeaderWorkerSet/my-llama-primary"]["spec"]
    return found


def test_vllm_divides_its_layers_over_the_nodes_and_only_the_leader_answers() -> None:
    template = leader_worker_set()["leaderWorkerTemplate"]
    leader, worker = template["leaderTemplate"], template["workerTemplate"]
    for each in (leader, worker):
        given = flags(each)
        assert given["--nnodes"] == given["--pipeline-parallel-size"] == "2"
        assert given["--tensor-parallel-size"] == "8"
        assert given["--node-rank"] == "$(LWS_WORKER_INDEX)"
        assert given["--master-addr"] == "$(LWS_LEADER_ADDRESS)"
    assert "--headless" in flags(worker)
    assert "--headless" not in flags(leader)


def test_sglang_counts_the_gpus_of_all_nodes() -> None:
    template = leader_worker_set(backend="sglang")["leaderWorkerTemplate"]
    for part in ("leaderTemplate", "workerTemplate"):
        given = flags(template[part])
        assert (given["--tp-size"], given["--nnodes"]) == ("16", "2")
        assert given["--dist-init-addr"] == "$(LWS_LEADER_ADDRESS):20000"


def test_services_select_leaders_and_the_budget_counts_all_pods() -> None:
    objects = rendered(service(nodes=2, resources={"gpu": 8}))
    template = objects["LeaderWorkerSet/my-llama-primary"]["spec"]["leaderWorkerTemplate"]
    leader, worker = (
        template[part]["metadata"]["labels"] for part in ("leaderTemplate", "workerTemplate")
    )

    def selects(selected: dict[str, str], labels: dict[str, str]) -> bool:
        return selected.items() <= labels.items()

    for name in ("my-llama-svc", "my-llama-primary"):
        wanted = objects[f"Service/{name}"]["spec"]["selector"]
        assert selects(wanted, leader)
        assert not selects(wanted, worker)
    guarded = objects["PodDisruptionBudget/my-llama-pdb"]["spec"]["selector"]["matchLabels"]
    assert selects(guarded, leader)
    assert selects(guarded, worker)


def test_nobody_probes_a_worker() -> None:
    template = leader_worker_set()["leaderWorkerTemplate"]
    leader, worker = (
        template[part]["spec"]["containers"][0] for part in ("leaderTemplate", "workerTemplate")
    )
    asked = {"startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "ports"}
    assert asked <= leader.keys()
    assert not asked & worker.keys()
    assert worker["resources"] == leader["resources"]


def test_an_autoscaler_of_several_nodes_scales_the_groups() -> None:
    objects = rendered(
        service(nodes=2, resources={"gpu": 8, "cpu": "4"}, minReplicas=1, maxReplicas=3)
    )
    target = objects["HorizontalPodAutoscaler/my-llama-hpa"]["spec"]["scaleTargetRef"]
    assert target["kind"] == "LeaderWorkerSet"
    assert "replicas" not in objects["LeaderWorkerSet/my-llama-primary"]["spec"]


def test_one_node_is_what_it_was_without_the_word() -> None:
    assert rendered(service(nodes=1)) == rendered(service())


PRESETS = {
    ("vllm", "queue"): ("vllm:num_requests_waiting", "5"),
    ("vllm", "kv-cache"): ("vllm:kv_cache_usage_perc", "800m"),
    ("sglang", "queue"): ("sglang:num_queue_reqs", "5"),
    ("sglang", "kv-cache"): ("sglang:token_usage", "800m"),
    ("llamacpp", "queue"): ("llamacpp:requests_deferred", "2"),
}


@pytest.mark.parametrize(("backend", "preset"), PRESETS)
def test_a_preset_is_the_metric_of_the_engine_with_its_usual_target(
    backend: str, preset: str
) -> None:
    args = ["--enable-metrics"] if backend == "sglang" else None
    objects = rendered(service(backend=backend, args=args, **scaled(preset=preset)))
    (metric,) = objects["HorizontalPodAutoscaler/my-llama-hpa"]["spec"]["metrics"]
    name, target = PRESETS[backend, preset]
    assert metric["pods"]["metric"]["name"] == name
    assert metric["pods"]["target"]["averageValue"] == target


def test_keda_asks_for_the_pods_of_the_primary_alone() -> None:
    facts = Facts(prometheus="http://prometheus:9090")
    objects = rendered(service(**scaled(preset="queue", scaler="keda")), facts)
    assert "HorizontalPodAutoscaler/my-llama-hpa" not in objects
    (trigger,) = objects["ScaledObject/my-llama-scaler"]["spec"]["triggers"]
    pattern = re.search('pod=~"(.*?)"', trigger["metadata"]["query"])
    assert pattern is not None
    names = re.compile(pattern[1])
    assert names.fullmatch("my-llama-primary-6d4cf56db6-x7k2p")
    assert not names.fullmatch("my-llama-canary-6d4cf56db6-x7k2p")
    assert not names.fullmatch("my-llama-primary-2-primary-6d4cf56db6-x7k2p")
    assert trigger["metadata"]["threshold"] == "5"


def test_nothing_of_keda_is_rendered_without_keda_or_without_a_prometheus() -> None:
    asked = service(**scaled(preset="queue", scaler="keda"))
    for facts in (Facts(), Facts(prometheus="http://prometheus:9090", keda=False)):
        objects = rendered(asked, facts)
        assert not [name for name in objects if name.startswith(("Scaled", "Horizontal"))]
    by_cpu = rendered(service(**scaled(scaler="keda")))
    assert by_cpu["ScaledObject/my-llama-scaler"]["spec"]["triggers"][0]["type"] == "cpu"
