"""Every kind of drift on a real cluster, and what becomes of it: healed, reviewed, proposed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.e2e.gitops_team import PULL, REVIEW, SELF_HEAL, FollowedApplication, Team, running_team
from tests.support.cluster import Cluster
from tests.support.gitea import Gitea
from tests.support.go_programs import Sops, sops
from tests.support.manifests import deployment_yaml, secret_yaml, service_yaml, settings_yaml

__all__ = ["sops"]
pytestmark = pytest.mark.cluster

FIRST, ROTATED = "first-password-of-the-shop", "rotated-password-of-the-shop"
OTHER_DIGEST = "sha256:" + "ab" * 32


def files_of(sops: Sops) -> dict[str, str]:
    """One object for each edit, so that the edits of one application do not meet."""
    return {
        "README.md": "What runs.\n",
        "settings.yaml": settings_yaml(),
        "renewed.yaml": settings_yaml("renewed"),
        "env.yaml": deployment_yaml("env"),
        "args.yaml": deployment_yaml("args"),
        "resources.yaml": deployment_yaml("resources"),
        "image.yaml": deployment_yaml("image"),
        "digest.yaml": deployment_yaml("digest"),
        "gone.yaml": service_yaml("gone"),
        "sealed.yaml": sops.encrypt(secret_yaml("sealed", FIRST)),
        "plain.yaml": secret_yaml("plain", FIRST),
    }


@pytest.fixture(scope="module")
def team(
    cluster: Cluster, gitea: Gitea, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Team]:
    with running_team(cluster, gitea, tmp_path_factory.mktemp("team")) as team:
        yield team


def followed(team: Team, sops: Sops, route: dict[str, str]) -> FollowedApplication:
    scene = team.follow(files_of(sops), routes=[route], own=True, orphans="remediate")
    scene.until_status(lambda status: status["health"] == "healthy", "everything to be healthy")
    return scene


@pytest.fixture(scope="module")
def healed(team: Team, sops: Sops) -> FollowedApplication:
    return followed(team, sops, SELF_HEAL)


@pytest.fixture(scope="module")
def reviewed(team: Team, sops: Sops) -> FollowedApplication:
    return followed(team, sops, REVIEW)


@pytest.fixture(scope="module")
def proposed(team: Team, sops: Sops) -> FollowedApplication:
    return followed(team, sops, PULL)


@dataclass(frozen=True, kw_only=True)
class Edit:
    """What somebody does past Git, what is drift then, and where Git declares it."""

    object: tuple[str, str]
    kind: str
    path: str
    make: Callable[[FollowedApplication], object]
    value: Callable[[FollowedApplication], object]
    """What is live, as far as the edit is about it."""
    file: str
    says: str
    """What the file says once the live value is declared."""


def args_of(scene: FollowedApplication) -> object:
    change = [{"op": "replace", "path": "/spec/template/spec/containers/0/args/1",
               "value": "--max-batch=32"}]  # fmt: skip
    return scene.kubectl("patch", "deployment/args", "--type=json", "-p", json.dumps(change))


SERVER = "spec.template.spec.containers[name=server]"
EDITS = {
    "a value of a ConfigMap": Edit(
        object=("ConfigMap", "settings"),
        kind="configuration",
        path="data.mode",
        make=lambda scene: scene.patch("configmap", "settings", {"data": {"mode": "slow"}}),
        value=lambda scene: scene.data("ConfigMap", "settings"),
        file="settings.yaml",
        says="  # Agreed with the search team.\n  mode: slow\n",
    ),
    "a variable": Edit(
        object=("Deployment", "env"),
        kind="configuration",
        path=f"{SERVER}.env[name=LEVEL].value",
        make=lambda scene: scene.kubectl("set", "env", "deployment/env", "LEVEL=debug"),
        value=lambda scene: scene.container("env")["env"],
        file="env.yaml",
        says="          value: debug  # debug floods the disk\n",
    ),
    "an argument": Edit(
        object=("Deployment", "args"),
        kind="configuration",
        path=f"{SERVER}.args",
        make=args_of,
        value=lambda scene: scene.container("args")["args"],
        file="args.yaml",
        says="        - --max-batch=32\n",
    ),
    "resources": Edit(
        object=("Deployment", "resources"),
        kind="configuration",
        path=f"{SERVER}.resources.limits.memory",
        make=lambda scene: scene.kubectl(
            "set", "resources", "deployment/resources", "--limits=memory=128Mi"
        ),
        value=lambda scene: scene.container("resources")["resources"],
        file="resources.yaml",
        says="limits: {memory: 128Mi}",
    ),
    "an image": Edit(
        object=("Deployment", "image"),
        kind="image",
        path=f"{SERVER}.image",
        make=lambda scene: scene.kubectl(
            "set", "image", "deployment/image", "server=registry.example/web:v2"
        ),
        value=lambda scene: scene.container("image")["image"],
        file="image.yaml",
        says="        image: registry.example/web:v2  # the team's own build\n",
    ),
    "a rotated secret": Edit(
        object=("Secret", "sealed"),
        kind="secret",
        path="data.password",
        make=lambda scene: scene.patch("secret", "sealed", {"stringData": {"password": ROTATED}}),
        value=lambda scene: scene.data("Secret", "sealed"),
        file="sealed.yaml",
        says="password: ENC[",
    ),
}


def drift_facts(drift: dict[str, Any], edit: Edit) -> None:
    assert drift["kinds"] == [edit.kind]
    assert edit.path in [entry["path"] for entry in drift["entries"]]
    assert {entry["writer"]["manager"][:7] for entry in drift["entries"]} == {"kubectl"}
    assert drift["where"].startswith(edit.file)
    assert FIRST not in json.dumps(drift)
    assert ROTATED not in json.dumps(drift)


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_healed_and_on_record(name: str, healed: FollowedApplication) -> None:
    edit = EDITS[name]
    before = edit.value(healed)
    edit.make(healed)
    drift = healed.until_healed(*edit.object)
    drift_facts(drift, edit)
    assert drift["resolution"] == "self_heal"
    assert edit.value(healed) == before
    healed.until_synced()


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_waits_for_its_approval_and_is_put_back(
    name: str, reviewed: FollowedApplication
) -> None:
    edit = EDITS[name]
    before = edit.value(reviewed)
    edit.make(reviewed)
    edited = edit.value(reviewed)
    drift = reviewed.until_drift(*edit.object, "awaiting-approval")
    drift_facts(drift, edit)
    assert edit.value(reviewed) == edited
    drift = reviewed.approve(*edit.object)
    over = reviewed.until_resolved(drift["id"])
    assert (over["resolution"], over["decided_by"][:5]) == ("approved", "maria")
    assert edit.value(reviewed) == before


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_proposed_and_merging_it_restarts_nothing(
    name: str, proposed: FollowedApplication, sops: Sops
) -> None:
    edit = EDITS[name]
    edit.make(proposed)
    edited = edit.value(proposed)
    pull = proposed.until_pull(*edit.object)
    changed = proposed.changed_files(pull)
    assert list(changed) == [edit.file]
    text = changed[edit.file] or ""
    assert edit.says in text
    assert ROTATED not in text + pull["title"] + pull["body"]
    if edit.kind == "secret":
        assert f"password: {ROTATED}" in sops.decrypt(text)
    assert {each["name"] for each in pull["labels"]} == {"holdfast", f"drift/{edit.kind}"}
    before, runs = proposed.there(*edit.object), proposed.until_settled(edit.object[1])
    over = proposed.merge(pull)
    assert over["resolution"] == "codified"
    after = proposed.there(*edit.object)
    assert edit.value(proposed) == edited
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after.get("spec") == before.get("spec")
    assert proposed.until_settled(edit.object[1]) == runs


def test_a_deleted_object_comes_back(healed: FollowedApplication) -> None:
    healed.kubectl("delete", "service", "gone")
    drift = healed.until_healed("Service", "gone")
    assert (drift["kinds"], drift["resolution"]) == (["resource"], "self_heal")
    assert healed.there("Service", "gone")["spec"]["ports"][0]["port"] == 80


def test_a_deleted_object_comes_back_once_that_is_approved(reviewed: FollowedApplication) -> None:
    reviewed.kubectl("delete", "service", "gone")
    drift = reviewed.approve("Service", "gone")
    assert drift["kinds"] == ["resource"]
    assert reviewed.until_resolved(drift["id"])["resolution"] == "approved"
    reviewed.there("Service", "gone")


def test_a_deletion_is_proposed_and_merging_it_leaves_the_object_gone(
    proposed: FollowedApplication,
) -> None:
    proposed.kubectl("delete", "service", "gone")
    pull = proposed.until_pull("Service", "gone")
    assert proposed.changed_files(pull) == {"gone.yaml": None}
    proposed.merge(pull)
    assert proposed.live("Service", "gone") is None
    assert "gone.yaml" not in proposed.repository.files()


def replaced(scene: FollowedApplication) -> str:
    """Have somebody delete an object and make another under its name; give its uid."""
    with scene.controller.frozen():
        scene.kubectl("delete", "configmap", "renewed")
        scene.kubectl("create", "configmap", "renewed", "--from-literal=mode=other")
        uid: str = scene.there("ConfigMap", "renewed")["metadata"]["uid"]
    return uid


def test_an_object_that_was_replaced_is_made_as_declared(healed: FollowedApplication) -> None:
    uid = replaced(healed)
    drift = healed.until_healed("ConfigMap", "renewed")
    assert "resource" in drift["kinds"]
    assert drift["resolution"] == "self_heal"
    assert healed.data("ConfigMap", "renewed") == {"mode": "fast", "limit": "10"}
    assert healed.there("ConfigMap", "renewed")["metadata"]["uid"] == uid
    healed.until_synced()


def test_an_object_that_was_replaced_waits_for_its_approval(reviewed: FollowedApplication) -> None:
    replaced(reviewed)
    reviewed.until_drift("ConfigMap", "renewed", "awaiting-approval")
    assert reviewed.data("ConfigMap", "renewed") == {"mode": "other"}
    drift = reviewed.approve("ConfigMap", "renewed")
    assert reviewed.until_resolved(drift["id"])["resolution"] == "approved"
    assert reviewed.data("ConfigMap", "renewed") == {"mode": "fast", "limit": "10"}


def test_an_object_that_was_replaced_cannot_be_proposed_and_is_put_back_by_a_command(
    proposed: FollowedApplication,
) -> None:
    """A file declares the old object as well as the new one."""
    replaced(proposed)
    drift = proposed.until_drift("ConfigMap", "renewed", "parked")
    assert "made anew" in drift["note"]
    assert not drift.get("url")
    proposed.holdfast("revert", drift["id"])
    assert proposed.until_resolved(drift["id"])["resolution"] == "reverted"
    assert proposed.data("ConfigMap", "renewed") == {"mode": "fast", "limit": "10"}


def test_what_was_made_without_git_goes(healed: FollowedApplication) -> None:
    healed.kubectl("create", "configmap", "stray", "--from-literal=made=by-hand")
    drift = healed.until_healed("ConfigMap", "stray")
    assert (drift["kinds"], drift["resolution"]) == (["resource"], "self_heal")
    assert healed.live("ConfigMap", "stray") is None


def test_what_was_made_without_git_goes_once_that_is_approved(
    reviewed: FollowedApplication,
) -> None:
    reviewed.kubectl("create", "configmap", "stray", "--from-literal=made=by-hand")
    drift = reviewed.approve("ConfigMap", "stray")
    assert reviewed.until_resolved(drift["id"])["resolution"] == "approved"
    assert reviewed.live("ConfigMap", "stray") is None


def test_what_was_made_without_git_is_proposed_and_declared_from_then_on(
    proposed: FollowedApplication,
) -> None:
    proposed.kubectl("create", "configmap", "stray", "--from-literal=made=by-hand")
    uid = proposed.there("ConfigMap", "stray")["metadata"]["uid"]
    pull = proposed.until_pull("ConfigMap", "stray")
    assert list(proposed.changed_files(pull)) == ["configmap-stray.yaml"]
    proposed.merge(pull)
    proposed.until(
        lambda: "holdfast.dev/application" in labels_of(proposed, "ConfigMap", "stray"),
        "the stray object to be taken over",
    )
    assert proposed.data("ConfigMap", "stray") == {"made": "by-hand"}
    assert proposed.there("ConfigMap", "stray")["metadata"]["uid"] == uid


def labels_of(scene: FollowedApplication, kind: str, name: str) -> dict[str, str]:
    found: dict[str, str] = scene.there(kind, name)["metadata"].get("labels") or {}
    return found


def another_digest(scene: FollowedApplication) -> None:
    """Have the pods of a Deployment run another image under the same tag."""
    (pod,) = scene.cluster.objects("pods", scene.namespace, "app=digest")
    name = pod["metadata"]["name"]
    scene.kubectl("annotate", "pod", name, f"testbed.holdfast.dev/image-digest={OTHER_DIGEST}")


@pytest.mark.parametrize("route", ["healed", "reviewed"])
def test_pods_that_run_another_image_are_told_of_and_nothing_is_written(
    route: str, request: pytest.FixtureRequest
) -> None:
    scene: FollowedApplication = request.getfixturevalue(route)
    scene.until_settled("digest")
    another_digest(scene)
    drift = scene.until_drift("Deployment", "digest", "parked")
    assert (drift["kinds"], drift["healable"]) == (["image"], False)
    assert drift["entries"][0]["live"] == f"registry.example/web:v1@{OTHER_DIGEST}"
    assert "its pods are not" in drift["note"]
    generation = scene.there("Deployment", "digest")["metadata"]["generation"]
    assert generation == 1


def test_pods_that_run_another_image_are_proposed_as_a_pin(proposed: FollowedApplication) -> None:
    proposed.until_settled("digest")
    another_digest(proposed)
    pull = proposed.until_pull("Deployment", "digest")
    changed = proposed.changed_files(pull)
    assert list(changed) == ["digest.yaml"]
    pinned = f"registry.example/web:v1@{OTHER_DIGEST}"
    assert f"image: {pinned}  # the team's own build" in (changed["digest.yaml"] or "")
    assert "its pods are replaced once" in pull["body"]
    assert proposed.merge(pull)["resolution"] == "codified"
    proposed.until(lambda: proposed.container("digest")["image"] == pinned, "the image be pinned")
    proposed.until_settled("digest")
    assert [drift for drift in proposed.drifts() if drift["object"]["name"] == "digest"] == []


def test_a_secret_that_stands_in_git_in_clear_is_put_back(healed: FollowedApplication) -> None:
    healed.patch("secret", "plain", {"stringData": {"password": ROTATED}})
    assert healed.until_healed("Secret", "plain")["resolution"] == "self_heal"
    assert healed.data("Secret", "plain")["password"] == FIRST


def test_a_secret_in_clear_is_put_back_once_that_is_approved(reviewed: FollowedApplication) -> None:
    reviewed.patch("secret", "plain", {"stringData": {"password": ROTATED}})
    drift = reviewed.approve("Secret", "plain")
    reviewed.until_resolved(drift["id"])
    assert reviewed.data("Secret", "plain")["password"] == FIRST


def test_a_secret_in_clear_is_never_proposed(proposed: FollowedApplication) -> None:
    proposed.patch("secret", "plain", {"stringData": {"password": ROTATED}})
    drift = proposed.until_drift("Secret", "plain", "parked")
    assert "in clear" in drift["note"]
    assert not drift.get("url")
    branches = [each["name"] for each in proposed.repository.ask("GET", "/branches")]
    assert not [name for name in branches if "plain" in name]
    assert proposed.data("Secret", "plain")["password"] == ROTATED
