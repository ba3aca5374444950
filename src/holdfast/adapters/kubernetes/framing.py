"""Cuts a stream into lines, of any length and at any cut. Used by watches."""

from __future__ import annotations

LIMIT = 64 * 2**20
"""No object comes near this; a line that does is no event."""


class LineTooLong(Exception):
    """The other side does not speak in lines."""


class LineFramer:
    """Takes bytes as they come and gives whole lines, without their ends and without empty ones."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes. Raises LineTooLong."""
        first, *rest = chunk.split(b"\n")
        # Parts are joined once per line: a long line in small chunks must not cost its square.
        self._parts.append(first)
        self._held += len(first)
        if self._held > self._limit:
            raise LineTooLong(f"a line of more than {self._limit} bytes")
        if not rest:
            return []
        lines = [b"".join(self._parts), *rest[:-1]]
        self._parts = [rest[-1]]
        self._held = len(rest[-1])
        return [line for line in (each.rstrip(b"\r") for each in lines) if line]

    @property
    def partial(self) -> int:
        """How many bytes of an unfinished line are held."""
        return self._held
