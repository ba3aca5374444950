"""Joins the store to the runner: what was committed is run, what happened is recorded.

The two know nothing of each other. After each commit the workloads it touched are given to
the runner; what the runner reports goes into the history, and the death of a process that
should run goes into the ledger as drift until it serves again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from functools import partial

from holdfast.adapters.runner import ReplicaLease, RunEvent, Runner, RunSpec
from holdfast.adapters.store import Store, Transaction, WorkloadRecord
from holdfast.apps.server.forms import change_event
from holdfast.apps.server.live_events import EventHub
from holdfast.apps.server.logs import event
from holdfast.apps.server.metrics import ServerMetrics
from holdfast.core.cost import NO_COST, Cost
from holdfast.core.drift import Cause, DriftKind, runtime_drift
from holdfast.core.errors import HoldfastError
from holdfast.core.ledger import DriftEntry, DriftRecord, drift_entry_of
from holdfast.core.live import Phase, Progress, Status, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.tree import Fields

RUNNER_WRITER = Writer(manager="holdfast-runner", operation="run")
RUNNER_OFF = Status(
    phase=Phase.ERROR,
    message="The runner is off, so nothing runs this workload. Start the server with --run.",
)
_HEALED_EVENTS = frozenset({"ready", "adopted"})
_ENDED_EVENTS = frozenset({"replaced", "stopped"})
_REPLICA_PATH = "/replicas/"
"""Where the ledger keeps the drift of a replica, by its name."""
_RUNTIME_PATH = "/runtime/"
"""Where it keeps what a replica serves otherwise than declared, by its name and the field."""


class ServerSupervisor:
    """One per server. Everything here runs in the event loop."""

    def __init__(
        self,
        store: Store,
        runner: Runner | None,
        reports: asyncio.Queue[RunEvent | None],
        hub: EventHub,
        metrics: ServerMetrics,
    ) -> None:
        """`reports` is where the runner puts what happened, in the event loop."""
        self._store = store
        self._runner = runner
        self._reports = reports
        self._hub = hub
        self._metrics = metrics
        self._known: dict[WorkloadId, tuple[str, int]] = {}
        """The uid and generation of each workload that the runner was given."""
        self._drifts: dict[WorkloadId, dict[str, DriftRecord]] = {}
        self._recorder: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take up what is stored, and what still runs from before."""
        loop = asyncio.get_running_loop()
        self._recorder = asyncio.create_task(self._record_reports())
        self._store.subscribe(
            lambda changed: loop.call_soon_threadsafe(self._on_commit, frozenset(changed))
        )
        for drift in self._store.drifts(None, limit=100_000):
            self._drifts.setdefault(drift.workload, {})[drift.id] = drift
        if self._runner is not None:
            projects = self._store.projects()
            specs = [run_spec_of(each) for of in projects for each in self._store.records(of.slug)]
            self._known = {spec.id: (spec.uid, spec.generation) for spec in specs}
            await self._runner.start()
            self._runner.set(specs)
            await self._store.submit(partial(_close_superseded_drifts, self._runner))

    async def stop(self, *, leave_running: bool) -> None:
        """Stop the processes, then write down what is still to be recorded."""
        if self._runner is not None:
            await self._runner.stop(leave_running=leave_running)
        if self._recorder is not None:
            self._reports.put_nowait(None)
            await self._recorder

    def try_again(self, uid: str) -> None:
        """Start at once what waits after a failure."""
        if self._runner is not None:
            self._runner.try_again(uid)

    def cost(self, workload: WorkloadId, uid: str | None, after: Fields | None) -> Cost:
        """Say what other fields, or none at all, do to the processes of a workload."""
        if self._runner is None:
            return NO_COST  # nothing runs, and nothing will be started
        spec = RunSpec(id=workload, uid=uid or "", generation=0, fields=after or {})
        return self._runner.cost(uid or "", None if after is None else spec)

    def status(self, uid: str) -> Status:
        """Say how a workload is doing."""
        return RUNNER_OFF if self._runner is None else self._runner.status(uid)

    async def progress(self, uid: str) -> AsyncIterator[Progress]:
        """Follow a workload to readiness."""
        if self._runner is None:
            yield Progress(phase=RUNNER_OFF.phase, message=RUNNER_OFF.message)
            return
        async for progress in self._runner.progress(uid):
            yield progress

    def acquire(self, uid: str, tried: Collection[str] = ()) -> ReplicaLease | None:
        """Take a replica for one request, and none of those that let it down."""
        return None if self._runner is None else self._runner.acquire(uid, tried)

    async def logs(self, uid: str, *, tail: int, follow: bool) -> AsyncIterator[str]:
        """Yield log lines."""
        if self._runner is not None:
            async for line in self._runner.logs(uid, tail=tail, follow=follow):
                yield line

    def phases(self) -> Mapping[str, int]:
        """Count the workloads by phase."""
        if self._runner is None:
            counted = Counter({RUNNER_OFF.phase: self._store.workload_count()})
        else:
            counted = Counter(self.status(uid).phase for uid, _ in self._known.values())
        return {phase.value: counted[phase] for phase in Phase}

    def _on_commit(self, changed: Iterable[WorkloadId]) -> None:
        """Follow a commit. A fault here must not stop what comes after it."""
        self._metrics.commits.inc()
        for workload in changed:
            try:
                self._follow(workload)
                self._count_drift(workload)
            except HoldfastError:
                event("follow_failed", level=logging.ERROR, exc=True, workload=str(workload))
            self._publish(workload)

    def _publish(self, workload: WorkloadId) -> None:
        try:
            record = self._store.record(workload)
        except HoldfastError:
            self._hub.forget(workload.project)  # what changed cannot be told
        else:
            self._hub.publish(workload.project, change_event(workload, record, self._hub.base_url))

    def _follow(self, workload: WorkloadId) -> None:
        if self._runner is None:
            return
        record = self._store.record(workload)
        before = self._known.get(workload)
        if before is not None and (record is None or record.uid != before[0]):
            del self._known[workload]
            self._runner.drop(before[0])
        if record is not None and before != (record.uid, record.generation):
            self._known[workload] = (record.uid, record.generation)
            self._runner.put(run_spec_of(record))

    def _count_drift(self, workload: WorkloadId) -> None:
        known = self._drifts.get(workload, {})
        found = {
            drift.id: drift for drift in self._store.drifts(workload.project, slug=workload.slug)
        }
        for id, drift in found.items():
            if id not in known:
                for entry in {(each.kind, each.cause) for each in drift.fields}:
                    self._metrics.detected.labels(*entry).inc()
        for id, drift in known.items():
            if id not in found:
                ended = self._store.drift(workload.project, id)
                resolution = (ended and ended.resolution) or "deleted"
                for kind in drift.kinds:
                    self._metrics.resolved.labels(kind, resolution).inc()
        if found:
            self._drifts[workload] = found
        else:
            self._drifts.pop(workload, None)

    async def _record_reports(self) -> None:
        while (happened := await self._reports.get()) is not None:
            self._metrics.runs.labels(happened.kind).inc()
            try:
                await self._store.submit(partial(_record_event, happened))
            except HoldfastError:
                event("report_lost", level=logging.ERROR, exc=True, kind=happened.kind)


def run_spec_of(record: WorkloadRecord) -> RunSpec:
    """Say what should run."""
    return RunSpec(id=record.id, uid=record.uid, generation=record.generation, fields=record.fields)


def _close_superseded_drifts(runner: Runner, tx: Transaction) -> None:
    """Close the drifts of replicas that ended with an earlier server.

    Others stand in their place, under new names; when they fail too, that is a new drift.
    """
    for drift in tx.drifts(None, limit=100_000):
        record = tx.record(drift.workload)
        # After the prefix stands the name of the replica, and of what it serves the field.
        names = {entry.path.split("/")[2] for entry in drift.fields if entry.path.count("/") > 1}
        ours = all(entry.path.startswith((_REPLICA_PATH, _RUNTIME_PATH)) for entry in drift.fields)
        if record and ours and not names & runner.replicas(record.uid):
            tx.resolve_drift(drift.id, "superseded", writer=RUNNER_WRITER)


def _resolve_runtime(tx: Transaction, workload: WorkloadId, replica: str, resolution: str) -> None:
    """Close the drift of what a replica served."""
    path = f"{_RUNTIME_PATH}{replica}/"
    for drift in tx.drifts(workload.project, slug=workload.slug):
        if any(entry.path.startswith(path) for entry in drift.fields):
            tx.resolve_drift(drift.id, resolution, writer=RUNNER_WRITER)


def _record_event(happened: RunEvent, tx: Transaction) -> None:
    record = tx.record_by_uid(happened.uid)
    if record is None:
        return  # deleted meanwhile; its history says so
    path = f"{_REPLICA_PATH}{happened.replica}"
    if happened.kind == "exited":
        entry = DriftEntry(
            path=path,
            desired="running",
            live="exited",
            kind=DriftKind.RESOURCE,
            cause=Cause.UNKNOWN,
            evidence=happened.evidence or happened.message,
        )
        tx.open_drift(record.id, [entry], writer=RUNNER_WRITER)
    elif happened.kind == "failed" and happened.instead:
        entry = DriftEntry(
            path=path,
            desired=f"running generation {happened.generation}",
            live="not running",
            kind=DriftKind.RESOURCE,
            cause=Cause.UNKNOWN,
            evidence=f"{happened.message} {happened.instead}",
        )
        tx.open_drift(record.id, [entry], writer=RUNNER_WRITER)
    elif happened.kind == "runtime-drifted":
        fields = [runtime_drift(each) for each in happened.differences]
        entries = [drift_entry_of(each, each.evidence) for each in fields]
        subject = f"{_RUNTIME_PATH}{happened.replica}"
        tx.open_drift(record.id, entries, subject=subject, writer=RUNNER_WRITER)
    elif happened.kind == "runtime-verified":
        _resolve_runtime(tx, record.id, happened.replica, "healed")
    elif happened.kind in _HEALED_EVENTS | _ENDED_EVENTS:
        _resolve_runtime(tx, record.id, happened.replica, "superseded")
        resolution = "healed" if happened.kind in _HEALED_EVENTS else "superseded"
        for drift in tx.drifts(record.id.project, slug=record.id.slug):
            if any(entry.path == path for entry in drift.fields):
                tx.resolve_drift(drift.id, resolution, writer=RUNNER_WRITER)
    detail: Fields = {"replica": happened.replica, "evidence": happened.evidence}
    tx.note(record.id, happened.kind, RUNNER_WRITER, happened.message, detail)
