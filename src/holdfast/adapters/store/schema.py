"""The tables, and how an older file gets them.

Migrations are numbered and only ever appended. Each runs in one transaction together with
its number, so that a crash leaves the file at one version or the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from holdfast.adapters.store.errors import damaged_store
from holdfast.core.errors import StoreUnavailable

APPLICATION_ID = 0x484F4C44
"""`HOLD` in the file's header: distinguishes our files from other SQLite databases."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        f"PRAGMA application_id = {APPLICATION_ID}",
        """CREATE TABLE meta (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            lineage TEXT NOT NULL,
            serial INTEGER NOT NULL,
            epoch INTEGER NOT NULL
        ) STRICT""",
        "INSERT INTO meta VALUES (1, lower(hex(randomblob(16))), 0, 0)",
        """CREATE TABLE projects (
            key INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            slug TEXT NOT NULL UNIQUE,
            created_at INTEGER NOT NULL,
            seal INTEGER NOT NULL
        ) STRICT""",
        """CREATE TABLE workloads (
            key INTEGER PRIMARY KEY,
            project TEXT NOT NULL REFERENCES projects (slug),
            slug TEXT NOT NULL,
            uid TEXT NOT NULL UNIQUE,
            version TEXT NOT NULL,
            generation INTEGER NOT NULL,
            fields TEXT NOT NULL,
            declared TEXT,
            declared_by TEXT,
            declared_actor TEXT,
            writers TEXT NOT NULL,
            created_at INTEGER NOT NULL,
            updated_at INTEGER NOT NULL,
            seal INTEGER NOT NULL,
            UNIQUE (project, slug)
        ) STRICT""",
        """CREATE TABLE tokens (
            key INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            kind TEXT NOT NULL,
            project TEXT NOT NULL REFERENCES projects (slug),
            workload_uid TEXT,
            name TEXT NOT NULL,
            scopes TEXT NOT NULL,
            secret_hash BLOB NOT NULL,
            created_at INTEGER NOT NULL,
            expires_at INTEGER,
            revoked_at INTEGER,
            seal INTEGER NOT NULL
        ) STRICT""",
        "CREATE INDEX tokens_of_project ON tokens (project)",
        "CREATE INDEX tokens_of_workload ON tokens (workload_uid) WHERE workload_uid NOT NULL",
        # SQLite ends every index entry with the row's key, so an index on (project, slug)
        # also answers "newest first" within them.
        """CREATE TABLE history (
            seq INTEGER PRIMARY KEY,
            at INTEGER NOT NULL,
            project TEXT NOT NULL,
            slug TEXT NOT NULL,
            uid TEXT NOT NULL,
            action TEXT NOT NULL,
            writer TEXT NOT NULL,
            generation INTEGER NOT NULL,
            summary TEXT NOT NULL,
            detail TEXT NOT NULL,
            seal INTEGER NOT NULL
        ) STRICT""",
        "CREATE INDEX history_of_project ON history (project)",
        "CREATE INDEX history_of_workload ON history (project, slug)",
        """CREATE TABLE drifts (
            seq INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            project TEXT NOT NULL,
            slug TEXT NOT NULL,
            uid TEXT NOT NULL,
            subject TEXT NOT NULL,
            entries TEXT NOT NULL,
            first_seen INTEGER NOT NULL,
            resolved_at INTEGER,
            resolution TEXT,
            seal INTEGER NOT NULL
        ) STRICT""",
        "CREATE INDEX drifts_of_project ON drifts (project)",
        "CREATE INDEX drifts_of_workload ON drifts (project, slug)",
        "CREATE INDEX drifts_open ON drifts (project) WHERE resolved_at IS NULL",
        "CREATE UNIQUE INDEX drifts_open_subject ON drifts (uid, subject)"
        " WHERE resolved_at IS NULL",
        """CREATE TABLE answers (
            key TEXT PRIMARY KEY,
            request TEXT NOT NULL,
            answer BLOB NOT NULL,
            at INTEGER NOT NULL,
            seal INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX answers_by_age ON answers (at)",
    ),
    (
        # The GitOps controller's book. Its counters never go back, so that no number is given
        # twice when the newest rows were removed.
        """CREATE TABLE book (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            turns INTEGER NOT NULL,
            lines INTEGER NOT NULL
        ) STRICT""",
        "INSERT INTO book VALUES (1, 0, 0)",
        # By turn, the order of changes: a clock may stand still or go back.
        """CREATE TABLE records (
            turn INTEGER PRIMARY KEY,
            kind TEXT NOT NULL,
            application TEXT NOT NULL,
            key TEXT NOT NULL,
            state TEXT NOT NULL,
            body TEXT NOT NULL,
            version INTEGER NOT NULL,
            changed_at INTEGER NOT NULL,
            seal INTEGER NOT NULL,
            UNIQUE (kind, application, key)
        ) STRICT""",
        "CREATE INDEX records_of_kind ON records (kind)",
        "CREATE INDEX records_of_state ON records (kind, state)",
        "CREATE INDEX records_of_application ON records (kind, application, state)",
        "CREATE INDEX records_of_subject ON records (application, key)",
        "CREATE INDEX records_closed ON records (changed_at) WHERE state = 'closed'",
        """CREATE TABLE journal (
            seq INTEGER PRIMARY KEY,
            at INTEGER NOT NULL,
            application TEXT NOT NULL,
            subject TEXT NOT NULL,
            action TEXT NOT NULL,
            actor TEXT NOT NULL,
            summary TEXT NOT NULL,
            detail TEXT NOT NULL,
            seal INTEGER NOT NULL
        ) STRICT""",
        "CREATE INDEX journal_of_application ON journal (application)",
        "CREATE INDEX journal_of_subject ON journal (subject)",
        "CREATE INDEX journal_by_age ON journal (at)",
    ),
    (
        # Who is signed in. A session is a token's or a person's; one that ended has no row.
        """CREATE TABLE sessions (
            key INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            secret_hash BLOB NOT NULL,
            token_id TEXT,
            provider TEXT NOT NULL,
            person_id TEXT,
            person TEXT,
            claims TEXT NOT NULL,
            agent TEXT NOT NULL,
            peer TEXT NOT NULL,
            created_at INTEGER NOT NULL,
            last_seen INTEGER NOT NULL,
            expires_at INTEGER NOT NULL,
            seal INTEGER NOT NULL
        ) STRICT""",
        "CREATE INDEX sessions_of_token ON sessions (token_id) WHERE token_id NOT NULL",
        "CREATE INDEX sessions_of_person ON sessions (person_id) WHERE person_id NOT NULL",
        "CREATE INDEX sessions_by_end ON sessions (expires_at)",
        # Whose a token is, where a person made it.
        """CREATE TABLE token_owners (
            token_id TEXT PRIMARY KEY REFERENCES tokens (id),
            person TEXT NOT NULL,
            seal INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
    ),
)


def schema_version(connection: apsw.Connection) -> int:
    """Return how many migrations a file has had."""
    return int(connection.pragma("user_version"))


def check_schema_version(
    connection: apsw.Connection, path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS
) -> None:
    """Refuse a file that is not ours or is newer than this code, without touching it."""
    with connection:  # one snapshot: another process may be making the tables right now
        empty = connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
        version = schema_version(connection)
        marked = int(connection.pragma("application_id"))
    if marked != APPLICATION_ID and (version or marked or not empty):
        raise damaged_store(path, "it is a database of another program")
    if version > len(migrations):
        raise StoreUnavailable(
            f"{path} was written by a newer Holdfast: its schema is {version} and this one "
            f"knows up to {len(migrations)}.",
            hint="Upgrade Holdfast, or choose another file.",
        )


def migrate_schema(
    connection: apsw.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS
) -> bool:
    """Bring a file up to date; True when anything was done."""
    done = False
    while (version := schema_version(connection)) < len(migrations):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been faster while this one waited for its turn.
            if schema_version(connection) == version:
                for statement in migrations[version]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        done = True
    return done
