"""Guards weigh the damage of a day, not the objects of one commit."""

from __future__ import annotations

import json

import pytest
from tests.faults.gitops_story import PROJECT
from tests.support.gitops_world import NAMESPACE, GitopsWorld, config_ref, configmap, route

from holdfast.adapters.memory.kube.kinds import custom_kind
from holdfast.core.gitops.application import DriftSpec, OrphanPolicy, Remediation, SyncSpec
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.records import ApprovalReason
from holdfast.core.object_ref import ObjectRef

CLAIMS = custom_kind("v1", "PersistentVolumeClaim")
PRUNES = SyncSpec(automatic=True, prune=True)


def files(numbers: range, value: str = "1") -> dict[str, str]:
    return {f"{n}.yaml": configmap(f"c{n}", x=value) for n in numbers}


async def applied(some: dict[str, str], sync: SyncSpec = PRUNES) -> GitopsWorld:
    world = GitopsWorld(sync=sync)
    world.kube.serve(CLAIMS)
    world.git.commit(some)
    await world.reconcile()
    return world


def reasons(world: GitopsWorld) -> set[ApprovalReason]:
    assert world.context is not None
    return {why for plan in world.context.state.plans.values() for why in plan.reasons}


async def count(world: GitopsWorld) -> int:
    return sum([await world.live(f"c{n}") is not None for n in range(100)])


async def test_a_series_of_commits_cannot_delete_nearly_everything_unasked() -> None:
    world = await applied(files(range(100)))
    for left in range(81, 0, -19):
        world.git.commit(files(range(left)))
        world.pass_time(600)
        await world.start()  # a restart forgets nothing of it
        await world.fetch_and_reconcile()
    assert await count(world) == 81
    assert reasons(world) == {ApprovalReason.MASS_DELETE}
    world.pass_time(24 * 3600)
    world.git.commit(files(range(70)))
    await world.fetch_and_reconcile()
    assert await count(world) == 70, "what was long ago does not count"


async def test_five_of_six_are_not_deleted_unasked() -> None:
    world = await applied(files(range(6)))
    world.git.commit(files(range(1)))
    await world.fetch_and_reconcile()
    assert await count(world) == 6
    assert reasons(world) == {ApprovalReason.MASS_DELETE}


async def test_a_commit_that_updates_everything_waits_as_a_whole_and_no_part_of_it_is_done() -> (
    None
):
    world = await applied(files(range(60)))
    world.git.commit({**files(range(60), "2"), "new.yaml": configmap("new", x="2")})
    await world.fetch_and_reconcile()
    await world.reconcile({config_ref("c5")})
    assert await world.data("c5") == {"x": "1"}
    assert await world.live("new") is None
    assert reasons(world) == {ApprovalReason.MASS_CHANGE}
    assert world.context is not None
    (plan,) = world.context.state.plans.values()
    assert len(plan.steps) == 61
    await world.review().approve_plan(PROJECT, plan.id, plan=plan.digest, actor="maria")
    result = await world.fetch_and_reconcile()
    assert await world.data("c59") == {"x": "2"}
    assert result.status.sync == "synced"


async def test_whoever_asks_for_a_sync_has_asked_for_its_updates() -> None:
    world = await applied(files(range(60)))
    world.git.commit(files(range(60), "2"))
    assert world.context is not None
    world.context.poller.hasten()
    await world.sync()
    assert await world.data("c59") == {"x": "2"}


async def test_small_commits_add_up_to_a_large_one() -> None:
    world = await applied(files(range(60)))
    for done in (20, 40, 60):
        world.pass_time(600)
        world.git.commit(files(range(done), "2") | files(range(done, 60)))
        await world.fetch_and_reconcile()
    assert await world.data("c39") == {"x": "2"}
    assert await world.data("c59") == {"x": "1"}
    assert reasons(world) == {ApprovalReason.MASS_CHANGE}


async def test_a_name_with_a_new_hash_is_no_deletion() -> None:
    world = await applied({"a.yaml": configmap("env-2222222222"), "b.yaml": configmap("b")})
    for each in "456789":
        world.git.commit({"a.yaml": configmap(f"env-{each * 10}"), "b.yaml": configmap("b")})
        await world.fetch_and_reconcile()
    assert await world.live("env-9999999999") is not None
    assert await world.live("env-8888888888") is None


CLAIM = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n"


async def test_a_claim_of_storage_is_never_pruned_unasked() -> None:
    world = await applied({**files(range(60)), "claim.yaml": CLAIM})
    world.git.commit(files(range(60)))
    await world.fetch_and_reconcile()
    ref = ObjectRef(
        api_version="v1", kind="PersistentVolumeClaim", namespace=NAMESPACE, name="data"
    )
    assert await world.kube.get(ref) is not None
    assert reasons(world) == {ApprovalReason.DATA_LOSS}
    assert world.context is not None
    (plan,) = world.context.state.plans.values()
    await world.review().approve_plan(PROJECT, plan.id, plan=plan.digest, actor="maria")
    await world.fetch_and_reconcile()
    assert await world.kube.get(ref) is None


async def test_an_orphaned_claim_of_storage_is_never_deleted_unasked() -> None:
    drift = DriftSpec(namespaces=(NAMESPACE,), orphans=OrphanPolicy.REMEDIATE)
    world = GitopsWorld(route(Remediation.SELF_HEAL), drift=drift)
    world.kube.serve(CLAIMS)
    world.git.commit(files(range(2)))
    await world.reconcile()
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": NAMESPACE},
    }  # fmt: skip
    world.kube.create(claim, manager="kubectl-create")
    await world.reconcile()
    assert [drift.state for drift in world.drifts] == [DriftState.AWAITING]


def deployment(name: str, replicas: int) -> str:
    container = {"name": "web", "image": "registry.example.com/web:1"}
    labels = {"app": name}
    return json.dumps({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    })  # fmt: skip


@pytest.mark.parametrize("steps", [((0, 0),), ((0, 2), (0, 0))], ids=["at once", "one by one"])
async def test_scaling_everything_to_zero_asks(steps: tuple[tuple[int, int], ...]) -> None:
    world = await applied({"a.yaml": deployment("a", 2), "b.yaml": deployment("b", 2)})
    for first, second in steps:
        world.git.commit({"a.yaml": deployment("a", first), "b.yaml": deployment("b", second)})
        await world.fetch_and_reconcile()
    ref = ObjectRef(api_version="apps/v1", kind="Deployment", namespace=NAMESPACE, name="b")
    live = await world.kube.get(ref)
    assert live is not None and live["spec"]["replicas"] == 2  # type: ignore[index,call-overload]
    assert reasons(world) == {ApprovalReason.TO_ZERO}
