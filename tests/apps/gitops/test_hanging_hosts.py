"""A host that hangs delays nobody: neither other applications, nor the healing of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.adapters.kubernetes.harness import eventually
from tests.support.gitops_world import (
    ControllerWorld,
    MemoryForge,
    MemoryRepository,
    configmap,
    route,
)

from holdfast.core.gitops.application import ApplicationId, DriftSpec, Remediation
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.source import Commit
from holdfast.reconcile.gitops import poll_scheduler
from holdfast.reconcile.gitops.application_context import SyncRequest
from holdfast.reconcile.gitops.ports import PullRequest, SourceUnavailable

SOON = 2.0
"""Seconds: a heal takes some hundredths, and a host that hangs is waited for 20."""


class HangingRepository(MemoryRepository):
    """Gives no answer while `hangs` is set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hangs = False
        self.questions = 0
        self.answers = asyncio.Event()

    async def fetch(self, revision: str, *, known: str | None, age: float = 0.0) -> Commit:
        self.questions += 1
        if self.hangs:
            await self.answers.wait()
        return await super().fetch(revision, known=known, age=age)


class RefusingRepository(MemoryRepository):
    """Does not let this application in."""

    async def fetch(self, revision: str, *, known: str | None, age: float = 0.0) -> Commit:
        raise SourceUnavailable("It did not accept the credential.")


class HangingForge(MemoryForge):
    async def past(self, branch: str) -> list[PullRequest]:
        await asyncio.Event().wait()
        raise AssertionError


def hang(world: ControllerWorld, id: ApplicationId) -> HangingRepository:
    """Have the repository of an application hang from now on."""
    repository = world.repositories[id]
    hanging = HangingRepository(commits=repository.commits, head_sha=repository.head_sha)
    hanging.hangs = True
    world.repositories[id] = hanging
    return hanging


def share(world: ControllerWorld, ids: list[ApplicationId], repository: MemoryRepository) -> None:
    """Give applications one address."""
    for id in ids:
        known = world.applications.application_of(id)
        source = replace(
            known.spec.source, url="https://git.example.com/acme/all.git", path=id.name
        )
        world.repositories[id] = repository
        world.applications.put(replace(known, spec=replace(known.spec, source=source)))


async def healed(world: ControllerWorld, name: str) -> float:
    """Edit an object, wait until it is put back, and return how long that took."""
    began = time.monotonic()
    await world.edit_and_notify(name, "9")
    while await world.data(name) != {"x": "1"}:
        assert time.monotonic() - began < 10, f"{name} was not put back"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


async def test_healing_waits_for_no_other_application_whose_host_hangs() -> None:
    async with ControllerWorld() as world:
        fine = world.declare("fine", {"a.yaml": configmap("a", x="1")})
        await world.wait_sync(fine, "synced")
        for number in range(12):
            id = world.declare(f"late-{number}", {"b.yaml": configmap(f"b{number}", x="1")})
            hang(world, id)
        await world.wait_idle()
        assert await healed(world, "a") < SOON


async def test_healing_waits_for_no_answer_of_its_own_host_either() -> None:
    async with ControllerWorld() as world:
        files = {f"{name}.yaml": configmap(name, x="1") for name in "ab"}
        id = world.declare("shop", files)
        await world.wait_sync(id, "synced")
        repository = hang(world, id)
        world.controller.hint(id)
        await eventually(lambda: repository.questions, "the question")
        assert await healed(world, "a") < SOON
        assert await healed(world, "b") < SOON
        assert world.status(id).sync == "synced"
        repository.answers.set()


async def test_who_asks_for_a_sync_gets_what_git_says_then_and_not_what_it_said_before() -> None:
    async with ControllerWorld() as world:
        id = world.declare("shop", {"a.yaml": configmap("a", x="1")})
        await world.wait_sync(id, "synced")
        repository = hang(world, id)
        following = world.contexts[id]
        following.request = SyncRequest(actor="maria")
        following.poller.hasten()
        world.controller.wake(id)
        await eventually(lambda: repository.questions, "the question")
        assert await healed(world, "a") < SOON
        assert following.request is not None, "nothing was carried out yet"
        repository.commit({"a.yaml": configmap("a", x="2")})
        repository.answers.set()
        await eventually(lambda: following.request is None, "the sync")
        assert await world.data("a") == {"x": "2"}


async def test_after_a_restart_what_was_applied_last_is_kept_though_the_host_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poll_scheduler, "RECALL_AFTER", 0.05)
    before = ControllerWorld()
    async with before:
        id = before.declare("shop", {"a.yaml": configmap("a", x="1")})
        await before.wait_sync(id, "synced")
    after = ControllerWorld(before.ledger_store, before.kube)
    after.declare("shop", {"a.yaml": configmap("a", x="1")})
    after.repositories[id] = before.repositories[id]
    hang(after, id)
    async with after:
        await after.wait_sync(id, "synced")
        assert await healed(after, "a") < SOON
        stale = {each.type: each.message for each in after.status(id).conditions}["SourceStale"]
        assert "has not answered" in stale


async def unreachable(world: ControllerWorld) -> tuple[list[ApplicationId], HangingRepository]:
    """Fifteen applications of one address, which all know that it does not answer."""
    ids = [world.declare(f"app-{n}", {"README.md": ""}) for n in range(15)]
    repository = HangingRepository()
    repository.commit({"README.md": ""})
    share(world, ids, repository)
    await eventually(lambda: all(world.status(id).conditions for id in ids), "all of them")
    repository.down = "git.example.com does not answer."
    for id in ids:
        world.controller.hint(id)
    await eventually(lambda: all(map(stale(world), ids)), "all to be stale")
    return ids, repository


def stale(world: ControllerWorld) -> Callable[[ApplicationId], bool]:
    return lambda id: bool(world.contexts[id].poller.last.stale)


async def test_an_address_that_does_not_answer_is_asked_by_one_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poll_scheduler, "FIRST_RETRY", 0.3)
    async with ControllerWorld() as world:
        ids, repository = await unreachable(world)
        repository.questions = 0
        await eventually(lambda: repository.questions >= 2, "two questions")
        assert repository.questions < 5, "not by each of the fifteen"
        assert all(map(stale(world), ids))
        repository.down = ""
        await eventually(lambda: not any(map(stale(world), ids)), "all to be up to date")


async def test_all_applications_of_an_address_are_woken_when_it_answers_one_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poll_scheduler, "FIRST_RETRY", 100.0)
    async with ControllerWorld() as world:
        ids, repository = await unreachable(world)
        repository.down = ""
        began = time.monotonic()
        world.controller.hint(ids[0])
        await eventually(lambda: not any(map(stale(world), ids)), "all to be up to date")
        assert time.monotonic() - began < SOON


async def test_an_application_that_may_not_read_an_address_does_not_keep_others_from_it() -> None:
    async with ControllerWorld() as world:
        ids = [world.declare(name, {"README.md": ""}) for name in ("good", "bad")]
        good, bad = ids
        repository = HangingRepository()
        repository.commit({"a.yaml": configmap("a", x="1")})
        share(world, ids, repository)
        world.repositories[bad] = RefusingRepository()
        await eventually(lambda: world.status(bad).conditions, "a word about the bad one")
        await world.wait_sync(good, "synced")
        commit = repository.commit({"a.yaml": configmap("a", x="2")})
        world.contexts[good].poller.resume(time.monotonic())
        world.controller.queue.add(good)
        await eventually(lambda: world.status(good).revision == commit, "the new commit")


async def test_a_forge_that_hangs_holds_up_neither_a_worker_nor_the_next_passes() -> None:
    world = ControllerWorld(drain_within=0.1)
    world.forge = HangingForge()
    asking = DriftSpec(routes=(route(Remediation.PULL_REQUEST),))
    async with world:
        fine = world.declare("fine", {"a.yaml": configmap("a", x="1")})
        late = [
            world.declare(f"late-{n}", {"b.yaml": configmap(f"b{n}", x="1")}, drift=asking)
            for n in range(4)
        ]
        for id in (fine, *late):
            await world.wait_sync(id, "synced")
        for number in range(4):
            await world.edit_and_notify(f"b{number}", "9")
        await eventually(lambda: world.codified == 4, "all to wait for the forge")
        assert await healed(world, "a") < SOON
        states = {d.state for id in late for d in world.contexts[id].state.drifts.values()}
        assert states == {DriftState.DETECTED}
