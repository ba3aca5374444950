"""The GitOps controller as people run it: a process of its own, told about a cluster.

    with gitops(cluster, tmp_path, "--namespace", namespace) as controller:
        controller.ask("GET", "applications").json()
        controller.restart()          # as kill -9 does, unless told otherwise

It has a store, a cache and a lease of its own, so that several may run against one cluster.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from tests.support.cluster import Cluster
from tests.support.processes import kill_group, wait_until
from tests.support.server import EVERYTHING, RunningServer, bearer

from holdfast.adapters.store import TokenScope
from holdfast.core.custom_resource import API_VERSION, GROUP
from holdfast.core.gitops.application import KIND, PLURAL
from holdfast.reconcile.gitops.application_status import RECONCILE_REQUESTED
from holdfast.wire.crd import application_crd

GITOPS_AGENT = "holdfast-gitops"
APPLICATIONS = f"{PLURAL}.{GROUP}"
PROJECT = "ml-platform"
_COMMAND = [sys.executable, "-c", "from holdfast.apps.cli.main import main; main()", "gitops"]
_QUIET = frozenset({"leases", "events"})
T = TypeVar("T")


def install_application_crd(cluster: Cluster) -> None:
    """Install the definition; it stays for whoever else uses the cluster."""
    text = json.dumps(application_crd())
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{APPLICATIONS}", "--timeout=30s")


# Any: objects of the Kubernetes API and answers of HTTP, here and below.
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


class GitopsProcess:
    """A running controller. Its store outlives its restarts."""

    def __init__(self, cluster: Cluster, directory: Path, options: tuple[str, ...]) -> None:
        self.cluster = cluster
        self.directory = directory
        self.options = options
        self.log = directory / "gitops.log"
        self.db = directory / "gitops.db"
        self.process: subprocess.Popen[bytes]
        self.url = ""
        self._begun = 0
        """Lines of the log before the last start."""

    def start(self, until: str = "working", timeout: float = 60.0) -> None:
        """Start it, and wait until it works."""
        self._begun = len(self._lines())
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*_COMMAND, "--db", str(self.db), "--port", "0", "--log-format", "json",
                 *self.options],
                env=self.cluster.kubectl_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        self.url = self.wait_for("listening", timeout)["url"]
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

    def logs(self, event: str = "") -> list[dict[str, Any]]:
        """The lines since the last start, with that event if one is given."""
        lines = [line for line in self._lines()[self._begun :] if line.startswith("{")]
        read = [json.loads(line) for line in lines]
        return [found for found in read if event in ("", found["event"])]

    def wait_for(self, event: str, timeout: float = 30.0) -> dict[str, Any]:
        """Wait until the log has such a line."""

        def found() -> list[dict[str, Any]]:
            said = self.logs(event)
            assert said or self.process.poll() is None, self.log.read_text()
            return said

        return wait_until(found, timeout, f"the controller to say {event}")[0]

    def wait_until(
        self, predicate: Callable[[], T], what: str = "it", timeout: float = 45.0
    ) -> T:  # fmt: skip
        """Wait for something to become so, and show the log when it does not."""
        try:
            return wait_until(predicate, timeout, what)
        except AssertionError as error:
            tail = "\n".join(self._lines()[-60:])
            raise AssertionError(f"{error}\n{tail}") from None

    def token(
        self,
        project: str = PROJECT,
        scopes: Iterable[TokenScope | str] = EVERYTHING,
        name: str = "test",
    ) -> str:
        """Give a token, making the project when there is none."""
        return RunningServer(url=self.url, db=self.db).token(project, scopes, name=name)

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

    def status(self, name: str, namespace: str) -> dict[str, Any]:
        """The status of an Application as the cluster has it."""
        found = self.cluster.get(APPLICATIONS, name, namespace)
        status: dict[str, Any] = found.get("status") or {}
        return status

    def wait_status(
        self,
        name: str,
        namespace: str,
        until: Callable[[dict[str, Any]], object],
        timeout: float = 45.0,
    ) -> dict[str, Any]:
        """Wait until the status of an Application is as it should be."""

        def found() -> dict[str, Any] | None:
            status = self.status(name, namespace)
            return status if status and until(status) else None

        shown = f"the status of {namespace}/{name}"
        status = self.wait_until(found, shown, timeout)
        assert status is not None
        return status

    def refresh(self, name: str, namespace: str) -> None:
        """Ask for a fetch and a look at everything now, as a person would by annotation."""
        mark = f"{RECONCILE_REQUESTED}={time.time_ns()}"
        self.cluster.kubectl("annotate", "--overwrite", APPLICATIONS, name, "-n", namespace, mark)

    def writes(self, namespace: str) -> list[str]:
        """What controllers wrote into a namespace, leases and events left out."""
        return [
            f"{event.verb} {event.resource} {event.name}"
            for event in self.cluster.audit_events(user_agent=GITOPS_AGENT, namespace=namespace)
            if event.wrote and event.resource not in _QUIET
        ]

    def _lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


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
    turn = () if elect else ("--no-elect",)
    if not elect and not namespace:
        turn += ("--lease-namespace", "default")  # other tests hold Leases of their own
    held = GitopsProcess(cluster, directory, ("--allow-local", *scope, *turn, *options))
    held.start(until)
    try:
        yield held
    finally:
        if held.process.poll() is None:
            held.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                held.process.wait(30)
        held.kill()
