"""People, Git, the cluster and two controllers at once: what never happens, in any order.

Each schedule is a number. One that fails is had again with `Races(NUMBER).run()`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.faults.gitops_races import Races
from tests.faults.gitops_story import PROJECT, CallFault, StoryWorld
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route

from holdfast.core.errors import Conflict, NotFound, StoreUnavailable, TargetUnavailable
from holdfast.core.gitops.application import HoldEnd, PullRequestKind, Remediation, SyncSpec
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.hold import PAUSED_UNTIL
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops.application_context import SyncRequest
from holdfast.reconcile.gitops.apply import MAX_PARALLEL
from holdfast.reconcile.gitops.ports import (
    NewPullRequest,
    PullRequest,
    PullRequestState,
    RecordKind,
)

A = config_ref("a")


@pytest.mark.parametrize("first", range(0, 100, 25))
async def test_no_schedule_breaks_a_promise(first: int) -> None:
    await _schedules(range(first, first + 25))


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 4100, 250))
async def test_no_schedule_of_thousands_breaks_a_promise(first: int) -> None:
    await _schedules(range(first, first + 250))


async def _schedules(seeds: range) -> None:
    for seed in seeds:
        races = Races(seed)
        await races.run()
        assert races.wrong == [], f"schedule {seed}"


async def one(*routes: object, **more: object) -> GitopsWorld:
    """An application of one object, applied and edited."""
    world = GitopsWorld(*routes, **more)  # type: ignore[arg-type]
    world.git.commit({"a.yaml": configmap("a", x="1")})
    await world.reconcile()
    edit(world, "9")
    return world


def edit(world: GitopsWorld, value: str) -> None:
    world.kube.edit(A, lambda item: item["data"].update(x=value))


def second(world: GitopsWorld) -> GitopsWorld:
    """Another controller with the same ledger, cluster, repository and forge."""
    other = GitopsWorld()
    other.clock, other.ledger_store, other.git, other.forge = (
        world.clock, world.ledger_store, world.git, world.forge,
    )  # fmt: skip
    other.kube = other.client = world.kube  # type: ignore[assignment]
    other.application = world.application
    return other


async def test_two_controllers_record_one_drift_once() -> None:
    world = await one()
    other = second(world)
    await other.start()
    await world.reconcile()
    world.pass_time(5)
    await other.reconcile()
    assert len(await world.ledger_store.records(RecordKind.DRIFT)) == 1


async def test_a_hold_that_another_controller_began_counts_here_too() -> None:
    world = await one(route(Remediation.SELF_HEAL))
    other = second(world)
    following = await other.start()
    until = world.clock.now() + timedelta(hours=1)
    await other.review().pause(following, actor="maria", reason="INC-1", until=until)
    await world.reconcile()
    assert await world.data("a") == {"x": "9"}
    assert [drift.state for drift in world.drifts] == [DriftState.HELD]


async def test_a_merged_decision_is_not_used_for_what_moved_before_it_was_carried_out() -> None:
    world = await one(route(Remediation.PULL_REQUEST, pull=PullRequestKind.REVERT))
    await world.reconcile()
    (branch,) = world.git.branches
    world.git.merge(branch)
    await world.fetch_and_reconcile()
    assert [drift.state for drift in world.drifts] == [DriftState.APPROVED]
    edit(world, "10")
    for _ in range(3):
        await world.reconcile()
    assert await world.data("a") == {"x": "10"}


async def test_a_request_that_comes_in_the_middle_of_a_pass_is_not_lost() -> None:
    world = await one()
    assert world.context is not None
    following = world.context
    late = SyncRequest(actor="maria")

    async def tell(*_: object) -> None:
        following.request = late

    world.send = tell  # type: ignore[method-assign]
    await world.start()
    following = world.context
    following.request = SyncRequest(actor="joe", prune=True)
    await world.reconcile()
    assert following.request is late


@pytest.mark.parametrize("taken", [True, False], ids=["and it was written", "and it was not"])
async def test_a_ledger_that_does_not_answer_is_read_before_anything_is_decided(
    taken: bool,
) -> None:
    world = StoryWorld()
    world.git.commit({"ask.yaml": configmap("ask", x="1")})
    await world.reconcile()
    world.edit("ask", "9")
    await world.reconcile()
    (drift,) = world.drifts
    writes = sum(call == "ledger.write" for call in world.tap.calls)
    assert writes
    world.tap.fault = CallFault(
        at=2, part="ledger", after=taken, error=lambda: StoreUnavailable("No answer.")
    )
    with pytest.raises(StoreUnavailable):
        await world.review().approve(PROJECT, drift.id, plan=drift.plan, actor="maria", comment="")
    world.tap.fault = None
    if taken:
        with pytest.raises(Conflict, match="is not waiting for approval"):
            await world.review().approve(
                PROJECT, drift.id, plan=drift.plan, actor="joe", comment=""
            )
    else:
        await world.review().approve(PROJECT, drift.id, plan=drift.plan, actor="joe", comment="")
    await world.reconcile()
    assert await world.data("ask") == {"x": "1"}
    lines = [line.action for line, _ in world.ledger._entries if line.subject == drift.id]
    assert lines.count("approved") == 1


async def test_a_pause_that_failed_does_not_hold() -> None:
    world = StoryWorld()
    world.git.commit({"heal.yaml": configmap("heal", x="1")})
    following = await world.start()
    await world.reconcile()
    world.tap.fault = CallFault(at=2, part="ledger", error=lambda: StoreUnavailable("No answer."))
    until = world.clock.now() + timedelta(hours=1)
    with pytest.raises(StoreUnavailable):
        await world.review().pause(following, actor="maria", reason="INC-1", until=until)
    world.tap.fault = None
    world.edit("heal", "9")
    await world.reconcile()
    assert await world.data("heal") == {"x": "1"}


async def test_a_pause_that_two_controllers_were_asked_for_at_once_holds_in_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await one(route(Remediation.SELF_HEAL))
    here = await world.start()
    other = second(world)
    there = await other.start()
    until = world.clock.now() + timedelta(hours=1)
    commit = here.state.commit

    async def later() -> None:
        monkeypatch.undo()
        await other.review().pause(there, actor="maria", reason="INC-1", until=until)
        await commit()

    monkeypatch.setattr(here.state, "commit", later)
    with pytest.raises(Conflict):
        await world.review().pause(here, actor="maria", reason="INC-1", until=until)
    assert set(here.state.holds) == set(there.state.holds) != set()
    await world.reconcile()
    assert await world.data("a") == {"x": "9"}


async def test_what_a_person_closed_while_nobody_looked_is_not_proposed_again() -> None:
    """The answer to the opening was lost, so the ledger does not know its number."""
    world = StoryWorld()
    world.git.commit({"propose.yaml": configmap("propose", x="1")})
    await world.reconcile()
    world.edit("propose", "9")
    opened = world.hub.open

    async def lost(new: NewPullRequest) -> PullRequest:
        world.hub.open = opened  # type: ignore[method-assign]
        await opened(new)
        raise TargetUnavailable("No answer.")

    world.hub.open = lost  # type: ignore[method-assign]
    await world.reconcile()
    assert len(world.hub.pulls) == 1
    world.hub.pulls[1] = replace(world.hub.pulls[1], state=PullRequestState.CLOSED)
    for _ in range(4):
        world.pass_time(61)
        await world.reconcile()
    assert len(world.hub.pulls) == 1
    assert [drift.state for drift in world.drifts] == [DriftState.REJECTED]


async def test_what_waited_before_a_hold_is_not_decided_by_its_end() -> None:
    world = await one(route(Remediation.REVIEW))
    await world.reconcile()
    assert world.context is not None
    world.pass_time(10)
    until = world.clock.now() + timedelta(hours=1)
    await world.review().pause(
        world.context, actor="maria", reason="INC-1", until=until, end=HoldEnd.REVERT
    )
    await world.reconcile()
    world.pass_time(3601)
    for _ in range(2):
        await world.reconcile()
    assert await world.data("a") == {"x": "9"}
    assert [drift.state for drift in world.drifts] == [DriftState.AWAITING]


async def test_the_end_of_a_hold_is_no_review() -> None:
    world = await one(route(Remediation.REVIEW))
    edit(world, "1")
    await world.reconcile()
    assert world.context is not None
    until = world.clock.now() + timedelta(hours=1)
    await world.review().pause(
        world.context, actor="maria", reason="INC-1", until=until, end=HoldEnd.REVERT
    )
    world.pass_time(5)
    edit(world, "9")
    await world.reconcile()
    world.pass_time(3601)
    for _ in range(2):
        await world.reconcile()
    assert await world.data("a") == {"x": "9"}
    assert [(drift.state, drift.requested_by) for drift in world.drifts] == [
        (DriftState.AWAITING, "maria")
    ]


async def test_a_resumed_drift_gets_the_pull_request_that_its_route_asks_for() -> None:
    world = await one(route(Remediation.PULL_REQUEST))
    following = world.context
    assert following is not None
    until = world.clock.now() + timedelta(hours=1)
    await world.review().pause(following, actor="maria", reason="INC-1", until=until)
    await world.reconcile()
    assert [drift.state for drift in world.drifts] == [DriftState.HELD]
    assert not world.forge.pulls
    await world.review().resume(following, actor="maria")
    await world.reconcile()
    assert len(world.forge.pulls) == 1


async def test_a_pause_does_not_undo_a_rejection() -> None:
    world = await one(route(Remediation.REVIEW))
    await world.reconcile()
    (drift,) = world.drifts
    assert world.context is not None
    await world.review().reject(PROJECT, drift.id, actor="joe", comment="meant")
    until = world.clock.now() + timedelta(hours=1)
    await world.review().pause(world.context, actor="maria", reason="INC-1", until=until)
    await world.reconcile()
    await world.review().resume(world.context, actor="maria")
    await world.reconcile()
    assert [drift.state for drift in world.drifts] == [DriftState.REJECTED]


async def test_a_snoozed_drift_is_not_proposed_before_its_time() -> None:
    world = GitopsWorld(route(Remediation.PULL_REQUEST))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    await world.reconcile()
    assert world.context is not None
    world.git.down = "No answer."  # so that the drift is known before a pull request can be made
    edit(world, "9")
    await world.fetch_and_reconcile()
    (drift,) = world.drifts
    until = world.clock.now() + timedelta(hours=1)
    await world.review().snooze(PROJECT, drift.id, actor="ann", comment="later", until=until)
    world.git.down = ""
    world.pass_time(1000)
    await world.fetch_and_reconcile()
    assert not world.forge.pulls
    world.pass_time(3000)
    await world.fetch_and_reconcile()
    assert len(world.forge.pulls) == 1


async def test_a_plan_that_a_person_asked_for_can_be_approved_later() -> None:
    world = GitopsWorld(sync=SyncSpec(automatic=True))
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(20)})
    await world.reconcile()
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(12)})
    assert world.context is not None
    world.context.poller.hasten()
    await world.sync(prune=True)
    await world.reconcile({config_ref("c1")})
    await world.fetch_and_reconcile()
    (plan,) = world.context.state.plans.values()
    assert await world.live("c19") is not None
    parked = [line for line, _ in world.ledger_store._entries if line.action == "parked"]
    assert len(parked) == 1, "told once"
    await world.review().approve_plan(PROJECT, plan.id, plan=plan.digest, actor="maria")
    await world.reconcile({config_ref("c1")})
    await world.fetch_and_reconcile()
    assert await world.live("c19") is None


async def test_nothing_is_put_back_before_what_is_declared_is_known() -> None:
    world = await one()
    await world.reconcile()
    (drift,) = world.drifts
    await world.start()
    with pytest.raises(NotFound, match="not known"):
        await world.review().revert(PROJECT, drift.id, actor="maria")


async def test_nothing_is_decided_about_an_object_that_cannot_be_read() -> None:
    world = await one()
    await world.reconcile()
    (drift,) = world.drifts
    world.kube.fail_next("get", TargetUnavailable("No answer."))
    with pytest.raises(TargetUnavailable, match="nothing was decided"):
        await world.review().revert(PROJECT, drift.id, actor="maria")
    assert [each.state for each in world.drifts] == [DriftState.DETECTED]


@pytest.mark.parametrize("again", ["hold", "pull request"])
async def test_what_happened_before_a_restart_may_happen_again(again: str) -> None:
    """The ledger has a closed record of the same name, which must not be in the way."""
    world = await one(route(Remediation.PULL_REQUEST))
    if again == "hold":
        annotate(world, timedelta(hours=1))
        await world.reconcile()
        annotate(world, None)
        await world.reconcile()
    else:
        await world.reconcile()
        edit(world, "1")
        world.pass_time(61)
        await world.reconcile()
        assert [pull.state for pull in world.forge.pulls.values()] == [PullRequestState.CLOSED]
    await world.start()
    if again == "hold":
        annotate(world, timedelta(hours=2))
        await world.reconcile()
        assert [drift.state for drift in world.drifts] == [DriftState.HELD]
    else:
        edit(world, "9")
        await world.reconcile()
        states = [pull.state for pull in world.forge.pulls.values()]
        assert states == [PullRequestState.CLOSED, PullRequestState.OPEN]


def annotate(world: GitopsWorld, lasts: timedelta | None) -> None:
    def change(item: dict) -> None:  # type: ignore[type-arg]
        annotations = item["metadata"]["annotations"]
        if lasts is None:
            del annotations[PAUSED_UNTIL]
        else:
            annotations[PAUSED_UNTIL] = (world.clock.now() + lasts).isoformat()

    world.kube.edit(A, change)


@pytest.mark.parametrize("work", ["sync", "heal"])
async def test_a_pause_in_the_middle_counts_before_the_next_write(work: str) -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL))
    names = [f"c{n}" for n in range(4 * MAX_PARALLEL)]
    world.git.commit({f"{name}.yaml": configmap(name, x="1") for name in names})
    following = await world.start()
    if work == "heal":
        await world.reconcile()
        for name in names[:5]:
            world.kube.edit(config_ref(name), lambda item: item["data"].update(x="9"))
    plain, paused = world.kube.apply, []
    until = world.clock.now() + timedelta(hours=1)

    async def applied(item: Fields, **more: object) -> Fields:
        done = await plain(item, **more)  # type: ignore[arg-type]
        if not more.get("dry_run") and not paused:
            paused.append(
                asyncio.create_task(
                    world.review().pause(following, actor="maria", reason="INC-1", until=until)
                )
            )
        await asyncio.sleep(0)  # the pause cannot be done before the pass is, and counts already
        return done

    world.kube.apply = applied  # type: ignore[method-assign,assignment]
    count = len(world.kube.writes)
    await world.reconcile()
    written = [write for write in world.kube.writes[count:] if not write.dry_run]
    assert 1 <= len(written) <= (MAX_PARALLEL if work == "sync" else 1), "those that had begun"
    await asyncio.gather(*paused)
    await world.fetch_and_reconcile()
    again = [write for write in world.kube.writes[count:] if not write.dry_run]
    assert again == written
