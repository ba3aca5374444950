"""What a writer puts on an object is a claim: verdicts rest on what was recorded."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route

from holdfast.core.gitops.application import AnnotationHolds, DriftSpec, Remediation, SyncSpec
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.objects import FIELD_MANAGER
from holdfast.core.gitops.records import ApprovalReason
from holdfast.reconcile.gitops.reconciler import ApplicationReconciler

A = config_ref("a")
MADE_UP = "sha256:" + "0" * 64


async def forge(
    world: GitopsWorld,
    data: dict[str, str],
    *,
    applied: str | None = MADE_UP,
    manager: str = FIELD_MANAGER,
) -> None:
    """Apply by force under our own name, with a digest of the writer's choice.

    None keeps the digest that is there, as a writer does who copies the whole object.
    """
    live: Any = await world.live("a")  # Any: objects as they come over the wire
    metadata = live["metadata"]
    notes = {**metadata["annotations"]}
    if applied is not None:
        notes["holdfast.dev/applied"] = applied
    item = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "a",
            "namespace": metadata["namespace"],
            "labels": metadata["labels"],
            "annotations": notes,
        },
        "data": data,
    }
    await world.kube.apply(item, manager=manager, force=True)


async def at_rest(world: GitopsWorld, **data: str) -> GitopsWorld:
    world.git.commit({"a.yaml": configmap("a", **data)})
    await world.sync()
    await world.reconcile()
    assert world.drifts == []
    return world


def detected(world: GitopsWorld) -> list[str]:
    return [each.type for each in world.notices if each.type == "dev.holdfast.drift.detected.v1"]


@pytest.mark.parametrize("applied", [MADE_UP, None, ""])
async def test_an_edit_that_is_signed_as_ours_is_drift_and_told(applied: str | None) -> None:
    world = await at_rest(GitopsWorld(), x="one", v="one")
    await forge(world, {"x": "evil", "v": "one"}, applied=applied)
    result = await world.reconcile()
    (drift,) = world.drifts
    assert "data.x" in [entry.path for entry in drift.entries]
    assert "data.v" not in [entry.path for entry in drift.entries]
    assert result.status.sync == "drifted"
    assert len(detected(world)) == 1
    assert (await world.data("a")) == {"x": "evil", "v": "one"}, "it is reported, not overwritten"


async def test_an_edit_that_is_signed_as_ours_is_healed_where_healing_is_asked_for() -> None:
    world = await at_rest(GitopsWorld(route(Remediation.SELF_HEAL)), x="one")
    await forge(world, {"x": "evil"})
    await world.reconcile()
    assert await world.data("a") == {"x": "one"}
    assert len(detected(world)) == 1
    await world.reconcile()
    assert world.drifts == []


async def test_fields_that_are_added_or_left_out_under_our_name_are_drift() -> None:
    world = await at_rest(GitopsWorld(), x="one", v="one")
    await forge(world, {"x": "one", "z": "added"}, applied=None)
    await world.reconcile()
    (drift,) = world.drifts
    assert {"data.v", "data.z"} <= {entry.path for entry in drift.entries}
    assert not [each for each in world.drifts if each.state is DriftState.RESOLVED]


async def test_an_edit_under_our_name_is_not_lost_in_a_commit_that_comes_at_the_same_time() -> None:
    world = await at_rest(GitopsWorld(), x="one", v="one", z="one")
    await forge(world, {"x": "evil", "v": "one", "z": "one"})
    world.git.commit({"a.yaml": configmap("a", x="two", v="two", z="one")})
    await world.fetch_and_reconcile()
    (drift,) = world.drifts
    assert "data.x" in [entry.path for entry in drift.entries]
    assert "data.v" not in [entry.path for entry in drift.entries]
    assert len(detected(world)) == 1
    assert await world.data("a") == {"x": "evil", "v": "two", "z": "one"}
    for _ in range(3):
        await world.fetch_and_reconcile()
    (drift,) = world.drifts
    assert [entry.path for entry in drift.entries] == ["data.x"]

    world.git.commit({"a.yaml": configmap("a", x="three", v="two", z="one")})
    await world.fetch_and_reconcile()
    assert (await world.data("a")) == {"x": "evil", "v": "two", "z": "one"}, (
        "what was left must not become what we applied"
    )
    await world.sync()
    assert (await world.data("a")) == {"x": "three", "v": "two", "z": "one"}
    await world.reconcile()
    assert world.drifts == []


async def test_a_key_that_git_drops_is_drift_when_somebody_changed_it_under_our_name() -> None:
    world = await at_rest(GitopsWorld(), x="one", v="one")
    await forge(world, {"x": "one", "v": "evil"}, applied=None)
    world.git.commit({"a.yaml": configmap("a", x="one")})
    await world.fetch_and_reconcile()
    assert [entry.path for drift in world.drifts for entry in drift.entries] == ["data.v"]
    assert await world.data("a") == {"x": "one", "v": "evil"}


async def test_what_git_declares_anew_lands_as_ever() -> None:
    world = await at_rest(GitopsWorld(), x="one", v="one", z="one")
    for number in ("two", "three"):
        world.git.commit({"a.yaml": configmap("a", x=number, v="one", w=number)})
        await world.fetch_and_reconcile()
        assert await world.data("a") == {"x": number, "v": "one", "w": number}
        assert world.drifts == []
    assert detected(world) == []


async def test_a_record_without_values_is_completed_as_soon_as_the_object_is_as_declared() -> None:
    """An inventory that an older version wrote."""
    world = await at_rest(GitopsWorld(), x="one")
    assert world.context is not None
    state = world.context.state
    state.put_applied(replace(state.inventory[A], values=""))
    await state.commit()
    await world.reconcile()
    assert state.inventory[A].values
    world.git.commit({"a.yaml": configmap("a", x="two")})
    await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "two"}


async def test_without_recorded_values_what_differs_is_told_and_not_trusted() -> None:
    world = await at_rest(GitopsWorld(), x="one")
    assert world.context is not None
    state = world.context.state
    state.put_applied(replace(state.inventory[A], values=""))
    await state.commit()
    await forge(world, {"x": "evil"}, applied=None)
    world.git.commit({"a.yaml": configmap("a", x="two")})
    await world.fetch_and_reconcile()
    (drift,) = world.drifts
    assert any("unknown" in entry.evidence for entry in drift.entries)
    assert await world.data("a") == {"x": "evil"}


async def test_a_record_that_a_crash_lost_is_made_again_from_what_is_there() -> None:
    world = await at_rest(GitopsWorld(), x="one")
    assert world.context is not None
    before = world.context.state.inventory[A]
    world.git.commit({"a.yaml": configmap("a", x="two")})
    await world.fetch_and_reconcile()
    world.context.state.put_applied(before)
    await world.context.state.commit()
    await world.reconcile()
    assert world.drifts == []
    world.git.commit({"a.yaml": configmap("a", x="three")})
    await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "three"} and world.drifts == []


async def test_what_is_signed_as_the_seed_of_replicas_is_drift_and_can_be_taken_away() -> None:
    world = await at_rest(GitopsWorld(route(Remediation.SELF_HEAL)), x="one")
    live: Any = await world.live("a")
    item = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": live["metadata"]["namespace"]},
        "data": {"z": "added"},
    }
    await world.kube.apply(item, manager="holdfast-replicas", force=True)
    await world.reconcile()
    assert await world.data("a") == {"x": "one"}


MARKS: list[dict[str, dict[str, str]]] = [
    {"annotations": {"meta.helm.sh/release-name": "theirs"}},
    {"labels": {"argocd.argoproj.io/instance": "theirs"}},
    {"labels": {"kustomize.toolkit.fluxcd.io/name": "theirs"}},
]


def mark(world: GitopsWorld, marks: dict[str, dict[str, str]], **data: str) -> None:
    def edit(item: Any) -> None:
        for part, values in marks.items():
            item["metadata"].setdefault(part, {}).update(values)
        item["data"].update(data)

    world.kube.edit(A, edit, manager="kubectl-edit")


@pytest.mark.parametrize("marks", MARKS)
async def test_a_mark_of_another_tool_does_not_stop_healing_what_is_ours(
    marks: dict[str, dict[str, str]],
) -> None:
    world = await at_rest(GitopsWorld(route(Remediation.SELF_HEAL)), x="one")
    mark(world, marks, x="evil")
    await world.reconcile()
    assert await world.data("a") == {"x": "one"}


@pytest.mark.parametrize("marks", MARKS)
async def test_a_mark_of_another_tool_does_not_stop_a_sync_that_a_person_asks_for(
    marks: dict[str, dict[str, str]],
) -> None:
    world = await at_rest(GitopsWorld(), x="one")
    mark(world, marks, x="evil")
    await world.sync(force=True)
    assert await world.data("a") == {"x": "one"}


async def test_a_mark_that_git_declares_is_another_tools() -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL))
    text = configmap("a", x="one")
    note = "  annotations:\n    meta.helm.sh/release-name: theirs\n"
    world.git.commit({"a.yaml": text.replace("metadata:\n", f"metadata:\n{note}", 1)})
    await world.sync()
    mark(world, {}, x="other")
    await world.reconcile()
    assert await world.data("a") == {"x": "other"}


@pytest.mark.parametrize("marks", MARKS)
async def test_what_others_marked_is_pruned_once_somebody_agrees(
    marks: dict[str, dict[str, str]],
) -> None:
    """It may have been handed to the other tool, so nobody deletes it unasked; nor does it stay."""
    world = GitopsWorld(sync=SyncSpec(automatic=True, prune=True))
    files = {f"{name}.yaml": configmap(name, x="one") for name in "abcdefgh"}
    world.git.commit(files)
    await world.sync()
    mark(world, marks)
    world.git.commit({name: text for name, text in files.items() if name != "a.yaml"})
    await world.fetch_and_reconcile()
    assert await world.live("a") is not None
    assert world.context is not None
    (plan,) = world.context.state.plans.values()
    assert plan.reasons == (ApprovalReason.CLAIMED,)
    await world.review().approve_plan("ml-platform", plan.id, plan=plan.digest, actor="maria")
    await world.reconcile()
    assert await world.live("a") is None


def pause(world: GitopsWorld, hours: float) -> None:
    until = (world.clock.now() + timedelta(hours=hours)).isoformat()
    mark(world, {"annotations": {"holdfast.dev/paused-until": until}})


async def test_an_annotation_that_is_renewed_for_ever_does_not_hold_for_ever() -> None:
    world = await at_rest(GitopsWorld(route(Remediation.SELF_HEAL)), x="one")
    mark(world, {}, x="evil")
    pause(world, 2)
    held = 0
    for _ in range(40):
        await world.reconcile()
        held += (await world.data("a")) == {"x": "evil"}
        if (await world.data("a")) == {"x": "one"}:
            mark(world, {}, x="evil")
        world.pass_time(3600)
        pause(world, 2)
    assert 23 <= held <= 25
    assert world.context is not None
    refused = [line for line, _ in world.ledger_store._entries if line.action == "hold-refused"]
    assert len(refused) == 1, "told once, however often it is asked for"
    assert "kubectl-edit" in refused[0].actor


async def test_a_hold_that_used_its_budget_up_gets_more_a_week_later_and_no_sooner() -> None:
    world = await at_rest(GitopsWorld(route(Remediation.SELF_HEAL)), x="one")
    pause(world, 100)
    await world.reconcile()
    assert world.context is not None
    (hold,) = world.context.state.holds.values()
    assert hold.until == world.clock.now() + timedelta(hours=24)
    assert "kubectl-edit" in hold.by
    world.pass_time(24 * 3600 + 1)
    await world.reconcile()
    await world.start()  # the budget outlives a restart
    pause(world, 100)
    await world.reconcile()
    assert not world.context.state.holds
    world.pass_time(7 * 24 * 3600)
    pause(world, 3)
    await world.reconcile()
    assert [each.until for each in world.context.state.holds.values()] == [
        world.clock.now() + timedelta(hours=3)
    ]


async def test_what_changed_under_a_hold_that_was_cut_short_goes_its_own_way() -> None:
    world = await at_rest(GitopsWorld(route(Remediation.SELF_HEAL)), x="one")
    mark(world, {}, x="evil")
    pause(world, 1000)
    await world.reconcile()
    assert await world.data("a") == {"x": "evil"}
    world.pass_time(24 * 3600 + 1)
    await world.reconcile()
    assert await world.data("a") == {"x": "one"}, "no pull request keeps it alive"


@pytest.mark.parametrize("by_spec", [True, False])
async def test_annotations_hold_nothing_where_that_was_said(by_spec: bool) -> None:
    spec = DriftSpec(annotation_holds=AnnotationHolds.NEVER) if by_spec else None
    world = await at_rest(GitopsWorld(route(Remediation.SELF_HEAL), drift=spec), x="one")
    if not by_spec:
        parts = replace(world.reconciler.components, annotation_holds=AnnotationHolds.NEVER)
        world.reconciler = ApplicationReconciler(parts)
    mark(world, {}, x="evil")
    pause(world, 2)
    await world.reconcile()
    assert await world.data("a") == {"x": "one"}
    assert world.context is not None and not world.context.state.holds
