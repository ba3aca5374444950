"""Chooses the pod of a workload that gets the next request, and lets go of pods that leave.

The pods of a workload's entry Service are those that its requests may reach. Where pods of both
variants are among them, their ratio is the canary's share; where only the primary's are and the
operator reports a share, a gateway divides the requests, and the same share is kept here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection
from datetime import datetime
from functools import partial
from itertools import count

import aiohttp

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.endpoints import EndpointWatcher, PodEndpoint
from holdfast.adapters.runner import Balancer, ReplicaLease
from holdfast.apps.server.logs import event
from holdfast.apps.server.metrics import ServerMetrics
from holdfast.core.errors import PermissionDenied
from holdfast.core.service.children import CANARY, PRIMARY
from holdfast.core.service.split import canary_share
from holdfast.reconcile.ports import Clock

SUSPECT_SECONDS = 5.0
"""For how long a pod that let a request down is only chosen where there is no other."""


class ReplicaConnector(aiohttp.TCPConnector):
    """The connections to replicas, which can be told that one of them is leaving."""

    def close_idle(self, host: str, port: int) -> None:
        """Close the connections to an address that no request uses."""
        for key in [key for key in self._conns if (key.host, key.port) == (host, port)]:
            for protocol, _ in self._conns.pop(key):
                protocol.close()


class Pod:
    """One pod that takes requests, as long as it does."""

    def __init__(self, endpoint: PodEndpoint, clock: Clock) -> None:
        self.endpoint = endpoint
        self._clock = clock
        self.in_flight = 0
        self.chosen_at = 0
        self.leaving = False
        self._doubted_until = 0.0

    @property
    def suspect(self) -> bool:
        """True for a while after it let a request down."""
        return self._clock.monotonic() < self._doubted_until

    def doubt(self) -> None:
        """Prefer the others for a while."""
        self._doubted_until = self._clock.monotonic() + SUSPECT_SECONDS


class PodRouter:
    """The pods of all workloads. One per server, used from its event loop only."""

    def __init__(
        self, api: KubeApi, connector: ReplicaConnector, metrics: ServerMetrics, clock: Clock
    ) -> None:
        self._connector = connector
        self._metrics = metrics
        self._clock = clock
        self._endpoints = EndpointWatcher(
            api, on_change=self._drop_leaving, on_refused=self._report_refused
        )
        self._pods: dict[tuple[str, PodEndpoint], Pod] = {}
        self._balancers: dict[tuple[str, str], Balancer] = {}
        self._order = count(1)
        self._busy: Counter[tuple[str, str]] = Counter()
        self._asked_at: dict[tuple[str, str], datetime] = {}
        self._changed = asyncio.Event()

    async def follow(self, namespace: str) -> bool:
        """See to it that the pods of a namespace are known; False where they may not be read."""
        return await self._endpoints.follow(namespace)

    def acquire(
        self, namespace: str, name: str, canary_weight: int, tried: Collection[str]
    ) -> ReplicaLease | None:
        """Choose the least busy pod for one request; None where no pod takes requests.

        `canary_weight` is the share that the operator reports. Those in `tried` are left out.
        """
        front = self._endpoints.ready(namespace, f"{name}-svc")
        canaries = self._endpoints.ready(namespace, f"{name}-{CANARY}")
        both = {*front} & {*canaries}
        primary = [each for each in front if each not in both]
        if both:
            canary = list(both)
            weight = canary_share(len(primary), len(canary))
        else:
            canary = list(canaries) if canary_weight else []
            weight = canary_weight
        balancer = self._balancers.setdefault((namespace, name), Balancer())
        primary_pods = self._untried(namespace, primary, tried)
        canary_pods = self._untried(namespace, canary, tried)
        chosen = balancer.choose(primary_pods, canary_pods, weight)
        if chosen is None:
            return None
        self.note_request(namespace, name)
        self._busy[namespace, name] += 1
        chosen.in_flight += 1
        chosen.chosen_at = next(self._order)
        return ReplicaLease(
            url=chosen.endpoint.url,
            group=CANARY if chosen in canary_pods else PRIMARY,
            replica=chosen.endpoint.name,
            release=partial(self._release, (namespace, name), chosen),
            failed=chosen.doubt,
        )

    def note_request(self, namespace: str, name: str) -> None:
        """Remember that a workload was asked just now."""
        self._asked_at[namespace, name] = self._clock.now()

    def last_request(self, namespace: str, name: str) -> datetime | None:
        """When a workload was asked last: now, while it is answering; None if never by us."""
        if self._busy[namespace, name]:
            self.note_request(namespace, name)
        return self._asked_at.get((namespace, name))

    def has_pods(self, namespace: str, name: str) -> bool:
        """True when a pod of a workload takes requests."""
        return bool(self._endpoints.ready(namespace, f"{name}-svc"))

    @property
    def next_change(self) -> asyncio.Event:
        """Set when pods come or go after this moment."""
        return self._changed

    async def aclose(self) -> None:
        """Stop following pods."""
        await self._endpoints.aclose()

    def _untried(
        self, namespace: str, endpoints: Collection[PodEndpoint], tried: Collection[str]
    ) -> list[Pod]:
        return [
            self._pods.setdefault((namespace, each), Pod(each, self._clock))
            for each in sorted(endpoints)
            if each.name not in tried
        ]

    def _release(self, workload: tuple[str, str], pod: Pod) -> None:
        self.note_request(*workload)
        self._busy[workload] -= 1
        pod.in_flight -= 1
        if pod.leaving:
            self._connector.close_idle(pod.endpoint.host, pod.endpoint.port)

    def _drop_leaving(self, namespace: str) -> None:
        """Forget pods that take no requests any more. What they are answering may end."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        ready = self._endpoints.all_ready(namespace)
        for key in [key for key in self._pods if key[0] == namespace and key[1] not in ready]:
            pod = self._pods.pop(key)
            pod.leaving = True
            self._connector.close_idle(pod.endpoint.host, pod.endpoint.port)

    def _report_refused(self, namespace: str, error: PermissionDenied) -> None:
        self._metrics.endpoints_refused.inc()
        event(
            "endpoints-refused",
            level=logging.WARNING,
            namespace=namespace,
            why=error.happened,
            so="Requests go to the address of the Service, and are given to no other pod.",
        )
