"""Writes Kubernetes Events for what happened to objects, after everything that matters more.

A transition is recorded once: the same message about the same object is not repeated for a while,
and no object gets more than a few. Under load routine events are dropped first, and the next event
says how many are missing. Events are for people, so one that cannot be written is
counted and forgotten. Controllers hand them over; a task of its own writes them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from datetime import UTC
from typing import Protocol

from holdfast.adapters.kubernetes.objects import Object
from holdfast.adapters.kubernetes.queue import TokenBucket
from holdfast.core.errors import HoldfastError
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.ports import Clock

REPEAT_AFTER = 600.0
"""Seconds in which the last words about an object are not repeated."""
_EVENT_BURST, _EVENT_RATE = 25.0, 1 / 30
"""Events of one object: so many at once, then so many a second."""
_ROUTINE_RESERVE = 15.0
"""Of those, what is routine leaves so many to what is not."""
_QUEUE_LIMIT = 1_000
_REMEMBERED_LIMIT = 10_000
_NOTE_BYTES = 1024
_BUSY_WAIT = 1.0

PostEvent = Callable[[Object], Awaitable[object]]
CountEvent = Callable[[str], None]
"""Counts what became of an event: `written`, `repeated`, `dropped` or `failed`."""
log = logging.getLogger("holdfast.events")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSubject:
    """The very object that an event is about."""

    ref: ObjectRef
    uid: str
    version: str = ""


class EventMessage(Protocol):
    """What a reconciler has to say of an object."""

    @property
    def warning(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...


class EventRecorder:
    """Writes what happened for people, when there is time."""

    def __init__(
        self,
        post: PostEvent,
        *,
        clock: Clock,
        reporter: str,
        instance: str,
        count: CountEvent,
        busy: Callable[[], bool] = lambda: False,
        routine: Container[str] = (),
    ) -> None:
        """`routine` has the reasons whose events give way to all others."""
        self._post = post
        self._clock = clock
        self._reporter = reporter
        self._instance = instance
        self._count = count
        self._busy = busy
        self._routine = routine
        self._urgent: deque[Object] = deque()
        self._routine_events: deque[Object] = deque()
        """Written after all others."""
        self._something = asyncio.Event()
        self._last_said: dict[str, tuple[str, str, float]] = {}
        """What was said last of each object, and when."""
        self._buckets: dict[str, TokenBucket] = {}
        self._missing: dict[str, int] = {}
        """How many events of an object were left out since its last one."""

    def record(self, subject: EventSubject, message: EventMessage, *, link: str = "") -> None:
        """Queue an event, unless it was recorded lately or the object has had its share.

        `link` is where a page shows what it is about. It is never cut: the message before it is.
        """
        now = self._clock.monotonic()
        reason, text, at = self._last_said.get(subject.uid, ("", "", float("-inf")))
        if (reason, text) == (message.reason, message.message) and now - at < REPEAT_AFTER:
            self._count("repeated")
            return
        if len(self._last_said) >= _REMEMBERED_LIMIT:
            self._forget(now)
        self._last_said[subject.uid] = (message.reason, message.message, now)
        bucket = self._buckets.setdefault(
            subject.uid, TokenBucket(self._clock, rate=_EVENT_RATE, burst=_EVENT_BURST)
        )
        routine = message.reason in self._routine
        if not self._has_room(routine) or not bucket.try_take(_ROUTINE_RESERVE if routine else 0.0):
            self._drop(subject.uid)
            return
        (self._routine_events if routine else self._urgent).append(
            self._event(subject, message, link)
        )
        self._something.set()

    def _has_room(self, routine: bool) -> bool:
        """Say whether the queue has room; a routine event makes way for another."""
        if len(self._urgent) + len(self._routine_events) < _QUEUE_LIMIT:
            return True
        if routine or not self._routine_events:
            return False
        self._drop(self._routine_events.popleft()["regarding"]["uid"])
        return True

    def _drop(self, uid: str) -> None:
        self._missing[uid] = self._missing.get(uid, 0) + 1
        self._count("dropped")

    def _next(self) -> Object | None:
        queue = self._urgent or self._routine_events
        return queue.popleft() if queue else None

    async def run(self) -> None:
        """Write what is queued until cancelled, one at a time, when nothing else is to do."""
        while True:
            event = self._next()
            if event is None:
                self._something.clear()
                await self._something.wait()
                continue
            until = self._clock.monotonic() + _BUSY_WAIT
            while self._busy() and self._clock.monotonic() < until:
                await self._clock.sleep(0.02)
            await self._write(event)

    async def flush(self) -> None:
        """Write what is left, for a clean end."""
        while (event := self._next()) is not None:
            await self._write(event)

    async def _write(self, event: Object) -> None:
        try:
            await self._post(event)
        except HoldfastError as error:
            self._count("failed")
            log.warning("event-not-written", extra={"code": error.code, "why": error.happened})
        else:
            self._count("written")

    def _forget(self, now: float) -> None:
        self._last_said = {
            uid: said for uid, said in self._last_said.items() if now - said[2] < REPEAT_AFTER
        }
        if len(self._last_said) >= _REMEMBERED_LIMIT:
            self._last_said.clear()
        self._buckets.clear()
        self._missing.clear()

    def _event(self, subject: EventSubject, message: EventMessage, link: str) -> Object:
        at = self._clock.now().astimezone(UTC)
        missing = self._missing.pop(subject.uid, 0)
        events = "1 earlier event was" if missing == 1 else f"{missing} earlier events were"
        more = f" See {link}" if link else ""
        more += f" ({events} not written.)" if missing else ""
        text, room = message.message, _NOTE_BYTES - len(more.encode())
        if len(text.encode()) > room:
            text = text.encode()[: room - 3].decode(errors="ignore") + "…"
        text += more
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{subject.ref.name}.{secrets.token_hex(8)}",
                # Events about objects without a namespace go where kubectl looks for them.
                "namespace": subject.ref.namespace or "default",
            },
            "eventTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": "Warning" if message.warning else "Normal",
            "reason": message.reason,
            "note": text,
            "action": "Reconcile",
            "reportingController": self._reporter,
            "reportingInstance": self._instance,
            "regarding": {
                "apiVersion": subject.ref.api_version,
                "kind": subject.ref.kind,
                "namespace": subject.ref.namespace,
                "name": subject.ref.name,
                "uid": subject.uid,
                "resourceVersion": subject.version,
            },
        }
