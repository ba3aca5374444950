"""Objects that another tool applies: compared with Git, without the marks that only ours carry."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.gitops_world import NAMESPACE, GitopsWorld, config_ref, configmap, route

from holdfast.core.drift import Cause
from holdfast.core.errors import RefusedByPolicy
from holdfast.core.gitops.application import Remediation
from holdfast.core.gitops.drift import DriftState


def of_argo(world: GitopsWorld) -> None:
    """Have Argo CD apply ConfigMap `a`, as the first commit declares it."""
    mark = {"argocd.argoproj.io/tracking-id": f"shop:/ConfigMap:{NAMESPACE}/a"}
    metadata = {"name": "a", "namespace": NAMESPACE, "annotations": mark}
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "1"}}
    world.kube.create(item, manager="argocd-controller")  # type: ignore[arg-type]
    world.git.commit({"a.yaml": configmap("a", x="1")})


async def test_an_object_of_another_tool_that_is_as_declared_is_in_sync() -> None:
    world = GitopsWorld(route(Remediation.PULL_REQUEST))
    of_argo(world)
    result = await world.reconcile()
    assert (result.status.sync, result.status.drifted) == ("synced", 0)
    assert world.forge.pulls == {}


async def test_an_edit_of_such_an_object_is_drift_of_that_field_alone() -> None:
    world = GitopsWorld(route(Remediation.REPORT))
    of_argo(world)
    world.kube.edit(config_ref("a"), lambda item: item["data"].update(x="9"), manager="kubectl")
    await world.reconcile()
    (drift,) = world.drifts
    assert [entry.path for entry in drift.entries] == ["data.x"]
    assert drift.causes == (Cause.PERSON,)


@pytest.mark.parametrize("by_pull", [False, True])
@pytest.mark.parametrize("remediation", [Remediation.REPORT, Remediation.REVIEW])
async def test_a_revert_of_such_an_object_is_refused_with_the_reason(
    remediation: Remediation, by_pull: bool
) -> None:
    """Nothing would come of it: no pass writes to what another tool applies."""
    world = GitopsWorld(route(remediation))
    of_argo(world)
    world.kube.edit(config_ref("a"), lambda item: item["data"].update(x="9"), manager="kubectl")
    await world.reconcile()
    (before,) = world.drifts
    with pytest.raises(RefusedByPolicy, match="applies this object, so it is observed"):
        await world.review().revert("ml-platform", before.id, actor="maria", by_pull=by_pull)
    assert world.drifts == [before]
    await world.reconcile()
    assert await world.data("a") == {"x": "9"}


async def test_a_revert_of_what_is_on_hold_is_refused_too() -> None:
    world = GitopsWorld(route(Remediation.REPORT))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    await world.reconcile()
    world.kube.edit(config_ref("a"), lambda item: item["data"].update(x="9"), manager="kubectl")
    await world.reconcile()
    (drift,) = world.drifts
    review = world.review()
    await review.pause(
        review.application("ml-platform", "shop"),
        actor="maria",
        reason="INC-1",
        until=world.clock.now() + timedelta(hours=1),
    )
    with pytest.raises(RefusedByPolicy, match="On hold by") as refusal:
        await review.revert("ml-platform", drift.id, actor="maria")
    assert "holdfast resume" in refusal.value.hint
    assert world.drifts[0].state is not DriftState.APPROVED
