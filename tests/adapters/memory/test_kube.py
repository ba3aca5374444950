"""What the memory cluster lets a test do that a real one does not: gaps, faults, counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.contracts.kube_worlds import MemoryKubeWorld, config_map, deployment, server_of

from holdfast.adapters.memory.kube import MemoryKube, RecordedWrite, custom_kind
from holdfast.core.errors import TargetUnavailable
from holdfast.reconcile.kube import (
    KindNotServed,
    KubeClient,
    Scope,
    VersionExpired,
    WatchEvent,
    WatchEventType,
    ref_of,
)

WORLD = MemoryKubeWorld()
MAPS = Scope(api_version="v1", kind="ConfigMap", namespace=WORLD.namespace)


def play(scene: Callable[[MemoryKube], Awaitable[None]], **options: Any) -> None:
    async def played() -> None:
        await scene(MemoryKube(**options))

    asyncio.run(played())


# Any: objects of the Kubernetes API, here and below.
def a_map(name: str = "a", **data: str) -> dict[str, Any]:
    return config_map(WORLD, name, **data)


async def collected(kube: MemoryKube, version: str, into: list[WatchEvent]) -> None:
    async for event in kube.watch(MAPS, version=version):
        into.append(event)


async def started(kube: MemoryKube, version: str) -> tuple[list[WatchEvent], asyncio.Task[None]]:
    seen: list[WatchEvent] = []
    task = asyncio.ensure_future(collected(kube, version, seen))
    await asyncio.sleep(0)
    return seen, task


def test_it_is_a_client_of_the_port() -> None:
    client: KubeClient = MemoryKube()
    assert isinstance(client, MemoryKube)


def test_a_bookmark_tells_the_version_and_nothing_else() -> None:
    async def scene(kube: MemoryKube) -> None:
        listed = await kube.list(MAPS)
        seen, task = await started(kube, listed.version)
        other: Any = await kube.apply(deployment(WORLD), manager="us")
        kube.bookmark()
        kube.end_watches()
        await task
        version = other["metadata"]["resourceVersion"]
        (event,) = seen
        assert event.type is WatchEventType.BOOKMARK
        assert event.item == {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"resourceVersion": version},
        }

    play(scene)


def test_a_watch_ends_cleanly_or_with_an_error_and_can_be_resumed() -> None:
    async def scene(kube: MemoryKube) -> None:
        version = (await kube.list(MAPS)).version
        _, task = await started(kube, version)
        kube.end_watches(TargetUnavailable("The cable was cut."))
        with pytest.raises(TargetUnavailable, match="cable"):
            await task
        await kube.apply(a_map(text="in the gap"), manager="us")
        seen, task = await started(kube, version)
        kube.end_watches()
        await task
        assert [event.type for event in seen] == [WatchEventType.ADDED]

    play(scene)


def test_only_so_many_events_are_kept() -> None:
    async def scene(kube: MemoryKube) -> None:
        before = (await kube.list(MAPS)).version
        for number in range(3):
            await kube.apply(a_map(f"m{number}"), manager="us")
        _, task = await started(kube, before)
        with pytest.raises(VersionExpired):
            await task
        now = (await kube.list(MAPS)).version
        kube.compact()
        _, task = await started(kube, now)
        with pytest.raises(VersionExpired):
            await task
        _, task = await started(kube, (await kube.list(MAPS)).version)
        kube.end_watches()
        await task

    play(scene, history=2)


def test_a_kind_comes_and_goes() -> None:
    async def scene(kube: MemoryKube) -> None:
        metadata = {"name": "w", "namespace": "shop"}
        widget: Any = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata}
        with pytest.raises(KindNotServed):
            await kube.apply(widget, manager="us")
        kube.serve(custom_kind("example.com/v1", "Widget"))
        made = await kube.apply({**widget, "spec": {"size": 1}}, manager="us")
        kube.unserve("Widget")
        with pytest.raises(KindNotServed):
            await kube.get(ref_of(widget))
        kube.serve("Widget")
        assert await kube.get(ref_of(widget)) == made

    play(scene)


def test_watches_of_a_kind_end_when_it_goes() -> None:
    async def scene(kube: MemoryKube) -> None:
        _, task = await started(kube, (await kube.list(MAPS)).version)
        kube.unserve("ConfigMap")
        await task

    play(scene)


def test_calls_fail_when_they_are_told_to_once() -> None:
    async def scene(kube: MemoryKube) -> None:
        cut = TargetUnavailable("The cable was cut.")
        kube.fail_next("apply", cut, after=1, kind="ConfigMap")
        await kube.apply(a_map("one"), manager="us")
        await kube.apply(deployment(WORLD), manager="us")
        with pytest.raises(TargetUnavailable):
            await kube.apply(a_map("two"), manager="us")
        assert await kube.get(ref_of(a_map("two"))) is None
        await kube.apply(a_map("two"), manager="us")
        kube.fail_next("delete", cut, done=True)
        with pytest.raises(TargetUnavailable):
            await kube.delete(ref_of(a_map("two")))
        assert await kube.get(ref_of(a_map("two"))) is None
        for verb, call in (
            ("get", kube.get(ref_of(a_map()))),
            ("list", kube.list(MAPS)),
            ("watch", collected(kube, "0", [])),
        ):
            kube.fail_next(verb, cut)
            with pytest.raises(TargetUnavailable, match="cable"):
                await call

    play(scene)


def test_writes_are_counted_with_their_effect() -> None:
    async def scene(kube: MemoryKube) -> None:
        item = a_map(text="x")
        for dry_run in (True, False, False):
            await kube.apply(item, manager="us", dry_run=dry_run)
        await kube.delete(ref_of(item))
        kube.create(item)
        ref = ref_of(item)
        assert kube.writes == [
            RecordedWrite(verb="apply", ref=ref, manager="us", dry_run=True, changed=False),
            RecordedWrite(verb="apply", ref=ref, manager="us", dry_run=False, changed=True),
            RecordedWrite(verb="apply", ref=ref, manager="us", dry_run=False, changed=False),
            RecordedWrite(verb="delete", ref=ref, manager="", dry_run=False, changed=True),
        ]

    play(scene)


def test_pods_are_ready_when_the_test_says_so() -> None:
    async def scene(kube: MemoryKube) -> None:
        item = deployment(WORLD)
        made: Any = await kube.apply(item, manager="us")
        ref = ref_of(item)
        half: Any = kube.make_ready(ref, ready=1)
        assert half["status"]["readyReplicas"] == half["status"]["unavailableReplicas"] == 1
        done: Any = kube.make_ready(ref)
        status = done["status"]
        assert status["observedGeneration"] == made["metadata"]["generation"] == 1
        assert status["replicas"] == status["updatedReplicas"] == status["availableReplicas"] == 2
        assert {each["type"]: each["status"] for each in status["conditions"]} == {
            "Available": "True",
            "Progressing": "True",
        }
        assert await kube.apply(item, manager="us") == done
        server_of(item)["image"] = "registry.example/vllm:v2"
        changed: Any = await kube.apply(item, manager="us")
        assert changed["metadata"]["generation"] == 2
        assert changed["status"] == status

    play(scene)
