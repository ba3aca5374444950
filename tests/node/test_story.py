"""What happens to a service on a real node: canary, missing image, GPUs handed over, deletion."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.node.test_serving import CHAT, KIND, Status, condition, is_ready, pod_names
from tests.support.cluster_fixtures import create_inference_service, edit
from tests.support.node.handle import NODE, REGISTRY, Node
from tests.support.processes import wait_until

pytestmark = pytest.mark.timeout(600)  # the first to ask starts a node

CANARY_ASKS = 60


def children(node: Node, namespace: str) -> str:
    return node.kubectl("get", "deployments,services,pdb,pods", "-n", namespace, "-o", "name")


def test_a_canary_gets_its_share_and_a_deleted_service_takes_everything_along(
    operator_pods: Node, node_namespace: str
) -> None:
    node = operator_pods
    create_inference_service(node, node_namespace, "chat", {**CHAT, "args": ["--alias", "old"]})
    node.wait(KIND, "chat", node_namespace, is_ready, 60)
    canary = {"args": ["--alias", "new"], "weight": 50}
    edit(node, node_namespace, "chat", {"spec": {"canary": canary}})
    found = node.wait(
        KIND,
        "chat",
        node_namespace,
        lambda each: (each.get("status") or {}).get("canaryWeight") == 50,
        60,
    )
    assert found["status"]["splitMode"] == "ReplicaRatio"
    address = node.get("service", "chat-svc", node_namespace)["spec"]["clusterIP"]
    url = f"http://{address}:8000/v1/models"

    def share() -> int | None:
        """How many of the requests the canary gets, once it gets about its share.

        The status tells of ready pods; kube-proxy takes them up a moment later, at random.
        """
        command = f"for i in $(seq {CANARY_ASKS}); do curl -s {url}; done"
        asked = node.run_inside("sh", "-c", command)
        new = asked.count('"id":"new"')
        assert new + asked.count('"id":"old"') == CANARY_ASKS
        return new if CANARY_ASKS / 4 < new < CANARY_ASKS * 3 / 4 else None

    wait_until(share, 30, "the canary to get its share")

    node.kubectl("delete", KIND, "chat", "-n", node_namespace)
    wait_until(lambda: not children(node, node_namespace), 60, "its children to be gone")


ABSENT = [
    pytest.param({"image": f"{REGISTRY}/absent:1"}, f"{REGISTRY}/absent:1", id="image"),
    pytest.param({"modelRef": "/srv/models/absent.gguf"}, "CrashLoopBackOff", id="model"),
]


@pytest.mark.parametrize(("change", "words"), ABSENT)
def test_waiting_for_what_is_not_there_ends_early_in_the_kubelets_words(
    operator_pods: Node, node_namespace: str, tmp_path: Path, change: Status, words: str
) -> None:
    node = operator_pods
    create_inference_service(node, node_namespace, "chat", {**CHAT, "replicas": 1, **change})
    holdfast = Path(sys.executable).with_name("holdfast")
    began = time.monotonic()
    ran = subprocess.run(
        [holdfast, "wait", "chat", "--url", "kubernetes://", "--project", node_namespace,
         "--timeout", "5m"],
        env={**node.kubectl_environment(), "HOLDFAST_HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=320,
    )  # fmt: skip
    assert ran.returncode != 0
    assert words in ran.stderr + ran.stdout, ran
    assert time.monotonic() - began < 120


def set_gpus(node: Node, count: int) -> None:
    amount = {"nvidia.com/gpu": str(count)}
    change = json.dumps({"status": {"capacity": amount, "allocatable": amount}})
    node.kubectl("patch", "node", NODE, "--subresource=status", "-p", change)


def test_no_pod_is_called_failing_while_a_gpu_is_handed_over(
    operator_pods: Node, node_namespace: str
) -> None:
    node = operator_pods
    set_gpus(node, 2)
    resources = {"cpu": "100m", "memory": "256Mi", "gpu": 1}
    spec = {**CHAT, "resources": resources}
    create_inference_service(node, node_namespace, "chat", spec)
    node.wait(KIND, "chat", node_namespace, is_ready, 60)
    old = pod_names(node, node_namespace)
    degraded: list[str] = []

    def handed_over(found: Status) -> bool:
        if (now := condition(found, "Degraded")).get("status") == "True":
            degraded.append(now["message"])
        return not old & pod_names(node, node_namespace) and is_ready(found)

    edit(node, node_namespace, "chat", {"spec": {"env": {"GREETING": "hello"}}})
    node.wait(KIND, "chat", node_namespace, handed_over, 120)
    assert degraded == []
