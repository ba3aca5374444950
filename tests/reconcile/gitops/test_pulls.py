"""Pull requests over several passes: hints, refusals, people's branches, what was approved."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.support.gitops_world import World, config_ref, configmap, route

from holdfast.core.gitops.application import PullKind, Remediation
from holdfast.core.gitops.codify import CannotCodify, Codified
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.standing import Seen
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.ports import PullState


def edit(world: World, name: str, value: str) -> None:
    world.kube.edit(config_ref(name), lambda item: item["data"].update(x=value), manager="kubectl")


async def proposing(pull: PullKind = PullKind.CODIFY) -> World:
    """An application of two objects, applied, whose drift goes to pull requests."""
    world = World(route(Remediation.PULL_REQUEST, pull=pull))
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", x="1")})
    await world.look()
    return world


async def test_a_hint_of_the_forge_makes_it_be_asked_before_it_is_time() -> None:
    world = await proposing()
    edit(world, "a", "9")
    await world.look()
    await world.forge.close(1)
    await world.look()
    assert [drift.state for drift in world.drifts] == [DriftState.PULL_REQUEST]
    assert world.following is not None
    world.following.forge_moved = True
    await world.look(set())
    assert [drift.state for drift in world.drifts] == [DriftState.REJECTED]
    assert not world.following.forge_moved


async def test_what_cannot_be_declared_is_told_once_and_keeps_no_other_back() -> None:
    world = await proposing()
    codify = world.codify

    async def refusing(following: Following, drift: ObjectDrift, seen: Seen) -> Codified:
        if drift.object.name == "a":
            raise CannotCodify("No file could say it.")
        return await codify(following, drift, seen)

    world.codify = refusing  # type: ignore[method-assign]
    await world.start()
    await world.fetch_and_look()
    edit(world, "a", "9")
    first = await world.look()
    assert "PullRequestFailed" in [note.reason for note in first.notes]
    world.pass_time(1)
    edit(world, "b", "9")
    second = await world.look()
    assert "PullRequestFailed" not in [note.reason for note in second.notes]
    assert [drift.state for drift in world.drifts] == [
        DriftState.PARKED,
        DriftState.PULL_REQUEST,
    ]


async def test_a_merged_decision_is_carried_out_soon_whatever_else_is_heard() -> None:
    world = await proposing(PullKind.REVERT)
    spec = world.application.spec
    source = replace(spec.source, interval="1h")
    world.application = replace(world.application, spec=replace(spec, source=source))
    edit(world, "a", "9")
    await world.look()
    (branch,) = world.git.branches
    world.git.merge(branch)
    result = await world.fetch_and_look()
    assert [drift.state for drift in world.drifts] == [DriftState.APPROVED]
    assert timedelta(seconds=result.requeue_after) <= timedelta(seconds=2)
    await world.look(set())
    assert await world.data("a") == {"x": "1"}


async def test_nobody_is_told_under_a_pull_request_that_is_over() -> None:
    world = await proposing()
    edit(world, "a", "9")
    await world.look()
    world.git.human.update(world.git.branches)
    world.forge.pulls[1] = replace(world.forge.pulls[1], state=PullState.MERGED)
    world.pass_time(120)
    edit(world, "a", "10")
    await world.look()
    assert world.forge.comments == {}
