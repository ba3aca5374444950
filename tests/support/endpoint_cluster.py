"""A cluster of one namespace as the data plane sees it, and pods that can fail at will.

The API server is scripted: InferenceServices that are read and patched, EndpointSlices that are
listed and watched. Pods listen on loopback addresses of their own, which a real API server refuses
in a slice; on the real node, tests/node shows the same with real pods.
"""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from holdfast.adapters.kubernetes.endpoints import SERVICE_LABEL

NAMESPACE = "acme"
_GROUPS = {
    "/apis/holdfast.dev/v1alpha1": ("InferenceService", "inferenceservices"),
    "/apis/discovery.k8s.io/v1": ("EndpointSlice", "endpointslices"),
}


class Pod:
    """An HTTP server on an address of its own that says its name, or breaks off."""

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.answered = 0
        self.asked = 0
        self.connections = 0
        self.dies = False
        """Break off each request before the first byte of an answer."""
        self.on_request: Callable[[], None] | None = None
        """Called when a request has come, before it is answered or broken off."""
        self.gate = threading.Event()
        """A request to /v1/slow waits for it in the middle of its answer."""
        pod = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                pod.connections += 1

            def finish(self) -> None:
                super().finish()
                pod.connections -= 1

            def do_GET(self) -> None:
                pod.asked += 1
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if pod.on_request is not None:
                    pod.on_request()
                if pod.dies:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                text = pod.name.encode()
                if self.path.endswith("/slow"):
                    self.send_response(200)
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
                    self.wfile.flush()
                    pod.gate.wait(20)
                    self.wfile.write(b"1\r\n.\r\n0\r\n\r\n")
                else:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
                pod.answered += 1

            do_POST = do_GET  # noqa: N815  # the library's own name

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self.host, self.port = self._server.server_address[:2]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class EndpointCluster:
    """What the API server has; changed by the test, read and patched by the data plane."""

    def __init__(self) -> None:
        self._version = 10
        self._watches: list[queue.Queue[dict[str, Any]]] = []
        self._lock = threading.Lock()
        self.services: dict[str, dict[str, Any]] = {}
        self.slices: dict[str, dict[str, Any]] = {}
        self.slices_refused = False
        self.patches: list[dict[str, Any]] = []
        self.on_read: Callable[[], None] | None = None
        """Called once, before the next service that is read alone is given."""

    def add_service(self, name: str = "bot", *, spec: Any = None, status: Any = None) -> None:
        self.services[name] = {
            "apiVersion": "holdfast.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "uid": f"uid-{name}",
                "generation": 1,
                "resourceVersion": self._next_version(),
                "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            },
            "spec": {"modelRef": "tiny", "backend": "vllm", **(spec or {})},
            "status": {
                "ready": True,
                "replicas": 1,
                "readyReplicas": 1,
                "message": "serving",
                "observedGeneration": 1,
                **(status or {}),
            },
        }

    def set_pods(self, service: str, *pods: Pod, **conditions: bool) -> None:
        """Put pods behind a Service, each in a slice of its own; the others leave."""
        named = {f"{service}-{pod.name}": pod for pod in pods}
        with self._lock:
            gone = [
                name
                for name, item in self.slices.items()
                if item["metadata"]["labels"][SERVICE_LABEL] == service and name not in named
            ]
            for name in gone:
                self._tell("DELETED", self.slices.pop(name))
            for name, pod in named.items():
                old = name in self.slices
                self.slices[name] = self._slice(name, service, pod, conditions)
                self._tell("MODIFIED" if old else "ADDED", self.slices[name])

    def _slice(
        self, name: str, service: str, pod: Pod, conditions: dict[str, bool]
    ) -> dict[str, Any]:
        endpoint = {
            "addresses": [pod.host],
            "conditions": {"ready": True, **conditions},
            "targetRef": {"kind": "Pod", "name": pod.name},
        }
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "uid": f"uid-{name}",
                "labels": {SERVICE_LABEL: service},
                "resourceVersion": self._next_version(),
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": pod.port}],
            "endpoints": [endpoint],
        }

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)

    def _tell(self, kind: str, item: dict[str, Any]) -> None:
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": self._next_version()}}
        for each in self._watches:
            each.put({"type": kind, "object": item})

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if path in _GROUPS:
            kind, plural = _GROUPS[path]
            verbs = ["get", "list", "watch", "patch"]
            listed = {"name": plural, "kind": kind, "namespaced": True, "verbs": verbs}
            return 200, {"resources": [listed]}
        if "/endpointslices" in path:
            if self.slices_refused:
                return 403, _status(403, "Forbidden", "endpointslices is forbidden")
            with self._lock:
                return 200, _list(str(self._version), [*self.slices.values()])
        name = path.rpartition("/inferenceservices")[2].strip("/")
        if not name:
            return 200, _list(str(self._version), [*self.services.values()])
        if name not in self.services:
            return 404, _status(404, "NotFound", f"{name} not found")
        if method == "PATCH":
            self._patch(name, json.loads(body))
        elif (on_read := self.on_read) is not None:
            self.on_read = None
            on_read()
        return 200, self.services[name]

    def _patch(self, name: str, sent: dict[str, Any]) -> None:
        self.patches.append(sent)
        metadata = self.services[name]["metadata"]
        annotations = metadata.setdefault("annotations", {})
        annotations.update((sent.get("metadata") or {}).get("annotations") or {})
        metadata["resourceVersion"] = self._next_version()

    @contextmanager
    def watching(self) -> Iterator[queue.Queue[dict[str, Any]]]:
        events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._watches.append(events)
        try:
            yield events
        finally:
            self._watches.remove(events)


def _list(version: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version}, "items": items}


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return {**said, "code": code, "reason": reason, "message": message}


@contextmanager
def endpoint_cluster(directory: Path) -> Iterator[tuple[EndpointCluster, Path]]:
    """Serve the API until the block ends; gives the cluster and a kubeconfig for it."""
    cluster = EndpointCluster()
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, item = cluster.answer(self.command, parts.path, body)
            if "watch" in parse_qs(parts.query) and status == 200:
                self._watch()
                return
            text = json.dumps(item).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_PATCH = do_GET  # noqa: N815  # the library's own name

        def _watch(self) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with cluster.watching() as events:
                while not ended.is_set():
                    try:
                        line = json.dumps(events.get(timeout=0.05)).encode() + b"\n"
                    except queue.Empty:
                        continue
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                    self.wfile.flush()
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [
                    {
                        "name": "c",
                        "cluster": {"server": f"http://127.0.0.1:{server.server_port}"},
                    }
                ],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    try:
        yield cluster, kubeconfig
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
