"""Runs a `Runner` inside a test: specs in, events kept, nothing left behind."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.runner import ReplicaLease, RunEvent, Runner, RunnerLimits, RunSpec
from holdfast.adapters.runner.process import MarkedProcess, find_marked_processes
from holdfast.core.live import Phase
from holdfast.core.names import WorkloadId
from holdfast.core.tree import Tree

UID = "w1"
QUICK = RunnerLimits(
    drain=1.0, grace=1.0, back_off=0.05, back_off_max=0.2, recheck=0.1, tick=0.1, secrets_every=0.2
)

T = TypeVar("T")


def spec(command: list[str], uid: str = UID, generation: int = 1, **fields: Tree) -> RunSpec:
    """Declare a workload that runs a command; a fast health check unless told otherwise."""
    return RunSpec(
        id=WorkloadId(project="acme", slug=uid),
        uid=uid,
        generation=generation,
        fields={
            "name": uid,
            "model": "tiny",
            "backend": "echo",
            "command": shlex.join(command),
            "health": {"interval": 0.2, "timeout": 2},
            **fields,
        },
    )


@dataclass
class Bench:
    """A started runner and what it reported."""

    runner: Runner
    home: Path
    secrets: Path
    http: aiohttp.ClientSession
    events: list[RunEvent] = field(default_factory=list)

    def kinds(self, uid: str = UID) -> list[str]:
        return [event.kind for event in self.events if event.uid == uid]

    async def ready(self, uid: str = UID, seconds: float = 20.0) -> None:
        """Wait until the workload is as declared."""

        def phase() -> bool:
            status = self.runner.status(uid)
            assert status.phase is not Phase.ERROR, status.message
            return status.phase is Phase.READY

        await until(phase, f"{uid} to be ready", seconds)

    async def get(self, path: str, uid: str = UID) -> Any:  # Any: whatever the backend answers
        """Ask one replica, as the proxy would."""
        lease = self.lease(uid)
        try:
            async with self.http.get(lease.url + path) as response:
                return await response.json(content_type=None)
        finally:
            lease.release()

    def lease(self, uid: str = UID) -> ReplicaLease:
        lease = self.runner.acquire(uid)
        assert lease is not None, self.runner.status(uid).message
        return lease

    async def model(self, uid: str = UID) -> str:
        return str((await self.get("/v1/models", uid))["data"][0]["id"])

    def processes(self) -> list[MarkedProcess]:
        """Find everything that this runner ever started and that still runs."""
        return processes_of(self.home)

    def leaders(self) -> list[int]:
        return sorted(found.pid for found in self.processes() if found.leader)

    def everything_written(self) -> str:
        """Return all text in the runner's home, and all that it reported."""
        files = [path for path in self.home.rglob("*") if path.is_file()]
        texts = [path.read_bytes().decode(errors="replace") for path in files]
        return "\n".join([*texts, *map(repr, self.events)])


def processes_of(home: Path) -> list[MarkedProcess]:
    runner = Runner(home=home, secrets=home, clock=SystemClock(), report=lambda _: None)
    return find_marked_processes(f"{runner._marker}:")


def make_runner(home: Path, events: list[RunEvent], limits: RunnerLimits = QUICK) -> Runner:
    return Runner(
        home=home,
        secrets=home.parent / "secrets",
        clock=SystemClock(),
        report=events.append,
        limits=limits,
        random=lambda: 0.5,
    )


@asynccontextmanager
async def bench(
    folder: Path, *specs: RunSpec, limits: RunnerLimits = QUICK
) -> AsyncIterator[Bench]:
    """Start a runner with these workloads, if any; stop it, and check that nothing is left."""
    home = folder / "home"
    events: list[RunEvent] = []
    runner = make_runner(home, events, limits)
    async with aiohttp.ClientSession() as http:
        try:
            await runner.start()
            if specs:
                runner.set(specs)
            yield Bench(runner, home, folder / "secrets", http, events)
        finally:
            await runner.stop()
    assert processes_of(home) == []


async def until(predicate: Callable[[], T], what: str, seconds: float = 20.0) -> T:
    deadline = time.monotonic() + seconds
    while not (found := predicate()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        await asyncio.sleep(0.02)
    return found


def run(work: Coroutine[None, None, T]) -> T:
    return asyncio.run(work)


def chat(text: str, **more: object) -> dict[str, str]:
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}], **more}
    return {"data": json.dumps(body)}
