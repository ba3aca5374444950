"""Objects that were somebody else's before: another Application's, or made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.gitops_team import SELF_HEAL, FollowedApplication, Team, running_team
from tests.support.cluster import Cluster
from tests.support.gitea import Gitea
from tests.support.manifests import deployment_yaml, settings_yaml

pytestmark = pytest.mark.cluster


@pytest.fixture
def team(cluster: Cluster, gitea: Gitea, tmp_path: Path) -> Iterator[Team]:
    with running_team(cluster, gitea, tmp_path, "--resync", "1s", "--no-elect") as team:
        yield team


def beside(scene: FollowedApplication, path: str) -> FollowedApplication:
    """Another Application that follows another path of the same repository."""
    team, name = scene.team, f"{scene.name}-beside"
    found = scene.live("Application", scene.name, namespace=team.namespace)
    assert found is not None
    spec = found["spec"]
    team._create("Application", name, spec={**spec, "source": {**spec["source"], "path": path}})
    other = replace(scene, name=name)
    other.until_synced()
    return other


def test_a_deployment_that_moves_between_applications_keeps_its_uid_and_its_pods(
    team: Team,
) -> None:
    web = deployment_yaml("web")
    shop = team.follow(
        {"one/web.yaml": web, "one/a.yaml": settings_yaml("a"), "two/b.yaml": settings_yaml("b")},
        path="one",
    )
    other = beside(shop, "two")
    before = shop.there("Deployment", "web")
    commit = shop.repository.commit({"one/web.yaml": None, "two/web.yaml": web})
    other.until_synced(commit)
    shop.until_synced(commit)
    after = shop.there("Deployment", "web")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["template"] == before["spec"]["template"]
    assert other.label in after["metadata"]["labels"].values()


def test_what_a_person_had_on_an_object_stays_when_it_is_taken_over(team: Team) -> None:
    shop = team.follow({"other.yaml": settings_yaml("other")}, routes=[SELF_HEAL])
    shop.kubectl("create", "configmap", "settings", "--from-literal=mode=slow",
                 "--from-literal=theirs=kept")  # fmt: skip
    commit = shop.repository.commit({"settings.yaml": settings_yaml()})
    drift = shop.until_drift("ConfigMap", "settings", "awaiting-approval", found=True)
    assert [entry["path"] for entry in drift["entries"]] == ["data.theirs"]
    shop.until_looked(times=2)
    assert shop.data("ConfigMap", "settings")["mode"] == "fast"
    assert shop.data("ConfigMap", "settings")["theirs"] == "kept"
    shop.approve("ConfigMap", "settings")
    shop.until_synced(commit)
    assert "theirs" not in shop.data("ConfigMap", "settings")
