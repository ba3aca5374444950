"""Reads server-sent events from a stream of bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from holdfast.core.errors import ApiError

MAX_EVENT = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; `data` may be empty for a comment that only keeps the line open."""

    name: str
    data: str


async def read_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str]:
    """Yield whole lines; what follows the last line end is dropped, for it may be cut."""
    rest = b""
    async for chunk in chunks:
        rest += chunk
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode("utf-8", "replace")
        if len(rest) > MAX_EVENT:
            raise ApiError(f"A line of over {MAX_EVENT >> 20} MiB came in a stream.")


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[Event]:
    """Yield each event once its closing blank line is there."""
    name, data, size = "message", list[str](), 0
    async for line in read_lines(chunks):
        if not line:
            if data:
                yield Event(name=name, data="\n".join(data))
            name, data, size = "message", [], 0
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
            size += len(value)
            if size > MAX_EVENT:
                raise ApiError(f"An event of over {MAX_EVENT >> 20} MiB came in a stream.")
        elif not field:
            yield Event(name="comment", data="")
