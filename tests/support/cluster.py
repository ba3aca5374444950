"""A real Kubernetes cluster for tests and demos: how to get one, and what to ask it.

The processes live in tests/support/cluster_process.py; this is the handle that tests hold. Called
by the cluster fixture, by end-to-end tests and by tools/cluster.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.support.certificates import Authority, Certificate
from tests.support.cluster_process import set_usage
from tests.support.control_plane import AdminApi, write_kubeconfig
from tests.support.processes import ROOT, is_alive, start_process, wait_until
from tests.support.testbed import Programs, find_testbed

WRITES = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One request that was answered."""

    time: str
    user: str
    user_agent: str
    verb: str
    resource: str
    """The plural, with its subresource: `deployments/scale`. Empty for a bare URL."""
    namespace: str
    name: str
    code: int
    uri: str
    """Path and query: shows `dryRun`, `fieldManager` and `force` of an apply."""

    @property
    def wrote(self) -> bool:
        """Whether it changed something, or would have; a dry run or a refusal did not."""
        return self.verb in WRITES and self.code < 400 and "dryRun=All" not in self.uri


def read_events(log: Path, *, containing: str = "") -> Iterator[AuditEvent]:
    """Give every event of the log, oldest first.

    `containing` skips lines without that text before they are parsed: a long run logs a lot.
    """
    wanted = containing.encode()
    with log.open("rb") as lines:
        for line in lines:
            # The last line may be half written.
            if wanted in line and line.endswith(b"\n"):
                yield _event(json.loads(line))


def _event(record: dict[str, Any]) -> AuditEvent:  # Any: a line of JSON
    about = record.get("objectRef", {})
    parts = [about.get("resource", ""), about.get("subresource", "")]
    return AuditEvent(
        time=record["stageTimestamp"],
        user=record["user"].get("username", ""),
        user_agent=record.get("userAgent", ""),
        verb=record["verb"],
        resource="/".join(part for part in parts if part),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        code=record.get("responseStatus", {}).get("code", 0),
        uri=record["requestURI"],
    )


START_TIMEOUT = 180.0  # a node fetches its packages and makes its images, once
STOP_TIMEOUT = 15.0
KUBECTL_TIMEOUT = 180.0

# A keeper outlives the handle and often the process that started it, so nobody waits for it.
_started_here: list[subprocess.Popen[bytes]] = []


class KubectlFailed(Exception):
    """kubectl ended with an error; the text is what it said."""


class Cluster:
    """A running cluster in a directory. Several processes may hold the same one."""

    process_module = "tests.support.cluster_process"

    def __init__(self, directory: Path, programs: Programs, lifeline: IO[str] | None) -> None:
        self.directory = directory
        self.programs = programs
        self._lifeline = lifeline
        state = json.loads((directory / "cluster.json").read_text())
        self.server: str = state["server"]
        self.pids: dict[str, int] = state["pids"]
        self.keeper: int = state["keeper"]
        self.kubeconfig = directory / "admin.kubeconfig"
        self._authority = Authority(directory=directory / "pki")

    @classmethod
    def join(cls, directory: Path, *, stay: bool = False) -> Cluster:
        """Start a cluster in the directory, or take part in the one that runs there.

        It ends when the last process that joined has left or died; with `stay`, only by `stop`.
        """
        programs = find_testbed()
        directory.mkdir(parents=True, exist_ok=True)
        lifeline = None
        if not stay:
            # Taken before the keeper can look, and held for as long as this process lives.
            lifeline = (directory / "users").open("a")
            fcntl.flock(lifeline, fcntl.LOCK_SH)
        with (directory / "start.lock").open("w") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            if not is_running(directory):
                _start(cls.process_module, directory, stay=stay)
        return cls(directory, programs, lifeline)

    def leave(self) -> None:
        """Let go of the cluster; the last to leave ends it."""
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None

    def stop(self) -> None:
        """End the cluster for everyone, and wait until it is gone."""
        self.leave()
        if is_running(self.directory):
            os.kill(self.keeper, signal.SIGTERM)
            wait_until(lambda: not is_alive(self.keeper), STOP_TIMEOUT, "the cluster to end")

    def kubectl(
        self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None
    ) -> str:
        """Run kubectl, as admin unless told otherwise, and give what it printed."""
        ran = subprocess.run(
            [self.programs.path("kubectl"), *arguments],
            input=stdin,
            env=self.kubectl_environment(kubeconfig),
            capture_output=True,
            text=True,
            timeout=KUBECTL_TIMEOUT,
        )
        if ran.returncode:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {ran.stderr or ran.stdout}")
        return ran.stdout

    def kubectl_environment(self, kubeconfig: Path | None = None) -> dict[str, str]:
        """Give the environment that points kubectl, and any client, at this cluster."""
        return {
            **os.environ,
            "KUBECONFIG": str(kubeconfig or self.kubeconfig),
            "KUBECACHEDIR": str(self.directory / "kubectl-cache"),
            "KUBERC": "off",
        }

    # Any: objects of the Kubernetes API as they come over the wire, here and below.
    def apply(self, *documents: Mapping[str, Any]) -> None:
        """Hand documents to `kubectl apply --server-side`."""
        objects = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(objects))

    def install_definitions(self, *definitions: Mapping[str, Any]) -> None:
        """Install kinds and wait until they are served; they stay for whoever else is here."""
        for each in definitions:
            text = json.dumps(each)
            self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
        for each in definitions:
            name = f"crd/{each['metadata']['name']}"
            # `kubectl wait` fails at one that has no conditions yet.
            wait_until(lambda name=name: self._is_established(name), 30, f"{name} to be served")

    def _is_established(self, name: str) -> bool:
        found = json.loads(self.kubectl("get", name, "-o", "json"))
        conditions = found.get("status", {}).get("conditions") or ()
        return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """Give one object as the API server has it."""
        found: dict[str, Any] = json.loads(
            self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--show-managed-fields")
        )
        return found

    def objects(self, kind: str, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        found = self.kubectl("get", kind, "-n", namespace, "-l", selector, "-o", "json")
        items: list[dict[str, Any]] = json.loads(found)["items"]
        return items

    def wait(
        self,
        kind: str,
        name: str,
        namespace: str,
        until: Callable[[dict[str, Any]], object],
        timeout: float = 30.0,
    ) -> dict[str, Any]:
        """Poll one object until it is as `until` says, and give it; on time-out, show it."""

        def matching() -> dict[str, Any] | None:
            found = self.get(kind, name, namespace)
            return found if until(found) else None

        def show() -> str:
            return json.dumps(self.get(kind, name, namespace).get("status"), indent=1)

        return wait_until(matching, timeout, f"{kind} {name}", every=0.2, show=show) or {}

    def create_namespace(self, prefix: str = "test") -> str:
        """Make a namespace that nobody else has, and give its name."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.api().request("POST", "/api/v1/namespaces", document)
        return name

    def delete_namespace(self, name: str) -> None:
        """Ask for a namespace to go, without waiting for its last object."""
        self.api().request("DELETE", f"/api/v1/namespaces/{name}")

    def set_usage(self, namespace: str, **usage: str) -> None:
        """Choose what each container of a namespace is said to use: `cpu="900m"`."""
        set_usage(self.directory / "usage", namespace, usage)

    def kubeconfig_for(
        self, user: str, groups: Sequence[str] = (), *, namespace: str = "default"
    ) -> Path:
        """Make a kubeconfig with a certificate for that user; what it may do is up to RBAC."""
        identity = self._authority.issue(user, groups=groups)
        return self._kubeconfig(
            {"client-certificate": str(identity.certificate), "client-key": str(identity.key)},
            namespace,
        )

    def kubeconfig_for_service_account(self, name: str, namespace: str) -> Path:
        """Make a kubeconfig with a fresh token of a service account that exists."""
        return self._kubeconfig({"token": self.service_account_token(name, namespace)}, namespace)

    def service_account_token(self, name: str, namespace: str) -> str:
        return self.kubectl("create", "token", name, "-n", namespace).strip()

    def audit_events(
        self,
        *,
        user_agent: str = "",
        user: str = "",
        verbs: Sequence[str] = (),
        resource: str = "",
        namespace: str = "",
    ) -> list[AuditEvent]:
        """Give the finished requests that match, oldest first; see tests/support/cluster.py."""
        return [
            event
            for event in read_events(self.directory / "audit.log", containing=namespace)
            if event.user_agent.startswith(user_agent)
            and event.user.startswith(user)
            and (not verbs or event.verb in verbs)
            and (not resource or event.resource == resource)
            and (not namespace or event.namespace == namespace)
        ]

    def api(self) -> AdminApi:
        """Give a bare connection as admin, for set-up that should cost nothing."""
        user = json.loads(self.kubeconfig.read_text())["users"][0]["user"]
        identity = Certificate(
            certificate=Path(user["client-certificate"]), key=Path(user["client-key"])
        )
        return AdminApi(
            server=self.server, authority=self._authority.certificate, identity=identity
        )

    def _kubeconfig(self, user: dict[str, str], namespace: str) -> Path:
        path = self.directory / f"{secrets.token_hex(6)}.kubeconfig"
        write_kubeconfig(
            path,
            server=self.server,
            authority=self._authority.certificate,
            user=user,
            namespace=namespace,
        )
        return path


def is_running(directory: Path) -> bool:
    """Say whether a cluster runs in the directory.

    The keeper's lock tells, not its process id, which may be anyone's after a reboot.
    """
    if not (directory / "cluster.json").exists():
        return False
    with (directory / "keeper.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _start(module: str, directory: Path, *, stay: bool) -> None:
    failed = directory / "failed"
    for leftover in (failed, directory / "cluster.json", directory / "keeper.log"):
        leftover.unlink(missing_ok=True)
    command = [sys.executable, "-m", module, str(directory)]
    log = directory / "keeper.log"
    keeper = start_process([*command, *(["--stay"] if stay else [])], log, cwd=ROOT)
    _started_here.append(keeper)

    def started() -> bool:
        if keeper.poll() is not None:
            text = (failed if failed.exists() else log).read_text()
            raise RuntimeError(f"The test cluster did not start:\n{text}")
        return (directory / "cluster.json").exists()

    wait_until(started, START_TIMEOUT, "the test cluster to start")
