"""A cluster with one InferenceService in it, for tests of the operator's reconciler.

The same tests run on the memory cluster, where a test plays the Deployment controller, and on
the real one, where they wait for it. The client in between records calls, and fails where a test
says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

from tests.support.inference_services import document, merged
from tests.support.processes import wait_until

from holdfast.core.errors import HoldfastError
from holdfast.core.service.children import Gateway
from holdfast.core.service.spec import API_VERSION, KIND, InferenceService
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import (
    KubeClient,
    KubeConflict,
    ObjectList,
    ObjectRef,
    Scope,
    WatchEvent,
    ref_of,
)
from holdfast.reconcile.ports import EngineApi
from holdfast.reconcile.service.model_head import HubApi
from holdfast.reconcile.service.monitors import build_monitors
from holdfast.reconcile.service.reconciler import ServiceReconciler
from holdfast.reconcile.service.status import ServiceResult
from holdfast.wire.inference_service_v1alpha1 import service_from_json

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RecordedCall:
    """One call. Only those that may change something are in `RecordingKubeClient.writes`."""

    verb: str
    kind: str
    name: str
    manager: str = ""
    subresource: str = ""
    created: bool = False
    item: Fields | None = None


class RecordingKubeClient:
    """Stands before any client."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.calls: list[RecordedCall] = []
        self.failing: Callable[[RecordedCall], HoldfastError | None] = lambda call: None

    @property
    def writes(self) -> list[RecordedCall]:
        return [call for call in self.calls if call.verb in ("apply", "patch", "delete")]

    def of(self, kind: str, verb: str = "apply") -> list[RecordedCall]:
        """The writes to one kind, those of its status left out."""
        return [
            call
            for call in self.writes
            if (call.kind, call.verb, call.subresource) == (kind, verb, "")
        ]

    def _allow(self, call: RecordedCall) -> None:
        error = self.failing(call)
        if error is not None:
            raise error

    def _read(self, verb: str, kind: str, name: str) -> None:
        call = RecordedCall(verb=verb, kind=kind, name=name)
        self._allow(call)
        self.calls.append(call)

    async def _write(
        self, verb: str, ref: ObjectRef, write: Callable[[], Awaitable[T]], **facts: Any
    ) -> T:
        """Record a write that the cluster took; one that it refused changed nothing."""
        call = RecordedCall(verb=verb, kind=ref.kind, name=ref.name, **facts)
        self._allow(call)
        done = await write()
        self.calls.append(call)
        return done

    async def get(self, ref: ObjectRef) -> Fields | None:
        self._read("get", ref.kind, ref.name)
        return await self.client.get(ref)

    async def list(self, scope: Scope) -> ObjectList:
        self._read("list", scope.kind, "")
        return await self.client.list(scope)

    def watch(self, scope: Scope, *, version: str) -> AsyncIterator[WatchEvent]:
        return self.client.watch(scope, version=version)

    async def apply(self, item: Fields, *, manager: str, **options: Any) -> Fields:
        return await self._write(
            "dry-run" if options.get("dry_run") else "apply",
            ref_of(item),
            lambda: self.client.apply(item, manager=manager, **options),
            manager=manager,
            subresource=options.get("subresource", ""),
            created=options.get("absent", False),
            item=item,
        )

    async def patch(
        self, ref: ObjectRef, operations: Sequence[Fields], *, manager: str, subresource: str = ""
    ) -> Fields:
        options = {"manager": manager, "subresource": subresource}
        return await self._write(
            "patch", ref, lambda: self.client.patch(ref, operations, **options), **options
        )

    async def delete(self, ref: ObjectRef, **guards: str) -> bool:
        return await self._write("delete", ref, lambda: self.client.delete(ref, **guards))


NAME = "my-llama"
API_VERSIONS = {
    "Deployment": "apps/v1",
    "Service": "v1",
    "Pod": "v1",
    "Node": "v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "PodDisruptionBudget": "policy/v1",
    "PersistentVolumeClaim": "v1",
    "Job": "batch/v1",
    "HTTPRoute": "gateway.networking.k8s.io/v1",
    "ScaledObject": "keda.sh/v1alpha1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    KIND: API_VERSION,
}
DOWNLOADER = "registry.test/holdfast:1"
SMALL = {"cpu": "100m", "memory": "64Mi", "gpuMemory": None}
GATEWAY = Gateway(name="inference", namespace="infra", domain="example.com", section="https")


class ManualClock:
    """Time that a story moves on."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    async def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class OperatorWorld:
    """One namespace, one service, one reconciler. `plays` has the test play the controllers."""

    def __init__(
        self,
        runner: asyncio.Runner,
        client: KubeClient,
        *,
        namespace: str,
        plays: bool,
        gateway: Gateway | None = None,
        metrics: Any = None,  # Any: whatever a story asks its metrics of
    ) -> None:
        self._runner = runner
        self.client = RecordingKubeClient(client)
        self.namespace = namespace
        self.plays = plays
        self.clock = ManualClock()
        self.metrics = metrics
        self.engines: EngineApi | None = None
        """What pods are asked with from the next start on; nobody asks them without."""
        self.hub: HubApi | None = None
        self.hubs: tuple[str, ...] = ()
        self.wanted: list[str] = []
        """The services that a monitor asked a pass for."""
        self.restart(gateway)

    def pod_seen(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        """Tell the operator of a pod of the service, as its watch of pods would."""
        self.monitors.pod_changed(self.namespace, NAME, old, new, restarted=False)

    def restart(self, gateway: Gateway | None = None, *, prometheus: str | None = None) -> None:
        """Go on with another reconciler, which remembers nothing."""
        self.monitors = build_monitors(
            self.client,
            self.clock,
            lambda namespace, name: self.wanted.append(name),
            chance=lambda: 0.5,
            engines=self.engines,
            hub=self.hub,
            hubs=self.hubs,
        )
        self.reconciler = ServiceReconciler(
            self.client,
            clock=self.clock,
            key=b"k",
            gateway=gateway,
            metrics=self.metrics,
            downloader=DOWNLOADER,
            prometheus=prometheus,
            monitors=self.monitors,
        )

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    # The service

    def declare(
        self, change: dict[str, Any] | None = None, *, large: bool = False
    ) -> InferenceService:
        """Store the service of the reference's tests, with some fields changed.

        Unless it is to be `large`, its pods fit on the nodes of the test cluster.
        """
        size = {} if large else {"resources": SMALL}
        item = document(size, namespace=self.namespace)
        item["spec"] = merged(item["spec"], change or {})
        self.run(self.client.client.apply(item, manager="holdfast-sdk", force=True))
        return self.service()

    def service(self) -> InferenceService:
        return service_from_json(self.get(KIND, NAME))

    def reconcile(self) -> ServiceResult:
        """One pass over the service as it is stored now. Forgets the writes before it.

        A controller that was first is met as the operator's queue meets it: with another pass.
        """
        self.client.calls.clear()
        for _ in range(10):
            try:
                return self.run(self.reconciler.reconcile(self.service()))
            except KubeConflict:
                if self.plays:
                    raise
        raise AssertionError("another writer was first, ten times in a row")

    def converge(self, passes: int = 25) -> ServiceResult:
        """Pass after pass, with pods getting ready and time going by, until nothing moves."""
        quiet = 0
        for _ in range(passes):
            before = self.versions()
            result = self.reconcile()
            self.settle()
            quiet = quiet + 1 if before == self.versions() else 0
            if quiet and (result.requeue_after is None or quiet > 1):
                return result
            self.clock.time += timedelta(seconds=result.requeue_after or 0)
        raise AssertionError(f"no rest after {passes} passes: {self.client.writes}")

    def versions(self) -> list[str | None]:
        """By which it shows whether anything was written to the service or its Deployments."""
        found = [
            self.find(KIND, NAME),
            *(self.find("Deployment", f"{NAME}-{role}") for role in ("primary", "canary")),
        ]
        return [each and each["metadata"]["resourceVersion"] for each in found]

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason, as stored."""
        status = self.service().status
        assert status is not None
        return next((each.status, each.reason) for each in status.conditions if each.type == kind)

    def has_condition(self, kind: str) -> bool:
        status = self.service().status
        return status is not None and any(each.type == kind for each in status.conditions)

    def says(self, kind: str) -> str:
        status = self.service().status
        assert status is not None
        return next(each.message for each in status.conditions if each.type == kind)

    # Objects

    def ref(self, kind: str, name: str) -> ObjectRef:
        namespace = "" if kind == "Node" else self.namespace
        return ObjectRef(api_version=API_VERSIONS[kind], kind=kind, namespace=namespace, name=name)

    def find(self, kind: str, name: str) -> Any:  # Any: an object of the API
        return self.run(self.client.client.get(self.ref(kind, name)))

    def get(self, kind: str, name: str) -> Any:
        found = self.find(kind, name)
        assert found is not None, f"no {kind} {name}"
        return found

    def primary(self) -> Any:
        return self.get("Deployment", f"{NAME}-primary")

    def edit(
        self, kind: str, name: str, *operations: Fields, by: str = "kubectl-edit", at: str = ""
    ) -> None:
        """Change an object as another tool would."""
        self.run(
            self.client.client.patch(self.ref(kind, name), operations, manager=by, subresource=at)
        )

    def set_image(self, image: str = "evil:1", name: str = f"{NAME}-primary") -> None:
        path = "/spec/template/spec/containers/0/image"
        self.edit("Deployment", name, {"op": "replace", "path": path, "value": image})

    def scale(self, number: int, *, by: str, name: str = f"{NAME}-primary") -> None:
        """Write the number through `scale`, as autoscalers and `kubectl scale` do."""
        operation: Fields = {"op": "replace", "path": "/spec/replicas", "value": number}
        self.edit("Deployment", name, operation, by=by, at="scale")

    def delete(self, kind: str, name: str) -> None:
        assert self.run(self.client.client.delete(self.ref(kind, name)))

    def apply(self, item: dict[str, Any], *, by: str = "somebody") -> Any:
        if item["kind"] != "Node":
            item["metadata"].setdefault("namespace", self.namespace)
        return self.run(self.client.client.apply(item, manager=by, force=True))

    # Pods

    def settle(self, **ready: int) -> None:
        """Let the Deployments get their pods ready; `primary=1` leaves all but one not ready."""
        for role in ("primary", "canary"):
            found = self.find("Deployment", f"{NAME}-{role}")
            if found is None:
                continue
            if self.plays:
                self.play(found, ready.get(role))
            else:
                self.wait(f"{NAME}-{role}")

    def play(self, found: Any, ready: int | None = None, *, updated: int | None = None) -> None:
        """Write a Deployment's status as its controller would."""
        wanted = found["spec"]["replicas"]
        count = wanted if ready is None else ready
        status: dict[str, Any] = {
            "observedGeneration": found["metadata"]["generation"],
            "replicas": wanted,
            "updatedReplicas": wanted if updated is None else updated,
            "readyReplicas": count,
            "availableReplicas": count,
            "unavailableReplicas": wanted - count,
        }
        if all((found.get("status") or {}).get(key) == value for key, value in status.items()):
            return
        name = found["metadata"]["name"]
        operation: Fields = {"op": "add", "path": "/status", "value": status}
        self.edit("Deployment", name, operation, by="kube-controller-manager", at="status")

    def wait(self, name: str, seconds: float = 60) -> None:
        """Wait for a real Deployment's controller and pods."""

        def there() -> bool:
            found = self.get("Deployment", name)
            status, wanted = found.get("status", {}), found["spec"]["replicas"]
            return status.get("observedGeneration") == found["metadata"]["generation"] and all(
                status.get(key, 0) == wanted
                for key in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
            )

        self.eventually(there, f"{name} is ready", seconds)

    def eventually(self, holds: Callable[[], bool], what: str, seconds: float = 30) -> None:
        wait_until(holds, seconds, what, every=0.1)


class OperatorWorlds:
    """Makes worlds, and closes what they needed."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()

    def memory(self, gateway: Gateway | None = None, metrics: Any = None) -> OperatorWorld:
        from holdfast.adapters.memory.kube import MemoryKube

        return OperatorWorld(
            self._runner,
            MemoryKube(),
            namespace="default",
            plays=True,
            gateway=gateway,
            metrics=metrics,
        )

    def real(
        self, kubeconfig: Any, namespace: str, gateway: Gateway | None = None
    ) -> OperatorWorld:
        from tests.adapters.kubernetes.harness import api_for, cluster_config

        api = self._runner.run(self._stack.enter_async_context(api_for(cluster_config(kubeconfig))))
        return OperatorWorld(
            self._runner,
            api,
            namespace=namespace,
            plays=False,
            gateway=gateway,
        )
