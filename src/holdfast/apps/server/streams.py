"""What every long answer needs: noticing that the client left, or may no longer listen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from holdfast.apps.server.request import Request, Stream, encode

if TYPE_CHECKING:
    from holdfast.apps.server.services import Services

SSE = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
PING = 15.0
"""Seconds of silence after which a stream says that it is alive."""

T = TypeVar("T")


class Ended(StrEnum):
    """Why a stream was ended from outside."""

    LEFT = "left"
    REVOKED = "revoked"
    CLOSING = "closing"


class Watch:
    """Says afterwards why the work was ended; None when it ended by itself."""

    ended: Ended | None = None


@asynccontextmanager
async def watching(
    services: Services,
    request: Request,
    *,
    until_closing: bool,
    body_read: asyncio.Event | None = None,
) -> AsyncIterator[Watch]:
    """Cancel the block when the client leaves or its credential is revoked.

    With `until_closing` also when the server is told to stop. The cancellation stays inside:
    after the block, `Watch.ended` has the reason. A block that reads the request's body itself
    says with `body_read` when it is done, for only one may wait for what the client sends.
    """
    watch = Watch()
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # we run in one
    watcher = asyncio.create_task(_watch(services, request, watch, task, until_closing, body_read))
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


async def _watch(
    services: Services,
    request: Request,
    watch: Watch,
    task: asyncio.Task[object],
    until_closing: bool,
    body_read: asyncio.Event | None,
) -> None:
    left = asyncio.create_task(_disconnected(request, body_read))
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
                watch.ended = Ended.LEFT
            elif until_closing and closing.done():
                watch.ended = Ended.CLOSING
            elif request.token and not services.still_good(request.token):
                watch.ended = Ended.REVOKED
        task.cancel()
    finally:
        left.cancel()
        closing.cancel()


async def _disconnected(request: Request, body_read: asyncio.Event | None) -> None:
    if body_read is not None:
        await body_read.wait()
    while (await request.receive())["type"] != "http.disconnect":
        pass


def event(form: object) -> bytes:
    """Write one server-sent event."""
    return b"data: " + encode(form) + b"\n\n"


def event_stream(services: Services, request: Request, forms: AsyncIterator[object]) -> Stream:
    """Answer with events, and with a sign of life while there are none."""
    return Stream(headers=list(SSE), chunks=_events(services, request, forms))


async def _events(
    services: Services, request: Request, forms: AsyncIterator[object]
) -> AsyncIterator[bytes]:
    with services.metrics.streams.track_inprogress():
        async for chunk in with_pings(forms, b": alive\n\n"):
            yield chunk if isinstance(chunk, bytes) else event(chunk)


async def with_pings(items: AsyncIterator[T], ping: bytes) -> AsyncIterator[T | bytes]:
    """Pass items on; after each silence, give a ping instead."""
    pending: asyncio.Task[T] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(items))
            done, _ = await asyncio.wait([pending], timeout=PING)
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
