"""What this package asks of a connection, typed here because asyncpg ships no types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Row(Protocol):
    """One row of an answer."""

    def __getitem__(self, column: str) -> Any:  # Any: one type a column, by its schema
        """Return a column by its name."""


class Connection(Protocol):
    """A connection inside a transaction. Any: each statement knows the types it takes."""

    async def execute(self, sql: str, *values: Any) -> str:
        """Carry out a statement and return what PostgreSQL calls it, such as `DELETE 3`."""

    async def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Carry out a statement once for each row."""

    async def fetch(self, sql: str, *values: Any) -> list[Row]:
        """Return every row."""

    async def fetchrow(self, sql: str, *values: Any) -> Row | None:
        """Return the first row, or None."""

    async def fetchval(self, sql: str, *values: Any) -> Any:
        """Return the first column of the first row, or None."""
