"""What changes between a look and a write, or while something is being carried out: the write is
refused, the next look sees what is there, and nobody's word is used for something else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.faults.gitops_story import PROJECT, StoryWorld
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route

from holdfast.core.errors import (
    Conflict,
    HoldfastError,
    NotFound,
    PermissionDenied,
    TargetUnavailable,
)
from holdfast.core.gitops.application import (
    ApplicationSpec,
    DriftSpec,
    OrphanPolicy,
    Remediation,
    SyncSpec,
)
from holdfast.core.gitops.drift import DriftState
from holdfast.core.object_ref import ObjectRef
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.apply import MAX_PARALLEL
from holdfast.reconcile.gitops.ports import PullRequestState, RecordKind

A, B = config_ref("a"), config_ref("b")
Work = Callable[[], Awaitable[object] | None]


def set_x(world: GitopsWorld, ref: ObjectRef, value: str, manager: str = "kubectl-edit") -> None:
    world.kube.edit(ref, lambda item: item["data"].update(x=value), manager=manager)


async def applied(*routes: object, prune: bool = True, **more: object) -> GitopsWorld:
    world = GitopsWorld(*routes, sync=SyncSpec(automatic=True, prune=prune), **more)  # type: ignore[arg-type]
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", x="1")})
    await world.reconcile()
    return world


def just_before(world: GitopsWorld, verb: str, work: Work) -> None:
    """Have something happen right before the next write that is no dry run."""
    plain = getattr(world.kube, verb)

    async def late(*args: Any, **more: Any) -> Any:  # Any: whatever the verb takes and gives
        if not more.get("dry_run"):
            setattr(world.kube, verb, plain)
            found = work()
            if found is not None:
                await found
        return await plain(*args, **more)

    setattr(world.kube, verb, late)


async def test_an_edit_between_look_and_heal_is_not_overwritten_unseen() -> None:
    world = await applied(route(Remediation.SELF_HEAL))
    set_x(world, A, "9")
    just_before(world, "apply", lambda: set_x(world, A, "10", "hotfix"))
    await world.reconcile()
    assert await world.data("a") == {"x": "10"}
    world.pass_time(61)
    await world.reconcile()
    assert await world.data("a") == {"x": "1"}
    (record,) = await world.ledger_store.records(RecordKind.DRIFT, state="closed")
    writers = {entry["writer"]["manager"] for entry in record.body["entries"]}  # type: ignore[index,call-overload,union-attr]
    assert writers == {"hotfix"}, "who wrote what was put back is on record"


async def test_an_edit_between_look_and_sync_is_drift_and_stays() -> None:
    world = await applied(route(Remediation.REPORT))
    world.git.commit({"a.yaml": configmap("a", x="2", z="2"), "b.yaml": configmap("b", x="1")})
    just_before(world, "apply", lambda: set_x(world, A, "9"))
    await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "9"}
    world.pass_time(61)
    await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "9", "z": "2"}, "the rest of the commit is applied"
    assert [(drift.object, drift.entries[0].live) for drift in world.drifts] == [(A, "9")]


@pytest.mark.parametrize("change", ["edited", "replaced", "taken away"])
async def test_what_changes_between_look_and_prune_is_looked_at_again(change: str) -> None:
    world = await applied()
    world.git.commit({"a.yaml": configmap("a", x="1")})
    theirs: Fields = {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"theirs": "yes"},
        "metadata": {"name": "b", "namespace": B.namespace},
    }  # fmt: skip

    async def happen() -> None:
        if change == "edited":
            set_x(world, B, "9")
            return
        await world.kube.delete(B)
        if change == "replaced":
            world.kube.create(theirs, manager="another")

    just_before(world, "delete", happen)
    await world.fetch_and_reconcile()
    if change == "edited":
        assert await world.data("b") == {"x": "9"}
    for _ in range(2):
        world.pass_time(61)
        await world.fetch_and_reconcile()
    live = await world.live("b")
    if change == "replaced":
        assert live is not None and live["data"] == {"theirs": "yes"}, "never ours"
    else:
        assert live is None
    assert world.context is not None
    assert set(world.context.state.inventory) == {A}


async def test_one_who_creates_what_is_declared_a_moment_before_us_is_not_overwritten() -> None:
    world = GitopsWorld(route(Remediation.REPORT), sync=SyncSpec(automatic=True))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    theirs: Fields = {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "theirs"},
        "metadata": {"name": "a", "namespace": A.namespace},
    }  # fmt: skip
    just_before(world, "apply", lambda: world.kube.create(theirs) and None)
    result = await world.reconcile()
    assert await world.data("a") == {"x": "theirs"}
    assert any(note.reason == "ReconciliationFailed" for note in result.events)


async def test_an_orphan_that_is_replaced_before_it_is_deleted_stays() -> None:
    world = await applied(
        route(Remediation.SELF_HEAL),
        drift=DriftSpec(namespaces=(A.namespace,), orphans=OrphanPolicy.REMEDIATE),
    )
    stray: Fields = {
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
        "metadata": {"name": "stray", "namespace": A.namespace},
    }  # fmt: skip
    world.kube.create(stray)

    async def replaced() -> None:
        await world.kube.delete(config_ref("stray"))
        world.kube.create({**stray, "data": {"k": "another"}})

    just_before(world, "delete", replaced)
    await world.reconcile()
    assert await world.data("stray") == {"k": "another"}


def switched(spec: ApplicationSpec, to: str) -> ApplicationSpec:
    if to == "suspended":
        return replace(spec, suspend=True)
    if to == "by hand":
        return replace(spec, sync=SyncSpec())
    drift = replace(spec.drift or DriftSpec(), routes=(route(Remediation.REPORT),))
    return replace(spec, drift=drift)


@pytest.mark.parametrize(
    ("work", "to"),
    [("sync", "suspended"), ("sync", "by hand"), ("heal", "suspended"), ("heal", "report")],
)
async def test_another_policy_in_the_middle_counts_before_the_next_write(
    work: str, to: str
) -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL))
    names = [f"c{n}" for n in range(4 * MAX_PARALLEL)]
    world.git.commit({f"{name}.yaml": configmap(name, x="1") for name in names})
    following = await world.start()
    if work == "heal":
        await world.reconcile()
        for name in names[:5]:
            set_x(world, config_ref(name), "9")
    following.newest = lambda: world.application.spec
    plain = world.kube.apply

    async def applying(item: Fields, **more: object) -> Fields:
        done = await plain(item, **more)  # type: ignore[arg-type]
        if not more.get("dry_run"):
            spec = switched(world.application.spec, to)
            world.application = replace(world.application, generation=2, spec=spec)
        await asyncio.sleep(0)
        return done

    world.kube.apply = applying  # type: ignore[method-assign,assignment]
    count = len(world.kube.writes)
    await world.reconcile()
    written = [write for write in world.kube.writes[count:] if not write.dry_run]
    assert 1 <= len(written) <= (MAX_PARALLEL if work == "sync" else 1), "those that had begun"
    for _ in range(2):
        world.pass_time(61)
        await world.fetch_and_reconcile()
    assert [write for write in world.kube.writes[count:] if not write.dry_run] == written


async def test_an_approval_of_what_is_gone_by_itself_applies_nothing_and_says_so() -> None:
    world = await applied(route(Remediation.REVIEW))
    set_x(world, A, "9")
    await world.reconcile()
    (drift,) = world.drifts
    await world.review().approve(PROJECT, drift.id, plan=drift.plan, actor="maria")
    set_x(world, A, "1")
    count = len(world.kube.writes)
    await world.reconcile()
    assert [write for write in world.kube.writes[count:] if not write.dry_run] == []
    actions = [entry.action for entry in await world.ledger_store.entries(subject=drift.id)]
    assert "resolved" in actions
    assert "applying" not in actions


async def test_what_waits_for_nothing_cannot_be_approved() -> None:
    world = await applied(route(Remediation.REVIEW))
    set_x(world, A, "9")
    await world.reconcile()
    (drift,) = world.drifts
    set_x(world, A, "1")
    await world.reconcile()
    with pytest.raises((Conflict, NotFound), match="Nothing was changed"):
        await world.review().approve(PROJECT, drift.id, plan=drift.plan, actor="maria")
    actions = [entry.action for entry in await world.ledger_store.entries(subject=drift.id)]
    assert "approved" not in actions and "applying" not in actions


async def test_a_sync_with_nothing_to_do_does_not_say_that_it_applied_something() -> None:
    world = await applied()
    before = await world.ledger_store.entries(limit=100)
    result = await world.sync(prune=True, force=True)
    assert await world.ledger_store.entries(limit=100) == before
    assert result.events == ()
    assert result.status.sync == "synced"


class Proposing(StoryWorld):
    """One object whose drift is proposed, with files that can be read again."""

    async def proposed(self, value: str) -> None:
        self.git.commit({"propose.yaml": configmap("propose", x="1")})
        await self.fetch_and_reconcile()
        self.edit("propose", value)
        await self.fetch_and_reconcile()
        assert [drift.state for drift in self.drifts] == [DriftState.PULL_REQUEST]

    @property
    def branch(self) -> str:
        return "holdfast/codify/chat-configmap-propose"


async def test_a_proposal_that_is_merged_while_the_live_value_moved_on_is_asked_anew() -> None:
    """Git then declares one value, the cluster has another: neither is put back by the way."""
    world = Proposing()
    await world.proposed("9")
    world.merge(world.branch)
    world.edit("propose", "10")
    count = len(world.kube.writes)
    for _ in range(6):
        world.pass_time(61)
        await world.fetch_and_reconcile()
    assert await world.data("propose") == {"x": "10"}
    assert [w for w in world.kube.writes[count:] if w.changed and not w.dry_run
            and w.manager != "kubectl-edit" and w.verb == "delete"] == []  # fmt: skip
    (drift,) = world.drifts
    assert [(entry.desired, entry.live) for entry in drift.entries] == [("9", "10")]
    states = [pull.state for pull in world.hub.pulls.values()]
    assert states == [PullRequestState.MERGED, PullRequestState.OPEN]
    world.merge(world.branch)
    for _ in range(4):
        world.pass_time(61)
        await world.fetch_and_reconcile()
    assert world.drifts == []
    assert await world.data("propose") == {"x": "10"}
    assert len(world.hub.pulls) == 2, "no ping-pong"


async def test_a_proposal_that_conflicts_with_its_base_is_marked_and_left_as_it_is() -> None:
    world = Proposing()
    await world.proposed("9")
    pushed = world.git.branches[world.branch]
    world.git.commit({"propose.yaml": configmap("propose", x="1", z="2")})
    world.hub.pulls[1] = replace(world.hub.pulls[1], mergeable=False)
    for _ in range(3):
        world.pass_time(61)
        await world.fetch_and_reconcile()
    (drift,) = world.drifts
    assert "conflicts" in drift.note
    assert world.git.branches[world.branch] is pushed, "not rebased behind the reviewers' backs"
    assert [pull.state for pull in world.hub.pulls.values()] == [PullRequestState.OPEN]


@pytest.mark.parametrize(
    "error",
    [
        PermissionDenied("It may not."),
        TargetUnavailable("Ask less often."),
        TargetUnavailable("An error of its own."),
    ],
    ids=["403", "429", "500"],
)
@pytest.mark.parametrize("verb", ["find", "open"])
async def test_a_forge_that_refuses_delays_nothing_else_and_is_asked_again(
    verb: str, error: HoldfastError
) -> None:
    """No webhook ever comes: what became of a pull request is found out all the same."""
    world = Proposing()
    world.git.commit(
        {"propose.yaml": configmap("propose", x="1"), "heal.yaml": configmap("heal", x="1")}
    )
    await world.fetch_and_reconcile()
    plain, failures = getattr(world.hub, verb), [error] * 3

    async def failing(*args: Any, **more: Any) -> Any:  # Any: whatever the verb takes and gives
        if failures:
            raise failures.pop()
        return await plain(*args, **more)

    setattr(world.hub, verb, failing)
    world.edit("propose", "9")
    world.edit("heal", "9")
    result = await world.fetch_and_reconcile()
    assert await world.data("heal") == {"x": "1"}
    assert "PullRequestFailed" in [note.reason for note in result.events]
    for _ in range(6):
        world.pass_time(61)
        await world.fetch_and_reconcile()
    assert [pull.state for pull in world.hub.pulls.values()] == [PullRequestState.OPEN]
    world.merge(world.branch)
    for _ in range(3):
        world.pass_time(61)
        await world.reconcile()
    assert await world.data("propose") == {"x": "9"}
    assert [drift for drift in world.drifts if drift.object.name == "propose"] == []


async def test_nobody_forces_alone_what_four_eyes_are_asked_for() -> None:
    world = await applied(route(Remediation.REVIEW), drift=DriftSpec(four_eyes=True))
    set_x(world, A, "9")
    await world.reconcile()
    assert world.context is not None
    with pytest.raises(PermissionDenied, match="four eyes"):
        world.review().sync(world.context, actor="maria (t1)", prune=False, force=True)
    await world.reconcile()
    assert await world.data("a") == {"x": "9"}
    assert [drift.state for drift in world.drifts] == [DriftState.AWAITING]
    world.review().sync(world.context, actor="maria (t1)", prune=False, force=False)
    await world.reconcile()
    assert await world.data("a") == {"x": "9"}, "what waits for a review still waits"
