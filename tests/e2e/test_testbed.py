"""The test cluster does what the other tests trust it to do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster import Cluster, KubectlFailed
from tests.support.processes import ROOT, is_alive, wait_until

pytestmark = pytest.mark.cluster

ON_PODS = "testbed.holdfast.dev"
OTHER_DIGEST = "sha256:" + "ab" * 32


# Any, here and below: objects of the Kubernetes API as they come over the wire.
def deployment(namespace: str, *, replicas: int = 1, **told: str) -> dict[str, Any]:
    """A Deployment `bot`; keywords are what its pods are told: `load_seconds="5"`."""
    annotations = {f"{ON_PODS}/{key.replace('_', '-')}": value for key, value in told.items()}
    container = {
        "name": "server",
        "image": "registry.example/vllm:v1",
        "resources": {
            "requests": {"cpu": "100m", "nvidia.com/gpu": "1"},
            "limits": {"nvidia.com/gpu": "1"},
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "bot", "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "bot"}},
            "template": {
                "metadata": {"labels": {"app": "bot"}, "annotations": annotations},
                "spec": {"containers": [container]},
            },
        },
    }


def ready_replicas(found: dict[str, Any]) -> int:
    count: int = found.get("status", {}).get("readyReplicas", 0)
    return count


def the_pod(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """The one pod of the Deployment, once its containers have a status."""

    def started() -> dict[str, Any] | None:
        pods = cluster.objects("pods", namespace, "app=bot")
        return pods[0] if pods and pods[0]["status"].get("containerStatuses") else None

    found = wait_until(started, 30, "a pod that has started")
    assert found is not None
    return found


def server_status(pod: dict[str, Any]) -> dict[str, Any]:
    status: dict[str, Any] = pod["status"]["containerStatuses"][0]
    return status


def test_a_deployment_is_scheduled_onto_gpu_nodes_and_becomes_ready(
    cluster: Cluster, namespace: str
) -> None:
    cluster.apply(deployment(namespace, replicas=2))
    cluster.wait("deployment", "bot", namespace, lambda found: ready_replicas(found) == 2)
    pods = cluster.objects("pods", namespace)
    assert {pod["spec"]["nodeName"] for pod in pods} <= {"gpu-0", "gpu-1"}
    assert len({pod["status"]["podIP"] for pod in pods}) == 2
    assert all(server_status(pod)["imageID"].startswith("registry.example/vllm@") for pod in pods)


def test_the_scheduler_leaves_a_pod_pending_when_the_gpus_are_used_up(
    cluster: Cluster, namespace: str
) -> None:
    wanted = deployment(namespace)
    resources = wanted["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources["requests"]["nvidia.com/gpu"] = resources["limits"]["nvidia.com/gpu"] = "9"
    cluster.apply(wanted)

    def refusals() -> list[str]:
        return [
            condition.get("message", "")
            for pod in cluster.objects("pods", namespace)
            for condition in pod["status"].get("conditions", ())
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        ]

    assert "Insufficient nvidia.com/gpu" in wait_until(refusals, 30, "the scheduler to refuse")[0]


def test_a_deleted_pod_is_replaced(cluster: Cluster, namespace: str) -> None:
    cluster.apply(deployment(namespace))
    before = the_pod(cluster, namespace)["metadata"]["name"]
    cluster.kubectl("delete", "pod", before, "-n", namespace)
    assert the_pod(cluster, namespace)["metadata"]["name"] != before


def test_a_pod_that_loads_runs_without_being_ready_until_it_has_loaded(
    cluster: Cluster, namespace: str
) -> None:
    cluster.apply(deployment(namespace, load_seconds="600"))
    pod = the_pod(cluster, namespace)
    assert pod["status"]["phase"] == "Running"
    assert not server_status(pod)["ready"]
    name = pod["metadata"]["name"]
    cluster.kubectl(
        "annotate", "pod", name, "-n", namespace, "--overwrite", f"{ON_PODS}/load-seconds=1"
    )
    cluster.wait("deployment", "bot", namespace, ready_replicas)


def test_a_pod_becomes_unready_when_its_probe_fails_and_ready_when_it_succeeds(
    cluster: Cluster, namespace: str
) -> None:
    cluster.apply(deployment(namespace))
    cluster.wait("deployment", "bot", namespace, ready_replicas)
    name = the_pod(cluster, namespace)["metadata"]["name"]
    cluster.kubectl("annotate", "pod", name, "-n", namespace, f"{ON_PODS}/probe=failing")
    cluster.wait("pod", name, namespace, lambda pod: not server_status(pod)["ready"])
    cluster.wait("deployment", "bot", namespace, lambda found: not ready_replicas(found))
    cluster.kubectl("annotate", "pod", name, "-n", namespace, f"{ON_PODS}/probe-")
    cluster.wait("deployment", "bot", namespace, ready_replicas)


def test_a_crashing_pod_restarts_again_and_again_until_it_is_cured(
    cluster: Cluster, namespace: str
) -> None:
    cluster.apply(deployment(namespace, crash="true", crash_exit_code="137"))
    name = the_pod(cluster, namespace)["metadata"]["name"]
    pod = cluster.wait("pod", name, namespace, lambda pod: server_status(pod)["restartCount"] >= 2)
    assert server_status(pod)["lastState"]["terminated"]["exitCode"] == 137
    assert ready_replicas(cluster.get("deployment", "bot", namespace)) == 0
    cluster.kubectl("annotate", "pod", name, "-n", namespace, f"{ON_PODS}/crash-")
    cluster.wait("deployment", "bot", namespace, ready_replicas)


def test_a_pod_can_be_told_that_its_tag_now_means_another_digest(
    cluster: Cluster, namespace: str
) -> None:
    cluster.apply(deployment(namespace))
    cluster.wait("deployment", "bot", namespace, ready_replicas)
    pod = the_pod(cluster, namespace)
    name = pod["metadata"]["name"]
    assert not server_status(pod)["imageID"].endswith(OTHER_DIGEST)
    told = f"{ON_PODS}/image-digest={OTHER_DIGEST}"
    cluster.kubectl("annotate", "pod", name, "-n", namespace, told)
    pod = cluster.wait(
        "pod", name, namespace, lambda pod: server_status(pod)["imageID"].endswith(OTHER_DIGEST)
    )
    assert server_status(pod)["ready"]


def test_an_autoscaler_follows_the_usage_a_test_chose(cluster: Cluster, namespace: str) -> None:
    cluster.apply(deployment(namespace))
    cluster.wait("deployment", "bot", namespace, ready_replicas)
    cluster.set_usage(namespace, cpu="300m", memory="1Gi")
    cluster.kubectl(
        *["autoscale", "deployment", "bot", "-n", namespace],
        *["--min=1", "--max=4", "--cpu=100%"],
    )
    cluster.wait("deployment", "bot", namespace, lambda found: ready_replicas(found) >= 3, 60)
    scales = cluster.audit_events(
        resource="deployments/scale", verbs=["update"], namespace=namespace
    )
    autoscaler = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
    assert {event.user for event in scales} == {autoscaler}
    cluster.set_usage(namespace, cpu="1m", memory="1Gi")
    cluster.wait("deployment", "bot", namespace, lambda found: ready_replicas(found) == 1, 60)


def test_the_audit_log_counts_writes_by_client(cluster: Cluster, namespace: str) -> None:
    def writes() -> list[str]:
        events = cluster.audit_events(
            user_agent="kubectl/", resource="configmaps", namespace=namespace
        )
        return [event.verb for event in events if event.wrote]

    create = ["create", "configmap", "settings", "-n", namespace, "--from-literal=a=b"]
    cluster.kubectl(*create, "--dry-run=server")
    assert writes() == []
    cluster.kubectl(*create)
    cluster.kubectl("label", "configmap", "settings", "-n", namespace, "seen=yes")
    assert writes() == ["create", "patch"]


def test_a_user_may_do_what_rbac_says_and_no_more(cluster: Cluster, namespace: str) -> None:
    ana = cluster.kubeconfig_for("ana", ["support"], namespace=namespace)
    with pytest.raises(KubectlFailed, match='User "ana" cannot list resource "pods"'):
        cluster.kubectl("get", "pods", kubeconfig=ana)
    binding = ["create", "rolebinding", "support", "-n", namespace, "--clusterrole=view"]
    cluster.kubectl(*binding, "--group=support")

    def allowed() -> bool:
        try:
            return cluster.kubectl("get", "pods", "-o", "name", kubeconfig=ana) == ""
        except KubectlFailed:
            return False  # the authorizer learns of a binding a moment later

    wait_until(allowed, 10, "the binding to take effect")


def test_a_service_account_token_opens_the_cluster_as_that_account(
    cluster: Cluster, namespace: str
) -> None:
    cluster.kubectl("create", "serviceaccount", "robot", "-n", namespace)
    robot = cluster.kubeconfig_for_service_account("robot", namespace)
    who = json.loads(cluster.kubectl("auth", "whoami", "-o", "json", kubeconfig=robot))
    assert who["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:robot"


HOLD_A_CLUSTER = """
import sys, time
from pathlib import Path
from tests.support.cluster import Cluster
cluster = Cluster.join(Path(sys.argv[1]))
print(cluster.keeper, *cluster.pids.values(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("killed", ["its last user", "its keeper"])
def test_every_process_of_a_cluster_ends_with_whoever_keeps_it_alive(
    killed: str, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_A_CLUSTER, str(tmp_path / "cluster")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as user:
        try:
            assert user.stdout is not None
            keeper, *parts = [int(pid) for pid in user.stdout.readline().split()]
            assert len(parts) == 5
            assert all(is_alive(pid) for pid in parts)
            os.kill(user.pid if killed == "its last user" else keeper, signal.SIGKILL)
            wait_until(
                lambda: not any(is_alive(pid) for pid in (keeper, *parts)), 30, "all of it to end"
            )
        finally:
            user.kill()
