"""The three books of the GitOps controller, opened alike, and small values to write in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.memory.ledger_store import MemoryLedgerStore
from holdfast.adapters.postgres import open_ledger_store
from holdfast.adapters.store import Store
from holdfast.adapters.store.ledger_store import SqliteLedgerStore
from holdfast.core.redact import Secret
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.ports import JournalEntry, LedgerStore, LedgerWrite, RecordKind

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class SettableClock(SystemClock):
    """The time is what the test says."""

    def __init__(self) -> None:
        self.time = NOON

    def now(self) -> datetime:
        return self.time

    def forward(self, **by: float) -> datetime:
        self.time += timedelta(**by)
        return self.time


class Shelf:
    """Where one book is kept: opened as often as wanted, it is the same one."""

    name: str

    def __init__(self) -> None:
        self.clock = SettableClock()

    def open(self) -> AbstractAsyncContextManager[LedgerStore]:
        raise NotImplementedError


class MemoryLedger(Shelf):
    name = "memory"

    def __init__(self) -> None:
        super().__init__()
        self._book = MemoryLedgerStore(self.clock)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[LedgerStore]:
        yield self._book
        await self._book.aclose()


class SqliteLedger(Shelf):
    name = "sqlite"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    @asynccontextmanager
    async def open(self) -> AsyncIterator[LedgerStore]:
        with Store.open(self.path, clock=self.clock) as store:
            book = SqliteLedgerStore(store)
            yield book
            await book.aclose()


class PostgresLedger(Shelf):
    name = "postgres"

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.dsn = dsn

    @asynccontextmanager
    async def open(self) -> AsyncIterator[LedgerStore]:
        book = await open_ledger_store(Secret(self.dsn), clock=self.clock)
        try:
            yield book
        finally:
            await book.aclose()


def record_put(
    key: str,
    seen: int = 0,
    *,
    kind: RecordKind = RecordKind.DRIFT,
    application: str = "team/chat",
    state: str = "open",
    body: Fields | None = None,
) -> LedgerWrite:
    return LedgerWrite(
        kind=kind,
        application=application,
        key=key,
        seen=seen,
        state=state,
        body={"key": key} if body is None else body,
    )


def record_removal(key: str, seen: int, *, application: str = "team/chat") -> LedgerWrite:
    return LedgerWrite(
        kind=RecordKind.DRIFT, application=application, key=key, seen=seen, body=None
    )


def journal_entry(
    summary: str,
    *,
    subject: str = "",
    application: str = "team/chat",
    at: datetime = NOON,
    detail: Fields | None = None,
) -> JournalEntry:
    return JournalEntry(
        application=application,
        subject=subject,
        action="detected",
        actor="holdfast-gitops",
        summary=summary,
        detail=detail or {},
        at=at,
    )
