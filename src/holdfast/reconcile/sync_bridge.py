"""Runs async code without an event loop, for the sync apps.

All I/O is written once, as `async def`. A sync client hands it transports and clocks whose
methods block instead of suspending, so every coroutine runs to its end in one go. That keeps
tracebacks short, works inside a running loop (a notebook), and lets Ctrl-C land where it hits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:  # Any: nothing is ever sent or yielded
    """Drive a coroutine that never suspends, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # StopIteration is untyped
    finally:
        coroutine.close()
    raise _Suspended("a sync client was given a transport that suspends")


def iterate_sync(items: AsyncIterator[T]) -> Iterator[T]:
    """Drive an async iterator that never suspends."""
    close = getattr(items, "aclose", None)
    try:
        while True:
            try:
                yield run_sync(_next(items))
            except StopAsyncIteration:
                return
    except _Suspended:
        close = None  # it counts as running still, and what runs cannot be closed
        raise
    finally:
        if close is not None:
            run_sync(close())


class _Suspended(RuntimeError):
    """A transport for async clients was given to a sync one."""


async def _next(items: AsyncIterator[T]) -> T:
    return await items.__anext__()
