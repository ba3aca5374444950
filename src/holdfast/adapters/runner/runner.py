"""The embedded runner: what the server asks to run workloads on this machine.

Everything happens in one event loop. `put` and `drop` return at once and the work goes on
in the background; what became of it is in `status`, `progress` and the reported events.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import random as random_module
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from holdfast.adapters.engines import EngineClient
from holdfast.adapters.runner.balancer import ReplicaLease
from holdfast.adapters.runner.health import Prober
from holdfast.adapters.runner.process import (
    MarkedProcess,
    boot_id,
    find_marked_processes,
    stop_marked_processes,
)
from holdfast.adapters.runner.records import ReplicaRecord, ReplicaRecords, safe_name
from holdfast.adapters.runner.replica import PortAllocator, RunnerContext
from holdfast.adapters.runner.run_spec import (
    CANARY,
    PRIMARY,
    RunEvent,
    RunnerLimits,
    RunSpec,
    make_desired_run,
)
from holdfast.adapters.runner.secrets import SecretFolder, load_or_create_key
from holdfast.adapters.runner.supervisor import WorkloadSupervisor
from holdfast.core.cost import Cost, CostKind
from holdfast.core.errors import ConfigurationError
from holdfast.core.live import Progress, Status
from holdfast.core.tree import digest
from holdfast.reconcile.ports import Clock

_LOG = logging.getLogger("holdfast.runner")
_BUSY_TICK_SECONDS = 0.1
"""Seconds between two checks of a log that is being flooded."""


class Runner:
    """Runs workloads as local processes. One per home directory.

    Every method belongs to the event loop's own thread.
    """

    def __init__(
        self,
        *,
        home: Path,
        secrets: Path,
        clock: Clock,
        report: Callable[[RunEvent], None],
        limits: RunnerLimits | None = None,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self._home = home
        self._records = ReplicaRecords(home / "replicas")
        self._secrets = SecretFolder(secrets)
        self._clock = clock
        self._listener = report
        self._limits = limits or RunnerLimits()
        self._random = random
        # The path, and not a number kept inside it: a copy of a home owns nothing here.
        self._marker = digest(str(home.resolve())).removeprefix("sha256:")[:12]
        self._early: dict[str, RunSpec] | None = {}
        """What was asked for before the start."""
        self._is_set = self._begun = False
        self._supervisors: dict[str, WorkloadSupervisor] = {}
        self._arrival = asyncio.Event()
        """Set, and replaced, when a workload becomes known."""
        self._survivors: list[MarkedProcess] = []
        self._background: set[asyncio.Task[None]] = set()
        self._context: RunnerContext | None = None
        self._prober: Prober | None = None
        self._engines: EngineClient | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._lock: int | None = None
        self._stopping = False

    async def start(self) -> None:
        """Find what still runs from before. `set`, called before or after, decides what stays.

        Processes at the desired revision go on as they are, the rest is replaced or stopped.
        Raises ConfigurationError when another runner uses this home.
        """
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = self._locked()
        self._prober = Prober()
        # Only processes of its own are asked, on loopback, where it put them itself.
        self._engines = EngineClient(address_rule=None)
        self._context = RunnerContext(
            clock=self._clock,
            limits=self._limits,
            prober=self._prober,
            engines=self._engines,
            records=self._records,
            ports=PortAllocator(),
            random=self._random,
            marker=self._marker,
            secrets=self._secrets,
            key=load_or_create_key(self._home / "marks.key"),
            inherited=dict(os.environ),
            logs=self._home / "logs",
            report=self._report,
        )
        self._survivors = await asyncio.to_thread(find_marked_processes, f"{self._marker}:")
        early, self._early = self._early or {}, None
        for spec in early.values():
            self.put(spec)
        if self._is_set:
            self._begin()
        self._ticker = asyncio.create_task(self._tick(), name="runner tick")

    def set(self, desired: Iterable[RunSpec]) -> None:
        """Give the whole desired set: what is not in it is stopped."""
        specs = {spec.uid: spec for spec in desired}
        for uid in [*(self._early or {}), *self._supervisors]:
            if uid not in specs:
                self.drop(uid)
        for spec in specs.values():
            self.put(spec)
        first, self._is_set = not self._is_set, True
        if first and self._context is not None:
            self._begin()

    def put(self, spec: RunSpec) -> None:
        """Run this workload as it is declared here."""
        safe_name(spec.uid)
        if self._stopping:
            return
        if self._context is None:
            assert self._early is not None  # noqa: S101  # both change at the start
            self._early[spec.uid] = spec
            return
        supervisor = self._supervisors.get(spec.uid)
        if supervisor is not None:
            supervisor.put(spec)
            return
        supervisor = WorkloadSupervisor(self._context, spec, gone=self._gone)
        self._supervisors[spec.uid] = supervisor
        self._arrival.set()
        self._arrival = asyncio.Event()
        if self._begun:
            supervisor.begin()

    def drop(self, uid: str) -> None:
        """Drain and stop this workload. Safe to repeat."""
        if self._early is not None:
            self._early.pop(uid, None)
        elif supervisor := self._supervisors.get(uid):
            if self._begun:
                supervisor.end()
            else:
                del self._supervisors[uid]

    def try_again(self, uid: str) -> None:
        """Start at once what waits after a failure. Does nothing where nothing failed."""
        if supervisor := self._supervisors.get(uid):
            supervisor.try_again()

    def replicas(self, uid: str) -> frozenset[str]:
        """Name the replicas that are being looked after."""
        supervisor = self._supervisors.get(uid)
        return supervisor.names if supervisor else frozenset()

    def cost(self, uid: str, after: RunSpec | None) -> Cost:
        """Say what it does to processes when a workload gets another spec, or is dropped."""
        run = make_desired_run(after, self._limits) if after else None
        supervisor = self._supervisors.get(uid)
        if supervisor is not None:
            return supervisor.cost(run)
        return Cost(kind=CostKind.NONE, added=run.replicas if run else 0)

    def status(self, uid: str) -> Status:
        """Say how a workload is doing."""
        supervisor = self._supervisors.get(uid)
        if supervisor is None:
            return Status(message="The runner has not heard of this workload yet.")
        return supervisor.status_feed.status

    async def progress(self, uid: str) -> AsyncIterator[Progress]:
        """Yield the present phase, then each change, up to `ready` or `error`.

        A workload may be asked for before it was put: it is then waited for.
        """
        began = self._clock.monotonic()
        if uid not in self._supervisors:
            status = self.status(uid)
            yield Progress(phase=status.phase, message=status.message)
        while uid not in self._supervisors:
            await self._arrival.wait()
        async for progress in self._supervisors[uid].status_feed.follow(began):
            yield progress

    def acquire(self, uid: str, tried: Collection[str] = ()) -> ReplicaLease | None:
        """Choose a replica for one request; None while none is ready. Release it when done.

        Those in `tried` let this request down already, and are not chosen for it again.
        """
        supervisor = self._supervisors.get(uid)
        return supervisor.acquire(tried) if supervisor else None

    async def logs(self, uid: str, *, tail: int = 100, follow: bool = False) -> AsyncIterator[str]:
        """Yield log lines, each behind its replica's name: the last `tail` of each replica."""
        supervisor = self._supervisors.get(uid)
        if supervisor is None:
            return
        async for line in supervisor.logs(tail=tail, follow=follow):
            yield line

    async def stop(self, *, leave_running: bool = False) -> None:
        """Drain and stop everything, or let go of it for a later server to take over."""
        self._stopping = True
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        supervisors = list(self._supervisors.values())
        if leave_running:
            await asyncio.gather(*(supervisor.let_go() for supervisor in supervisors))
        else:
            for supervisor in supervisors:
                supervisor.end()
            await asyncio.gather(*(supervisor.wait_finished() for supervisor in supervisors))
            if not self._begun:
                for found in self._survivors:
                    self._stop_stray(found.marker)
        await asyncio.gather(*self._background)
        if self._prober is not None:
            await self._prober.close()
        if self._engines is not None:
            await self._engines.aclose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _begin(self) -> None:
        """Share out the survivors of an earlier server; stop those that nobody wants."""
        self._begun = True
        records = {f"{self._marker}:{r.uid}:{r.replica}": r for r in self._records.all()}
        taken: dict[str, list[tuple[ReplicaRecord, int]]] = {}
        kept = set()
        for found in self._survivors:
            record = records.get(found.marker)
            if record and _is_same_process(record, found) and record.uid in self._supervisors:
                taken.setdefault(record.uid, []).append((record, found.pid))
                kept.add(found.marker)
        strays = {found.marker for found in self._survivors} - kept
        for marker in strays:
            self._stop_stray(marker)
        for marker in records.keys() - kept:
            self._records.remove(records[marker].uid, records[marker].replica)
        self._survivors = []
        for folder in (self._home / "logs").glob("*/"):
            if folder.name not in self._supervisors:
                shutil.rmtree(folder, ignore_errors=True)
        for uid, supervisor in self._supervisors.items():
            names = [marker.rpartition(":")[2] for marker in strays if f":{uid}:" in marker]
            supervisor.begin(taken.get(uid, ()), strays=names)

    def _stop_stray(self, marker: str) -> None:
        async def stop() -> None:
            await stop_marked_processes(marker, grace=self._limits.grace, clock=self._clock)
            _, uid, replica = (*marker.split(":", 2), "", "")[:3]
            self._report(
                RunEvent(
                    uid=uid,
                    kind="stopped",
                    replica=replica,
                    message="It was left over from an earlier server and is no longer needed.",
                )
            )

        task = asyncio.create_task(stop())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _report(self, event: RunEvent) -> None:
        try:
            self._listener(event)
        except Exception:
            # Whoever listens must not be able to end the supervision of a process.
            _LOG.exception("run-event-not-taken", extra={"kind": event.kind})

    def _gone(self, uid: str) -> None:
        supervisor = self._supervisors.pop(uid, None)
        if supervisor is not None and not self._stopping:
            supervisor.remove_logs()

    async def _tick(self) -> None:
        checked = self._clock.monotonic()
        while True:
            flooded = False
            due = self._clock.monotonic() - checked >= self._limits.secrets_every
            if due:
                checked = self._clock.monotonic()
            for supervisor in list(self._supervisors.values()):
                try:
                    flooded |= supervisor.rotate_logs()
                    if due:
                        supervisor.check_secrets()
                except Exception:  # one workload's trouble is not the others'
                    _LOG.exception("tick-failed", extra={"uid": supervisor.spec.uid})
            await self._clock.sleep(_BUSY_TICK_SECONDS if flooded else self._limits.tick)

    def _locked(self) -> int:
        handle = os.open(self._home / "runner.lock", os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        os.close(handle)
        raise ConfigurationError(
            f"Another server runs workloads from {self._home}.",
            hint="Stop it, or give this one a home of its own.",
        )


def _is_same_process(record: ReplicaRecord, found: MarkedProcess) -> bool:
    """True when the found process is the recorded one, or the one whose number is missing."""
    return (
        found.leader
        and record.group in (PRIMARY, CANARY)
        and record.boot == boot_id()
        and record.pid in (0, found.pid)
        and record.start in (0, found.start)
    )
