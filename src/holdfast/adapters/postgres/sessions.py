"""Connections to PostgreSQL, each used for one transaction and dropped when in doubt.

A transaction ends committed, undone, or with an unknown outcome. This is also the one place where
asyncpg's exceptions become ours. An address may hold a password, and a mistyped one ends up where a
host or port was meant to be, so only what is surely no part of it is shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]  # see `connection`

from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    AuthError,
    ConfigurationError,
    HoldfastError,
    TargetUnavailable,
)
from holdfast.core.quantity import format_seconds
from holdfast.core.redact import Secret, redact


class PostgresRow(Protocol):
    """One row of an answer."""

    def __getitem__(self, column: str) -> Any:  # Any: one type a column, by its schema
        """Return a column by its name."""

    def __iter__(self) -> Iterator[Any]:
        """Give the columns in their order."""


class PostgresConnection(Protocol):
    """A connection inside a transaction. Any: each statement knows the types it takes."""

    async def execute(self, sql: str, *values: Any) -> str:
        """Carry out a statement and return what PostgreSQL calls it, such as `DELETE 3`."""

    async def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Carry out a statement once for each row."""

    async def fetch(self, sql: str, *values: Any) -> list[PostgresRow]:
        """Return every row."""

    async def fetchrow(self, sql: str, *values: Any) -> PostgresRow | None:
        """Return the first row, or None."""

    async def fetchval(self, sql: str, *values: Any) -> Any:
        """Return the first column of the first row, or None."""


ASYNCPG_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # a time-out is one
)
"""Whatever asyncpg raises when a server or a network fails."""

_REFUSED_CREDENTIALS = asyncpg.InvalidAuthorizationSpecificationError
_LOST_CONNECTION = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    ConnectionError,
)
_UNFIT_DATABASE = (
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UnsupportedClientFeatureError,
    asyncpg.UnsupportedServerFeatureError,
)


def display_address(dsn: Secret) -> str:
    """Name the server for messages: host and database, never user or password.

    Raises ConfigurationError for an address that is none.
    """
    text = dsn.reveal()
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    # With a second `@`, a `/` or a `#` in a password, part of it would be taken for the host.
    host = parts.netloc.rpartition("@")[2]
    if (
        parts.scheme not in ("postgresql", "postgres")
        or text.count("@") > ("@" in parts.netloc)
        or not re.fullmatch(r"[\w.,:%\[\]-]*", host)
    ):
        raise ConfigurationError(
            "The address of the database cannot be read.",
            hint="Write postgresql://user@host:port/database, with every special character of a "
            "password percent-encoded (@ is %40, / is %2F, # is %23), or leave the password to "
            "PGPASSWORD or a password file.",
        )
    return f"{host or 'this machine'}{parts.path}"


def is_connection_lost(error: BaseException) -> bool:
    """True when the connection ended, as it does when a server is restarted."""
    return isinstance(error, _LOST_CONNECTION) or (
        isinstance(error, asyncpg.InterfaceError) and "closed" in str(error)
    )


def postgres_error(
    error: BaseException, address: str, *, transaction_timeout: float, committing: bool = False
) -> TargetUnavailable:
    """Turn a failure during work into one of ours."""
    return TargetUnavailable(
        _describe(error, address, transaction_timeout),
        changed=OUTCOME_UNKNOWN if committing else NOTHING_CHANGED,
        hint="Read the record again once it answers." if committing else "Try again later.",
    )


def connect_error(
    error: BaseException, address: str, *, transaction_timeout: float
) -> HoldfastError:
    """Turn a failure to open into one of ours, by who can fix it."""
    said = _describe(error, address, transaction_timeout)
    if isinstance(error, _REFUSED_CREDENTIALS):
        return AuthError(said, hint="Check the user and the password.")
    if isinstance(error, _UNFIT_DATABASE):
        return ConfigurationError(
            said, hint="Name a database in which this user may create and write tables."
        )
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return ConfigurationError(
            "The address of the database cannot be read.",
            hint="Check its port, its parameters and its certificates.",
        )
    return postgres_error(error, address, transaction_timeout=transaction_timeout)


def _describe(error: BaseException, address: str, transaction_timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"PostgreSQL at {address} gave no answer in {format_seconds(transaction_timeout)}."
    if isinstance(error, asyncpg.PostgresError):
        # The first line only: those behind it quote rows.
        message = redact(str(error).partition("\n")[0])[:200].rstrip(".")
        return f"PostgreSQL at {address} answered: {message} ({error.sqlstate})."
    if isinstance(error, OSError):
        why = error.strerror or str(error) or type(error).__name__
        return f"PostgreSQL at {address} could not be reached ({why})."
    return f"The connection to PostgreSQL at {address} failed ({type(error).__name__})."


TRANSACTION_TIMEOUT = 30.0
"""Seconds for one transaction, connecting included."""
MAX_CONNECTIONS = 4
"""Connections at a time: writers wait for each other anyway, readers are quick."""
CLOSE_TIMEOUT = 5.0
"""Seconds to say good-bye in."""
T = TypeVar("T")
PostgresWork = Callable[[PostgresConnection], Awaitable[T]]

# Set for one transaction at a time, so that a pooler may stand in between. A controller that is
# frozen in the middle must not hold the others up, and a commit that returned must be on disk
# whatever the server's own setting is.
_SETTINGS = """SELECT
    set_config('lock_timeout', '{milliseconds}', true),
    set_config('statement_timeout', '{milliseconds}', true),
    set_config('idle_in_transaction_session_timeout', '{milliseconds}', true),
    set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'),
        true)"""


@dataclass(slots=True)
class _CommitProgress:
    committing: bool = False


class PostgresSessions:
    """A pool of connections to one database. For one event loop."""

    def __init__(self, dsn: Secret, *, transaction_timeout: float) -> None:
        self.address = display_address(dsn)
        self._transaction_timeout = transaction_timeout
        self._settings = _SETTINGS.format(milliseconds=int(transaction_timeout * 1000))
        self._pool = asyncpg.create_pool(
            dsn.reveal(),
            min_size=0,
            max_size=MAX_CONNECTIONS,
            timeout=transaction_timeout,
            command_timeout=transaction_timeout,
            reset=_no_reset,
        )

    async def open(self, work: PostgresWork[None]) -> None:
        """Connect for the first time and run a work; raises what the owner can mend."""
        try:
            async with asyncio.timeout(self._transaction_timeout):
                await self._pool
                await self._once(work, _CommitProgress())
        except (*ASYNCPG_ERRORS, ValueError) as error:
            failure = connect_error(
                error, self.address, transaction_timeout=self._transaction_timeout
            )
            # An address that could not be read is quoted in the error that says so.
            raise failure from (error if isinstance(error, OSError) else None)

    async def run(self, work: PostgresWork[T]) -> T:
        """Run a work in a transaction of its own.

        Once more where the connection turns out to be gone and nothing was committed. After a
        restart of the server every connection of the pool is gone, although not each has been
        noticed yet, so the second try gets a new one.
        """
        first = True
        while True:
            progress = _CommitProgress()
            try:
                async with asyncio.timeout(self._transaction_timeout):
                    return await self._once(work, progress)
            except ASYNCPG_ERRORS as error:
                # When the session is read-only another server leads now: find it.
                if isinstance(error, asyncpg.ReadOnlySQLTransactionError) or is_connection_lost(
                    error
                ):
                    await self._pool.expire_connections()
                if progress.committing or not first or not is_connection_lost(error):
                    raise postgres_error(
                        error,
                        self.address,
                        transaction_timeout=self._transaction_timeout,
                        committing=progress.committing,
                    ) from error
                first = False

    async def aclose(self) -> None:
        """Close every connection, by force where the server does not answer."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._pool.close()
        except ASYNCPG_ERRORS:
            self.terminate()

    def terminate(self) -> None:
        """Close every connection at once."""
        self._pool.terminate()

    async def _once(self, work: PostgresWork[T], progress: _CommitProgress) -> T:
        connection = await self._pool.acquire()
        try:
            transaction = connection.transaction(isolation="read_committed")
            await transaction.start()
            try:
                await connection.execute(self._settings)
                value = await work(connection)
            except HoldfastError:
                await transaction.rollback()
                raise
            progress.committing = True
            await transaction.commit()
        except HoldfastError:
            await self._give_back(connection)
            raise
        except BaseException:
            # Whatever state it is in: the server undoes what was not committed.
            with contextlib.suppress(asyncpg.InterfaceError):  # it is closed already
                connection.terminate()
            raise
        await self._give_back(connection)
        return value

    async def _give_back(self, connection: PostgresConnection) -> None:
        with contextlib.suppress(*ASYNCPG_ERRORS):  # the work is done, and the pool drops a bad one
            await self._pool.release(connection, timeout=CLOSE_TIMEOUT)


async def _no_reset(_connection: PostgresConnection) -> None:
    """Between two works nothing has to be set back: settings end with their transaction."""
