"""The store as a place where workloads are declared: the embedded target.

Used by the SDK on a laptop and by the server, which adds the `WorkloadRuntime` that runs them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Protocol

import msgspec

from holdfast.adapters.store.records import WorkloadRecord
from holdfast.adapters.store.store import Store
from holdfast.adapters.store.transaction import Transaction
from holdfast.core.cost import Cost
from holdfast.core.errors import Conflict, NotFound, Problem, WorkloadFailed
from holdfast.core.ledger import DriftRecord, HistoryEntry
from holdfast.core.live import Absent, Live, Phase, Progress, Status, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.plan import UNWRITTEN_KINDS, Action, Step, fields_after_write, step_back
from holdfast.core.single_machine import unsupported_fields
from holdfast.core.tree import Fields, digest
from holdfast.core.workload import Desired
from holdfast.reconcile.ports import reused_key_error
from holdfast.wire.decode import prepare_type
from holdfast.wire.workload_v1 import WorkloadForm, workload_from_json, workload_to_json

NOT_SERVED = "nothing runs workloads here until `holdfast serve` opens this file"
"""What is said of every workload of a file that no server has open."""
_NO_WORKLOAD = b""
"""The kept answer of a step after which there was no workload."""


class WorkloadRuntime(Protocol):
    """What runs the workloads of a store, by their uid. The server supplies it."""

    def status(self, uid: str) -> Status:
        """Say how a workload is doing."""

    def progress(self, uid: str) -> AsyncIterator[Progress]:
        """Follow a workload to readiness, as `Control.progress` does."""

    def logs(self, uid: str, *, tail: int, follow: bool) -> AsyncIterator[str]:
        """Yield log lines, as `Control.logs` does."""


class StoreTarget:
    """Implements `reconcile.ports.Control` over a store.

    `submit` sends writes through the group writer, which suspends; without it they are made
    in place, which a sync client needs. `cost` says what it does to
    processes that the workload with this uid, or a new one, gets these fields, or is deleted;
    without it nobody here knows what runs. `try_again` gets the uid of each workload
    that a step updated, so that what failed to run as it is written is started anew.
    """

    def __init__(
        self,
        store: Store,
        *,
        writer: Writer,
        status: Callable[[WorkloadRecord], Status] | None = None,
        runtime: WorkloadRuntime | None = None,
        cost: Callable[[WorkloadId, str | None, Fields | None], Cost] | None = None,
        try_again: Callable[[str], None] | None = None,
        submit: bool = False,
    ) -> None:
        self._store = store
        self._writer = writer
        self._status = status
        self._runtime = runtime
        self._cost = cost
        self._try_again = try_again
        self._submit = submit

    def refuses(self, desired: Desired) -> Sequence[Problem]:
        """Say which declared fields one machine cannot honour."""
        return unsupported_fields(desired.fields)

    async def observe(self, workload: WorkloadId) -> Live | Absent:
        """Return what is stored now."""
        record = self._store.record(workload)
        return record.live(self._status_of(record)) if record else Absent(id=workload)

    async def perform(self, step: Step, *, key: str) -> Live | Absent:
        """Carry out one step. Its effect and the memory of its key are one transaction."""
        if step.action is Action.NOTHING:
            return await self.observe(step.id)

        first = False

        def work(transaction: Transaction) -> bytes:
            nonlocal first
            full_key = f"{step.id.project}/{key}"
            first = transaction.recall(full_key) is None
            return self._once(transaction, step, full_key)

        answer = await self._store.submit(work) if self._submit else self._store.write(work)
        if first and step.action is Action.UPDATE and step.uid and self._try_again:
            self._try_again(step.uid)
        if answer == _NO_WORKLOAD:
            return Absent(id=step.id)
        return workload_from_json(msgspec.json.decode(answer, type=prepare_type(WorkloadForm)))

    async def cost(self, step: Step) -> Cost | None:
        """Say what a step does to the processes that run."""
        return self._cost_of(step, self._store.record(step.id))

    def _cost_of(self, step: Step, record: WorkloadRecord | None) -> Cost | None:
        if self._cost is None:
            return None
        if (step.uid, step.version) != ((record.uid, record.version) if record else (None, None)):
            return None
        after = fields_after_write(record.fields if record else {}, step.write)
        gone = step.action is Action.DELETE
        return self._cost(step.id, step.uid, None if gone else after)

    async def list(self, project: str) -> Sequence[Live]:
        """Return every workload of a project, ordered by slug."""
        return [record.live(self._status_of(record)) for record in self._store.records(project)]

    async def progress(self, workload: WorkloadId) -> AsyncIterator[Progress]:
        """Follow a workload to readiness; without a runtime, say at once why that is vain."""
        record = self._require(workload)
        if self._runtime is None:
            yield Progress(phase=Phase.SCHEDULING, message=NOT_SERVED)
            raise WorkloadFailed(
                f"Workload {workload} is not going to be ready: {NOT_SERVED}.",
                changed="",
                hint="Start `holdfast serve` on it and set HOLDFAST_URL to its address.",
            )
        async for progress in self._runtime.progress(record.uid):
            yield progress

    async def drifts(
        self, project: str, *, slug: str | None = None, include_resolved: bool = False
    ) -> Sequence[DriftRecord]:
        """Return the ledger's drifts, newest first."""
        found = self._store.drifts(project, slug=slug, include_resolved=include_resolved)
        return [self.add_cost(each) for each in found]

    def add_cost(self, drift: DriftRecord) -> DriftRecord:
        """Say of an open drift of what is written what it costs to write it as declared."""
        written = not UNWRITTEN_KINDS.intersection(drift.kinds)
        if self._cost is None or drift.resolved_at is not None or not written:
            return drift
        record = self._store.record(drift.workload)
        if record is None or record.declared is None:
            return drift
        step = step_back(record.live(Status()), record.declared)
        return replace(drift, cost=self._cost_of(step, record))

    async def history(
        self, project: str, *, slug: str | None = None, limit: int = 100
    ) -> Sequence[HistoryEntry]:
        """Return audit rows, newest first."""
        return self._store.history(project, slug=slug, limit=limit)

    async def logs(self, workload: WorkloadId, *, tail: int, follow: bool) -> AsyncIterator[str]:
        """Yield log lines, oldest first."""
        record = self._require(workload)
        if self._runtime is None:
            raise NotFound(
                f"Workload {workload} has no logs: {NOT_SERVED}.",
                hint="Start `holdfast serve` on it and set HOLDFAST_URL to its address.",
            )
        async for line in self._runtime.logs(record.uid, tail=tail, follow=follow):
            yield line

    async def aclose(self) -> None:
        """Close the store."""
        self._store.close()

    def _once(self, transaction: Transaction, step: Step, key: str) -> bytes:
        request = digest(
            {
                "id": str(step.id),
                "action": step.action.value,
                "write": step.write,
                "uid": step.uid,
                "version": step.version,
            }
        )
        kept = transaction.recall(key)
        if kept is not None:
            if kept[0] != request:
                raise reused_key_error()
            return kept[1]
        record = self._carry_out(transaction, step)
        answer = _NO_WORKLOAD
        if record is not None:
            project = transaction.ensure_project(step.id.project)
            form = workload_to_json(record.live(self._status_of(record)), project_id=project.id)
            answer = msgspec.json.encode(form)
        transaction.remember(key, request, answer)
        return answer

    def _carry_out(self, transaction: Transaction, step: Step) -> WorkloadRecord | None:
        found = transaction.record(step.id)
        if step.action is Action.CREATE:
            transaction.ensure_project(step.id.project, writer=self._writer)
            desired = Desired(id=step.id, fields=step.write)
            return transaction.create_workload(desired, writer=self._writer, declare=True)
        if found is None and step.action is Action.DELETE:
            return None
        if found is None or found.uid != step.uid:
            what = "was deleted" if found is None else "was replaced by another of the same slug"
            raise Conflict(f"Workload {step.id} {what} meanwhile.", hint="Observe it again.")
        if step.version is None:
            raise Conflict(f"The step on {step.id} does not say which version it saw.")
        if step.action is Action.DELETE:
            transaction.delete_workload(found.uid, version=step.version, writer=self._writer)
            return None
        return transaction.update_workload(
            found.uid, step.write, version=step.version, writer=self._writer, declare=True
        )

    def _require(self, workload: WorkloadId) -> WorkloadRecord:
        record = self._store.record(workload)
        if record is None:
            raise NotFound(f"There is no workload {workload}.", hint="Create it first.")
        return record

    def _status_of(self, record: WorkloadRecord) -> Status:
        if self._runtime is not None:
            return self._runtime.status(record.uid)
        if self._status is not None:
            return self._status(record)
        return Status(message=NOT_SERVED)
