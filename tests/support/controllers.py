"""The controllers as people run them: processes of their own, pointed at a cluster.

    with running_operator(cluster, namespace, tmp_path) as operator:
        operator.wait_for("working")
    with running_gitops(cluster, tmp_path, namespace=namespace) as controller:
        controller.ask("GET", "applications").json()
        controller.restart()          # as kill -9 does, unless asked to be gentle

A GitOps controller has a store, a cache and a lease of its own, so that several may run against
one cluster.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.request import urlopen

import httpx2
from tests.support.cluster import Cluster, KubectlFailed
from tests.support.inference_services import document
from tests.support.processes import HOLDFAST, kill_group, start_process, stop_process, wait_until
from tests.support.server import EVERYTHING, RunningServer, bearer

from holdfast.adapters.store import TokenScope
from holdfast.core.custom_resource import API_VERSION, GROUP
from holdfast.core.gitops.application import KIND
from holdfast.core.gitops.application import PLURAL as APPLICATION_PLURAL
from holdfast.core.service.spec import PLURAL as SERVICE_PLURAL
from holdfast.reconcile.gitops.application_status import RECONCILE_REQUESTED
from holdfast.wire.crd import APPLICATION, INFERENCE_SERVICE, make_crd

OPERATOR_AGENT, GITOPS_AGENT = "holdfast-operator", "holdfast-gitops"
SERVICES, APPLICATIONS = f"{SERVICE_PLURAL}.{GROUP}", f"{APPLICATION_PLURAL}.{GROUP}"
PROJECT = "ml-platform"
T = TypeVar("T")


def install_service_crd(cluster: Cluster) -> None:
    cluster.install_definitions(make_crd(INFERENCE_SERVICE))


def install_application_crd(cluster: Cluster) -> None:
    cluster.install_definitions(make_crd(APPLICATION))


# Any: objects of the Kubernetes API and answers of HTTP, here and below.
def small_service(namespace: str, change: dict[str, Any] | None = None, name: str = "bot") -> Any:
    """A small service that the nodes of the test cluster can run."""
    small = {"resources": {"cpu": "100m", "memory": "64Mi", "gpuMemory": None}, "env": {"A": "1"}}
    return document({**small, **(change or {})}, name=name, namespace=namespace)


def application_of(
    name: str, namespace: str, url: str, spec: Mapping[str, Any] | None = None, **source: Any
) -> dict[str, Any]:
    """An Application that applies what is new by itself; `spec` is laid over that."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "project": PROJECT,
            "source": {"url": url, "interval": "10s", **source},
            "sync": {"automatic": True},
            **(spec or {}),
        },
    }


class ControllerProcess:
    """A running controller and its log, which outlives its restarts."""

    def __init__(
        self, cluster: Cluster, log: Path, command: Iterable[str], kubeconfig: Path | None = None
    ) -> None:
        self.cluster = cluster
        self.log = log
        self.process: subprocess.Popen[bytes]
        self._command = [*HOLDFAST, *command]
        self._kubeconfig = kubeconfig
        self._lines_before = 0
        """Lines of the log before the last start."""

    def start(self, until: str = "working", timeout: float = 60.0) -> None:
        """Start it, and wait until it says what `until` names."""
        self._lines_before = len(self._lines())
        environment = self.cluster.kubectl_environment(self._kubeconfig)
        self.process = start_process(self._command, self.log, env=environment)
        if until:
            self.wait_for(until, timeout)

    def stop(self) -> int:
        """Ask it to end, and give its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """End it as a lost node does."""
        kill_group(self.process)

    def restart(self, *, gently: bool = False) -> None:
        """Kill it, or ask it to end, and start it again on the same store."""
        if gently:
            assert self.stop() == 0, self.log.read_text()
        self.kill()
        self.start()

    @contextmanager
    def running(self, until: str = "working") -> Iterator[Self]:
        """Run it until the block ends."""
        try:
            self.start(until)
            yield self
        except BaseException as error:
            error.add_note(self.log_tail())
            raise
        finally:
            stop_process(self.process)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it see and do nothing for a moment."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def logs(self, event: str = "") -> list[dict[str, Any]]:
        """The lines since the last start, with that event if one is given."""
        lines = [line for line in self._lines()[self._lines_before :] if line.startswith("{")]
        return [line for line in map(json.loads, lines) if event in ("", line["event"])]

    def log_tail(self) -> str:
        """The last lines of the log that are not about requests."""
        return "\n".join([line for line in self._lines() if '"event":"request"' not in line][-40:])

    def wait_for(self, event: str, timeout: float = 30.0) -> dict[str, Any]:
        """Wait until the log has such a line."""

        def logged() -> list[dict[str, Any]]:
            lines = self.logs(event)
            assert lines or self.process.poll() is None, self.log.read_text()
            return lines

        return wait_until(logged, timeout, f"a controller to say {event}")[0]

    def wait_until(self, predicate: Callable[[], T], what: str = "it", timeout: float = 45.0) -> T:
        """Wait for something to become so, and show the log when it does not."""
        return wait_until(predicate, timeout, what, show=self.log_tail)

    def _lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines() if self.log.exists() else []


class OperatorProcess(ControllerProcess):
    """A running operator."""

    def ask(self, path: str) -> str:
        """Read one of its own pages."""
        url = self.wait_for("started")["metrics"]
        with urlopen(f"{url}{path}", timeout=10) as answer:  # noqa: S310  # our own address
            text: str = answer.read().decode()
            return text


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
    command = ["operator", "--namespace", namespace, "--lease-namespace", namespace]
    command += ["--metrics-address", "127.0.0.1:0", *options]
    log = directory / f"{name}.log"
    log.unlink(missing_ok=True)
    with OperatorProcess(cluster, log, command, kubeconfig).running(until) as operator:
        yield operator


class GitopsProcess(ControllerProcess):
    """A running GitOps controller. Its store outlives its restarts."""

    def __init__(self, cluster: Cluster, directory: Path, options: Iterable[str]) -> None:
        self.directory = directory
        self.server = RunningServer(url="", db=directory / "gitops.db")
        command = ["gitops", "--db", str(self.server.db), "--port", "0", "--log-format", "json"]
        super().__init__(cluster, directory / "gitops.log", [*command, "--allow-local", *options])

    @property
    def url(self) -> str:
        return self.server.url

    def start(self, until: str = "working", timeout: float = 60.0) -> None:
        super().start("listening", timeout)
        self.server.url = self.logs("listening")[0]["url"]
        if until:
            self.wait_for(until, timeout)

    def token(
        self,
        project: str = PROJECT,
        scopes: Iterable[TokenScope | str] = EVERYTHING,
        name: str = "test",
    ) -> str:
        """Give a token, making the project when there is none."""
        return self.server.token(project, scopes, name=name)

    def ask(
        self, method: str, path: str, *, token: str = "", project: str = PROJECT, **more: Any
    ) -> httpx2.Response:
        """Ask the HTTP API below a project's `gitops/`."""
        where = f"{self.url}/api/projects/{project}/gitops/{path}"
        headers = bearer(token or self.token(project))
        return httpx2.request(method, where, headers=headers, timeout=30, **more)

    def metrics(self) -> str:
        """The figures as Prometheus reads them."""
        return httpx2.get(f"{self.url}/metrics", timeout=30).text

    def wait_status(
        self, name: str, namespace: str, until: Callable[[dict[str, Any]], object]
    ) -> dict[str, Any]:
        """Wait until the status of an Application is as it should be."""

        def matching() -> dict[str, Any] | None:
            status = self.cluster.get(APPLICATIONS, name, namespace).get("status")
            return status if status and until(status) else None

        return self.wait_until(matching, f"the status of {namespace}/{name}") or {}

    def refresh(self, name: str, namespace: str) -> None:
        """Ask for a fetch and a full pass now, as a person would by annotation."""
        mark = f"{RECONCILE_REQUESTED}={time.time_ns()}"
        self.cluster.kubectl("annotate", "--overwrite", APPLICATIONS, name, "-n", namespace, mark)

    def writes(self, namespace: str) -> list[str]:
        """What GitOps controllers wrote into a namespace, leases and events left out."""
        return writes(self.cluster, namespace, agent=GITOPS_AGENT)


@contextmanager
def running_gitops(
    cluster: Cluster,
    directory: Path,
    *options: str,
    namespace: str = "",
    elect: bool = True,
    until: str = "working",
) -> Iterator[GitopsProcess]:
    """Run a controller until the block ends; with a namespace, for its Applications alone."""
    directory.mkdir(parents=True, exist_ok=True)
    scope = ("--namespace", namespace, "--lease-namespace", namespace) if namespace else ()
    lease = () if elect else ("--no-elect",)
    if not elect and not namespace:
        lease += ("--lease-namespace", "default")  # other tests hold Leases of their own
    controller = GitopsProcess(cluster, directory, (*scope, *lease, *options))
    with controller.running(until):
        yield controller


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
    return next((each for each in status.get("conditions", ()) if each["type"] == kind), {})


def writes(
    cluster: Cluster, namespace: str, resource: str = "", agent: str = OPERATOR_AGENT
) -> list[str]:
    """What the operator, or who is named, wrote into a namespace; leases and events left out."""
    return [
        f"{event.verb} {event.resource} {event.name}"
        for event in cluster.audit_events(user_agent=agent, namespace=namespace, resource=resource)
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
