"""What every long answer needs: noticing that the client left, or may no longer listen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from holdfast.apps.server.request import HttpStream, Request, encode_json

if TYPE_CHECKING:
    from holdfast.apps.server.services import Services

SSE_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
PING_SECONDS = 15.0
"""Seconds of silence after which a stream says that it is alive."""

T = TypeVar("T")


class StreamEnd(StrEnum):
    """Why a stream was ended from outside."""

    LEFT = "left"
    REVOKED = "revoked"
    CLOSING = "closing"


class ClientWatch:
    """Says afterwards why the work was ended; None when it ended by itself."""

    ended: StreamEnd | None = None


@asynccontextmanager
async def watch_client(
    services: Services,
    request: Request,
    *,
    until_closing: bool,
    body_read: asyncio.Event | None = None,
) -> AsyncIterator[ClientWatch]:
    """Cancel the block when the client leaves or its credential is revoked.

    With `until_closing` also when the server is told to stop. The cancellation stays inside:
    after the block, `Watch.ended` has the reason. A block that reads the request's body itself
    says with `body_read` when it is done, for only one may wait for what the client sends.
    """
    watch = ClientWatch()
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # we run in one
    watcher = asyncio.create_task(
        _watch_until_end(services, request, watch, task, until_closing, body_read)
    )
    try:
        yield watch
    except asyncio.CancelledError:
        if watch.ended is None:
            raise
        task.uncancel()
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher


async def _watch_until_end(
    services: Services,
    request: Request,
    watch: ClientWatch,
    task: asyncio.Task[object],
    until_closing: bool,
    body_read: asyncio.Event | None,
) -> None:
    left = asyncio.create_task(_wait_for_disconnect(request, body_read))
    closing = asyncio.create_task(services.closing.wait())
    try:
        while watch.ended is None:
            awaited = [left, closing] if until_closing else [left]
            await asyncio.wait(
                awaited,
                timeout=services.config.limits.recheck_time,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if left.done():
                watch.ended = StreamEnd.LEFT
            elif until_closing and closing.done():
                watch.ended = StreamEnd.CLOSING
            elif request.token and not services.still_good(request.token):
                watch.ended = StreamEnd.REVOKED
        task.cancel()
    finally:
        left.cancel()
        closing.cancel()


async def _wait_for_disconnect(request: Request, body_read: asyncio.Event | None) -> None:
    if body_read is not None:
        await body_read.wait()
    while (await request.receive())["type"] != "http.disconnect":
        pass


def server_sent_event(form: object) -> bytes:
    """Write one server-sent event."""
    return b"data: " + encode_json(form) + b"\n\n"


def event_stream_response(
    services: Services, request: Request, forms: AsyncIterator[object]
) -> HttpStream:
    """Answer with events, and with a sign of life while there are none."""
    return HttpStream(headers=list(SSE_HEADERS), chunks=_event_chunks(services, request, forms))


async def _event_chunks(
    services: Services, request: Request, forms: AsyncIterator[object]
) -> AsyncIterator[bytes]:
    with services.metrics.streams.track_inprogress():
        async with aclosing(with_pings(forms, b": alive\n\n")) as chunks:
            async for chunk in chunks:
                yield chunk if isinstance(chunk, bytes) else server_sent_event(chunk)


async def with_pings(items: AsyncIterator[T], ping: bytes) -> AsyncGenerator[T | bytes, None]:
    """Pass items on; after each silence, give a ping instead."""
    pending: asyncio.Task[T] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(items))
            done, _ = await asyncio.wait([pending], timeout=PING_SECONDS)
            if not done:
                yield ping
                continue
            try:
                item = pending.result()
            except StopAsyncIteration:
                return
            pending = None
            yield item
    finally:
        if pending is not None:
            pending.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await pending
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()
