"""A node that is really lost: its kubelet is killed, the operator says so, nothing is deleted."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster_fixtures import create_inference_service
from tests.support.controllers import condition, running_operator, writes
from tests.support.node.handle import NODE, REGISTRY, Node

from holdfast.wire.crd import crd_files

pytestmark = pytest.mark.timeout(600)  # it starts a node of its own

KIND = "inferenceservices.holdfast.dev"
CHAT = {
    "backend": "llamacpp",
    "modelRef": "/srv/models/chat.gguf",
    "image": f"{REGISTRY}/llama:1",
    "replicas": 1,
    "resources": {"cpu": "100m", "memory": "256Mi"},
}


@pytest.fixture
def own_node(node: Node) -> Iterator[Node]:
    """A second node, beside that of the run, which is not to be harmed."""
    with tempfile.TemporaryDirectory(prefix="node-", ignore_cleanup_errors=True) as directory:
        own = Node.join(Path(directory))
        try:
            own.install_definitions(*crd_files().values())
            yield own
        finally:
            own.stop()


def kubelet_of(node: Node) -> int:
    """The kubelet among the processes that the node started."""
    inside = node.pids["inside"]
    children = Path(f"/proc/{inside}/task/{inside}/children").read_text().split()
    (found,) = [pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "kubelet\n"]
    return int(found)


def degraded_by_hardware(item: dict[str, Any]) -> bool:
    conditions = (item.get("status") or {}).get("conditions", ())
    return any(each["reason"] == "HardwareFailing" for each in conditions)


def is_ready(item: dict[str, Any]) -> bool:
    return bool((item.get("status") or {}).get("ready"))


def test_a_node_whose_kubelet_was_killed_explains_its_replica_and_nothing_is_deleted(
    own_node: Node, tmp_path: Path
) -> None:
    namespace = own_node.create_namespace()
    with running_operator(own_node, namespace, tmp_path):
        create_inference_service(own_node, namespace, "chat", CHAT)
        own_node.wait(KIND, "chat", namespace, is_ready, 120)
        (before,) = own_node.objects("pods", namespace)
        os.kill(kubelet_of(own_node), signal.SIGKILL)
        found = own_node.wait(KIND, "chat", namespace, degraded_by_hardware, 120)
        message = condition(found["status"], "Degraded")["message"]
        assert f"cause hardware: node {NODE} Unreachable since" in message
        assert "Kubelet stopped posting node status." in message
        (row,) = found["status"]["hardware"]
        assert (row["pod"], row["node"]) == (before["metadata"]["name"], NODE)
        assert (row["condition"], row["reason"]) == ("Unreachable", "NodeLost")
        (after,) = own_node.objects("pods", namespace)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert "deletionTimestamp" not in after["metadata"]
        assert not [each for each in writes(own_node, namespace) if each.startswith("delete")]
