"""A target that lives in one process and forgets everything with it.

Held to the same contract suite as the others, so a test that passes on it means something.
Faults can be planned in advance; `writes` records every step that took effect.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast.core.cost import Cost
from holdfast.core.drift import find_drift
from holdfast.core.errors import (
    OUTCOME_UNKNOWN,
    Conflict,
    HoldfastError,
    NotFound,
    Problem,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.ledger import DriftRecord, HistoryEntry, drift_entry_of
from holdfast.core.live import Absent, Live, Phase, Progress, Status, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.normalize import normalize_workload
from holdfast.core.plan import Action, Step, fields_after_write
from holdfast.core.tree import Fields, Tree, digest
from holdfast.core.workload import Desired
from holdfast.reconcile.ports import Clock
from holdfast.wire.spec_v1 import spec_from_fields


@dataclass(slots=True, kw_only=True)
class MemoryLedger:
    """One ledger, oldest entry first."""

    clock: Clock
    _declared: dict[WorkloadId, Fields] = field(default_factory=dict)
    _drifts: list[DriftRecord] = field(default_factory=list)
    _history: list[HistoryEntry] = field(default_factory=list)

    def record_created(self, live: Live, writer: Writer) -> None:
        """A workload was created as declared."""
        self._declared[live.id] = dict(live.fields)
        self._add_history(live, "created", writer, f"created with {len(live.fields)} fields")

    def record_updated(self, live: Live, writer: Writer, names: Sequence[str]) -> None:
        """Fields of a workload were written."""
        self._add_history(live, "updated", writer, f"wrote {', '.join(names)}", names)

    def record_deleted(self, live: Live, writer: Writer) -> None:
        """A workload was deleted."""
        self._declared.pop(live.id, None)
        self._add_history(live, "deleted", writer, "deleted")
        self._resolve(live.id, "deleted")

    def declare(self, live: Live, write: Mapping[str, Tree]) -> None:
        """The owner wrote these fields: they are what is declared from now on."""
        before = self._declared.get(live.id, {})
        after = fields_after_write(before, write)
        self._declared[live.id] = after
        self._resolve(live.id, "reconciled" if after == before else "declared")

    def compare(self, live: Live, writer: Writer) -> None:
        """Another tool wrote: open, update or resolve the drift."""
        desired = Desired(id=live.id, fields=self._declared.get(live.id, {}))
        drift = find_drift(desired=desired, live=live)
        if not drift.fields:
            self._resolve(live.id, "reverted")
            return
        entries = tuple(drift_entry_of(each, f"written by {writer}") for each in drift.fields)
        for index, record in enumerate(self._drifts):
            if record.workload == live.id and record.resolved_at is None:
                self._drifts[index] = replace(record, kinds=drift.kinds, fields=entries)
                return
        self._drifts.append(
            DriftRecord(
                id=f"drf-{len(self._drifts) + 1}",
                workload=live.id,
                kinds=drift.kinds,
                fields=entries,
                first_seen=self.clock.now(),
            )
        )

    def drifts(
        self, project: str, *, slug: str | None, include_resolved: bool
    ) -> Sequence[DriftRecord]:
        """Return drifts, newest first."""
        return [
            record
            for record in reversed(self._drifts)
            if record.workload.project == project
            and slug in (None, record.workload.slug)
            and (include_resolved or record.resolved_at is None)
        ]

    def history(self, project: str, *, slug: str | None, limit: int) -> Sequence[HistoryEntry]:
        """Return audit rows, newest first."""
        rows = [
            row
            for row in reversed(self._history)
            if row.workload.project == project and slug in (None, row.workload.slug)
        ]
        return rows[:limit]

    def _resolve(self, workload: WorkloadId, resolution: str) -> None:
        now = self.clock.now()
        self._drifts = [
            replace(record, resolved_at=now, resolution=resolution)
            if record.workload == workload and record.resolved_at is None
            else record
            for record in self._drifts
        ]

    def _add_history(
        self, live: Live, action: str, writer: Writer, summary: str, names: Sequence[str] = ()
    ) -> None:
        self._history.append(
            HistoryEntry(
                seq=len(self._history) + 1,
                at=self.clock.now(),
                workload=live.id,
                action=action,
                writer=writer,
                generation=live.generation,
                summary=summary,
                detail={"fields": list(names)} if names else {},
            )
        )


READY_PROGRESS = (Progress(phase=Phase.READY, message="serving"),)


@dataclass(slots=True, kw_only=True)
class _Fault:
    error: HoldfastError
    left: int
    after_effect: bool
    slug: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _RememberedOutcome:
    request: str
    outcome: Live | Absent


@dataclass(slots=True, kw_only=True)
class MemoryTarget:
    """The `ControlTarget` port over dictionaries. Safe to share between threads."""

    clock: Clock
    writer: Writer = field(default_factory=lambda: Writer(manager="holdfast-sdk"))
    new_uid: Callable[[], str]
    writes: list[Step] = field(default_factory=list)
    """Every step that took effect, in order."""
    down: bool = False
    """While true, every call raises TargetUnavailable."""
    phases: dict[str, Sequence[Progress]] = field(default_factory=dict)
    """By slug, what its progress shows; ready at once where none is given."""
    lines: dict[str, Sequence[str]] = field(default_factory=dict)
    """By slug, its log."""
    refused: Callable[[Desired], Sequence[Problem]] | None = None
    costs: dict[str, Cost] = field(default_factory=dict)
    """By slug, what a step costs, and putting its drift back; unknown where none is given."""
    _workloads: dict[WorkloadId, Live] = field(default_factory=dict)
    _outcomes: dict[str, _RememberedOutcome] = field(default_factory=dict)
    _faults: list[_Fault] = field(default_factory=list)
    _ledger: MemoryLedger = field(init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._ledger = MemoryLedger(clock=self.clock)

    def refuses(self, desired: Desired) -> Sequence[Problem]:
        """Nothing, unless the test says otherwise."""
        return self.refused(desired) if self.refused else ()

    async def observe(self, workload: WorkloadId) -> Live | Absent:
        """Return what is there now."""
        with self._lock:
            self._fail(slug=workload.slug)
            return self._workloads.get(workload) or Absent(id=workload)

    async def perform(self, step: Step, *, key: str) -> Live | Absent:
        """Carry out one step, once per key."""
        with self._lock:
            self._fail(slug=step.id.slug)
            if step.action is Action.NOTHING:
                return self._workloads.get(step.id) or Absent(id=step.id)
            request = digest([str(step.id), step.action, step.write, step.uid, step.version])
            remembered = self._outcomes.get(key)
            if remembered is None:
                remembered = _RememberedOutcome(request=request, outcome=self._act(step))
                self._outcomes[key] = remembered
            elif remembered.request != request:
                raise ValidationError("This idempotency key was used for another step.")
            self._fail(after_effect=True, slug=step.id.slug)
            return remembered.outcome

    async def cost(self, step: Step) -> Cost | None:
        """Say what the test set for this slug, of a workload that is as the step saw it."""
        with self._lock:
            live = self._workloads.get(step.id)
            same = (step.uid, step.version) == ((live.uid, live.version) if live else (None, None))
            return self.costs.get(step.id.slug) if same and not self.down else None

    async def list(self, project: str) -> Sequence[Live]:
        """Return every workload of a project."""
        with self._lock:
            self._fail()
            return sorted(
                (live for where, live in self._workloads.items() if where.project == project),
                key=lambda live: live.id,
            )

    async def progress(self, workload: WorkloadId) -> AsyncIterator[Progress]:
        """Yield what the test set for this slug."""
        if isinstance(await self.observe(workload), Absent):
            raise NotFound(f"There is no workload {workload}.")
        for each in self.phases.get(workload.slug, READY_PROGRESS):
            yield each

    async def drifts(
        self, project: str, *, slug: str | None = None, include_resolved: bool = False
    ) -> Sequence[DriftRecord]:
        """Return the ledger's drifts, newest first."""
        with self._lock:
            self._fail()
            found = self._ledger.drifts(project, slug=slug, include_resolved=include_resolved)
            return [
                each if each.resolved_at else replace(each, cost=self.costs.get(each.workload.slug))
                for each in found
            ]

    async def history(
        self, project: str, *, slug: str | None = None, limit: int = 100
    ) -> Sequence[HistoryEntry]:
        """Return audit rows, newest first."""
        with self._lock:
            self._fail()
            return self._ledger.history(project, slug=slug, limit=limit)

    async def logs(self, workload: WorkloadId, *, tail: int, follow: bool) -> AsyncIterator[str]:
        """Yield the last lines that the test set."""
        if isinstance(await self.observe(workload), Absent):
            raise NotFound(f"There is no workload {workload}.")
        kept = list(self.lines.get(workload.slug, ()))
        for line in kept[max(0, len(kept) - tail) :]:
            yield line

    async def aclose(self) -> None:
        """Nothing to close."""

    def edit(self, workload: WorkloadId, fields: Mapping[str, Tree], *, writer: Writer) -> Live:
        """Change live fields behind Holdfast's back, as another tool would."""
        with self._lock:
            live = self._workloads.get(workload)
            if live is None:
                raise NotFound(f"There is no workload {workload}.")
            after = self._write(live, dict(fields), writer)
            self._ledger.compare(after, writer)
            return after

    def remove(self, workload: WorkloadId, *, writer: Writer) -> bool:
        """Delete a workload behind Holdfast's back."""
        with self._lock:
            live = self._workloads.pop(workload, None)
            if live is not None:
                self._ledger.record_deleted(live, writer)
            return live is not None

    def set_status(self, workload: WorkloadId, status: Status) -> None:
        """Let the workload report another status."""
        with self._lock:
            self._workloads[workload] = replace(self._workloads[workload], status=status)

    def fail(
        self,
        error: HoldfastError,
        *,
        times: int = 1,
        after_effect: bool = False,
        slug: str | None = None,
    ) -> None:
        """Let the next calls, or those about one slug, raise.

        With `after_effect` only steps fail, and each is carried out first: an error that says
        "Nothing was changed." is then raised as one whose effect is unknown.
        """
        self._faults.append(_Fault(error=error, left=times, after_effect=after_effect, slug=slug))

    def _fail(self, *, after_effect: bool = False, slug: str | None = None) -> None:
        if self.down and not after_effect:
            raise TargetUnavailable("The memory target was told to be down.")
        for fault in self._faults:
            if fault.left and fault.after_effect is after_effect and fault.slug in (None, slug):
                fault.left -= 1
                error = copy.copy(fault.error)  # whoever handles it may add to it
                if after_effect and error.nothing_changed:
                    error.add_changes(OUTCOME_UNKNOWN)
                raise error

    def _act(self, step: Step) -> Live | Absent:
        live = self._workloads.get(step.id)
        if step.action is Action.DELETE and live is None:
            return Absent(id=step.id)
        seen = (None, None) if live is None else (live.uid, live.version)
        if seen != (step.uid, step.version):
            raise Conflict(f"Workload {step.id} is not as it was when the step was planned.")
        self.writes.append(step)
        if step.action is Action.DELETE:
            self.remove(step.id, writer=self.writer)
            return Absent(id=step.id)
        if live is None:
            return self._create(step.id, step.write)
        after = self._write(live, step.write, self.writer)
        self._ledger.declare(after, step.write)
        return after

    def _create(self, where: WorkloadId, write: Fields) -> Live:
        fields = spec_from_fields(where.slug, fields_after_write({}, write)).fields()
        now, uid = self.clock.now(), self.new_uid()
        writer = replace(self.writer, operation="create", at=now)
        live = Live(
            id=where,
            uid=uid,
            version=f"{uid[:8]}.1",
            generation=1,
            fields=fields,
            writers=dict.fromkeys(fields, writer),
            status=Status(phase=Phase.READY, message="serving", ready=1, wanted=1),
            created_at=now,
            updated_at=now,
        )
        self._workloads[where] = live
        self._ledger.record_created(live, writer)
        return live

    def _write(self, live: Live, write: Fields, writer: Writer) -> Live:
        fields = spec_from_fields(live.id.slug, fields_after_write(live.fields, write)).fields()
        if normalize_workload(fields) == normalize_workload(live.fields):
            return live
        now = self.clock.now()
        stamped = replace(writer, operation="update", at=now)
        changed = [name for name in write if fields.get(name) != live.fields.get(name)]
        after = replace(
            live,
            version=f"{live.uid[:8]}.{live.generation + 1}",
            generation=live.generation + 1,
            fields=fields,
            writers={
                **{name: by for name, by in live.writers.items() if name in fields},
                **{name: stamped for name in changed if name in fields},
            },
            updated_at=now,
        )
        self._workloads[live.id] = after
        self._ledger.record_updated(after, stamped, changed)
        return after
