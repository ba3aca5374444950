"""A source that stays away, comes back, is rewritten or is emptied: asked with patience, stale
with its age, never stuck, and never taken for a wish to delete."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from tests.faults.gitops_story import PROJECT
from tests.support.gitops_world import GitopsWorld, MemorySources, config_ref, configmap, route

from holdfast.apps.gitops.controller import HINT_RETRIES, PassSchedule
from holdfast.core.gitops.application import GuardSpec, Remediation, SyncSpec
from holdfast.core.gitops.guard import change_limit
from holdfast.core.gitops.source import Ancestry, Commit
from holdfast.reconcile.gitops.ports import RecordKind, SourceUnavailable
from holdfast.reconcile.gitops.source_poller import (
    DEFAULT_INTERVAL,
    JITTER,
    MAX_INTERVAL,
    SourcePoller,
)

DAY = 86_400.0
A, B = config_ref("a"), config_ref("b")
DOWN = "git.example.com refused the connection."


async def two(**sync: object) -> GitopsWorld:
    """An application of two objects that may do everything by itself, applied."""
    given = SyncSpec(automatic=True, prune=True, **sync)  # type: ignore[arg-type]
    world = GitopsWorld(route(Remediation.SELF_HEAL), sync=given)
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", x="1")})
    await world.reconcile()
    return world


def asked(world: GitopsWorld) -> list[datetime]:
    """Note when the repository is asked from now on."""
    times: list[datetime] = []
    fetch = world.git.fetch

    async def noted(revision: str, **more: Any) -> Commit:  # Any: what the port takes
        times.append(world.clock.now())
        return await fetch(revision, **more)

    world.git.fetch = noted  # type: ignore[method-assign]
    return times


def edit(world: GitopsWorld) -> None:
    world.kube.edit(A, lambda item: item["data"].update(x="9"))


async def test_a_repository_that_stays_away_is_asked_less_and_less_and_at_once_when_hinted() -> (
    None
):
    world = await two()
    world.git.down = DOWN
    times = asked(world)
    for _ in range(8):
        result = await world.reconcile()
        world.pass_time(result.requeue_after + 0.01)
    gaps = [(b - a).total_seconds() for a, b in pairwise(times)]
    assert len(times) == 7, "the first look is within the interval of the last good answer"
    assert gaps == sorted(gaps)
    assert gaps[0] >= 2 * DEFAULT_INTERVAL * (1 - JITTER)
    assert MAX_INTERVAL * (1 - JITTER) <= gaps[-1] <= MAX_INTERVAL * (1 + JITTER) + 1
    assert world.context is not None
    world.context.poller.hasten()
    await world.reconcile()
    assert len(times) == 8
    world.git.down = ""
    world.pass_time(2 * MAX_INTERVAL)
    await world.reconcile()
    world.pass_time(DEFAULT_INTERVAL * (1 + JITTER))
    await world.reconcile()
    assert len(times) == 10, "once it answers, it is asked at its interval again"


@pytest.mark.parametrize("restarted", [False, True])
async def test_events_do_not_make_a_failing_repository_be_asked_more_often(restarted: bool) -> None:
    world = await two()
    world.git.down = DOWN
    if restarted:
        world.renderer.refused = SourceUnavailable("There is no directory deploy.")
        await world.start()
    await world.fetch_and_reconcile()
    times = asked(world)
    for _ in range(50):
        await world.reconcile({A})
        world.pass_time(0.1)
    assert times == []


async def test_two_controllers_do_not_ask_in_step() -> None:
    pauses = set()
    for chance in (0.0, 0.3, 0.9):
        world = await two()
        world.git.down = DOWN
        sources = MemorySources(world)
        follower = SourcePoller(sources, world.clock, lambda chance=chance: chance)  # type: ignore[misc]
        await follower.follow(world.application, None)
        pauses.add(follower.wait)
    assert len(pauses) == 3
    assert max(pauses) - min(pauses) <= 2 * DEFAULT_INTERVAL * JITTER


@pytest.mark.parametrize("failures", [1_000, 5_000])
async def test_a_repository_that_is_away_for_months_stops_nothing_else(failures: int) -> None:
    world = await two()
    world.git.down = DOWN
    assert world.context is not None
    for _ in range(failures):
        world.context.poller.hasten()
        await world.context.poller.follow(world.application, world.context.state.revision)
    edit(world)
    result = await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "1"}, "drift is still put back"
    assert world.context.poller.wait <= MAX_INTERVAL * (1 + JITTER)
    stale = {each.type: each.message for each in result.status.conditions}["SourceStale"]
    assert DOWN in stale


async def test_a_stale_source_tells_since_when_and_keeps_its_commit() -> None:
    world = await two()
    good = world.git.head_sha
    first = (await world.fetch_and_reconcile()).status
    world.git.commit({})
    world.git.down = DOWN
    world.pass_time(3 * DAY)
    status = (await world.fetch_and_reconcile()).status
    assert (status.revision, status.fetched) == (good, good)
    assert status.fetched_at == first.fetched_at, "its age is the time since then"
    (told,) = [notice for notice in world.notices if "stale" in notice.type]
    assert DOWN in told.text
    assert {A, B} == set(world.context.state.inventory)  # type: ignore[union-attr]


@pytest.mark.parametrize("ancestry", [Ancestry.DIVERGED, Ancestry.REWOUND, Ancestry.UNRELATED])
async def test_a_rewritten_branch_does_not_stick_once_somebody_agreed(ancestry: Ancestry) -> None:
    """Not even where the commit that was applied is nowhere to be had any more."""
    world = await two()
    old = world.git.head_sha
    value = "1" if ancestry is Ancestry.DIVERGED else "2"
    new = world.git.commit({"a.yaml": configmap("a", x=value)})
    del world.git.commits[old]
    world.git.ancestry = ancestry
    await world.fetch_and_reconcile()
    assert await world.live("b") is not None
    assert world.context is not None
    (plan,) = world.context.state.plans.values()
    await world.review().approve_plan(PROJECT, plan.id, plan=plan.digest, actor="maria")
    for _ in range(3):
        await world.fetch_and_reconcile()
        world.pass_time(61)
    assert await world.data("a") == {"x": value}
    assert await world.live("b") is None
    assert world.context.state.revision is not None
    assert world.context.state.revision.commit == new
    world.git.ancestry = None
    world.git.commit({"a.yaml": configmap("a", x="3")})
    result = await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "3"}
    assert (result.status.sync, result.status.plan) == ("synced", None)


async def test_an_agreement_to_one_strange_commit_is_none_to_the_next() -> None:
    world = await two()
    world.git.ancestry = Ancestry.UNRELATED
    world.git.commit({"a.yaml": configmap("a", x="2"), "b.yaml": configmap("b", x="1")})
    await world.fetch_and_reconcile()
    assert world.context is not None
    (plan,) = world.context.state.plans.values()
    await world.review().approve_plan(PROJECT, plan.id, plan=plan.digest, actor="maria")
    world.git.commit({"a.yaml": configmap("a", x="3"), "b.yaml": configmap("b", x="1")})
    for _ in range(3):
        await world.fetch_and_reconcile()
    assert await world.data("a") == {"x": "1"}


async def test_a_hint_that_comes_before_its_commit_is_followed_until_it_is_there() -> None:
    world = await two()
    assert world.context is not None
    follower, due, old = (
        world.context.poller,
        PassSchedule(due_at=world.clock.now()),
        world.git.head_sha,
    )
    times = asked(world)
    due.hint(follower)
    await world.reconcile()
    for pause in HINT_RETRIES[:2]:
        assert due.retry_hint(follower) == pause
        assert follower.wait == pytest.approx(pause)
        world.pass_time(pause)
        status = (await world.reconcile()).status
        assert status.revision == old, "nothing but what is there is applied"
    assert len(times) == 3
    new = world.git.commit({"a.yaml": configmap("a", x="2"), "b.yaml": configmap("b", x="1")})
    assert due.retry_hint(follower) == HINT_RETRIES[2]
    world.pass_time(HINT_RETRIES[2])
    await world.reconcile()
    assert world.context.state.revision is not None
    assert world.context.state.revision.commit == new
    assert due.retry_hint(follower) is None


async def test_a_hint_that_was_for_nothing_is_given_up() -> None:
    world = await two()
    assert world.context is not None
    due = PassSchedule(due_at=world.clock.now())
    due.hint(world.context.poller)
    waits = []
    while (pause := due.retry_hint(world.context.poller)) is not None:
        waits.append(pause)
        world.pass_time(pause)
        await world.reconcile()
    assert tuple(waits) == HINT_RETRIES


async def test_an_empty_repository_is_carried_out_only_where_it_may_be_meant_and_is_agreed_to() -> (
    None
):
    world = await two(allow_empty=True)
    world.git.commit({"README.md": "nothing here any more"})
    for _ in range(3):
        await world.fetch_and_reconcile()
        world.pass_time(61)
    assert await world.live("a") is not None, "the switch alone is no agreement"
    assert world.context is not None
    (plan,) = world.context.state.plans.values()
    assert len(plan.steps) == 2
    await world.review().approve_plan(PROJECT, plan.id, plan=plan.digest, actor="maria")
    await world.fetch_and_reconcile()
    assert (await world.live("a"), await world.live("b")) == (None, None)


async def test_an_agreed_empty_repository_is_refused_once_the_switch_is_off_again() -> None:
    world = await two(allow_empty=True)
    world.git.commit({"README.md": "nothing here any more"})
    await world.fetch_and_reconcile()
    assert world.context is not None
    (plan,) = world.context.state.plans.values()
    await world.review().approve_plan(PROJECT, plan.id, plan=plan.digest, actor="maria")
    spec = world.application.spec
    off = replace(spec, sync=SyncSpec(automatic=True, prune=True))
    world.application = replace(world.application, spec=off)
    for _ in range(2):
        await world.fetch_and_reconcile()
    assert await world.live("a") is not None


@pytest.mark.parametrize(
    ("inventory", "guard", "most"),
    [
        (1, None, 5), (24, None, 5), (29, None, 5), (30, None, 6), (1000, None, 200),
        (1000, GuardSpec(objects=0, percent=0), 0), (1000, GuardSpec(percent=1), 10),
        (10, GuardSpec(objects=7), 7), (0, None, 5),
    ],
)  # fmt: skip
def test_how_many_objects_may_go_at_once(
    inventory: int, guard: GuardSpec | None, most: int
) -> None:
    assert change_limit(inventory, guard) == most


@pytest.mark.parametrize("gone", [5, 6])
async def test_the_guard_lets_five_of_few_go_and_not_six(gone: int) -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL), sync=SyncSpec(automatic=True, prune=True))
    files = {f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(12)}
    world.git.commit(files)
    await world.reconcile()
    world.git.commit({name: files[name] for name in list(files)[gone:]})
    await world.fetch_and_reconcile()
    assert (await world.live("c0") is None) == (gone == 5)
    parked = await world.ledger_store.records(RecordKind.PLAN)
    assert len(parked) == (gone == 6)


async def test_one_file_that_cannot_be_read_keeps_every_other_from_being_taken_for_gone() -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL), sync=SyncSpec(automatic=True, prune=True))
    files = {f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(6)}
    world.git.commit(files)
    await world.reconcile()
    count = len(world.kube.writes)
    world.git.commit({**dict(list(files.items())[2:]), "5.yaml": "kind: ["})
    for _ in range(3):
        status = (await world.fetch_and_reconcile()).status
        world.pass_time(61)
    assert len(world.kube.writes) == count
    stale = {each.type: each.message for each in status.conditions}["SourceStale"]
    assert "5.yaml" in stale, "it says which"
    world.git.commit(dict(list(files.items())[2:]))
    world.pass_time(1000)
    await world.fetch_and_reconcile()
    assert (await world.live("c0"), await world.live("c1")) == (None, None)
