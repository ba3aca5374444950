"""Hundreds of objects that drifted while nobody looked: no storm of writes, requests or words."""

from __future__ import annotations

import pytest
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route

from holdfast.core.gitops.application import Remediation, SyncSpec
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.notification import ChannelLimits, WaitingNotice, make_batch


async def drifted(remediation: Remediation, many: int) -> GitopsWorld:
    """An application whose controller starts to find everything changed."""
    world = GitopsWorld(route(remediation), sync=SyncSpec(automatic=True, prune=True))
    world.git.commit({"all.yaml": "---\n".join(configmap(f"c{n}", x="1") for n in range(many))})
    await world.reconcile()
    for n in range(many):
        world.kube.edit(config_ref(f"c{n}"), lambda item: item["data"].update(x="9"))
    await world.start()
    return world


def messages(world: GitopsWorld) -> int:
    """How many messages a channel gets of what was told so far, once its window is over."""
    waiting = [WaitingNotice(notice=each, since=0.0) for each in world.notices]
    found = make_batch(waiting, now=61.0, limits=ChannelLimits(), tokens=10)
    return len(found.groups) + bool(found.digest)


@pytest.mark.parametrize("many", [120, pytest.param(1_000, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "remediation", [Remediation.SELF_HEAL, Remediation.REVIEW, Remediation.PULL_REQUEST]
)
async def test_drift_of_everything_at_the_start_is_no_storm(
    remediation: Remediation, many: int
) -> None:
    world = await drifted(remediation, many)
    count = len(world.kube.writes)
    for _ in range(2):
        await world.fetch_and_reconcile()
        world.pass_time(61)
    assert [write for write in world.kube.writes[count:] if not write.dry_run] == []
    assert len(world.drifts) == many
    assert len(world.forge.pulls) <= 3
    assert messages(world) <= 3
    lines = [
        line for line, _ in world.ledger_store._entries if line.action in ("parked", "pull-opened")
    ]
    assert len(lines) <= 3
    if remediation is Remediation.SELF_HEAL:
        assert {drift.state for drift in world.drifts} == {DriftState.BLOCKED}
        await world.sync()  # a person who says so gets it
        assert world.drifts == []
