"""What a change of one Kubernetes object costs: its number, its template and its strategy at once.

The built-in kinds that run pods are known here, and those that run none. An `InferenceService` is
rendered before and after, and costs what its workloads cost (`core/service/service_cost.py`).
Of any other kind nobody here knows what its controller does with a change: unknown. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from holdfast.core.capacity import ClusterCapacity
from holdfast.core.cost import NO_COST, Cost, CostKind, DeviceNeed
from holdfast.core.node_health import requested_devices
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.canonical import value_at
from holdfast.core.tree import Fields, Path, Tree

_REPLICAS: Path = ("spec", "replicas")
_LEADER_WORKER_SET = "LeaderWorkerSet"
_WORKLOADS = {
    "Deployment": "apps",
    "StatefulSet": "apps",
    "DaemonSet": "apps",
    _LEADER_WORKER_SET: "leaderworkerset.x-k8s.io",
}
_TEMPLATES: dict[str, Path] = {_LEADER_WORKER_SET: ("spec", "leaderWorkerTemplate")}
_TEMPLATE: Path = ("spec", "template")
_STRATEGIES: dict[str, Path] = {
    "Deployment": ("spec", "strategy", "rollingUpdate"),
    "StatefulSet": ("spec", "updateStrategy", "rollingUpdate"),
    "DaemonSet": ("spec", "updateStrategy", "rollingUpdate"),
    _LEADER_WORKER_SET: ("spec", "rolloutStrategy", "rollingUpdateConfiguration"),
}
_IMMUTABLE: dict[str, tuple[Path, ...]] = {
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
    "ConfigMap Secret ServiceAccount PodDisruptionBudget.policy"
    " Role.rbac.authorization.k8s.io RoleBinding.rbac.authorization.k8s.io"
    " ClusterRole.rbac.authorization.k8s.io ClusterRoleBinding.rbac.authorization.k8s.io"
    " LimitRange ResourceQuota PriorityClass.scheduling.k8s.io CronJob.batch"
    " PersistentVolumeClaim Namespace".split()
)
"""Kinds whose change restarts no pod that runs. What is deleted of them is another matter."""
_ROUTING = frozenset(
    "Service Endpoints EndpointSlice.discovery.k8s.io"
    " HTTPRoute.gateway.networking.k8s.io GRPCRoute.gateway.networking.k8s.io"
    " Gateway.gateway.networking.k8s.io Ingress.networking.k8s.io".split()
)
"""Kinds that send requests to pods. None restarts one, and a changed one may leave callers without
an answer: which pods it would reach is not known here."""
_STEERING = frozenset("HorizontalPodAutoscaler.autoscaling NetworkPolicy.networking.k8s.io".split())
"""Kinds that start and end pods, or cut them off, as soon as there is one of them."""
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
    """True for the kinds whose pods are counted here."""
    return _WORKLOADS.get(ref.kind) == ref.group


def cost_of_field(
    ref: ObjectRef, live: Fields, declared: Fields, path: Path, basis: CostBasis = UNKNOWN_BASIS
) -> Cost | None:
    """What it costs to make one field of a live object as declared; None where unknown."""
    return cost_of_fields(ref, live, declared, (path,), basis)


def cost_of_fields(
    ref: ObjectRef,
    live: Fields,
    declared: Fields,
    paths: Collection[Path],
    basis: CostBasis = UNKNOWN_BASIS,
) -> Cost | None:
    """What it costs to make some fields of a live object as declared at once; None where unknown.

    A scaling and a rollout need more together than each of them alone.
    """
    if not runs_pods(ref):
        only_labels = all(path[0] == "metadata" for path in paths)
        known = _name(ref) in (
            _WITHOUT_PODS | _ROUTING | _STEERING if only_labels else _WITHOUT_PODS
        )
        return NO_COST if known else None
    template = _template_path(ref.kind)
    rolls = any(path[: len(template)] == template for path in paths)
    if ref.kind == _LEADER_WORKER_SET and not all(_is_known_of_groups(path) for path in paths):
        return None
    recreates = any(
        path[: len(each)] == each for path in paths for each in _IMMUTABLE.get(ref.kind, ())
    )
    after = _after(ref.kind, live, declared, paths)
    return change_cost(live, after, basis, rolls=rolls, recreates=recreates)


def change_cost(
    live: Fields | None,
    after: Fields | None,
    basis: CostBasis,
    *,
    rolls: bool = False,
    recreates: bool = False,
) -> Cost:
    """What it costs to have a workload as in `after` in place of as it is; None is none at all.

    With `rolls` its pods get another template, by its strategy; with `recreates` all end first.
    """
    item = after or live or {}
    old, new = _replicas(live), _replicas(after)
    kept = min(old.count, new.count)
    unavailable = 0
    kind = CostKind.GAP if old.count and not new.count else CostKind.NONE
    replaces = kept > 0 and (recreates or (rolls and not _waits_for_deletion(item)))
    if replaces:
        recreates = recreates or value_at(item, ("spec", "strategy", "type")) == "Recreate"
        unavailable = new.count if recreates else _max_unavailable(item, new.count)
        kind = CostKind.ROLLING if new.count - unavailable >= 1 else CostKind.GAP
        kind = CostKind.RECREATE if recreates else kind
    pods = kept * old.pods if replaces else 0
    added = new.count * new.pods - old.count * old.pods
    rollout = _Rollout(old=old, new=new, least=new.count - unavailable, replaces=replaces)
    needs = tuple(_needs(rollout, basis))
    return Cost(
        kind=kind,
        pods=pods,
        added=added,
        devices=needs,
        blocked=_is_blocked(rollout, needs, basis),
        cold_start=basis.cold_start if pods or added > 0 else None,
    )


def create_cost(declared: Fields, basis: CostBasis) -> Cost | None:
    """What it costs to create an object."""
    ref = _ref(declared)
    if ref.group == "apps" and ref.kind == "DaemonSet":
        return None  # as many pods as there are nodes that take one
    if not runs_pods(ref):
        return NO_COST if _name(ref) in _WITHOUT_PODS | _ROUTING else None
    return change_cost(None, declared, basis)


def delete_cost(live: Fields) -> Cost | None:
    """What it costs to delete an object."""
    ref = _ref(live)
    if runs_pods(ref):
        return change_cost(live, None, UNKNOWN_BASIS)
    return NO_COST if _name(ref) in _HARMLESS_DELETES else None


def replica_count(item: Fields) -> int:
    """How many replicas a workload is to have."""
    if item.get("kind") == "DaemonSet":
        path: Path = ("status", "desiredNumberScheduled")
        found = value_at(item, path)
        return found if isinstance(found, int) else 0
    found = value_at(item, _REPLICAS)
    return found if isinstance(found, int) and not isinstance(found, bool) else 1


def pod_spec_of(item: Fields) -> Fields:
    """The spec of a workload's pods; of a group of pods, that of the one that answers."""
    template = value_at(item, _template_path(item.get("kind")))
    if item.get("kind") == _LEADER_WORKER_SET:
        template = value_at(template, ("leaderTemplate",)) or value_at(
            template, ("workerTemplate",)
        )
    return _fields(value_at(template, ("spec",)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replicas:
    """The replicas of a workload, and what each of them is made of."""

    count: int = 0
    pods: int = 1
    """Of each replica."""
    pod_spec: Fields
    devices: Mapping[str, int]
    """Of all pods of a replica."""
    alike: bool = True
    """All pods of a replica ask for the same."""


def _replicas(item: Fields | None) -> _Replicas:
    if item is None:
        return _Replicas(pod_spec={}, devices={})
    spec = pod_spec_of(item)
    devices = requested_devices(spec)
    if item.get("kind") != _LEADER_WORKER_SET:
        return _Replicas(count=replica_count(item), pod_spec=spec, devices=devices)
    group = value_at(item, _template_path(_LEADER_WORKER_SET))
    size = value_at(group, ("size",))
    pods = size if isinstance(size, int) else 1
    worker = requested_devices(_fields(value_at(group, ("workerTemplate", "spec"))))
    total = {
        name: devices.get(name, 0) + (pods - 1) * worker.get(name, 0)
        for name in {*devices, *worker}
    }
    return _Replicas(
        count=replica_count(item),
        pods=pods,
        pod_spec=spec,
        devices=total,
        alike=pods == 1 or worker == devices,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rollout:
    """A workload on its way from some replicas to others."""

    old: _Replicas
    new: _Replicas
    least: int
    """So many replicas have to be available all the while."""
    replaces: bool
    """None of the old ones stays."""

    @property
    def first(self) -> int:
        """So many new ones have to find their place before an old one may go."""
        if not self.replaces:
            return max(self.new.count - self.old.count, 0)
        return max(self.least - self.old.count + 1, 0)

    def peak(self, resource: str) -> int:
        """How much of a resource it needs beside what it holds, when it needs most.

        An old one may go when `least` are available without it. The need changes evenly from one
        such moment to the next, so the first of them, the last, and the end are looked at.
        """
        held, wanted = self.old.devices.get(resource, 0), self.new.devices.get(resource, 0)
        if not self.replaces:
            return self.first * wanted
        moments = {min(self.old.count, self.least), 1} if self.least else set[int]()
        beside = [
            (self.least - left + 1) * wanted - (self.old.count - left) * held for left in moments
        ]
        return max(0, *beside, self.rise(resource))

    def rise(self, resource: str) -> int:
        """How much more of a resource it holds afterwards; below zero, less."""
        held, wanted = self.old.devices.get(resource, 0), self.new.devices.get(resource, 0)
        if self.replaces:
            return self.new.count * wanted - self.old.count * held
        added = self.new.count - self.old.count
        return added * (wanted if added > 0 else held)


def _needs(rollout: _Rollout, basis: CostBasis) -> Iterable[DeviceNeed]:
    spec = rollout.new.pod_spec
    for resource in sorted({*rollout.old.devices, *rollout.new.devices}):
        needed, added = rollout.peak(resource), rollout.rise(resource)
        if needed and basis.capacity is not None:
            yield DeviceNeed(
                resource=resource,
                needed=needed,
                free=basis.capacity.free(spec, resource),
                added=added,
                pool=basis.capacity.pool(spec, resource),
            )
        elif needed or added:
            yield DeviceNeed(resource=resource, needed=needed, added=added)


def _is_blocked(rollout: _Rollout, needs: Iterable[DeviceNeed], basis: CostBasis) -> bool:
    """Whether there is less than it needs, or no node that has all that one pod needs."""
    if any(each.free is not None and each.needed > each.free for each in needs):
        return True
    new = rollout.new
    if basis.capacity is None or not requested_devices(new.pod_spec) or not new.alike:
        return False
    return basis.capacity.places(new.pod_spec) < rollout.first * new.pods


def _max_unavailable(item: Fields, replicas: int) -> int:
    """How many replicas may be missing while a rollout is under way."""
    kind = str(item.get("kind"))
    given = _fields(value_at(item, _STRATEGIES[kind]))
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


def _waits_for_deletion(item: Fields) -> bool:
    """True where pods get the new template only when somebody deletes the old ones."""
    return (
        item.get("kind") != "Deployment"
        and value_at(item, ("spec", "updateStrategy", "type")) == "OnDelete"
    )


def _after(kind: str, live: Fields, declared: Fields, paths: Collection[Path]) -> Fields:
    """The object as it will be: its number, its strategy, its devices and its nodes."""
    after = {**_fields(live.get("spec"))}
    for name in ("strategy", "updateStrategy", "rolloutStrategy"):
        wanted = value_at(declared, ("spec", name))
        if wanted:
            after[name] = wanted
    number = value_at(declared, _REPLICAS)
    if _REPLICAS in paths and isinstance(number, int):
        after["replicas"] = number
    inside = [path for path in paths if path[: len(_template_path(kind))] == _template_path(kind)]
    if inside:
        after[_template_path(kind)[-1]] = _template_after(kind, live, declared, inside)
    return {**live, "spec": after}


def _template_after(kind: str, live: Fields, declared: Fields, paths: Collection[Path]) -> Tree:
    """The template as it will be, as far as devices and nodes are concerned."""
    path = _template_path(kind)
    before, wanted = value_at(live, path), value_at(declared, path)
    groups = kind == _LEADER_WORKER_SET
    container = len(path) + (4 if groups else 3)  # the length of the path of a container as such
    sized = any("resources" in each or len(each) <= container for each in paths)
    if groups:
        return wanted if sized else before
    spec, asked = _fields(value_at(before, ("spec",))), _fields(value_at(wanted, ("spec",)))
    names = ["nodeSelector", "affinity", "tolerations"]
    names += ["containers", "initContainers"] if sized else []
    return {"spec": {**spec, **{name: asked[name] for name in names if name in asked}}}


def _template_path(kind: Tree) -> Path:
    return _TEMPLATES.get(str(kind), _TEMPLATE)


def _is_known_of_groups(path: Path) -> bool:
    """Whether it is known what the controller of groups of pods does with a changed field."""
    known = (_REPLICAS, _TEMPLATES[_LEADER_WORKER_SET], _STRATEGIES[_LEADER_WORKER_SET][:2])
    return path[0] == "metadata" or any(path[: len(each)] == each for each in known)


def _fields(value: Tree) -> Fields:
    return value if isinstance(value, dict) else {}


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
