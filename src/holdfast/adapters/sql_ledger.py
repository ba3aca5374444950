"""The half of the `LedgerStore` port that every SQL database does alike: reading and pruning.

A store says how a statement is run, how its database keeps a time, and how it writes. SQLite and
PostgreSQL both take `$1` for the first value of a statement.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.reconcile.gitops.ledger_store import record_from_json, record_to_json
from holdfast.reconcile.gitops.ports import JournalEntry, LedgerMark, LedgerRecord, RecordKind

PRUNE_BATCH = 1000
"""Rows of one commit, so that other writers get their turn in a long removal."""

_OLD_RECORDS = (
    "DELETE FROM {prefix}records WHERE turn IN (SELECT turn FROM {prefix}records"
    " WHERE state = $1 AND changed_at < $2 LIMIT $3)"
)
_OLD_ENTRIES = (
    "DELETE FROM {prefix}journal WHERE seq IN (SELECT seq FROM {prefix}journal AS line"
    " WHERE NOT (subject != '' AND EXISTS (SELECT 1 FROM {prefix}records AS about"
    " WHERE about.application = line.application AND about.key = line.subject"
    " AND about.state != $1)) AND at < $2 LIMIT $3)"
)


class SqlLedgerStore(ABC):
    """A ledger in the tables `records` and `journal`, whose names may have a prefix."""

    table_prefix = ""

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
        conditions = {
            "kind = ": kind.value,
            "application = ": application,
            "key = ": key,
            "state = ": state,
        }
        return await self._select_records(*_clauses(conditions, "turn DESC", limit))

    async def records_after(
        self, kind: RecordKind, *, application: str, after: str, limit: int
    ) -> Sequence[LedgerRecord]:
        """Return the next records of an application by key."""
        return await self._select_records(
            "WHERE kind = $1 AND application = $2 AND key > $3 ORDER BY key LIMIT $4",
            (kind.value, application, after, limit),
        )

    async def mark(self, kind: RecordKind, *, application: str) -> LedgerMark:
        """Say how many records of a kind an application has, and which was changed last."""
        return await self._select_mark(
            f"SELECT count(*), coalesce(max(turn), 0) FROM {self.table_prefix}records"  # noqa: S608
            " WHERE kind = $1 AND application = $2",
            (kind.value, application),
        )

    async def records_since(
        self, kind: RecordKind, *, application: str, turn: int, limit: int
    ) -> Sequence[tuple[int, LedgerRecord]]:
        """Return the records that were changed after a turn."""
        return await self._select_turns(
            "WHERE kind = $1 AND application = $2 AND turn > $3 ORDER BY turn LIMIT $4",
            (kind.value, application, turn, limit),
        )

    async def entries(
        self,
        *,
        application: str = "",
        subject: str = "",
        actions: Collection[str] = (),
        since: datetime | None = None,
        before: int = 0,
        limit: int = 100,
    ) -> Sequence[JournalEntry]:
        """Return entries of the journal, newest first."""
        conditions = {
            "application = ": application,
            "subject = ": subject,
            "action = ": tuple(map(str, actions)),
            "at >= ": None if since is None else self._stored_time(since),
            "seq < ": before or None,
        }
        return await self._select_entries(*_clauses(conditions, "seq DESC", limit))

    async def prune(self, before: datetime) -> int:
        """Remove closed records and journal entries from before a time; says how many."""
        removed = 0
        for statement in (_OLD_RECORDS, _OLD_ENTRIES):
            while True:
                count = await self._delete_batch(
                    statement.format(prefix=self.table_prefix), self._stored_time(before)
                )
                removed += count
                if count < PRUNE_BATCH:
                    break
        return removed

    @abstractmethod
    async def _select_records(self, clauses: str, values: Sequence[Any]) -> Sequence[LedgerRecord]:
        """Read records by what follows the name of the table."""

    @abstractmethod
    async def _select_turns(
        self, clauses: str, values: Sequence[Any]
    ) -> Sequence[tuple[int, LedgerRecord]]:
        """Read records, each with its turn, by what follows the name of the table."""

    @abstractmethod
    async def _select_mark(self, statement: str, values: Sequence[Any]) -> LedgerMark:
        """Run a statement that counts records and gives their last turn."""

    @abstractmethod
    async def _select_entries(self, clauses: str, values: Sequence[Any]) -> Sequence[JournalEntry]:
        """Read entries by what follows the name of the table."""

    @abstractmethod
    async def _delete_batch(self, statement: str, before: object) -> int:
        """Delete the first `PRUNE_BATCH` of what is over since before a stored time; how many."""

    @abstractmethod
    def _stored_time(self, at: datetime) -> object:
        """Return a time as this database keeps it."""


# Any: one type a column, by the schema of each database.
def record_of(row: Iterable[Any]) -> LedgerRecord:
    """Read a record: kind, application, key, state, body, version and time of change."""
    kind, application, key, state, body, version, changed_at = row
    return LedgerRecord(
        kind=RecordKind(kind),
        application=application,
        key=key,
        state=state,
        body=record_from_json(body),
        version=version,
        changed_at=changed_at,
    )


def entry_of(row: Iterable[Any]) -> JournalEntry:
    """Read an entry of the journal, in the order of `entry_row`."""
    seq, at, application, subject, action, actor, summary, detail = row
    return JournalEntry(
        application=application,
        subject=subject,
        action=action,
        actor=actor,
        summary=summary,
        detail=record_from_json(detail),
        at=at,
        seq=seq,
    )


def entry_row(entry: JournalEntry) -> tuple[Any, ...]:
    """Write an entry of the journal."""
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


def _clauses(
    conditions: Mapping[str, object], order: str, limit: int
) -> tuple[str, Sequence[object]]:
    """Write the conditions that are not empty, the order and the limit, with their values.

    Of several values in a tuple one has to match.
    """
    tests: list[str] = []
    values: list[object] = []
    for condition, value in conditions.items():
        if value in (None, "", ()):
            continue
        either = value if isinstance(value, tuple) else (value,)
        first = len(values) + 1
        alike = [f"{condition}${number}" for number in range(first, first + len(either))]
        tests.append(f"({' OR '.join(alike)})" if len(alike) > 1 else alike[0])
        values += either
    where = f"WHERE {' AND '.join(tests)} " if tests else ""
    if not limit:
        return f"{where}ORDER BY {order}", values
    return f"{where}ORDER BY {order} LIMIT ${len(values) + 1}", [*values, limit]
