"""Runs async code without an event loop, for the sync apps.

All I/O is written once, as `async def`. A sync client hands it transports and clocks whose
methods block instead of suspending, so every coroutine runs to its end in one go. That keeps
tracebacks short, works inside a running loop (a notebook), and lets Ctrl-C land where it hits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

T = TypeVar("T")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")


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


class SyncClient(Protocol[A_co]):
    """Has the object whose coroutines it drives."""

    @property
    def _async(self) -> A_co: ...


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient[A], P], T]:
    """Make a method of a sync client from the async one, with its signature and docstring."""

    @wraps(method)
    def call(self: SyncClient[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_sync(method(self._async, *args, **kwargs))

    return call


def blocking_iterator(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncClient[A], P], Iterator[T]]:
    """Make a method of a sync client from an async one that yields."""

    @wraps(method)
    def call(self: SyncClient[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return iterate_sync(method(self._async, *args, **kwargs))

    return call


class _Suspended(RuntimeError):
    """A transport for async clients was given to a sync one."""


async def _next(items: AsyncIterator[T]) -> T:
    return await items.__anext__()
