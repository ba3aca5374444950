"""The ledger side of a transaction: audit rows, drifts, and answers kept for repeated requests.

Values are masked here, on their way in, so that no reader has to think of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import apsw

from holdfast.adapters.store import rows
from holdfast.adapters.store.reads import Reads
from holdfast.adapters.store.records import Record
from holdfast.adapters.store.rows import Row, stamp
from holdfast.core.drift import DriftedField, DriftKind
from holdfast.core.errors import NotFound
from holdfast.core.ledger import DriftEntry, DriftRecord, HistoryEntry, entry_of, hidden
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId
from holdfast.core.redact import redact, redact_tree
from holdfast.core.tree import Fields, Tree, parse_pointer, show_path

KEPT = timedelta(hours=24)
"""How long the answer to a request is kept for its repetition."""
FIELDS = ""
"""The subject of the one open drift that is about a workload's fields."""

HOLDFAST = Writer(manager="holdfast")
"""The writer of what Holdfast does by itself."""

T = TypeVar("T")


class Ledger(Reads):
    """What a transaction can note. Nothing is kept unless the transaction is committed."""

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        now: datetime,
        new_id: Callable[[], str],
        epoch: int,
        one_project: Callable[[], bool] = lambda: False,
    ) -> None:
        self._connection = connection
        self.now = now
        self._new_id = new_id
        self._epoch = epoch
        self._one_project = one_project
        """Whether the server that has the file open takes no second project."""
        self.touched: set[WorkloadId] = set()

    def note(
        self,
        workload: WorkloadId,
        action: str,
        writer: Writer,
        summary: str,
        detail: Mapping[str, Tree] | None = None,
    ) -> HistoryEntry:
        """Write an audit row about a workload that is there."""
        record = self.record(workload)
        if record is None:
            raise NotFound(f"There is no workload {workload} to note anything about.")
        return self._audit(
            workload, action, writer, summary, detail, uid=record.uid, generation=record.generation
        )

    def open_drift(
        self,
        workload: WorkloadId,
        entries: Sequence[DriftEntry],
        *,
        subject: str | None = None,
        writer: Writer = HOLDFAST,
    ) -> DriftRecord:
        """Note that a workload has drifted.

        A workload has one open drift a subject. The subject is its fields, or, for drift of
        its resources such as a process that died, the path of the first entry unless another
        is given. While a drift is open it is brought up to date, not repeated.
        """
        record = self.record(workload)
        if record is None:
            raise NotFound(f"There is no workload {workload} that could drift.")
        resource = bool(entries) and all(entry.kind is DriftKind.RESOURCE for entry in entries)
        if subject is None:
            subject = entries[0].path if resource else FIELDS
        return self._put_drift(record, subject, [_masked(entry) for entry in entries], writer)

    def resolve_drift(self, id: str, resolution: str, *, writer: Writer = HOLDFAST) -> bool:
        """Close a drift; False when it is not open."""
        found = self._execute(f"{rows.DRIFTS.select} WHERE id = ? AND resolved_at IS NULL", (id,))
        for row in found:
            self._close_drift(row, resolution, writer)
        return bool(found)

    def remember(self, key: str, request_digest: str, answer: bytes) -> None:
        """Keep the answer to a request, so that its repetition has no second effect."""
        self._execute("DELETE FROM answers WHERE at < ?", (stamp(self.now - KEPT),))
        kept_as = rows.key_mark(key)
        self._execute("DELETE FROM answers WHERE key = ?", (kept_as,))
        self._execute(
            rows.ANSWERS.insert,
            rows.sealed(kept_as, request_digest, answer, stamp(self.now)),
        )

    def recall(self, key: str) -> tuple[str, bytes] | None:
        """Return the request digest and the answer kept under a key."""
        return self.idempotent(key)

    def _judge(
        self, record: Record, drifted: Sequence[DriftedField], resolution: str, writer: Writer
    ) -> None:
        """Open, bring up to date or close the drift of a workload's fields."""
        if drifted:
            self._put_drift(record, FIELDS, [_entry(field) for field in drifted], writer)
        else:
            self._resolve_all(record, resolution, writer, subject=FIELDS)

    def _has_open_drift(self, uid: str, subject: str) -> bool:
        return bool(self._open_drifts(uid, subject))

    def _resolve_all(
        self, record: Record, resolution: str, writer: Writer, *, subject: str | None = None
    ) -> None:
        for row in self._open_drifts(record.uid, subject):
            self._close_drift(row, resolution, writer)

    def _audit(
        self,
        workload: WorkloadId,
        action: str,
        writer: Writer,
        summary: str,
        detail: Mapping[str, Tree] | None,
        *,
        uid: str,
        generation: int,
    ) -> HistoryEntry:
        masked = redact_tree(dict(detail or {}))
        entry = HistoryEntry(
            seq=self._execute("SELECT coalesce(max(seq), 0) + 1 FROM history")[0][0],
            at=self.now,
            workload=workload,
            action=action,
            writer=replace(writer, at=self.now),
            generation=generation,
            summary=redact(summary),
            detail=masked if isinstance(masked, dict) else {},
        )
        self._execute(
            rows.HISTORY.insert,
            rows.history_row(entry, uid),
        )
        self.touched.add(workload)
        return entry

    def _put_drift(
        self, record: Record, subject: str, entries: Sequence[DriftEntry], writer: Writer
    ) -> DriftRecord:
        held = self._open_drifts(record.uid, subject)
        known = rows.drift_of(held[0]) if held else None
        drift = DriftRecord(
            id=known.id if known else f"drift-{self._new_id().replace('-', '')[:12]}",
            workload=record.id,
            kinds=rows.kinds_of(entries),
            fields=tuple(entries),
            first_seen=known.first_seen if known else self.now,
        )
        if drift == known:
            return drift
        row = rows.drift_row(drift, uid=record.uid, subject=subject)
        if known:
            self._execute(
                "UPDATE drifts SET entries = ?, seal = ? WHERE id = ?", (row[5], row[-1], drift.id)
            )
        else:
            self._execute(rows.DRIFTS.insert, row)
            paths: list[Tree] = [entry.path for entry in entries]
            self._audit(
                record.id,
                "drifted",
                writer,
                f"{', '.join(drift.kinds)} drift: {_shown(entries)}",
                {"drift": drift.id, "paths": paths},
                uid=record.uid,
                generation=record.generation,
            )
        self.touched.add(record.id)
        return drift

    def _close_drift(self, held: Row, resolution: str, writer: Writer) -> None:
        drift = rows.drift_of(held)
        uid, subject = held[3], held[4]
        done = replace(drift, resolved_at=self.now, resolution=resolution)
        row = rows.drift_row(done, uid=uid, subject=subject)
        self._execute(
            "UPDATE drifts SET resolved_at = ?, resolution = ?, seal = ? WHERE id = ?",
            (*row[-3:], drift.id),
        )
        found = self.record(drift.workload)
        self._audit(
            drift.workload,
            "resolved",
            writer,
            f"drift was {resolution}",
            {"drift": drift.id, "resolution": resolution},
            uid=uid,
            generation=found.generation if found and found.uid == uid else 0,
        )

    def _open_drifts(self, uid: str, subject: str | None) -> list[Row]:
        where, values = ("", ()) if subject is None else (" AND subject = ?", (subject,))
        return self._execute(
            f"{rows.DRIFTS.select} WHERE uid = ? AND resolved_at IS NULL{where}", (uid, *values)
        )

    def _execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except UnicodeDecodeError as error:
            raise apsw.CorruptError("a text is not UTF-8") from error

    def _query(self, sql: str, values: Sequence[Any], read: Callable[[Row], T]) -> list[T]:
        # Not translated: the writer has to see which kind of failure it was.
        return [read(row) for row in self._execute(sql, values)]


def _entry(field: DriftedField) -> DriftEntry:
    writer = field.writer
    with_token = f" with token {writer.actor}" if writer and writer.actor else ""
    return entry_of(field, f"{writer.operation} by {writer.manager}{with_token}" if writer else "")


def _masked(entry: DriftEntry) -> DriftEntry:
    path = tuple(entry.path.split("/"))
    return replace(
        entry,
        desired=hidden(path, entry.desired),
        live=hidden(path, entry.live),
        evidence=redact(entry.evidence),
    )


def changed_fields(before: Fields, after: Fields, names: Sequence[str]) -> Fields:
    """The detail of an audit row: the named fields as they were and as they are."""
    return {
        "before": {name: before[name] for name in names if name in before},
        "after": {name: after[name] for name in names if name in after},
    }


def _shown(entries: Sequence[DriftEntry]) -> str:
    """Name the first fields that moved, as people write them."""
    paths = [show_path(parse_pointer(entry.path)) for entry in entries]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more
