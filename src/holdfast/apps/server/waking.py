"""Wakes workloads that have no replicas, and tells the operator which were asked, and when.

Both by annotations of the InferenceService, which are merged: of several data planes the latest
request counts, and each sign of life is as good as another's. The operator decides about replicas.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.objects import Object
from holdfast.adapters.runner import ReplicaLease
from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.logs import event
from holdfast.apps.server.pods import PodRouter
from holdfast.core.errors import HoldfastError
from holdfast.core.names import WorkloadId
from holdfast.core.quantity import parse_moment
from holdfast.core.service.idle import (
    DATA_PLANE_ANNOTATION,
    DATA_PLANE_BEAT,
    LAST_REQUEST_ANNOTATION,
    MIN_IDLE_AFTER,
    idle_seconds,
    sign_interval,
)
from holdfast.core.service.spec import API_VERSION, KIND
from holdfast.reconcile.kube import ObjectRef, Scope
from holdfast.reconcile.ports import Clock

MAX_HELD = 100
"""Requests that wait at once for one workload to start."""
_PATCH_PAUSE = 1.0
"""Seconds between two attempts to wake one workload, at least."""
_WAKE_INTERVAL = MIN_IDLE_AFTER / 2
"""Seconds between two attempts to wake one workload, at the most: an operator that was slow to see
one of them takes it for too old."""


class WorkloadWaker:
    """One per server, used from its event loop only."""

    def __init__(self, api: KubeApi, router: PodRouter, clock: Clock) -> None:
        self._api = api
        self._router = router
        self._clock = clock
        self._held: Counter[tuple[str, str]] = Counter()
        self._patched_at: dict[tuple[str, str], float] = {}
        self._told: dict[tuple[str, str], datetime] = {}
        self._patching = asyncio.Lock()

    async def wait_for_lease(
        self,
        workload: WorkloadId,
        namespace: str,
        budget: float,
        acquire: Callable[[], ReplicaLease | None],
    ) -> ReplicaLease | None:
        """Wake a workload and hold a request until it has a pod; None once the budget is used up.

        The pod is taken in the moment it is seen: a little later it may have left. Raises an
        error for the client when too many wait already.
        """
        key = (namespace, workload.slug)
        if self._held[key] >= MAX_HELD:
            raise HttpError(
                503,
                "not_ready",
                f"Workload {workload} is starting, and {MAX_HELD} requests wait for it already.",
                retry_after=5,
            )
        self._held[key] += 1
        until = self._clock.monotonic() + budget
        try:
            while True:
                change = self._router.next_change
                if (lease := acquire()) is not None:
                    return lease
                left = until - self._clock.monotonic()
                if left <= 0:
                    return None
                await self._wake(key)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _WAKE_INTERVAL)):
                        await change.wait()
        finally:
            self._held[key] -= 1

    async def _wake(self, key: tuple[str, str]) -> None:
        """Say that the workload is asked, at most once in a while. A failure is tried again."""
        self._router.note_request(*key)
        now = self._clock.monotonic()
        if now - self._patched_at.get(key, -_PATCH_PAUSE) < _PATCH_PAUSE:
            return
        self._patched_at[key] = now
        try:
            await self._annotate(*key, asked=self._clock.now())
        except HoldfastError as error:
            _report("wake-failed", key, error)

    async def run(self, namespaces: Callable[[], Iterable[str]]) -> None:
        """Give signs of life on every workload that may have no replicas, until cancelled."""
        while True:
            interval = DATA_PLANE_BEAT
            for namespace in namespaces():
                try:
                    if await self._router.follow(namespace):
                        interval = min(interval, await self._beat(namespace))
                except HoldfastError as error:
                    _report("data-plane-beat-failed", (namespace, ""), error)
            await self._clock.sleep(interval)

    async def _beat(self, namespace: str) -> float:
        """Give the signs that are due in a namespace; gives the shortest time between two."""
        scope = Scope(api_version=API_VERSION, kind=KIND, namespace=namespace)
        shortest = DATA_PLANE_BEAT
        for item in (await self._api.list(scope)).items:
            if _scales_to_zero(item):
                interval = min(sign_interval(_idle_seconds(item)), DATA_PLANE_BEAT)
                shortest = min(shortest, interval)
                await self._give_sign(namespace, item, interval)
        return shortest

    async def _give_sign(self, namespace: str, item: Object, interval: float) -> None:
        """Tell that we are here and when the workload was asked, unless that was told just now."""
        name = str(item["metadata"]["name"])
        annotations = item["metadata"].get("annotations") or {}
        known = parse_moment(annotations.get(LAST_REQUEST_ANNOTATION))
        asked = self._router.last_request(namespace, name)
        if self._held[namespace, name]:
            asked = self._clock.now()
        if asked is not None and known is not None and asked.replace(microsecond=0) <= known:
            asked = None  # it is told already, or another data plane was asked later
        seen = parse_moment(annotations.get(DATA_PLANE_ANNOTATION))
        is_quiet = seen is None or (self._clock.now() - seen).total_seconds() >= interval / 2
        is_news = asked is not None and (
            known is None or (asked - known).total_seconds() >= interval / 2
        )
        if is_quiet or is_news:
            try:
                await self._annotate(namespace, name, asked=asked)
            except HoldfastError as error:
                _report("data-plane-beat-failed", (namespace, name), error)

    async def _annotate(self, namespace: str, name: str, *, asked: datetime | None) -> None:
        ref = ObjectRef(api_version=API_VERSION, kind=KIND, namespace=namespace, name=name)
        async with self._patching:
            annotations = {DATA_PLANE_ANNOTATION: _stamp(self._clock.now())}
            if asked is not None:
                # A request that came while another patch was on its way is not to be unsaid.
                latest = max(asked, self._told.get((namespace, name), asked))
                self._told[namespace, name] = latest
                annotations[LAST_REQUEST_ANNOTATION] = _stamp(latest)
            await self._api.patch(ref, {"metadata": {"annotations": annotations}})


@asynccontextmanager
async def give_signs(
    waker: WorkloadWaker, namespaces: Callable[[], Iterable[str]]
) -> AsyncIterator[None]:
    """Give signs of life while the block lasts."""
    running = asyncio.create_task(waker.run(namespaces))
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _scales_to_zero(item: Object) -> bool:
    spec = item.get("spec") or {}
    return spec.get("minReplicas") == 0 and bool(spec.get("maxReplicas"))


def _idle_seconds(item: Object) -> float:
    given = ((item.get("spec") or {}).get("autoscaling") or {}).get("idleAfter")
    return idle_seconds(given if isinstance(given, str | int | float) else None)


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _report(name: str, key: tuple[str, str], error: HoldfastError) -> None:
    namespace, service = key
    event(name, level=logging.WARNING, namespace=namespace, service=service, why=error.happened)
