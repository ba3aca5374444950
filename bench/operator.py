"""The operator against the API server's own limits: healing, creating, resting.

Most of the time goes to what is not measured: applying thousands of objects, and a cluster's own
controllers making a pod for each service. So there are 300 services unless more are asked for, and
each part has a limit of its own: one that does not come to its end says so, and which it was.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.support.cluster import Cluster

from bench.kube import all_of, connected, cpu_seconds, operator, percentile, running_cluster
from bench.report import Row
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.objects import Object, Resource
from holdfast.adapters.kubernetes.watch import ResourceScope
from holdfast.core.service.children import Facts, manifests
from holdfast.core.service.spec import InferenceService, InferenceServiceSpec
from holdfast.core.tree import Fields

SERVICES = 300
EDITS = 200
REST = 30.0
REST_SHARE = 0.02
"""Of a core that a thousand services may take at rest; fewer may take less."""
WITHIN = 180.0
"""Seconds that one part may take."""
OURS, PLAIN = "bench", "bench-plain"
GROUP = "holdfast.dev"
DEPLOYMENTS = Resource(
    group="apps", version="v1", kind="Deployment", plural="deployments", namespaced=True
)
KINDS = (("apps/v1", "Deployment"), ("v1", "Service"), ("policy/v1", "PodDisruptionBudget"))
EDITED = "edited.example.com/image:1"


class Images:
    """The image of each Deployment as a watch tells it."""

    def __init__(self, informer: Informer, process: subprocess.Popen[bytes] | None = None) -> None:
        self.now: dict[str, str] = {}
        self.edited: set[str] = set()
        self.process = process
        self._changed = asyncio.Event()
        informer.add_handler(self._take)

    def _take(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            container = new["spec"]["template"]["spec"]["containers"][0]
            name = new["metadata"]["name"]
            self.now[name] = container["image"]
            if container["image"] == EDITED:
                self.edited.add(name)
            self._changed.set()

    async def until(self, holds: Callable[[dict[str, str]], bool]) -> None:
        """Wait for a change after which it holds."""
        while not holds(self.now):
            if self.process and self.process.poll() is not None:
                raise RuntimeError(f"the operator ended with {self.process.returncode}")
            self._changed.clear()
            await self._changed.wait()


def measure(services: int = SERVICES) -> list[Row]:
    """Everything on one cluster, one after the other."""
    with running_cluster() as cluster:
        _prepare(cluster)
        return asyncio.run(_measure(cluster, services))


@asynccontextmanager
async def _part(what: str, within: float = WITHIN) -> AsyncIterator[None]:
    """Say how long a part took; raise RuntimeError where it does not come to its end."""
    began = time.perf_counter()
    try:
        async with asyncio.timeout(within):
            yield
    except TimeoutError:
        raise RuntimeError(f"{what}: not done within {within:g} s") from None
    print(f"  {what}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)


def _prepare(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--server-side", "-f", "deploy/crds")
    for name in (OURS, PLAIN):
        cluster.kubectl("create", "namespace", name)


async def _measure(cluster: Cluster, services: int) -> list[Row]:
    async with connected(cluster) as api:
        signal_controllers(cluster, signal.SIGSTOP)
        plain = [item for n in range(services) for item in _children(n)]
        async with _part(f"{len(plain):,} plain applies"):
            limit = len(plain) / await all_of(lambda item: api.apply(item, manager="plain"), plain)
        async with _part("their removal"):
            await _remove(api, PLAIN)
        async with _part(f"{services:,} InferenceServices"):
            await all_of(lambda item: api.apply(item), map(_service, range(services)))
        kinds = [await api.resource_of(*each) for each in KINDS]
        seen = [Informer(api, ResourceScope(resource=kind, namespace=OURS)) for kind in kinds]
        following = [asyncio.create_task(each.run()) for each in seen]
        for each in seen:
            await each.wait_synced(60)
        images = Images(seen[0])
        with operator(cluster) as process:
            images.process = process
            began = time.perf_counter()
            async with _part("their children, by the operator"):
                while sum(map(len, seen)) < len(plain):
                    if process.poll() is not None:
                        raise RuntimeError(f"the operator ended with {process.returncode}")
                    await asyncio.sleep(0.02)
            created = len(plain) / (time.perf_counter() - began)
            signal_controllers(cluster, signal.SIGCONT)
            async with _part("a pod for each, by the cluster's controllers"):
                await _all_ready(api)
            signal_controllers(cluster, signal.SIGSTOP)
            rows = [
                _rate(f"children of {services:,} new InferenceServices", created, limit, 0.8),
                *await _heal_one(api, images, services),
                await _heal_all(api, images, process, services),
                *await _rest(api, cluster, process, services),
            ]
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    return rows


async def _heal_one(api: KubeApi, images: Images, services: int) -> list[Row]:
    """Edit → healed, against the patch and an apply that changes as much."""
    patches: list[float] = []
    applies: list[float] = []
    healed: list[float] = []
    lone = next(iter(_children(0)))
    await api.apply(lone, manager="plain", force=True)
    async with _part(f"{EDITS} edits, one after the other"):
        for index in range(EDITS):
            name = f"s-{index * 7 % services:04d}-primary"
            began = time.perf_counter()
            images.edited.discard(name)
            await _edit(api, name)
            patches.append(time.perf_counter() - began)
            await images.until(lambda now, name=name: name in images.edited and now[name] != EDITED)
            healed.append(time.perf_counter() - began)
            changed = _with_image(lone, f"plain.example.com/image:{index}")
            began = time.perf_counter()
            await api.apply(changed, manager="plain", force=True)
            applies.append(time.perf_counter() - began)
    rows = []
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        ours = percentile(healed, share) * 1000
        bare = (percentile(patches, share) + percentile(applies, share)) * 1000
        rows.append(
            Row(
                what=f"edit → healed against patch + apply, {name}, {services:,} services",
                ours=f"{ours:.1f} ms",
                peer=f"{bare:.1f} ms",
                ratio=bare / ours,
                goal=1 / 1.5,
            )
        )
    return rows


async def _heal_all(
    api: KubeApi, images: Images, process: subprocess.Popen[bytes], services: int
) -> Row:
    """Everything edited at once while the operator sleeps; then it wakes."""
    plain = [next(iter(_children(n))) for n in range(services)]
    async with _part(f"{services:,} Deployments applied, and applied with another image"):
        await all_of(lambda item: api.apply(item, manager="plain", force=True), plain)
        changed = [_with_image(item, "plain.example.com/image:all") for item in plain]
        limit = services / await all_of(
            lambda item: api.apply(item, manager="plain", force=True), changed
        )
    process.send_signal(signal.SIGSTOP)
    names = [f"s-{n:04d}-primary" for n in range(services)]
    async with _part(f"{services:,} edits at once"):
        await all_of(lambda item: _edit(api, item["name"]), ({"name": name} for name in names))
        await images.until(lambda now: all(now[name] == EDITED for name in names))
    began = time.perf_counter()
    process.send_signal(signal.SIGCONT)
    async with _part("their end"):
        await images.until(lambda now: EDITED not in now.values())
    rate = services / (time.perf_counter() - began)
    return _rate(f"{services:,} drifted Deployments healed", rate, limit, 0.8)


async def _rest(
    api: KubeApi, cluster: Cluster, process: subprocess.Popen[bytes], services: int
) -> list[Row]:
    """What the operator does when nothing happens."""
    async with _part("the plain Deployments' removal"):
        await _remove(api, PLAIN)
    signal_controllers(cluster, signal.SIGCONT)
    async with _part("everything ready again"):
        await _all_ready(api)
    async with _part("an operator that has nothing left to do"):
        await _quiet(process)
    mark = len(cluster.audit_events(user_agent="holdfast", namespace=OURS))
    before = cpu_seconds(process.pid)
    await asyncio.sleep(REST)
    share = (cpu_seconds(process.pid) - before) / REST
    calls = len(cluster.audit_events(user_agent="holdfast", namespace=OURS)) - mark
    allowed = REST_SHARE * services / 1_000
    return [
        Row(
            what=f"processor at rest with {services:,} services, limit {allowed:.2%} of a core",
            ours=f"{share:.2%}",
            peer=f"{allowed:.2%}",
            ratio=allowed / max(share, 1e-4),
            goal=1.0,
        ),
        Row(
            what=f"API calls about single objects in {REST:g} s of rest (none is 1)",
            ours=str(calls),
            peer="0",
            ratio=1 / (1 + calls),
            goal=1.0,
        ),
    ]


def _rate(what: str, ours: float, limit: float, goal: float) -> Row:
    return Row(
        what=f"{what}, against plain applies",
        ours=f"{ours:.0f}/s",
        peer=f"{limit:.0f}/s",
        ratio=ours / limit,
        goal=goal,
    )


def _spec() -> InferenceServiceSpec:
    return InferenceServiceSpec(
        model_ref="meta-llama/Llama-3.1-8B-Instruct",
        replicas=1,
        env={f"VARIABLE_{n}": f"value {n}" for n in range(6)},
    )


def _service(index: int) -> Object:
    spec = {"modelRef": _spec().model_ref, "replicas": 1, "env": dict(_spec().env or {})}
    metadata = {"name": f"s-{index:04d}", "namespace": OURS}
    kind = "InferenceService"
    return {"apiVersion": f"{GROUP}/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def _children(index: int) -> tuple[Fields, ...]:
    """What the operator makes of a service, for whoever applies it without thinking."""
    service = InferenceService(name=f"s-{index:04d}", namespace=PLAIN, spec=_spec())
    return manifests(service, Facts())


async def _edit(api: KubeApi, name: str) -> None:
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": EDITED}]
    await api.patch(DEPLOYMENTS.ref(name, OURS), patch, manager="kubectl-edit")


def _with_image(item: Object, image: str) -> Object:
    spec = item["spec"]
    pod = spec["template"]["spec"]
    container = {**pod["containers"][0], "image": image}
    template = {**spec["template"], "spec": {**pod, "containers": [container]}}
    return {**item, "spec": {**spec, "template": template}}


async def _remove(api: KubeApi, namespace: str) -> None:
    for api_version, kind in KINDS:
        resource = await api.resource_of(api_version, kind)
        found = await api.list(resource.scope(namespace))
        await all_of(
            lambda item, resource=resource: api.delete(
                resource.ref(item["metadata"]["name"], namespace)
            ),
            found.items,
        )


def signal_controllers(cluster: Cluster, number: signal.Signals) -> None:
    """Let pods come and go only while that is wanted: they cost more than all that is measured."""
    for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
        os.kill(cluster.pids[name], number)


async def _all_ready(api: KubeApi) -> None:
    resource = await api.resource_of(f"{GROUP}/v1alpha1", "InferenceService")
    while True:
        found = await api.list(resource.scope(OURS))
        if all(item.get("status", {}).get("ready") for item in found.items):
            return
        await asyncio.sleep(1)


async def _quiet(process: subprocess.Popen[bytes]) -> None:
    """Wait until the operator has nothing left to do."""
    idle = 0
    while idle < 4:
        before = cpu_seconds(process.pid)
        await asyncio.sleep(0.5)
        idle = idle + 1 if cpu_seconds(process.pid) - before < 0.03 else 0
