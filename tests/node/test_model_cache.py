"""A model is downloaded on the real node by a Job from our own image, and served only when whole.

From a hub of ours with the shapes of the Hugging Face Hub's API, at the node's own address.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.node.test_serving import (
    CHAT,
    KIND,
    PROMPT,
    address,
    condition,
    is_degraded,
    is_ready,
    pod_names,
)
from tests.support.cluster_fixtures import create_inference_service
from tests.support.hub import ModelHub, serve_hub
from tests.support.node.handle import NODE_ADDRESS, Node
from tests.support.node.process import enter_network
from tests.support.processes import ROOT

pytestmark = pytest.mark.timeout(600)  # the first to ask starts a node

FILE = "tiny-Q4_K_M.gguf"
STORAGE = "by-hand"
DOWNLOADER = 65532  # the user of the Job's pod
ANSWER = "abcdefghijklmnopqrstuvwxyz."


@pytest.fixture
def hub(operator_pods: Node, tmp_path: Path) -> ModelHub:
    """A hub with one GGUF file that really answers."""
    model = tmp_path / FILE
    program = ROOT / "examples" / "backends" / "tiny_model.py"
    subprocess.run([sys.executable, program, model], check=True, capture_output=True)
    return ModelHub(files={"README.md": b"tiny", FILE: model.read_bytes()})


@pytest.fixture
def url(operator_pods: Node, hub: ModelHub) -> Iterator[str]:
    inside = operator_pods.pids["inside"]
    with serve_hub(hub, address=NODE_ADDRESS, enter=lambda: enter_network(inside)) as front:
        yield front


@pytest.fixture
def claim(operator_pods: Node, node_namespace: str, tmp_path: Path) -> Iterator[Path]:
    """The directory behind the claim of the cache: nobody on this node makes volumes."""
    directory = tmp_path / "claim"
    directory.mkdir()
    os.chown(directory, DOWNLOADER, DOWNLOADER)  # a hostPath is not given to fsGroup
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": node_namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": node_namespace, "name": "chat-models"},
            "hostPath": {"path": str(directory)},
            "storageClassName": STORAGE,
        },
    }
    operator_pods.apply(volume)
    yield directory
    operator_pods.kubectl("delete", "pv", node_namespace, "--wait=false")


# Any: objects of the Kubernetes API, here and below.
def spec(url: str, **more: Any) -> dict[str, Any]:
    return {
        **CHAT,
        "modelRef": "org/tiny",
        "modelRevision": "main",
        "cache": {"size": "1Gi", "storageClass": STORAGE},
        "env": {"HF_ENDPOINT": url},
        **more,
    }


def ask(node: Node, namespace: str) -> str:
    url = f"{address(node, namespace)}/v1/chat/completions"
    return node.run_inside("curl", "-s", url, "-d", PROMPT)


def downloads(node: Node, namespace: str) -> list[dict[str, Any]]:
    return node.objects("jobs", namespace)


def test_a_model_is_downloaded_once_and_served_by_every_replica(
    operator_pods: Node, node_namespace: str, hub: ModelHub, url: str, claim: Path
) -> None:
    node = operator_pods
    create_inference_service(node, node_namespace, "chat", spec(url))
    found = node.wait(KIND, "chat", node_namespace, is_ready, 120)
    assert ANSWER in ask(node, node_namespace)
    model = found["status"]["model"]
    assert model["commit"] == hub.commit
    (job,) = downloads(node, node_namespace)
    image = job["spec"]["template"]["spec"]["containers"][0]["image"]
    operator = node.objects("deployments", "holdfast-system")[0]
    assert image == operator["spec"]["template"]["spec"]["containers"][0]["image"]
    (directory,) = [each for each in claim.iterdir() if each.is_dir()]
    assert (directory / FILE).read_bytes() == hub.files[FILE]
    assert f"# digest {model['digest']}" in (directory / ".holdfast-complete").read_text()
    assert len([path for path, _ in hub.requests if path.startswith("/cdn/")]) == 1
    # The operator was not told of this hub, so it does not ask it.
    moved = condition(found, "ModelMoved")
    assert (moved["status"], moved["reason"]) == ("Unknown", "HubNotAllowed")


def test_a_download_that_is_cut_off_is_not_served_and_goes_on_where_it_was(
    operator_pods: Node, node_namespace: str, hub: ModelHub, url: str, claim: Path
) -> None:
    node = operator_pods
    hub.cut_after, hub.always_cut = 1000, True  # of six million, each time that it is tried
    create_inference_service(node, node_namespace, "chat", spec(url, replicas=1))
    found = node.wait(
        KIND,
        "chat",
        node_namespace,
        lambda each: "attempts failed" in condition(each, "ModelCached").get("message", ""),
        180,
    )
    assert condition(found, "ModelCached")["reason"] == "Downloading"
    assert "bytes came" in condition(found, "ModelCached")["message"]
    assert condition(found, "Ready")["status"] == "False"
    assert node.objects("deployments", node_namespace) == []
    assert list(claim.rglob(FILE)) == []
    assert list(claim.rglob(".holdfast-complete")) == []
    hub.cut_after, hub.always_cut = None, False
    node.wait(KIND, "chat", node_namespace, is_ready, 180)
    assert ANSWER in ask(node, node_namespace)
    ranges = [headers.get("range") for headers in hub.asked("/cdn/")]
    assert ranges[-1] is not None and ranges[-1] != "bytes=0-"


def test_a_model_that_is_truncated_afterwards_is_not_served_by_a_new_pod(
    operator_pods: Node, node_namespace: str, hub: ModelHub, url: str, claim: Path
) -> None:
    node = operator_pods
    create_inference_service(node, node_namespace, "chat", spec(url, replicas=1))
    node.wait(KIND, "chat", node_namespace, is_ready, 120)
    (file,) = claim.rglob(FILE)
    short = file.with_name("short")  # the pod that runs has the old one open, and keeps it
    short.write_bytes(hub.files[FILE][:-1000])
    short.chmod(0o644)
    short.replace(file)
    (pod,) = (name for name in pod_names(node, node_namespace) if name.startswith("chat-primary-"))
    node.kubectl("delete", "pod", pod, "-n", node_namespace)
    found = node.wait(KIND, "chat", node_namespace, is_degraded, 120)
    message = condition(found, "Degraded")["message"]
    assert f"{FILE} has {len(hub.files[FILE]) - 1000} bytes" in message
    assert "The model is not served." in message
    assert condition(found, "Available")["status"] == "False"
