"""Keeps what replicas print: bounded files that a child appends to by itself.

The child holds its file open for life, so a file is never renamed away from it: the end is
copied aside and the file cut to nothing, which an appending writer does not notice. Readers
follow by logical position, which rotation does not disturb.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

_BLOCK_BYTES = 1024 * 1024
_MAX_LINE_BYTES = 16 * 1024


class ReplicaLog:
    """The log of one replica: the current file and the one before it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.replica = path.name.removesuffix(".log")
        self._before = path.with_suffix(".log.1")
        self._base = _file_size(self._before)
        """Logical position of the current file's first byte."""

    @property
    def start(self) -> int:
        """Logical position of the first byte that is still kept."""
        return self._base - _file_size(self._before)

    @property
    def end(self) -> int:
        """Logical position after the last byte."""
        return self._base + _file_size(self.path)

    @property
    def written_at(self) -> float:
        """When it was last written to, as the file system says."""
        with suppress(OSError):
            return self.path.stat().st_mtime
        return 0.0

    def rotate(self, limit: int) -> bool:
        """Cut the file once it is over the limit, keeping its last `limit` bytes aside."""
        if _file_size(self.path) <= limit:
            return False
        fresh = self.path.with_suffix(".log.new")
        with suppress(OSError), self.path.open("r+b") as current, fresh.open("wb") as kept:
            size = os.fstat(current.fileno()).st_size
            current.seek(size - limit)
            left = limit
            while left and (block := current.read(min(_BLOCK_BYTES, left))):
                left -= len(block)
                kept.write(block)
            kept.flush()
            os.replace(fresh, self._before)
            # What the child wrote since we read the size is cut too: under a flood
            # a few lines are lost, never the disk.
            current.truncate(0)
            self._base += size
        return True

    def read(self, position: int, most: int = _BLOCK_BYTES) -> tuple[bytes, int]:
        """Return bytes from a logical position, and the position after them.

        A position that is no longer kept moves up to the oldest that is.
        """
        position = max(position, self.start)
        path, offset = self.path, position - self._base
        if offset < 0:
            path, offset = self._before, position - self.start
        data = b""
        with suppress(OSError), path.open("rb") as file:
            file.seek(offset)
            data = file.read(most)
        if not data and path is self._before:
            return self.read(self._base, most)
        return data, position + len(data)

    def tail(self, lines: int, *, since: int = 0) -> list[str]:
        """Return the last lines that were written from `since` on, the unfinished one too."""
        data = self._last_block(since)[0]
        return [printable_line(line) for line in data.splitlines()][-lines:] if lines > 0 else []

    def whole_tail(self, lines: int) -> tuple[list[str], int]:
        """Return the last finished lines, and the position after them to follow from."""
        data, position = self._last_block(0)
        *whole, rest = data.split(b"\n")
        shown = [printable_line(line) for line in whole][-lines:] if lines > 0 else []
        return shown, position - len(rest)

    def _last_block(self, since: int) -> tuple[bytes, int]:
        position = max(since, self.start, self.end - _BLOCK_BYTES)
        collected = b""
        while len(collected) < 2 * _BLOCK_BYTES:  # a flood may write faster than we read
            data, position = self.read(position)
            if not data:
                break
            collected += data
        return collected, position

    def scrub(self, overwrite: Callable[[bytes], bytes]) -> None:
        """Rewrite what is kept, once nobody appends any more. The length must not change."""
        for path in (self.path, self._before):
            with suppress(OSError), path.open("r+b") as file:
                written = file.read()
                clean = overwrite(written)
                if clean != written:
                    file.seek(0)
                    file.write(clean)

    def remove(self) -> None:
        """Delete the files."""
        for path in (self.path, self._before):
            path.unlink(missing_ok=True)


class LogFollower:
    """Reads a log line by line from a position on."""

    def __init__(self, log: ReplicaLog, position: int) -> None:
        self._log = log
        self._position = position
        self._rest = b""

    def lines(self) -> Iterator[str]:
        """Yield the lines that were completed since the last call."""
        while True:
            data, self._position = self._log.read(self._position)
            if not data:
                return
            *whole, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > _MAX_LINE_BYTES:
                whole.append(self._rest)
                self._rest = b""
            yield from (printable_line(line) for line in whole)


def printable_line(line: bytes) -> str:
    """Make one line of output safe to pass on: text, of bounded length, no control codes."""
    text = line[:_MAX_LINE_BYTES].decode(errors="replace").rstrip("\r")
    return "".join(letter if letter.isprintable() or letter == "\t" else "�" for letter in text)


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
