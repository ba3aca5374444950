"""The GitOps controller's ledger in PostgreSQL, where several controllers share one."""

from __future__ import annotations

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.postgres.ledger_store import PostgresLedgerStore
from holdfast.adapters.postgres.schema import migrate_schema
from holdfast.adapters.postgres.sessions import TRANSACTION_TIMEOUT, PostgresSessions
from holdfast.core.redact import Secret
from holdfast.reconcile.ports import Clock

__all__ = ["PostgresLedgerStore", "open_ledger_store"]


async def open_ledger_store(
    dsn: Secret, *, clock: Clock | None = None, transaction_timeout: float = TRANSACTION_TIMEOUT
) -> PostgresLedgerStore:
    """Connect, bring the tables up to date and return the book; `aclose` it in the same loop.

    The address is one of libpq's, `postgresql://user@host/database?sslmode=verify-full`; a
    password may stand in it, in PGPASSWORD or in a password file. Raises ConfigurationError for
    an address or a database that cannot do, AuthError for a refused credential and
    TargetUnavailable when it does not answer within `patience` seconds; none shows the address.
    """
    sessions = PostgresSessions(dsn, transaction_timeout=transaction_timeout)
    try:
        await sessions.open(migrate_schema)
    except BaseException:
        sessions.terminate()
        raise
    return PostgresLedgerStore(sessions, clock or SystemClock())
