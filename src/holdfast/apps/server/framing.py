"""Follows the framing of a chunked request body, byte for byte, and allows nothing optional.

The HTTP parser lets chunk extensions and trailers pass. Nobody we serve sends them, and
proxies disagree about where they end, which is how requests are smuggled. Called by the
protocol for every piece of a chunked body, before the parser sees it.
"""

from __future__ import annotations

import re

_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}")
_LONGEST_LINE = 8 + 2


class BadFraming(Exception):
    """The body is not framed as we accept it."""


class Chunks:
    """The state of one chunked body."""

    __slots__ = ("_data", "_last", "_line", "ended")

    def __init__(self) -> None:
        self._data = 0
        """How much of the current chunk is to come, its line end included."""
        self._line = b""
        self._last = False
        self.ended = False

    def feed(self, piece: bytes) -> bytes:
        """Check the next piece; return what lies beyond the end of the body."""
        place = 0
        while place < len(piece) and not self.ended:
            if self._data > 2:
                step = min(self._data - 2, len(piece) - place)
                self._data -= step
                place += step
            elif self._data:
                if piece[place] != b"\r\n"[2 - self._data]:
                    raise BadFraming("a chunk is longer than it said")
                self._data -= 1
                place += 1
            else:
                place = self._size_line(piece, place)
        return piece[place:]

    def _size_line(self, piece: bytes, place: int) -> int:
        end = piece.find(b"\n", place)
        stop = len(piece) if end < 0 else end + 1
        self._line += piece[place:stop]
        if len(self._line) > _LONGEST_LINE:
            raise BadFraming("a chunk has an extension")
        if end < 0:
            return stop
        line, self._line = self._line, b""
        if not line.endswith(b"\r\n"):
            raise BadFraming("a line ends without a carriage return")
        if self._last:
            if line != b"\r\n":
                raise BadFraming("there are trailers")
            self.ended = True
            return stop
        if not _SIZE.fullmatch(line[:-2]):
            raise BadFraming("a chunk has no plain size")
        size = int(line[:-2], 16)
        self._last = size == 0
        self._data = size + 2 if size else 0
        return stop
