"""What a change of one Kubernetes object costs, field by field. Pure.

The built-in kinds that run pods are known here, and those that run none. An `InferenceService` is
rendered before and after, and costs what its Deployments cost (`core/service/service_cost.py`).
Of any other kind nobody here knows what its controller does with a change: unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.core.capacity import ClusterCapacity
from holdfast.core.cost import NO_COST, Cost, CostKind, DeviceNeed
from holdfast.core.node_health import requested_devices
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.canonical import value_at
from holdfast.core.tree import Fields, Path, Tree

_TEMPLATE: Path = ("spec", "template")
_POD_SPEC: Path = ("spec", "template", "spec")
_REPLICAS: Path = ("spec", "replicas")
_WORKLOADS = frozenset({"Deployment", "StatefulSet", "DaemonSet"})
_IMMUTABLE = {
    "Deployment": (("spec", "selector"),),
    "DaemonSet": (("spec", "selector"),),
    "StatefulSet": (
        ("spec", "selector"),
        ("spec", "serviceName"),
        ("spec", "podManagementPolicy"),
        ("spec", "volumeClaimTemplates"),
    ),
}
"""Fields that only another object of the same name can have otherwise."""
_WITHOUT_PODS = frozenset(
    "ConfigMap Secret ServiceAccount Service Endpoints EndpointSlice.discovery.k8s.io"
    " HorizontalPodAutoscaler.autoscaling PodDisruptionBudget.policy"
    " HTTPRoute.gateway.networking.k8s.io GRPCRoute.gateway.networking.k8s.io"
    " Gateway.gateway.networking.k8s.io Ingress.networking.k8s.io NetworkPolicy.networking.k8s.io"
    " Role.rbac.authorization.k8s.io RoleBinding.rbac.authorization.k8s.io"
    " ClusterRole.rbac.authorization.k8s.io ClusterRoleBinding.rbac.authorization.k8s.io"
    " LimitRange ResourceQuota PriorityClass.scheduling.k8s.io CronJob.batch"
    " PersistentVolumeClaim Namespace".split()
)
"""Kinds whose change restarts no pod that runs. What is deleted of them is another matter."""
_HARMLESS_DELETES = frozenset(
    "ConfigMap Secret HorizontalPodAutoscaler.autoscaling PodDisruptionBudget.policy CronJob.batch"
    " LimitRange ResourceQuota".split()
)
"""Kinds whose objects may go while pods that run go on. The rest, a Service or a Namespace for
one, takes requests or pods along in ways that nobody here can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostBasis:
    """What is known of a workload's surroundings, for its cost."""

    capacity: ClusterCapacity | None = None
    """None where nodes or pods could not be read."""
    cold_start: float | None = None


UNKNOWN_BASIS = CostBasis()


def runs_pods(ref: ObjectRef) -> bool:
    """True for the built-in kinds whose pods are counted here."""
    return ref.group == "apps" and ref.kind in _WORKLOADS


def cost_of_field(
    ref: ObjectRef, live: Fields, declared: Fields, path: Path, basis: CostBasis = UNKNOWN_BASIS
) -> Cost | None:
    """What it costs to make one field of a live object as declared; None where unknown."""
    if not runs_pods(ref):
        return NO_COST if _name(ref) in _WITHOUT_PODS else None
    replicas = replica_count(live)
    if any(path[: len(each)] == each for each in _IMMUTABLE[ref.kind]):
        return _with_start(Cost(kind=CostKind.RECREATE, pods=replicas), basis)
    if path == _REPLICAS:
        wanted = value_at(declared, path)
        after = wanted if isinstance(wanted, int) else replicas
        return scale_cost(pod_spec_of(live), replicas, after, basis)
    if path and path[: len(_TEMPLATE)] == _TEMPLATE:
        return rollout_cost(ref.kind, live, _after(live, declared, path), basis)
    if not path:
        return create_cost(declared, basis)
    return NO_COST


def rollout_cost(kind: str, live: Fields, after: Fields, basis: CostBasis) -> Cost:
    """What it costs to give the pods of a workload another template.

    `after` is the object as it will be, as far as its strategy and its pods are concerned.
    """
    replicas = replica_count(live)
    if not replicas or _waits_for_deletion(kind, after):
        return NO_COST
    if value_at(after, ("spec", "strategy", "type")) == "Recreate":
        cost = Cost(kind=CostKind.RECREATE, pods=replicas)
        return _with_needs(cost, live, after, replicas, replicas, basis)
    unavailable = _max_unavailable(kind, after, replicas)
    answers = replicas - unavailable >= 1
    cost = Cost(kind=CostKind.ROLLING if answers else CostKind.GAP, pods=replicas)
    return _with_needs(cost, live, after, replicas, unavailable, basis)


def scale_cost(pod_spec: Fields, before: int, after: int, basis: CostBasis) -> Cost:
    """What it costs to have more pods, or fewer."""
    added = after - before
    if added <= 0:
        kind = CostKind.GAP if before and not after else CostKind.NONE
        return Cost(kind=kind, added=added)
    return _with_start(_placed(pod_spec, added, basis), basis)


def create_cost(declared: Fields, basis: CostBasis) -> Cost | None:
    """What it costs to create an object."""
    ref = _ref(declared)
    if ref.group == "apps" and ref.kind == "DaemonSet":
        return None  # as many pods as there are nodes that take one
    if not runs_pods(ref):
        return NO_COST if _name(ref) in _WITHOUT_PODS else None
    return scale_cost(pod_spec_of(declared), 0, replica_count(declared), basis)


def delete_cost(live: Fields) -> Cost | None:
    """What it costs to delete an object."""
    ref = _ref(live)
    if runs_pods(ref):
        return scale_cost(pod_spec_of(live), replica_count(live), 0, UNKNOWN_BASIS)
    return NO_COST if _name(ref) in _HARMLESS_DELETES else None


def replica_count(item: Fields) -> int:
    """How many pods a workload is to have."""
    if item.get("kind") == "DaemonSet":
        path: Path = ("status", "desiredNumberScheduled")
        found = value_at(item, path)
        return found if isinstance(found, int) else 0
    found = value_at(item, _REPLICAS)
    return found if isinstance(found, int) and not isinstance(found, bool) else 1


def pod_spec_of(item: Fields) -> Fields:
    """The spec of a workload's pods."""
    found = value_at(item, _POD_SPEC)
    return found if isinstance(found, dict) else {}


def _with_needs(
    cost: Cost, live: Fields, after: Fields, replicas: int, unavailable: int, basis: CostBasis
) -> Cost:
    """Add the devices that a rollout needs beside those that the pods hold now.

    Where no pod may be missing, one of the new has to find its place beside all of the old; where
    some may, those give back theirs first, and only what the new ones want more is needed.
    """
    spec, old = pod_spec_of(after), requested_devices(pod_spec_of(live))
    new = requested_devices(spec)
    needs = []
    for resource in sorted({*old, *new}):
        before, wanted = old.get(resource, 0), new.get(resource, 0)
        more = replicas * (wanted - before)
        needed = more if unavailable else max(wanted, more + before)
        if needed > 0:
            free = basis.capacity.free(spec, resource) if basis.capacity else None
            needs.append(DeviceNeed(resource=resource, needed=needed, free=free))
    short = any(each.free is not None and each.needed > each.free for each in needs)
    apart = not unavailable and bool(new) and basis.capacity is not None
    blocked = short or (apart and basis.capacity is not None and not basis.capacity.places(spec))
    return _with_start(replace(cost, devices=tuple(needs), blocked=blocked), basis)


def _placed(pod_spec: Fields, count: int, basis: CostBasis) -> Cost:
    """The cost of pods that are started beside what runs."""
    needs = tuple(
        DeviceNeed(
            resource=resource,
            needed=count * each,
            free=basis.capacity.free(pod_spec, resource) if basis.capacity else None,
        )
        for resource, each in requested_devices(pod_spec).items()
    )
    blocked = bool(needs) and basis.capacity is not None and basis.capacity.places(pod_spec) < count
    return Cost(kind=CostKind.NONE, added=count, devices=needs, blocked=blocked)


def _with_start(cost: Cost, basis: CostBasis) -> Cost:
    return replace(cost, cold_start=basis.cold_start)


def _max_unavailable(kind: str, after: Fields, replicas: int) -> int:
    """How many pods may be missing while a rollout is under way."""
    path: Path = ("spec", "strategy" if kind == "Deployment" else "updateStrategy", "rollingUpdate")
    rolling = value_at(after, path)
    given = rolling if isinstance(rolling, dict) else {}
    if kind == "StatefulSet":
        # A pod keeps its name, so the old one always ends before the new one starts.
        return max(1, _amount(given.get("maxUnavailable", 1), replicas, up=False))
    surge_default, default = ("25%", "25%") if kind == "Deployment" else (0, 1)
    surge = _amount(given.get("maxSurge", surge_default), replicas, up=True)
    unavailable = _amount(given.get("maxUnavailable", default), replicas, up=kind == "DaemonSet")
    if not surge and not unavailable:
        unavailable = 1  # as the controller itself does
    return min(unavailable, replicas)


def _amount(value: Tree, replicas: int, *, up: bool) -> int:
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdigit():
        share = replicas * int(value[:-1]) / 100
        return math.ceil(share) if up else math.floor(share)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _waits_for_deletion(kind: str, after: Fields) -> bool:
    """True where pods get the new template only when somebody deletes the old ones."""
    return (
        kind != "Deployment" and value_at(after, ("spec", "updateStrategy", "type")) == "OnDelete"
    )


def _after(live: Fields, declared: Fields, path: Path) -> Fields:
    """The object as it will be: what is declared of its strategy, its devices and its nodes."""
    spec = pod_spec_of(live)
    wanted = pod_spec_of(declared)
    named = ["nodeSelector", "affinity", "tolerations"]
    whole = len(path) <= len(_POD_SPEC) + 2  # a container as such, or all of them
    if whole or "resources" in path:
        named += ["containers", "initContainers"]
    after: Fields = {**spec, **{name: wanted[name] for name in named if name in wanted}}
    strategies = {
        name: found
        for name in ("strategy", "updateStrategy")
        if (found := value_at(declared, ("spec", name)) or value_at(live, ("spec", name)))
    }
    return {**live, "spec": {**strategies, "template": {"spec": after}}}


def _name(ref: ObjectRef) -> str:
    return f"{ref.kind}.{ref.group}" if ref.group else ref.kind


def _ref(item: Fields) -> ObjectRef:
    return ObjectRef(
        api_version=str(item.get("apiVersion") or ""),
        kind=str(item.get("kind") or ""),
        namespace=str(value_at(item, ("metadata", "namespace")) or ""),
        name=str(value_at(item, ("metadata", "name")) or ""),
    )


def cold_start_of(pods: Iterable[Fields]) -> float | None:
    """How long the newest pod that is ready took from its creation until it was.

    None where none is, and of pods whose containers were started again: how long the first start
    took is not on record then.
    """
    newest: tuple[datetime, float] | None = None
    for pod in pods:
        states = value_at(pod, ("status", "containerStatuses"))
        if any(
            isinstance(each, dict) and each.get("restartCount")
            for each in (states if isinstance(states, list) else ())
        ):
            continue
        conditions = value_at(pod, ("status", "conditions"))
        ready = next(
            (
                each.get("lastTransitionTime")
                for each in (conditions if isinstance(conditions, list) else ())
                if isinstance(each, dict)
                and each.get("type") == "Ready"
                and each.get("status") == "True"
            ),
            None,
        )
        created = value_at(pod, ("metadata", "creationTimestamp"))
        if not ready or not created:
            continue
        begun = datetime.fromisoformat(str(created))
        took = (datetime.fromisoformat(str(ready)) - begun).total_seconds()
        if took >= 0 and (newest is None or begun > newest[0]):
            newest = begun, took
    return newest[1] if newest else None
