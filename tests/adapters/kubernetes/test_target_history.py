"""Drifts that a cluster tells of a workload by the operator's status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast.adapters.kubernetes.target_history import open_drifts
from holdfast.adapters.kubernetes.target_objects import read_workload_object
from holdfast.core.cost import Cost, CostKind, DeviceNeed
from holdfast.core.drift import Cause, DriftKind
from holdfast.wire.ledger_v1 import drift_from_json, drift_to_json

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
LOST = {"pod": "chat-primary-x", "reason": "NodeLost", "node": "gpu-1", "condition": "Unreachable",
        "since": "2026-11-18T05:00:12Z", "message": "Kubelet stopped."}  # fmt: skip


def drifts(*hardware: dict[str, Any], **status: Any) -> Any:
    item = {
        "apiVersion": "holdfast.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "shop", "uid": "u", "resourceVersion": "1",
                     "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"modelRef": "m"},
        "status": {"ready": False, "replicas": 1, "message": "", "hardware": [*hardware],
                   **status},
    }  # fmt: skip
    return open_drifts(read_workload_object(item), NOW)


def test_a_replica_that_its_node_took_along_is_a_drift_with_the_cause_hardware() -> None:
    xid = {**LOST, "condition": "Xid 79", "since": "2026-11-18T04:59:00Z", "message": "off the bus"}
    (drift,) = drifts(LOST, xid)
    assert (drift.kinds, drift.resolved_at) == ((DriftKind.RESOURCE,), None)
    assert drift.first_seen == datetime(2026, 11, 18, 4, 59, tzinfo=UTC)
    (entry,) = drift.fields
    assert (entry.path, entry.desired, entry.live) == (
        "/replicas/chat-primary-x", "running", "NodeLost",
    )  # fmt: skip
    assert entry.cause is Cause.HARDWARE
    assert entry.evidence == (
        "node gpu-1 Unreachable since 2026-11-18T05:00:12Z (Kubelet stopped.); "
        "node gpu-1 Xid 79 since 2026-11-18T04:59:00Z (off the bus)"
    )


def test_the_drift_is_named_by_what_is_broken_whichever_pod_tries_next() -> None:
    (one,), (other,) = drifts(LOST), drifts({**LOST, "pod": "chat-primary-y"})
    assert one.id == other.id
    (elsewhere,) = drifts({**LOST, "node": "gpu-2"})
    assert elsewhere.id != one.id
    assert drifts() == []


def test_a_pod_that_the_kubelet_turned_away_has_no_node_to_name() -> None:
    (drift,) = drifts({"pod": "p", "reason": "UnexpectedAdmissionError", "message": "no healthy"})
    assert drift.fields[0].evidence == "no healthy"
    assert drift.first_seen == NOW


LEFT = {"type": "DriftDetected", "status": "True", "reason": "Left", "message": "kubectl did it."}
COST = {"kind": "rolling", "pods": 2, "coldStart": 41.5, "blocked": True,
        "devices": [{"resource": "nvidia.com/gpu", "needed": 1, "free": 0}]}  # fmt: skip


def test_what_the_operator_says_that_drift_of_its_objects_costs_is_read_back() -> None:
    (drift,) = drifts(conditions=[LEFT], driftCost=COST)
    need = DeviceNeed(resource="nvidia.com/gpu", needed=1, free=0)
    assert drift.cost == Cost(
        kind=CostKind.ROLLING, pods=2, cold_start=41.5, blocked=True, devices=(need,)
    )
    assert drift_to_json(drift).cost is not None
    assert drift_from_json(drift_to_json(drift)) == drift


def test_a_cost_that_no_operator_told_is_unknown() -> None:
    (drift,) = drifts(conditions=[LEFT])
    assert drift.cost is None
    (lost,) = drifts(LOST, driftCost=COST)
    assert lost.cost is None, "no write puts hardware back"
