"""Says what keeps pods from being ready, in the words of the kubelet and of the scheduler.

A container that crashes is running most of the time, so its state of the moment tells nothing: how
often it was restarted, and how it ended last, do. Why a probe failed is said in Events alone. Where
the node explains it, the cause is hardware, and the problem names the node. Called by the operator
for services that are not ready or do not stay so, whose conditions carry the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from holdfast.core.node_health import (
    CORDONED,
    HardwareFailure,
    NodeProblem,
    find_node_problems,
    find_xid_problems,
    gone_node,
    read_time,
    requested_devices,
)
from holdfast.core.ownership.canonical import value_at
from holdfast.core.quantity import parse_moment
from holdfast.core.tree import Fields, Tree

_STARTING = frozenset({"", "ContainerCreating", "PodInitializing", "Completed"})
_BACK_OFF_REASONS = frozenset({"CrashLoopBackOff"})
"""Their message names the pod and a back-off, not the cause."""
_TEXT_LIMIT = 300
_LASTING_RESTARTS = 3
"""How often a container is started again before its crashes count as lasting."""
_REFUSED = re.compile(r"not found|manifest unknown|denied|unauthorized", re.IGNORECASE)
_NO_HEALTHY_DEVICE = re.compile(r"healthy devices", re.IGNORECASE)
"""What the kubelet says when it turns a pod away because a device plugin gave up its devices."""
_NODE_TROUBLE = re.compile(
    r"were unschedulable|node\.kubernetes\.io/(?:unreachable|not-ready|unschedulable)"
    r"|Insufficient [\w.-]+/"
)
"""Words of the scheduler that nodes may explain: cordoned, lost, or short of a device."""

_DEVICES_TAKEN = re.compile(r"Insufficient|cannot allocate all claims")
"""How the scheduler says that what a pod needs is in use."""


_PROBE_FAILED = re.compile(r"(Liveness|Readiness|Startup) probe (?:failed|errored)")
"""How the kubelet says in an Event that a probe failed; its answer follows."""
_PROBE_KILL = re.compile(r"failed (liveness|startup) probe")
"""How the kubelet says in an Event why it ends a container."""
_FRACTION = re.compile(r"\.\d+")
MAX_PODS_ASKED_ABOUT = 3
"""Pods whose Events are read: no more are named in a message."""
FLAPS = 3
"""How often a pod has to stop being ready before it is said to flap."""
FLAP_WINDOW = 1800.0
"""Seconds in which it has to: the kubelet's back-off between two starts is up to 300."""


class ProblemKind(StrEnum):
    """What kind of thing keeps a pod from being ready, as far as the cluster says."""

    CRASH = "Crash"
    """Its container ended, or was ended, and is started again and again."""
    PROBE = "Probe"
    """It runs, and its readiness probe fails."""
    FLAPPING = "Flapping"
    """It becomes ready and stops being so, again and again."""
    IMAGE = "Image"
    CONFIG = "Config"
    """A Secret, a ConfigMap or a setting that is not there."""
    START = "Start"
    """The container could not be started at all."""
    SCHEDULE = "Schedule"
    HARDWARE = "Hardware"
    """Its node is lost, or has no healthy device for it."""
    OTHER = "Other"


_KINDS = {
    "CrashLoopBackOff": ProblemKind.CRASH,
    "CreateContainerConfigError": ProblemKind.CONFIG,
    "CreateContainerError": ProblemKind.START,
    "ErrImageNeverPull": ProblemKind.IMAGE,
    "ErrImagePull": ProblemKind.IMAGE,
    "ImageInspectError": ProblemKind.IMAGE,
    "ImagePullBackOff": ProblemKind.IMAGE,
    "InvalidImageName": ProblemKind.IMAGE,
    "RunContainerError": ProblemKind.START,
    "StartError": ProblemKind.START,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodProblem:
    """Why one pod is not ready."""

    pod: str
    kind: ProblemKind
    reason: str
    """As the kubelet or the scheduler calls it."""
    message: str = ""
    """What they say about it, where that says more than the reason."""
    restarts: int = 0
    hardware: tuple[NodeProblem, ...] = ()
    """What is wrong with nodes, where that explains it."""

    @property
    def lasts(self) -> bool:
        """Whether it stays until somebody changes the spec or the cluster, as far as one can tell.

        A registry that does not answer may answer later; one that knows no such image will not.
        """
        match self.kind:
            case ProblemKind.CONFIG | ProblemKind.START:
                return True
            case ProblemKind.IMAGE:
                return self.reason == "InvalidImageName" or bool(_REFUSED.search(self.message))
            case ProblemKind.CRASH:
                return self.restarts >= _LASTING_RESTARTS
            case _:
                return False

    def __str__(self) -> str:
        said = f": {self.message}" if self.message else ""
        nodes = ", ".join(map(str, self.hardware))
        cause = f"; cause hardware: {nodes}" if nodes else ""
        return f"{self.pod}: {self.reason}{said}{cause}"


Nodes = Mapping[str, Fields | None]
"""Nodes by name, as far as they were read; None for one that is no longer there."""


NodeEvents = Mapping[str, Sequence[Fields]]
"""Events about nodes, by the name of the node."""
PodEvents = Mapping[str, Sequence[Fields]]
"""Events about pods by the uid of the pod, as far as they were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFlaps:
    """A pod that does not stay ready."""

    pod: str
    count: int
    """How often it stopped being ready within FLAP_WINDOW."""
    last: datetime


def has_stopped_being_ready(old: Fields, new: Fields) -> bool:
    """Say whether a pod that was ready is not any more, or was started again meanwhile.

    A pod that is about to end stops for good reason.
    """
    if not _is_ready(old) or _is_ending(new):
        return False
    return not _is_ready(new) or _restarts(new) > _restarts(old)


HAND_OVER_SECONDS = 60.0
"""Seconds after the end of its grace period that a pod may take to be gone: what it holds is
cleaned up after that."""


def find_pod_problems(
    pods: Sequence[Fields],
    nodes: Nodes | None = None,
    *,
    now: datetime,
    pod_events: PodEvents | None = None,
    node_events: NodeEvents | None = None,
) -> list[PodProblem]:
    """Give what ails the pods that are meant to stay; a pod that is ending ails of nothing.

    What another pod lacks counts as about to be given back while one is ending, but not for
    longer than HAND_OVER_SECONDS after it was to be gone; then that one is named.
    `nodes` are those that `nodes_to_ask` names, and all of them where `asks_all_nodes` says so;
    `pod_events` are about the pods that `pods_to_ask_about` names, `node_events` about the nodes
    that `nodes_with_events` names.
    """
    known = nodes or {}
    said = pod_events or {}
    staying = [pod for pod in pods if not _is_ending(pod)]
    # What is told to end on a lost node may hold what it has for ever.
    ending = [pod for pod in pods if _is_ending(pod) and not _lost(pod, known)]
    stuck = [pod for pod in ending if _is_stuck(pod, now)]
    hands_over = len(ending) > len(stuck)
    found = (
        _explained(
            _container_problem(pod, said.get(_uid(pod), ()))
            or _refused_device(pod)
            or _scheduling_problem(pod, hands_over, stuck),
            pod,
            known,
            node_events or {},
        )
        for pod in staying
    )
    return [problem for problem in found if problem is not None]


def explain_flaps(
    pods: Sequence[Fields], flaps: Iterable[PodFlaps], events: PodEvents | None = None
) -> list[PodProblem]:
    """Say of pods that do not stay ready why, as far as their last end and Events tell."""
    by_name = {_name(pod): pod for pod in pods if not _is_ending(pod)}
    found = []
    for each in flaps:
        pod = by_name.get(each.pod)
        if pod is None:
            continue
        said = (events or {}).get(_uid(pod), ())
        why = [part for state in _server_states(pod) for part in _last_trouble(pod, state, said)]
        minutes = round(FLAP_WINDOW / 60)
        times = f"stopped being ready {each.count} times within {minutes} minutes"
        at = f"last at {each.last:%Y-%m-%dT%H:%M:%SZ}"
        found.append(
            PodProblem(
                pod=each.pod,
                kind=ProblemKind.FLAPPING,
                reason="Flapping",
                message=", ".join((times, at, *why))[:_TEXT_LIMIT],
                restarts=_restarts(pod),
            )
        )
    return found


def pods_to_ask_about(pods: Iterable[Fields], flaps: Iterable[PodFlaps] = ()) -> list[str]:
    """Give the uids of the pods whose Events may tell more: a probe fails, or has them killed."""
    flapping = {each.pod for each in flaps}
    asked = [
        _uid(pod)
        for pod in pods
        if not _is_ending(pod)
        and (
            _name(pod) in flapping
            or (not _is_ready(pod) and any(map(_may_fail_probe, _server_states(pod))))
        )
    ]
    return [uid for uid in asked if uid][:MAX_PODS_ASKED_ABOUT]


def nodes_to_ask(pods: Iterable[Fields]) -> list[str]:
    """Name the nodes that may explain why pods are not ready, or do not end."""
    names = (node_of(pod) for pod in pods if _is_ending(pod) or not _is_ready(pod))
    return sorted({name for name in names if name})


def nodes_with_events(pods: Iterable[Fields]) -> list[str]:
    """Name the nodes of pods that are not ready and use GPUs whose faults are told as Xids."""
    names = (
        node_of(pod)
        for pod in pods
        if not _is_ending(pod) and not _is_ready(pod) and _uses_xids(pod)
    )
    return sorted({name for name in names if name})


def _uses_xids(pod: Fields) -> bool:
    spec = pod.get("spec")
    devices = requested_devices(spec) if isinstance(spec, dict) else {}
    return any(name.partition("/")[0].endswith("nvidia.com") for name in devices)


def hardware_failures(problems: Iterable[PodProblem]) -> tuple[HardwareFailure, ...]:
    """The pods whose failing is explained by hardware, one row for each thing that is wrong."""
    found = []
    for each in problems:
        for node in each.hardware:
            since = f"{node.since:%Y-%m-%dT%H:%M:%SZ}" if node.since else None
            found.append(
                HardwareFailure(
                    pod=each.pod,
                    reason=each.reason,
                    node=node.node,
                    condition=node.condition,
                    since=since,
                    message=node.message or None,
                )
            )
        if each.kind is ProblemKind.HARDWARE and not each.hardware:
            said = each.message or None
            found.append(HardwareFailure(pod=each.pod, reason=each.reason, message=said))
    return tuple(found[:_MAX_FAILURES])


_MAX_FAILURES = 32
"""Rows of a status about hardware."""


def asks_all_nodes(problems: Iterable[PodProblem]) -> bool:
    """Whether a pod found no node for a reason that the nodes themselves may tell more about."""
    return any(
        each.kind is ProblemKind.SCHEDULE and _NODE_TROUBLE.search(each.message)
        for each in problems
    )


def node_of(pod: Fields) -> str:
    """The node that a pod was given; empty where it has none."""
    return str(value_at(pod, ("spec", "nodeName")) or "")


def _explained(
    problem: PodProblem | None, pod: Fields, nodes: Nodes, events: NodeEvents
) -> PodProblem | None:
    """Add what the nodes say about it; a pod that only waits on a lost node has a problem too."""
    spec = pod.get("spec")
    devices = requested_devices(spec) if isinstance(spec, dict) else {}
    if problem is not None and problem.kind is ProblemKind.SCHEDULE:
        found = [each for name, node in nodes.items() for each in _ailing(name, node, devices)]
        named = [each for each in found if _named_by_scheduler(each, problem.message)]
        return replace(problem, hardware=tuple(named[:_MAX_NODES]))
    ailing = _node_problems(pod, nodes, devices)
    if problem is None:
        lost = [each for each in ailing if each.lost]
        if not lost or _is_ready(pod):
            return None
        return PodProblem(
            pod=_name(pod),
            kind=ProblemKind.HARDWARE,
            reason="NodeLost",
            message="its node does not answer for it",
            hardware=tuple(lost),
        )
    if problem.kind in _OWN_FAULTS:
        ailing = [each for each in ailing if each.lost]
    elif _uses_xids(pod):
        created = read_time(value_at(pod, ("metadata", "creationTimestamp")))
        told = events.get(node_of(pod), ())
        ailing += find_xid_problems(node_of(pod), told, pod_created=created)[:_MAX_NODES]
    return replace(problem, hardware=tuple(ailing))


_MAX_NODES = 3
"""Nodes that are named for one pod."""
_OWN_FAULTS = frozenset({ProblemKind.IMAGE, ProblemKind.CONFIG})
"""What no device has a part in."""


def _node_problems(pod: Fields, nodes: Nodes, devices: Iterable[str]) -> list[NodeProblem]:
    """What is wrong with the node of a pod. That it is cordoned harms no pod that is there."""
    name = node_of(pod)
    if name not in nodes:
        return []
    found = _ailing(name, nodes[name], devices)
    return [each for each in found if each.condition != CORDONED]


def _ailing(name: str, node: Fields | None, devices: Iterable[str]) -> Sequence[NodeProblem]:
    return [gone_node(name)] if node is None else find_node_problems(node, devices)


def _named_by_scheduler(problem: NodeProblem, message: str) -> bool:
    """Whether what is wrong with a node is what the scheduler speaks of."""
    if problem.condition == CORDONED:
        return "unschedulable" in message
    if problem.lost:
        return "node.kubernetes.io/unreachable" in message or "not-ready" in message
    return "Insufficient" in message


def _lost(pod: Fields, nodes: Nodes) -> bool:
    return any(each.lost for each in _node_problems(pod, nodes, ()))


def _refused_device(pod: Fields) -> PodProblem | None:
    """The kubelet turned the pod away: a device plugin has no healthy device for it."""
    message = _text(pod, ("status", "message"))
    if _text(pod, ("status", "phase")) != "Failed" or not _NO_HEALTHY_DEVICE.search(message):
        return None
    return PodProblem(
        pod=_name(pod),
        kind=ProblemKind.HARDWARE,
        reason=_text(pod, ("status", "reason")) or "Failed",
        message=message[:_TEXT_LIMIT],
    )


def _is_ready(pod: Fields) -> bool:
    conditions = value_at(pod, ("status", "conditions"))
    return any(
        isinstance(each, dict) and each.get("type") == "Ready" and each.get("status") == "True"
        for each in (conditions if isinstance(conditions, list) else ())
    )


def _container_problem(pod: Fields, events: Sequence[Fields]) -> PodProblem | None:
    for state in (*_states(pod, "initContainerStatuses"), *_server_states(pod)):
        if problem := _state_problem(pod, state, events):
            return problem
    return None


def _state_problem(pod: Fields, state: Fields, events: Sequence[Fields]) -> PodProblem | None:
    problem = _problem_by_state(_name(pod), state)
    if problem is None:
        words = "" if state.get("ready") is True else _failing_probe(pod, state, events)
        if not words:
            return None
        return PodProblem(
            pod=_name(pod), kind=ProblemKind.PROBE, reason="Unhealthy", message=words[:_TEXT_LIMIT]
        )
    if problem.kind is ProblemKind.CRASH and (words := _killing_probe(pod, state, events)):
        return replace(problem, message=f"{words}, {problem.message}"[:_TEXT_LIMIT])
    return problem


def _last_trouble(pod: Fields, state: Fields, events: Sequence[Fields]) -> Iterator[str]:
    """Why a container stopped being ready last: by a probe, by its end, or by both."""
    if words := _killing_probe(pod, state, events) or _failing_probe(pod, state, events):
        yield words
    if ending := _ending(value_at(state, ("lastState", "terminated")), _restart_count(state)):
        yield ending


def _killing_probe(pod: Fields, state: Fields, events: Sequence[Fields]) -> str:
    """Say which probe had the last container killed, and what it got for an answer."""
    since = parse_moment(value_at(state, ("lastState", "terminated", "startedAt")))
    for event in _events_of(state, events, "Killing", since):
        if killed := _PROBE_KILL.search(str(event.get("message"))):
            return _probe_answer(pod, state, events, since, killed[1])
    return ""


def _failing_probe(pod: Fields, state: Fields, events: Sequence[Fields]) -> str:
    """Say what the readiness probe of a container that has started gets for an answer."""
    since = parse_moment(value_at(state, ("state", "running", "startedAt")))
    if since is None or state.get("started") is not True:
        return ""
    return _probe_answer(pod, state, events, since, "readiness")


def _probe_answer(
    pod: Fields, state: Fields, events: Sequence[Fields], since: datetime | None, probe: str
) -> str:
    """Give the kubelet's newest words about a probe, and the path that it asked."""
    for event in _events_of(state, events, "Unhealthy", since):
        message = " ".join(str(event.get("message")).split())
        found = _PROBE_FAILED.match(message)
        if found is None or found[1].lower() != probe:
            continue
        path = _probe_path(pod, str(state.get("name")), f"{probe}Probe")
        return message if not path or path in message else f"{message} (GET {path})"
    return ""


def _events_of(
    state: Fields, events: Sequence[Fields], reason: str, since: datetime | None
) -> list[Fields]:
    """Give the Events of one reason about a container, the newest first, none older than that."""
    place = f"spec.containers{{{state.get('name')}}}"
    found = []
    for event in events:
        at = _event_time(event)
        about = value_at(event, ("involvedObject", "fieldPath"))
        if event.get("reason") != reason or about not in (None, place) or at is None:
            continue
        if since is None or at >= since:
            found.append((at, event))
    return [event for _, event in sorted(found, key=lambda each: each[0], reverse=True)]


def _event_time(event: Fields) -> datetime | None:
    """When it happened last; its writers have three ways to say so."""
    times = (
        value_at(event, ("series", "lastObservedTime")),
        event.get("lastTimestamp"),
        event.get("eventTime"),
    )
    found = (parse_moment(_FRACTION.sub("", str(each))) for each in times)
    return next((at for at in found if at is not None), None)


def _probe_path(pod: Fields, container: str, probe: str) -> str:
    containers = value_at(pod, ("spec", "containers"))
    for each in containers if isinstance(containers, list) else ():
        if isinstance(each, dict) and each.get("name") == container:
            return _text(each, (probe, "httpGet", "path"))
    return ""


def _may_fail_probe(state: Fields) -> bool:
    return _restart_count(state) > 0 or (
        state.get("started") is True and state.get("ready") is not True
    )


def _server_states(pod: Fields) -> list[Fields]:
    return _states(pod, "containerStatuses")


def _states(pod: Fields, group: str) -> list[Fields]:
    found = value_at(pod, ("status", group))
    return [each for each in (found if isinstance(found, list) else ()) if isinstance(each, dict)]


def _restarts(pod: Fields) -> int:
    return sum(map(_restart_count, _server_states(pod)))


def _restart_count(state: Fields) -> int:
    count = state.get("restartCount")
    return count if isinstance(count, int) else 0


def _problem_by_state(pod: str, state: Fields) -> PodProblem | None:
    """What the state of a container says by itself."""
    count = _restart_count(state)
    last = value_at(state, ("lastState", "terminated"))
    reason = _text(state, ("state", "waiting", "reason"))
    if reason in _STARTING:
        ended = value_at(state, ("state", "terminated"))
        reason = _text(state, ("state", "terminated", "reason"))
        if reason not in _STARTING:
            kind = _KINDS.get(reason, ProblemKind.CRASH)
            return PodProblem(
                pod=pod, kind=kind, reason=reason, message=_ending(ended, count), restarts=count
            )
        if count and state.get("ready") is not True:
            return PodProblem(
                pod=pod,
                kind=ProblemKind.CRASH,
                reason="Restarted",
                message=_ending(last, count),
                restarts=count,
            )
        return None
    said = _text(state, ("state", "waiting", "message"))
    message = _ending(last, count) if reason in _BACK_OFF_REASONS or not said else said
    kind = _KINDS.get(reason, ProblemKind.OTHER)
    return PodProblem(
        pod=pod, kind=kind, reason=reason, message=message[:_TEXT_LIMIT], restarts=count
    )


def _ending(ended: Tree, restarts: int) -> str:
    """Say how a container ended, and how often it was started again."""
    parts = []
    if isinstance(ended, dict):
        parts.append(f"ended with {ended.get('reason')}, exit code {ended.get('exitCode')}")
        if said := str(ended.get("message") or "").strip():
            parts.append(said[:_TEXT_LIMIT])
    if restarts:
        parts.append("restarted once" if restarts == 1 else f"restarted {restarts} times")
    return ", ".join(parts)


def _scheduling_problem(
    pod: Fields, hands_over: bool, stuck: Sequence[Fields]
) -> PodProblem | None:
    conditions = value_at(pod, ("status", "conditions"))
    for condition in conditions if isinstance(conditions, list) else ():
        if not isinstance(condition, dict) or condition.get("type") != "PodScheduled":
            continue
        message = str(condition.get("message") or "")
        taken = _DEVICES_TAKEN.search(message)
        # Where a pod waits for what another one of the service is about to give back, all is well.
        if condition.get("status") != "False" or (hands_over and taken):
            return None
        if taken and stuck:
            message = f"{_describe_stuck(stuck)}; {message}"
        return PodProblem(
            pod=_name(pod),
            kind=ProblemKind.SCHEDULE,
            reason=str(condition.get("reason")),
            message=message[:_TEXT_LIMIT],
        )
    return None


def _describe_stuck(stuck: Sequence[Fields]) -> str:
    """Name a pod that should be gone, and when."""
    more = f" and {len(stuck) - 1} more" if len(stuck) > 1 else ""
    since = value_at(stuck[0], ("metadata", "deletionTimestamp"))
    return f"{_name(stuck[0])}{more} was to be gone by {since} and is not"


def _is_stuck(pod: Fields, now: datetime) -> bool:
    """True for a pod that should have been gone for a while: its deletion has that time."""
    until = read_time(value_at(pod, ("metadata", "deletionTimestamp")))
    return until is not None and (now - until).total_seconds() > HAND_OVER_SECONDS


def _is_ending(pod: Fields) -> bool:
    return value_at(pod, ("metadata", "deletionTimestamp")) is not None


def _uid(pod: Fields) -> str:
    return _text(pod, ("metadata", "uid"))


def _name(pod: Fields) -> str:
    return str(value_at(pod, ("metadata", "name")))


def _text(state: Fields, path: tuple[str, ...]) -> str:
    return str(value_at(state, path) or "")
