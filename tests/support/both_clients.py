"""Runs one suite over the sync and the async client, and asks both the same way."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

from holdfast.apps.sdk.inference import AsyncDataClient, DataClient
from holdfast.apps.sdk.management import AsyncManagementClient, ManagementClient

CLIENT_KINDS = ("sync", "async")


class DrivenClient:
    """An async client or endpoint, driven one call at a time."""

    def __init__(self, wrapped: object, runner: asyncio.Runner | None = None) -> None:
        self._wrapped = wrapped
        self._runner = runner or asyncio.Runner()

    # Any: it stands for whatever the wrapped client has.
    def __getattr__(self, name: str) -> Any:
        value = getattr(self._wrapped, name)
        if not callable(value) or name == "target":
            return value

        def call(*arguments: object, **options: object) -> Any:
            result = value(*arguments, **options)
            if inspect.iscoroutine(result):
                return self._runner.run(result)
            if hasattr(result, "__anext__"):
                return self._each(result)
            return DrivenClient(result, self._runner) if name == "endpoint" else result

        return call

    def __enter__(self) -> DrivenClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self._runner.run(self._wrapped.close())
        self._runner.close()

    def _each(self, items: Any) -> Iterator[Any]:
        async def following() -> object:
            return await anext(items)

        try:
            while True:
                try:
                    yield self._runner.run(following())
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(items.aclose())


# Any: both colours answer to the same names, which is what these suites are about.
def management_client(colour: str, *arguments: Any, **options: Any) -> Any:
    """Build a management client of one colour; use it as a context manager."""
    if colour == "sync":
        return ManagementClient(*arguments, **options)
    return DrivenClient(AsyncManagementClient(*arguments, **options))


def data_client(colour: str, *arguments: Any, **options: Any) -> Any:
    """Build a data client of one colour; use it as a context manager."""
    if colour == "sync":
        return DataClient(*arguments, **options)
    return DrivenClient(AsyncDataClient(*arguments, **options))
