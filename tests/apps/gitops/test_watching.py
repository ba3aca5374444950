"""What is followed: as much as is needed, and nothing mistaken for absent that is only unknown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from tests.adapters.kubernetes.harness import api_for, eventually, serving, status

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.objects import Object
from holdfast.apps.gitops.watches import (
    MAX_NAMESPACE_WATCHES,
    WATCH_INDEXES,
    KindWatcher,
    WatchedKind,
    make_autoscaler_lookup,
    make_pod_lookup,
)
from holdfast.core.errors import PermissionDenied
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.kube import KindNotServed

KINDS = {
    "v1": [("configmaps", "ConfigMap", True), ("pods", "Pod", True), ("nodes", "Node", False)],
    "apps/v1": [("deployments", "Deployment", True)],
    "autoscaling/v2": [("horizontalpodautoscalers", "HorizontalPodAutoscaler", True)],
}


# Any: objects of the Kubernetes API as they come over the wire, here and below.
@dataclass
class Server:
    """Some kinds in memory. What is asked is written down."""

    items: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By plural."""
    lists: list[str] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)
    forbidden: set[str] = field(default_factory=set)
    """Plurals, or `*` with one for the whole cluster."""
    extra: dict[str, list[tuple[str, str, bool]]] = field(default_factory=dict)
    streams: list[web.StreamResponse] = field(default_factory=list)

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        group = parts[1] if parts[0] == "api" else "/".join(parts[1:3])
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        if not rest:
            return self._discovery(group)
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural = rest[0]
        if plural in self.forbidden or (not namespace and f"*{plural}" in self.forbidden):
            return web.json_response(status(403, "Forbidden", "no"), status=403)
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            self.streams.append(response)
            await asyncio.Event().wait()
        if len(rest) == 1:
            self.lists.append(f"{namespace}/{plural}")
            found = [
                item
                for item in self.items.get(plural, ())
                if namespace in ("", item["metadata"].get("namespace"))
            ]
            return web.json_response({"metadata": {"resourceVersion": "10"}, "items": found})
        self.gets.append(request.path)
        gone = status(404, "NotFound", "not found", details={"name": rest[1], "kind": plural})
        return web.json_response(gone, status=404)

    def _discovery(self, group: str) -> web.Response:
        kinds = KINDS.get(group) or self.extra.get(group)
        if kinds is None:
            return web.Response(status=404, text="404 page not found\n")
        verbs = ["get", "list", "watch"]
        resources = [
            {"name": plural, "kind": kind, "namespaced": namespaced, "verbs": verbs}
            for plural, kind, namespaced in kinds
        ]
        return web.json_response({"resources": resources})

    async def send(self, change: str, item: dict[str, Any]) -> None:
        """Tell every watch."""
        for stream in self.streams:
            await stream.write(json.dumps({"type": change, "object": item}).encode() + b"\n")


@dataclass
class Heard:
    """What the controller would have heard."""

    objects: list[Object | None] = field(default_factory=list)
    turns: list[WatchedKind] = field(default_factory=list)


@asynccontextmanager
async def watching(server: Server) -> AsyncIterator[tuple[KindWatcher, Heard]]:
    heard = Heard()
    async with serving(server) as url, api_for(url) as api:
        made = KindWatcher(api, api, SystemClock(), indexes=WATCH_INDEXES)
        made.listen(lambda old, new: heard.objects.append(new), heard.turns.append)
        task = asyncio.ensure_future(made.run())
        try:
            yield made, heard
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await made.aclose()


def thing(kind: str, name: str, namespace: str = "shop", **more: Any) -> dict[str, Any]:
    api_version = next(group for group, kinds in KINDS.items() if kind in {k[1] for k in kinds})
    more_metadata = more.pop("metadata", {})
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "5"}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {**metadata, **more_metadata},
        **more,
    }


def ref(name: str, namespace: str = "shop", kind: str = "ConfigMap") -> ObjectRef:
    return ObjectRef(api_version="v1", kind=kind, namespace=namespace, name=name)


async def test_the_first_question_begins_to_follow_and_the_others_cost_nothing() -> None:
    server = Server(items={"configmaps": [thing("ConfigMap", "a"), thing("ConfigMap", "b")]})
    async with watching(server) as (held, heard):
        assert await held.client.get(ref("a")) is not None
        assert await held.client.get(ref("missing")) is None
        assert await held.client.get(ref("b")) is not None
        assert (server.lists, server.gets) == (["shop/configmaps"], [])
        # The first list is read as a whole by who asked; only what follows is news.
        assert heard.objects == []
        await eventually(lambda: server.streams, "the watch")
        changed = thing("ConfigMap", "a", metadata={"resourceVersion": "11"}, data={"x": "1"})
        await server.send("MODIFIED", changed)
        await eventually(lambda: heard.objects, "the news")


async def test_what_nobody_needs_any_more_is_not_followed_any_more() -> None:
    server = Server()
    async with watching(server) as (held, _):
        await held.client.get(ref("a"))
        await held.client.get(ref("a", "other"))
        needed = WatchedKind(api_version="v1", kind="ConfigMap", namespace="other")
        held.retain({needed})
        assert list(held.watched_kinds()) == [needed]


async def test_a_kind_in_many_namespaces_is_followed_in_all_of_them_at_once() -> None:
    server = Server(items={"configmaps": [thing("ConfigMap", "a", f"n{i}") for i in range(14)]})
    async with watching(server) as (held, _):
        for i in range(14):
            assert await held.client.get(ref("a", f"n{i}")) is not None
        whole = WatchedKind(api_version="v1", kind="ConfigMap", namespace="")
        assert list(held.watched_kinds()) == [whole]
        assert len(server.lists) == MAX_NAMESPACE_WATCHES + 1


async def test_where_the_whole_cluster_may_not_be_read_namespaces_go_on_one_by_one() -> None:
    server = Server(forbidden={"*configmaps"})
    async with watching(server) as (held, _):
        for i in range(14):
            assert await held.client.get(ref("a", f"n{i}")) is None
        assert len(list(held.watched_kinds())) == 14
        assert server.gets == []


async def test_a_kind_that_may_not_be_read_is_unknown_and_the_others_go_on() -> None:
    server = Server(forbidden={"configmaps"}, items={"pods": [thing("Pod", "p")]})
    async with watching(server) as (held, heard):
        with pytest.raises(PermissionDenied):
            await held.client.get(ref("a"))
        assert await held.client.get(ref("p", kind="Pod")) is not None
        server.forbidden.clear()
        await eventually(lambda: heard.turns, "word that it may be read")
        assert await held.client.get(ref("a")) is None


async def test_a_kind_that_is_not_served_is_unknown_until_it_is() -> None:
    server = Server()
    async with watching(server) as (held, heard):
        widget = ObjectRef(api_version="example.com/v1", kind="Widget", namespace="n", name="w")
        with pytest.raises(KindNotServed):
            await held.client.get(widget)
        server.extra["example.com/v1"] = [("widgets", "Widget", True)]
        await eventually(lambda: heard.turns, "word that it is served")
        assert await held.client.get(widget) is None
        assert "n/widgets" in server.lists


async def test_objects_without_a_namespace_are_found_whatever_is_said_of_one() -> None:
    node = thing("Node", "n1")
    del node["metadata"]["namespace"]
    server = Server(items={"nodes": [node]})
    async with watching(server) as (held, _):
        assert await held.client.get(ref("n1", "", kind="Node")) is not None
        assert list(held.watched_kinds()) == [
            WatchedKind(api_version="v1", kind="Node", namespace="")
        ]


async def test_an_autoscaler_is_found_by_what_it_scales() -> None:
    scaler = thing(
        "HorizontalPodAutoscaler",
        "bot",
        spec={"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    )
    server = Server(items={"horizontalpodautoscalers": [scaler]})
    async with watching(server) as (held, _):
        find = make_autoscaler_lookup(held)
        web_ref = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="shop", name="web")
        assert (await find(web_ref)).autoscaler == "HorizontalPodAutoscaler/bot"
        other = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="shop", name="db")
        assert (await find(other)).autoscaler == ""
        server.forbidden.add("horizontalpodautoscalers")
        apart = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="n2", name="web")
        assert (await find(apart)).autoscaler is None


async def test_pods_are_found_by_their_workload_and_by_the_secrets_they_read() -> None:
    owner = {"kind": "ReplicaSet", "name": "web-abc12", "controller": True}
    labels = {"app": "web", "pod-template-hash": "abc12"}
    env = [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "token", "key": "t"}}}]
    ours = thing(
        "Pod",
        "web-abc12-x",
        metadata={"ownerReferences": [owner], "labels": labels},
        spec={"containers": [{"name": "c", "env": env}]},
    )
    server = Server(items={"pods": [ours, thing("Pod", "stranger")]})
    async with watching(server) as (held, _):
        find = make_pod_lookup(held)
        web_ref = ObjectRef(api_version="apps/v1", kind="Deployment", namespace="shop", name="web")
        live: Any = {"spec": {"selector": {"matchLabels": {"app": "web"}}}}
        found = await find(web_ref, live)
        assert [pod["metadata"]["name"] for pod in found] == ["web-abc12-x"]  # type: ignore[index,call-overload]
        secret = ref("token", kind="Secret")
        assert len(await find(secret, {})) == 1
