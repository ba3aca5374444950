"""The GitOps controller's ledger in PostgreSQL, where several controllers share one."""

from __future__ import annotations

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.postgres.book import PostgresBook
from holdfast.adapters.postgres.schema import migrate
from holdfast.adapters.postgres.sessions import PATIENCE, Sessions
from holdfast.core.redact import Secret
from holdfast.reconcile.ports import Clock

__all__ = ["PostgresBook", "open_book"]


async def open_book(
    dsn: Secret, *, clock: Clock | None = None, patience: float = PATIENCE
) -> PostgresBook:
    """Connect, bring the tables up to date and return the book; `aclose` it in the same loop.

    The address is one of libpq's, `postgresql://user@host/database?sslmode=verify-full`; a
    password may stand in it, in PGPASSWORD or in a password file. Raises ConfigurationError for
    an address or a database that cannot do, AuthError for a refused credential and
    TargetUnavailable when it does not answer within `patience` seconds; none shows the address.
    """
    sessions = Sessions(dsn, patience=patience)
    try:
        await sessions.open(migrate)
    except BaseException:
        sessions.terminate()
        raise
    return PostgresBook(sessions, clock or SystemClock())
