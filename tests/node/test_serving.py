"""The operator in pods of its own image, and the pods of services that it keeps on a real node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster_fixtures import create_inference_service, edit
from tests.support.node.handle import REGISTRY, Node
from tests.support.node.load import load
from tests.support.processes import wait_until

pytestmark = pytest.mark.timeout(600)  # the first to ask starts a node

KIND = "inferenceservices.holdfast.dev"
CHAT = {
    "backend": "llamacpp",
    "modelRef": "/srv/models/chat.gguf",
    "image": f"{REGISTRY}/llama:1",
    "replicas": 2,
    "resources": {"cpu": "100m", "memory": "256Mi"},
    "args": ["--parallel", "4"],
}
PROMPT = json.dumps({"messages": [{"role": "user", "content": "hello"}]})

# Any: objects of the Kubernetes API as they come over the wire, here and below.
Status = dict[str, Any]


def condition(found: Status, kind: str) -> Status:
    conditions = (found.get("status") or {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == kind), {})


def is_ready(found: Status) -> bool:
    status = found.get("status") or {}
    return (
        condition(found, "Ready").get("status") == "True"
        and status.get("observedGeneration") == found["metadata"]["generation"]
    )


def is_degraded(found: Status) -> bool:
    return condition(found, "Degraded").get("status") == "True"


def address(node: Node, namespace: str, service: str = "chat-svc") -> str:
    return f"http://{node.get('service', service, namespace)['spec']['clusterIP']}:8000"


def pod_names(node: Node, namespace: str) -> set[str]:
    return {each["metadata"]["name"] for each in node.objects("pods", namespace)}


def assert_nothing_lost(counts: dict[str, Status]) -> None:
    assert {kind: each["lost"] for kind, each in counts.items()} == {kind: [] for kind in counts}
    assert all(each["sent"] > 3 for each in counts.values()), counts


def test_a_service_is_ready_and_answers_through_its_service(
    operator_pods: Node, node_namespace: str
) -> None:
    node = operator_pods
    create_inference_service(node, node_namespace, "chat", CHAT)
    node.wait(KIND, "chat", node_namespace, is_ready, 60)
    url = f"{address(node, node_namespace)}/v1/chat/completions"
    assert "abcdefghijklmnopqrstuvwxyz." in node.run_inside("curl", "-s", url, "-d", PROMPT)


def test_a_service_serves_in_a_namespace_that_enforces_restricted(
    operator_pods: Node, node_namespace: str
) -> None:
    node = operator_pods
    enforce = "pod-security.kubernetes.io/enforce=restricted"
    node.kubectl("label", "namespace", node_namespace, enforce)
    create_inference_service(node, node_namespace, "chat", {**CHAT, "replicas": 1})
    found = node.wait(
        KIND,
        "chat",
        node_namespace,
        lambda each: condition(each, "Ready").get("reason") == "PodsRefused",
        60,
    )
    assert "runAsNonRoot" in condition(found, "Ready")["message"]
    context = {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001}
    overlay = {"podTemplate": {"spec": {"securityContext": context}}}
    edit(node, node_namespace, "chat", {"spec": overlay})
    node.wait(KIND, "chat", node_namespace, is_ready, 60)
    url = f"{address(node, node_namespace)}/v1/chat/completions"
    assert "abcdefghijklmnopqrstuvwxyz." in node.run_inside("curl", "-s", url, "-d", PROMPT)


def test_a_changed_spec_and_a_broken_image_lose_no_request(
    operator_pods: Node, node_namespace: str, tmp_path: Path
) -> None:
    node = operator_pods
    create_inference_service(node, node_namespace, "chat", CHAT)
    node.wait(KIND, "chat", node_namespace, is_ready, 60)
    old = pod_names(node, node_namespace)
    with load(node, address(node, node_namespace), tmp_path) as counts:
        edit(node, node_namespace, "chat", {"spec": {"env": {"GREETING": "hello"}}})
        wait_until(
            lambda: not old & pod_names(node, node_namespace), 120, "the old pods to be gone"
        )
        node.wait(KIND, "chat", node_namespace, is_ready, 60)
        node.kubectl(
            *["set", "image", "deployment/chat-primary", f"server={REGISTRY}/absent:1"],
            *["-n", node_namespace],
        )
        node.wait(
            "deployment",
            "chat-primary",
            node_namespace,
            lambda found: (
                found["spec"]["template"]["spec"]["containers"][0]["image"] == CHAT["image"]
            ),
            30,
        )
        node.wait(KIND, "chat", node_namespace, is_ready, 60)
    assert_nothing_lost(counts)


FAILURES = [
    pytest.param(
        {"args": ["--no-such-flag"]},
        ["exit code 2", "restarted"],
        id="a crash loop",
    ),
    pytest.param(
        {"image": f"{REGISTRY}/absent:1"},
        ["ImagePullBackOff", f"{REGISTRY}/absent:1", "not found"],
        id="no such image",
    ),
    pytest.param(
        {"secrets": {"HF_TOKEN": {"name": "absent", "key": "token"}}},
        ["CreateContainerConfigError", 'secret "absent" not found'],
        id="no such Secret",
    ),
    pytest.param(
        {"healthCheck": {"path": "/nowhere", "interval": "1s", "startup": "4s"}},
        ["Startup probe failed", "statuscode: 404 (GET /nowhere)", "restarted"],
        id="killed by its own startup probe",
    ),
    pytest.param(
        {"resources": {"cpu": "100m", "memory": "24Mi"}},
        ["OOMKilled"],
        id="out of memory",
    ),
]


@pytest.mark.parametrize(("change", "words"), FAILURES)
def test_what_fails_is_degraded_and_told_in_the_kubelets_words(
    operator_pods: Node, node_namespace: str, change: dict[str, Any], words: list[str]
) -> None:
    node = operator_pods
    create_inference_service(node, node_namespace, "chat", {**CHAT, "replicas": 1, **change})

    def told(found: Status) -> bool:
        message = condition(found, "Degraded").get("message", "")
        return is_degraded(found) and all(word in message for word in words)

    found = node.wait(KIND, "chat", node_namespace, told, 90)
    assert condition(found, "Ready")["status"] == "False"
    events = node.objects("events", node_namespace)
    ours = [each for each in events if each["involvedObject"]["kind"] == "InferenceService"]
    assert any(each["type"] == "Warning" for each in ours), [each["reason"] for each in ours]
