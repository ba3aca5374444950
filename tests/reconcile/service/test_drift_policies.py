"""What each policy does about drift of a child, and what it never holds up."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest
from tests.support.operator_world import NAME, OperatorWorld

from holdfast.core.cost import Cost, CostKind, DeviceNeed, describe_cost
from holdfast.core.errors import InvalidSpec, TargetUnavailable

POLICIES = ["reconcile", "fail", "dry_run", "warn", "ignore"]
LEAVING = ["fail", "dry_run", "warn", "ignore"]


def image(world: OperatorWorld) -> str:
    found: str = world.primary()["spec"]["template"]["spec"]["containers"][0]["image"]
    return found


def drifted(world: OperatorWorld, policy: str, **change: Any) -> None:
    """A service at rest, edited by hand."""
    world.declare({"onDrift": policy, **change})
    world.converge()
    world.set_image("evil:1")
    world.client.calls.clear()


@pytest.mark.parametrize("policy", LEAVING)
def test_drift_is_left_where_the_policy_says_so(world: OperatorWorld, policy: str) -> None:
    drifted(world, policy)
    world.reconcile()
    assert image(world) == "evil:1"
    assert not world.client.of("Deployment")


def test_drift_that_is_put_back_at_once_is_told_with_what_that_cost(world: OperatorWorld) -> None:
    """Asked after the write: no heal waits for it, and what is free is not counted then."""
    drifted(world, "reconcile", resources={"gpu": 1})
    notes = world.reconcile().notes
    (healed,) = [note for note in notes if note.reason == "DriftHealed"]
    back = f"Putting Deployment {NAME}-primary back:"
    assert f"It was put back. {back} " in healed.message
    assert "cold start unknown" in healed.message
    assert back in world.says("DriftDetected")
    assert "cost unknown" not in healed.message
    reads = [call for call in world.client.calls if "Node" in str(call)]
    assert reads == []


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_absent_is_created_under_every_policy(world: OperatorWorld, policy: str) -> None:
    world.declare({"onDrift": policy})
    world.converge()
    world.delete("Service", f"{NAME}-svc")
    world.reconcile()
    assert world.find("Service", f"{NAME}-svc")


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_declared_anew_lands_under_every_policy(world: OperatorWorld, policy: str) -> None:
    world.declare({"onDrift": policy})
    world.converge()
    world.declare({"onDrift": policy, "replicas": 4})
    world.reconcile()
    assert world.primary()["spec"]["replicas"] == 4


@pytest.mark.parametrize("policy", ["warn", "ignore"])
def test_what_is_declared_anew_lands_beside_drift_that_is_left(
    world: OperatorWorld, policy: str
) -> None:
    drifted(world, policy)
    world.declare({"onDrift": policy, "replicas": 4})
    world.reconcile()
    assert world.primary()["spec"]["replicas"] == 4
    assert image(world) == "evil:1"


def test_fail_says_so_once_and_is_not_ready(world: OperatorWorld) -> None:
    drifted(world, "fail")
    (note,) = world.reconcile().notes[:1]
    reasons = [each.reason for each in world.reconcile().notes]
    assert "DriftDetected" not in reasons
    assert note.warning
    assert world.condition("Ready") == ("False", "Drifted")
    assert world.condition("DriftDetected") == ("True", "Refused")
    assert "kubectl-edit" in world.says("DriftDetected")


def test_fail_is_ready_again_once_the_drift_is_gone(world: OperatorWorld) -> None:
    world.declare({"onDrift": "fail"})
    world.converge()
    before = image(world)
    world.set_image("evil:1")
    world.converge()
    world.set_image(before)
    world.converge()
    assert world.condition("Ready") == ("True", "Serving")
    assert world.condition("DriftDetected") == ("False", "None")


def test_a_dry_run_writes_down_what_it_would_do(world: OperatorWorld) -> None:
    drifted(world, "dry_run")
    world.reconcile()
    status = world.service().status
    assert status is not None
    line, cost = status.plan or ()
    assert cost == (
        f"Deployment {NAME}-primary: cost: rolling restart of 2 pods; cold start unknown"
    )
    assert line.startswith(f"Deployment {NAME}-primary: spec.template.spec.containers[name=server]")
    assert "evil:1 → vllm/vllm-openai" in line
    assert "by kubectl-edit" in line


def test_a_plan_has_what_drifted_and_what_waits_for_it_word_for_word(world: OperatorWorld) -> None:
    drifted(world, "dry_run", env={"A": "1"})
    world.declare({"onDrift": "dry_run", "env": {"A": "9"}})
    world.reconcile()
    status = world.service().status
    assert status is not None
    container = f"Deployment {NAME}-primary: spec.template.spec.containers[name=server]"
    assert status.plan == (
        f"{container}.image: evil:1 → vllm/vllm-openai:v0.32.0 (by kubectl-edit)",
        f"{container}.env[name=A].value: 1 → 9 (declared anew)",
        f"Deployment {NAME}-primary: cost: rolling restart of 2 pods; cold start unknown",
    )


@pytest.mark.parametrize("policy", ["warn", "fail", "dry_run"])
def test_who_has_to_decide_about_drift_is_told_what_putting_it_back_costs(
    world: OperatorWorld, policy: str
) -> None:
    drifted(world, policy)
    world.reconcile()
    assert world.says("DriftDetected").endswith(
        f"Putting Deployment {NAME}-primary back: rolling restart of 2 pods; cold start unknown."
    )
    status = world.service().status
    assert status is not None
    assert status.drift_cost == Cost(kind=CostKind.ROLLING, pods=2)
    for _ in range(3):
        world.reconcile()
        assert world.client.writes == [], "what a status says of a cost is written once"


def test_a_cost_that_a_status_has_is_gone_with_the_drift(world: OperatorWorld) -> None:
    drifted(world, "warn")
    before = world.reconcile().status
    world.declare({"onDrift": "ignore"})
    world.reconcile()
    ignored = world.service().status
    world.declare({"onDrift": "warn"})
    again = world.reconcile().status
    refused = world.run(
        world.reconciler.refuse(world.service(), InvalidSpec("It cannot be served.", problems=[]))
    ).status
    world.declare({"onDrift": "reconcile"})
    world.converge()
    after = world.service().status
    found = [each and each.drift_cost for each in (before, ignored, again, refused, after)]
    cost = Cost(kind=CostKind.ROLLING, pods=2)
    assert found == [cost, None, cost, None, None]


def test_what_a_deleted_child_of_a_suspended_service_costs_is_unknown_and_not_none(
    world: OperatorWorld,
) -> None:
    world.declare()
    world.converge()
    world.declare({"suspend": {"reason": "a migration"}})
    world.reconcile()
    world.delete("Deployment", f"{NAME}-primary")
    world.reconcile()
    assert world.condition("DriftDetected")[0] == "True"
    status = world.service().status
    assert status is not None
    assert status.drift_cost is None


GPU = "nvidia.com/gpu"
ONE_GPU = {"replicas": 1, "resources": {"gpu": 1}, "rollout": {"maxSurge": 1}}


def full_node(world: OperatorWorld) -> None:
    """One node with one GPU, which the only pod has."""
    world.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    status: Any = {
        "allocatable": {GPU: "1"}, "conditions": [{"type": "Ready", "status": "True"}]
    }  # fmt: skip
    world.edit("Node", "n1", {"op": "add", "path": "/status", "value": status}, at="status")
    container = {"name": "server", "image": "x", "resources": {"limits": {GPU: "1"}}}
    spec = {"nodeName": "n1", "containers": [container]}
    world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})


DEADLOCK = (
    "will not finish on the nodes there are: needs 1 nvidia.com/gpu beside the running ones,"
    " 0 free; rolling restart of 1 pod; cold start unknown"
)


def test_a_rollout_that_finds_no_second_gpu_is_foretold_in_the_plan(world: OperatorWorld) -> None:
    world.declare({**ONE_GPU, "onDrift": "dry_run"})
    world.converge()
    full_node(world)
    world.set_image()
    status = world.reconcile().status
    assert (status.plan or ())[-1] == f"Deployment {NAME}-primary: cost: {DEADLOCK}"
    need = DeviceNeed(resource=GPU, needed=1, free=0)
    assert world.service().status == status, "as it is read back"
    assert status.drift_cost == Cost(kind=CostKind.ROLLING, pods=1, devices=(need,), blocked=True)
    assert describe_cost(status.drift_cost) == DEADLOCK


def test_a_rollout_that_finds_no_second_gpu_is_foretold_when_it_is_begun(
    world: OperatorWorld,
) -> None:
    world.declare(ONE_GPU)
    world.converge()
    full_node(world)
    world.declare({**ONE_GPU, "env": {"A": "2"}})
    notes = [note.message for note in world.reconcile().notes if note.reason == "Updated"]
    assert notes == [f"Deployment {NAME}-primary was made as declared. Its rollout {DEADLOCK}."]


@pytest.mark.parametrize("change", [{"replicas": 4}, {"env": {"A": "9"}}, {"env": {}}])
@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_called_up_to_date_before_it_is_written(
    world: OperatorWorld, policy: str, change: dict[str, Any]
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
    assert (world.condition("UpToDate")[0] == "True") == (any(written) and policy != "warn")
    assert (world.condition("Ready")[0] == "True") == any(written)


def environment(spec: dict[str, Any]) -> dict[str, Any]:
    (container,) = spec["template"]["spec"]["containers"]
    return {each["name"]: each.get("value") for each in container.get("env", ())}


def test_a_plan_hides_secrets(world: OperatorWorld) -> None:
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


def test_a_warning_comes_once(world: OperatorWorld) -> None:
    drifted(world, "warn")
    assert "DriftLeft" in [note.reason for note in world.reconcile().notes]
    assert world.reconcile().notes == ()
    assert world.client.writes == []
    assert world.condition("DriftDetected") == ("True", "Left")
    assert world.condition("Ready")[0] == "False", "the pods of the edited template are not ready"
    world.settle()
    world.converge()
    assert world.condition("Ready") == ("True", "Serving")


def test_ignored_drift_makes_no_noise(world: OperatorWorld) -> None:
    drifted(world, "ignore")
    world.settle()
    result = world.reconcile()
    assert not [note for note in result.notes if "Drift" in note.reason]
    assert world.condition("DriftDetected") == ("False", "Ignored")
    assert world.condition("Ready") == ("True", "Serving")


def test_who_did_it_is_on_record_before_it_is_healed(world: OperatorWorld) -> None:
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


def test_a_note_of_a_pass_that_failed_comes_with_the_next_one(world: OperatorWorld) -> None:
    drifted(world, "reconcile")

    def failing(call: Any) -> TargetUnavailable | None:
        budget = (call.verb, call.kind) == ("get", "PodDisruptionBudget")
        return TargetUnavailable("No answer.") if budget else None

    world.client.failing = failing
    with pytest.raises(TargetUnavailable):
        world.reconcile()
    world.client.failing = lambda call: None
    assert "DriftHealed" in [note.reason for note in world.reconcile().notes]


def test_a_container_that_was_added_is_taken_away(world: OperatorWorld) -> None:
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


def test_a_lost_owner_reference_comes_back(world: OperatorWorld) -> None:
    service = world.declare()
    world.converge()
    world.edit(
        "Deployment", f"{NAME}-primary", {"op": "remove", "path": "/metadata/ownerReferences"}
    )
    world.reconcile()
    (owner,) = world.primary()["metadata"]["ownerReferences"]
    assert owner["uid"] == service.uid


class Mirror:
    """An admission policy that sends every image to a mirror, while it is there."""

    def __init__(self, world: OperatorWorld) -> None:
        self._inner, self._client = world.client.client.apply, world.client.client
        self._client.apply = self._apply  # type: ignore[method-assign]  # a server of its own mind

    def remove(self) -> None:
        self._client.apply = self._inner  # type: ignore[method-assign]  # as it was

    async def _apply(self, item: Any, **more: Any) -> Any:  # Any: objects as they are on the wire
        item = copy.deepcopy(item)
        if item["kind"] == "Deployment" and "template" in item.get("spec", {}):
            container = item["spec"]["template"]["spec"]["containers"][0]
            container["image"] = f"mirror/{container['image'].removeprefix('mirror/')}"
        return await self._inner(item, **more)


def test_a_heal_that_admission_rewrote_is_said_to_be_none(world: OperatorWorld) -> None:
    world.declare({})
    world.converge()
    declared = image(world)
    mirror = Mirror(world)
    world.set_image("evil:1")
    healed = world.reconcile()
    assert image(world) == f"mirror/{declared}"
    reasons = [each.reason for each in healed.notes]
    assert "AlteredByAdmission" in reasons and "DriftHealed" not in reasons
    for _ in range(3):
        result = world.reconcile()
        assert world.condition("UpToDate") == ("False", "AlteredByAdmission")
        assert world.condition("DriftDetected") == ("True", "AlteredByAdmission")
        assert result.status.drift == "1 field"
        assert not world.client.of("Deployment"), "what cannot be healed is not written again"
    for word in ("admission", "image", "cannot be put back"):
        assert word in world.says("UpToDate")
    assert result.requeue_after is not None and result.requeue_after <= 15

    mirror.remove()
    world.clock.time += timedelta(seconds=result.requeue_after)
    assert "DriftHealed" in [each.reason for each in world.reconcile().notes]
    assert image(world) == declared
    world.converge()
    assert world.condition("UpToDate") == ("True", "AsDeclared")
    assert world.condition("DriftDetected") == ("False", "Healed")


def test_a_new_service_whose_image_admission_rewrites_is_not_as_declared(
    world: OperatorWorld,
) -> None:
    Mirror(world)
    world.declare({})
    world.reconcile()
    assert world.condition("UpToDate") == ("False", "AlteredByAdmission")
    world.settle()
    world.reconcile()
    assert world.condition("UpToDate") == ("False", "AlteredByAdmission")


def fought(world: OperatorWorld, seconds: float, every: float = 1.0, image: str = "evil:1") -> int:
    """Let somebody write the image every so often; give how often it was put back."""
    heals, elapsed = 0, 0.0
    while elapsed < seconds:
        if world.primary()["spec"]["template"]["spec"]["containers"][0]["image"] != image:
            world.set_image(image)
        result = world.reconcile()
        heals += sum(note.reason == "DriftHealed" for note in result.notes)
        world.clock.time += timedelta(seconds=every)
        elapsed += every
    return heals


def test_who_changes_a_field_after_each_heal_is_fought_less_and_less(world: OperatorWorld) -> None:
    """A writer every second had seventeen ReplicaSets made in fifteen seconds."""
    world.declare()
    world.converge()
    assert fought(world, 15) == 3
    assert world.condition("DriftDetected") == ("True", "Fighting")
    assert world.condition("UpToDate") == ("False", "Fighting")
    said = world.says("DriftDetected")
    assert "kubectl-edit and holdfast-operator keep changing" in said
    assert "containers[name=server].image" in said
    assert fought(world, 600) <= 6
    status = world.service().status
    assert status is not None
    assert status.drift == "1 field"


def test_a_fight_is_told_once_a_round(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    fought(world, 4)
    world.set_image("evil:2")
    told = [note.reason for note in world.reconcile().notes]
    assert "Fighting" not in told, "it was told when the back-off began"


def test_when_the_other_stops_the_field_is_put_back_and_stays(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    before = world.primary()["spec"]["template"]["spec"]["containers"][0]["image"]
    fought(world, 5)
    result = world.reconcile()
    assert result.requeue_after is not None
    assert 0 < result.requeue_after <= 20
    world.clock.time += timedelta(seconds=result.requeue_after)
    assert "DriftHealed" in [note.reason for note in world.reconcile().notes]
    assert world.primary()["spec"]["template"]["spec"]["containers"][0]["image"] == before
    world.converge()
    assert world.condition("DriftDetected") == ("False", "Healed")
    assert world.condition("UpToDate") == ("True", "AsDeclared")
    world.clock.time += timedelta(minutes=11)
    world.set_image("evil:3")
    assert "DriftHealed" in [note.reason for note in world.reconcile().notes], "counted anew"


def test_other_drift_beside_a_fight_is_put_back_at_once(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    fought(world, 5)
    world.scale(9, by="kubectl")
    told = [note for note in world.reconcile().notes if note.reason == "DriftHealed"]
    assert world.primary()["spec"]["replicas"] == 2
    assert "spec.replicas" in told[0].message
    assert "image" not in told[0].message, "which was not put back"
    assert world.primary()["spec"]["template"]["spec"]["containers"][0]["image"] == "evil:1"


def test_another_writer_of_the_same_field_is_no_round_of_a_fight(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    for tool in ("kubectl-edit", "kubectl-patch", "helm", "k9s", "lens"):
        operation: Any = {
            "op": "replace",
            "path": "/spec/template/spec/containers/0/image",
            "value": "evil:1",
        }
        world.edit("Deployment", f"{NAME}-primary", operation, by=tool)
        assert "DriftHealed" in [note.reason for note in world.reconcile().notes]


def test_a_new_declaration_lands_beside_a_fight(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    fought(world, 5)
    world.declare({"replicas": 5})
    world.reconcile()
    assert world.primary()["spec"]["replicas"] == 5
    assert world.primary()["spec"]["template"]["spec"]["containers"][0]["image"] == "evil:1"


@pytest.mark.parametrize("policy", ["reconcile", "warn", "fail", "dry_run", "ignore"])
def test_a_child_that_somebody_deleted_is_told_as_such(world: OperatorWorld, policy: str) -> None:
    world.declare({"onDrift": policy})
    world.converge()
    world.delete("PodDisruptionBudget", f"{NAME}-pdb")
    notes = world.reconcile().notes
    assert [note.reason for note in notes] == ["DriftHealed"]
    assert notes[0].warning
    said = (
        f"Somebody deleted PodDisruptionBudget {NAME}-pdb. It was created again."
        f" Putting PodDisruptionBudget {NAME}-pdb back: restarts nothing."
    )
    assert notes[0].message == said == world.says("DriftDetected")


def test_a_deployment_deleted_while_no_operator_ran_is_told_as_such(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    world.restart()
    world.delete("Deployment", f"{NAME}-primary")
    assert "DriftHealed" in [note.reason for note in world.reconcile().notes]


def test_who_deletes_a_child_each_time_is_given_way_to_for_a_while(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    created = 0
    for _ in range(15):
        if world.find("PodDisruptionBudget", f"{NAME}-pdb"):
            world.delete("PodDisruptionBudget", f"{NAME}-pdb")
        created += sum(note.reason == "DriftHealed" for note in world.reconcile().notes)
        world.clock.time += timedelta(seconds=1)
    assert created == 3
    assert "deletes PodDisruptionBudget" in world.says("DriftDetected")
    result = world.reconcile()
    world.clock.time += timedelta(seconds=result.requeue_after or 0)
    world.reconcile()
    assert world.find("PodDisruptionBudget", f"{NAME}-pdb")


def sign_as_operator(world: OperatorWorld, image: str, applied: str | None) -> None:
    """Apply the primary by force under the operator's own name, with a digest that is made up."""
    item = copy.deepcopy(world.primary())
    for name in ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp"):
        item["metadata"].pop(name, None)
    item.pop("status", None)
    item["spec"]["template"]["spec"]["containers"][0]["image"] = image
    if applied is not None:
        item["metadata"]["annotations"]["holdfast.dev/applied"] = applied
    world.run(world.client.client.apply(item, manager="holdfast-operator", force=True))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("applied", ["sha256:made-up", None])
def test_an_edit_that_is_signed_as_the_operator_is_drift(
    world: OperatorWorld, applied: str | None, restarted: bool
) -> None:
    world.declare({"onDrift": "fail"})
    world.converge()
    sign_as_operator(world, "evil:1", applied)
    if restarted:
        world.restart()
    notes = [each.reason for each in world.reconcile().notes]
    assert image(world) == "evil:1", "fail writes nothing"
    assert world.condition("DriftDetected") == ("True", "Refused")
    assert "DriftDetected" in notes and "Updated" not in notes


@pytest.mark.parametrize("restarted", [False, True])
def test_a_read_that_failed_before_does_not_hide_an_edit_signed_as_the_operator(
    world: OperatorWorld, restarted: bool
) -> None:
    """What was not read was dropped from the record of what was applied, as if it were gone."""
    world.declare({"onDrift": "fail"})
    world.converge()
    world.client.failing = lambda call: (
        TargetUnavailable("gone") if (call.verb, call.kind) == ("get", "Deployment") else None
    )
    with pytest.raises(TargetUnavailable):
        world.reconcile()
    world.client.failing = lambda call: None
    sign_as_operator(world, "evil:1", "sha256:made-up")
    if restarted:
        world.restart()
    world.reconcile()
    assert image(world) == "evil:1", "fail writes nothing"
    assert world.condition("DriftDetected") == ("True", "Refused")


def test_an_edit_that_is_signed_as_the_operator_is_healed_and_told(world: OperatorWorld) -> None:
    world.declare({})
    world.converge()
    before = image(world)
    sign_as_operator(world, "evil:1", "sha256:made-up")
    notes = [each.reason for each in world.reconcile().notes]
    assert image(world) == before
    assert "DriftHealed" in notes and "Updated" not in notes


def test_the_record_of_what_was_applied_follows_what_is_declared(world: OperatorWorld) -> None:
    world.declare({"onDrift": "fail"})
    world.converge()
    first = world.service().status
    world.declare({"onDrift": "fail", "replicas": 4})
    world.restart()
    world.converge()
    second = world.service().status
    assert first is not None and second is not None
    assert first.applied and second.applied
    changed = {each.child for each in second.applied} - {
        each.child for each in second.applied if each in first.applied
    }
    assert f"Deployment/{NAME}-primary" in changed
    assert world.condition("DriftDetected") == ("False", "None")


@pytest.mark.parametrize("policy", ["warn", "dry_run"])
def test_drift_that_is_left_is_never_called_up_to_date(world: OperatorWorld, policy: str) -> None:
    drifted(world, policy)
    world.settle()
    world.converge()
    assert world.condition("UpToDate") == ("False", "Drifted")
    assert "image" in world.says("UpToDate")
    assert world.condition("Ready") == ("True", "Serving"), "that would be onDrift: fail"
    assert "1 field is not as declared." in world.says("Ready")


def test_ignored_drift_is_named_where_all_else_is_up_to_date(world: OperatorWorld) -> None:
    drifted(world, "ignore")
    world.settle()
    world.converge()
    assert world.condition("UpToDate") == ("True", "DriftIgnored")
    assert "image" in world.says("UpToDate")


def test_what_an_autoscaler_of_resources_wrote_is_named(world: OperatorWorld) -> None:
    world.declare()
    world.converge()
    path = "/spec/template/spec/containers/0/resources/requests/cpu"
    operation: Any = {"op": "replace", "path": path, "value": "3"}
    world.edit("Deployment", f"{NAME}-primary", operation, by="vpa-updater")
    world.settle()
    world.converge()
    container = world.primary()["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"]["cpu"] == "3"
    assert world.condition("UpToDate") == ("True", "Delegated")
    assert "vpa-updater sets" in world.says("UpToDate")
