"""The process that a test cluster lives in: it starts the control plane and ends it again.

Test workers come and go and may be killed, so none of them can be the cluster's parent. Each holds
a shared lock on the file `users` instead, which the kernel takes back however the worker ends;
once this process gets that lock for itself, nobody is left and it stops everything. It also answers
the resource metrics API with the usage that a test chose, so that a real autoscaler scales.
Started by tests/support/cluster.py as `python -m tests.support.cluster_process DIRECTORY [--stay]`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import ssl
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from tests.support.certificates import Certificate
from tests.support.control_plane import AdminApi, ApiRequestFailed, ControlPlane
from tests.support.processes import wait_until
from tests.support.testbed import find_testbed

GROUP_VERSION = "metrics.k8s.io/v1beta1"
POD_METRICS = re.compile(rf"^/apis/{re.escape(GROUP_VERSION)}/namespaces/([^/]+)/pods$")
DISCOVERY = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": GROUP_VERSION,
    "resources": [
        {"name": "pods", "kind": "PodMetrics", "namespaced": True, "verbs": ["get", "list"]}
    ],
}

# Any: objects of the Kubernetes API as they come over the wire.
Pods = Callable[[str, str], list[dict[str, Any]]]


def set_usage(directory: Path, namespace: str, usage: Mapping[str, str]) -> None:
    """Choose what each container of the namespace uses, as Kubernetes quantities."""
    directory.mkdir(exist_ok=True)
    written = directory / f".{namespace}.new"
    written.write_text(json.dumps(dict(usage)))
    written.replace(directory / namespace)


def serve(*, identity: Certificate, usage: Path, pods: Pods) -> ThreadingHTTPServer:
    """Serve in the background on a free port; `pods` lists a namespace by label selector."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            if asked.path == f"/apis/{GROUP_VERSION}":
                self._answer(200, DISCOVERY)
            elif found := POD_METRICS.match(asked.path):
                selector = parse_qs(asked.query).get("labelSelector", [""])[0]
                self._answer(200, _pod_metrics(usage, found[1], pods(found[1], selector)))
            else:
                self._answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure"})

        def _answer(self, status: int, document: Mapping[str, Any]) -> None:  # Any: as above
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing: the API server's audit log has it all."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    # Each connection shakes hands in its own thread: a silent one must not stop the others.
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


# Any: as above
def _pod_metrics(usage: Path, namespace: str, pods: list[dict[str, Any]]) -> dict[str, Any]:
    try:
        chosen = json.loads((usage / namespace).read_text())
    except FileNotFoundError:  # nobody chose: no figures yet, as from a metrics server just begun
        pods, chosen = [], {}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "kind": "PodMetricsList",
        "apiVersion": GROUP_VERSION,
        "metadata": {},
        "items": [
            {
                "metadata": {"name": pod["metadata"]["name"], "namespace": namespace},
                "timestamp": now,
                "window": "1s",
                "containers": [
                    {"name": container["name"], "usage": chosen}
                    for container in pod["spec"]["containers"]
                ],
            }
            for pod in pods
        ],
    }


NODES = ("gpu-0", "gpu-1")
CAPACITY = {"cpu": "2048", "memory": "16Ti", "pods": "2000", "nvidia.com/gpu": "8"}
METRICS_SERVICE = "metrics-stub"


def main(directory: Path, *, stay: bool) -> None:
    """Run a cluster until its last user is gone or, with `stay`, until told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    mine = (directory / "keeper.lock").open("a")
    fcntl.flock(mine, fcntl.LOCK_EX)  # for life: this is how others know that the cluster runs
    plane = ControlPlane(directory, find_testbed())
    try:
        plane.start()
        api = plane.api()
        port = _start_metrics_server(plane, api, directory)
        _add_nodes_and_metrics(api, port)
        state = {"server": plane.server, "keeper": os.getpid(), "pids": plane.pids}
        _write_atomically(directory / "cluster.json", json.dumps(state))
        if stay:
            signal.pause()
        with (directory / "users").open("w") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
    finally:
        (directory / "cluster.json").unlink(missing_ok=True)
        plane.stop()


def _start_metrics_server(plane: ControlPlane, api: AdminApi, directory: Path) -> int:
    # Any: objects of the Kubernetes API as they come over the wire.
    def pods(namespace: str, selector: str) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(selector)}"
        found: list[dict[str, Any]] = api.request("GET", path)["items"]
        return found

    server = serve(
        identity=plane.authority.issue("metrics", hosts=["DNS:localhost"]),
        usage=directory / "usage",
        pods=pods,
    )
    return int(server.server_address[1])


def _add_nodes_and_metrics(api: AdminApi, metrics_port: int) -> None:
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
    wait_until(lambda: _try_create(api, "/api/v1/namespaces/kube-system/services", service), 10)
    group, version = GROUP_VERSION.split("/")
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
def _try_create(api: AdminApi, path: str, document: dict[str, Any]) -> bool:
    try:
        api.request("POST", path, document)
    except ApiRequestFailed as failed:
        if failed.status != 404:  # the API server makes its own namespaces after it is ready
            raise
        return False
    return True


def _is_ready(api: AdminApi, node: str) -> bool:
    found = api.request("GET", f"/api/v1/nodes/{node}")
    ready = [c for c in found["status"].get("conditions", ()) if c["type"] == "Ready"]
    return bool(ready) and ready[0]["status"] == "True" and not found["spec"].get("taints")


def _write_atomically(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    try:
        main(where, stay="--stay" in sys.argv[2:])
    except Exception:
        _write_atomically(where / "failed", traceback.format_exc())
        raise
