"""How many devices are free for more pods of a workload, counted from nodes and their pods.

Free is what nodes that would take such a pod can give (`allocatable`), less what the pods that
are bound to them ask for. A pod that is ending holds its devices until it is gone; one that waits
for a node holds none. Only extended resources are counted: neither CPU nor memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.core.node_health import is_extended, requested_devices, whole_number
from holdfast.core.ownership.canonical import value_at
from holdfast.core.tree import Fields, Tree, digest

_ENDED_PHASES = ("Succeeded", "Failed")
_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacity:
    """What one node has left, and which pods it would take."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Fields, ...]
    open: bool
    """It is ready, and not cordoned."""
    free: Mapping[str, int]
    """Of each extended resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCapacity:
    """The nodes of a cluster at one moment."""

    nodes: tuple[NodeCapacity, ...]

    def free(self, pod_spec: Fields, resource: str) -> int:
        """How many of a resource are free on nodes that would take such a pod."""
        return sum(node.free.get(resource, 0) for node in self.nodes if takes(node, pod_spec))

    def pool(self, pod_spec: Fields, resource: str) -> str:
        """Name the nodes that `free` counts: the same name, the same nodes."""
        names = (
            node.name for node in self.nodes if takes(node, pod_spec) and resource in node.free
        )
        return digest(sorted(names)).removeprefix("sha256:")[:8]

    def places(self, pod_spec: Fields) -> int:
        """How many more pods that ask for devices find all of them, whole pods to a node."""
        wanted = requested_devices(pod_spec)
        return sum(
            min(max(node.free.get(name, 0), 0) // count for name, count in wanted.items())
            for node in self.nodes
            if wanted and takes(node, pod_spec)
        )


def read_capacity(nodes: Iterable[Fields], pods: Iterable[Fields]) -> ClusterCapacity:
    """Count what is left, from every node and every pod of a cluster."""
    taken: dict[str, dict[str, int]] = {}
    for pod in pods:
        name, spec = value_at(pod, ("spec", "nodeName")), pod.get("spec")
        if not name or not isinstance(spec, dict):
            continue
        if value_at(pod, ("status", "phase")) in _ENDED_PHASES:
            continue
        counts = taken.setdefault(str(name), {})
        for resource, count in requested_devices(spec).items():
            counts[resource] = counts.get(resource, 0) + count
    return ClusterCapacity(nodes=tuple(_node_capacity(node, taken) for node in nodes))


def _node_capacity(node: Fields, taken: Mapping[str, Mapping[str, int]]) -> NodeCapacity:
    name = str(value_at(node, ("metadata", "name")))
    labels, allocatable = value_at(node, ("metadata", "labels")), value_at(node, _ALLOCATABLE)
    ready = any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in _items(value_at(node, ("status", "conditions")))
    )
    used = taken.get(name, {})
    return NodeCapacity(
        name=name,
        labels={key: str(value) for key, value in labels.items()}
        if isinstance(labels, dict)
        else {},
        taints=tuple(_items(value_at(node, ("spec", "taints")))),
        open=ready and value_at(node, ("spec", "unschedulable")) is not True,
        free={
            resource: whole_number(amount) - used.get(resource, 0)
            for resource, amount in (allocatable if isinstance(allocatable, dict) else {}).items()
            if is_extended(resource)
        },
    )


_ALLOCATABLE = ("status", "allocatable")


def takes(node: NodeCapacity, pod_spec: Fields) -> bool:
    """Whether the scheduler would consider a node for such a pod.

    By its selector, its required node affinity and its tolerations. A taint that is named after
    a device is no obstacle for who asks for that device: many clusters add that toleration on
    admission. Affinity to other pods and topology are left out, so a node may be counted that is
    refused in the end.
    """
    selector = pod_spec.get("nodeSelector")
    wanted = selector.items() if isinstance(selector, dict) else ()
    return (
        node.open
        and all(node.labels.get(key) == value for key, value in wanted)
        and _has_affinity(node, pod_spec)
        and all(_is_tolerated(taint, pod_spec) for taint in node.taints)
    )


def _has_affinity(node: NodeCapacity, pod_spec: Fields) -> bool:
    path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = list(_items(value_at(value_at(pod_spec, path), ("nodeSelectorTerms",))))
    if not terms:
        return True
    return any(
        all(_fits(each, node.labels) for each in _items(term.get("matchExpressions")))
        and all(
            _fits(each, {"metadata.name": node.name}) for each in _items(term.get("matchFields"))
        )
        for term in terms
        if term
    )


def _fits(expression: Fields, labels: Mapping[str, str]) -> bool:
    value, given = labels.get(str(expression.get("key"))), expression.get("values")
    values = given if isinstance(given, list) else []
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            numbers = (value or "", *map(str, values[:1]))
            if len(numbers) < 2 or not all(each.lstrip("-").isdigit() for each in numbers):
                return False
            mine, other = map(int, numbers)
            return mine > other if operator == "Gt" else mine < other
        case _:
            return False


def _is_tolerated(taint: Fields, pod_spec: Fields) -> bool:
    if taint.get("effect") not in _BLOCKING_EFFECTS:
        return True
    if taint.get("key") in requested_devices(pod_spec):
        return True
    for each in _items(pod_spec.get("tolerations")):
        if each.get("effect") not in (None, "", taint.get("effect")):
            continue
        if each.get("operator") == "Exists":
            if each.get("key") in (None, "", taint.get("key")):
                return True
        elif (each.get("key"), each.get("value") or "") == (
            taint.get("key"),
            taint.get("value") or "",
        ):
            return True
    return False


def _items(value: Tree) -> Iterable[Fields]:
    return (item for item in (value if isinstance(value, list) else ()) if isinstance(item, dict))
