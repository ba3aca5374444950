"""Runs passes: takes keys from a queue, a few at a time, each key by itself.

A pass that fails comes back after a growing wait and holds up none of the others. Both controllers
give it their queue and one coroutine, which makes one pass over one key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from holdfast.adapters.kubernetes.queue import QueueShutDown, WorkQueue
from holdfast.apps.runtime.process import ControllerSettings, LogEvent
from holdfast.core.errors import Conflict, HoldfastError, TargetUnavailable
from holdfast.core.quantity import format_seconds
from holdfast.core.tree import Tree
from holdfast.reconcile.ports import Clock

K = TypeVar("K", bound=Hashable)


class PassResult(StrEnum):
    """How one pass ended."""

    SUCCESS = "success"
    REQUEUE_AFTER = "requeue_after"
    """It succeeded, and comes back at a set time."""
    CONFLICT = "conflict"
    """Another writer was first, so it comes back at once."""
    ERROR = "error"


class PassMetrics(Protocol):
    """Counts passes."""

    def count_pass(self, result: PassResult, seconds: float) -> None:
        """Count one pass."""


class Workers(Generic[K]):
    """Makes passes from `run` until `stop`."""

    def __init__(
        self,
        queue: WorkQueue[K],
        reconcile: Callable[[K], Awaitable[PassResult]],
        *,
        settings: ControllerSettings,
        clock: Clock,
        metrics: PassMetrics,
        log: LogEvent,
        subject: Callable[[K], dict[str, Tree]],
        on_failure: Callable[[K, PassResult], None],
        conflict_level: int = logging.WARNING,
        retry: bool = True,
    ) -> None:
        """`subject` names a key in the log; `on_failure` hears of a pass before it is tried again.
        Without `retry`, only conflicts are."""
        self._queue = queue
        self._reconcile = reconcile
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._subject = subject
        self._on_failure = on_failure
        self._conflict_level = conflict_level
        self._retry = retry
        self._tasks: set[asyncio.Task[None]] = set()
        self._surplus = 0
        """How many workers are to end, because the one they stood in for is back."""
        self._crashed: asyncio.Future[None] | None = None
        self._stop = asyncio.Event()
        self.running = False
        """True from the moment it may act."""

    def stop(self) -> None:
        """End after the passes under way; what waits in the queue is left to the next leader."""
        self._stop.set()

    async def run(
        self,
        background: Coroutine[Any, Any, None] | None = None,
        *,
        before_drain: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Make passes until stopped, or until the background work ends."""
        self.running = True
        self._crashed = asyncio.get_running_loop().create_future()
        for _ in range(self._settings.workers):
            self._add_worker()
        ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._stop.wait())]
        if background is not None:
            ends.append(asyncio.ensure_future(background))
        try:
            done, _ = await asyncio.wait(
                {self._crashed, *ends}, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
            self._stop.set()
            if before_drain is not None:
                await before_drain()
            self._queue.shutdown()
            async with asyncio.timeout(self._settings.drain_within):
                await self._queue.wait_drained()
        except TimeoutError:
            after = self._settings.drain_within
            self._log("drain-cut-short", level=logging.WARNING, after=after)
        finally:
            tasks = [*self._tasks, *ends]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def stand_in(self) -> AsyncIterator[None]:
        """Let another worker stand in for one whose pass waits for somebody outside."""
        self._add_worker()
        try:
            yield
        finally:
            self._surplus += 1

    def _add_worker(self) -> None:
        def on_end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            crashed, error = self._crashed, None if task.cancelled() else task.exception()
            if error is not None and crashed is not None and not crashed.done():
                crashed.set_exception(error)

        worker = asyncio.ensure_future(self._work())
        self._tasks.add(worker)
        worker.add_done_callback(on_end)

    async def _work(self) -> None:
        while True:
            if self._surplus:
                self._surplus -= 1
                return
            try:
                key = await self._queue.get()
            except QueueShutDown:
                return
            try:
                if not self._stop.is_set():
                    await self._run_pass(key)
            finally:
                self._queue.done(key)

    async def _run_pass(self, key: K) -> None:
        began = self._clock.monotonic()
        result = PassResult.ERROR
        within = self._settings.reconcile_within
        try:
            async with asyncio.timeout(within):
                result = await self._reconcile(key)
        except Conflict as error:
            # Another writer was first, which is no error: look again, at what it wrote.
            result = PassResult.CONFLICT
            self._retry_later(key, error.code, error.happened, result)
        except TargetUnavailable as error:
            self._retry_later(key, error.code, error.happened, retry_after=error.retry_after)
        except HoldfastError as error:
            self._retry_later(key, error.code, error.happened)
        except TimeoutError:
            self._retry_later(key, "timeout", f"It took more than {format_seconds(within)}.")
        except Exception:  # one key that crashes must not stop the others
            self._log("pass-failed", level=logging.ERROR, exc=True, **self._subject(key))
            self._retry_later(key, "bug", "See pass-failed.")
        finally:
            self._metrics.count_pass(result, self._clock.monotonic() - began)

    def _retry_later(
        self,
        key: K,
        code: str,
        why: str,
        result: PassResult = PassResult.ERROR,
        *,
        retry_after: float | None = None,
    ) -> None:
        self._on_failure(key, result)
        conflict = result is PassResult.CONFLICT
        wait: float | None = None
        if retry_after is not None and self._retry:
            wait = retry_after
            self._queue.add_after(key, retry_after)
        elif self._retry or conflict:
            wait = self._queue.add_rate_limited(key)
        level = self._conflict_level if conflict else logging.WARNING
        fields: dict[str, Tree] = {"code": code, "why": why, "again_in": wait}
        self._log("not-reconciled", level=level, exc=False, **self._subject(key), **fields)
