"""Clients of five plain verbs, and the worlds that `ApplyOverUpdate` makes of them."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from tests.contracts.kube_worlds import ClusterKubeWorld, MemoryKubeWorld, cluster_world
from tests.support.cluster import Cluster
from tests.support.processes import ROOT

from holdfast.adapters.memory.kube import MemoryKube
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import ObjectList, ObjectRef, Scope, ref_of
from holdfast.reconcile.objects.apply_over_update import ApplyOverUpdate

PAGE = ROOT / "docs" / "how-to" / "kube-client.md"
PLURALS = {
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "Event": "events",
    "Job": "jobs",
    "LeaderWorkerSet": "leaderworkersets",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "ScaledObject": "scaledobjects",
    "HorizontalPodAutoscaler": "horizontalpodautoscalers",
    "HTTPRoute": "httproutes",
    "InferenceService": "inferenceservices",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Secret": "secrets",
    "Service": "services",
}


class MemoryPlainClient:
    """Twenty lines over the memory cluster: every write is an update by somebody called naive."""

    def __init__(self, kube: MemoryKube) -> None:
        self.kube = kube
        self.writes = 0

    async def get(self, ref: ObjectRef) -> Fields | None:
        return await self.kube.get(ref)

    async def list(self, scope: Scope) -> ObjectList:
        return await self.kube.list(scope)

    async def create(self, item: Any) -> Fields:
        self.writes += 1
        return self.kube.create(item, manager="naive")

    async def update(self, item: Any, *, subresource: str = "") -> Fields:
        def replace(live: dict[str, Any]) -> None:
            live.clear()
            live.update(item)

        self.writes += 1
        return self.kube.edit(ref_of(item), replace, manager="naive", subresource=subresource)

    async def delete(self, ref: ObjectRef, *, uid: str = "", version: str = "") -> None:
        await self.kube.delete(ref, uid=uid, version=version)


class PlainMemoryWorld(MemoryKubeWorld):
    def __init__(self) -> None:
        super().__init__()
        self.plain = MemoryPlainClient(self.kube)
        self.client = ApplyOverUpdate(self.plain)


def client_of_the_page() -> Any:
    """The class that the page shows, word for word."""
    (code,) = re.findall(r"```python\n(import json.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102  # of our own page
    return names["PlainClient"]


@asynccontextmanager
async def plain_cluster_world(cluster: Cluster, namespace: str) -> AsyncIterator[ClusterKubeWorld]:
    """The page's client on a real API server."""
    trusted = ssl.create_default_context(cafile=cluster.directory / "pki" / "ca.crt")
    identity = cluster._authority.issue("plain", groups=["system:masters"])
    trusted.load_cert_chain(identity.certificate, identity.key)
    connector = aiohttp.TCPConnector(ssl=trusted)
    async with (
        aiohttp.ClientSession(cluster.server, connector=connector) as http,
        cluster_world(cluster, namespace) as world,
    ):
        world.client = ApplyOverUpdate(client_of_the_page()(http, PLURALS))
        yield world
