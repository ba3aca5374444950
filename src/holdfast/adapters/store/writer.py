"""Commits many waiting writes at once, from one thread.

Waiting for the disk costs the same for one write as for a hundred, so whatever has queued up
while the disk was busy goes into one transaction. Each work has a savepoint of its own: one
that fails is undone and raises to its own caller alone. No caller hears of success before the
commit has returned.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from holdfast.adapters.store.transaction import Transaction
from holdfast.core.errors import StoreBusy, StoreUnavailable

T = TypeVar("T")
BATCH = 256
"""The most works in one commit, so that the first does not wait for a crowd."""
WAITING = 4096
"""The most works that may wait. More are refused: they would time out before their turn."""


@dataclass(slots=True)
class Job:
    """One work and the one who waits for it."""

    # Any: each caller knows the type of its own answer.
    work: Callable[[Transaction], Any]
    answer: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    value: Any = None
    error: BaseException | None = None

    def settle(self) -> None:
        """Tell the waiter, in its own loop."""
        if self.answer.done():
            return
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.value)


class Committer(Protocol):
    """What the writer needs of the store."""

    def commit(self, jobs: Sequence[Job]) -> None:
        """Run the works in one transaction, putting a value or an error into each job."""

    def tidy(self) -> None:
        """Do what can wait until the callers have been answered."""


class GroupWriter:
    """The thread, and the queue before it."""

    def __init__(self, store: Committer, *, name: str) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"store-{name}", daemon=True)
        self._thread.start()

    async def submit(self, work: Callable[[Transaction], T]) -> T:
        """Queue a work and wait until it is committed."""
        if self._closed:
            raise StoreUnavailable("The store was closed.", todo="Open it again.")
        if self._queue.qsize() >= WAITING:
            raise StoreBusy(
                f"{WAITING} writes are waiting for the disk already.", todo="Try again later."
            )
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._queue.put(Job(work, answer, loop))
        return await answer

    def close(self) -> None:
        """Finish what is queued and end the thread. Safe to call twice."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while True:
            jobs, ended = self._gather()
            if jobs:
                self._store.commit(jobs)
                for loop in {job.loop for job in jobs}:
                    _call(loop, [job for job in jobs if job.loop is loop])
                self._store.tidy()
            if ended:
                return

    def _gather(self) -> tuple[list[Job], bool]:
        """Wait for the first job and take all that are there behind it."""
        jobs: list[Job] = []
        job = self._queue.get()
        while job is not None:
            # A caller who left before its work began gets no effect.
            if not job.answer.cancelled():
                jobs.append(job)
            if len(jobs) >= BATCH or self._queue.empty():
                return jobs, False
            job = self._queue.get()
        return jobs, True


def _call(loop: asyncio.AbstractEventLoop, jobs: Sequence[Job]) -> None:
    def settle() -> None:
        for job in jobs:
            job.settle()

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return
