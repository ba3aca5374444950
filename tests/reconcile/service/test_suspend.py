"""A suspended service: nothing is written to it, everything is told, and it resumes by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.inference_services import canary
from tests.support.operator_world import NAME, OperatorWorld

from holdfast.core.errors import TargetUnavailable

POLICIES = ["reconcile", "fail", "dry_run", "warn", "ignore"]


def until(world: OperatorWorld, **later: float) -> str:
    return f"{world.clock.time + timedelta(**later):%Y-%m-%dT%H:%M:%SZ}"


def suspended(world: OperatorWorld, **change: Any) -> None:
    """A service at rest, then suspended without an end."""
    world.declare(change)
    world.converge()
    world.declare({"suspend": {"reason": "INC-1432"}, **change})
    world.reconcile()


def children_written(world: OperatorWorld) -> list[Any]:
    return [call for call in world.client.writes if call.subresource != "status"]


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_written_to_a_suspended_service(world: OperatorWorld, policy: str) -> None:
    suspended(world, onDrift=policy)
    world.set_image("evil:1")
    world.delete("Service", f"{NAME}-svc")
    world.declare({"suspend": {"reason": "INC-1432"}, "onDrift": policy, "replicas": 4})
    for _ in range(3):
        world.reconcile()
        assert children_written(world) == []
    assert world.primary()["spec"]["replicas"] == 2
    assert world.find("Service", f"{NAME}-svc") is None


def test_drift_is_found_and_told_while_suspended_and_the_service_stays_ready(
    world: OperatorWorld,
) -> None:
    suspended(world)
    world.set_image("evil:1")
    result = world.reconcile()
    assert world.condition("DriftDetected") == ("True", "Left")
    assert "kubectl-edit changed" in world.says("DriftDetected")
    assert "suspended" in world.says("DriftDetected")
    assert world.condition("UpToDate") == ("False", "Drifted")
    assert "DriftLeft" in [note.reason for note in result.notes]
    world.settle()
    world.reconcile()
    assert world.condition("Ready") == ("True", "Serving")
    assert "1 field is not as declared" in world.says("Ready")
    status = world.service().status
    assert status is not None
    assert status.drift == "1 field"


def test_a_deleted_child_of_a_suspended_service_is_missed_and_not_made(
    world: OperatorWorld,
) -> None:
    suspended(world, onDrift="ignore")
    world.delete("Deployment", f"{NAME}-primary")
    world.reconcile()
    assert world.condition("DriftDetected") == ("True", "Left")
    assert world.condition("Ready")[0] == "False"
    assert world.condition("Available") == ("False", "NoReplicaReady")


def test_what_is_declared_while_suspended_waits_and_is_said_to(world: OperatorWorld) -> None:
    suspended(world)
    world.declare({"suspend": {"reason": "INC-1432"}, "env": {"A": "1"}})
    world.reconcile()
    assert world.condition("UpToDate") == ("False", "Suspended")
    assert world.condition("Ready") == ("False", "Suspended")
    assert world.condition("Available") == ("True", "Serving")
    assert "Deployment my-llama-primary waits" in world.says("Ready")
    world.declare({"env": {"A": "1"}, "suspend": None})
    world.converge()
    assert world.condition("Ready") == ("True", "Serving")


def test_what_is_no_longer_declared_stays_while_suspended(world: OperatorWorld) -> None:
    bounds = {"minReplicas": 2, "maxReplicas": 5}
    suspended(world, **bounds)
    world.declare({"suspend": {"reason": "INC-1432"}})
    world.reconcile()
    assert world.find("HorizontalPodAutoscaler", f"{NAME}-hpa")
    assert "waits to be deleted" in world.says("UpToDate")
    world.declare({"suspend": None})
    world.converge()
    assert world.find("HorizontalPodAutoscaler", f"{NAME}-hpa") is None


def test_a_new_service_that_is_suspended_gets_no_objects(world: OperatorWorld) -> None:
    world.declare({"suspend": {"reason": "not yet"}})
    result = world.reconcile()
    assert children_written(world) == []
    assert world.condition("Suspended") == ("True", "Suspended")
    assert world.condition("Ready")[0] == "False"
    assert [note.reason for note in result.notes] == ["Suspended"]


def test_its_begin_and_its_end_are_told_once_each(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    world.declare({"suspend": {"reason": "INC-1432", "until": until(world, minutes=10)}})
    begun = world.reconcile()
    (note,) = begun.notes
    assert note.reason == "Suspended"
    assert "INC-1432" in note.message
    assert begun.requeue_after == pytest.approx(600)
    assert world.reconcile().notes == ()
    world.clock.time += timedelta(seconds=601)
    ended = world.reconcile()
    (note,) = ended.notes
    assert note.reason == "Resumed"
    assert "until has passed" in note.message
    assert world.condition("Suspended") == ("False", "Ended")
    assert world.reconcile().notes == ()


def test_it_resumes_by_itself_and_puts_back_what_was_left(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    world.declare({"suspend": {"reason": "INC-1432", "until": until(world, minutes=10)}})
    world.reconcile()
    world.set_image("evil:1")
    result = world.reconcile()
    assert result.requeue_after is not None
    world.clock.time += timedelta(seconds=result.requeue_after)
    result = world.reconcile()
    assert [note.reason for note in result.notes] == ["DriftHealed", "Resumed"]
    assert world.condition("DriftDetected") == ("False", "Healed")


def test_another_reason_or_end_is_told_again(world: OperatorWorld) -> None:
    suspended(world)
    world.declare({"suspend": {"reason": "INC-1433"}})
    (note,) = world.reconcile().notes
    assert (note.reason, "INC-1433" in note.message) == ("Suspended", True)


def test_taking_it_out_is_told_also_by_a_process_that_has_just_begun(world: OperatorWorld) -> None:
    suspended(world)
    world.declare({"suspend": None})
    world.restart()
    (note,) = world.reconcile().notes
    assert note.reason == "Resumed"
    assert "taken out" in note.message
    assert not world.has_condition("Suspended")


def test_an_end_that_has_passed_suspends_nothing_and_is_said_to_have(world: OperatorWorld) -> None:
    world.declare({"suspend": {"reason": "INC-1432", "until": "2020-01-01T00:00:00Z"}})
    world.converge()
    assert world.condition("Ready") == ("True", "Serving")
    assert world.condition("Suspended") == ("False", "Ended")
    assert "2020-01-01T00:00:00Z" in world.says("Suspended")


def test_a_suspended_service_can_be_deleted(world: OperatorWorld) -> None:
    suspended(world)
    assert world.run(world.reconciler.delete(world.service()))
    assert world.find("Deployment", f"{NAME}-primary") is None
    result = world.run(world.reconciler.reconcile(replace(world.service(), deleting=True)))
    assert result.requeue_after is None


def test_a_canary_stays_where_it_is(world: OperatorWorld) -> None:
    analysis = {"metric": "error_rate", "max": 1.0, "interval": "30s", "rounds": 1}
    declared = {"replicas": 4, **canary(weight=50, analysis=analysis)}
    world.declare(declared)
    for _ in range(6):
        world.reconcile()
        world.settle()
    before = world.service().status
    assert before is not None
    assert before.canary is not None
    world.declare({**declared, "suspend": {"reason": "INC-1432"}})
    for _ in range(4):
        world.clock.time += timedelta(minutes=5)
        world.reconcile()
        assert children_written(world) == []
    after = world.service().status
    assert after is not None
    assert after.canary == before.canary
    assert after.canary_weight == before.canary_weight
    world.set_image("evil:1", f"{NAME}-canary")
    world.reconcile()
    assert world.condition("DriftDetected") == ("True", "Left")


def test_what_cannot_be_read_is_unknown_while_suspended_too(world: OperatorWorld) -> None:
    suspended(world)
    world.client.failing = lambda call: (
        TargetUnavailable("gone") if (call.verb, call.kind) == ("get", "Deployment") else None
    )
    with pytest.raises(TargetUnavailable):
        world.reconcile()
    assert world.condition("Ready")[0] == "Unknown"
    assert world.condition("Suspended") == ("True", "Suspended")
