"""Runs `holdfast serve` as its users do, and finds the processes that it started.

    with serving(tmp_path) as server:
        mgmt = server.management("acme")

The command is a process of its own, so it can be killed; what it started is told by the marker
in its environment, and is gone when the block ends, whatever the test did.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import (
    HOLDFAST,
    assert_running,
    start_process,
    stop_process,
    wait_until,
)
from tests.support.server import RunningServer

from holdfast import DataClient, ManagementClient
from holdfast.core.tree import digest

_LISTENS = re.compile(r"listens on (http://\S+)")
_MARKER = b"HOLDFAST_REPLICA="


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaProcess:
    """A process that carries the mark of a server's home."""

    pid: int
    workload: str
    """The workload's uid."""
    replica: str
    leader: bool
    environ: Mapping[str, str]


@dataclass(kw_only=True)
class ServeProcess(RunningServer):
    """One `holdfast serve`, with what it printed and what it started."""

    folder: Path
    secrets: Path

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def children(self) -> list[ReplicaProcess]:
        return replica_processes(self.db)

    def leaders(self) -> dict[str, int]:
        """The process of each replica, by the replica's name."""
        return {child.replica: child.pid for child in self.children() if child.leader}

    def kill(self) -> None:
        """End the server without a word; what it started runs on."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """Ask the server to stop, and wait until it has."""
        self._signal(signal.SIGTERM)

    def management(self, project: str = "acme") -> ManagementClient:
        return ManagementClient(self.url, project=project, token=self.token(project))

    def data(self, slug: str, project: str = "acme") -> DataClient:
        key = self.data_key(project, slug)
        return DataClient(self.url, project=project, api_key=key, max_retries=0)

    def put_secret(self, project: str, name: str, key: str, value: str) -> None:
        """Put a secret where the server reads it, replacing it in one step."""
        path = self.secrets / project / name / key
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(value)
        fresh.rename(path)

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(60)


@contextmanager
def running_serve(
    folder: Path,
    *flags: str,
    env: Mapping[str, str] | None = None,
    many_projects: bool = True,
) -> Iterator[ServeProcess]:
    """Run a server on `folder` until the block ends. Again on the same folder is a restart.

    At the end the server is stopped if it still runs. Its processes are left to whoever holds
    `no_orphans`, which a test that kills a server wraps around all of them.
    """
    db, secrets = folder / "holdfast.db", folder / "secrets"
    secrets.mkdir(exist_ok=True)
    out, log = folder / "serve.out", folder / "serve.log"
    out.unlink(missing_ok=True)
    # Most tests have a project of their own on one server.
    alone = {"--no-run", "--target", "--shared-runner"} & {*flags}
    shared = () if alone or not many_projects else ("--shared-runner",)
    process = start_process(
        serve_command(db, "--secrets-dir", str(secrets), *shared, *flags),
        log,
        out=out,
        cwd=folder,
        env=clean_environment(folder, env),
    )

    def announced() -> str | None:
        match = _LISTENS.search(out.read_text())
        if match is None:
            assert_running(process, "the server", log)
        return match[1] if match else None

    try:
        url = wait_until(announced, 60, "the server to listen")
        yield ServeProcess(url=url, db=db, process=process, log=log, folder=folder, secrets=secrets)
    finally:
        stop_process(process)


@contextmanager
def killing_orphans(folder: Path) -> Iterator[None]:
    """Kill what servers on this folder left behind, so that no test leaves a process."""
    try:
        yield
    finally:
        for child in replica_processes(folder / "holdfast.db"):
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)


def serve_command(db: Path, *flags: str) -> list[str]:
    return [*HOLDFAST, "serve", "--db", str(db), "--port", "0", *flags]


def clean_environment(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment in which nothing of the caller's is set that Holdfast would read."""
    ours = ("HOLDFAST_", "INFERENCEKEY_", "XDG_", "CLICOLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "HOME": str(home), **(more or {})}


def replica_processes(db: Path) -> list[ReplicaProcess]:
    """Find every process that a server on this store started, by its environment alone."""
    home = Path(f"{db}.run").resolve()
    prefix = digest(str(home)).removeprefix("sha256:")[:12]
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            environ = (folder / "environ").read_bytes()
            if _MARKER + prefix.encode() + b":" not in environ:
                continue
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            pairs = (entry.partition("=") for entry in environ.decode().split("\0"))
            values = {name: value for name, _, value in pairs if name}
            _, workload, replica = values["HOLDFAST_REPLICA"].split(":", 2)
            if fields[0] not in "ZX":
                found.append(
                    ReplicaProcess(
                        pid=int(folder.name),
                        workload=workload,
                        replica=replica,
                        leader=fields[3] == folder.name,
                        environ=values,
                    )
                )
    return found
