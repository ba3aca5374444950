"""The work queue of a controller: which keys need a look, each at most once at a time.

A key added while it waits is one piece of work; added while it is worked on, it is looked at once
more afterwards. Failures come back after a growing wait. Handlers of informers add, workers get.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from holdfast.reconcile.ports import Clock

FIRST = 0.005
LONGEST = 1000.0

K = TypeVar("K", bound=Hashable)


class ShutDown(Exception):
    """The queue gives nothing out any more."""


class WorkQueue(Generic[K]):
    """For one event loop. Call `done` for every key that `get` gave."""

    def __init__(
        self,
        *,
        clock: Clock,
        chance: Callable[[], float],
        first: float = FIRST,
        longest: float = LONGEST,
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._first = first
        self._longest = longest
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()
        """Needs a look: waits in line, or will when its worker is done."""
        self._working: set[K] = set()
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        """The earliest moment of each key in `_later`; other entries of it are void."""
        self._order = 0
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """How many keys wait to be given out now."""
        return len(self._ready)

    def add(self, key: K) -> None:
        """Ask for a look at a key."""
        if self._closed or key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._ready.append(key)
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Ask for a look later; of several moments the earliest counts."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        at = self._clock.monotonic() + seconds
        if self._due.get(key, at + 1) <= at:
            return
        self._due[key] = at
        self._order += 1
        heapq.heappush(self._later, (at, self._order, key))
        self._wake()

    def add_rate_limited(self, key: K) -> float:
        """Ask for a look after a failure: twice as long after each, with jitter. Returns the wait.

        `forget` ends the growth.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait = min(self._longest, self._first * 2.0 ** min(failures, 60))
        wait *= 0.5 + self._chance() / 2
        self.add_after(key, wait)
        return wait

    def failures(self, key: K) -> int:
        """How often in a row a key came back by `add_rate_limited`."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Forget a key's failures; for when it succeeded, or is to come back at a set time."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for a key that nobody else works on. Raises ShutDown once there are none left."""
        while True:
            self._promote()
            if self._ready:
                key = self._ready.popleft()
                self._dirty.discard(key)
                self._working.add(key)
                return key
            if self._closed:
                raise ShutDown
            self._changed.clear()
            await self._wait()

    def done(self, key: K) -> None:
        """Give a key back; if it was added meanwhile, it is in line again."""
        self._working.discard(key)
        if key in self._dirty:
            self._ready.append(key)
        self._wake()

    def shutdown(self) -> None:
        """Take nothing more; what stands in line is still given out, what comes later is not."""
        self._closed = True
        self._later.clear()
        self._due.clear()
        self._wake()

    async def drained(self) -> None:
        """Wait, after `shutdown`, until the last worker is done."""
        while self._working or self._ready:
            self._changed.clear()
            await self._changed.wait()

    def _promote(self) -> None:
        now = self._clock.monotonic()
        while self._later and self._later[0][0] <= now:
            at, _, key = heapq.heappop(self._later)
            if self._due.get(key) == at:
                del self._due[key]
                self.add(key)

    def _wake(self) -> None:
        self._changed.set()

    async def _wait(self) -> None:
        """Wait until something was added, or until the next moment has come."""
        if not self._later:
            await self._changed.wait()
            return
        pause = max(self._later[0][0] - self._clock.monotonic(), 0.0)
        tasks = {
            asyncio.ensure_future(self._changed.wait()),
            asyncio.ensure_future(self._clock.sleep(pause)),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
