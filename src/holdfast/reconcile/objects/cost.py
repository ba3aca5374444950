"""Finds out what steps cost: reads nodes and pods where a cost depends on them.

Used by the operator, the GitOps controller and the Kubernetes target alike. What cannot be read
leaves a part of the cost unknown and stops nobody. Nodes and pods of a cluster are read at most
twice a minute, and only for a change that starts pods which ask for devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.core.capacity import ClusterCapacity, read_capacity
from holdfast.core.cost import NO_COST, Cost
from holdfast.core.errors import HoldfastError, ValidationError
from holdfast.core.node_health import requested_devices
from holdfast.core.object_cost import (
    UNKNOWN_BASIS,
    CostBasis,
    cold_start_of,
    cost_of_fields,
    create_cost,
    delete_cost,
    pod_spec_of,
)
from holdfast.core.ownership.canonical import value_at
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.object_diff import ObjectDiff
from holdfast.core.ownership.signals import FieldDrift, Signal
from holdfast.core.service.children import WORKLOAD_LABEL, Facts, manifests, selector
from holdfast.core.service.service_cost import service_cost
from holdfast.core.service.spec import API_VERSION, KIND, InferenceService
from holdfast.core.tree import Fields, Path, Tree
from holdfast.reconcile.kube import KubeClient, ObjectRef, Scope, ref_of
from holdfast.reconcile.ports import Clock
from holdfast.wire.inference_service_v1alpha1 import service_from_json

CAPACITY_SECONDS = 30.0
"""Seconds for which nodes and pods are not read again."""


class CostEstimator:
    """Tells what it costs to change objects of one cluster."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._capacity: ClusterCapacity | None = None
        self._read_at = float("-inf")

    async def add_costs(
        self, diff: ObjectDiff, live: Fields, declared: Fields, *, count_free: bool = True
    ) -> ObjectDiff:
        """Give every field that differs what it costs to make it as declared, and the whole what
        several of them cost at once.

        Without `count_free`, what is free stays unknown: for what was written already, as its new
        pods would count as others'.
        """
        owned = [each for each in diff.field_drifts if each.field_class is FieldClass.OWNED]
        if not owned:
            return diff
        pricing = _ObjectPricing(live=live, declared=declared, basis=UNKNOWN_BASIS)
        costs = (pricing.cost_of(owned), *(pricing.cost_of([each]) for each in owned))
        if any(cost and (cost.pods or cost.added > 0) for cost in costs):
            basis = await self._basis(ref_of(live), declared, live, count_free=count_free)
            pricing = replace(pricing, basis=basis)
        fields = tuple(
            replace(each, cost=pricing.cost_of([each]))
            if each.field_class is FieldClass.OWNED
            else each
            for each in diff.field_drifts
        )
        return replace(diff, field_drifts=fields, pricing=pricing)

    async def cost_of_object(
        self, live: Fields | None, declared: Fields | None, *, count_free: bool = True
    ) -> Cost | None:
        """What it costs to create an object that is declared, or to delete one that is not."""
        item = declared if live is None else live
        if item is None:
            return None
        ref = ref_of(item)
        basis = UNKNOWN_BASIS
        if live is None:
            basis = await self._basis(ref, item, None, count_free=count_free)
        if _is_service(ref):
            services = _read_service(live), _read_service(declared if live is None else None)
            return service_cost(*services, basis) if any(services) else None
        return create_cost(item, basis) if live is None else delete_cost(item)

    async def cost_of_service(
        self,
        before: InferenceService | None,
        after: InferenceService | None,
        *,
        cold_starts: Mapping[str, float] | None = None,
    ) -> Cost | None:
        """What it costs to have one InferenceService in place of another, or of none.

        `cold_starts` is what was asked for many services at once; without it, it is asked here.
        """
        service = after or before
        if service is None:
            return None
        basis = await self._basis_of_service(service, cold_starts)
        return service_cost(before, after, basis)

    async def cold_starts(self, services: Sequence[InferenceService]) -> dict[str, float]:
        """How long the last start of each service of one namespace took, by its name, as far as
        it is known; with one request, however many they are."""
        names = {each.name for each in services}
        if not names:
            return {}
        labels = f"{WORKLOAD_LABEL}={services[0].name}" if len(names) == 1 else WORKLOAD_LABEL
        pods: dict[str, list[Fields]] = {name: [] for name in names}
        for pod in await self._pods(services[0].namespace, labels):
            name = value_at(pod, ("metadata", "labels", WORKLOAD_LABEL))
            if isinstance(name, str) and name in pods:
                pods[name].append(pod)
        took = {name: cold_start_of(of) for name, of in pods.items()}
        return {name: seconds for name, seconds in took.items() if seconds is not None}

    async def _basis(
        self, ref: ObjectRef, item: Fields, live: Fields | None, *, count_free: bool
    ) -> CostBasis:
        if _is_service(ref):
            service = _read_service(item)
            return await self._basis_of_service(service) if service else UNKNOWN_BASIS
        wants = {
            **requested_devices(pod_spec_of(item)),
            **requested_devices(pod_spec_of(live or {})),
        }
        labels = value_at(live or item, ("spec", "selector", "matchLabels"))
        return CostBasis(
            capacity=await self._read_capacity() if wants and count_free else None,
            cold_start=await self._cold_start(ref.namespace, labels),
        )

    async def _basis_of_service(
        self, service: InferenceService, cold_starts: Mapping[str, float] | None = None
    ) -> CostBasis:
        try:
            service.validate()
        except ValidationError:
            return UNKNOWN_BASIS
        wants = any(requested_devices(pod_spec_of(each)) for each in manifests(service, Facts()))
        return CostBasis(
            capacity=await self._read_capacity() if wants else None,
            cold_start=await self._cold_start(service.namespace, dict(selector(service.name)))
            if cold_starts is None
            else cold_starts.get(service.name),
        )

    async def _cold_start(self, namespace: str, labels: Tree) -> float | None:
        if not isinstance(labels, dict) or not labels:
            return None
        chosen = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
        return cold_start_of(await self._pods(namespace, chosen))

    async def _pods(self, namespace: str, labels: str) -> Sequence[Fields]:
        """Read pods; none where we may not, or nobody answers."""
        scope = Scope(api_version="v1", kind="Pod", namespace=namespace, labels=labels)
        try:
            return (await self._client.list(scope)).items
        except HoldfastError:
            return ()

    async def _read_capacity(self) -> ClusterCapacity | None:
        """Read every node and pod; None where we may not, or nobody answers."""
        if self._clock.monotonic() - self._read_at > CAPACITY_SECONDS:
            self._read_at = self._clock.monotonic()
            try:
                nodes = await self._client.list(Scope(api_version="v1", kind="Node"))
                pods = await self._client.list(Scope(api_version="v1", kind="Pod"))
                self._capacity = read_capacity(nodes.items, pods.items)
            except HoldfastError:
                self._capacity = None
        return self._capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class _ObjectPricing:
    """What is known of one object that its cost depends on."""

    live: Fields
    declared: Fields
    basis: CostBasis

    def cost_of(self, fields: Iterable[FieldDrift]) -> Cost | None:
        """What it costs to make fields as declared.

        To own one again that has its value costs nothing, nor does an object that somebody
        replaced: what it has otherwise is listed beside it.
        """
        moved = [each for each in fields if each.change.path and each.signal is not Signal.LOST]
        if not moved:
            return NO_COST
        ref = ref_of(self.live)
        if not _is_service(ref):
            paths = [each.change.path for each in moved]
            return cost_of_fields(ref, self.live, self.declared, paths, self.basis)
        after = self.live
        for each in moved:
            after = _with_value(after, each)
        services = _read_service(self.live), _read_service(after)
        return service_cost(*services, self.basis) if all(services) else None


def _is_service(ref: ObjectRef) -> bool:
    return (ref.api_version, ref.kind) == (API_VERSION, KIND)


def _read_service(item: Fields | None) -> InferenceService | None:
    """Read an InferenceService; None for none, and for one that cannot be read."""
    try:
        return service_from_json(item) if item else None
    except ValidationError:
        return None


def _with_value(live: Fields, field: FieldDrift) -> Fields:
    """The live object with one field as declared; without it, where it is not declared."""
    path: Path = field.change.path
    value = None if field.signal is Signal.ADDED else field.change.desired
    return _set(live, path, value) if path else live


def _set(item: Fields, path: Path, value: Tree) -> Fields:
    name, rest = path[0], path[1:]
    if not rest:
        changed = {key: each for key, each in item.items() if key != name}
        return {**changed, name: value} if value is not None else changed
    inner = item.get(name)
    return {**item, name: _set(inner if isinstance(inner, dict) else {}, rest, value)}
