"""Follows the pods that take requests, by the EndpointSlices of Services.

One informer for each namespace that was asked about. What it heard last holds for as long as the
API server is away. Where slices may not be read, that is said, and asked again some minutes later.
Called by the data plane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.objects import Object
from holdfast.adapters.kubernetes.watch import ResourceScope
from holdfast.core.errors import PermissionDenied

SERVICE_LABEL = "kubernetes.io/service-name"
SYNC_TIMEOUT = 10.0
"""Seconds for the first list of a namespace."""
REFUSED_RETRY = 300.0
"""Seconds until slices are asked for again after they were refused."""


@dataclass(frozen=True, slots=True, order=True)
class PodEndpoint:
    """A pod that takes requests, and where."""

    name: str
    """Of the pod."""
    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def ready_endpoints(item: Object, port_name: str = "http") -> tuple[PodEndpoint, ...]:
    """Give the endpoints of a slice that take new requests: ready, and not about to end.

    A condition that is not set counts as the API says: ready, and not terminating.
    """
    if item.get("addressType") not in ("IPv4", "IPv6"):
        return ()
    port = next(
        (each.get("port") for each in item.get("ports") or () if each.get("name") == port_name),
        None,
    )
    if port is None:
        return ()
    found = []
    for each in item.get("endpoints") or ():
        conditions = each.get("conditions") or {}
        if conditions.get("ready") is False or conditions.get("terminating") is True:
            continue
        host = str(each["addresses"][0])
        target = each.get("targetRef") or {}
        found.append(PodEndpoint(name=str(target.get("name") or host), host=host, port=int(port)))
    return tuple(found)


@dataclass(slots=True)
class _NamespaceWatch:
    informer: Informer | None = None
    running: asyncio.Task[None] | None = None
    slices: dict[str, dict[str, tuple[PodEndpoint, ...]]] = field(default_factory=dict)
    """The ready endpoints of each Service, by slice."""
    refused: PermissionDenied | None = None
    asked_at: float = 0.0
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)


class EndpointWatcher:
    """The ready pods of Services, by namespace. Used from one event loop."""

    def __init__(
        self,
        api: KubeApi,
        *,
        on_change: Callable[[str], None],
        on_refused: Callable[[str, PermissionDenied], None],
    ) -> None:
        self._api = api
        self._clock = api.connection.clock
        self._on_change = on_change
        self._on_refused = on_refused
        self._watches: dict[str, _NamespaceWatch] = {}

    async def follow(self, namespace: str) -> bool:
        """See to it that a namespace is followed; False where its slices may not be read.

        Raises our errors when the cluster cannot be reached for the first list.
        """
        watch = self._watches.setdefault(namespace, _NamespaceWatch())
        if watch.informer is not None and watch.informer.has_synced:
            return self._is_allowed(namespace, watch)
        async with watch.starting:
            if watch.informer is None and not await self._start(namespace, watch):
                return False
        assert watch.informer is not None  # noqa: S101  # just started
        await watch.informer.wait_synced(SYNC_TIMEOUT)
        return True

    def ready(self, namespace: str, service: str) -> tuple[PodEndpoint, ...]:
        """Give the pods behind a Service that take requests, each once."""
        watch = self._watches.get(namespace)
        slices = watch.slices.get(service, {}) if watch else {}
        # While slices are rearranged, an endpoint may be in two of them.
        return tuple(dict.fromkeys(each for found in slices.values() for each in found))

    def all_ready(self, namespace: str) -> set[PodEndpoint]:
        """Give every pod of a namespace that takes requests of some Service."""
        watch = self._watches.get(namespace)
        slices = watch.slices.values() if watch else ()
        return {each for service in slices for found in service.values() for each in found}

    async def aclose(self) -> None:
        """Stop following."""
        tasks = [each.running for each in self._watches.values() if each.running is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._watches.clear()

    async def _start(self, namespace: str, watch: _NamespaceWatch) -> bool:
        now = self._clock.monotonic()
        if watch.refused is not None and now - watch.asked_at < REFUSED_RETRY:
            return False
        resource = await self._api.resource_of("discovery.k8s.io/v1", "EndpointSlice")
        scope = ResourceScope(resource=resource, namespace=namespace, labels=SERVICE_LABEL)
        try:
            await self._api.list_page(scope, size=1, token="")
        except PermissionDenied as error:
            self._refuse(namespace, watch, error)
            return False
        watch.refused = None
        watch.informer = Informer(self._api, scope)
        watch.informer.add_handler(lambda old, new: self._take(namespace, watch, old, new))
        watch.running = asyncio.create_task(watch.informer.run())
        return True

    def _is_allowed(self, namespace: str, watch: _NamespaceWatch) -> bool:
        """False once the right was taken away and the copy is too old to go by."""
        informer = watch.informer
        if informer is None or not isinstance(informer.error, PermissionDenied):
            return True
        if informer.outdated is None:
            return True
        error = informer.error
        if watch.running is not None:
            watch.running.cancel()
        watch.informer, watch.running = None, None
        watch.slices.clear()
        self._refuse(namespace, watch, error)
        return False

    def _refuse(self, namespace: str, watch: _NamespaceWatch, error: PermissionDenied) -> None:
        known, watch.refused = watch.refused, error
        watch.asked_at = self._clock.monotonic()
        if known is None:
            self._on_refused(namespace, error)

    def _take(
        self, namespace: str, watch: _NamespaceWatch, old: Object | None, new: Object | None
    ) -> None:
        for item, away in ((old, True), (new, False)):
            if item is None:
                continue
            metadata = item["metadata"]
            service = str((metadata.get("labels") or {}).get(SERVICE_LABEL, ""))
            slices = watch.slices.setdefault(service, {})
            if away:
                slices.pop(metadata["name"], None)
            else:
                slices[metadata["name"]] = ready_endpoints(item)
            if not slices:
                del watch.slices[service]
        self._on_change(namespace)
