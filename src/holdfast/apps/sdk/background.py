"""Lets a sync client use a target that needs an event loop.

The loop runs in one thread of the client's own. Each call waits for its answer there and so never
suspends, which is what the sync apps ask of a target (see `reconcile.sync_bridge`). An interrupt of
the waiting thread cancels what it waited for.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.core.cost import Cost
from holdfast.core.errors import ConfigurationError, Problem
from holdfast.core.ledger import DriftRecord, HistoryEntry
from holdfast.core.live import Absent, Live, Progress
from holdfast.core.names import WorkloadId
from holdfast.core.plan import Step
from holdfast.core.workload import Desired
from holdfast.reconcile.ports import ControlTarget

T = TypeVar("T")
STOP_SECONDS = 5.0
"""Seconds that the loop gets to let go of its connections."""


class BackgroundTarget:
    """Another target, asked from any thread. Copies with a deadline share the loop."""

    def __init__(self, inner: ControlTarget, loop: BackgroundLoop | None = None) -> None:
        self._inner = inner
        self._loop = loop or BackgroundLoop(inner.aclose)

    def __repr__(self) -> str:
        return f"BackgroundTarget({self._inner!r})"

    def within(self, seconds: float | None) -> ControlTarget:
        """Return this target with a total deadline, where the other can keep one."""
        bound = getattr(self._inner, "within", None)
        return self if bound is None else BackgroundTarget(bound(seconds), self._loop)

    def refuses(self, desired: Desired) -> Sequence[Problem]:
        """Say which declared fields the target cannot honour."""
        return self._inner.refuses(desired)

    async def observe(self, workload: WorkloadId) -> Live | Absent:
        """Return what is there now."""
        return self._loop.wait_for(self._inner.observe(workload))

    async def perform(self, step: Step, *, key: str) -> Live | Absent:
        """Carry out one step."""
        return self._loop.wait_for(self._inner.perform(step, key=key))

    async def cost(self, step: Step) -> Cost | None:
        """Say what a step would cost."""
        return self._loop.wait_for(self._inner.cost(step))

    async def list(self, project: str) -> Sequence[Live]:
        """Return every workload of a project."""
        return self._loop.wait_for(self._inner.list(project))

    async def progress(self, workload: WorkloadId) -> AsyncIterator[Progress]:
        """Follow a workload to readiness."""
        async for progress in self._each(self._inner.progress(workload)):
            yield progress

    async def changes(self, project: str) -> AsyncIterator[None]:
        """Yield whenever something in the project may have changed."""
        # The port does not promise it; those that run in a loop can all say it.
        follow = getattr(self._inner, "changes")  # noqa: B009
        async for _ in self._each(follow(project)):
            yield None

    async def drifts(
        self, project: str, *, slug: str | None = None, include_resolved: bool = False
    ) -> Sequence[DriftRecord]:
        """Return the ledger's drifts, newest first."""
        return self._loop.wait_for(
            self._inner.drifts(project, slug=slug, include_resolved=include_resolved)
        )

    async def history(
        self, project: str, *, slug: str | None = None, limit: int = 100
    ) -> Sequence[HistoryEntry]:
        """Return audit rows, newest first."""
        return self._loop.wait_for(self._inner.history(project, slug=slug, limit=limit))

    async def logs(self, workload: WorkloadId, *, tail: int, follow: bool) -> AsyncIterator[str]:
        """Yield log lines."""
        async for line in self._each(self._inner.logs(workload, tail=tail, follow=follow)):
            yield line

    async def aclose(self) -> None:
        """Close the other target, then end the loop and its thread. Safe to call twice."""
        self._loop.close()

    async def _each(self, items: AsyncIterator[T]) -> AsyncIterator[T]:
        close = getattr(items, "aclose", None)
        try:
            while True:
                try:
                    item = self._loop.wait_for(_next_item(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if close is not None:
                self._loop.wait_for(close())


class BackgroundLoop:
    """An event loop in a thread, begun at the first call and ended by `close`.

    `last` lets go of what lives in it; it also runs for a client that nobody closes.
    """

    def __init__(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:  # Any: as below
        self._last = last
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: weakref.finalize[Any, Any] | None = None  # Any: it takes any callable
        self._closed = False

    # Any: nothing is ever sent into a coroutine or yielded by it.
    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result here."""
        try:
            waiting = asyncio.run_coroutine_threadsafe(coroutine, self._running())
        except BaseException:
            coroutine.close()
            raise
        return _wait_result(waiting)

    def close(self) -> None:
        """Let go of what lives in the loop, then end it. Safe to call twice."""
        with self._lock:
            self._loop, self._closed = None, True
        if self._end is not None:
            self._end()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise ConfigurationError("This client is closed.", hint="Make a new one.")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=_run_loop,
                    args=(self._loop, self._last),
                    name="holdfast-loop",
                    daemon=True,
                )
                thread.start()
                # Also for a client that nobody closes, at the latest when Python ends.
                self._end = weakref.finalize(self, _stop_loop, self._loop, thread)
            return self._loop


def _run_loop(
    loop: asyncio.AbstractEventLoop,
    last: Callable[[], Coroutine[Any, Any, None]],  # Any: as above
) -> None:
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        with suppress(Exception):  # nobody is left who could be told
            loop.run_until_complete(asyncio.wait_for(last(), STOP_SECONDS))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _stop_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    with suppress(RuntimeError):  # it has ended already
        loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join(STOP_SECONDS)


def _wait_result(waiting: Future[T]) -> T:
    try:
        return waiting.result()
    except BaseException:
        waiting.cancel()  # an interrupt: nobody waits for it any more
        raise


async def _next_item(items: AsyncIterator[T]) -> T:
    return await anext(items)
