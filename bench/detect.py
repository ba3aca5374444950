"""How soon an edit is seen, and what watching 10,000 objects costs."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path

from tests.support.cluster import Cluster

from bench.kube import all_of, connected, percentile, running_cluster
from bench.report import Row
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.objects import Object, Resource, compact_managed_fields
from holdfast.adapters.kubernetes.watch import ResourceScope

OBJECTS = 10_000
EDITS = 300
NAMESPACE = "bench"
DEPLOYMENTS = Resource(
    group="apps", version="v1", kind="Deployment", plural="deployments", namespaced=True
)


def measure() -> list[Row]:
    """Edit → handler against the bare patch call; bytes held for each object."""
    with running_cluster() as cluster:
        return asyncio.run(_measure(cluster))


async def _measure(cluster: Cluster) -> list[Row]:
    async with connected(cluster) as api:
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        await all_of(lambda item: api.apply(item), map(_deployment, range(OBJECTS)))
        before = _resident()
        informer = Informer(
            api,
            ResourceScope(resource=DEPLOYMENTS, namespace=NAMESPACE),
            transform=compact_managed_fields,
        )
        running = asyncio.create_task(informer.run())
        await informer.wait_synced(120)
        gc.collect()
        held = (_resident() - before) / OBJECTS
        patched, detected = await _edits(api, informer)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    rows = [
        Row(
            what=f"edit → detected against the patch call, {name}, {OBJECTS:,} watched",
            ours=f"{percentile(detected, share):.1f} ms",
            peer=f"{percentile(patched, share):.1f} ms",
            ratio=percentile(patched, share) / percentile(detected, share),
            goal=1 / 1.2,
        )
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]
    rows.append(
        Row(
            what=f"memory for each of {OBJECTS:,} watched Deployments, limit 2 kB",
            ours=f"{held:.0f} B",
            peer="2,000 B",
            ratio=2000 / held,
            goal=1.0,
        )
    )
    return rows


async def _edits(api: KubeApi, informer: Informer) -> tuple[list[float], list[float]]:
    """Edit one object after another; note when the call returned and when the handler ran."""
    patched: list[float] = []
    detected: list[float] = []
    seen = asyncio.Event()
    wanted = ""

    def handler(old: Object | None, new: Object | None) -> None:
        if new is not None and new["metadata"].get("annotations", {}).get("edit") == wanted:
            seen.set()

    informer.add_handler(handler)
    for index in range(EDITS):
        wanted = str(index)
        seen.clear()
        began = time.perf_counter()
        call = asyncio.create_task(
            api.patch(
                DEPLOYMENTS.ref(f"d-{index * 31 % OBJECTS:05d}", NAMESPACE),
                {"metadata": {"annotations": {"edit": wanted}}},
                manager="kubectl-edit",
            )
        )
        call.add_done_callback(lambda _, began=began: patched.append(time.perf_counter() - began))
        await seen.wait()
        detected.append(time.perf_counter() - began)
        await call
        await asyncio.sleep(0)  # the callback above
    return [each * 1000 for each in patched], [each * 1000 for each in detected]


def _deployment(index: int) -> Object:
    """A Deployment of the size that an inference workload has; no pods, which are not measured."""
    labels = {"app": f"d-{index:05d}", "app.kubernetes.io/managed-by": "bench"}
    probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10}
    container = {
        "name": "server",
        "image": "vllm/vllm-openai:v0.32.0",
        "args": ["serve", "meta-llama/Llama-3.1-8B-Instruct", "--max-model-len", "8192"],
        "env": [{"name": f"VARIABLE_{n}", "value": f"value {n}"} for n in range(6)],
        "ports": [{"name": "http", "containerPort": 8000, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"memory": "16Gi"}},
        "readinessProbe": probe,
        "livenessProbe": {**probe, "failureThreshold": 6},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"d-{index:05d}", "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": labels["app"]}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def _resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
