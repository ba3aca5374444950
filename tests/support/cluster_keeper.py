"""The process that a test cluster lives in: it starts the control plane and ends it again.

Test workers come and go and may be killed, so none of them can be the cluster's parent. Each holds
a shared lock on the file `users` instead, which the kernel takes back however the worker ends;
once the keeper gets that lock for itself, nobody is left and it stops everything.
Started by tests/support/cluster.py as `python -m tests.support.cluster_keeper DIRECTORY [--stay]`.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support import metrics_stub
from tests.support.control_plane import ControlPlane
from tests.support.kube_api import KubeApi, RequestFailed
from tests.support.processes import wait_until
from tests.support.testbed import find

NODES = ("gpu-0", "gpu-1")
CAPACITY = {"cpu": "2048", "memory": "16Ti", "pods": "2000", "nvidia.com/gpu": "8"}
METRICS_SERVICE = "metrics-stub"


def main(directory: Path, *, stay: bool) -> None:
    """Run a cluster until its last user is gone or, with `stay`, until told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    mine = (directory / "keeper.lock").open("a")
    fcntl.flock(mine, fcntl.LOCK_EX)  # for life: this is how others know that the cluster runs
    plane = ControlPlane(directory, find())
    try:
        plane.start()
        api = plane.api()
        port = _serve_metrics(plane, api, directory)
        _furnish(api, port)
        state = {"server": plane.server, "keeper": os.getpid(), "pids": plane.pids}
        _write_whole(directory / "cluster.json", json.dumps(state))
        if stay:
            signal.pause()
        with (directory / "users").open("w") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        (directory / "cluster.json").unlink(missing_ok=True)
        plane.stop()


def _serve_metrics(plane: ControlPlane, api: KubeApi, directory: Path) -> int:
    # Any: objects of the Kubernetes API as they come over the wire.
    def pods(namespace: str, selector: str) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(selector)}"
        found: list[dict[str, Any]] = api.request("GET", path)["items"]
        return found

    server = metrics_stub.serve(
        identity=plane.authority.issue("metrics", hosts=["DNS:localhost"]),
        usage=directory / "usage",
        pods=pods,
    )
    return int(server.server_address[1])


def _furnish(api: KubeApi, metrics_port: int) -> None:
    """Give the cluster its nodes and its metrics API, and wait for both."""
    for name in NODES:
        node = {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": CAPACITY, "allocatable": CAPACITY},
        }
        api.request("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **node})
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": METRICS_SERVICE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    wait_until(lambda: _created(api, "/api/v1/namespaces/kube-system/services", service), 10)
    group, version = metrics_stub.GROUP_VERSION.split("/")
    registration = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.{group}"},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": METRICS_SERVICE, "namespace": "kube-system", "port": metrics_port},
        },
    }
    api.request("POST", "/apis/apiregistration.k8s.io/v1/apiservices", registration)
    wait_until(lambda: all(_is_ready(api, name) for name in NODES), 30, "the nodes to be ready")


# Any: as above
def _created(api: KubeApi, path: str, document: dict[str, Any]) -> bool:
    try:
        api.request("POST", path, document)
    except RequestFailed as failed:
        if failed.status != 404:  # the API server makes its own namespaces after it is ready
            raise
        return False
    return True


def _is_ready(api: KubeApi, node: str) -> bool:
    found = api.request("GET", f"/api/v1/nodes/{node}")
    ready = [c for c in found["status"].get("conditions", ()) if c["type"] == "Ready"]
    return bool(ready) and ready[0]["status"] == "True" and not found["spec"].get("taints")


def _write_whole(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    try:
        main(where, stay="--stay" in sys.argv[2:])
    except Exception:
        _write_whole(where / "failed", traceback.format_exc())
        raise
