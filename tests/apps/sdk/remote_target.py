"""A remote target whose clock, chance and colour the test holds in its hands."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from tests.support.both_clients import management_client

from holdfast.adapters.http.client import HttpClient
from holdfast.adapters.http.target import RemoteTarget
from holdfast.adapters.http.transports import AsyncTransport, BlockingTransport
from holdfast.core.live import Live
from holdfast.core.names import WorkloadId
from holdfast.core.plan import Action, Disruption, Step
from holdfast.core.redact import Secret
from holdfast.reconcile.sync_bridge import run_sync
from holdfast.wire.workload_v1 import workload_to_json

T = TypeVar("T")
TOKEN = "ik_sdk_0123abcd_" + "f" * 64
CHAT = WorkloadId(project="acme", slug="chat")
JSON = {"content-type": "application/json"}


class TestClock:
    """A clock that moves only when someone sleeps."""

    __test__ = False

    def __init__(self, now: datetime | None = None) -> None:
        self.slept: list[float] = []
        self._now = now or datetime(2026, 1, 1, tzinfo=UTC)
        self._seconds = 1000.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._seconds += seconds


class RemoteTargetDriver:
    """Drives a remote target of one colour."""

    def __init__(
        self, colour: str, url: str, *, clock: Any = None, retries: int = 4, seconds: float = 30.0
    ) -> None:
        self.clock = clock or TestClock()
        self._runner = None if colour == "sync" else asyncio.Runner()
        self._root = RemoteTarget(
            HttpClient(
                url,
                token=Secret(TOKEN),
                user_agent="holdfast-sdk/0",
                transport=BlockingTransport() if colour == "sync" else AsyncTransport(),
                clock=self.clock,
                retries=retries,
                chance=lambda: 1.0,
            )
        )
        self._seconds = seconds

    @property
    def target(self) -> RemoteTarget:
        """The target with a fresh deadline."""
        return self._root.within(self._seconds)

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        return run_sync(work) if self._runner is None else self._runner.run(work)

    def each(self, items: Any) -> list[Any]:
        """Read an async iterator to its end."""

        async def collect() -> list[Any]:
            return [item async for item in items]

        return self(collect())

    def __enter__(self) -> RemoteTargetDriver:
        return self

    def __exit__(self, *exception: object) -> None:
        self(self._root.aclose())
        if self._runner is not None:
            self._runner.close()


# Any: either colour, under the same names.
def instant_client(colour: str, url: str, token: str, *, clock: Any = None) -> Any:
    """A management client of one colour for project acme, whose back-off takes no time."""
    transport = HttpClient(
        url,
        token=Secret(token),
        user_agent="holdfast-sdk/0",
        transport=BlockingTransport() if colour == "sync" else AsyncTransport(),
        clock=clock or TestClock(),
        retries=4,
    )
    return management_client(colour, project="acme", target=RemoteTarget(transport))


def chat_body(**changes: object) -> bytes:
    """A whole answer about workload acme/chat."""
    live = Live(
        id=CHAT,
        uid="u-1",
        version="u-1.1",
        generation=1,
        fields={"name": "chat", "model": "m", "backend": "vllm"},
    )
    form = msgspec.to_builtins(workload_to_json(live, project_id="p-1"))
    return msgspec.json.encode({**form, **changes})


def make_step(action: Action = Action.UPDATE) -> Step:
    """A step on acme/chat."""
    return Step(
        id=CHAT,
        action=action,
        reason="",
        disruption=Disruption.NONE,
        write={"replicas": 2},
        uid="u-1",
        version="u-1.1",
    )
