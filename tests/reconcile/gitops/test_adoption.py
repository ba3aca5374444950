"""Taking over an object starts with what would be applied: what others have there stays."""

from __future__ import annotations

from tests.support.gitops_world import NAMESPACE, GitopsWorld, config_ref, configmap, route

from holdfast.core.gitops.application import Remediation
from holdfast.core.gitops.drift import DriftState
from holdfast.reconcile.gitops.ports import LedgerWrite, RecordKind

A = config_ref("a")


async def taken_over() -> GitopsWorld:
    """An object that somebody made by hand, and that Git declares some of."""
    world = GitopsWorld(route(Remediation.SELF_HEAL))
    world.kube.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": NAMESPACE},
            "data": {"x": "0", "theirs": "kept"},
        },
        manager="kubectl-create",
    )
    world.git.commit({"a.yaml": configmap("a", x="1")})
    await world.sync()
    world.pass_time(60)
    await world.reconcile()
    return world


async def test_what_others_had_on_an_object_that_is_taken_over_waits_for_somebody() -> None:
    world = await taken_over()
    world.pass_time(3600)
    await world.reconcile()
    assert await world.data("a") == {"x": "1", "theirs": "kept"}
    (drift,) = world.drifts
    assert (drift.state, drift.found) == (DriftState.AWAITING, True)
    assert [entry.path for entry in drift.entries] == ["data.theirs"]
    assert "taken over" in drift.note
    await world.review().approve("ml-platform", drift.id, plan=drift.plan, actor="maria")
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}


async def test_what_is_added_or_changed_after_that_is_healed() -> None:
    world = await taken_over()
    world.kube.edit(A, lambda item: item["data"].update(x="9", new="9"), manager="kubectl-edit")
    await world.reconcile()
    assert await world.data("a") == {"x": "1", "theirs": "kept"}
    world.kube.edit(A, lambda item: item["data"].pop("theirs"), manager="kubectl-edit")
    await world.reconcile()
    assert world.drifts == []
    world.kube.edit(A, lambda item: item["data"].update(theirs="again"), manager="kubectl-edit")
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}


async def test_a_crash_between_the_apply_and_the_ledger_makes_nothing_of_theirs_ours() -> None:
    world = await taken_over()
    (record,) = await world.ledger_store.records(RecordKind.INVENTORY)
    lost = LedgerWrite(
        kind=record.kind,
        application=record.application,
        key=record.key,
        state=record.state,
        seen=record.version,
        body=None,
    )
    drifts = await world.ledger_store.records(RecordKind.DRIFT)
    gone = [
        LedgerWrite(
            kind=each.kind,
            application=each.application,
            key=each.key,
            state=each.state,
            seen=each.version,
            body=None,
        )
        for each in drifts
    ]
    await world.ledger_store.write([lost, *gone], [])
    await world.start()
    world.pass_time(60)
    await world.reconcile()
    assert await world.data("a") == {"x": "1", "theirs": "kept"}
    assert [drift.state for drift in world.drifts] == [DriftState.AWAITING]
