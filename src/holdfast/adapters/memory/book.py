"""What the memory target remembers: declarations, drifts from first seen to resolved, history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast.core.declaration import written
from holdfast.core.desired import Desired
from holdfast.core.drift import find_drift
from holdfast.core.ledger import DriftRecord, HistoryEntry, entry_of
from holdfast.core.live import Live, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.tree import Fields, Tree
from holdfast.reconcile.ports import Clock


@dataclass(slots=True, kw_only=True)
class Book:
    """One ledger, oldest entry first."""

    clock: Clock
    _declared: dict[WorkloadId, Fields] = field(default_factory=dict)
    _drifts: list[DriftRecord] = field(default_factory=list)
    _history: list[HistoryEntry] = field(default_factory=list)

    def created(self, live: Live, writer: Writer) -> None:
        """A workload came to be, as declared."""
        self._declared[live.id] = dict(live.fields)
        self._note(live, "created", writer, f"created with {len(live.fields)} fields")

    def updated(self, live: Live, writer: Writer, names: Sequence[str]) -> None:
        """Fields of a workload were written."""
        self._note(live, "updated", writer, f"wrote {', '.join(names)}", names)

    def deleted(self, live: Live, writer: Writer) -> None:
        """A workload is gone."""
        self._declared.pop(live.id, None)
        self._note(live, "deleted", writer, "deleted")
        self._resolve(live.id, "deleted")

    def declare(self, live: Live, write: Mapping[str, Tree]) -> None:
        """The owner wrote these fields: they are what is declared from now on."""
        before = self._declared.get(live.id, {})
        after = written(before, write)
        self._declared[live.id] = after
        self._resolve(live.id, "reconciled" if after == before else "declared")

    def compare(self, live: Live, writer: Writer) -> None:
        """Another tool wrote: open, update or resolve the drift."""
        desired = Desired(id=live.id, fields=self._declared.get(live.id, {}))
        drift = find_drift(desired=desired, live=live)
        if not drift.fields:
            self._resolve(live.id, "reverted")
            return
        entries = tuple(entry_of(each, f"written by {writer}") for each in drift.fields)
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

    def _note(
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
