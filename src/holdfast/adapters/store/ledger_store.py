"""The GitOps controller's ledger in the embedded database.

For a controller that runs alone: the file is its own, and the store's one writer makes every
commit durable. Several controllers share a ledger in PostgreSQL instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.adapters.store import rows
from holdfast.adapters.store.queries import NO_LIMIT
from holdfast.adapters.store.rows import Row, from_microseconds, open_row, seal_row, to_microseconds
from holdfast.adapters.store.store import Store
from holdfast.adapters.store.transaction import Transaction
from holdfast.reconcile.gitops.ledger_store import (
    CLOSED,
    RecordName,
    check_names,
    record_from_json,
    record_name,
    record_to_json,
    settle_writes,
    stored_entry,
)
from holdfast.reconcile.gitops.ports import JournalEntry, LedgerRecord, LedgerWrite, RecordKind

PRUNE_BATCH = 1000
"""Rows of one commit, so that other writers get their turn in a long removal."""


class SqliteLedgerStore:
    """The `LedgerStore` port over an open store. Whoever opened the store closes it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def records(
        self,
        kind: RecordKind,
        *,
        application: str = "",
        key: str = "",
        state: str = "",
        limit: int = 0,
    ) -> Sequence[LedgerRecord]:
        """Return records, the last changed first."""
        where, values = _where_clause(
            kind=kind.value, application=application, key=key, state=state
        )
        return self._store.query(
            f"{rows.RECORDS.select} WHERE {where} ORDER BY turn DESC LIMIT ?",
            (*values, limit or NO_LIMIT),
            _record_of,
        )

    async def records_after(
        self, kind: RecordKind, *, application: str, after: str, limit: int
    ) -> Sequence[LedgerRecord]:
        """Return the next records of an application by key."""
        return self._store.query(
            f"{rows.RECORDS.select} WHERE kind = ? AND application = ? AND key > ?"
            " ORDER BY key LIMIT ?",
            (kind.value, application, after, limit),
            _record_of,
        )

    async def write(self, puts: Sequence[LedgerWrite], entries: Sequence[JournalEntry]) -> None:
        """Commit everything or nothing. Durable once it returns."""
        check_names(puts, entries)
        await self._store.submit(lambda tx: _write_all(tx, puts, entries))

    async def entries(
        self,
        *,
        application: str = "",
        subject: str = "",
        since: datetime | None = None,
        before: int = 0,
        limit: int = 100,
    ) -> Sequence[JournalEntry]:
        """Return entries of the journal, newest first."""
        where, values = _where_clause(application=application, subject=subject)
        if since is not None:
            where, values = f"{where} AND at >= ?", (*values, to_microseconds(since))
        if before:
            where, values = f"{where} AND seq < ?", (*values, before)
        return self._store.query(
            f"{rows.JOURNAL.select} WHERE {where} ORDER BY seq DESC LIMIT ?",
            (*values, limit or NO_LIMIT),
            _entry_of,
        )

    async def prune(self, before: datetime) -> int:
        """Remove closed records and journal entries from before a time; says how many."""
        removed = 0
        for statement in (_OLD_RECORDS, _OLD_ENTRIES):
            while True:
                count = await self._store.submit(
                    partial(_prune_batch, sql=statement, before=before)
                )
                removed += count
                if count < PRUNE_BATCH:
                    break
        return removed

    async def aclose(self) -> None:
        """Leave the store to whoever opened it; nothing is waiting to be written."""


_OLD_RECORDS = (
    "DELETE FROM records WHERE turn IN (SELECT turn FROM records"
    " WHERE state = ? AND changed_at < ? LIMIT ?) RETURNING turn"
)
_OLD_ENTRIES = (
    "DELETE FROM journal WHERE seq IN (SELECT seq FROM journal WHERE NOT (subject != ''"
    " AND EXISTS (SELECT 1 FROM records WHERE records.application = journal.application"
    " AND records.key = journal.subject AND records.state != ?)) AND at < ? LIMIT ?)"
    " RETURNING seq"
)


def _write_all(
    tx: Transaction, puts: Sequence[LedgerWrite], entries: Sequence[JournalEntry]
) -> None:
    settled = settle_writes(puts, _versions(tx, puts))
    kept = sum(after.text is not None for after in settled.values())
    turns, lines = _take_numbers(tx, kept, len(entries))
    for name, after in settled.items():
        tx.query("DELETE FROM records WHERE kind = ? AND application = ? AND key = ?", name, tuple)
        if after.text is not None:
            turns += 1
            row = seal_row(
                turns, *name, after.state, after.text, after.version, to_microseconds(tx.now)
            )
            tx.query(rows.RECORDS.insert, row, tuple)
    for seq, entry in enumerate(entries, start=lines + 1):
        tx.query(rows.JOURNAL.insert, _entry_row(stored_entry(entry, seq)), tuple)


def _versions(tx: Transaction, puts: Sequence[LedgerWrite]) -> dict[RecordName, int]:
    found: dict[RecordName, int] = {}
    for name in {record_name(put) for put in puts}:
        for row in tx.query(
            f"{rows.RECORDS.select} WHERE kind = ? AND application = ? AND key = ?", name, open_row
        ):
            found[name] = row[6]
    return found


def _take_numbers(tx: Transaction, turns: int, lines: int) -> tuple[int, int]:
    """Take numbers for records and journal entries; returns the last ones given before."""
    if not turns and not lines:
        return 0, 0
    after = tx.query(
        "UPDATE book SET turns = turns + ?, lines = lines + ? RETURNING turns, lines",
        (turns, lines),
        tuple,
    )[0]
    return after[0] - turns, after[1] - lines


def _prune_batch(tx: Transaction, *, sql: str, before: datetime) -> int:
    return len(tx.query(sql, (CLOSED, to_microseconds(before), PRUNE_BATCH), tuple))


def _record_of(row: Row) -> LedgerRecord:
    _turn, kind, application, key, state, body, version, changed_at, _ = open_row(row)
    return LedgerRecord(
        kind=RecordKind(kind),
        application=application,
        key=key,
        state=state,
        body=record_from_json(body),
        version=version,
        changed_at=from_microseconds(changed_at),
    )


def _entry_row(entry: JournalEntry) -> Row:
    return seal_row(
        entry.seq,
        to_microseconds(entry.at),
        entry.application,
        entry.subject,
        entry.action,
        entry.actor,
        entry.summary,
        record_to_json(entry.detail),
    )


def _entry_of(row: Row) -> JournalEntry:
    seq, at, application, subject, action, actor, summary, detail, _ = open_row(row)
    return JournalEntry(
        application=application,
        subject=subject,
        action=action,
        actor=actor,
        summary=summary,
        detail=record_from_json(detail),
        at=from_microseconds(at),
        seq=seq,
    )


def _where_clause(**columns: str) -> tuple[str, tuple[Any, ...]]:  # Any: what SQLite takes
    given = {name: value for name, value in columns.items() if value}
    return " AND ".join([f"{name} = ?" for name in given] or ["1"]), tuple(given.values())
