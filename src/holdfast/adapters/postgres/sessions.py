"""Connections to PostgreSQL, each used for one transaction and thrown away when in doubt.

A transaction ends committed, undone, or with its outcome said to be unknown. Called by the book.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import asyncpg  # type: ignore[import-untyped]  # see `connection`

from holdfast.adapters.postgres.connection import Connection
from holdfast.adapters.postgres.errors import FOREIGN, place_of, refused, translated, was_lost
from holdfast.core.errors import HoldfastError
from holdfast.core.redact import Secret

PATIENCE = 30.0
"""Seconds for one transaction, connecting included."""
MOST = 4
"""Connections at a time: writers wait for each other anyway, readers are quick."""
CLOSING = 5.0
"""Seconds to say good-bye in."""
T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]

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
class _Progress:
    committing: bool = False


class Sessions:
    """A pool of connections to one database. For one event loop."""

    def __init__(self, dsn: Secret, *, patience: float) -> None:
        self.place = place_of(dsn)
        self._patience = patience
        self._settings = _SETTINGS.format(milliseconds=int(patience * 1000))
        self._pool = asyncpg.create_pool(
            dsn.reveal(),
            min_size=0,
            max_size=MOST,
            timeout=patience,
            command_timeout=patience,
            reset=_as_it_is,
        )

    async def open(self, work: Work[None]) -> None:
        """Connect for the first time and run a work; raises what the owner can mend."""
        try:
            async with asyncio.timeout(self._patience):
                await self._pool
                await self._once(work, _Progress())
        except (*FOREIGN, ValueError) as error:
            failure = refused(error, self.place, patience=self._patience)
            # An address that could not be read is quoted in the error that says so.
            raise failure from (error if isinstance(error, OSError) else None)

    async def run(self, work: Work[T]) -> T:
        """Run a work in a transaction of its own.

        Once more where the connection turns out to be gone and nothing was committed. After a
        restart of the server every connection of the pool is gone, although not each has been
        noticed yet, so the second try gets a new one.
        """
        first = True
        while True:
            progress = _Progress()
            try:
                async with asyncio.timeout(self._patience):
                    return await self._once(work, progress)
            except FOREIGN as error:
                # When the session is read-only another server leads now: find it.
                if isinstance(error, asyncpg.ReadOnlySQLTransactionError) or was_lost(error):
                    await self._pool.expire_connections()
                if progress.committing or not first or not was_lost(error):
                    raise translated(
                        error, self.place, patience=self._patience, committing=progress.committing
                    ) from error
                first = False

    async def aclose(self) -> None:
        """Close every connection, by force where the server does not answer."""
        try:
            async with asyncio.timeout(CLOSING):
                await self._pool.close()
        except FOREIGN:
            self.terminate()

    def terminate(self) -> None:
        """Close every connection at once."""
        self._pool.terminate()

    async def _once(self, work: Work[T], progress: _Progress) -> T:
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

    async def _give_back(self, connection: Connection) -> None:
        with contextlib.suppress(*FOREIGN):  # the work is done, and the pool drops a bad one
            await self._pool.release(connection, timeout=CLOSING)


async def _as_it_is(_connection: Connection) -> None:
    """Between two works nothing has to be set back: settings end with their transaction."""
