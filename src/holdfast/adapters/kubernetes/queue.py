"""The work queue of a controller: which keys need work, each at most once at a time.

A key added while it waits is worked on once; added while it is worked on, it is worked on once
more afterwards. Failures come back after a growing wait. Handlers of informers add, workers get.
There are two queues, so that what just changed need not wait for a periodic pass over everything.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from holdfast.reconcile.ports import Clock

FIRST_RETRY = 0.005
MAX_RETRY = 1000.0
RETRY_RATE, RETRY_BURST = 10.0, 100.0
"""Of all retries together: so many a second, after so many at once."""
_SLOW_QUEUE_EVERY = 4
"""Every so many keys one comes from the slow queue, so that it moves whatever happens."""

K = TypeVar("K", bound=Hashable)


class QueueShutDown(Exception):
    """The queue gives nothing out any more."""


class QueueMeter(Protocol):
    """Counts what a queue does."""

    def added(self) -> None:
        """A key was queued."""

    def taken(self, waited: float) -> None:
        """A worker took a key that was queued for so many seconds."""

    def retried(self) -> None:
        """A key comes back after a failure."""


class TokenBucket:
    """Lets so many through at once and then so many a second."""

    def __init__(
        self, clock: Clock, *, rate: float = RETRY_RATE, burst: float = RETRY_BURST
    ) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._free = burst
        self._at = clock.monotonic()

    def take(self) -> float:
        """Reserve a place and return the seconds until its time has come."""
        self._refill()
        self._free -= 1
        return max(0.0, -self._free / self._rate)

    @property
    def has_room(self) -> bool:
        """True when a place could be taken now."""
        self._refill()
        return self._free >= 1

    def try_take(self, reserve: float = 0.0) -> bool:
        """Take a place only if there is one now, and so many more in `reserve`."""
        self._refill()
        if self._free < 1 + reserve:
            return False
        self._free -= 1
        return True

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._free = min(self._burst, self._free + (now - self._at) * self._rate)
        self._at = now


class WorkQueue(Generic[K]):
    """For one event loop. Call `done` for every key that `get` gave."""

    def __init__(
        self,
        *,
        clock: Clock,
        chance: Callable[[], float],
        first: float = FIRST_RETRY,
        longest: float = MAX_RETRY,
        bucket: TokenBucket | None = None,
        meter: QueueMeter | None = None,
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._first = first
        self._longest = longest
        self._bucket = bucket or TokenBucket(clock)
        self._meter = meter
        self._fast: deque[K] = deque()
        self._slow: deque[K] = deque()
        self._dirty: dict[K, float] = {}
        """Needs work, since when: is queued, or will be when its worker is done."""
        self._urgent: set[K] = set()
        """Those of the dirty in the fast queue; their places in the slow one are void."""
        self._working: set[K] = set()
        self._turns = 0
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        """The earliest moment of each key in `_later`; other entries of it are void."""
        self._order = 0
        self._failures: dict[K, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ended = asyncio.Event()
        self._timer: asyncio.Task[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        """How many keys wait to be given out now."""
        return sum(1 for key in self._dirty if key not in self._working)

    @property
    def idle(self) -> bool:
        """True when nothing is queued and nothing is worked on."""
        return not self._dirty and not self._working

    @property
    def later(self) -> int:
        """How many keys are to come at a set moment."""
        return len(self._due)

    def add(self, key: K, *, urgent: bool = True) -> None:
        """Queue a key. What is not urgent lets the rest pass."""
        if self._closed or (key in self._dirty and (not urgent or key in self._urgent)):
            return
        if key not in self._dirty:
            self._dirty[key] = self._clock.monotonic()
            if self._meter is not None:
                self._meter.added()
        if urgent:
            self._urgent.add(key)
        if key not in self._working:
            self._enqueue(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Queue a key later; of several moments the earliest counts."""
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
        if self._later[0][2] is key or self._timer is None:
            self._restart_timer()

    def add_rate_limited(self, key: K) -> float:
        """Queue a key again after a failure, later each time, with jitter. Returns the wait.

        When very many fail at once, all of them together wait longer. `forget` ends the growth.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        wait = min(self._longest, self._first * 2.0 ** min(failures, 60))
        wait = max(wait * (0.5 + self._chance() / 2), self._bucket.take())
        if self._meter is not None:
            self._meter.retried()
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
            for key in self._next():
                since = self._dirty.pop(key)
                self._urgent.discard(key)
                self._working.add(key)
                if self._meter is not None:
                    self._meter.taken(self._clock.monotonic() - since)
                return key
            if self._closed:
                raise QueueShutDown
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake()  # it was this one's turn: let the next have it
                raise

    def done(self, key: K) -> None:
        """Give a key back; if it was added meanwhile, it is queued again."""
        self._working.discard(key)
        if key in self._dirty:
            self._enqueue(key)
        elif self._closed and self.idle:
            self._ended.set()

    def shutdown(self) -> None:
        """Take nothing more; what is queued is still given out, what comes later is not."""
        self._closed = True
        self._later.clear()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self.idle:
            self._ended.set()
        while self._waiting:
            self._wake()

    async def wait_drained(self) -> None:
        """Wait, after `shutdown`, until the last worker is done."""
        await self._ended.wait()

    def _enqueue(self, key: K) -> None:
        (self._fast if key in self._urgent else self._slow).append(key)
        self._wake()

    def _next(self) -> list[K]:
        """Return the next key, if there is one. A key may be queued twice, once in vain."""
        self._turns += 1
        queues = [self._fast, self._slow]
        if self._turns % _SLOW_QUEUE_EVERY == 0:
            queues.reverse()
        for queue in queues:
            while queue:
                key = queue.popleft()
                moved = queue is self._slow and key in self._urgent
                if key in self._dirty and key not in self._working and not moved:
                    return [key]
        return []

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _restart_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.ensure_future(self._promote())

    async def _promote(self) -> None:
        """Queue keys as their moments come; ends when there are no more."""
        while self._later:
            await self._clock.sleep(max(self._later[0][0] - self._clock.monotonic(), 0.0))
            now = self._clock.monotonic()
            while self._later and self._later[0][0] <= now:
                at, _, key = heapq.heappop(self._later)
                if self._due.get(key) == at:
                    del self._due[key]
                    self.add(key)
        self._timer = None
