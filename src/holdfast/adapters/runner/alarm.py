"""Lets one task sleep, or wait for an answer, no longer than it matters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.reconcile.ports import Clock

T = TypeVar("T")


class Alarm:
    """For a task whose work can become pointless at any moment.

    `over` says whether it has. Whoever changes the answer, or has news that should not wait,
    rings; a ring is never lost, since `over` is asked anew before every wait.
    """

    def __init__(self, clock: Clock, *, over: Callable[[], bool]) -> None:
        self._clock = clock
        self._over = over
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the task."""
        self._rung.set()

    async def sleep(self, seconds: float) -> None:
        """Wait, until the first ring."""
        self._rung.clear()
        if not self._over():
            await _first(self._clock.sleep(seconds), self._rung.wait())

    async def unless_over(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Finish the work, unless it becomes pointless first: then None."""
        task = await _first(work, self._until_over())
        return None if self._over() else task.result()

    async def _until_over(self) -> None:
        while not self._over():
            self._rung.clear()
            await self._rung.wait()


async def _first(work: Coroutine[Any, Any, T], other: Coroutine[Any, Any, Any]) -> asyncio.Task[T]:
    # Any: what a coroutine is sent and what the other one returns concern nobody here.
    tasks = asyncio.create_task(work), asyncio.create_task(other)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return tasks[0]
