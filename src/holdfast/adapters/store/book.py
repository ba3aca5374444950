"""The GitOps controller's ledger in the embedded database.

For a controller that runs alone: the file is its own, and the store's one writer makes every
commit durable. Several controllers share a book in PostgreSQL instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.adapters.store import rows
from holdfast.adapters.store.reads import ALL
from holdfast.adapters.store.rows import Row, opened, sealed, stamp, time_of
from holdfast.adapters.store.store import Store
from holdfast.adapters.store.transaction import Transaction
from holdfast.reconcile.gitops.book_rules import (
    CLOSED,
    Name,
    as_kept,
    check,
    from_json,
    name_of,
    settle,
    to_json,
)
from holdfast.reconcile.gitops.ports import Entry, Put, Record, RecordKind

PRUNED_AT_ONCE = 1000
"""Rows of one commit, so that other writers get their turn in a long removal."""


class StoreBook:
    """The `Book` port over an open store. Whoever opened the store closes it."""

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
    ) -> Sequence[Record]:
        """Return records, the last changed first."""
        where, values = _where(kind=kind.value, application=application, key=key, state=state)
        return self._store.ask(
            f"{rows.RECORDS.select} WHERE {where} ORDER BY turn DESC LIMIT ?",
            (*values, limit or ALL),
            _record_of,
        )

    async def records_after(
        self, kind: RecordKind, *, application: str, after: str, limit: int
    ) -> Sequence[Record]:
        """Return the next records of an application by key."""
        return self._store.ask(
            f"{rows.RECORDS.select} WHERE kind = ? AND application = ? AND key > ?"
            " ORDER BY key LIMIT ?",
            (kind.value, application, after, limit),
            _record_of,
        )

    async def write(self, puts: Sequence[Put], entries: Sequence[Entry]) -> None:
        """Commit everything or nothing. Durable once it returns."""
        check(puts, entries)
        await self._store.submit(lambda tx: _write(tx, puts, entries))

    async def entries(
        self,
        *,
        application: str = "",
        subject: str = "",
        since: datetime | None = None,
        before: int = 0,
        limit: int = 100,
    ) -> Sequence[Entry]:
        """Return lines of the journal, newest first."""
        where, values = _where(application=application, subject=subject)
        if since is not None:
            where, values = f"{where} AND at >= ?", (*values, stamp(since))
        if before:
            where, values = f"{where} AND seq < ?", (*values, before)
        return self._store.ask(
            f"{rows.JOURNAL.select} WHERE {where} ORDER BY seq DESC LIMIT ?",
            (*values, limit or ALL),
            _entry_of,
        )

    async def prune(self, before: datetime) -> int:
        """Remove closed records and journal lines from before a time; says how many."""
        removed = 0
        for statement in (_OLD_RECORDS, _OLD_LINES):
            while True:
                gone = await self._store.submit(partial(_prune, sql=statement, before=before))
                removed += gone
                if gone < PRUNED_AT_ONCE:
                    break
        return removed

    async def aclose(self) -> None:
        """Leave the store to whoever opened it; nothing is waiting to be written."""


_OLD_RECORDS = (
    "DELETE FROM records WHERE turn IN (SELECT turn FROM records"
    " WHERE state = ? AND changed_at < ? LIMIT ?) RETURNING turn"
)
_OLD_LINES = (
    "DELETE FROM journal WHERE seq IN (SELECT seq FROM journal WHERE NOT (subject != ''"
    " AND EXISTS (SELECT 1 FROM records WHERE records.application = journal.application"
    " AND records.key = journal.subject AND records.state != ?)) AND at < ? LIMIT ?)"
    " RETURNING seq"
)


def _write(tx: Transaction, puts: Sequence[Put], entries: Sequence[Entry]) -> None:
    settled = settle(puts, _versions(tx, puts))
    kept = sum(after.text is not None for after in settled.values())
    turns, lines = _numbers(tx, kept, len(entries))
    for name, after in settled.items():
        tx.ask("DELETE FROM records WHERE kind = ? AND application = ? AND key = ?", name, tuple)
        if after.text is not None:
            turns += 1
            row = sealed(turns, *name, after.state, after.text, after.version, stamp(tx.now))
            tx.ask(rows.RECORDS.insert, row, tuple)
    for seq, entry in enumerate(entries, start=lines + 1):
        tx.ask(rows.JOURNAL.insert, _entry_row(as_kept(entry, seq)), tuple)


def _versions(tx: Transaction, puts: Sequence[Put]) -> dict[Name, int]:
    found: dict[Name, int] = {}
    for name in {name_of(put) for put in puts}:
        for row in tx.ask(
            f"{rows.RECORDS.select} WHERE kind = ? AND application = ? AND key = ?", name, opened
        ):
            found[name] = row[6]
    return found


def _numbers(tx: Transaction, turns: int, lines: int) -> tuple[int, int]:
    """Take numbers for records and lines; returns the last ones that were given before."""
    if not turns and not lines:
        return 0, 0
    after = tx.ask(
        "UPDATE book SET turns = turns + ?, lines = lines + ? RETURNING turns, lines",
        (turns, lines),
        tuple,
    )[0]
    return after[0] - turns, after[1] - lines


def _prune(tx: Transaction, *, sql: str, before: datetime) -> int:
    return len(tx.ask(sql, (CLOSED, stamp(before), PRUNED_AT_ONCE), tuple))


def _record_of(row: Row) -> Record:
    _turn, kind, application, key, state, body, version, changed_at, _ = opened(row)
    return Record(
        kind=RecordKind(kind),
        application=application,
        key=key,
        state=state,
        body=from_json(body),
        version=version,
        changed_at=time_of(changed_at),
    )


def _entry_row(entry: Entry) -> Row:
    return sealed(
        entry.seq,
        stamp(entry.at),
        entry.application,
        entry.subject,
        entry.action,
        entry.actor,
        entry.summary,
        to_json(entry.detail),
    )


def _entry_of(row: Row) -> Entry:
    seq, at, application, subject, action, actor, summary, detail, _ = opened(row)
    return Entry(
        application=application,
        subject=subject,
        action=action,
        actor=actor,
        summary=summary,
        detail=from_json(detail),
        at=time_of(at),
        seq=seq,
    )


def _where(**columns: str) -> tuple[str, tuple[Any, ...]]:  # Any: what SQLite takes
    given = {name: value for name, value in columns.items() if value}
    return " AND ".join([f"{name} = ?" for name in given] or ["1"]), tuple(given.values())
