"""The operator as people run it: a process of its own, told about a cluster by a kubeconfig."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.support.cluster import Cluster, KubectlFailed
from tests.support.inference_services import document
from tests.support.processes import kill_group, wait_until

from holdfast.core.custom_resource import GROUP
from holdfast.core.service.spec import PLURAL
from holdfast.wire.crd import inference_service_crd

OPERATOR_AGENT = "holdfast-operator"
SERVICES = f"{PLURAL}.{GROUP}"
COMMAND = [sys.executable, "-c", "from holdfast.apps.cli.main import main; main()", "operator"]


def install_service_crd(cluster: Cluster) -> None:
    """Install the definition; it stays for whoever else uses the cluster."""
    text = json.dumps(inference_service_crd())
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{SERVICES}", "--timeout=30s")


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def small_service(namespace: str, change: dict[str, Any] | None = None, name: str = "bot") -> Any:
    """A small service that the nodes of the test cluster can run."""
    small = {"resources": {"cpu": "100m", "memory": "64Mi", "gpuMemory": None}, "env": {"A": "1"}}
    return document({**small, **(change or {})}, name=name, namespace=namespace)


class OperatorProcess:
    """A running operator and its log."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    def said(self, event: str) -> list[dict[str, Any]]:
        """The lines of the log with that event."""
        lines = [line for line in self._log.read_text().splitlines() if line.startswith("{")]
        return [found for found in map(json.loads, lines) if found["event"] == event]

    def wait_for(self, event: str, timeout: float = 30.0) -> dict[str, Any]:
        """Wait until the log has such a line."""

        def found() -> list[dict[str, Any]]:
            said = self.said(event)
            assert said or self.process.poll() is None, self._log.read_text()
            return said

        return wait_until(found, timeout, f"the operator to say {event}")[0]

    def ask(self, path: str) -> str:
        """Read one of its own pages."""
        url = self.wait_for("started")["metrics"]
        with urlopen(f"{url}{path}", timeout=10) as answer:  # noqa: S310  # our own address
            text: str = answer.read().decode()
            return text

    def stop(self) -> int:
        """Ask it to end, and give its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        """End it as a lost node does."""
        kill_group(self.process)


@contextmanager
def running_operator(
    cluster: Cluster,
    namespace: str,
    directory: Path,
    *options: str,
    name: str = "operator",
    kubeconfig: Path | None = None,
    until: str = "working",
) -> Iterator[OperatorProcess]:
    """Run an operator for one namespace until the block ends."""
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*COMMAND, "--namespace", namespace, "--lease-namespace", namespace,
             "--metrics-address", "127.0.0.1:0", *options],
            env=cluster.kubectl_environment(kubeconfig),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    held = OperatorProcess(process, log)
    try:
        if until:
            held.wait_for(until)
        yield held
    finally:
        if process.poll() is None:
            held.stop()
        kill_group(process)


def service_status(cluster: Cluster, namespace: str, name: str = "bot") -> dict[str, Any]:
    status: dict[str, Any] = cluster.get(SERVICES, name, namespace).get("status") or {}
    return status


def wait_service_status(
    cluster: Cluster,
    namespace: str,
    until: Callable[[dict[str, Any]], object],
    name: str = "bot",
    timeout: float = 45.0,
) -> dict[str, Any]:
    """Wait until the status is as it should be."""
    found = cluster.wait(
        SERVICES, name, namespace, lambda it: until(it.get("status") or {}), timeout
    )
    status: dict[str, Any] = found["status"]
    return status


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    held = [each for each in status.get("conditions", ()) if each["type"] == kind]
    return held[0] if held else {}


def writes(cluster: Cluster, namespace: str, resource: str = "") -> list[str]:
    """What the operator wrote into a namespace, its leases and events left out."""
    return [
        f"{event.verb} {event.resource} {event.name}"
        for event in cluster.audit_events(
            user_agent=OPERATOR_AGENT, namespace=namespace, resource=resource
        )
        if event.wrote and event.resource not in ("leases", "events")
    ]


def object_exists(cluster: Cluster, kind: str, name: str, namespace: str) -> bool:
    try:
        cluster.get(kind, name, namespace)
    except KubectlFailed as error:
        if "NotFound" not in str(error):
            raise
        return False
    return True


def pause(seconds: float) -> None:
    """Let time pass in which nothing may happen."""
    time.sleep(seconds)
