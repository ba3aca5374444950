"""The three ledgers of the GitOps controller, opened alike, and small values to write in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.memory_ledger import MemoryLedgerStore

from holdfast.adapters.clock import SystemClock
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


class LedgerBackend:
    """Where one ledger is kept: opened as often as wanted, it is the same one."""

    name: str

    def __init__(self) -> None:
        self.clock = SettableClock()

    def open(self) -> AbstractAsyncContextManager[LedgerStore]:
        raise NotImplementedError


class MemoryLedger(LedgerBackend):
    name = "memory"

    def __init__(self) -> None:
        super().__init__()
        self._ledger = MemoryLedgerStore(self.clock)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[LedgerStore]:
        yield self._ledger
        await self._ledger.aclose()


class SqliteLedger(LedgerBackend):
    name = "sqlite"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    @asynccontextmanager
    async def open(self) -> AsyncIterator[LedgerStore]:
        with Store.open(self.path, clock=self.clock) as store:
            ledger = SqliteLedgerStore(store)
            yield ledger
            await ledger.aclose()


class PostgresLedger(LedgerBackend):
    name = "postgres"

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.dsn = dsn

    @asynccontextmanager
    async def open(self) -> AsyncIterator[LedgerStore]:
        ledger = await open_ledger_store(Secret(self.dsn), clock=self.clock)
        try:
            yield ledger
        finally:
            await ledger.aclose()


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
    action: str = "detected",
) -> JournalEntry:
    return JournalEntry(
        application=application,
        subject=subject,
        action=action,
        actor="holdfast-gitops",
        summary=summary,
        detail=detail or {},
        at=at,
    )
