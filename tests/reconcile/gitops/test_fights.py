"""A heal that does not last is told for what it is: another writer, or the server's own doing."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route

from holdfast.core.drift import Cause
from holdfast.core.gitops.application import Remediation
from holdfast.core.gitops.drift import DriftState
from holdfast.core.tree import Fields

A = config_ref("a")
Apply = Callable[..., Awaitable[Fields]]


async def healing(world: GitopsWorld) -> str:
    """Apply, look and heal; returns what is said of the one drift, which is fought over."""
    world.git.commit({"a.yaml": configmap("a", x="One")})
    await world.sync()
    world.pass_time(40)
    await world.reconcile()
    (drift,) = world.drifts
    assert drift.state is DriftState.FIGHTING
    fight = [each for each in world.notices if each.type == "dev.holdfast.drift.fight.v1"]
    return f"{drift.note} {fight[-1].title}. {fight[-1].text}"


async def test_a_server_that_stores_a_field_otherwise_is_not_called_another_writer() -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL))
    inner: Apply = world.kube.apply

    async def lowered(item: Fields, **more: object) -> Fields:
        return await inner(json.loads(json.dumps(item).replace('"One"', '"one"')), **more)

    world.kube.apply = lowered  # type: ignore[method-assign,assignment]  # a server that rewrites
    world.git.commit({"a.yaml": configmap("a", x="One")})
    synced = await world.sync()
    assert any(each.reason == "AlteredByAdmission" for each in synced.events)
    world.pass_time(40)
    result = await world.reconcile()
    (drift,) = world.drifts
    assert (drift.state, drift.rounds) == (DriftState.BLOCKED, ())
    assert [entry.cause for entry in drift.entries] == [Cause.ADMISSION]
    assert "admission policy or webhook" in drift.note and "cannot be put back" in drift.note
    assert result.status.sync == "drifted"
    told = [each for each in world.notices if each.type == "dev.holdfast.drift.failed.v1"]
    assert len(told) == 1 and "could not be put back" in told[0].title
    assert not [each for each in world.notices if each.type == "dev.holdfast.drift.fight.v1"]
    writes = len(world.kube.writes)
    for _ in range(5):
        await world.reconcile()
    assert len(world.kube.writes) == writes, "what cannot be healed is not written in a loop"

    world.kube.apply = inner  # type: ignore[method-assign]  # the policy is gone, without an event
    world.pass_time(301)
    await world.reconcile()
    assert (await world.kube.get(A) or {})["data"] == {"x": "One"}
    assert world.drifts == []


async def test_what_a_heal_left_to_admission_is_not_counted_as_put_back() -> None:
    """A person's edit is undone, and yet the value is not the declared one: no heal was made."""
    world = GitopsWorld(route(Remediation.SELF_HEAL))
    inner: Apply = world.kube.apply
    world.git.commit({"a.yaml": configmap("a", x="One")})
    await world.sync()

    async def lowered(item: Fields, **more: object) -> Fields:
        return await inner(json.loads(json.dumps(item).replace('"One"', '"one"')), **more)

    world.kube.apply = lowered  # type: ignore[method-assign,assignment]  # a server that rewrites
    world.kube.edit(A, lambda it: it["data"].update(x="evil"), manager="kubectl-edit")
    await world.reconcile()
    (drift,) = world.drifts
    assert (await world.kube.get(A) or {})["data"] == {"x": "one"}
    assert (drift.state, drift.rounds) == (DriftState.BLOCKED, ())
    assert [entry.cause for entry in drift.entries] == [Cause.ADMISSION]
    assert not [each for each in world.notices if each.type == "dev.holdfast.drift.healed.v1"]


async def test_a_writer_that_is_faster_than_the_next_look_is_named() -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL))
    inner: Apply = world.kube.apply

    async def contested(item: Fields, *, dry_run: bool = False, **more: object) -> Fields:
        made = await inner(item, dry_run=dry_run, **more)
        if not dry_run and more.get("subresource", "") == "":
            world.kube.edit(A, lambda it: it["data"].update(x="two"), manager="rogue-operator")
        return made

    world.kube.apply = contested  # type: ignore[method-assign,assignment]  # another is at it
    told = await healing(world)
    assert "rogue-operator changed data.x as soon as it was written." in told
    assert "holdfast-gitops and rogue-operator fight over" in told
    assert "stop the other writer" in told
    assert "API server" not in told and "admission" not in told


async def healed_after(world: GitopsWorld, key: str, manager: str) -> bool:
    """Have somebody change a field, look a minute later, and say whether it was put back."""
    world.kube.edit(A, lambda item: item["data"].update({key: "theirs"}), manager=manager)
    world.pass_time(60)
    await world.reconcile()
    data = await world.data("a")
    return isinstance(data, dict) and data[key] == "1"


async def test_unrelated_heals_of_one_object_are_no_fight_and_nobody_is_accused() -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL))
    world.git.commit({"a.yaml": configmap("a", v="1", w="1", x="1", z="1")})
    await world.sync()
    for key, manager in zip("vwxz", ("kubectl-edit", "vpa", "script", "kubectl-edit"), strict=True):
        assert await healed_after(world, key, manager)
    # Three writers, one field: nobody puts it back, so it is healed, if a little later.
    for manager in ("kubectl-edit", "vpa", "script", "other"):
        assert await healed_after(world, "x", manager)
    assert not [each for each in world.notices if "fight" in each.type]


async def test_a_fight_over_one_field_keeps_no_other_field_from_being_healed() -> None:
    world = GitopsWorld(route(Remediation.SELF_HEAL))
    world.git.commit({"a.yaml": configmap("a", x="1", z="1")})
    await world.sync()
    rounds = [await healed_after(world, "x", "rogue") for _ in range(4)]
    assert rounds == [True, True, True, False]
    assert await healed_after(world, "z", "kubectl-edit")
    (drift,) = world.drifts
    assert drift.state is DriftState.FIGHTING
    assert "rogue" in drift.note and "kubectl-edit" not in drift.note
    await world.start()  # a restart forgets no fight
    assert not await healed_after(world, "x", "rogue")
    world.pass_time(1800)
    await world.reconcile()
    assert await world.data("a") == {"x": "1", "z": "1"}
