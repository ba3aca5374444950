"""Changes to the events of a watch on their way through the fault proxy.

A change gets whole events and gives what the client is to see in their place. Used by
tests/support/kube_faults.py alone.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from tests.support.fault_proxy import _Ended
from tests.support.http_messages import unchunk

Event: TypeAlias = dict[str, Any]  # Any: objects of the Kubernetes API as they come over the wire
Change: TypeAlias = Callable[[Event], list[Event]]
Send: TypeAlias = Callable[[bytes], Awaitable[None]]

LAST_CHUNK = b"0\r\n\r\n"


class Silent(Exception):
    """From now on the client hears nothing, and the connection stays open."""


class Over(Exception):
    """The stream ends, in good order, after these events."""

    def __init__(self, *events: Event) -> None:
        self.events = list(events)


def silent_after(events: int) -> Change:
    return _counting(events, Silent())


def expired_after(events: int, status: Event) -> Change:
    return _counting(events, Over({"type": "ERROR", "object": status}))


def doubled(event: Event) -> list[Event]:
    return [event, event]


def swapped() -> Change:
    """Give the events two by two in the wrong order; bookmarks keep their place."""
    held: list[Event] = []

    def change(event: Event) -> list[Event]:
        if event["type"] == "BOOKMARK":
            return [*_taken(held), event]
        if not held:
            held.append(event)
            return []
        return [event, *_taken(held)]

    return change


def coalesced() -> Change:
    """Leave out every event that another one about the same object follows directly."""
    held: list[Event] = []

    def change(event: Event) -> list[Event]:
        if held and _about(held[-1]) == _about(event) and event["type"] == "MODIFIED":
            # What began as an addition still looks like one to who never saw it.
            event = {**event, "type": held.pop()["type"]}
        out = _taken(held)
        if event["type"] == "BOOKMARK":
            return [*out, event]
        held.append(event)
        return out

    return change


class EventFilter:
    """Sits in a response: passes its head on, and its events as the change has them."""

    def __init__(self, change: Change, send: Send) -> None:
        self._change = change
        self._send = send
        self._head = True
        self._partial = b""
        self._silent = False

    async def __call__(self, data: bytes) -> None:
        if self._head:
            self._head = False
            await self._send(data)
            return
        if self._silent:
            return
        if data == LAST_CHUNK:
            await self._send(data)
            return
        *lines, self._partial = (self._partial + unchunk(data + LAST_CHUNK)).split(b"\n")
        for line in lines:
            try:
                events = self._change(json.loads(line))
            except Silent:
                self._silent = True
                return
            except Over as over:
                await self._events(over.events)
                await self._send(LAST_CHUNK)
                raise _Ended from None
            await self._events(events)

    async def _events(self, events: list[Event]) -> None:
        if events:
            text = b"".join(json.dumps(event).encode() + b"\n" for event in events)
            await self._send(b"%x\r\n%b\r\n" % (len(text), text))


def _counting(events: int, then: Exception) -> Change:
    seen = 0

    def change(event: Event) -> list[Event]:
        nonlocal seen
        if seen == events:
            raise then
        seen += event["type"] != "BOOKMARK"
        return [event]

    return change


def _taken(held: list[Event]) -> list[Event]:
    out = list(held)
    held.clear()
    return out


def _about(event: Event) -> tuple[str, str]:
    metadata = event["object"]["metadata"]
    return metadata.get("namespace", ""), metadata.get("name", "")
