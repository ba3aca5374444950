"""Says what is wrong with a node: hardware as the cause of a pod that is lost or fails.

Read off the Node object: the node controller's word, what agents of the vendors write as
conditions, and how much of an accelerator is left to be used; and off the Events about it, where
agents tell an Xid of the NVIDIA driver. Nothing is concluded from a condition whose name says
nothing of hardware. The tables with their sources stand in `docs/reference/hardware.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from holdfast.core.ownership.canonical import value_at
from holdfast.core.quantity import parse_quantity
from holdfast.core.tree import Fields, Tree

NOT_READY, UNREACHABLE, GONE, CORDONED = "NotReady", "Unreachable", "Gone", "Cordoned"
LOST_CONDITIONS = frozenset({NOT_READY, UNREACHABLE, GONE})
"""On such a node nothing starts, and nothing that is told to end is known to have ended."""
_MACHINE_CONDITIONS = frozenset({"KernelDeadlock", "ReadonlyFilesystem", "CorruptDockerOverlay2"})
"""What node-problem-detector says of the machine itself, beside its accelerators."""
_ACCELERATOR_WORDS = re.compile(
    r"gpu|xid|nvlink|nvswitch|nvidia|dcgm|accelerat|iblink|infiniband|neuron", re.IGNORECASE
)
"""How agents name a condition that is about an accelerator or its links."""
_WELL_WHEN_TRUE = re.compile(r"(?<!Not)(Ready|Healthy|OK|Available)$")
"""Conditions with such a name are bad when False, all others when True, as
node-problem-detector has them."""
_TEXT_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProblem:
    """One thing that is wrong with a node."""

    node: str
    condition: str
    """As the agent that found it calls it, or one of ours: NotReady, Unreachable, Gone, Cordoned,
    or the name of a resource of which less can be used than there is."""
    since: datetime | None = None
    """None where nobody wrote it down."""
    reason: str = ""
    message: str = ""

    @property
    def lost(self) -> bool:
        """Whether nothing on the node can be relied on."""
        return self.condition in LOST_CONDITIONS

    def __str__(self) -> str:
        since = f" since {self.since:%Y-%m-%dT%H:%M:%SZ}" if self.since else ""
        said = f" ({self.message})" if self.message else ""
        return f"node {self.node} {self.condition}{since}{said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareFailure:
    """One pod that is lost or fails, and what of its hardware explains that."""

    pod: str
    reason: str
    """What ails the pod, as the kubelet or the scheduler calls it."""
    node: str | None = None
    """None where the kubelet itself turned the pod away."""
    condition: str | None = None
    since: str | None = None
    message: str | None = None

    @property
    def cause(self) -> str:
        """What is wrong, in words."""
        since = f" since {self.since}" if self.since else ""
        said = f" ({self.message})" if self.message else ""
        return f"node {self.node} {self.condition}{since}{said}" if self.node else str(self.message)


def find_node_problems(node: Fields, resources: Iterable[str] = ()) -> tuple[NodeProblem, ...]:
    """Give what is wrong with a node, for a pod that asks for some extended resources."""
    name = str(value_at(node, ("metadata", "name")))
    found = [*_condition_problems(node, name)]
    if value_at(node, ("spec", "unschedulable")) is True:
        since = _taint_time(node, "node.kubernetes.io/unschedulable")
        found.append(NodeProblem(node=name, condition=CORDONED, since=since))
    found += _missing_devices(node, name, resources)
    return tuple(found)


XIDS: Mapping[int, str] = {
    48: "double-bit ECC error",
    61: "internal micro-controller breakpoint or warning",
    62: "internal micro-controller halt",
    63: "ECC page retirement or row remapping recorded",
    64: "ECC page retirement or row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "GSP did not answer in time",
    120: "GSP error",
    140: "unrecovered ECC error",
}
"""What the well-known Xids mean, by NVIDIA's catalogue. Any other is given by its number."""
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Faults of the program, after which the GPU is taken to be healthy: NVIDIA's device plugin leaves
them out of its health checks, too."""
_XID_FORMS = (
    re.compile(r"Xid \(PCI:(?P<pci>[0-9a-f:.]+)\):? *(?P<number>\d{1,4})\b", re.IGNORECASE),
    re.compile(r"\bXid(?: error)?(?: code)? *[:=#]? *(?P<number>\d{1,4})\b", re.IGNORECASE),
)
"""How the driver writes an Xid, which most agents pass on, and how some write it themselves."""
_XID_IN_REASON = re.compile(r"XID(?P<number>\d{1,4})", re.IGNORECASE)
_XID_LEAD = timedelta(minutes=10)
"""How long before a pod was made an Xid may have been told last, to have to do with it."""


def find_xid_problems(
    node: str, events: Iterable[Fields], *, pod_created: datetime | None
) -> tuple[NodeProblem, ...]:
    """Give the Xids of a node that its Events tell, each device and number once.

    An Event is a moment and no state, so only what was told in the life of a pod, or shortly
    before, counts for it. Faults of programs are no fault of the hardware.
    """
    found: dict[tuple[int, str], NodeProblem] = {}
    for event in events:
        subject = event.get("involvedObject")
        about = (value_at(subject, ("kind",)), value_at(subject, ("name",)))
        xid = _xid_of(event) if event.get("type") == "Warning" and about == ("Node", node) else None
        if xid is None or xid[0] in APPLICATION_XIDS:
            continue
        first, last = _event_times(event)
        if pod_created is not None and last is not None and last < pod_created - _XID_LEAD:
            continue
        number, device = xid
        said = [XIDS.get(number, ""), f"PCI {device}" if device else ""]
        held = found.get(xid)
        since = min(filter(None, (first, held.since if held else None)), default=None)
        found[xid] = NodeProblem(
            node=node,
            condition=f"Xid {number}",
            since=since,
            reason=str(event.get("reason") or ""),
            message=", ".join(filter(None, said)),
        )
    return tuple(found[xid] for xid in sorted(found))


def _xid_of(event: Fields) -> tuple[int, str] | None:
    """The number of an Xid and the device it is about, where that is said."""
    message = str(event.get("message") or "")
    for form in _XID_FORMS:
        if match := form.search(message):
            return int(match["number"]), match.groupdict().get("pci") or ""
    match = _XID_IN_REASON.search(str(event.get("reason") or ""))
    return (int(match["number"]), "") if match else None


def _event_times(event: Fields) -> tuple[datetime | None, datetime | None]:
    """When an Event was told first and last; writers fill in one pair of fields or the other."""
    made = value_at(event, ("metadata", "creationTimestamp"))
    begun = event.get("eventTime") or made
    first = read_time(event.get("firstTimestamp") or begun)
    again = value_at(event, ("series", "lastObservedTime"))
    return first, read_time(again or event.get("lastTimestamp") or begun)


def gone_node(name: str) -> NodeProblem:
    """The problem of a node that is no longer in the cluster."""
    return NodeProblem(node=name, condition=GONE, message="there is no such node any more")


def _condition_problems(node: Fields, name: str) -> Iterable[NodeProblem]:
    conditions = value_at(node, ("status", "conditions"))
    for each in conditions if isinstance(conditions, list) else ():
        if not isinstance(each, dict):
            continue
        kind, status = str(each.get("type")), each.get("status")
        if kind == "Ready":
            if status == "True":
                continue
            kind = UNREACHABLE if status == "Unknown" else NOT_READY
        elif kind in _MACHINE_CONDITIONS or _ACCELERATOR_WORDS.search(kind):
            if status != ("False" if _WELL_WHEN_TRUE.search(kind) else "True"):
                continue
        else:
            continue
        yield NodeProblem(
            node=name,
            condition=kind,
            since=read_time(each.get("lastTransitionTime")),
            reason=str(each.get("reason") or ""),
            message=" ".join(str(each.get("message") or "").split())[:_TEXT_LIMIT],
        )


def _missing_devices(node: Fields, name: str, resources: Iterable[str]) -> Iterable[NodeProblem]:
    capacity, allocatable = (
        value_at(node, ("status", part)) for part in ("capacity", "allocatable")
    )
    if not isinstance(capacity, dict) or not isinstance(allocatable, dict):
        return
    for resource in resources:
        there, usable = (whole_number(each.get(resource)) for each in (capacity, allocatable))
        if there > usable:
            said = f"{usable} of {there} can be used"
            yield NodeProblem(node=name, condition=resource, message=said)


def _taint_time(node: Fields, key: str) -> datetime | None:
    taints = value_at(node, ("spec", "taints"))
    for taint in taints if isinstance(taints, list) else ():
        if isinstance(taint, dict) and taint.get("key") == key:
            return read_time(taint.get("timeAdded"))
    return None


def read_time(value: Tree) -> datetime | None:
    """Read a time of the API server; None for none, and for what is no time."""
    try:
        moment = datetime.fromisoformat(str(value)) if value else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment


def is_extended(resource: str) -> bool:
    """True for what a device plugin offers: a name with a domain that is not Kubernetes' own."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def whole_number(value: Tree) -> int:
    """How many of a device: devices come whole. 0 for what is no number."""
    amount = parse_quantity(value) if isinstance(value, str | int | float) else None
    return int(amount) if amount is not None else 0


def requested_devices(pod_spec: Fields) -> dict[str, int]:
    """How many of each extended resource a pod with this spec takes from its node.

    Containers add up; an init container that ends before them counts only where it alone wants
    more, one that goes on running (`restartPolicy: Always`) counts with them.
    """
    totals: dict[str, int] = {}
    highest: dict[str, int] = {}
    for group in ("containers", "initContainers"):
        held = pod_spec.get(group)
        for container in held if isinstance(held, list) else ():
            if not isinstance(container, dict):
                continue
            ends = group == "initContainers" and container.get("restartPolicy") != "Always"
            for resource, count in _container_devices(container).items():
                if ends:
                    highest[resource] = max(highest.get(resource, 0), count)
                else:
                    totals[resource] = totals.get(resource, 0) + count
    return {
        resource: count
        for resource in sorted({*totals, *highest})
        if (count := max(totals.get(resource, 0), highest.get(resource, 0)))
    }


def _container_devices(container: Fields) -> Mapping[str, int]:
    """Requests and limits of a device are equal; whoever gives one only gives the other with it."""
    found: dict[str, int] = {}
    for part in ("limits", "requests"):
        amounts = value_at(container, ("resources", part))
        for resource, amount in (amounts if isinstance(amounts, dict) else {}).items():
            if is_extended(resource):
                found[resource] = whole_number(amount)
    return found
