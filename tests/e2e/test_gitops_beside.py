"""Beside others: Argo CD, Flux and autoscalers keep what is theirs, as the audit log shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.gitops_team import SELF_HEAL, FollowedApplication, Team, running_team
from tests.support.cluster import Cluster
from tests.support.gitea import Gitea
from tests.support.manifests import deployment_yaml, settings_yaml

pytestmark = pytest.mark.cluster

TOOLS: dict[str, tuple[str, dict[str, dict[str, str]]]] = {
    "argo-cd": (
        "argocd-controller",
        {"annotations": {"argocd.argoproj.io/tracking-id": "shop:/ConfigMap:{namespace}/theirs"}},
    ),
    "flux": (
        "kustomize-controller",
        {"labels": {"kustomize.toolkit.fluxcd.io/name": "shop",
                    "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def team(
    cluster: Cluster, gitea: Gitea, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Team]:
    with running_team(cluster, gitea, tmp_path_factory.mktemp("team"), "--resync", "2s") as team:
        yield team


def put_theirs(cluster: Cluster, namespace: str, tool: str) -> None:
    """Have another tool apply an object, marked as it marks its own."""
    manager, marks = TOOLS[tool]
    metadata: dict[str, Any] = {
        part: {name: text.format(namespace=namespace) for name, text in values.items()}
        for part, values in marks.items()
    }
    path = f"/api/v1/namespaces/{namespace}/configmaps?fieldManager={manager}"
    item = {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", **metadata},
        "data": {"mode": "theirs", "limit": "10"},
    }  # fmt: skip
    cluster.api().request("POST", path, item)


def about(scene: FollowedApplication, name: str) -> list[str]:
    """What we wrote about an object, dry runs and refusals left out."""
    return [f"{event.verb} {event.uri}" for event in scene.written() if event.name == name]


@pytest.mark.parametrize("tool", TOOLS)
def test_an_object_of_another_tool_is_observed_and_never_written(tool: str, team: Team) -> None:
    namespace = team.cluster.create_namespace("theirs")
    put_theirs(team.cluster, namespace, tool)
    files = {"theirs.yaml": settings_yaml("theirs"), "ours.yaml": settings_yaml("ours")}
    shop = team.follow(files, routes=[SELF_HEAL], namespace=namespace, wait=False)
    drift = shop.until_drift("ConfigMap", "theirs")
    assert drift["entries"][0]["path"] == "data.mode"
    shop.until(
        lambda: "never written" in shop.until_drift("ConfigMap", "theirs").get("note", ""),
        "it to be told that the object is another's",
    )
    # A drift is on record before what is missing is created.
    shop.until(lambda: shop.live("ConfigMap", "ours"), "what is ours to be applied")
    assert shop.data("ConfigMap", "ours")["mode"] == "fast"
    shop.holdfast("sync", shop.id, "--force", "--prune")
    shop.until(lambda: shop.live("ConfigMap", "ours"), "the sync to be over")
    shop.repository.commit({"theirs.yaml": settings_yaml("theirs").replace("fast", "calm")})
    shop.until(
        lambda: shop.until_drift("ConfigMap", "theirs")["entries"][0]["desired"] == "calm",
        "the new commit to be seen",
    )
    shop.patch("configmap", "theirs", {"data": {"limit": "99"}})
    shop.until(lambda: len(shop.until_drift("ConfigMap", "theirs")["entries"]) == 2, "the edit")
    shop.holdfast("codify", drift["id"])
    pull = shop.until_pull("ConfigMap", "theirs")
    text = shop.changed_files(pull)["theirs.yaml"] or ""
    assert "mode: theirs" in text
    assert "argocd" not in text
    assert "fluxcd" not in text
    assert about(shop, "theirs") == []
    assert about(shop, "ours") != []


def test_replicas_of_an_autoscaler_are_neither_drift_nor_written(team: Team) -> None:
    shop = team.follow({"web.yaml": deployment_yaml("web", replicas=2)}, routes=[SELF_HEAL])
    shop.until_settled("web")
    shop.kubectl("autoscale", "deployment", "web", "--min=3", "--max=5", "--cpu=50%")
    shop.until(
        lambda: shop.there("Deployment", "web")["spec"]["replicas"] == 3, "the autoscaler to scale"
    )
    shop.kubectl("set", "env", "deployment/web", "LEVEL=debug")
    assert shop.until_healed("Deployment", "web")["resolution"] == "self_heal"
    assert shop.container("web")["env"][0]["value"] == "info"
    assert shop.there("Deployment", "web")["spec"]["replicas"] == 3
    shop.holdfast("sync", shop.id, "--force")
    shop.kubectl("patch", "hpa", "web", "--type=merge", "-p", '{"spec": {"minReplicas": 4}}')
    shop.until(
        lambda: shop.there("Deployment", "web")["spec"]["replicas"] == 4, "the autoscaler to scale"
    )
    shop.until_settled("web")
    before = len(shop.written())
    look_again(shop)
    assert shop.there("Deployment", "web")["spec"]["replicas"] == 4
    assert shop.written(since=before) == []
    fields = [entry["path"] for drift in shop.drifts("all") for entry in drift["entries"]]
    assert "spec.replicas" not in fields
    assert shop.status()["sync"] == "synced"


def look_again(scene: FollowedApplication) -> None:
    """Have everything looked at once more."""
    known = scene.status().get("lastHandledReconcileAt")
    scene.controller.refresh(scene.name, scene.team.namespace)
    scene.until_status(lambda status: status.get("lastHandledReconcileAt") != known, "another look")
