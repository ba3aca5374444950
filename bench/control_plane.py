"""Starts a real control plane on a store that was filled beforehand."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.store import OpenMode, Store
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId
from holdfast.core.tree import Fields
from holdfast.core.workload import Desired

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
PROJECT = "bench"
BENCH = Writer(manager="bench", actor="bench")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """A running server, and what is needed to call it."""

    url: str
    token: str
    db: Path
    pid: int
    start_seconds: float

    def data_key(self, slug: str) -> str:
        """Make a data key for one workload."""
        arguments = ("--project", PROJECT, "--name", "app", "--workload", slug)
        return _holdfast(self.db, "token", "create", *arguments)


def fields(name: str) -> Fields:
    """The fields of one plain workload."""
    return {
        "name": name,
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "backend": "vllm",
        "command": "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192",
    }


def fill(db: Path, count: int) -> None:
    """Write `count` workloads, in large transactions."""
    store = Store.open(db, mode=OpenMode.CLIENT, clock=SystemClock())
    try:
        store.write(lambda tx: tx.ensure_project(PROJECT))
        for begin in range(0, count, 1000):
            chunk = range(begin, min(begin + 1000, count))

            def work(tx, chunk=chunk) -> None:  # type: ignore[no-untyped-def]  # a closure
                for index in chunk:
                    where = WorkloadId(project=PROJECT, slug=f"w-{index:06d}")
                    desired = Desired(id=where, fields=fields(where.slug))
                    tx.create_workload(desired, writer=BENCH, declare=True)

            store.write(work)
    finally:
        store.close()


@contextlib.contextmanager
def control_plane(*, workloads: int = 0, run: bool = False) -> Iterator[ControlPlane]:
    """Run `holdfast serve` as a child until the block ends."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as scratch:
        db = Path(scratch) / "holdfast.db"
        fill(db, workloads)
        with serving(db, run=run) as server:
            yield server


@contextlib.contextmanager
def serving(db: Path, *, run: bool = False) -> Iterator[ControlPlane]:
    """Serve a store that already exists."""
    begin = time.perf_counter()
    command = [HOLDFAST, "serve", "--db", str(db), "--port", "0", "--log-level", "warning"]
    command.append("--run" if run else "--no-run")
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        url = _address(server)
        seconds = time.perf_counter() - begin
        token = _holdfast(
            db, "token", "create", "--project", PROJECT, "--name", "bench", "--scope", "write"
        )
        yield ControlPlane(url=url, token=token, db=db, pid=server.pid, start_seconds=seconds)
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
        if server.stdout:
            server.stdout.close()


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    for line in server.stdout:
        if "http://" in line:
            return "http://" + line.split("http://", 1)[1].split()[0].rstrip(".,")
    raise SystemExit("the control plane did not start")


def _holdfast(db: Path, *arguments: str) -> str:
    command = [HOLDFAST, *arguments, "--db", str(db), "-o", "name"]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
