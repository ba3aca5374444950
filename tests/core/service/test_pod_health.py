"""What is said of pods that are not ready, from statuses as real kubelets write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.core.service.pod_health import (
    PodFlaps,
    ProblemKind,
    asks_all_nodes,
    explain_flaps,
    find_pod_problems,
    hardware_failures,
    has_stopped_being_ready,
    nodes_to_ask,
    nodes_with_events,
    pods_to_ask_about,
)

NOW = datetime(2026, 11, 18, 5, 0, 30, tzinfo=UTC)
"""Half a minute after the pods that are ending were to be gone."""


def problems_of(pods: list[dict[str, Any]], *known: Any, now: datetime = NOW, **more: Any) -> Any:
    """Ask at that moment."""
    return find_pod_problems(pods, *known, now=now, **more)


# Any: the status of a pod as it comes over the wire.
def pod(name: str = "chat-1", *, ending: bool = False, **status: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if ending:
        metadata["deletionTimestamp"] = "2026-11-18T05:00:00Z"
    return {"metadata": metadata, "status": status}


def container(ready: bool = False, restarts: int = 0, **states: Any) -> list[dict[str, Any]]:
    return [{"name": "server", "ready": ready, "restartCount": restarts, **states}]


ENDED = {"reason": "Error", "exitCode": 137}
BACK_OFF = "back-off 40s restarting failed container=server pod=chat-1_default(6f1c)"
UNSCHEDULED = [
    {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
    }
]

CASES = [
    pytest.param(
        {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": BACK_OFF}},
         "lastState": {"terminated": {"reason": "Error", "exitCode": 1}}, "restarts": 4},
        ProblemKind.CRASH,
        "chat-1: CrashLoopBackOff: ended with Error, exit code 1, restarted 4 times",
        id="a crash loop, between two tries",
    ),
    pytest.param(
        {"state": {"running": {}}, "lastState": {"terminated": ENDED}, "restarts": 3},
        ProblemKind.CRASH,
        "chat-1: Restarted: ended with Error, exit code 137, restarted 3 times",
        id="a crash loop, while it runs: as after each probe kill",
    ),
    pytest.param(
        {"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}},
        ProblemKind.CRASH,
        "chat-1: OOMKilled: ended with OOMKilled, exit code 137",
        id="out of memory, a moment ago",
    ),
    pytest.param(
        {"state": {"terminated": {"reason": "StartError", "exitCode": 128,
                                  "message": 'exec: "/absent": no such file'}}},
        ProblemKind.START,
        'chat-1: StartError: ended with StartError, exit code 128, exec: "/absent": no such file',
        id="no such program",
    ),
    pytest.param(
        {"state": {"waiting": {"reason": "CreateContainerConfigError",
                               "message": 'secret "absent" not found'}}},
        ProblemKind.CONFIG,
        'chat-1: CreateContainerConfigError: secret "absent" not found',
        id="a Secret that is not there",
    ),
    pytest.param(
        {"state": {"waiting": {"reason": "ImagePullBackOff",
                               "message": 'Back-off pulling image "x:1": not found'}}},
        ProblemKind.IMAGE,
        'chat-1: ImagePullBackOff: Back-off pulling image "x:1": not found',
        id="no such image",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("state", "kind", "said"), CASES)
def test_the_words_of_the_kubelet_are_told(
    state: dict[str, Any], kind: ProblemKind, said: str
) -> None:
    (problem,) = problems_of([pod(containerStatuses=container(**state))])
    assert (problem.kind, str(problem)) == (kind, said)


@pytest.mark.parametrize(
    "states",
    [
        {"state": {"waiting": {"reason": "ContainerCreating"}}},
        {"state": {"running": {}}},
        {
            "ready": True,
            "restarts": 2,
            "state": {"running": {}},
            "lastState": {"terminated": ENDED},
        },
        {"state": {"terminated": {"reason": "Completed", "exitCode": 0}}},
    ],
)
def test_a_pod_that_starts_or_is_ready_ails_of_nothing(states: dict[str, Any]) -> None:
    assert problems_of([pod(containerStatuses=container(**states))]) == []


def test_an_init_container_is_looked_at_before_the_server() -> None:
    failed = container(state={"waiting": {"reason": "ErrImagePull", "message": "denied"}})
    waiting = container(state={"waiting": {"reason": "PodInitializing"}})
    (problem,) = problems_of([pod(initContainerStatuses=failed, containerStatuses=waiting)])
    assert str(problem) == "chat-1: ErrImagePull: denied"


def test_waiting_for_a_gpu_is_a_problem_unless_a_pod_of_ours_is_giving_one_back() -> None:
    new = pod("chat-2", conditions=UNSCHEDULED)
    assert [each.kind for each in problems_of([new])] == [ProblemKind.SCHEDULE]
    assert problems_of([new, pod("chat-1", ending=True)]) == []


def test_a_pod_that_does_not_end_hands_nothing_over_and_is_named() -> None:
    pods = [pod("chat-2", conditions=UNSCHEDULED), pod("chat-1", ending=True)]
    assert problems_of(pods, now=NOW + timedelta(seconds=30)) == []
    (found,) = problems_of(pods, now=NOW + timedelta(seconds=31))
    assert (found.pod, found.kind) == ("chat-2", ProblemKind.SCHEDULE)
    assert found.message == (
        "chat-1 was to be gone by 2026-11-18T05:00:00Z and is not; "
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    )


def test_of_two_pods_that_end_one_may_still_hand_over() -> None:
    late = pod("chat-0", ending=True)
    late["metadata"]["deletionTimestamp"] = "2020-11-18T05:00:00Z"
    waiting = pod("chat-2", conditions=UNSCHEDULED)
    assert problems_of([waiting, late, pod("chat-1", ending=True)]) == []
    assert problems_of([waiting, late])


def test_what_a_pod_ails_of_while_it_ends_is_nobodys_problem() -> None:
    failed = container(state={"terminated": {"reason": "Error", "exitCode": 143}})
    assert problems_of([pod(ending=True, containerStatuses=failed)]) == []


@pytest.mark.parametrize(
    ("state", "lasts"),
    [
        ({"waiting": {"reason": "CreateContainerConfigError", "message": "no key"}}, True),
        ({"waiting": {"reason": "ErrImagePull", "message": "x:1: not found"}}, True),
        ({"waiting": {"reason": "ErrImagePull", "message": "dial tcp: i/o timeout"}}, False),
        ({"waiting": {"reason": "ErrImagePull", "message": "lookup r: no such host"}}, False),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, False),
        ({"terminated": {"reason": "StartError", "exitCode": 128}}, True),
    ],
)
def test_only_what_somebody_has_to_change_lasts(state: dict[str, Any], lasts: bool) -> None:
    (problem,) = problems_of([pod(containerStatuses=container(restarts=1, state=state))])
    assert problem.lasts is lasts


def test_crashes_last_from_the_third_on() -> None:
    crash = {"waiting": {"reason": "CrashLoopBackOff"}}
    found = [
        problems_of([pod(containerStatuses=container(restarts=restarts, state=crash))])
        for restarts in (1, 2, 3, 4)
    ]
    assert [each[0].lasts for each in found] == [False, False, True, True]


GPU = "nvidia.com/gpu"
LOST = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-18T05:00:00Z",
         "message": "Kubelet stopped posting node status."}]  # fmt: skip
WELL = [{"type": "Ready", "status": "True"}]
XID = [*WELL, {"type": "GpuXidError", "status": "True", "message": "Xid 79"}]


def on_node(found: dict[str, Any], name: str = "n1", gpus: int = 1) -> dict[str, Any]:
    resources = {"limits": {GPU: gpus}} if gpus else {}
    return {**found, "spec": {"nodeName": name, "containers": [{"resources": resources}]}}


def node(conditions: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n1"}, "spec": spec, "status": {"conditions": conditions}}


CRASHED = pod(containerStatuses=container(
    restarts=4, state={"waiting": {"reason": "CrashLoopBackOff"}}
))  # fmt: skip
UNREADY = pod(
    conditions=[{"type": "Ready", "status": "False"}], containerStatuses=container(ready=True)
)


def test_a_pod_on_a_lost_node_has_hardware_for_a_cause() -> None:
    (found,) = problems_of([on_node(UNREADY)], {"n1": node(LOST)})

    assert found.kind is ProblemKind.HARDWARE and not found.lasts
    assert str(found) == (
        "chat-1: NodeLost: its node does not answer for it; cause hardware: node n1 Unreachable"
        " since 2026-11-18T05:00:00Z (Kubelet stopped posting node status.)"
    )
    assert problems_of([on_node(UNREADY)], {"n1": node(WELL)}) == []
    assert problems_of([on_node(UNREADY)], {}) == [], "a node that was not read is no cause"
    (gone,) = problems_of([on_node(UNREADY)], {"n1": None})
    assert gone.hardware[0].condition == "Gone"


def test_a_crash_on_a_node_with_a_broken_gpu_is_explained_and_a_slow_start_is_none() -> None:
    (found,) = problems_of([on_node(CRASHED)], {"n1": node(XID)})

    assert found.kind is ProblemKind.CRASH
    assert str(found).endswith("restarted 4 times; cause hardware: node n1 GpuXidError (Xid 79)")
    assert problems_of([on_node(UNREADY)], {"n1": node(XID)}) == []
    (image,) = problems_of(
        [on_node(pod(containerStatuses=container(state={"waiting": {"reason": "ErrImagePull"}})))],
        {"n1": node(XID)},
    )
    assert image.hardware == (), "a GPU has no part in an image that is not there"


def test_a_cordon_harms_no_pod_that_is_there_and_explains_one_that_finds_no_node() -> None:
    cordoned = node(WELL, unschedulable=True)
    (crash,) = problems_of([on_node(CRASHED)], {"n1": cordoned})
    assert crash.hardware == ()

    message = "0/1 nodes are available: 1 node(s) were unschedulable."
    waiting = pod(conditions=[{**UNSCHEDULED[0], "message": message}])
    assert asks_all_nodes(problems_of([waiting]))
    (found,) = problems_of([waiting], {"n1": cordoned, "n2": node(LOST)})
    assert [each.condition for each in found.hardware] == ["Cordoned"]


def test_a_pod_that_finds_no_gpu_is_told_which_are_broken() -> None:
    short = {"capacity": {GPU: "2"}, "allocatable": {GPU: "1"}, "conditions": WELL}
    broken: Any = {"metadata": {"name": "n1"}, "spec": {}, "status": short}
    waiting = on_node(pod(conditions=UNSCHEDULED), name="")
    (found,) = problems_of([waiting], {"n1": broken})

    assert str(found.hardware[0]) == "node n1 nvidia.com/gpu (1 of 2 can be used)"


def test_a_pod_that_cannot_end_on_a_lost_node_hands_nothing_over() -> None:
    pods = [on_node(pod("old", ending=True)), pod("new", conditions=UNSCHEDULED)]

    assert problems_of(pods, {"n1": node(WELL)}) == []
    (found,) = problems_of(pods, {"n1": node(LOST)})
    assert (found.pod, found.kind) == ("new", ProblemKind.SCHEDULE)


def test_a_pod_that_the_kubelet_turned_away_for_want_of_a_healthy_device() -> None:
    refused = pod(
        phase="Failed",
        reason="UnexpectedAdmissionError",
        message="Allocate failed due to no healthy devices present; cannot allocate unhealthy"
        " devices nvidia.com/gpu, which is unexpected",
    )
    (found,) = problems_of([refused])

    assert (found.kind, found.reason) == (ProblemKind.HARDWARE, "UnexpectedAdmissionError")


def test_only_nodes_that_may_explain_something_are_asked() -> None:
    ready = pod("ready", conditions=[{"type": "Ready", "status": "True"}])
    pods = [on_node(UNREADY), on_node(ready, "n2"), on_node(pod("old", ending=True), "n3")]

    assert nodes_to_ask(pods) == ["n1", "n3"]
    assert not asks_all_nodes(problems_of([on_node(CRASHED)]))


def test_a_pod_that_waits_for_a_claim_of_one_that_ends_ails_of_nothing() -> None:
    message = "0/1 nodes are available: 1 cannot allocate all claims."
    waiting = pod("chat-2", conditions=[UNSCHEDULED[0] | {"message": message}])
    assert problems_of([waiting, pod("chat-1", ending=True)]) == []
    assert problems_of([waiting])


# What a kubelet 1.36 writes about a server whose health path is wrong, in core/v1.
def event(reason: str, message: str, at: str, *, container: str = "server") -> dict[str, Any]:
    return {
        "reason": reason,
        "message": message,
        "lastTimestamp": f"2026-11-18T05:{at}Z",
        "involvedObject": {"kind": "Pod", "fieldPath": f"spec.containers{{{container}}}"},
    }


def probed(**status: Any) -> dict[str, Any]:
    """A pod whose probes ask for /nowhere; its last container began at 05:10, this one at 05:20."""
    ask = {"httpGet": {"path": "/nowhere", "port": "http"}}
    probes = {f"{kind}Probe": ask for kind in ("startup", "liveness", "readiness")}
    found = pod(containerStatuses=container(**status))
    found["metadata"]["uid"] = "6f1c"
    found["spec"] = {"containers": [{"name": "server", **probes}]}
    return found


LAST = {"terminated": {**ENDED, "startedAt": "2026-11-18T05:10:00Z"}}
RUNNING = {"running": {"startedAt": "2026-11-18T05:20:00Z"}}
KILLED_AT_START = event(
    "Killing", "Container server failed startup probe, will be restarted", "19:00"
)
KILLED = event("Killing", "Container server failed liveness probe, will be restarted", "19:00")
STARTUP = "Startup probe failed: HTTP probe failed with statuscode: 404"
LIVENESS = (
    'Liveness probe failed: Get "http://10.0.0.7:8000/nowhere": context deadline exceeded'
    " (Client.Timeout exceeded while awaiting headers)"
)
READINESS = "Readiness probe failed: HTTP probe failed with statuscode: 503"

PROBES = [
    pytest.param(
        {"state": RUNNING, "lastState": LAST, "restarts": 3},
        [KILLED_AT_START, event("Unhealthy", STARTUP, "18:50")],
        f"chat-1: Restarted: {STARTUP} (GET /nowhere), "
        "ended with Error, exit code 137, restarted 3 times",
        id="killed at its start",
    ),
    pytest.param(
        {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": BACK_OFF}},
         "lastState": LAST, "restarts": 3},
        [event("Unhealthy", LIVENESS, "18:50"), event("Unhealthy", STARTUP, "10:05"), KILLED],
        f"chat-1: CrashLoopBackOff: {LIVENESS}, "
        "ended with Error, exit code 137, restarted 3 times",
        id="killed later, with a path in the words",
    ),
    pytest.param(
        {"state": RUNNING, "lastState": LAST, "restarts": 3},
        [event("Unhealthy", STARTUP, "18:50")],
        "chat-1: Restarted: ended with Error, exit code 137, restarted 3 times",
        id="it ended by itself, while a probe failed too",
    ),
    pytest.param(
        {"state": RUNNING, "lastState": LAST, "restarts": 3},
        [event("Killing", KILLED["message"], "05:00"), event("Unhealthy", LIVENESS, "04:50")],
        "chat-1: Restarted: ended with Error, exit code 137, restarted 3 times",
        id="a kill of long ago",
    ),
    pytest.param(
        {"state": RUNNING, "started": True},
        [event("Unhealthy", READINESS, "21:00")],
        f"chat-1: Unhealthy: {READINESS} (GET /nowhere)",
        id="it has started, and is not ready",
    ),
    pytest.param(
        {"state": RUNNING, "started": False},
        [event("Unhealthy", STARTUP, "21:00")],
        None,
        id="a slow start is no problem",
    ),
    pytest.param(
        {"state": RUNNING, "started": True},
        [event("Unhealthy", READINESS, "21:00", container="sidecar")],
        None,
        id="words about another container",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("state", "events", "said"), PROBES)
def test_a_probe_that_fails_is_told_in_its_own_words(
    state: dict[str, Any], events: list[dict[str, Any]], said: str | None
) -> None:
    found = problems_of([probed(**state)], pod_events={"6f1c": events})
    assert [str(each) for each in found] == ([] if said is None else [said])


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        ({"state": RUNNING}, False),
        ({"state": RUNNING, "restarts": 1}, True),
        ({"state": RUNNING, "started": True}, True),
        ({"state": RUNNING, "started": True, "ready": True, "restarts": 1}, False),
    ],
)
def test_events_are_read_only_of_pods_that_a_probe_may_trouble(
    state: dict[str, Any], asked: bool
) -> None:
    found = probed(**state)
    ready = str(state.get("ready", False))
    found["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    assert pods_to_ask_about([found]) == (["6f1c"] if asked else [])
    flaps = PodFlaps(pod="chat-1", count=3, last=NOON)
    assert pods_to_ask_about([found], [flaps]) == ["6f1c"]


NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("old", "new", "stopped"),
    [
        ((True, 0), (False, 0), True),
        ((True, 0), (False, 1), True),
        pytest.param((True, 0), (True, 1), True, id="restarted between two sights"),
        ((True, 2), (True, 2), False),
        ((False, 0), (True, 0), False),
        pytest.param((False, 2), (False, 3), False, id="a crash loop, which is told otherwise"),
    ],
)
def test_a_pod_stops_being_ready(
    old: tuple[bool, int], new: tuple[bool, int], stopped: bool
) -> None:
    def seen(ready: bool, restarts: int, *, ending: bool = False) -> dict[str, Any]:
        conditions = [{"type": "Ready", "status": str(ready)}]
        states = container(ready, restarts, state=RUNNING)
        return pod(ending=ending, conditions=conditions, containerStatuses=states)

    assert has_stopped_being_ready(seen(*old), seen(*new)) is stopped
    assert not has_stopped_being_ready(seen(*old), seen(*new, ending=True))


def test_a_pod_that_flaps_is_explained_by_its_last_end_and_its_probe() -> None:
    crashed = probed(ready=True, restarts=3, state=RUNNING, lastState=LAST)
    flaps = PodFlaps(pod="chat-1", count=3, last=NOON)
    events = {"6f1c": [KILLED, event("Unhealthy", LIVENESS, "18:50")]}
    (problem,) = explain_flaps([crashed], [flaps], events)
    assert problem.kind is ProblemKind.FLAPPING
    assert str(problem).startswith(
        "chat-1: Flapping: stopped being ready 3 times within 30 minutes, last at"
        f" 2026-11-18T12:00:00Z, {LIVENESS}, ended with Error"
    )
    assert explain_flaps([], [flaps]) == []


def test_a_crash_is_explained_by_an_xid_that_its_node_told_as_an_event() -> None:
    event = {"involvedObject": {"kind": "Node", "name": "n1"}, "type": "Warning",
             "firstTimestamp": "2026-11-18T05:00:00Z",
             "message": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus"}  # fmt: skip
    nodes, events = {"n1": node(WELL)}, {"n1": [event]}
    (found,) = problems_of([on_node(CRASHED)], nodes, node_events=events)
    assert str(found).endswith(
        "cause hardware: node n1 Xid 79 since 2026-11-18T05:00:00Z"
        " (GPU has fallen off the bus, PCI 0000:3b:00)"
    )
    (row,) = hardware_failures([found])
    assert (row.pod, row.node, row.condition) == ("chat-1", "n1", "Xid 79")
    assert row.since == "2026-11-18T05:00:00Z"
    (without,) = problems_of([on_node(CRASHED, gpus=0)], nodes, node_events=events)
    assert without.hardware == (), "a pod without a GPU does not fail by one"
    image = container(state={"waiting": {"reason": "ErrImagePull"}})
    (pulling,) = problems_of([on_node(pod(containerStatuses=image))], nodes, node_events=events)
    assert pulling.hardware == ()


def test_events_are_asked_for_nodes_of_pods_with_gpus_that_are_not_ready() -> None:
    ready = pod("ready", conditions=[{"type": "Ready", "status": "True"}])
    pods = [on_node(CRASHED), on_node(CRASHED, "n2", gpus=0), on_node(ready, "n3"),
            on_node(pod("old", ending=True), "n4")]  # fmt: skip
    assert nodes_with_events(pods) == ["n1"]
