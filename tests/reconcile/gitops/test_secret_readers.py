"""A Secret that pods read through their environment is healed; what the pods have is told apart."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from tests.support.gitops_world import NAMESPACE, GitopsWorld, route

from holdfast.core.gitops.application import Remediation
from holdfast.core.gitops.drift import DriftState
from holdfast.core.object_ref import ObjectRef

SECRET = ObjectRef(api_version="v1", kind="Secret", namespace=NAMESPACE, name="s")


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def secret(value: str) -> str:
    return (
        f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s, namespace: {NAMESPACE}}}\n"
        f"data: {{token: {encoded(value)}}}\n"
    )


async def start_pod(world: GitopsWorld, name: str) -> None:
    """A pod that takes the Secret into its environment now."""
    read = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}}
    item = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [{"name": "server", "image": "a", "env": [read]}]},
    }
    await world.kube.apply(item, manager="kubelet")
    ref = ObjectRef(api_version="v1", kind="Pod", namespace=NAMESPACE, name=name)
    started = world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    running = {"name": "server", "state": {"running": {"startedAt": started}}}

    def run(pod: Any) -> None:  # Any: objects as they come over the wire
        pod.setdefault("status", {})["containerStatuses"] = [running]

    world.kube.edit(ref, run, manager="kubelet", subresource="status")


async def serving(world: GitopsWorld) -> GitopsWorld:
    world.git.commit({"s.yaml": secret("one")})
    await world.sync()
    world.pass_time(60)
    await start_pod(world, "p-1")
    world.pass_time(60)
    await world.reconcile()
    assert world.drifts == []
    return world


def edit(world: GitopsWorld, value: str) -> None:
    change = encoded(value)
    world.kube.edit(SECRET, lambda it: it["data"].update(token=change), manager="kubectl-edit")


async def token(world: GitopsWorld) -> str:
    live: Any = await world.kube.get(SECRET)
    return base64.b64decode(live["data"]["token"]).decode()


async def test_a_secret_that_pods_read_through_env_is_healed_and_nobody_is_accused() -> None:
    world = await serving(GitopsWorld(route(Remediation.SELF_HEAL)))
    edit(world, "evil")
    await world.reconcile()
    assert await token(world) == "one"
    assert not [each for each in world.notices if "fight" in each.type]
    assert DriftState.FIGHTING not in {each.state for each in world.drifts}


async def test_pods_that_started_before_an_edit_that_was_put_back_have_the_right_value() -> None:
    world = await serving(GitopsWorld(route(Remediation.SELF_HEAL)))
    edit(world, "evil")
    await world.reconcile()
    world.pass_time(60)
    result = await world.reconcile()
    assert world.drifts == []
    assert result.status.sync == "synced"


async def test_pods_that_started_while_a_secret_was_edited_are_told_of() -> None:
    world = await serving(GitopsWorld())
    edit(world, "evil")
    await world.reconcile()
    world.pass_time(60)
    await start_pod(world, "p-2")
    world.pass_time(60)
    await world.sync()
    assert await token(world) == "one"
    await world.reconcile()
    (drift,) = world.drifts
    assert not drift.healable
    assert "p-2" in drift.entries[0].evidence and "p-1" not in drift.entries[0].evidence


async def test_pods_that_have_the_value_of_the_commit_before_are_told_of() -> None:
    world = await serving(GitopsWorld())
    world.git.commit({"s.yaml": secret("two")})
    await world.fetch_and_reconcile()
    world.pass_time(60)
    await world.reconcile()
    (drift,) = world.drifts
    assert not drift.healable and "p-1" in drift.entries[0].evidence
    assert await token(world) == "two"


async def test_a_secret_of_an_unknown_past_is_judged_by_when_it_was_written_last() -> None:
    """An inventory of an older version says nothing of what a Secret had before."""
    world = await serving(GitopsWorld())
    edit(world, "two")
    world.git.commit({"s.yaml": secret("two")})
    assert world.context is not None
    state = world.context.state
    known = state.inventory[SECRET]
    state.put_applied(replace(known, data={}))
    await state.commit()
    world.pass_time(60)
    await world.fetch_and_reconcile()
    assert [each.healable for each in world.drifts] == [False]
