"""Live events with ids: what happened is encoded once, kept for a while, and can be resumed.

A hub has one log for each project: the last events, as the bytes that every stream sends. A stream
is a place in that log and no queue of its own, so a thousand slow readers cost no memory; one that
falls behind the oldest event is cut. Whoever comes back says the last id that they have, and gets
what they missed, or one `reset` where that is not known any more: read everything anew.

Ids begin at the time at which the hub was made, in microseconds. So those of another process are
never taken for ours, and they stay within what JavaScript counts exactly.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from holdfast.adapters.clock import SystemClock
from holdfast.apps.server.request import HttpStream, Request, encode_json
from holdfast.apps.server.streams import event_stream_response

if TYPE_CHECKING:
    from holdfast.apps.server.services import Services

MAX_KEPT_EVENTS = 1_024
"""Of each project."""
MAX_EVENT_ID = 2**53 - 1


class EventLog:
    """The last events of one project."""

    __slots__ = ("_changed", "_events", "last")

    def __init__(self, last: int, size: int) -> None:
        self._events: deque[bytes] = deque(maxlen=size)
        self._changed = asyncio.Event()
        self.last = last
        """The id of the newest event, or the one before the first."""

    @property
    def oldest(self) -> int:
        """The lowest id after which everything is still here."""
        return self.last - len(self._events)

    def append(self, form: object, event: str) -> None:
        """Write one event, and wake whoever waits for it."""
        self.last += 1
        self._events.append(encode_event(form, id=self.last, event=event))
        self._wake()

    def forget(self) -> None:
        """Drop what is kept, as something may have been missed: nobody can resume from before."""
        self._events.clear()
        self.last += 1
        self._wake()

    def after(self, id: int) -> bytes:
        """Return all events after one whose successors are still here."""
        count = self.last - id
        if count == 1:
            return self._events[-1]
        return b"".join(list(self._events)[len(self._events) - count :])

    async def wait(self, id: int) -> None:
        """Wait until there is an event after this one."""
        while self.last == id:
            await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class EventHub:
    """The live events of one server, by project. Used from its event loop only."""

    def __init__(self, *, size: int = MAX_KEPT_EVENTS, base_url: str = "") -> None:
        """`base_url` is where people reach the page, for whoever publishes; empty: unknown."""
        self.base_url = base_url
        self._begin = int(SystemClock().now().timestamp() * 1_000_000)
        self._size = size
        self._logs: dict[str, EventLog] = {}

    def publish(self, project: str, form: object, *, event: str = "") -> None:
        """Tell every stream of a project; `event` names its kind, or leaves it unnamed."""
        self._log(project).append(form, event)

    def forget(self, project: str) -> None:
        """End the streams of a project, as events may have been missed. They come back to a reset.

        For a source of events that broke off.
        """
        if project in self._logs:
            self._logs[project].forget()

    async def follow(self, project: str, after: int | None = None) -> AsyncGenerator[bytes, None]:
        """Yield encoded events from now on, or all after the last one that the reader has.

        Begins with a comment that carries an id, so that a reader who has seen nothing yet can
        resume too. Ends where the reader fell too far behind.
        """
        log = self._log(project)
        seen = log.last if after is None else after
        if log.oldest <= seen <= log.last:
            yield b": listening\nid: %d\n\n" % seen
        else:
            seen = log.last
            yield b": listening\n" + encode_event({}, id=seen, event="reset")
        while True:
            await log.wait(seen)
            if seen < log.oldest:
                return
            events, seen = log.after(seen), log.last
            yield events

    def _log(self, project: str) -> EventLog:
        log = self._logs.get(project)
        if log is None:
            log = self._logs[project] = EventLog(self._begin, self._size)
        return log


def encode_event(form: object, *, id: int, event: str = "") -> bytes:
    """Write one server-sent event with its id."""
    name = f"event: {event}\n".encode() if event else b""
    return b"id: %d\n%sdata: %s\n\n" % (id, name, encode_json(form))


def read_last_event_id(request: Request) -> int | None:
    """Return the id after which a stream is to resume; None for one that begins now.

    A browser that comes back sends the header, which then counts and not the query of its first
    request. An id that is none of ours is older than all: its reader is told to read anew.
    """
    query = request.known_query("after")
    sent = request.header(b"last-event-id")
    if sent is not None:
        return int(sent) if sent.isascii() and sent.isdigit() and len(sent) < 19 else 0
    if "after" not in query:
        return None
    return request.number("after", default=0, low=0, high=MAX_EVENT_ID)


def live_events_response(services: Services, request: Request, hub: EventHub) -> HttpStream:
    """Answer with the live events of the project in the path, resumed where that is asked for."""
    after = read_last_event_id(request)
    return event_stream_response(services, request, hub.follow(request.params["project"], after))
