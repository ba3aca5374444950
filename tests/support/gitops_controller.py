"""`holdfast gitops` as people run it, and the commands that they give it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.support import sops
from tests.support.cluster import Cluster
from tests.support.processes import kill_group, wait_until
from tests.support.server import RunningServer, bearer

from holdfast.adapters.store import Scope

HOLDFAST = [sys.executable, "-c", "from holdfast.doors.cli.main import main; main()"]
REVIEWER = (Scope.READ, Scope.WRITE, Scope.APPROVE)


@dataclass
class Controller:
    """A running controller, its store and its log."""

    cluster: Cluster
    directory: Path
    command: Sequence[str]
    name: str = "gitops"
    environment: dict[str, str] = field(default_factory=dict)
    url: str = ""
    outputs: list[str] = field(default_factory=list)
    """Everything that commands printed."""
    _process: subprocess.Popen[bytes] | None = None
    _server: RunningServer | None = None

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def store(self) -> Path:
        return self.directory / "gitops.db"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def start(self, *more: str) -> None:
        """Start it, and wait until it makes passes."""
        begun = len(self.log.read_bytes()) if self.log.exists() else 0
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*HOLDFAST, *self.command, *more],
                env={**self.cluster.kubectl_environment(), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        def works() -> str | None:
            said = self.log.read_text(errors="replace")[begun:]
            assert self.process.poll() is None, said[-3000:]
            if '"event": "working"' not in said and '"event":"working"' not in said:
                return None
            marker = "listens on "
            return said.partition(marker)[2].split()[0] if marker in said else None

        self.url = wait_until(works, 40, "the controller to work")
        self._server = RunningServer(url=self.url, db=self.store)

    def stop(self) -> int:
        """Ask it to end, and give its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        """End it as a lost node does."""
        kill_group(self.process)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it see and do nothing for a moment."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def token(self, project: str, name: str = "maria", scopes: Sequence[Scope] = REVIEWER) -> str:
        assert self._server is not None
        return self._server.token(project, scopes, name=name)

    # Any: JSON as it answers it.
    def ask(self, path: str, project: str = "") -> Any:
        """Read something over HTTP."""
        return json.loads(self.text(path, project))

    def text(self, path: str, project: str = "") -> str:
        headers = bearer(self.token(project)) if project else {}
        request = Request(self.url + path, headers=headers)  # noqa: S310  # our own address
        with urlopen(request, timeout=30) as answer:  # noqa: S310
            found: str = answer.read().decode()
            return found

    def holdfast(self, *words: str, project: str, code: int = 0, name: str = "maria") -> str:
        """Run a command against it that ends with a code; give what it printed."""
        ended, printed = self.run(*words, project=project, name=name)
        assert ended == code, f"{words}: {ended}\n{printed}"
        return printed

    def run(self, *words: str, project: str, name: str = "maria") -> tuple[int, str]:
        """Run a command against it; give its exit code and all that it printed."""
        home = self.directory / "home"
        home.mkdir(exist_ok=True)
        ran = subprocess.run(
            [*HOLDFAST, *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "HOLDFAST_URL": self.url,
                "HOLDFAST_PROJECT": project,
                "HOLDFAST_TOKEN": self.token(project, name),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.outputs += [ran.stdout, ran.stderr]
        return ran.returncode, ran.stdout + ran.stderr

    def said(self, event: str) -> list[dict[str, Any]]:
        """The lines of the log with that event."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [found for found in map(json.loads, lines) if found.get("event") == event]

    def log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


@contextmanager
def controlling(
    cluster: Cluster, namespace: str, directory: Path, *options: str, **environment: str
) -> Iterator[Controller]:
    """Run a controller for the Applications of one namespace until the block ends."""
    controller = Controller(
        cluster=cluster,
        directory=directory,
        command=[
            "gitops", "--namespace", namespace, "--lease-namespace", namespace,
            "--keep", "2160h", "--port", "0", "--db", str(directory / "gitops.db"),
            "--kubectl", cluster.programs.path("kubectl"), *_sops(), *options,
        ],
        environment=environment,
    )  # fmt: skip
    try:
        controller.start()
        yield controller
        if controller.process.poll() is None:
            assert controller.stop() == 0, controller.log_tail()
    finally:
        if controller._process is not None:
            kill_group(controller.process)


def _sops() -> list[str]:
    try:
        return ["--sops", sops.find()]
    except sops.NoSops:
        return []
