"""Nothing is written by who may not act."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from tests.adapters.kubernetes.harness import api_for, config_map, serving

from holdfast.adapters.kubernetes.client import GuardedClient
from holdfast.adapters.kubernetes.lease import LeadershipLost
from holdfast.core.object_ref import ref_of


def test_writes_are_refused_before_and_after_our_turn_and_reads_are_not() -> None:
    async def story() -> None:
        asked: list[str] = []
        item = config_map("a", 5)

        async def server(request: web.Request) -> web.StreamResponse:
            if request.path == "/api/v1":
                kind = {"name": "configmaps", "kind": "ConfigMap", "namespaced": True}
                return web.json_response({"resources": [kind]})
            asked.append(request.method)
            return web.json_response(item)

        async with serving(server) as url, api_for(url) as api:
            client = GuardedClient(api)
            for turn in (client.may_write, lambda: False):
                client.may_write = turn
                with pytest.raises(LeadershipLost):
                    await client.apply(item, manager="us")
                with pytest.raises(LeadershipLost):
                    await client.patch(ref_of(item), [], manager="us")
                with pytest.raises(LeadershipLost):
                    await client.delete(ref_of(item))
            assert await client.get(ref_of(item)) == item
            await client.apply(item, manager="us", dry_run=True)
            client.may_write = lambda: True
            await client.delete(ref_of(item))
            assert asked == ["GET", "PATCH", "DELETE"]

    asyncio.run(story())
