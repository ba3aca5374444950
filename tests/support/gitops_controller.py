"""A GitOps controller together with the people who give it commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from tests.support import sops
from tests.support.cluster import Cluster
from tests.support.gitops_process import PROJECT, GitopsProcess
from tests.support.server import bearer

from holdfast.adapters.store import Scope

HOLDFAST = [sys.executable, "-c", "from holdfast.apps.cli.main import main; main()"]
REVIEWER = (Scope.READ, Scope.WRITE, Scope.APPROVE)


class Controller(GitopsProcess):
    """A running controller, and what people see of it."""

    def __init__(self, cluster: Cluster, directory: Path, options: tuple[str, ...]) -> None:
        super().__init__(cluster, directory, options)
        self.outputs: list[str] = []
        """Everything that commands printed."""
        self._tokens: dict[str, str] = {}
        self._client = httpx2.Client(timeout=30)

    def token_of(self, name: str, scopes: Sequence[Scope] = REVIEWER) -> str:
        """The token of a person, made when it is first needed."""
        if name not in self._tokens:
            self._tokens[name] = self.token(PROJECT, scopes, name=name)
        return self._tokens[name]

    # Any: JSON as it answers it.
    def read(self, path: str) -> Any:
        """Ask something about applications, as somebody who may."""
        where = f"{self.url}/api/projects/{PROJECT}/gitops/{path}"
        answer = self._client.get(where, headers=bearer(self.token_of("maria")))
        assert answer.is_success, answer.text
        return answer.json()

    def holdfast(self, *words: str, code: int = 0, name: str = "maria") -> str:
        """Run a command against it that ends with a code; give what it printed."""
        ended, printed = self.run(*words, name=name)
        assert ended == code, f"{words}: {ended}\n{printed}"
        return printed

    def run(self, *words: str, name: str = "maria") -> tuple[int, str]:
        """Run a command against it; give its exit code and all that it printed."""
        home = self.directory / "home"
        home.mkdir(exist_ok=True)
        ran = subprocess.run(
            [*HOLDFAST, *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "HOLDFAST_URL": self.url,
                "HOLDFAST_PROJECT": PROJECT,
                "HOLDFAST_TOKEN": self.token_of(name),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.outputs += [ran.stdout, ran.stderr]
        return ran.returncode, ran.stdout + ran.stderr

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it see and do nothing for a moment."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def log_tail(self) -> str:
        """The last lines of the log that are not about requests."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if '"event":"request"' not in line][-20:])


@contextmanager
def controlling(
    cluster: Cluster, namespace: str, directory: Path, *options: str
) -> Iterator[Controller]:
    """Run a controller for the Applications of one namespace until the block ends."""
    controller = Controller(
        cluster,
        directory,
        ("--allow-local", "--namespace", namespace, "--lease-namespace", namespace,
         "--kubectl", cluster.programs.path("kubectl"), *_sops(), *options),
    )  # fmt: skip
    controller.start()
    try:
        yield controller
        if controller.process.poll() is None:
            assert controller.stop() == 0, controller.log_tail()
    finally:
        controller.kill()
        controller.close()


def _sops() -> list[str]:
    try:
        return ["--sops", sops.find()]
    except sops.NoSops:
        return []
