"""Async code that never suspends runs without an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator

import pytest

from holdfast.reconcile.sync_bridge import iterate_sync, run_sync


async def answer(value: int) -> int:
    return value


async def nested() -> int:
    return await answer(1) + await answer(2)


class Log:
    """Async iterators that note how they end."""

    def __init__(self) -> None:
        self.closed = 0

    async def count(self, end: int) -> AsyncIterator[int]:
        try:
            for number in range(end):
                yield number
        finally:
            self.closed += 1

    async def broken(self) -> AsyncIterator[int]:
        try:
            yield 1
            raise LookupError("gone")
        finally:
            self.closed += 1


class Plain:
    """An async iterator that is no generator and cannot be closed."""

    def __init__(self) -> None:
        self.left = [1, 2]

    def __aiter__(self) -> Plain:
        return self

    async def __anext__(self) -> int:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop(0)


def test_a_coroutine_runs_to_its_end() -> None:
    assert run_sync(nested()) == 3


def test_an_error_passes_through() -> None:
    async def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        run_sync(fail())


def test_a_coroutine_that_suspends_is_refused_and_closed() -> None:
    ended = []

    async def suspend() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    coroutine = suspend()
    with pytest.raises(RuntimeError, match="suspends"):
        run_sync(coroutine)
    assert ended == [True]
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_it_works_inside_a_running_loop() -> None:
    """A notebook has one, and there `asyncio.run` would fail."""

    async def cell() -> int:
        return run_sync(nested())

    assert asyncio.run(cell()) == 3


def test_an_iterator_is_driven_to_its_end_and_closed() -> None:
    log = Log()
    assert list(iterate_sync(log.count(3))) == [0, 1, 2]
    assert log.closed == 1


def test_an_iterator_that_is_left_early_is_closed() -> None:
    log = Log()
    numbers = iterate_sync(log.count(3))
    assert next(numbers) == 0
    numbers.close()
    assert log.closed == 1


def test_an_iterator_that_fails_is_closed() -> None:
    log = Log()
    numbers = iterate_sync(log.broken())
    assert next(numbers) == 1
    with pytest.raises(LookupError):
        next(numbers)
    assert log.closed == 1


def test_an_iterator_that_cannot_be_closed_will_do() -> None:
    assert list(iterate_sync(Plain())) == [1, 2]


def test_an_iterator_that_suspends_is_refused() -> None:
    async def slow() -> AsyncIterator[int]:
        await asyncio.sleep(0)
        yield 1

    with pytest.raises(RuntimeError, match="suspends"):
        list(iterate_sync(slow()))
