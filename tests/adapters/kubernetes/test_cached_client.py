"""Reads from copies, writes to the cluster, and nothing mistaken for absent in between."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from tests.adapters.kubernetes.harness import (
    CONFIG_MAPS,
    HastyClock,
    api_for,
    config_map,
    event,
    eventually,
    serving,
    status,
)

from holdfast.adapters.kubernetes.cached_client import CachedKubeClient
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.watch import ResourceScope as Followed
from holdfast.core.errors import TargetUnavailable, ValidationError
from holdfast.reconcile.kube import ConflictReason, KindNotServed, KubeConflict, ObjectRef, Scope

OURS = "team=x"


def ref(name: str, kind: str = "ConfigMap") -> ObjectRef:
    return ObjectRef(api_version="v1", kind=kind, namespace="shop", name=name)


def item(name: str, version: int, **labels: str) -> dict[str, Any]:
    made = config_map(name, version)
    made["metadata"]["labels"] = labels
    return made


@dataclass
class Server:
    """One kind in memory; what is asked is written down, watches and lists apart."""

    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    events: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    served: bool = True
    broken: bool = False
    """Watches and lists are answered with 500."""
    streams: list[asyncio.Task[object] | None] = field(default_factory=list)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        if request.path == "/api/v1":
            kinds = [
                {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
                {"name": "secrets", "kind": "Secret", "namespaced": True},
            ]
            return web.json_response({"resources": kinds})
        if not self.served:
            missing = status(404, "NotFound", "the server could not find the requested resource")
            return web.json_response(missing, status=404)
        if self.broken and ("watch" in request.query or name == "configmaps"):
            return web.json_response(status(500, "InternalError", "etcd is away"), status=500)
        if "watch" in request.query:
            self.streams.append(asyncio.current_task())
            return await self._stream(request)
        if name == "configmaps":
            wanted = "labelSelector" in request.query
            shown = [
                each
                for each in self.items.values()
                if not wanted or each["metadata"]["labels"] == {"team": "x"}
            ]
            return web.json_response({"metadata": {"resourceVersion": "100"}, "items": shown})
        self.asked.append(f"{request.method} {name}")
        if request.method == "PATCH":
            sent = json.loads(await request.read())
            if isinstance(sent, list):
                refused = status(422, "Invalid", "testing value failed")
                return web.json_response(refused, status=422)
            guard = sent["metadata"].get("resourceVersion")
            there = self.items.get(name)
            if guard and there and guard != there["metadata"]["resourceVersion"]:
                return web.json_response(status(409, "Conflict", "it is there"), status=409)
            self.items[name] = {**item(name, 200 + len(self.asked), team="x"), "data": sent["data"]}
        found = self.items.get(name)
        if found is None:
            about = {"name": name, "kind": "configmaps"}
            gone = status(404, "NotFound", "not found", details=about)
            return web.json_response(gone, status=404)
        return web.json_response(found)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            happened = await self.events.get()
            await response.write(json.dumps(happened).encode() + b"\n")


@asynccontextmanager
async def cached(server: Server) -> AsyncIterator[tuple[CachedKubeClient, Informer]]:
    async with serving(server) as url, api_for(url) as api:
        followed = Followed(resource=CONFIG_MAPS, labels=OURS)
        informer = Informer(api, followed)
        client = CachedKubeClient(api, [informer])
        task = asyncio.ensure_future(informer.run())
        await eventually(lambda: informer.has_synced or not informer.served, "the copy")
        try:
            yield client, informer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_reads_of_a_followed_kind_cost_no_request() -> None:
    async def story() -> None:
        server = Server(items={"a": item("a", 5, team="x")})
        async with cached(server) as (client, _):
            found = await client.get(ref("a"))
            assert found is not None and found["kind"] == "ConfigMap"
            assert await client.get(ref("b")) is None
            scope = Scope(api_version="v1", kind="ConfigMap", namespace="shop", labels=OURS)
            assert len((await client.list(scope)).items) == 1
            other = Scope(api_version="v1", kind="ConfigMap", namespace="other", labels=OURS)
            assert (await client.list(other)).items == []
        assert server.asked == []

    asyncio.run(story())


def test_a_kind_that_is_not_followed_is_asked_from_the_cluster() -> None:
    async def story() -> None:
        server = Server()
        async with cached(server) as (client, _):
            assert await client.get(ref("s", "Secret")) is None
        assert server.asked == ["GET s"]

    asyncio.run(story())


def test_a_list_of_more_than_is_followed_is_asked_from_the_cluster() -> None:
    async def story() -> None:
        server = Server(items={"a": item("a", 5, team="x"), "z": item("z", 6, team="z")})
        async with cached(server) as (client, _):
            found = await client.list(Scope(api_version="v1", kind="ConfigMap", namespace="shop"))
            assert len(found.items) == 2

    asyncio.run(story())


def test_a_write_is_read_back_before_the_watch_tells() -> None:
    async def story() -> None:
        server = Server()
        async with cached(server) as (client, _):
            await client.apply({**item("a", 0), "data": {"text": "new"}}, manager="us")
            found = await client.get(ref("a"))
            assert found is not None and found["data"] == {"text": "new"}
        assert server.asked == ["PATCH a"]

    asyncio.run(story())


def test_what_fell_out_of_sight_is_asked_for_in_person_until_it_is_gone() -> None:
    """A label that was taken away looks like a deletion to a watch with a selector."""

    async def story() -> None:
        server = Server(items={"a": item("a", 5, team="x")})
        async with cached(server) as (client, informer):
            server.items["a"] = item("a", 101)
            server.events.put_nowait(event("DELETED", item("a", 101, team="x")))
            await eventually(lambda: len(informer) == 0, "the event")
            found = await client.get(ref("a"))
            assert found is not None and found["metadata"]["labels"] == {}
            del server.items["a"]
            assert await client.get(ref("a")) is None
            assert await client.get(ref("a")) is None
        assert server.asked == ["GET a", "GET a"]

    asyncio.run(story())


def test_an_object_in_the_way_that_the_copy_lacks_is_seen_at_the_next_look() -> None:
    async def story() -> None:
        server = Server(items={"a": item("a", 5, team="theirs")})
        async with cached(server) as (client, _):
            assert await client.get(ref("a")) is None
            with pytest.raises(KubeConflict) as refused:
                await client.apply(item("a", 0), manager="us", absent=True)
            assert refused.value.reason is ConflictReason.EXISTS
            assert await client.get(ref("a")) is not None

    asyncio.run(story())


def test_objects_of_a_kind_that_is_not_served_are_unknown_not_absent() -> None:
    async def story() -> None:
        async with cached(Server(served=False)) as (client, _):
            with pytest.raises(KindNotServed):
                await client.get(ref("a"))

    asyncio.run(story())


def guarded(found: dict[str, Any], text: str) -> dict[str, Any]:
    return {**found, "data": {"text": text}}


def test_a_status_that_moved_on_does_not_hold_a_guarded_write_up() -> None:
    """During a rollout the status moves faster than anyone can write."""

    async def story() -> None:
        server = Server(items={"a": item("a", 5, team="x")})
        async with cached(server) as (client, _):
            found = await client.get(ref("a"))
            assert found is not None
            server.items["a"] = {**item("a", 150, team="x"), "status": {"ready": 1}}
            await client.apply(guarded(found, "healed"), manager="us", force=True)
        assert server.asked == ["PATCH a", "GET a", "PATCH a"]
        assert server.items["a"]["data"] == {"text": "healed"}

    asyncio.run(story())


def test_anything_else_that_moved_refuses_a_guarded_write() -> None:
    async def story() -> None:
        server = Server(items={"a": item("a", 5, team="x")})
        async with cached(server) as (client, _):
            found = await client.get(ref("a"))
            assert found is not None
            server.items["a"] = {**item("a", 150, team="x"), "data": {"text": "theirs"}}
            with pytest.raises(KubeConflict):
                await client.apply(guarded(found, "healed"), manager="us", force=True)
        assert server.items["a"]["data"] == {"text": "theirs"}

    asyncio.run(story())


def test_a_patch_that_was_refused_shows_the_version_that_refused_it() -> None:
    """Else a conflict would look like a patch that can never be made."""

    async def story() -> None:
        server = Server(items={"a": item("a", 7, team="x")})
        async with cached(server) as (client, _):
            server.items["a"] = item("a", 150, team="x")
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
            with pytest.raises(ValidationError):
                await client.patch(ref("a"), [test], manager="m")
            found = await client.get(ref("a"))
            assert found is not None
            assert found["metadata"]["resourceVersion"] == "150"

    asyncio.run(story())


class AheadClock(HastyClock):
    """Real time and short waits, and a test may let minutes pass at once."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def test_a_copy_whose_watch_fails_is_believed_for_two_minutes_and_then_unknown() -> None:
    async def story() -> None:
        server = Server(items={"a": item("a", 5, team="x")})
        clock = AheadClock()
        async with serving(server) as url, api_for(url, clock=clock) as api:
            informer = Informer(api, Followed(resource=CONFIG_MAPS))
            client = CachedKubeClient(api, [informer])
            task = asyncio.ensure_future(informer.run())
            await eventually(lambda: server.streams, "a watch")
            clock.ahead += 60
            assert await client.get(ref("a")) is not None, "a quiet watch is no old copy"
            server.broken = True
            stream = server.streams[0]
            assert stream is not None
            stream.cancel()
            await eventually(lambda: informer.error, "the watch to fail")
            clock.ahead += 30
            assert await client.get(ref("a")) is not None, "a short gap is none"
            clock.ahead += 100
            with pytest.raises(TargetUnavailable) as refused:
                await client.get(ref("a"))
            told = refused.value.happened
            assert re.search(r"What is known of configmaps is from 20\S+Z, 19\d s ago", told)
            assert "etcd is away" in told
            with pytest.raises(TargetUnavailable):
                await client.list(Scope(api_version="v1", kind="ConfigMap", namespace="shop"))
            server.broken = False
            await eventually(lambda: informer.outdated is None, "a copy that is current again")
            assert await client.get(ref("a")) is not None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
