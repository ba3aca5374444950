"""Objects that another tool applies: compared with Git, without the marks that only ours carry."""

from __future__ import annotations

from tests.support.gitops_world import NAMESPACE, World, config_ref, configmap, route

from holdfast.core.drift import Cause
from holdfast.core.gitops.application import Remediation


def of_argo(world: World) -> None:
    """Have Argo CD apply ConfigMap `a`, as the first commit declares it."""
    mark = {"argocd.argoproj.io/tracking-id": f"shop:/ConfigMap:{NAMESPACE}/a"}
    metadata = {"name": "a", "namespace": NAMESPACE, "annotations": mark}
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "1"}}
    world.kube.create(item, manager="argocd-controller")  # type: ignore[arg-type]
    world.git.commit({"a.yaml": configmap("a", x="1")})


async def test_an_object_of_another_tool_that_is_as_declared_is_in_sync() -> None:
    world = World(route(Remediation.PULL_REQUEST))
    of_argo(world)
    result = await world.look()
    assert (result.status.sync, result.status.drifted) == ("synced", 0)
    assert world.forge.pulls == {}


async def test_an_edit_of_such_an_object_is_drift_of_that_field_alone() -> None:
    world = World(route(Remediation.REPORT))
    of_argo(world)
    world.kube.edit(config_ref("a"), lambda item: item["data"].update(x="9"), manager="kubectl")
    await world.look()
    (drift,) = world.drifts
    assert [entry.path for entry in drift.entries] == ["data.x"]
    assert drift.causes == (Cause.PERSON,)
