"""One replica, from its first start to its last: a slot that always wants one live process.

    waiting → loading → serving → (back to waiting on any failure)
                  └──────────┴──→ ending → gone, once retired

Its task runs this in one place, `run`; everything else only sets a flag and wakes it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import Any, TypeVar

from holdfast.adapters.engines import EngineClient
from holdfast.adapters.runner.health import Prober, ProbeTarget
from holdfast.adapters.runner.launch import LOOPBACK, Launch, LaunchRefused
from holdfast.adapters.runner.process import Process, boot_id, describe_exit, listening_ports
from holdfast.adapters.runner.records import ReplicaRecord, ReplicaRecords
from holdfast.adapters.runner.replica_log import ReplicaLog
from holdfast.adapters.runner.run_spec import DesiredRun, EventKind, RunEvent, RunnerLimits
from holdfast.adapters.runner.secrets import SecretFolder, SecretMask
from holdfast.core.engine_answer import Unreported
from holdfast.core.engine_report import (
    FieldComparison,
    RuntimeDifference,
    RuntimeMatch,
    adapter_requests,
    compare_runtime,
    differences_of,
    differing_fields,
)
from holdfast.core.quantity import format_seconds
from holdfast.core.tree import Fields, digest
from holdfast.reconcile.ports import Clock

T = TypeVar("T")


class Wakeup:
    """For a task whose work can become pointless at any moment.

    `over` says whether it has. Whoever changes the answer, or has news that should not wait,
    rings; a ring is never lost, since `over` is asked anew before every wait.
    """

    def __init__(self, clock: Clock, *, over: Callable[[], bool]) -> None:
        self._clock = clock
        self._over = over
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the task."""
        self._rung.set()

    async def sleep(self, seconds: float) -> None:
        """Wait, until the first ring."""
        self._rung.clear()
        if not self._over():
            await _first_done(self._clock.sleep(seconds), self._rung.wait())

    async def unless_over(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Finish the work, unless it becomes pointless first: then None."""
        task = await _first_done(work, self._until_over())
        return None if self._over() else task.result()

    async def _until_over(self) -> None:
        while not self._over():
            self._rung.clear()
            await self._rung.wait()


async def _first_done(
    work: Coroutine[Any, Any, T], other: Coroutine[Any, Any, Any]
) -> asyncio.Task[T]:
    # Any: what a coroutine is sent and what the other one returns concern nobody here.
    tasks = asyncio.create_task(work), asyncio.create_task(other)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return tasks[0]


class PortAllocator:
    """Ports come from the system; those given out are remembered until given back.

    Between the choice and the backend's own bind anybody may take the port. The replica
    then hears so from the backend and asks for another.
    """

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self) -> int:
        """Return a port that was free a moment ago and is not another replica's."""
        while True:
            with socket.socket() as probe:
                probe.bind((LOOPBACK, 0))
                port: int = probe.getsockname()[1]
            if port not in self._taken:
                self._taken.add(port)
                return port

    def keep(self, port: int) -> None:
        """Remember a port that is in use already."""
        self._taken.add(port)

    def give_back(self, port: int) -> None:
        """Forget a port whose process has ended."""
        self._taken.discard(port)


NOT_ASKED = "It has not been asked yet."
"""What is known of what a replica serves until it was asked."""
_LOG = logging.getLogger("holdfast.runner")
_PORT_TAKEN = re.compile(
    r"(?i)address already in use|errno 98|eaddrinuse|couldn't bind|cannot listen on|port .{1,40}"
    r" (?:in use|taken)"
)
_PORT_ATTEMPTS = 3
_FIRST_PORT_CHECK, _NEXT_PORT_CHECK = 1.0, 5.0
"""Seconds until a program that refuses connections is checked for a port of its own."""


class ReplicaStage(Enum):
    """Where a replica is."""

    WAITING = auto()
    LOADING = auto()
    SERVING = auto()
    ENDING = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerContext:
    """What all supervisors and replicas of a runner share."""

    clock: Clock
    limits: RunnerLimits
    prober: Prober
    engines: EngineClient
    records: ReplicaRecords
    ports: PortAllocator
    random: Callable[[], float]
    marker: str
    """Prefix that names this runner's home."""
    secrets: SecretFolder
    key: bytes
    """For the fingerprints of secrets."""
    inherited: Mapping[str, str]
    """The environment of the server."""
    logs: Path
    report: Callable[[RunEvent], None]


class Replica:
    """A supervised process. `launch` is None for one adopted at a revision we cannot start."""

    def __init__(
        self,
        context: RunnerContext,
        *,
        name: str,
        group: str,
        revision: str,
        launch: Launch | None,
        desired: DesiredRun,
        log: ReplicaLog,
        report: Callable[[EventKind, Replica, str, str], None],
        changed: Callable[[], None],
    ) -> None:
        self.name, self.group, self.revision = name, group, revision
        self.launch, self.log = launch, log
        self.desired = desired
        """How it is probed and drained; replaced when that changes, which restarts nothing."""
        self.stage = ReplicaStage.WAITING
        self.was_ready = False
        self.failures = 0
        self.hopeless = False
        """No attempt can succeed before somebody changes something."""
        self.message = "waiting to start"
        self.trouble = ""
        """What went wrong last; empty once it serves."""
        self.generation = launch.generation if launch else 0
        self.fields: Fields | None = launch.fields if launch else None
        self.fingerprints = launch.fingerprints if launch else {}
        """What it is started from; of an adopted one, what its record says."""
        self.in_flight = 0
        self.chosen_at = 0
        self.suspect = False
        self.port = 0
        self.cold_start: float | None = None
        """Seconds from its last start until it was ready; None where that was not seen."""
        self.runtime: tuple[RuntimeDifference, ...] = ()
        """What it serves otherwise than declared, by its engine's own word."""
        self.runtime_unknown = NOT_ASKED
        self._put_back = self._renew = False
        self._runtime_due = asyncio.Event()
        self._context, self._uid = context, desired.spec.uid
        self._report, self._changed = report, changed
        self._process: Process | None = None
        self._adopted, self._old_model = False, ""
        self._retiring = False
        self._wakeup = Wakeup(context.clock, over=self._over)
        self._idle = asyncio.Event()
        self._idle.set()
        self._ready_at: float | None = None
        self._started_at: float | None = None
        self._log_from = 0
        self._port_attempts = 0

    @property
    def ready(self) -> bool:
        """Requests may be sent to it."""
        return self.stage is ReplicaStage.SERVING and not self._over()

    @property
    def retiring(self) -> bool:
        """It is on its way out, and starts no more."""
        return self._retiring

    @property
    def failed(self) -> bool:
        """It failed often enough, or clearly enough, to say so."""
        return self.hopeless or self.failures >= self._context.limits.quick_crashes

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def marker(self) -> str:
        """What its processes carry in their environment."""
        return f"{self._context.marker}:{self._uid}:{self.name}"

    def adopt(self, pid: int, record: ReplicaRecord) -> None:
        """Take over a process that still runs; call before `run`."""
        self.port, self._old_model = record.port, record.model
        self._context.ports.keep(self.port)
        self._process = Process.adopt(pid, marker=self.marker, on_exit=self._wakeup.ring)
        self._adopted = True
        self._log_from = self.log.end
        if self.launch is None:
            self.generation, self.fields = record.generation, record.fields
            self.fingerprints = record.fingerprints

    def retire(self) -> None:
        """Take no more requests, let the running ones end, then stop for good."""
        self._retiring = True
        self._wakeup.ring()

    def try_again(self) -> None:
        """Start anew at once, as if it had never failed; what went wrong is shown until it serves.

        For a replica that waits after a failure, or serves something else than declared, which is
        put back; any other goes on as it is.
        """
        if self.runtime and self.ready:
            self._put_back = True
            self._runtime_due.set()
        if self.trouble and not self.ready:
            self.failures, self.hopeless = 0, False
            self._wakeup.ring()
            self._changed()

    def take(self, order: int) -> None:
        """Count a request in."""
        self.chosen_at = order
        self.in_flight += 1
        self._idle.clear()

    def give_back(self) -> None:
        """Count a request out."""
        self.in_flight -= 1
        if self.in_flight == 0:
            self._idle.set()

    def doubt(self) -> None:
        """A request failed here: look at once, and prefer others until then."""
        if self.stage is ReplicaStage.SERVING:
            self.suspect = True
            self._wakeup.ring()

    async def run(self) -> None:
        """Keep one process serving until retired; then end it. Cancelling leaves it running."""
        try:
            while not self._retiring:
                try:
                    again = await self._one_life()
                except Exception:
                    _LOG.exception("replica-supervision-failed", extra={"replica": self.name})
                    self._fail("failed", "Holdfast itself failed to supervise it; see its log.")
                    await self._end_process()
                    again = True
                if not again:
                    break
                pause = restart_delay(self.failures, self._context.limits, self._context.random())
                await self._wakeup.sleep(pause)
            self._move(ReplicaStage.ENDING, "draining")
            await self._drain(self.desired.drain)
            self.message = "stopping"
            await self._end_process()
            if self.launch and self.launch.secrets:
                # The log may outlive the knowledge of its secrets: they are rotated, we restart.
                await asyncio.to_thread(
                    self.log.scrub, SecretMask(self.launch.secrets.values()).overwrite
                )
            self._context.records.remove(self._uid, self.name)
            self._move(ReplicaStage.GONE, "stopped")
        finally:
            if self._process is not None:
                self._process.release()

    async def _one_life(self) -> bool:
        """Start, load, serve. Return whether to try again after a pause."""
        if self._process is None and not self._start():
            self._context.ports.give_back(self.port)
            return True
        self._move(ReplicaStage.LOADING, "loading: no answer yet")
        if await self._load():
            asking = asyncio.create_task(self._watch_runtime(), name=f"runtime {self.name}")
            try:
                await self._serve()
            finally:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                self.runtime, self.runtime_unknown = (), NOT_ASKED
                self._put_back = self._renew = False
        if self._retiring:
            return False
        self._ready_at, self.suspect = None, False
        self._move(ReplicaStage.WAITING, self.message)
        if self._process is not None and not self._process.exited.is_set():
            # It stopped answering, so those who still wait there mostly wait in vain.
            await self._drain(min(self.desired.drain, self._context.limits.grace))
        await self._end_process()
        return self.launch is not None

    def _start(self) -> bool:
        launch = self.launch
        if launch is None:
            return False
        self._adopted = False
        self.port = self._context.ports.take()
        self._log_from = self.log.end
        try:
            argv = launch.argv(self.port)
            record = ReplicaRecord(
                uid=self._uid,
                replica=self.name,
                group=self.group,
                revision=self.revision,
                port=self.port,
                argv_digest=digest(argv),
                boot=boot_id(),
                backend=str(self.desired.spec.fields.get("backend", "")),
                model=launch.model,
                health=self.desired.health_check.path,
                generation=launch.generation,
                fields=launch.fields,
                fingerprints=launch.fingerprints,
            )
            self._context.records.write(record)
            process = Process.spawn(
                argv,
                launch.environment(self.port, self.marker),
                log=self.log.path,
                marker=self.marker,
                on_exit=self._wakeup.ring,
            )
        except LaunchRefused as refused:
            self.hopeless = True
            self._fail("failed", str(refused))
            return False
        except OSError as error:
            self._fail("failed", f"The program could not be started: {error.strerror}.")
            return False
        self._process = process
        self._started_at = self._context.clock.monotonic()
        self.hopeless = False
        with suppress(OSError):  # a full disk; the marker alone is enough to find it again
            self._context.records.write(replace(record, pid=process.pid, start=process.start))
        self._report("started", self, f"process {process.pid} on port {self.port}", "")
        return True

    async def _load(self) -> bool:
        """Wait until the backend answers. Its exit is final information: nobody waits on."""
        clock, health_check = self._context.clock, self.desired.health_check
        deadline = clock.monotonic() + health_check.startup
        pause, look_at = 0.05, clock.monotonic() + _FIRST_PORT_CHECK
        hint = ""
        while not self._retiring:
            result = await self._wakeup.unless_over(
                self._context.prober.check_loaded(
                    self._probe_target(),
                    probe_timeout=health_check.timeout,
                    within=deadline - clock.monotonic(),
                )
            )
            if self._retiring:
                return False
            if result is None:
                self._note_exit("while loading")
                return False
            if result.ok:
                return True
            now = clock.monotonic()
            if not result.refused:
                hint = ""
            elif now >= min(look_at, deadline):
                look_at, hint = now + _NEXT_PORT_CHECK, await asyncio.to_thread(self._other_port)
            self.message = f"loading: {self._masked(result.detail)}{hint and f'; {hint}'}"
            self._changed()
            if now >= deadline:
                self._fail(
                    "failed",
                    "It was not ready within its start-up budget of "
                    f"{format_seconds(health_check.startup)} (last answer: {result.detail}) and "
                    "was stopped." + (f" {hint[:1].upper()}{hint[1:]}." if hint else ""),
                )
                return False
            await self._wakeup.sleep(min(pause, max(0.0, deadline - clock.monotonic())))
            pause = min(1.0, pause * 1.5)
        return False

    def _other_port(self) -> str:
        """Say on which port a program listens that does not know of the one it was given."""
        if self.launch is None or self.launch.takes_port:
            return ""
        found = ", ".join(map(str, listening_ports(self.marker)))
        if not found:
            return ""
        return (
            f"it listens on port {found}, and requests go to port {self.port}: write ${{PORT}} "
            "in its command where the port belongs, or let it read the variable PORT"
        )

    async def _serve(self) -> None:
        """Watch over a ready replica; return when it is retired, dead or no longer answers."""
        clock, limits = self._context.clock, self._context.limits
        self._ready_at = clock.monotonic()
        if self._started_at is not None:
            self.cold_start = self._ready_at - self._started_at
        self.was_ready, self.hopeless, self._port_attempts = True, False, 0
        self.trouble = ""
        self._move(ReplicaStage.SERVING, "ready")
        kind: EventKind = "adopted" if self._adopted else "ready"
        self._report(kind, self, f"answers on port {self.port}", "")
        misses = 0
        while True:
            if misses or not self.suspect:
                interval = self.desired.health_check.interval
                await self._wakeup.sleep(limits.recheck if self.suspect else interval)
            if self._retiring or self._renew:
                return
            doubted = self.suspect
            result = await self._wakeup.unless_over(
                self._context.prober.check_healthy(
                    self._probe_target(),
                    probe_timeout=self.desired.health_check.timeout,
                    doubted=doubted,
                )
            )
            if self._retiring:
                return
            if result is None:
                self._note_exit("while serving")
                return
            if result.ok:
                misses = 0
                if doubted:  # a doubt raised during the probe asks for another one
                    self.suspect = False
                if self.failures and clock.monotonic() - self._ready_at >= limits.steady:
                    self.failures = 0
                continue
            misses += 1
            if misses >= limits.misses:
                self._fail(
                    "failed",
                    f"It failed {misses} probes in a row (last: {result.detail}) and is replaced.",
                )
                return

    async def _watch_runtime(self) -> None:
        """Ask the engine what it serves, now and every minute, and put back when told to."""
        while True:
            self._runtime_due.clear()
            try:
                await self._ask_runtime()
            except LaunchRefused:  # what it was started from cannot be started again
                self.runtime_unknown = "What it was told to serve is not known any more."
            with suppress(TimeoutError):
                await asyncio.wait_for(self._runtime_due.wait(), self._context.limits.runtime_every)

    async def _ask_runtime(self) -> None:
        launch, backend, engines = self.launch, self.desired.backend, self._context.engines
        if launch is None or not backend.queries:
            self.runtime_unknown = (
                "It was started by an earlier server."
                if launch is None
                else "Nobody knows how to ask its engine what it serves."
            )
            self._changed()
            return
        declared = launch.declared_runtime(self.port)
        report = await engines.report(self.url, backend)
        comparisons = compare_runtime(declared, report)
        put_back, self._put_back = self._put_back, False
        if put_back and (wrong := differing_fields(comparisons)):
            requests = None
            if wrong == {"adapters"} and not isinstance(report.adapters, Unreported):
                requests = adapter_requests(backend, declared.adapters or (), report.adapters)
            for request in requests or ():
                if await engines.send(self.url, request) is not None:
                    break
            comparisons = compare_runtime(declared, await engines.report(self.url, backend))
            if differing_fields(comparisons):
                self._renew = True  # the engine cannot be told, so another process is started
                self._wakeup.ring()
        self._note_runtime(comparisons)

    def _note_runtime(self, comparisons: Sequence[FieldComparison]) -> None:
        before, self.runtime = self.runtime, differences_of(self.name, comparisons)
        unknown = [each for each in comparisons if each.match is RuntimeMatch.UNKNOWN]
        self.runtime_unknown = " ".join(
            dict.fromkeys(f"{each.field}: {self._masked(each.reason)}" for each in unknown)
        )
        if self.runtime != before:
            kind: EventKind = "runtime-drifted" if self.runtime else "runtime-verified"
            said = "; ".join(map(str, self.runtime)) or "serves what is declared again"
            self._report(kind, self, said, "told by its engine")
        self._changed()

    def _over(self) -> bool:
        """True once there is nothing to wait for in this life."""
        return self._retiring or (self._process is not None and self._process.exited.is_set())

    async def _drain(self, most: float) -> None:
        if self.in_flight:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), most)

    async def _end_process(self) -> None:
        process = self._process
        if process is not None:
            if process.exited.is_set():
                await process.bury(clock=self._context.clock)
            else:
                await process.stop(grace=self._context.limits.grace, clock=self._context.clock)
            self._process = None
        self._context.ports.give_back(self.port)

    def _note_exit(self, when: str) -> None:
        assert self._process is not None  # noqa: S101  # only a process can exit
        how = describe_exit(self._process.code)
        lines = self.last_lines(20)
        if self.stage is ReplicaStage.LOADING and any(_PORT_TAKEN.search(line) for line in lines):
            self._port_attempts += 1
            if self._port_attempts < _PORT_ATTEMPTS:
                self._report("failed", self, f"Port {self.port} was taken; trying another.", how)
                return
        said = " | ".join(line.strip() for line in lines if line.strip())[-600:]
        text = f"It {how} {when}." + (f" Its last lines: {said}" if said else "")
        self._fail("exited" if self.stage is ReplicaStage.SERVING else "failed", text, evidence=how)

    def last_lines(self, count: int) -> list[str]:
        """Return what this life of the replica printed last, with secrets hidden."""
        return [self._masked(line)[:400] for line in self.log.tail(count, since=self._log_from)]

    def _masked(self, text: str) -> str:
        return SecretMask(self.launch.secrets.values() if self.launch else ())(text)

    def _fail(self, kind: EventKind, text: str, *, evidence: str = "") -> None:
        steady = self._context.limits.steady
        if (
            self._ready_at is not None
            and self._context.clock.monotonic() - self._ready_at >= steady
        ):
            self.failures = 0
        self.failures += 1
        self.message = self.trouble = text = self._masked(text)
        self._report(kind, self, text, evidence)
        self._changed()

    def _move(self, stage: ReplicaStage, message: str) -> None:
        self.stage, self.message = stage, message
        self._changed()

    def _probe_target(self) -> ProbeTarget:
        fields = self.desired.spec.fields
        return ProbeTarget(
            url=self.url,
            backend=self.desired.backend,
            path=self.desired.health_check.path,
            model=self.launch.model if self.launch else self._old_model,
            task=str(fields.get("task_type", "")),
        )


def restart_delay(failures: int, limits: RunnerLimits, chance: float) -> float:
    """Return the pause before the next attempt: doubling, bounded, and spread by a quarter."""
    if failures == 0:
        return 0.0
    pause = min(limits.back_off_max, limits.back_off * 2.0 ** min(failures - 1, 30))
    return pause * (0.75 + 0.5 * chance)
