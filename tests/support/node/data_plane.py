"""`holdfast serve` inside the network of a real node, with the rights that the how-to gives it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from tests.support.node.handle import Node
from tests.support.processes import ROOT, start_process, stop_process, wait_until
from tests.support.server import RunningServer

from holdfast.adapters.store import TokenScope

USER = "data-plane"


@dataclass(kw_only=True)
class DataPlane:
    node: Node
    namespace: str
    server: RunningServer

    def endpoint(self, slug: str = "chat") -> str:
        """Where a workload answers, without /v1."""
        return f"{self.server.url}/endpoint/{self.namespace}/{slug}"

    def key(self, slug: str = "chat") -> str:
        """Have the server make a data key, by the how-to's command."""
        admin = self.server.token(self.namespace, [TokenScope.ADMIN])
        answer = self.node.run_inside(
            "curl", "-sS", "--fail-with-body",
            "-X", "POST", f"{self.server.url}/api/projects/{self.namespace}/tokens",
            "-H", f"Authorization: Bearer {admin}", "-H", "Content-Type: application/json",
            "-d", json.dumps({"name": "web", "kind": "live", "workload": slug}),
        )  # fmt: skip
        made: str = json.loads(answer)["token"]
        return made

    def metric(self, name: str) -> float:
        text = self.node.run_inside("curl", "-s", f"{self.server.url}/metrics")
        lines = [line for line in text.splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


@contextmanager
def data_plane(node: Node, namespace: str, directory: Path) -> Iterator[DataPlane]:
    """Run a server until the block ends, as a user who may do what the how-to says and no more."""
    rights = yaml.safe_load((ROOT / "examples/kubernetes/server-rights.yaml").read_text())
    node.apply(rights, _binding(namespace, rights["metadata"]["name"]))
    kubeconfig = _inside(node, node.kubeconfig_for(USER, namespace=namespace))
    log, out = directory / "server.log", directory / "server.out"
    holdfast = Path(sys.executable).with_name("holdfast")
    command = node.command_inside(
        str(holdfast), "serve", "--db", str(directory / "server.db"), "--port", "0",
        "--target", "kubernetes://", "--log-format", "json",
    )  # fmt: skip
    environment = {**node.kubectl_environment(kubeconfig), "HOLDFAST_HOME": str(directory)}
    process = start_process(command, log, out=out, env=environment)

    def listening() -> str | None:
        assert process.poll() is None, log.read_text()
        for line in log.read_text().splitlines():
            if line.startswith("{") and (found := json.loads(line)).get("event") == "listening":
                return str(found["url"])
        return None

    try:
        url = wait_until(listening, 30, "the data plane to listen")
        server = RunningServer(url=url, db=directory / "server.db", process=process, log=log)
        yield DataPlane(node=node, namespace=namespace, server=server)
    finally:
        stop_process(process)


def _binding(namespace: str, role: str) -> dict[str, object]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": USER}],
    }


def _inside(node: Node, kubeconfig: Path) -> Path:
    """Point a kubeconfig at the API server as it is reached inside the node's network."""
    server = json.loads((node.directory / "inside.json").read_text())["server"]
    document = json.loads(kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = server
    kubeconfig.write_text(json.dumps(document))
    return kubeconfig


def kill_server(node: Node, namespace: str, pod: str, signal: str = "KILL") -> None:
    """Send the model server in a pod a signal: KILL as a crash would, STOP to have it hang."""
    found = node.get("pod", pod, namespace)
    uid = found["metadata"]["uid"]
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            command = (path.parent / "cmdline").read_text()
            if uid in path.read_text().replace("_", "-") and "llama" in command:
                subprocess.run(["kill", f"-{signal}", path.parent.name], check=True)
                return
        except (OSError, subprocess.CalledProcessError):
            continue
    raise AssertionError(f"no model server runs in {pod}")
