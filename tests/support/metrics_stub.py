"""Answers the resource metrics API with the figures a test chose, so that a real HPA scales.

The API server hands `metrics.k8s.io/v1beta1` on to it. Usage is kept per namespace in a file,
because the tests that set it are in other processes. Run by tests/support/cluster_keeper.py.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.certificates import Certificate

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
