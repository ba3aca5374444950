"""What waits for a person: only the deletions, told once, and never approved by who asked."""

from __future__ import annotations

import pytest
from tests.faults.gitops_story import PROJECT
from tests.support.gitops_world import GitopsWorld, configmap

from holdfast.core.errors import PermissionDenied
from holdfast.core.gitops.application import DriftSpec, SyncSpec
from holdfast.core.gitops.source import Ancestry
from holdfast.reconcile.gitops.application_context import SyncRequest


def files(count: int, value: str) -> dict[str, str]:
    return {f"{n}.yaml": configmap(f"c{n}", x=value) for n in range(count)}


@pytest.mark.parametrize("left", [12, 19], ids=["mass deletion", "rewritten branch"])
async def test_a_commit_that_also_changes_something_waits_once_and_for_its_deletions_alone(
    left: int,
) -> None:
    world = GitopsWorld(sync=SyncSpec(automatic=True, prune=True))
    world.git.commit(files(20, "1"))
    await world.reconcile()
    world.git.ancestry = Ancestry.DIVERGED if left == 19 else None
    world.git.commit(files(left, "2"))
    await world.fetch_and_reconcile()
    assert world.context is not None
    (plan,) = world.context.state.plans.values()
    assert len(plan.steps) == 20 - left
    assert await world.data("c0") == {"x": "2"}, "nothing else waits"
    await world.reconcile()
    assert [kept.digest for kept in world.context.state.plans.values()] == [plan.digest]
    parked = [line for line, _ in world.ledger_store._entries if line.action == "parked"]
    assert len(parked) == 1, "told once"
    await world.review().approve_plan(PROJECT, plan.id, plan=plan.digest, actor="maria")
    await world.fetch_and_reconcile()
    assert await world.live("c19") is None


async def test_approved_deletions_bring_nothing_else_where_syncs_are_asked_for() -> None:
    world = GitopsWorld(sync=SyncSpec(prune=True))
    world.git.commit(files(20, "1"))
    await world.sync()
    world.git.commit(files(12, "2"))
    await world.fetch_and_reconcile()
    assert world.context is not None
    (plan,) = world.context.state.plans.values()
    await world.review().approve_plan(PROJECT, plan.id, plan=plan.digest, actor="maria")
    await world.fetch_and_reconcile()
    assert await world.live("c19") is None
    assert await world.data("c0") == {"x": "1"}, "nobody asked for that"


async def test_who_asked_for_a_sync_cannot_approve_what_it_would_delete() -> None:
    world = GitopsWorld(sync=SyncSpec(automatic=True), drift=DriftSpec(four_eyes=True))
    world.git.commit(files(20, "1"))
    await world.reconcile()
    world.git.commit(files(12, "1"))
    assert world.context is not None
    world.context.poller.hasten()
    world.context.request = SyncRequest(actor="maria (t1)", prune=True)
    await world.reconcile()
    (plan,) = world.context.state.plans.values()
    with pytest.raises(PermissionDenied, match="somebody else"):
        await world.review().approve_plan(PROJECT, plan.id, plan=plan.digest, actor="maria (t2)")
    assert await world.live("c19") is not None
    await world.review().approve_plan(PROJECT, plan.id, plan=plan.digest, actor="joe (t3)")
    await world.fetch_and_reconcile()
    assert await world.live("c19") is None
