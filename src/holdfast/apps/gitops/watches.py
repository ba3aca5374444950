"""Follows the kinds that Applications declare: an informer for each kind and namespace, as needed.

The first question about a kind begins to follow it; `retain` ends what nobody asks about. Objects
of everybody are followed, since an object that lost its label is drift and not gone. A kind that
is not served, or may not be read, is unknown, and the others go on without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.cached_client import CachedKubeClient
from holdfast.adapters.kubernetes.informer import IndexFunction, Informer
from holdfast.adapters.kubernetes.objects import (
    Object,
    Resource,
    compact_managed_fields,
    matches_selector,
)
from holdfast.adapters.kubernetes.watch import ResourceScope
from holdfast.core.errors import AuthError, HoldfastError, PermissionDenied, TargetUnavailable
from holdfast.core.gitops.pods import WORKLOADS, selector_of
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.delegated import NO_CONTEXT, OwnershipContext
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.object_observer import AutoscalersOf, PodsOf
from holdfast.reconcile.kube import KindNotServed
from holdfast.reconcile.ports import Clock

MAX_NAMESPACE_WATCHES = 10
"""With more namespaces than this, a kind is followed in the whole cluster."""
MAX_WATCHES = 80
"""Watches that one connection carries, with room for lists."""
FIRST_LIST_TIMEOUT = 15.0
"""Seconds that a first list may take before the kind counts as unknown."""
UNSERVED_COOLDOWN = 1.0
"""Seconds between two questions about a kind that is not served."""
UNSERVED_RETRY = (1.0, 60.0)
"""Seconds, at first and at most, between two looks for a kind while nobody asks about it."""
CHECK_INTERVAL = 1.0
_SYNC_POLL = 0.02
_REFUSALS = (PermissionDenied, AuthError, KindNotServed)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class WatchedKind:
    """One kind in one namespace; an empty one is the whole cluster."""

    api_version: str
    kind: str
    namespace: str


OnObject = Callable[[Object | None, Object | None], None]
"""Hears of an object's old and new form."""
OnAvailability = Callable[[WatchedKind], None]
"""Hears of a kind that is known again, or is no longer."""


@dataclass(slots=True)
class _RunningInformer:
    informer: Informer
    task: asyncio.Task[None]
    since: float
    well: bool | None = None
    """How it was when somebody was last told; None before that."""


class KindWatcher:
    """The informers of one controller. `run` tells of kinds that were lost or came back."""

    def __init__(
        self,
        api: KubeApi,
        work: KubeApi,
        clock: Clock,
        *,
        indexes: Mapping[tuple[str, str], Mapping[str, IndexFunction]],
        first_list_timeout: float = FIRST_LIST_TIMEOUT,
    ) -> None:
        """`api` carries the watches, `work` everything else."""
        self._api = api
        self._clock = clock
        self._on_object: OnObject = lambda old, new: None
        self._on_availability: OnAvailability = lambda kind: None
        self._indexes = indexes
        self._first_list_timeout = first_list_timeout
        self._running: dict[tuple[str, str], dict[str, _RunningInformer]] = {}
        self._narrow: set[tuple[str, str]] = set()
        """Kinds that may not be listed in the whole cluster."""
        self._missing: dict[WatchedKind, tuple[float, HoldfastError]] = {}
        """What could not be followed, since when, and why."""
        self._retries: dict[tuple[str, str], tuple[float, float]] = {}
        """When to look for a missing kind again, and how long the last wait was."""
        self.client = CachedKubeClient(work, follow=self.follow)
        """Reads from the copies, and writes through."""

    def listen(self, on_object: OnObject, on_availability: OnAvailability) -> None:
        """Tell of every object that changes, and of kinds that are lost or come back."""
        self._on_object, self._on_availability = on_object, on_availability

    async def follow(self, api_version: str, kind: str, namespace: str) -> None:
        """Follow a kind from now on, and wait for its first list. Raises why it is unknown."""
        watched = WatchedKind(api_version=api_version, kind=kind, namespace=namespace)
        running = self._find(watched)
        if running is None:
            running = await self._begin(watched)
        if running is not None:
            await self._wait_until_listed(running, watched)

    async def select(
        self, api_version: str, kind: str, namespace: str, index: str, value: str
    ) -> list[Object]:
        """Return the objects that an index has under a value. Raises why they are unknown."""
        await self.follow(api_version, kind, namespace)
        running = self._find(WatchedKind(api_version=api_version, kind=kind, namespace=namespace))
        if running is None:
            raise TargetUnavailable(f"{kind} is not followed in {namespace}.")
        return running.informer.select(index, value)

    def retain(self, needed: Collection[WatchedKind]) -> None:
        """Stop following what nobody needs any more."""
        kinds: dict[tuple[str, str], set[str]] = {}
        for watched in needed:
            kinds.setdefault((watched.api_version, watched.kind), set()).add(watched.namespace)
        for key, running in list(self._running.items()):
            for namespace in list(running):
                namespaces = kinds.get(key, set())
                if not namespaces or (namespace and namespace not in namespaces):
                    self._end(key, namespace)
        self._missing = {
            watched: why for watched, why in self._missing.items() if watched in needed
        }

    def watched_kinds(self) -> Iterator[WatchedKind]:
        """Name what is followed now."""
        for (api_version, kind), running in self._running.items():
            for namespace in running:
                yield WatchedKind(api_version=api_version, kind=kind, namespace=namespace)

    def object_counts(self) -> Mapping[str, int]:
        """How many objects are kept, by kind."""
        found: dict[str, int] = {}
        for (_, kind), running in self._running.items():
            found[kind] = found.get(kind, 0) + sum(len(each.informer) for each in running.values())
        return found

    async def run(self) -> None:
        """Notice what is lost and what comes back, until cancelled."""
        while True:
            await self._clock.sleep(CHECK_INTERVAL)
            for key, namespaces in list(self._running.items()):
                for namespace, running in list(namespaces.items()):
                    well = _is_healthy(running.informer)
                    if running.well is not None and running.well is not well:
                        self._on_availability(
                            WatchedKind(api_version=key[0], kind=key[1], namespace=namespace)
                        )
                    if running.well is not None or well:
                        running.well = well
            await self._retry_unserved()

    async def aclose(self) -> None:
        """End every watch."""
        tasks = [each.task for running in self._running.values() for each in running.values()]
        self._running.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _find(self, watched: WatchedKind) -> _RunningInformer | None:
        running = self._running.get((watched.api_version, watched.kind), {})
        return running.get("") or running.get(watched.namespace)

    async def _begin(self, watched: WatchedKind) -> _RunningInformer | None:
        """Start an informer; None for a kind that can only be asked about one by one."""
        since, error = self._missing.get(watched, (float("-inf"), None))
        if error is not None and self._clock.monotonic() - since < UNSERVED_COOLDOWN:
            raise error
        try:
            resource = await self._api.resource_of(watched.api_version, watched.kind)
        except HoldfastError as why:
            self._missing[watched] = (self._clock.monotonic(), why)
            raise
        self._missing.pop(watched, None)
        if (running := self._find(watched)) is not None:
            return running  # somebody else was faster
        if resource.verbs and not resource.verbs >= {"list", "watch"}:
            return None
        return await self._start(resource, watched)

    async def _start(self, resource: Resource, watched: WatchedKind) -> _RunningInformer | None:
        key = (watched.api_version, watched.kind)
        total = sum(map(len, self._running.values()))
        if not resource.namespaced or not watched.namespace:
            return self._run(resource, key, "") if total < MAX_WATCHES else None
        wide = len(self._running.get(key, {})) >= MAX_NAMESPACE_WATCHES or total >= MAX_WATCHES
        if wide and key not in self._narrow:
            running = self._run(resource, key, "")
            try:
                await self._wait_until_listed(running, watched)
            except HoldfastError:
                self._end(key, "")
                self._narrow.add(key)
            else:
                for namespace in [each for each in self._running[key] if each]:
                    self._end(key, namespace)
                return running
        return self._run(resource, key, watched.namespace) if total < MAX_WATCHES else None

    def _run(self, resource: Resource, key: tuple[str, str], namespace: str) -> _RunningInformer:
        known = self._running.setdefault(key, {})
        if (running := known.get(namespace)) is not None:
            return running
        informer = Informer(
            self._api,
            ResourceScope(resource=resource, namespace=namespace),
            transform=compact_managed_fields,
            indexes=self._indexes.get(key),
        )

        def hear(old: Object | None, new: Object | None) -> None:
            if informer.has_synced:  # whoever asked for the first list reads it as a whole
                self._on_object(old, new)

        informer.add_handler(hear)
        task = asyncio.create_task(informer.run())
        running = known[namespace] = _RunningInformer(informer, task, self._clock.monotonic())
        self.client.add(informer)
        return running

    def _end(self, key: tuple[str, str], namespace: str) -> None:
        running = self._running[key].pop(namespace)
        if not self._running[key]:
            del self._running[key]
        self.client.remove(running.informer)
        running.task.cancel()

    async def _wait_until_listed(self, running: _RunningInformer, watched: WatchedKind) -> None:
        informer = running.informer
        while not informer.has_synced:
            if isinstance(informer.error, _REFUSALS):
                running.well = False
                raise informer.error
            if self._clock.monotonic() - running.since > self._first_list_timeout:
                running.well = False
                where = watched.namespace or "the cluster"
                raise informer.error or TargetUnavailable(
                    f"{watched.kind} in {where} was not listed in time."
                )
            await self._clock.sleep(_SYNC_POLL)
        if isinstance(informer.error, _REFUSALS):
            running.well = False
            raise informer.error
        if (outdated := informer.outdated) is not None:
            running.well = False
            raise outdated

    async def _retry_unserved(self) -> None:
        """Look for the kinds that were not there; who asked hears of those that are now."""
        now = self._clock.monotonic()
        kinds = {(watched.api_version, watched.kind) for watched in self._missing}
        self._retries = {kind: again for kind, again in self._retries.items() if kind in kinds}
        for kind in sorted(kinds):
            due, pause = self._retries.setdefault(
                kind, (now + UNSERVED_RETRY[0], UNSERVED_RETRY[0])
            )
            if now < due:
                continue
            pause = min(2 * pause, UNSERVED_RETRY[1])
            self._retries[kind] = (now + pause, pause)
            try:
                await self._api.resource_of(*kind)
            except HoldfastError:
                continue
            for watched in [
                each for each in self._missing if (each.api_version, each.kind) == kind
            ]:
                del self._missing[watched]
                self._on_availability(watched)


def _is_healthy(informer: Informer) -> bool:
    refused = isinstance(informer.error, _REFUSALS)
    return informer.has_synced and not refused and informer.outdated is None


AUTOSCALER_KIND = ("autoscaling/v2", "HorizontalPodAutoscaler")
POD_KIND = ("v1", "Pod")
SCALABLE_KINDS = frozenset({"Deployment", "StatefulSet", "ReplicaSet"})
_TARGET, _WORKLOAD, _SECRET = "target", "workload", "secret"
_POD_TEMPLATE_HASH = "pod-template-hash"
_POD_OWNING_KINDS = frozenset({"StatefulSet", "DaemonSet"})


def make_autoscaler_lookup(watching: KindWatcher) -> AutoscalersOf:
    """Say which autoscaler sets an object's replicas, from the copy of them all."""

    async def find_autoscaler(ref: ObjectRef) -> OwnershipContext:
        if ref.kind not in SCALABLE_KINDS:
            return NO_CONTEXT
        try:
            scalers = await watching.select(*AUTOSCALER_KIND, ref.namespace, _TARGET, str(ref))
        except (PermissionDenied, AuthError, KindNotServed):
            return NO_CONTEXT  # nobody looked: the last writer tells
        names = [f"HorizontalPodAutoscaler/{each['metadata']['name']}" for each in scalers]
        return OwnershipContext(autoscaler=next(iter(names), ""))

    return find_autoscaler


def make_pod_lookup(watching: KindWatcher) -> PodsOf:
    """Give the pods of a workload, or those that read a Secret, from the copy of them all."""

    async def find_pods(ref: ObjectRef, live: Fields) -> Sequence[Fields]:
        if ref.kind == "Secret":
            watched = f"{ref.namespace}/{ref.name}"
            return await watching.select(*POD_KIND, ref.namespace, _SECRET, watched)
        if ref.kind not in WORKLOADS or not (selector := selector_of(live)):
            return ()
        pods = await watching.select(*POD_KIND, ref.namespace, _WORKLOAD, str(ref))
        return [
            pod for pod in pods if matches_selector(selector, pod["metadata"].get("labels") or {})
        ]

    return find_pods


def scale_targets(autoscaler: Object) -> Iterator[ObjectRef]:
    """Name what an autoscaler scales."""
    scaled = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    yield ObjectRef(
        api_version=str(scaled.get("apiVersion") or "apps/v1"),
        kind=str(scaled.get("kind")),
        namespace=autoscaler["metadata"].get("namespace", ""),
        name=str(scaled.get("name")),
    )


def workloads_of_pod(pod: Object) -> Iterator[ObjectRef]:
    """Name the workload that a pod belongs to; a Deployment's is known by the names it gives."""
    metadata = pod["metadata"]
    namespace = metadata.get("namespace", "")
    for owner in metadata.get("ownerReferences") or ():
        kind, name = str(owner.get("kind")), str(owner.get("name"))
        suffix = "-" + str((metadata.get("labels") or {}).get(_POD_TEMPLATE_HASH, ""))
        if kind == "ReplicaSet" and len(suffix) > 1 and name.endswith(suffix):
            kind, name = "Deployment", name.removesuffix(suffix)
        elif kind not in _POD_OWNING_KINDS:
            continue
        yield ObjectRef(api_version="apps/v1", kind=kind, namespace=namespace, name=name)


def secrets_of_pod(pod: Object) -> Iterator[ObjectRef]:
    """Name the Secrets that a pod has in its environment."""
    namespace = pod["metadata"].get("namespace", "")
    spec = pod.get("spec") or {}
    names: set[str] = set()
    for part in ("containers", "initContainers"):
        for container in spec.get(part) or ():
            for source in container.get("envFrom") or ():
                names.add(str((source.get("secretRef") or {}).get("name") or ""))
            for variable in container.get("env") or ():
                key = (variable.get("valueFrom") or {}).get("secretKeyRef") or {}
                names.add(str(key.get("name") or ""))
    for name in sorted(names - {""}):
        yield ObjectRef(api_version="v1", kind="Secret", namespace=namespace, name=name)


WATCH_INDEXES: Mapping[tuple[str, str], Mapping[str, IndexFunction]] = {
    AUTOSCALER_KIND: {_TARGET: lambda item: map(str, scale_targets(item))},
    POD_KIND: {
        _WORKLOAD: lambda item: map(str, workloads_of_pod(item)),
        _SECRET: lambda item: (f"{ref.namespace}/{ref.name}" for ref in secrets_of_pod(item)),
    },
}
"""What informers of these kinds are asked by."""
