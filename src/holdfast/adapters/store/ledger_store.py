"""The GitOps controller's ledger in the embedded database.

For a controller that runs alone: the file is its own, and the store's one writer makes every
commit durable. Several controllers share a ledger in PostgreSQL instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.adapters.sql_ledger import PRUNE_BATCH, SqlLedgerStore, entry_of, entry_row, record_of
from holdfast.adapters.store import rows
from holdfast.adapters.store.rows import Row, from_microseconds, open_row, seal_row, to_microseconds
from holdfast.adapters.store.store import Store
from holdfast.adapters.store.transaction import Transaction
from holdfast.reconcile.gitops.ledger_store import (
    CLOSED,
    RecordName,
    check_names,
    record_name,
    settle_writes,
    stored_entry,
)
from holdfast.reconcile.gitops.ports import JournalEntry, LedgerMark, LedgerRecord, LedgerWrite


class SqliteLedgerStore(SqlLedgerStore):
    """The `LedgerStore` port over an open store. Whoever opened the store closes it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def write(self, puts: Sequence[LedgerWrite], entries: Sequence[JournalEntry]) -> None:
        """Commit everything or nothing. Durable once it returns."""
        check_names(puts, entries)
        await self._store.submit(lambda tx: _write_all(tx, puts, entries))

    async def aclose(self) -> None:
        """Leave the store to whoever opened it; nothing is waiting to be written."""

    async def _select_records(self, clauses: str, values: Sequence[Any]) -> Sequence[LedgerRecord]:
        return self._store.query(f"{rows.RECORDS.select} {clauses}", values, _record_of)

    async def _select_turns(
        self, clauses: str, values: Sequence[Any]
    ) -> Sequence[tuple[int, LedgerRecord]]:
        return self._store.query(
            f"{rows.RECORDS.select} {clauses}", values, lambda row: (int(row[0]), _record_of(row))
        )

    async def _select_mark(self, statement: str, values: Sequence[Any]) -> LedgerMark:
        (found,) = self._store.query(
            statement, values, lambda row: LedgerMark(count=int(row[0]), turn=int(row[1]))
        )
        return found

    async def _select_entries(self, clauses: str, values: Sequence[Any]) -> Sequence[JournalEntry]:
        return self._store.query(f"{rows.JOURNAL.select} {clauses}", values, _entry_of)

    async def _delete_batch(self, statement: str, before: object) -> int:
        values = (CLOSED, before, PRUNE_BATCH)
        return await self._store.submit(
            lambda tx: len(tx.query(f"{statement} RETURNING 1", values, tuple))
        )

    def _stored_time(self, at: datetime) -> int:
        return to_microseconds(at)


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


def _record_of(row: Row) -> LedgerRecord:
    _turn, *columns, changed_at, _ = open_row(row)
    return record_of((*columns, from_microseconds(changed_at)))


def _entry_of(row: Row) -> JournalEntry:
    seq, at, *columns, _ = open_row(row)
    return entry_of((seq, from_microseconds(at), *columns))


def _entry_row(entry: JournalEntry) -> Row:
    seq, at, *columns = entry_row(entry)
    return seal_row(seq, to_microseconds(at), *columns)
