"""Tells those who wait for a workload how far it is."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from holdfast.core.live import Phase, Progress, Status
from holdfast.reconcile.ports import Clock

_MOST = 64
"""A listener that does not read loses the oldest updates, never the latest."""


class Board:
    """The latest status of one workload, and its listeners."""

    def __init__(self, clock: Clock, status: Status) -> None:
        self.status = status
        self._clock = clock
        self._listeners: set[_Listener] = set()

    def post(self, status: Status) -> None:
        """Replace the status; tell the listeners when it reads differently."""
        before, self.status = self.status, status
        if (before.phase, before.message) != (status.phase, status.message):
            for listener in self._listeners:
                listener.put(status)

    async def follow(self, began: float) -> AsyncIterator[Progress]:
        """Yield the present status, then each change, up to `ready` or `error`."""
        listener = _Listener(self.status)
        self._listeners.add(listener)
        try:
            while True:
                status = await listener.get()
                yield Progress(
                    phase=status.phase,
                    message=status.message,
                    elapsed_ms=int((self._clock.monotonic() - began) * 1000),
                )
                if status.phase in (Phase.READY, Phase.ERROR):
                    return
        finally:
            self._listeners.discard(listener)


class _Listener:
    def __init__(self, first: Status) -> None:
        self._waiting = deque([first], maxlen=_MOST)
        self._filled = asyncio.Event()
        self._filled.set()

    def put(self, status: Status) -> None:
        self._waiting.append(status)
        self._filled.set()

    async def get(self) -> Status:
        await self._filled.wait()
        status = self._waiting.popleft()
        if not self._waiting:
            self._filled.clear()
        return status
