"""What each policy does about drift of a child, and what it never holds up."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.service_world import NAME, World

from holdfast.core.errors import TargetUnavailable

POLICIES = ["reconcile", "fail", "dry_run", "warn", "ignore"]
LEAVING = ["fail", "dry_run", "warn", "ignore"]


def image(world: World) -> str:
    found: str = world.primary()["spec"]["template"]["spec"]["containers"][0]["image"]
    return found


def drifted(world: World, policy: str, **change: Any) -> None:
    """A service at rest, edited by hand."""
    world.declare({"onDrift": policy, **change})
    world.converge()
    world.set_image("evil:1")
    world.client.calls.clear()


@pytest.mark.parametrize("policy", LEAVING)
def test_drift_is_left_where_the_policy_says_so(world: World, policy: str) -> None:
    drifted(world, policy)
    world.reconcile()
    assert image(world) == "evil:1"
    assert not world.client.of("Deployment")


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_absent_is_created_under_every_policy(world: World, policy: str) -> None:
    world.declare({"onDrift": policy})
    world.converge()
    world.delete("Service", f"{NAME}-svc")
    world.reconcile()
    assert world.find("Service", f"{NAME}-svc")


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_declared_anew_lands_under_every_policy(world: World, policy: str) -> None:
    world.declare({"onDrift": policy})
    world.converge()
    world.declare({"onDrift": policy, "replicas": 4})
    world.reconcile()
    assert world.primary()["spec"]["replicas"] == 4


@pytest.mark.parametrize("policy", ["warn", "ignore"])
def test_what_is_declared_anew_lands_beside_drift_that_is_left(world: World, policy: str) -> None:
    drifted(world, policy)
    world.declare({"onDrift": policy, "replicas": 4})
    world.reconcile()
    assert world.primary()["spec"]["replicas"] == 4
    assert image(world) == "evil:1"


def test_fail_says_so_once_and_is_not_ready(world: World) -> None:
    drifted(world, "fail")
    (note,) = world.reconcile().notes[:1]
    reasons = [each.reason for each in world.reconcile().notes]
    assert "DriftDetected" not in reasons
    assert note.warning
    assert world.condition("Ready") == ("False", "Drifted")
    assert world.condition("DriftDetected") == ("True", "Refused")
    assert "kubectl-edit" in world.says("DriftDetected")


def test_fail_is_ready_again_once_the_drift_is_gone(world: World) -> None:
    world.declare({"onDrift": "fail"})
    world.converge()
    before = image(world)
    world.set_image("evil:1")
    world.converge()
    world.set_image(before)
    world.converge()
    assert world.condition("Ready") == ("True", "Serving")
    assert world.condition("DriftDetected") == ("False", "None")


def test_a_dry_run_writes_down_what_it_would_do(world: World) -> None:
    drifted(world, "dry_run")
    world.reconcile()
    status = world.service().status
    assert status is not None
    (line,) = status.plan or ()
    assert line.startswith(f"Deployment {NAME}-primary: spec.template.spec.containers[name=server]")
    assert "evil:1 → vllm/vllm-openai" in line
    assert "by kubectl-edit" in line


@pytest.mark.parametrize("change", [{"replicas": 4}, {"env": {"A": "9"}}, {"env": {}}])
@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_called_up_to_date_before_it_is_written(
    world: World, policy: str, change: dict[str, Any]
) -> None:
    """Whatever a policy does about drift, a change that waits for it is no success."""
    first = {"onDrift": policy, "env": {"A": "1"}}
    drifted(world, policy, env={"A": "1"})
    before = world.primary()["spec"]
    world.declare({**first, **change})
    world.converge()
    now = world.primary()["spec"]
    written = [
        now["replicas"] != before["replicas"],
        environment(now).get("A") != environment(before).get("A"),
    ]
    assert (world.condition("UpToDate")[0] == "True") == any(written)
    assert (world.condition("Ready")[0] == "True") == any(written)


def environment(spec: dict[str, Any]) -> dict[str, Any]:
    (container,) = spec["template"]["spec"]["containers"]
    return {each["name"]: each.get("value") for each in container.get("env", ())}


def test_a_plan_hides_secrets(world: World) -> None:
    world.declare({"onDrift": "dry_run", "env": {"API_KEY_FILE": "/k"}})
    world.converge()
    added: Any = {
        "op": "add",
        "path": "/spec/template/spec/containers/0/env/-",
        "value": {"name": "HF_TOKEN", "value": "hf_abcdefghijklmnopqrstuvwxyz"},
    }
    world.edit("Deployment", f"{NAME}-primary", added)
    world.reconcile()
    status = world.service().status
    assert status is not None
    assert status.plan
    assert "hf_abc" not in str(status)


def test_a_warning_comes_once(world: World) -> None:
    drifted(world, "warn")
    assert "DriftLeft" in [note.reason for note in world.reconcile().notes]
    assert world.reconcile().notes == ()
    assert world.client.writes == []
    assert world.condition("DriftDetected") == ("True", "Left")
    assert world.condition("Ready")[0] == "False", "the pods of the edited template are not ready"
    world.settle()
    world.converge()
    assert world.condition("Ready") == ("True", "Serving")


def test_ignored_drift_makes_no_noise(world: World) -> None:
    drifted(world, "ignore")
    world.settle()
    result = world.reconcile()
    assert not [note for note in result.notes if "Drift" in note.reason]
    assert world.condition("DriftDetected") == ("False", "Ignored")
    assert world.condition("Ready") == ("True", "Serving")


def test_who_did_it_is_on_record_before_it_is_healed(world: World) -> None:
    """Healing erases the trace, so a crash right after it must not lose the name."""
    drifted(world, "reconcile")

    def failing(call: Any) -> TargetUnavailable | None:
        deployment = (call.verb, call.kind) == ("apply", "Deployment")
        return TargetUnavailable("No answer.") if deployment else None

    world.client.failing = failing
    with pytest.raises(TargetUnavailable):
        world.reconcile()
    assert world.condition("DriftDetected") == ("True", "Healing")
    assert "kubectl-edit" in world.says("DriftDetected")
    world.client.failing = lambda call: None
    world.converge()
    assert world.condition("DriftDetected") == ("False", "Healed")


def test_a_note_of_a_pass_that_failed_comes_with_the_next_one(world: World) -> None:
    drifted(world, "reconcile")

    def failing(call: Any) -> TargetUnavailable | None:
        budget = (call.verb, call.kind) == ("get", "PodDisruptionBudget")
        return TargetUnavailable("No answer.") if budget else None

    world.client.failing = failing
    with pytest.raises(TargetUnavailable):
        world.reconcile()
    world.client.failing = lambda call: None
    assert "DriftHealed" in [note.reason for note in world.reconcile().notes]


def test_a_container_that_was_added_is_taken_away(world: World) -> None:
    world.declare()
    world.converge()
    added: Any = {
        "op": "add",
        "path": "/spec/template/spec/containers/-",
        "value": {"name": "miner", "image": "evil:1"},
    }
    world.edit("Deployment", f"{NAME}-primary", added, by="kubectl-patch")
    result = world.reconcile()
    assert len(world.primary()["spec"]["template"]["spec"]["containers"]) == 1
    assert "kubectl-patch" in str(result.notes)


def test_a_lost_owner_reference_comes_back(world: World) -> None:
    service = world.declare()
    world.converge()
    world.edit(
        "Deployment", f"{NAME}-primary", {"op": "remove", "path": "/metadata/ownerReferences"}
    )
    world.reconcile()
    (owner,) = world.primary()["metadata"]["ownerReferences"]
    assert owner["uid"] == service.uid
