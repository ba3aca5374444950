"""The data plane before real pods: one that is killed, and a rollout, under load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.node.test_serving import (
    CHAT,
    KIND,
    PROMPT,
    Status,
    assert_nothing_lost,
    condition,
    is_ready,
    pod_names,
)
from tests.support.cluster_fixtures import create_inference_service, edit
from tests.support.node.data_plane import data_plane, kill_server
from tests.support.node.handle import Node
from tests.support.node.load import load
from tests.support.processes import wait_until

pytestmark = pytest.mark.timeout(600)  # the first to ask starts a node


def is_back(pod: dict[str, Any], restarts: int = 1) -> bool:  # Any: a pod as the API has it
    (server,) = pod["status"]["containerStatuses"]
    return bool(server["restartCount"] >= restarts and server["ready"])


def kill_and_await(node: Node, namespace: str, pod: str) -> None:
    """Kill the server of a pod, and wait until the service has it back."""
    kill_server(node, namespace, pod)
    wait_until(lambda: is_back(node.get("pod", pod, namespace)), 60, f"{pod} to be started again")
    node.wait(KIND, "chat", namespace, is_ready, 60)


def test_a_killed_pod_and_a_rollout_lose_nothing_that_can_be_repeated(
    operator_pods: Node, node_namespace: str, tmp_path: Path
) -> None:
    """A stream that has begun cannot be: what is cut says so itself, and nothing else is lost."""
    node = operator_pods
    create_inference_service(node, node_namespace, "chat", CHAT)
    node.wait(KIND, "chat", node_namespace, is_ready, 60)
    first, second = sorted(pod_names(node, node_namespace))
    with data_plane(node, node_namespace, tmp_path) as plane:
        key = plane.key()
        # A stream that breaks tells of its pod, which gets no request for a while then: whether one
        # has to be given to the other pod would be chance. Without streams a request finds out.
        repeatable = ("short", "keep-alive")
        with load(node, plane.endpoint(), tmp_path, key=key, callers=repeatable) as counts:
            before = plane.metric("holdfast_proxy_retries_total")
            kill_and_await(node, node_namespace, first)
        assert_nothing_lost(counts)
        assert plane.metric("holdfast_proxy_retries_total") > before
        with load(node, plane.endpoint(), tmp_path, key=key) as counts:
            kill_and_await(node, node_namespace, second)
        lost = counts["stream"].pop("lost")
        assert all("cut after" in each for each in lost), lost
        assert len(lost) <= 2  # as many callers read streams
        assert counts["short"]["lost"] == counts["keep-alive"]["lost"] == []
        old = pod_names(node, node_namespace)
        with load(node, plane.endpoint(), tmp_path, key=key) as counts:
            edit(node, node_namespace, "chat", {"spec": {"env": {"GREETING": "hello"}}})
            wait_until(
                lambda: not old & pod_names(node, node_namespace), 120, "the old pods to be gone"
            )
            node.wait(KIND, "chat", node_namespace, is_ready, 60)
        assert_nothing_lost(counts)


def test_a_server_that_hangs_is_started_again_and_its_silence_is_told(
    operator_pods: Node, node_namespace: str
) -> None:
    node = operator_pods
    asked_often = {"healthCheck": {"interval": "1s"}, "replicas": 1}
    create_inference_service(node, node_namespace, "chat", {**CHAT, **asked_often})
    node.wait(KIND, "chat", node_namespace, is_ready, 60)
    (pod,) = pod_names(node, node_namespace)
    kill_server(node, node_namespace, pod, "STOP")
    found = node.wait(KIND, "chat", node_namespace, lambda each: not is_ready(each), 60)
    assert condition(found, "Ready")["status"] == "False"

    node.wait(
        KIND,
        "chat",
        node_namespace,
        lambda each: "probe failed" in condition(each, "Degraded").get("message", ""),
        60,
    )
    node.wait("pod", pod, node_namespace, is_back, 120)
    node.wait(KIND, "chat", node_namespace, is_ready, 60)


def test_a_service_nobody_asks_has_no_pods_until_somebody_does(
    operator_pods: Node, node_namespace: str, tmp_path: Path
) -> None:
    node = operator_pods
    rests = {"minReplicas": 0, "maxReplicas": 1, "autoscaling": {"idleAfter": "5s"}}
    create_inference_service(node, node_namespace, "chat", {**CHAT, "replicas": 1, **rests})
    with data_plane(node, node_namespace, tmp_path) as plane:
        key = plane.key()
        node.wait(KIND, "chat", node_namespace, is_serving, 120)
        found = node.wait(KIND, "chat", node_namespace, is_scaled_to_zero, 120)
        assert condition(found, "Ready")["status"] == "True"
        assert condition(found, "Degraded")["status"] == "False"
        assert condition(found, "DriftDetected")["status"] == "False"
        assert "Scaled to zero since" in found["status"]["message"]
        wait_until(lambda: not pod_names(node, node_namespace), 60, "the pods to be gone")
        asked = ask_at_once(node, plane.endpoint(), key, 5)
        assert asked == ["200"] * 5, plane.server.log.read_text()[-4000:]
        node.wait(KIND, "chat", node_namespace, is_serving, 60)


@pytest.mark.long
def test_a_pod_that_crashes_again_and_again_is_told_as_flapping_while_it_serves(
    operator_pods: Node, node_namespace: str
) -> None:
    node = operator_pods
    create_inference_service(node, node_namespace, "chat", {**CHAT, "replicas": 1})
    node.wait(KIND, "chat", node_namespace, is_ready, 60)
    (pod,) = pod_names(node, node_namespace)
    for count in (1, 2, 3):
        assert condition(node.get(KIND, "chat", node_namespace), "Degraded")["reason"] == "Healthy"
        kill_server(node, node_namespace, pod)
        node.wait("pod", pod, node_namespace, lambda each, n=count: is_back(each, n), 90)
        node.wait(KIND, "chat", node_namespace, is_ready, 60)
    found = node.wait(
        KIND,
        "chat",
        node_namespace,
        lambda each: condition(each, "Degraded").get("reason") == "PodsFlapping",
        30,
    )
    assert condition(found, "Ready")["status"] == "True"
    assert (
        "stopped being ready 3 times within 30 minutes" in condition(found, "Degraded")["message"]
    )
    assert "exit code 137" in condition(found, "Degraded")["message"]


def is_scaled_to_zero(found: Status) -> bool:
    status = found.get("status") or {}
    return (
        condition(found, "ScaledToZero").get("status") == "True"
        and condition(found, "Ready").get("reason") == "ScaledToZero"
        and status.get("observedGeneration") == found["metadata"]["generation"]
    )


def is_serving(found: Status) -> bool:
    return condition(found, "Ready").get("reason") == "Serving"


def ask_at_once(node: Node, url: str, key: str, count: int) -> list[str]:
    """Send some requests at the same moment, and give the status of each answer."""
    one = [
        *["-s", "-o", "/dev/null", "-w", "%{http_code}\n", "-m", "90"],
        *["-H", f"Authorization: Bearer {key}", "-d", PROMPT, f"{url}/v1/chat/completions"],
    ]
    command = ["curl", "--parallel", "--parallel-immediate"]
    for number in range(count):
        command += [*(["--next"] if number else []), *one]
    return node.run_inside(*command, timeout=120).split()
