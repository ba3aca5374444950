"""Follows InferenceServices by watches: one to readiness, or all of a namespace as they change."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.objects import Object, Resource, uid_of, version_of
from holdfast.adapters.kubernetes.target_objects import shown
from holdfast.adapters.kubernetes.watch import Scope, WatchSilent, watch
from holdfast.core.errors import NotFound
from holdfast.core.live import Live, Phase, Progress
from holdfast.core.names import WorkloadId
from holdfast.reconcile.kube import EventType, Expired, WatchEvent
from holdfast.reconcile.ports import Clock

LASTING = 300.0
"""Seconds of one watch; the next begins where it ended."""


async def follow(
    api: KubeApi, resource: Resource, first: Object, *, clock: Clock
) -> AsyncGenerator[Progress, None]:
    """Yield how the workload does, now and at each change, up to `ready` or `error`."""
    began = clock.monotonic()
    metadata = first["metadata"]
    scope = Scope(
        resource=resource,
        namespace=metadata["namespace"],
        fields=f"metadata.name={metadata['name']}",
    )
    last: Progress | None = None
    item = first
    async with aclosing(_changes(api, scope, version_of(first))) as events:
        while True:
            live = shown(item)
            seen = _progress(live, round((clock.monotonic() - began) * 1000))
            if last is None or (seen.phase, seen.message) != (last.phase, last.message):
                last = seen
                yield seen
                if seen.phase in (Phase.READY, Phase.ERROR):
                    return
            event = await anext(events, None)
            if event is None:
                return
            item = event.item
            if event.type is EventType.DELETED or uid_of(item) != uid_of(first):
                raise NotFound(f"Workload {live.id} was deleted while it was waited for.")


async def changes(
    api: KubeApi, resource: Resource, namespace: str, version: str
) -> AsyncGenerator[WorkloadId | None, None]:
    """Yield None once the watch stands, then each workload that was written or reported on."""
    scope = Scope(resource=resource, namespace=namespace)
    yield None
    async with aclosing(_changes(api, scope, version)) as events:
        async for event in events:
            yield shown(event.item).id


async def _changes(api: KubeApi, scope: Scope, version: str) -> AsyncGenerator[WatchEvent, None]:
    """Yield events without bookmarks. An end means that events may have been missed."""
    while True:
        try:
            async with aclosing(watch(api, scope, version=version, lasting=LASTING)) as events:
                async for event in events:
                    version = version_of(event.item) or version
                    if event.type is not EventType.BOOKMARK:
                        yield event
        except (Expired, WatchSilent):
            return


def _progress(live: Live, elapsed: int) -> Progress:
    status = live.status
    counted = f"{status.ready}/{status.wanted} ready" if status.wanted else None
    return Progress(phase=status.phase, message=status.message, elapsed_ms=elapsed, step=counted)
