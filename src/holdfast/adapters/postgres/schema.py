"""The tables, and how a database gets them.

Migrations are numbered and only ever appended. All that are missing run in one transaction,
under a lock that controllers who start at the same moment wait for.
"""

from __future__ import annotations

from holdfast.adapters.postgres.sessions import PostgresConnection
from holdfast.core.errors import ConfigurationError

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
