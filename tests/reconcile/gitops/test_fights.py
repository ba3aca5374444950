"""A heal that does not last is told for what it is: another writer, or the server's own doing."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from tests.support.gitops_world import World, config_ref, configmap, route

from holdfast.core.drift import Cause
from holdfast.core.gitops.application import Remediation
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.fight import SERVER
from holdfast.core.tree import Fields

A = config_ref("a")
Apply = Callable[..., Awaitable[Fields]]


async def healing(world: World) -> str:
    """Apply, look and heal; returns what is said of the one drift, which is fought over."""
    world.git.commit({"a.yaml": configmap("a", x="One")})
    await world.sync()
    world.pass_time(40)
    await world.look()
    (drift,) = world.drifts
    assert drift.state is DriftState.FIGHTING
    fight = [each for each in world.notices if each.type == "dev.holdfast.drift.fight.v1"]
    return f"{drift.note} {fight[-1].title}. {fight[-1].text}"


async def test_a_server_that_stores_a_field_otherwise_is_not_called_another_writer() -> None:
    world = World(route(Remediation.SELF_HEAL))
    inner: Apply = world.kube.apply

    async def lowered(item: Fields, **more: object) -> Fields:
        return await inner(json.loads(json.dumps(item).replace('"One"', '"one"')), **more)

    world.kube.apply = lowered  # type: ignore[method-assign,assignment]  # a server that rewrites
    told = await healing(world)
    assert "nobody else wrote since, and it still differs in data.x" in told
    assert SERVER in told
    assert "ConfigMap chat/a does not stay as it is written" in told
    assert "stop the other writer" not in told
    assert [entry.cause for entry in world.drifts[0].entries] == [Cause.ADMISSION]


async def test_a_writer_that_is_faster_than_the_next_look_is_named() -> None:
    world = World(route(Remediation.SELF_HEAL))
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
