"""Every question the store answers, the same inside a transaction and outside.

A `Store` asks them on its read connection, a `Transaction` on the one that writes. Each is
one indexed statement, so that an event loop can ask inline.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from holdfast.adapters.store import rows
from holdfast.adapters.store.records import Project, SignedInSession, Token, WorkloadRecord
from holdfast.adapters.store.rows import Row
from holdfast.core.ledger import DriftRecord, HistoryEntry
from holdfast.core.names import WorkloadId

T = TypeVar("T")
NO_LIMIT = -1
"""SQLite's own word for no limit."""


class StoreQueries(ABC):
    """The questions. Where they are asked is for the subclass to say."""

    @abstractmethod
    def query(self, sql: str, values: Sequence[Any], read: Callable[[Row], T]) -> list[T]:
        """Run one statement and read its rows. Also for `ledger_store`, which has its own."""

    @property
    def lineage(self) -> str:
        """Which database this is: copies share it, a new one has its own."""
        return self.query("SELECT lineage FROM meta", (), lambda row: str(row[0]))[0]

    @property
    def serial(self) -> int:
        """How many commits it has had."""
        return self.query("SELECT serial FROM meta", (), lambda row: int(row[0]))[0]

    def record(self, workload: WorkloadId) -> WorkloadRecord | None:
        """Return one workload by its slug."""
        return self._one(
            f"{rows.WORKLOADS.select} WHERE project = ? AND slug = ?",
            (workload.project, workload.slug),
            rows.workload_of,
        )

    def record_by_uid(self, uid: str) -> WorkloadRecord | None:
        """Return one workload by its uid."""
        return self._one(f"{rows.WORKLOADS.select} WHERE uid = ?", (uid,), rows.workload_of)

    def records(
        self, project: str, *, limit: int | None = None, after: str | None = None
    ) -> list[WorkloadRecord]:
        """Return the workloads of a project by slug, from the one after `after` on."""
        return self.query(
            f"{rows.WORKLOADS.select} WHERE project = ? AND slug > ? ORDER BY slug LIMIT ?",
            (project, after or "", NO_LIMIT if limit is None else limit),
            rows.workload_of,
        )

    def workload_count(self) -> int:
        """Return how many workloads there are."""
        return sum(self.query("SELECT count(*) FROM workloads", (), lambda row: int(row[0])))

    def project(self, slug: str) -> Project | None:
        """Return one project."""
        return self._one(f"{rows.PROJECTS.select} WHERE slug = ?", (slug,), rows.project_of)

    def projects(self) -> list[Project]:
        """Return every project, by slug."""
        return self.query(f"{rows.PROJECTS.select} ORDER BY slug", (), rows.project_of)

    def token(self, id: str) -> Token | None:
        """Return one token by its public id, revoked or not."""
        token = self._one(f"{rows.TOKENS.select} WHERE id = ?", (id,), rows.token_of)
        if token is None:
            return None
        owner = self._one(
            f"{rows.TOKEN_OWNERS.select} WHERE token_id = ?", (id,), rows.token_owner_of
        )
        return replace(token, person=owner) if owner else token

    def tokens(self, project: str) -> list[Token]:
        """Return the tokens of a project, oldest first, revoked ones included."""
        return self.query(
            f"{rows.TOKENS.select} WHERE project = ? ORDER BY key", (project,), rows.token_of
        )

    def session(self, id: str) -> SignedInSession | None:
        """Return one session by its public id; also one that has expired and was not removed."""
        return self._one(f"{rows.SESSIONS.select} WHERE id = ?", (id,), rows.session_of)

    def sessions(
        self, *, token_id: str | None = None, person_id: str | None = None
    ) -> list[SignedInSession]:
        """Return the sessions of a token or of a person, oldest first."""
        where, values = _where_clause(token_id=token_id, person_id=person_id)
        return self.query(
            f"{rows.SESSIONS.select} WHERE {where} ORDER BY key", values, rows.session_of
        )

    def drift(self, project: str, id: str) -> DriftRecord | None:
        """Return one drift of a project."""
        return self._one(
            f"{rows.DRIFTS.select} WHERE id = ? AND project = ?", (id, project), rows.drift_of
        )

    def drifts(
        self,
        project: str | None,
        *,
        slug: str | None = None,
        include_resolved: bool = False,
        limit: int = 1000,
    ) -> list[DriftRecord]:
        """Return drifts, newest first; of every project when none is named."""
        where, values = _drifts_clause(project, slug, include_resolved)
        return self.query(
            f"{rows.DRIFTS.select} WHERE {where} ORDER BY seq DESC LIMIT ?",
            (*values, limit),
            rows.drift_of,
        )

    def drift_rows(
        self,
        project: str,
        *,
        slug: str | None = None,
        include_resolved: bool = False,
        before: int | None = None,
        limit: int,
    ) -> list[tuple[int, DriftRecord]]:
        """Return drifts with their places, newest first, from the one before `before` on."""
        where, values = _drifts_clause(project, slug, include_resolved)
        if before is not None:
            where, values = f"{where} AND seq < ?", (*values, before)
        return self.query(
            f"{rows.DRIFTS.select.replace('SELECT ', 'SELECT seq, ', 1)} WHERE {where}"
            " ORDER BY seq DESC LIMIT ?",
            (*values, limit),
            lambda row: (int(row[0]), rows.drift_of(row[1:])),
        )

    def drift_count(
        self, project: str, *, slug: str | None = None, include_resolved: bool = False
    ) -> int:
        """Return how many drifts there are."""
        where, values = _drifts_clause(project, slug, include_resolved)
        counted = f"SELECT count(*) FROM drifts WHERE {where}"  # noqa: S608  # columns of ours
        return sum(self.query(counted, values, lambda row: int(row[0])))

    def drift_place(self, project: str, id: str) -> int | None:
        """Return the place of one drift of a project, which it keeps."""
        return self._one(
            "SELECT seq FROM drifts WHERE id = ? AND project = ?",
            (id, project),
            lambda row: int(row[0]),
        )

    def history(
        self, project: str, *, slug: str | None = None, limit: int = 100, before: int | None = None
    ) -> list[HistoryEntry]:
        """Return audit rows, newest first, from the one before `before` on."""
        where, values = _where_clause(project=project, slug=slug)
        if before is not None:
            where, values = f"{where} AND seq < ?", (*values, before)
        return self.query(
            f"{rows.HISTORY.select} WHERE {where} ORDER BY seq DESC LIMIT ?",
            (*values, limit),
            rows.history_of,
        )

    def recall(self, key: str) -> tuple[str, bytes] | None:
        """Return the request digest and the answer kept under an idempotency key."""
        return self._one(
            f"{rows.ANSWERS.select} WHERE key = ?",
            (rows.key_digest(key),),
            lambda row: (str(rows.open_row(row)[1]), bytes(row[2])),
        )

    def _one(self, sql: str, values: Sequence[Any], read: Callable[[Row], T]) -> T | None:
        found = self.query(sql, values, read)
        return found[0] if found else None


def _drifts_clause(
    project: str | None, slug: str | None, include_resolved: bool
) -> tuple[str, tuple[Any, ...]]:
    where, values = _where_clause(project=project, slug=slug)
    return (where if include_resolved else f"{where} AND resolved_at IS NULL"), values


def _where_clause(**columns: str | None) -> tuple[str, tuple[Any, ...]]:
    given = {name: value for name, value in columns.items() if value is not None}
    clauses = [f"{name} = ?" for name in given] or ["1"]
    return " AND ".join(clauses), tuple(given.values())
