"""Nodes with broken hardware on a real API server: what the operator says, and what it foretells.

The node is simulated: its conditions are patched as the agents of vendors write them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.controllers import (
    SERVICES,
    condition,
    install_service_crd,
    running_operator,
    small_service,
    wait_service_status,
    writes,
)

from holdfast import ManagementClient
from holdfast.adapters.kubernetes.target_history import open_drifts
from holdfast.adapters.kubernetes.target_objects import read_workload_object

pytestmark = pytest.mark.cluster

GPU = "nvidia.com/gpu"
AMOUNTS = {"cpu": "8", "memory": "32Gi", "pods": "110", GPU: "1"}


@pytest.fixture(scope="module", autouse=True)
def definition(cluster: Cluster) -> None:
    install_service_crd(cluster)


@pytest.fixture
def node(cluster: Cluster, namespace: str) -> Iterator[str]:
    """A node of its own with one GPU, which nobody else's pods are put on."""
    name = f"broken-{namespace}"
    create_node(cluster, name)
    yield name
    cluster.kubectl("delete", "node", name)


def is_ready(item: dict[str, Any]) -> bool:
    found = {each["type"]: each["status"] for each in item["status"].get("conditions", ())}
    return found.get("Ready") == "True"


def patch_status(cluster: Cluster, kind: str, name: str, namespace: str, status: Any) -> None:
    where = ("-n", namespace) if namespace else ()
    patch = json.dumps({"status": status})
    cluster.kubectl("patch", kind, name, *where, "--subresource=status", "-p", patch)


def one_gpu(namespace: str, *, name: str = "bot", only: str = "", **change: Any) -> dict[str, Any]:
    taint = {"key": "only", "value": only or namespace, "effect": "NoSchedule"}
    wanted = {
        "replicas": 1,
        "resources": {"cpu": "100m", "memory": "64Mi", "gpuMemory": None, "gpu": 1},
        "scheduling": {"nodeSelector": {"only": only or namespace}, "tolerations": [taint]},
    }
    found: dict[str, Any] = small_service(namespace, {**wanted, **change}, name=name)
    return found


def create_node(cluster: Cluster, name: str) -> None:
    """A node with one GPU, for pods that name it."""
    document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"only": name}},
        "spec": {"taints": [{"key": "only", "value": name, "effect": "NoSchedule"}]},
        "status": {"capacity": AMOUNTS, "allocatable": AMOUNTS},
    }
    cluster.api().request("POST", "/api/v1/nodes", document)
    cluster.wait("node", name, "", is_ready)


def crash_pod(cluster: Cluster, namespace: str, name: str) -> None:
    """Have the kubelet say of a service's one pod that it crashes."""
    pods = cluster.objects("pods", namespace)
    (found,) = [each for each in pods if each["metadata"]["name"].startswith(f"{name}-primary-")]
    crashed = {"name": "server", "ready": False, "restartCount": 4, "image": "x", "imageID": "x",
               "state": {"waiting": {"reason": "CrashLoopBackOff"}}}  # fmt: skip
    unready = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]
    status = {"containerStatuses": [crashed], "conditions": unready}
    patch_status(cluster, "pod", found["metadata"]["name"], namespace, status)


def test_a_crash_is_explained_by_the_gpu_of_its_node_and_the_deadlock_is_foretold(
    cluster: Cluster, namespace: str, node: str, tmp_path: Path
) -> None:
    with running_operator(cluster, namespace, tmp_path):
        cluster.apply(one_gpu(namespace, only=node, rollout={"maxSurge": 1}, onDrift="dry_run"))
        wait_service_status(cluster, namespace, lambda status: status.get("ready"))

        # One GPU, and the running pod has it: a rolling update has nowhere to go.
        cluster.kubectl("set", "env", "deployment/bot-primary", "A=2", "-n", namespace)
        planned = wait_service_status(cluster, namespace, lambda status: status.get("plan"))
        assert (
            "will not finish on the nodes there are: needs 1 nvidia.com/gpu beside the running"
            " ones, 0 free" in planned["plan"][-1]
        )

        cluster.apply(one_gpu(namespace, only=node, onDrift="reconcile"))
        wait_service_status(
            cluster,
            namespace,
            lambda status: status.get("ready") and not status.get("plan"),
        )
        broken = {"type": "GpuXidError", "status": "True", "reason": "Xid",
                  "message": "NVRM: Xid 79, GPU has fallen off the bus",
                  "lastTransitionTime": "2026-11-18T05:00:00Z"}  # fmt: skip
        patch_status(cluster, "node", node, "", {"conditions": [broken]})
        crash_pod(cluster, namespace, "bot")
        said = wait_service_status(
            cluster,
            namespace,
            lambda status: condition(status, "Degraded")["reason"] == "HardwareFailing",
        )
        message = condition(said, "Degraded")["message"]
        assert f"cause hardware: node {node} GpuXidError since 2026-11-18T05:00:00Z" in message
        made = writes(cluster, namespace)
        assert made and not [each for each in made if each.startswith("delete")]


CRASH = "testbed.holdfast.dev/crash=true"
LOST = {"metadata": {"annotations": {"testbed.holdfast.dev/state": "lost"}}}
SINCE = "2026-11-18T05:00:00Z"
AGENTS = [
    ("kernel", "KernelDeadlock", "True"),  # node-problem-detector
    ("aks", "GPUMissing", "True"),
    ("aks-xid", "XIDErrors", "True"),
    ("eks", "AcceleratedHardwareReady", "False"),
    ("nvsentinel", "GpuMemWatch", "True"),
    ("nebius", "NebiusGPUError", "True"),
    ("amd", "AMDGPUUnhealthy", "True"),
]


def break_node(cluster: Cluster, name: str, how: str) -> str:
    """Have a node say what is wrong with it; returns what is to be told of it."""
    if how in ("lost", "unreachable"):
        cluster.kubectl("patch", "node", name, "-p", json.dumps(LOST))
        cluster.wait("node", name, "", lambda item: not is_ready(item))
        if how == "lost":
            return f"node {name} NotReady since"
        unknown = {"type": "Ready", "status": "Unknown", "lastTransitionTime": SINCE,
                   "reason": "NodeStatusUnknown", "message": "Kubelet stopped."}  # fmt: skip
        patch_status(cluster, "node", name, "", {"conditions": [unknown]})
        return f"node {name} Unreachable since {SINCE} (Kubelet stopped.)"
    if how == "short":
        patch_status(cluster, "node", name, "", {"allocatable": {GPU: "0"}})
        return f"node {name} {GPU} (0 of 1 can be used)"
    if how == "event":
        event = {
            "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "XIDError",
            "metadata": {"generateName": f"{name}.", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": name},
            "message": "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
            "firstTimestamp": "2099-01-01T00:00:00Z", "lastTimestamp": "2099-01-01T00:00:00Z",
            "source": {"component": "kernel-monitor", "host": name}, "count": 1,
        }  # fmt: skip
        cluster.api().request("POST", "/api/v1/namespaces/default/events", event)
        return f"node {name} Xid 79 since 2099-01-01T00:00:00Z (GPU has fallen off the bus, PCI"
    kind, status = next((kind, status) for key, kind, status in AGENTS if key == how)
    told = {"type": kind, "status": status, "reason": "Told", "lastTransitionTime": SINCE}
    patch_status(cluster, "node", name, "", {"conditions": [told]})
    return f"node {name} {kind} since {SINCE}"


def names_hardware(item: dict[str, Any]) -> bool:
    status = item.get("status") or {}
    degraded = [each for each in status.get("conditions", ()) if each["type"] == "Degraded"]
    return any(each["reason"] == "HardwareFailing" for each in degraded)


def test_each_thing_that_a_node_may_say_explains_its_pod_and_nothing_is_deleted(
    kubeconfig: Cluster, namespace: str, tmp_path: Path
) -> None:
    """One node and one service for each, broken at the same time."""
    cluster = kubeconfig
    ways = ["lost", "unreachable", "short", "event", *(key for key, _, _ in AGENTS)]
    nodes = {way: f"{way}-{namespace}" for way in (*ways, "cordoned")}
    try:
        with running_operator(cluster, namespace, tmp_path):
            for way, name in nodes.items():
                create_node(cluster, name)
                if way == "cordoned":
                    cluster.kubectl("cordon", name)
                cluster.apply(one_gpu(namespace, name=way, only=name))
            for way in ways:
                wait_service_status(cluster, namespace, lambda it: it.get("ready"), way, 120)
            said = {way: break_node(cluster, nodes[way], way) for way in ways}
            said["cordoned"] = f"node {nodes['cordoned']} Cordoned"
            for pod in cluster.objects("pods", namespace):
                name = pod["metadata"]["name"]  # it crashes now, after every start
                cluster.kubectl("annotate", "pod", name, "-n", namespace, CRASH)
            for way, words in said.items():
                item = cluster.wait(SERVICES, way, namespace, names_hardware, 120)
                status = item["status"]
                assert f"cause hardware: {words}" in condition(status, "Degraded")["message"]
                assert {row["node"] for row in status["hardware"]} == {nodes[way]}
                (drift,) = open_drifts(read_workload_object(item), datetime.now(UTC))
                (entry,) = drift.fields
                assert (entry.cause, entry.path[:10]) == ("hardware", "/replicas/")
                assert words in entry.evidence
            with ManagementClient(f"kubernetes:///{namespace}") as client:
                (drift,) = client.drifts(slug="cordoned")
            assert drift.fields[0].cause == "hardware"
        made = writes(cluster, namespace)
        assert made and not [each for each in made if each.startswith("delete")]
    finally:
        for name in nodes.values():
            cluster.kubectl("delete", "node", name, "--ignore-not-found")
