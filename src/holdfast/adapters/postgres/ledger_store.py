"""The `LedgerStore` port over PostgreSQL.

Writers take turns: each first updates the one row of `holdfast_book` and holds it to its commit.
So what it reads after that is what the last commit left, and numbers follow the order of commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.postgres.schema import check_version, migrate_schema
from holdfast.adapters.postgres.sessions import (
    TRANSACTION_TIMEOUT,
    PostgresConnection,
    PostgresRow,
    PostgresSessions,
)
from holdfast.core.errors import TargetUnavailable
from holdfast.core.redact import Secret
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
from holdfast.reconcile.ports import Clock

PRUNE_BATCH = 1000
"""Rows of one commit, so that other writers get their turn in a long removal."""

_TAKE_TURN = (
    "UPDATE holdfast_book SET turns = turns + $1, lines = lines + $2 RETURNING turns, lines, schema"
)
_SELECT_VERSIONS = (
    "SELECT kind, application, key, version FROM holdfast_records"
    " JOIN unnest($1::text[], $2::text[], $3::text[]) AS put (kind, application, key)"
    " USING (kind, application, key)"
)
_UPSERT_RECORD = (
    "INSERT INTO holdfast_records"
    " (kind, application, key, state, body, version, changed_at, turn)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (kind, application, key) DO UPDATE SET"
    " state = excluded.state, body = excluded.body, version = excluded.version,"
    " changed_at = excluded.changed_at, turn = excluded.turn"
)
_DELETE_RECORD = "DELETE FROM holdfast_records WHERE kind = $1 AND application = $2 AND key = $3"
_INSERT_ENTRY = (
    "INSERT INTO holdfast_journal"
    " (seq, at, application, subject, action, actor, summary, detail)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
)
_SELECT_RECORDS = (
    "SELECT kind, application, key, state, body, version, changed_at FROM holdfast_records"
)
_SELECT_AFTER = (
    f"{_SELECT_RECORDS} WHERE kind = $1 AND application = $2 AND key > $3 ORDER BY key LIMIT $4"
)
_SELECT_ENTRIES = (
    "SELECT seq, at, application, subject, action, actor, summary, detail FROM holdfast_journal"
)
_OLD_RECORDS = (
    "DELETE FROM holdfast_records WHERE turn IN (SELECT turn FROM holdfast_records"
    " WHERE state = $1 AND changed_at < $2 LIMIT $3)"
)
_OLD_ENTRIES = (
    "DELETE FROM holdfast_journal WHERE seq IN (SELECT seq FROM holdfast_journal AS line"
    " WHERE NOT (subject != '' AND EXISTS (SELECT 1 FROM holdfast_records AS about"
    " WHERE about.application = line.application AND about.key = line.subject"
    " AND about.state != $1)) AND at < $2 LIMIT $3)"
)


async def open_ledger_store(
    dsn: Secret, *, clock: Clock | None = None, transaction_timeout: float = TRANSACTION_TIMEOUT
) -> PostgresLedgerStore:
    """Connect and bring the tables up to date; `aclose` the store in the same loop.

    The address is one of libpq's, `postgresql://user@host/database?sslmode=verify-full`; a
    password may stand in it, in PGPASSWORD or in a password file. Raises ConfigurationError for
    an address or a database that cannot do, AuthError for a refused credential and
    TargetUnavailable when it does not answer in time; none shows the address.
    """
    sessions = PostgresSessions(dsn, transaction_timeout=transaction_timeout)
    try:
        await sessions.open(migrate_schema)
    except BaseException:
        sessions.terminate()
        raise
    return PostgresLedgerStore(sessions, clock or SystemClock())


class PostgresLedgerStore:
    """One ledger that several controllers share. Made by `open_ledger_store`."""

    def __init__(self, sessions: PostgresSessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock

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
        values: list[Any] = []  # Any: what asyncpg takes, one type a placeholder
        where = _where_clause(
            values, kind=kind.value, application=application, key=key, state=state
        )
        order = f" ORDER BY turn DESC{_limit_clause(values, limit)}"
        return [
            _record_of(row) for row in await self._fetch(_SELECT_RECORDS + where + order, values)
        ]

    async def records_after(
        self, kind: RecordKind, *, application: str, after: str, limit: int
    ) -> Sequence[LedgerRecord]:
        """Return the next records of an application by key."""
        found = await self._fetch(_SELECT_AFTER, [kind.value, application, after, limit])
        return [_record_of(row) for row in found]

    async def write(self, puts: Sequence[LedgerWrite], entries: Sequence[JournalEntry]) -> None:
        """Commit everything or nothing. Durable once it returns."""
        check_names(puts, entries)
        if puts or entries:
            now = self._clock.now()
            await self._sessions.run(lambda connection: _write_all(connection, puts, entries, now))

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
        values: list[Any] = []  # Any: as above
        where = _where_clause(values, application=application, subject=subject)
        if since is not None:
            values.append(since)
            where += f" AND at >= ${len(values)}"
        if before:
            values.append(before)
            where += f" AND seq < ${len(values)}"
        order = f" ORDER BY seq DESC{_limit_clause(values, limit)}"
        return [
            _entry_of(row) for row in await self._fetch(_SELECT_ENTRIES + where + order, values)
        ]

    async def prune(self, before: datetime) -> int:
        """Remove closed records and journal entries from before a time; says how many."""
        removed = 0
        for statement in (_OLD_RECORDS, _OLD_ENTRIES):

            async def work(connection: PostgresConnection, statement: str = statement) -> int:
                await _take_turn(connection, 0, 0)
                done = await connection.execute(statement, CLOSED, before, PRUNE_BATCH)
                return int(done.split()[-1])

            while True:
                gone = await self._sessions.run(work)
                removed += gone
                if gone < PRUNE_BATCH:
                    break
        return removed

    async def aclose(self) -> None:
        """Close the connections."""
        await self._sessions.aclose()

    async def _fetch(self, sql: str, values: Sequence[Any]) -> list[PostgresRow]:
        return await self._sessions.run(lambda connection: connection.fetch(sql, *values))


async def _write_all(
    connection: PostgresConnection,
    puts: Sequence[LedgerWrite],
    entries: Sequence[JournalEntry],
    now: datetime,
) -> None:
    turn, seq = await _take_turn(connection, len(puts), len(entries))
    settled = settle_writes(puts, await _versions(connection, puts))
    kept = [
        (*name, after.state, after.text, after.version, now, number)
        for number, (name, after) in enumerate(settled.items(), start=turn + 1)
        if after.text is not None
    ]
    gone = [name for name, after in settled.items() if after.text is None]
    lines = [
        _entry_row(stored_entry(entry, number))
        for number, entry in enumerate(entries, start=seq + 1)
    ]
    for statement, rows in ((_DELETE_RECORD, gone), (_UPSERT_RECORD, kept), (_INSERT_ENTRY, lines)):
        if rows:
            await connection.executemany(statement, rows)


async def _take_turn(connection: PostgresConnection, turns: int, lines: int) -> tuple[int, int]:
    """Wait for the other writers, and return the last numbers that they were given."""
    row = await connection.fetchrow(_TAKE_TURN, turns, lines)
    if row is None:
        raise TargetUnavailable(
            "The table holdfast_book has lost its row, so no line can be numbered.",
            hint="Restore the database from a backup.",
        )
    check_version(row["schema"])
    return row["turns"] - turns, row["lines"] - lines


async def _versions(
    connection: PostgresConnection, puts: Sequence[LedgerWrite]
) -> dict[RecordName, int]:
    names = {record_name(put) for put in puts}
    if not names:
        return {}
    columns = [list(column) for column in zip(*names, strict=True)]
    found = await connection.fetch(_SELECT_VERSIONS, *columns)
    return {
        (RecordKind(row["kind"]), row["application"], row["key"]): row["version"] for row in found
    }


def _entry_row(
    entry: JournalEntry,
) -> tuple[Any, ...]:  # Any: what asyncpg takes, one type a column
    return (
        entry.seq,
        entry.at,
        entry.application,
        entry.subject,
        entry.action,
        entry.actor,
        entry.summary,
        record_to_json(entry.detail),
    )


def _record_of(row: PostgresRow) -> LedgerRecord:
    return LedgerRecord(
        kind=RecordKind(row["kind"]),
        application=row["application"],
        key=row["key"],
        state=row["state"],
        body=record_from_json(row["body"]),
        version=row["version"],
        changed_at=row["changed_at"],
    )


def _entry_of(row: PostgresRow) -> JournalEntry:
    return JournalEntry(
        application=row["application"],
        subject=row["subject"],
        action=row["action"],
        actor=row["actor"],
        summary=row["summary"],
        detail=record_from_json(row["detail"]),
        at=row["at"],
        seq=row["seq"],
    )


def _where_clause(values: list[Any], **columns: str) -> str:
    """Write the conditions that are not empty; their values join the list."""
    clauses = ["true"]
    for name, value in columns.items():
        if value:
            values.append(value)
            clauses.append(f"{name} = ${len(values)}")
    return f" WHERE {' AND '.join(clauses)}"


def _limit_clause(values: list[Any], limit: int) -> str:
    if not limit:
        return ""
    values.append(limit)
    return f" LIMIT ${len(values)}"
