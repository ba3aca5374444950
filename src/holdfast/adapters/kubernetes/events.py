"""Writes Kubernetes Events for what happened to objects, after everything that matters more.

A transition is told once: the same words about the same object are not repeated for a while, and
no object gets more than a few. When not all can be told, what is routine is left out first, and
the next event says how many are missing. Events are for people, so one that cannot be written is
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
    """What is said: a note of some reconciler."""

    @property
    def warning(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...


class EventRecorder:
    """Tells people what happened, when there is time."""

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
        """`routine` has the reasons that are told only where nothing else is kept from being."""
        self._post = post
        self._clock = clock
        self._reporter = reporter
        self._instance = instance
        self._count = count
        self._busy = busy
        self._routine = routine
        self._line: deque[Object] = deque()
        self._later: deque[Object] = deque()
        """What is routine, and waits for the rest."""
        self._something = asyncio.Event()
        self._told: dict[str, tuple[str, str, float]] = {}
        """What was said last of each object, and when."""
        self._buckets: dict[str, TokenBucket] = {}
        self._missing: dict[str, int] = {}
        """How many events of an object were left out since its last one."""

    def record(self, about: EventSubject, note: EventMessage) -> None:
        """Put an event in line, unless it was told lately or the object has had its share."""
        now = self._clock.monotonic()
        reason, message, at = self._told.get(about.uid, ("", "", float("-inf")))
        if (reason, message) == (note.reason, note.message) and now - at < REPEAT_AFTER:
            self._count("repeated")
            return
        if len(self._told) >= _REMEMBERED_LIMIT:
            self._forget(now)
        self._told[about.uid] = (note.reason, note.message, now)
        bucket = self._buckets.setdefault(
            about.uid, TokenBucket(self._clock, rate=_EVENT_RATE, burst=_EVENT_BURST)
        )
        routine = note.reason in self._routine
        if not self._has_room(routine) or not bucket.try_take(_ROUTINE_RESERVE if routine else 0.0):
            self._drop(about.uid)
            return
        (self._later if routine else self._line).append(self._event(about, note))
        self._something.set()

    def _has_room(self, routine: bool) -> bool:
        """See that there is a place in line; what is routine makes way for what is not."""
        if len(self._line) + len(self._later) < _QUEUE_LIMIT:
            return True
        if routine or not self._later:
            return False
        self._drop(self._later.popleft()["regarding"]["uid"])
        return True

    def _drop(self, uid: str) -> None:
        self._missing[uid] = self._missing.get(uid, 0) + 1
        self._count("dropped")

    def _next(self) -> Object | None:
        line = self._line or self._later
        return line.popleft() if line else None

    async def run(self) -> None:
        """Write what stands in line until cancelled, one at a time, and last of all work."""
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
        self._told = {uid: said for uid, said in self._told.items() if now - said[2] < REPEAT_AFTER}
        if len(self._told) >= _REMEMBERED_LIMIT:
            self._told.clear()
        self._buckets.clear()
        self._missing.clear()

    def _event(self, about: EventSubject, note: EventMessage) -> Object:
        at = self._clock.now().astimezone(UTC)
        missing = self._missing.pop(about.uid, 0)
        events = "1 earlier event was" if missing == 1 else f"{missing} earlier events were"
        more = f" ({events} not written.)" if missing else ""
        text, room = note.message, _NOTE_BYTES - len(more.encode())
        if len(text.encode()) > room:
            text = text.encode()[: room - 3].decode(errors="ignore") + "…"
        text += more
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about.ref.name}.{secrets.token_hex(8)}",
                # Events about objects without a namespace go where kubectl looks for them.
                "namespace": about.ref.namespace or "default",
            },
            "eventTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": "Warning" if note.warning else "Normal",
            "reason": note.reason,
            "note": text,
            "action": "Reconcile",
            "reportingController": self._reporter,
            "reportingInstance": self._instance,
            "regarding": {
                "apiVersion": about.ref.api_version,
                "kind": about.ref.kind,
                "namespace": about.ref.namespace,
                "name": about.ref.name,
                "uid": about.uid,
                "resourceVersion": about.version,
            },
        }
