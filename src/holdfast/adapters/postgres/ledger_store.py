"""The `LedgerStore` port over PostgreSQL, and the tables that it is kept in.

Writers take turns: each first updates the one row of `holdfast_book` and holds it to its commit.
So what it reads after that is what the last commit left, and numbers follow the order of commits.
Migrations are numbered and only ever appended. All that are missing run in one transaction,
under a lock that controllers who start at the same moment wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.postgres.sessions import (
    TRANSACTION_TIMEOUT,
    PostgresConnection,
    PostgresRow,
    PostgresSessions,
)
from holdfast.adapters.sql_ledger import PRUNE_BATCH, SqlLedgerStore, entry_of, entry_row, record_of
from holdfast.core.errors import ConfigurationError, TargetUnavailable
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ledger_store import (
    CLOSED,
    RecordName,
    check_names,
    record_name,
    settle_writes,
    stored_entry,
)
from holdfast.reconcile.gitops.ports import (
    JournalEntry,
    LedgerMark,
    LedgerRecord,
    LedgerWrite,
    RecordKind,
)
from holdfast.reconcile.ports import Clock

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
_SELECT_TURNS = _SELECT_RECORDS.replace("SELECT ", "SELECT turn, ", 1)
_SELECT_ENTRIES = (
    "SELECT seq, at, application, subject, action, actor, summary, detail FROM holdfast_journal"
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


class PostgresLedgerStore(SqlLedgerStore):
    """One ledger that several controllers share. Made by `open_ledger_store`."""

    table_prefix = "holdfast_"

    def __init__(self, sessions: PostgresSessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock

    async def write(self, puts: Sequence[LedgerWrite], entries: Sequence[JournalEntry]) -> None:
        """Commit everything or nothing. Durable once it returns."""
        check_names(puts, entries)
        if puts or entries:
            now = self._clock.now()
            await self._sessions.run(lambda connection: _write_all(connection, puts, entries, now))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._sessions.aclose()

    async def _select_records(self, clauses: str, values: Sequence[Any]) -> Sequence[LedgerRecord]:
        found = await self._fetch(f"{_SELECT_RECORDS} {clauses}", values)
        return [record_of(row) for row in found]

    async def _select_turns(
        self, clauses: str, values: Sequence[Any]
    ) -> Sequence[tuple[int, LedgerRecord]]:
        found = await self._fetch(f"{_SELECT_TURNS} {clauses}", values)
        return [(turn, record_of(row)) for turn, *row in found]

    async def _select_mark(self, statement: str, values: Sequence[Any]) -> LedgerMark:
        ((count, turn),) = await self._fetch(statement, values)
        return LedgerMark(count=count, turn=turn)

    async def _select_entries(self, clauses: str, values: Sequence[Any]) -> Sequence[JournalEntry]:
        found = await self._fetch(f"{_SELECT_ENTRIES} {clauses}", values)
        return [entry_of(row) for row in found]

    async def _delete_batch(self, statement: str, before: object) -> int:
        async def work(connection: PostgresConnection) -> int:
            await _take_turn(connection, 0, 0)
            done = await connection.execute(statement, CLOSED, before, PRUNE_BATCH)
            return int(done.split()[-1])

        return await self._sessions.run(work)

    def _stored_time(self, at: datetime) -> datetime:
        return at

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
        entry_row(stored_entry(entry, number))
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


MIGRATION_LOCK = 0x484F4C44
"""`HOLD`: the number of the lock under which tables are made."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # One row. Every writer updates it first and so holds it to its commit: that is what
        # makes numbers follow the order of commits, which those of a sequence do not.
        """CREATE TABLE holdfast_book (
            id integer PRIMARY KEY CHECK (id = 1),
            schema integer NOT NULL,
            turns bigint NOT NULL,
            lines bigint NOT NULL
        )""",
        "INSERT INTO holdfast_book VALUES (1, 0, 0, 0)",
        # By turn, the order of changes: the clocks of several controllers differ. `json` and
        # not `jsonb`, which has no NUL character and forgets how a number was written.
        """CREATE TABLE holdfast_records (
            kind text NOT NULL,
            application text NOT NULL,
            key text NOT NULL,
            state text NOT NULL,
            body json NOT NULL,
            version bigint NOT NULL,
            changed_at timestamptz NOT NULL,
            turn bigint NOT NULL UNIQUE,
            PRIMARY KEY (kind, application, key)
        )""",
        "CREATE INDEX holdfast_records_of_kind ON holdfast_records (kind, turn)",
        "CREATE INDEX holdfast_records_of_state ON holdfast_records (kind, state, turn)",
        "CREATE INDEX holdfast_records_of_application"
        " ON holdfast_records (kind, application, state, turn)",
        "CREATE INDEX holdfast_records_of_subject ON holdfast_records (application, key)",
        "CREATE INDEX holdfast_records_closed ON holdfast_records (changed_at)"
        " WHERE state = 'closed'",
        """CREATE TABLE holdfast_journal (
            seq bigint PRIMARY KEY,
            at timestamptz NOT NULL,
            application text NOT NULL,
            subject text NOT NULL,
            action text NOT NULL,
            actor text NOT NULL,
            summary text NOT NULL,
            detail json NOT NULL
        )""",
        "CREATE INDEX holdfast_journal_of_application ON holdfast_journal (application, seq)",
        "CREATE INDEX holdfast_journal_of_subject ON holdfast_journal (subject, seq)",
        "CREATE INDEX holdfast_journal_by_age ON holdfast_journal (at)",
    ),
)


async def migrate_schema(connection: PostgresConnection) -> None:
    """Bring a database up to date, or refuse it. Writes nothing where nothing is missing."""
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise ConfigurationError(
            f"The database stores text as {encoding}, which cannot hold every character.",
            hint="Create one with ENCODING 'UTF8'.",
        )
    if await _schema_version(connection) == len(MIGRATIONS):
        return
    await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK)
    version = await _schema_version(connection)
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            await connection.execute(statement)
    await connection.execute("UPDATE holdfast_book SET schema = $1", len(MIGRATIONS))


def check_version(version: int) -> None:
    """Refuse tables that a newer Holdfast has changed, at any time: others may be upgraded."""
    if version > len(MIGRATIONS):
        raise ConfigurationError(
            f"The database was changed by a newer Holdfast: its schema is {version} and this one "
            f"knows up to {len(MIGRATIONS)}.",
            hint="Upgrade Holdfast, or name another database.",
        )


# Not `to_regclass`, which remembers through a wait for the lock that there was no such table.
_TABLE_EXISTS = (
    "SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
    " WHERE relname = 'holdfast_book' AND nspname = ANY (current_schemas(false))"
)


async def _schema_version(connection: PostgresConnection) -> int:
    if not await connection.fetchval(_TABLE_EXISTS):
        return 0
    version = int(await connection.fetchval("SELECT schema FROM holdfast_book"))
    check_version(version)
    return version
