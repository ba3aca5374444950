"""Real pods on a real node: how soon one answers, what a rollout costs, what the data plane adds.

The peer is a Deployment and a Service of the same pod, applied by kubectl, and nginx before the
same pods. Everything asks inside the node's network. Where no node can run, nothing is measured,
and that is said.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.control_plane import ApiRequestFailed
from tests.support.go_programs import NotBuilt
from tests.support.node.data_plane import data_plane
from tests.support.node.handle import REGISTRY, Node
from tests.support.node.holdfast_image import install_holdfast
from tests.support.node.load import load
from tests.support.node.process import NoNode, check_machine, enter_network, prepare
from tests.support.processes import start_process, stop_process, wait_until
from tests.support.testbed import NoTestbed, cache_root, find_testbed, say_on_stderr
from tools.debian import NoPackages, unpack_packages
from tools.image import ImageNotBuilt

from bench.kube import percentile
from bench.report import Row
from holdfast.core.service.children import Facts, manifests
from holdfast.wire.inference_service_v1alpha1 import service_from_json

STARTS = 3
REQUESTS = 400
NAMESPACE = "bench"
KIND = "inferenceservices.holdfast.dev"
PORT = 8000
NGINX_PORT = 8090
SPEC = {
    "backend": "llamacpp",
    "modelRef": "/srv/models/chat.gguf",
    "image": f"{REGISTRY}/llama:1",
    "resources": {"cpu": "100m", "memory": "256Mi"},
    "args": ["--parallel", "4"],
}
STREAM = json.dumps({"prompt": "a", "stream": True, "max_tokens": 4})
Result = TypeVar("Result")
# Any: objects of the Kubernetes API as they are applied, here and below.
Manifest = dict[str, Any]


def measure() -> list[Row]:
    """Everything on one node, one after the other; nothing where none can run."""
    try:
        check_machine()
        find_testbed()
        prepare(say_on_stderr)
    except (NoNode, NoTestbed, NoPackages, NotBuilt, ImageNotBuilt) as missing:
        print(f"NOT MEASURED, for want of a real node: {missing}", file=sys.stderr, flush=True)
        return []
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        node = Node.join(Path(folder) / "node")
        try:
            install_holdfast(node, say_on_stderr)
            node.kubectl("create", "namespace", NAMESPACE)
            return [
                _starts(node),
                _rollouts(node, Path(folder)),
                *_latencies(node, Path(folder)),
            ]
        finally:
            node.stop()


def _service(name: str, **spec: Any) -> Manifest:
    return {
        "apiVersion": "holdfast.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {**SPEC, **spec},
    }


def _bare(name: str, **spec: Any) -> list[Manifest]:
    """The Deployment and the Service of the same pod, which nobody looks after."""
    rendered: list[Any] = list(manifests(service_from_json(_service(name, **spec)), Facts()))
    wanted = (("Deployment", f"{name}-primary"), ("Service", f"{name}-svc"))
    return [each for each in rendered if (each["kind"], each["metadata"]["name"]) in wanted]


def _apply(node: Node, items: list[Manifest]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    node.kubectl("apply", "--server-side", "-f", "-", stdin=text)


def _starts(node: Node) -> Row:
    """From `kubectl apply` to the first token through the Service, in turn with the peer."""
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(STARTS + 1):
        for whose in times:
            name = f"{whose}-{number}"
            items = _bare(name, replicas=1) if whose == "bare" else [_service(name, replicas=1)]
            began = time.monotonic()
            _apply(node, items)
            address = _address(node, f"{name}-svc")
            answered = _inside(node, lambda address=address: _first_token(address))
            if number:  # the first of each warms up
                times[whose].append(answered - began)
            kind = KIND if whose == "ours" else "deployment,service"
            names = [name] if whose == "ours" else [f"{name}-primary", f"{name}-svc"]
            node.kubectl("delete", kind, *names, "-n", NAMESPACE, "--ignore-not-found")
            wait_until(lambda: not node.objects("pods", NAMESPACE), 60, "the pods to be gone")
    ours, bare = statistics.median(times["ours"]), statistics.median(times["bare"])
    return Row(
        what="`kubectl apply` → first token, 1 replica on a real node, against a bare Deployment",
        ours=f"{ours:.2f} s",
        peer=f"{bare:.2f} s",
        ratio=bare / ours,
        goal=0.8,
    )


def _address(node: Node, service: str) -> str:
    """Wait for a Service, and give its address."""
    api = node.api()

    def found() -> str | None:
        try:
            item = api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/services/{service}")
        except ApiRequestFailed:
            return None
        return str(item["spec"]["clusterIP"])

    return wait_until(found, 30, f"the Service {service}", every=0.02)


def _first_token(address: str) -> float:
    """Ask until an answer begins; gives the time of its first token."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        connection = http.client.HTTPConnection(address, PORT, timeout=10)
        try:
            connection.request("POST", "/v1/completions", STREAM)
            response = connection.getresponse()
            if response.status == 200 and response.readline().startswith(b"data:"):
                return time.monotonic()
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.02)
    raise TimeoutError(f"{address} gave no token in two minutes")


def _rollouts(node: Node, folder: Path) -> Row:
    """A change of the environment under load, with streams; the peer stops at SIGTERM."""
    _apply(node, [_service("ours", replicas=2)])
    bare = _bare("bare", replicas=2)
    for item in bare:
        if item["kind"] == "Deployment":
            pod = item["spec"]["template"]["spec"]
            pod["containers"][0].pop("lifecycle", None)
            pod.pop("terminationGracePeriodSeconds", None)
    _apply(node, bare)
    counts = {}
    for whose in ("ours", "bare"):
        deployment = f"deployment/{whose}-primary"
        wait_until(
            lambda deployment=deployment: deployment in _deployments(node), 30, "the Deployment"
        )
        _wait_for_rollout(node, deployment)
        old = {each["metadata"]["name"] for each in node.objects("pods", NAMESPACE)}
        with load(node, f"http://{_address(node, f'{whose}-svc')}:{PORT}", folder) as counted:
            if whose == "ours":
                change = json.dumps({"spec": {"env": {"GREETING": "hello"}}})
                node.kubectl("patch", KIND, "ours", "-n", NAMESPACE, "--type=merge", "-p", change)
            else:
                node.kubectl("set", "env", deployment, "GREETING=hello", "-n", NAMESPACE)
            mine = {name for name in old if name.startswith(f"{whose}-")}
            wait_until(lambda mine=mine: not mine & _pods(node), 180, "the old pods to be gone")
            _wait_for_rollout(node, deployment)
        counts[whose] = (
            sum(each["sent"] for each in counted.values()),
            sum(len(each["lost"]) for each in counted.values()),
        )
    node.kubectl("delete", "deployment,service", "bare-primary", "bare-svc", "-n", NAMESPACE,
                 "--ignore-not-found")  # fmt: skip
    (sent, lost), (peer_sent, peer_lost) = counts["ours"], counts["bare"]
    return Row(
        what="answered of what was sent in a rollout, streams among it, limit: all (beside it, the"
        " same pod without a preStop)",
        ours=f"{sent - lost} of {sent}",
        peer=f"{peer_sent - peer_lost} of {peer_sent}",
        ratio=(sent - lost) / sent,
        goal=1.0,
    )


def _deployments(node: Node) -> set[str]:
    found = node.objects("deployments", NAMESPACE)
    return {f"deployment/{each['metadata']['name']}" for each in found}


def _pods(node: Node) -> set[str]:
    return {each["metadata"]["name"] for each in node.objects("pods", NAMESPACE)}


def _wait_for_rollout(node: Node, deployment: str) -> None:
    node.kubectl("rollout", "status", deployment, "-n", NAMESPACE, "--timeout=120s")


def _latencies(node: Node, folder: Path) -> list[Row]:
    """The same small request to the Service, through the data plane, and through nginx."""
    _wait_for_rollout(node, "deployment/ours-primary")
    address = _address(node, "ours-svc")
    with data_plane(node, NAMESPACE, folder) as plane, _nginx(node, address, folder):
        key = plane.key("ours")
        ways = {
            "direct": (address, PORT, "/v1/models"),
            "ours": ("127.0.0.1", _port_of(plane.server.url), "/endpoint/bench/ours/v1/models"),
            "nginx": ("127.0.0.1", NGINX_PORT, "/v1/models"),
        }
        times = _inside(node, lambda: _time_requests(ways, key))
    rows = []
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        found = {way: percentile(sorted(each), share) * 1000 for way, each in times.items()}
        ours, nginx = found["ours"] - found["direct"], found["nginx"] - found["direct"]
        rows.append(
            Row(
                what=f"added to a small request by the data plane, {name}, against nginx before"
                " the same pods",
                ours=f"{ours:.2f} ms",
                peer=f"{nginx:.2f} ms",
                ratio=max(nginx, 0.0) / ours if ours > 0 else float("inf"),
            )
        )
    return rows


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def _time_requests(ways: dict[str, tuple[str, int, str]], key: str) -> dict[str, list[float]]:
    """Ask each way in turn, on one connection each."""
    headers = {"Authorization": f"Bearer {key}"}
    connections = {way: http.client.HTTPConnection(*place[:2]) for way, place in ways.items()}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(REQUESTS + 20):
        for way, (_, _, path) in ways.items():
            began = time.perf_counter()
            connections[way].request("GET", path, headers=headers)
            response = connections[way].getresponse()
            body = response.read()
            took = time.perf_counter() - began
            assert response.status == 200, (way, response.status, body)
            if number >= 20:
                times[way].append(took)
    return times


NGINX = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/nginx-body;
  proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-fastcgi;
  uwsgi_temp_path {folder}/nginx-uwsgi;
  scgi_temp_path {folder}/nginx-scgi;
  upstream service {{ server {address}:{port}; keepalive 32; }}
  server {{
    listen 127.0.0.1:{listen};
    location / {{
      proxy_pass http://service;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


@contextmanager
def _nginx(node: Node, address: str, folder: Path) -> Iterator[None]:
    """Debian's nginx in the node's network, before the same Service, until the block ends."""
    packages = unpack_packages(("nginx",), cache_root(), say_on_stderr)
    settings = folder / "nginx.conf"
    settings.write_text(NGINX.format(folder=folder, address=address, port=PORT, listen=NGINX_PORT))
    libraries = [packages / "usr/lib/x86_64-linux-gnu", packages / "lib/x86_64-linux-gnu"]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))}
    nginx = str(packages / "usr/sbin/nginx")
    command = node.command_inside(
        nginx, "-p", str(folder), "-e", "stderr", "-g", "user root;", "-c", str(settings)
    )
    log = folder / "nginx.log"
    process = start_process(command, log, env=environment)
    try:
        wait_until(lambda: _inside(node, _listens), 10, f"nginx: {log.read_text()}")
        yield
    finally:
        stop_process(process)


def _listens() -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", NGINX_PORT, timeout=5)
    try:
        connection.request("GET", "/v1/models")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _inside(node: Node, work: Callable[[], Result]) -> Result:
    """Do something in the node's network, on a thread that entered it."""
    given: list[Result] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            enter_network(node.pids["inside"])
            given.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return given[0]
