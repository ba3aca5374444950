"""What nodes say of themselves: every condition that is known, as its agent writes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.core.node_health import (
    APPLICATION_XIDS,
    XIDS,
    find_node_problems,
    find_xid_problems,
    gone_node,
    requested_devices,
)

SINCE = "2026-11-18T05:00:00Z"
GPU = "nvidia.com/gpu"


# Any: a node as it comes over the wire.
def node(*conditions: dict[str, Any], **spec: Any) -> dict[str, Any]:
    status = spec.pop("status", {})
    return {
        "metadata": {"name": "gpu-1"},
        "spec": spec,
        "status": {"conditions": list(conditions), **status},
    }


def condition(kind: str, status: str, message: str = "") -> dict[str, Any]:
    said = {"type": kind, "status": status, "lastTransitionTime": SINCE, "message": message}
    return {**said, "reason": f"{kind}Reason"}


READY = condition("Ready", "True")

BAD = [
    ("Ready", "False", "NotReady"),
    ("Ready", "Unknown", "Unreachable"),
    # node-problem-detector
    ("KernelDeadlock", "True", "KernelDeadlock"),
    ("ReadonlyFilesystem", "True", "ReadonlyFilesystem"),
    # AKS
    ("GPUMissing", "True", "GPUMissing"),
    ("XIDErrors", "True", "XIDErrors"),
    ("NVLinkStatusInactive", "True", "NVLinkStatusInactive"),
    ("IBLinkFlapping", "True", "IBLinkFlapping"),
    ("UnhealthyNvidiaDevicePlugin", "True", "UnhealthyNvidiaDevicePlugin"),
    ("UnhealthyNvidiaDCGMServices", "True", "UnhealthyNvidiaDCGMServices"),
    # EKS
    ("AcceleratedHardwareReady", "False", "AcceleratedHardwareReady"),
    # NVSentinel
    ("GpuMemWatch", "True", "GpuMemWatch"),
    ("GpuNvlinkWatch", "True", "GpuNvlinkWatch"),
    ("SysLogsXIDError", "True", "SysLogsXIDError"),
    ("SysLogsGPUFallenOff", "True", "SysLogsGPUFallenOff"),
    # Nebius, AMD's operator, and others
    ("NebiusGPUError", "True", "NebiusGPUError"),
    ("AMDGPUUnhealthy", "True", "AMDGPUUnhealthy"),
    ("GpuUnhealthy", "True", "GpuUnhealthy"),
    ("XidErrorsProblem", "True", "XidErrorsProblem"),
    ("GPUNotReady", "True", "GPUNotReady"),
]
WELL = [
    ("Ready", "True"),
    ("AcceleratedHardwareReady", "True"),
    ("AcceleratedHardwareReady", "Unknown"),
    ("GPUMissing", "False"),
    ("GpuMemWatch", "Unknown"),
    ("MemoryPressure", "True"),  # true, and no fault of the machine
    ("NetworkingReady", "False"),
]


@pytest.mark.parametrize(("kind", "status", "said"), BAD)
def test_a_bad_condition_is_named_with_its_time_and_words(
    kind: str, status: str, said: str
) -> None:
    (found,) = find_node_problems(node(condition(kind, status, "Xid 79,\n  fallen off the bus")))

    assert (found.node, found.condition) == ("gpu-1", said)
    assert found.since == datetime(2026, 11, 18, 5, tzinfo=UTC)
    assert found.lost is (kind == "Ready")
    assert str(found) == (
        f"node gpu-1 {said} since 2026-11-18T05:00:00Z (Xid 79, fallen off the bus)"
    )


@pytest.mark.parametrize(("kind", "status"), WELL)
def test_nothing_is_made_of_what_is_well_or_says_nothing_of_hardware(
    kind: str, status: str
) -> None:
    assert find_node_problems(node(condition(kind, status))) == ()


def test_a_cordoned_node_is_told_with_the_time_of_its_taint_where_there_is_one() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    (dated,) = find_node_problems(
        node(READY, unschedulable=True, taints=[{**taint, "timeAdded": SINCE}])
    )
    (undated,) = find_node_problems(node(READY, unschedulable=True, taints=[taint]))

    assert str(dated) == "node gpu-1 Cordoned since 2026-11-18T05:00:00Z"
    assert str(undated) == "node gpu-1 Cordoned"


def test_devices_that_cannot_be_used_are_told_to_who_asks_for_them() -> None:
    amounts = {"capacity": {GPU: "8", "cpu": "4"}, "allocatable": {GPU: "7", "cpu": "3"}}
    found = find_node_problems(node(READY, status=amounts), [GPU])

    assert [str(each) for each in found] == ["node gpu-1 nvidia.com/gpu (7 of 8 can be used)"]
    assert find_node_problems(node(READY, status=amounts), ["amd.com/gpu"]) == ()


def test_a_node_that_is_no_longer_there_is_lost() -> None:
    assert gone_node("gpu-1").lost


def test_damaged_objects_are_passed_over() -> None:
    broken: Any = {"metadata": {}, "status": {"conditions": ["x", {"type": "Ready"}, 7]}}

    assert [each.condition for each in find_node_problems(broken)] == ["NotReady"]


def test_devices_of_a_pod_are_counted_as_the_scheduler_counts_them() -> None:
    def container(count: int, **more: Any) -> dict[str, Any]:
        return {"resources": {"limits": {GPU: count, "cpu": "1", "memory": "1Gi"}}, **more}

    spec: Any = {
        "containers": [container(1), {"resources": {"requests": {"rdma/hca": "2"}}}, container(1)],
        "initContainers": [container(1, restartPolicy="Always"), container(4)],
    }
    assert requested_devices(spec) == {GPU: 4, "rdma/hca": 2}
    assert requested_devices({"containers": [{"name": "x"}]}) == {}
    hugepages: Any = {"containers": [{"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}]}
    assert requested_devices(hugepages) == {}


def warning(message: str, reason: str = "XIDError", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "gpu-1.1", "creationTimestamp": SINCE},
        "involvedObject": {"kind": "Node", "name": "gpu-1"},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "firstTimestamp": SINCE,
        "lastTimestamp": SINCE,
        **more,
    }


DRIVER = "kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=vllm, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("message", "reason", "said"),
    [
        # The driver's own line, as node-problem-detector passes it on.
        (DRIVER, "XIDError", "Xid 79 since 2026-11-18T05:00:00Z"
         " (GPU has fallen off the bus, PCI 0000:3b:00)"),
        ("NVRM: Xid (PCI:0000:cb:00): 94, Contained: CE User Channel", "GpuXidError",
         "Xid 94 since 2026-11-18T05:00:00Z (contained memory error, PCI 0000:cb:00)"),
        ("XID 48 detected on GPU 3", "GpuXidError",
         "Xid 48 since 2026-11-18T05:00:00Z (double-bit ECC error)"),
        ("GPU 0: XID error: 74", "Xid", "Xid 74 since 2026-11-18T05:00:00Z (NVLink error)"),
        ("the accelerator failed", "NvidiaXID119Error",
         "Xid 119 since 2026-11-18T05:00:00Z (GSP did not answer in time)"),
        # A number that is not in the table is given as such.
        ("NVRM: Xid (PCI:0000:3b:00): 999, whatever", "XIDError",
         "Xid 999 since 2026-11-18T05:00:00Z (PCI 0000:3b:00)"),
    ],
)  # fmt: skip
def test_an_xid_in_an_event_is_given_by_number_with_its_meaning(
    message: str, reason: str, said: str
) -> None:
    (found,) = find_xid_problems("gpu-1", [warning(message, reason)], pod_created=None)
    assert str(found) == f"node gpu-1 {said}"
    assert not found.lost


@pytest.mark.parametrize("number", sorted(APPLICATION_XIDS))
def test_an_xid_of_a_program_is_no_fault_of_the_hardware(number: int) -> None:
    line = f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=7"
    assert find_xid_problems("gpu-1", [warning(line)], pod_created=None) == ()
    assert number not in XIDS


@pytest.mark.parametrize(
    "event",
    [
        warning("the disk is full", "DiskPressure"),
        warning("XIDErrors were found", "XIDError"),  # which, nobody says
        warning(DRIVER, type="Normal"),
        warning(DRIVER, involvedObject={"kind": "Node", "name": "gpu-2"}),
        warning(DRIVER, involvedObject={"kind": "Pod", "name": "gpu-1"}),
        warning(DRIVER, involvedObject=None),
        {},
    ],
)
def test_events_that_tell_no_xid_of_the_node_explain_nothing(event: dict[str, Any]) -> None:
    assert find_xid_problems("gpu-1", [event], pod_created=None) == ()


def test_an_xid_counts_for_a_pod_that_was_there_or_came_right_after() -> None:
    told = datetime(2026, 11, 18, 5, tzinfo=UTC)
    events = [warning(DRIVER)]
    for created in (told - timedelta(hours=9), told + timedelta(minutes=9)):
        assert find_xid_problems("gpu-1", events, pod_created=created)
    long_after = told + timedelta(hours=1)
    assert find_xid_problems("gpu-1", events, pod_created=long_after) == ()
    again = {"series": {"count": 2, "lastObservedTime": "2026-11-18T05:55:00.000000Z"}}
    modern = warning(DRIVER, firstTimestamp=None, lastTimestamp=None, eventTime=SINCE, **again)
    (found,) = find_xid_problems("gpu-1", [modern], pod_created=long_after)
    assert found.since == told


def test_an_xid_that_is_told_twice_is_one_since_the_first_time() -> None:
    later = warning(DRIVER, firstTimestamp="2026-11-18T06:00:00Z")
    other = warning(DRIVER.replace("3b", "3c"))
    found = find_xid_problems("gpu-1", [later, warning(DRIVER), other], pod_created=None)
    assert [str(each.since) for each in found] == ["2026-11-18 05:00:00+00:00"] * 2
