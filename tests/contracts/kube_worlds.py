"""Both implementations of the `KubeClient` port, with the hands of other writers.

The contract suite plays the same scenes on a real API server and in memory, and compares what
both have at the end. Server-made values differ by nature; `comparable` takes them out.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from tests.adapters.kubernetes.harness import api_for, cluster_config
from tests.support.cluster import Cluster

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.memory.kube import MemoryKube
from holdfast.core.errors import HoldfastError, ValidationError
from holdfast.reconcile.kube import (
    ConflictReason,
    KubeClient,
    KubeConflict,
    ObjectRef,
    ref_of,
)

# Any, here and below: objects of the Kubernetes API as they come over the wire.
Change = Callable[[dict[str, Any]], object]
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SERVERS = ("resourceVersion", "uid", "creationTimestamp", "deletionTimestamp")
US = "us"
CONTROLLER = "kube-controller-manager"
_CONTROLLED = ("Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget")
REVISION = "deployment.kubernetes.io/revision"


class KubeWorld(Protocol):
    """A cluster and a namespace of it."""

    client: KubeClient
    namespace: str

    async def create(self, item: dict[str, Any], *, manager: str) -> dict[str, Any]:
        """Create an object as a plain client does."""

    async def edit(
        self, ref: ObjectRef, change: Change, *, manager: str, subresource: str = ""
    ) -> None:
        """Change an object as a plain client does."""


class MemoryKubeWorld:
    def __init__(self) -> None:
        self.kube = MemoryKube()
        self.client: KubeClient = self.kube
        self.namespace = "shop"

    async def create(self, item: dict[str, Any], *, manager: str) -> dict[str, Any]:
        return self.kube.create(item, manager=manager)

    async def edit(
        self, ref: ObjectRef, change: Change, *, manager: str, subresource: str = ""
    ) -> None:
        self.kube.edit(ref, change, manager=manager, subresource=subresource)


class ClusterKubeWorld:
    def __init__(self, api: KubeApi, namespace: str) -> None:
        self.api = api
        self.client: KubeClient = api
        self.namespace = namespace

    async def create(self, item: dict[str, Any], *, manager: str) -> dict[str, Any]:
        return await self.api.create(item, manager=manager)

    async def edit(
        self, ref: ObjectRef, change: Change, *, manager: str, subresource: str = ""
    ) -> None:
        resource = await self.api.resource_of(ref.api_version, ref.kind)
        path = resource.path(ref.name, namespace=ref.namespace, subresource=subresource)
        while True:
            item: Any = await self.api.get(ref)
            change(item)
            if subresource == "scale":
                scale = await self.api.request("GET", path)
                scale["spec"]["replicas"] = item["spec"]["replicas"]
                item = scale
            try:
                await self.api.request("PUT", path, params={"fieldManager": manager}, body=item)
            except KubeConflict as conflict:
                if conflict.reason is not ConflictReason.CHANGED:
                    raise
                continue  # a controller was faster
            return


@asynccontextmanager
async def cluster_world(cluster: Cluster, namespace: str) -> AsyncIterator[ClusterKubeWorld]:
    async with api_for(cluster_config(cluster.kubeconfig)) as api:
        yield ClusterKubeWorld(api, namespace)


async def wait_until_gone(client: KubeClient, ref: ObjectRef) -> None:
    """Wait until an object is not there any more: garbage is collected in the background."""
    async with asyncio.timeout(30):
        while await client.get(ref) is not None:  # noqa: ASYNC110  # there is nothing to wait for
            await asyncio.sleep(0.05)


async def get_live(world: KubeWorld, item: dict[str, Any]) -> Any:
    """What the cluster has of an object now."""
    return await world.client.get(ref_of(item))


async def outcome_of(call: Awaitable[Any]) -> Any:
    """What a call gave or how it was refused, in a form that can be compared."""
    try:
        return await call
    except KubeConflict as conflict:
        owners = sorted(
            (each.manager, each.path, each.api_version, each.subresource)
            for each in conflict.owners
        )
        return ["refused", conflict.reason.value, [list(each) for each in owners]]
    except ValidationError as invalid:
        return ["invalid", sorted({each.field for each in invalid.problems})]
    except HoldfastError as error:
        return ["failed", type(error).__name__]


def comparable(found: Any, namespace: str, *, controllers: bool = True) -> Any:
    """Take out what two servers cannot agree on, and what the controllers of the real one write."""
    if not isinstance(found, dict):
        return found
    item = copy.deepcopy(found)
    metadata = item["metadata"]
    if controllers and item["kind"] in _CONTROLLED:
        _forget_controllers(item)
    for name in _SERVERS:
        if name in metadata:
            metadata[name] = "given"
    for entry in metadata.get("managedFields", []):
        if "time" in entry:
            entry["time"] = "given"
    metadata["managedFields"] = sorted(
        metadata.get("managedFields", []),
        key=lambda entry: (entry["manager"], entry["operation"], str(entry)),
    )
    if item.get("status", {}).get("currentMetrics", 0) is None:
        del item["status"]["currentMetrics"]  # a null that is there once and never again
    text = _UID.sub("uid", json.dumps(item, sort_keys=True)).replace(namespace, "the-namespace")
    return json.loads(re.sub(r'"10\.96\.[0-9.]+"', '"address"', text))


def _forget_controllers(item: dict[str, Any]) -> None:
    item.pop("status", None)
    metadata = item["metadata"]
    metadata["managedFields"] = [
        entry
        for entry in metadata.get("managedFields", [])
        if (entry["manager"], entry.get("subresource")) != (CONTROLLER, "status")
    ]
    metadata.get("annotations", {}).pop(REVISION, None)
    if metadata.get("annotations") == {}:
        del metadata["annotations"]


def config_map(world: KubeWorld, name: str = "a", **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": world.namespace},
        "data": data,
    }


def deployment(world: KubeWorld, change: Change = lambda item: None) -> dict[str, Any]:
    item: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "bot",
            "namespace": world.namespace,
            "labels": {"app": "bot"},
            "annotations": {"note": "1"},
        },
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "bot"}},
            "template": {
                "metadata": {"labels": {"app": "bot"}},
                "spec": {
                    "containers": [
                        {
                            "name": "server",
                            "image": "registry.example/vllm:v1",
                            "args": ["--port=8000"],
                            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                            "ports": [{"containerPort": 8000, "name": "http"}],
                            "resources": {"requests": {"cpu": "500m", "memory": "64Mi"}},
                            "volumeMounts": [{"name": "models", "mountPath": "/models"}],
                        }
                    ],
                    "tolerations": [{"key": "gpu", "operator": "Exists"}],
                    "volumes": [{"name": "models", "emptyDir": {}}],
                },
            },
        },
    }
    change(item)
    return item


def service(world: KubeWorld) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "bot", "namespace": world.namespace},
        "spec": {
            "selector": {"app": "bot"},
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        },
    }


def pod_of(item: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = item["spec"]["template"]["spec"]
    return found


def server_of(item: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod_of(item)["containers"][0]
    return found


async def transfer_ownership(world: KubeWorld, item: dict[str, Any], *, to: str) -> Any:
    """Move every field of other managers into the entry of one, guarded by the version."""
    ref = ref_of(item)
    while True:
        live: Any = await world.client.get(ref)
        version = live["metadata"]["resourceVersion"]
        entries = live["metadata"]["managedFields"]
        (ours,) = [
            each
            for each in entries
            if (each["manager"], each["operation"]) == (to, "Apply") and "subresource" not in each
        ]
        others = [each for each in entries if each is not ours and "subresource" not in each]
        for each in others:
            _merge(ours["fieldsV1"], each["fieldsV1"])
        kept = [each for each in entries if not any(each is other for other in others)]
        operations: Any = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/metadata/managedFields", "value": kept},
        ]
        try:
            return await world.client.patch(ref, operations, manager=to)
        except ValidationError:
            now: Any = await world.client.get(ref)
            if now["metadata"]["resourceVersion"] == version:
                raise  # and not because a controller was faster


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        _merge(into.setdefault(key, {}), value)
