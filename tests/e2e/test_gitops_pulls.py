"""The life of a pull request about drift, on a real forge, and the layers that it edits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.gitops_team import PULL, FollowedApplication, Team, running_team
from tests.support.cluster import Cluster
from tests.support.gitea import Gitea, GiteaError
from tests.support.manifests import deployment_yaml, service_yaml, settings_yaml

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def team(
    cluster: Cluster, gitea: Gitea, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Team]:
    with running_team(cluster, gitea, tmp_path_factory.mktemp("team")) as team:
        yield team


@pytest.fixture(scope="module")
def shop(team: Team) -> FollowedApplication:
    """An application whose objects belong to one story each."""
    names = ("gone", "twice", "edited", "closed", "reverted")
    return team.follow({f"{name}.yaml": settings_yaml(name) for name in names}, routes=[PULL])


def set_mode(scene: FollowedApplication, name: str, mode: str) -> None:
    scene.patch("configmap", name, {"data": {"mode": mode}})


def of_branch(scene: FollowedApplication, name: str) -> list[tuple[int, str]]:
    """The pull requests about an object: their numbers and states."""
    return sorted(
        (pull["number"], "merged" if pull["merged"] else pull["state"])
        for pull in scene.repository.pulls()
        if pull["head"]["ref"].endswith(f"-{name}")
        or pull["head"]["label"].endswith(f"-{name}")
    )  # fmt: skip


def has_branch(scene: FollowedApplication, name: str) -> bool:
    """True while there is such a branch, and while Gitea is busy with deleting it."""
    try:
        return scene.repository.head(name) is not None
    except GiteaError as said:
        if said.status == 500:
            return True
        raise


def test_a_pull_request_is_closed_by_itself_when_the_drift_is_gone(
    shop: FollowedApplication,
) -> None:
    set_mode(shop, "gone", "slow")
    pull = shop.until_pull("ConfigMap", "gone")
    set_mode(shop, "gone", "fast")
    shop.until(lambda: shop.repository.pull(pull["number"])["state"] == "closed", "it to be closed")
    assert not shop.repository.pull(pull["number"])["merged"]
    shop.until(lambda: not has_branch(shop, pull["head"]["ref"]), "its branch to go")
    assert any("is gone" in text for text in shop.repository.comments(pull["number"]))
    assert shop.until_healed("ConfigMap", "gone")["resolution"] == "external"


def test_a_second_drift_of_an_object_updates_the_same_pull_request(
    shop: FollowedApplication,
) -> None:
    set_mode(shop, "twice", "slow")
    pull = shop.until_pull("ConfigMap", "twice")
    shop.patch("configmap", "twice", {"data": {"mode": "slower", "limit": "20"}})

    def updated() -> bool:
        text = shop.changed_files(pull).get("twice.yaml") or ""
        return "mode: slower" in text and 'limit: "20"  # per second' in text

    shop.until(updated, "the branch to be brought up to date")
    shop.until(lambda: "data.limit" in shop.repository.pull(pull["number"])["body"], "its text")
    assert of_branch(shop, "twice") == [(pull["number"], "open")]
    assert shop.merge(pull)["resolution"] == "codified"
    assert shop.data("ConfigMap", "twice") == {"mode": "slower", "limit": "20"}


def test_what_a_person_pushed_to_the_branch_stays(shop: FollowedApplication) -> None:
    set_mode(shop, "edited", "slow")
    pull = shop.until_pull("ConfigMap", "edited")
    branch = pull["head"]["ref"]
    maria = shop.repository.add_member("maria")
    theirs = shop.repository.commit(
        {"edited.yaml": settings_yaml("edited").replace("mode: fast", "mode: calm")},
        branch=branch, message="Better so", by=maria,
    )  # fmt: skip
    set_mode(shop, "edited", "slower")
    number = pull["number"]
    shop.until(lambda: shop.repository.comments(number), "a comment in place of a push")
    assert shop.repository.head(branch) == theirs
    (said,) = shop.repository.comments(number)
    assert "slower" in said
    shop.repository.merge(number)
    assert "mode: calm" in shop.repository.files()["edited.yaml"]

    def proposed_anew() -> bool:
        (drift,) = [each for each in shop.drifts() if each["object"]["name"] == "edited"]
        return (
            drift["entries"][0]["desired"] == "calm" and of_branch(shop, "edited")[-1][1] == "open"
        )

    shop.until(proposed_anew, "what is live to be proposed in place of what was merged")
    assert shop.repository.comments(number) == [said]


def test_a_pull_request_that_a_person_closed_is_not_opened_again(shop: FollowedApplication) -> None:
    set_mode(shop, "closed", "slow")
    pull = shop.until_pull("ConfigMap", "closed")
    shop.repository.close(pull["number"])
    drift = shop.until_drift("ConfigMap", "closed", "rejected")
    assert "was closed" in drift["note"]
    shop.controller.refresh(shop.name, shop.team.namespace)
    shop.until_status(lambda status: status.get("lastHandledReconcileAt"), "another look")
    assert of_branch(shop, "closed") == [(pull["number"], "closed")]
    assert shop.data("ConfigMap", "closed")["mode"] == "slow"
    set_mode(shop, "closed", "slower")
    again = shop.until_pull("ConfigMap", "closed")
    assert again["number"] != pull["number"], "another value is another question"


def test_a_merged_decision_puts_the_declared_value_back(shop: FollowedApplication) -> None:
    set_mode(shop, "reverted", "slow")
    shop.until_pull("ConfigMap", "reverted")
    (drift,) = [each for each in shop.drifts() if each["object"]["name"] == "reverted"]
    shop.holdfast("revert", drift["id"], "--via", "pr")
    pull = shop.until_pull("ConfigMap", "reverted", pull="revert")
    (file,) = shop.changed_files(pull)
    assert file == f".holdfast/decisions/{drift['id']}.yaml"
    shop.repository.merge(pull["number"])
    assert shop.until_resolved(drift["id"])["resolution"] == "reverted"
    assert shop.data("ConfigMap", "reverted")["mode"] == "fast"


OVERLAY = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- base
- service.yaml
images:
- name: registry.example/web
  newTag: v7  # what QA let pass
patches:
- path: replicas.yaml
"""
BASE = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- web.yaml
"""
REPLICAS = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 1  # one is enough at night
"""
LAYERS = {
    "an image, in the overlay's list": (
        ("set", "image", "deployment/web", "server=registry.example/web:v8"),
        "prod/kustomization.yaml",
        "  newTag: v8  # what QA let pass\n",
    ),
    "replicas, in the patch": (
        ("scale", "deployment/web", "--replicas=2"),
        "prod/replicas.yaml",
        "  replicas: 2  # one is enough at night\n",
    ),
    "a variable, in the base": (
        ("set", "env", "deployment/web", "LEVEL=debug"),
        "prod/base/web.yaml",
        "          value: debug  # debug floods the disk\n",
    ),
}


@pytest.fixture(scope="module")
def layered(team: Team) -> FollowedApplication:
    files = {
        "prod/kustomization.yaml": OVERLAY,
        "prod/replicas.yaml": REPLICAS,
        "prod/service.yaml": service_yaml("web"),
        "prod/base/kustomization.yaml": BASE,
        "prod/base/web.yaml": deployment_yaml("web"),
    }
    scene = team.follow(files, routes=[PULL], path="prod")
    assert scene.container("web")["image"] == "registry.example/web:v7"
    return scene


@pytest.mark.parametrize("case", LAYERS)
def test_each_value_is_declared_in_the_layer_that_sets_it(
    case: str, layered: FollowedApplication
) -> None:
    call, file, says = LAYERS[case]
    layered.until_settled("web")
    layered.kubectl(*call)
    runs = layered.until_settled("web")
    pull = layered.until_pull("Deployment", "web")
    changed = layered.changed_files(pull)
    assert list(changed) == [file]
    assert says in (changed[file] or "")
    spec = layered.there("Deployment", "web")["spec"]
    assert layered.merge(pull)["resolution"] == "codified"
    layered.until_synced()
    assert layered.there("Deployment", "web")["spec"] == spec
    assert layered.until_settled("web") == runs


def test_what_several_are_made_of_is_left_alone_and_patched_in_the_overlay(team: Team) -> None:
    files = {
        "base/kustomization.yaml": BASE,
        "base/web.yaml": deployment_yaml("web"),
        "overlays/eu/kustomization.yaml": "resources:\n- ../../base\n",
    }
    shop = team.follow(files, routes=[PULL], path="overlays/eu")
    shop.kubectl("set", "env", "deployment/web", "LEVEL=debug")
    pull = shop.until_pull("Deployment", "web")
    changed = shop.changed_files(pull)
    assert list(changed) == ["overlays/eu/kustomization.yaml"]
    assert "LEVEL" in (changed["overlays/eu/kustomization.yaml"] or "")
    assert "outside the application's path" in pull["body"]
    assert shop.merge(pull)["resolution"] == "codified"
    shop.until_synced()
