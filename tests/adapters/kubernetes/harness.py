"""A scripted API server, clocks that do not make tests wait, and shorthand for small objects."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.connection import KubeConnection
from holdfast.adapters.kubernetes.credentials import FixedCredentials
from holdfast.adapters.kubernetes.kubeconfig import ClusterConfig, load_config
from holdfast.adapters.kubernetes.objects import Resource

CONFIG_MAPS = Resource(
    group="", version="v1", kind="ConfigMap", plural="configmaps", namespaced=True
)
HANG = "hang"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HastyClock(SystemClock):
    """Real time, but waits are short; `slept` tells how long they were meant to be."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(min(seconds, 0.01))


class HandClock:
    """Time that moves only when the test says so."""

    def __init__(self) -> None:
        self.time = 1000.0
        self._moved = asyncio.Event()

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.time)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        end = self.time + seconds
        while self.time < end:
            await self._moved.wait()

    async def advance(self, seconds: float) -> None:
        self.time += seconds
        self._moved.set()
        self._moved = asyncio.Event()
        await settle()


async def settle() -> None:
    """Let every task run until it waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


async def eventually(holds: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    """Poll until something holds."""
    try:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110  # what is polled knows no events
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never came: {what}") from None


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def config_map(name: str, version: int, *, uid: str = "", text: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "managedFields": [{"manager": "x", "fieldsV1": {"f:data": {}}}],
        },
        "data": {"text": text},
    }


def event(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": item}


def bookmark(version: int) -> dict[str, Any]:
    metadata = {"resourceVersion": str(version)}
    return event("BOOKMARK", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata})


def status(code: int, reason: str, message: str = "it is so", **more: Any) -> dict[str, Any]:
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return {**said, "code": code, "reason": reason, "message": message, **more}


def listing(version: int, *items: dict[str, Any]) -> dict[str, Any]:
    bare = [{k: v for k, v in item.items() if k not in ("apiVersion", "kind")} for item in items]
    return {"kind": "ConfigMapList", "metadata": {"resourceVersion": str(version)}, "items": bare}


class Script:
    """What lists and watches answer, one after the other; the last of each is repeated."""

    def __init__(self, *, lists: list[dict[str, Any]], watches: list[list[Any]]) -> None:
        self.lists = lists
        self.watches = watches
        self.listed = 0
        self.watched: list[str] = []
        """The version that each watch asked for."""

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            assert request.query["allowWatchBookmarks"] == "true"
            steps = self.watches[min(len(self.watched), len(self.watches) - 1)]
            self.watched.append(request.query["resourceVersion"])
            return await self._stream(request, steps)
        answer = self.lists[min(self.listed, len(self.lists) - 1)]
        self.listed += 1
        return web.json_response(answer, status=answer.get("code", 200))

    async def _stream(self, request: web.Request, steps: list[Any]) -> web.StreamResponse:
        if steps and steps[0] != HANG and steps[0].get("kind") == "Status":
            return web.json_response(steps[0], status=steps[0]["code"])
        response = web.StreamResponse()
        await response.prepare(request)
        for step in steps:
            if step == HANG:
                await asyncio.sleep(3600)
            elif isinstance(step, bytes):
                await response.write(step)
            else:
                await response.write(json.dumps(step).encode() + b"\n")
        return response


@asynccontextmanager
async def serving(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve one handler for every path; gives the address."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def api_for(
    config: ClusterConfig | str, *, clock: Any = None, within: float = 20.0, manager: str = "us"
) -> AsyncIterator[KubeApi]:
    """A client for a configuration, or for a plain address."""
    if isinstance(config, str):
        config = ClusterConfig(server=config, credentials=FixedCredentials(), source="the test")
    clock = clock or HastyClock()
    connection = KubeConnection(config, clock=clock, user_agent="holdfast-test", chance=lambda: 0.5)
    api = KubeApi(connection, manager=manager, timeout=within)
    try:
        yield api
    finally:
        await api.aclose()


def cluster_config(kubeconfig: Path) -> ClusterConfig:
    return load_config(clock=SystemClock(), environ={"KUBECONFIG": str(kubeconfig)})
