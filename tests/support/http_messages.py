"""Reads HTTP/1.1 messages without changing a byte, for a proxy that must pass them on as they were.

Called by the fault proxy alone. It trusts both sides to speak HTTP correctly:
the peers are our own client and our own server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus

BLOCK = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A first line and headers; `raw` is how they came, blank line included."""

    raw: bytes
    first_line: str
    headers: dict[str, str]
    """Names in lower case; values of a repeated name are joined by a comma."""

    @property
    def status(self) -> int:
        return int(self.first_line.split(" ", 2)[1])

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A whole response. Its body is free of chunk framing."""

    status: int
    headers: dict[str, str]
    body: bytes

    def encode(self) -> bytes:
        """Give the bytes to send, with the framing that fits the body."""
        framing = ("transfer-encoding", "content-length")
        headers = {name: text for name, text in self.headers.items() if name.lower() not in framing}
        headers["content-length"] = str(len(self.body))
        try:
            phrase = HTTPStatus(self.status).phrase
        except ValueError:
            phrase = "Unknown"
        lines = [f"HTTP/1.1 {self.status} {phrase}"]
        lines += [f"{name}: {text}" for name, text in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + self.body


async def read_head(reader: asyncio.StreamReader) -> Head:
    raw = await reader.readuntil(b"\r\n\r\n")
    first_line, *lines = raw[:-4].decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, text = line.partition(":")
        key = name.strip().lower()
        headers[key] = f"{headers[key]}, {text.strip()}" if key in headers else text.strip()
    return Head(raw=raw, first_line=first_line, headers=headers)


async def request_body(reader: asyncio.StreamReader, head: Head) -> tuple[bytes, bytes]:
    """Read a request's body; give it as it came and as it was meant."""
    if not head.chunked and "content-length" not in head.headers:
        return b"", b""
    raw = b"".join([block async for block in body_blocks(reader, head)])
    return raw, unchunk(raw) if head.chunked else raw


async def body_blocks(reader: asyncio.StreamReader, head: Head) -> AsyncIterator[bytes]:
    """Yield a body as it comes, framing included, up to its end or the connection's."""
    if head.chunked:
        async for block in _chunks(reader):
            yield block
        return
    length = head.headers.get("content-length")
    left = int(length) if length is not None else None
    while left is None or left > 0:
        block = await reader.read(BLOCK if left is None else min(BLOCK, left))
        if not block:
            if left:
                raise EOFError("the body ended before its length")
            return
        left = None if left is None else left - len(block)
        yield block


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if size:
            yield line + await reader.readexactly(size + 2)
            continue
        while (trailer := await reader.readuntil(b"\r\n")) != b"\r\n":
            line += trailer
        yield line + b"\r\n"
        return


def unchunk(raw: bytes) -> bytes:
    """Take the framing off a chunked body that is known to be whole."""
    body, place = bytearray(), 0
    while True:
        end = raw.index(b"\r\n", place)
        size = int(raw[place:end].partition(b";")[0], 16)
        if not size:
            return bytes(body)
        body += raw[end + 2 : end + 2 + size]
        place = end + 2 + size + 2
