"""Writes statuses when there is time: after what drifted is put back, and the last one only.

A rollout passes through several states within a second, and a thousand services may drift at
once. Until a status is written, the next pass over its service starts from it all the same. The
state of a canary has to survive a crash, so it is written at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakValueDictionary

from holdfast.adapters.kubernetes.objects import ObjectKey
from holdfast.apps.operator import logs
from holdfast.core.errors import HoldfastError
from holdfast.core.service.spec import InferenceService, InferenceServiceStatus
from holdfast.reconcile.ports import Clock
from holdfast.reconcile.service.reconciler import MakeStatus, StatusWriter

DEBOUNCE = 0.1
"""Seconds in which states may follow each other before the last one is written."""
MAX_DELAY = 3.0
"""Seconds after which a status is written however busy we are, one at a time then."""
_PARALLEL_WRITES = 8
_RETRY_AFTER = 5.0


class DeferredStatusWriter:
    """The operator's journal. `run` writes until cancelled."""

    def __init__(
        self,
        inner: StatusWriter,
        *,
        clock: Clock,
        busy: Callable[[], bool],
        again: Callable[[ObjectKey, float], None],
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._busy = busy
        self._again = again
        """Asks for another look at a service whose status could not be written."""
        self._waiting: dict[ObjectKey, tuple[InferenceService, InferenceServiceStatus]] = {}
        self._locks: WeakValueDictionary[ObjectKey, asyncio.Lock] = WeakValueDictionary()
        self._oldest = 0.0
        self._wake = asyncio.Event()

    def latest(self, service: InferenceService) -> InferenceService:
        """The service with the status it is about to have."""
        waiting = self._waiting.get(_key(service))
        if waiting is None or waiting[0].uid != service.uid:
            return service
        return replace(service, status=waiting[1])

    async def before_healing(
        self, service: InferenceService, message: str, status: MakeStatus
    ) -> InferenceService:
        """Put it on record in the log: a write would come between the drift and its end."""
        logs.event("drift", level=logging.WARNING, service=str(_key(service)), message_text=message)
        return service

    async def report(self, service: InferenceService, status: InferenceServiceStatus) -> None:
        """Keep a status for later; what a canary needs to go on from is written now."""
        key = _key(service)
        before = service.status
        if status.canary != (before.canary if before else None):
            stored = self._waiting.pop(key, (service, status))[0]
            async with self._lock(key):  # an older status may be on its way
                await self._inner.report(stored, status)
        elif key in self._waiting:
            self._waiting[key] = (self._waiting[key][0], status)
        elif status != before:
            if not self._waiting:
                self._oldest = self._clock.monotonic()
            self._waiting[key] = (service, status)
            self._wake.set()

    async def run(self) -> None:
        """Write what waits, again and again."""
        while True:
            await self._wake.wait()
            await self._clock.sleep(DEBOUNCE)
            while self._busy() and self._clock.monotonic() - self._oldest < MAX_DELAY:
                await self._clock.sleep(DEBOUNCE / 2)
            await self.flush()

    async def flush(self) -> None:
        """Write everything that waits now."""
        self._wake.clear()
        queued = list(self._waiting)
        writers = 1 if self._busy() else _PARALLEL_WRITES
        await asyncio.gather(*(self._write_next(queued) for _ in range(min(writers, len(queued)))))
        if self._waiting:
            self._oldest = self._clock.monotonic()
            self._wake.set()

    def _lock(self, key: ObjectKey) -> asyncio.Lock:
        """One write at a time for each service. A lock lasts as long as somebody holds it."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    async def _write_next(self, queued: list[ObjectKey]) -> None:
        while queued:
            key = queued.pop()
            waiting = self._waiting.get(key)
            if waiting is None:
                continue
            service, status = waiting
            try:
                async with self._lock(key):
                    await self._inner.report(service, status)
            except HoldfastError as error:
                logs.event(
                    "status-not-written",
                    level=logging.WARNING,
                    service=str(key),
                    code=error.code,
                    why=error.happened,
                )
                self._waiting.pop(key, None)
                self._again(key, _RETRY_AFTER)
                continue
            now = self._waiting.get(key)
            if now is waiting:
                del self._waiting[key]
            elif now is not None:
                # It changed while it was written: what is stored now is what we just wrote.
                self._waiting[key] = (replace(service, status=status), now[1])


def _key(service: InferenceService) -> ObjectKey:
    return ObjectKey(namespace=service.namespace, name=service.name)
