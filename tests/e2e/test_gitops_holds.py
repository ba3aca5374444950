"""Emergency changes: what somebody does at night stays for a while, and is never forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.e2e.gitops_team import SELF_HEAL, FollowedApplication, Team, running_team
from tests.support.cluster import Cluster
from tests.support.gitea import Gitea
from tests.support.manifests import deployment_yaml, settings_yaml

pytestmark = pytest.mark.cluster

SHORT = 8
"""Seconds of a hold: long enough for a look at it on a busy machine."""


@pytest.fixture(scope="module")
def team(
    cluster: Cluster, gitea: Gitea, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Team]:
    with running_team(cluster, gitea, tmp_path_factory.mktemp("team")) as team:
        yield team


def edit(scene: FollowedApplication) -> None:
    scene.kubectl("set", "env", "deployment/web", "LEVEL=debug")


def level(scene: FollowedApplication) -> str:
    found: str = scene.container("web")["env"][0]["value"]
    return found


def test_a_hold_by_a_command_ends_in_a_pull_request(team: Team) -> None:
    shop = team.follow({"web.yaml": deployment_yaml("web")}, routes=[SELF_HEAL])
    shop.holdfast("pause", shop.id, "--for", f"{SHORT}s", "--reason", "INC-1432 the model hangs")
    edit(shop)
    drift = shop.until_drift("Deployment", "web", "held")
    assert "INC-1432" in drift["note"]
    status = shop.until_status(lambda status: status["held"], "the hold to be told")
    (paused,) = [each for each in status["conditions"] if each["type"] == "Paused"]
    assert "maria" in paused["message"]
    assert "INC-1432" in paused["message"]
    assert "INC-1432" in shop.holdfast("status", shop.id)
    assert level(shop) == "debug"
    pull = shop.until_pull("Deployment", "web")
    changed = shop.changed_files(pull)
    assert "value: debug  # debug floods the disk" in (changed["web.yaml"] or "")
    assert level(shop) == "debug"
    shop.merge(pull)
    shop.until_synced()
    assert level(shop) == "debug"
    assert not shop.status()["held"]


def test_a_hold_on_one_object_leaves_the_others_to_be_healed(team: Team) -> None:
    files = {"web.yaml": deployment_yaml("web"), "settings.yaml": settings_yaml()}
    shop = team.follow(files, routes=[SELF_HEAL])
    name = f"Deployment/{shop.namespace}/web"
    shop.holdfast("pause", shop.id, name, "--for", "1h", "--reason", "INC-7")
    edit(shop)
    shop.until_drift("Deployment", "web", "held")
    shop.patch("configmap", "settings", {"data": {"mode": "slow"}})
    assert shop.until_healed("ConfigMap", "settings")["resolution"] == "self_heal"
    assert level(shop) == "debug"
    shop.holdfast("resume", shop.id, name)
    assert shop.until_healed("Deployment", "web")["resolution"] == "self_heal"
    assert level(shop) == "info"


def test_a_hold_by_annotation_ends_in_a_pull_request(team: Team) -> None:
    shop = team.follow({"web.yaml": deployment_yaml("web")}, routes=[SELF_HEAL])
    until = datetime.now(UTC) + timedelta(seconds=SHORT)
    notes = {
        "holdfast.dev/paused-until": until.isoformat(timespec="seconds"),
        "holdfast.dev/pause-reason": "the model hangs",
        "holdfast.dev/break-glass": "INC-1433",
    }
    change = {
        "metadata": {"annotations": notes},
        "spec": {
            "template": {
                "spec": {
                    "containers": [{"name": "server", "env": [{"name": "LEVEL", "value": "debug"}]}]
                }
            }
        },
    }
    shop.kubectl("patch", "deployment/web", "-p", json.dumps(change))
    drift = shop.until_drift("Deployment", "web", "held")
    assert "INC-1433" in drift["note"]
    assert shop.until_status(lambda status: status["held"], "the hold to be told")
    assert "INC-1433" in shop.holdfast("status", shop.id)
    pull = shop.until_pull("Deployment", "web")
    changed = shop.changed_files(pull)
    assert "value: debug" in (changed["web.yaml"] or "")
    assert "paused-until" not in (changed["web.yaml"] or ""), "a hold is not for Git"
    shop.merge(pull)
    shop.until_synced()
    assert level(shop) == "debug"


def test_a_hold_whose_end_is_a_revert_puts_the_declared_value_back(team: Team) -> None:
    shop = team.follow({"web.yaml": deployment_yaml("web")}, routes=[SELF_HEAL], holdEnd="revert")
    shop.holdfast("pause", shop.id, "--for", f"{SHORT}s", "--reason", "INC-2")
    edit(shop)
    drift = shop.until_drift("Deployment", "web", "held")
    assert level(shop) == "debug"
    over = shop.until_resolved(drift["id"])
    assert over["resolution"] == "reverted"
    assert level(shop) == "info"
    assert shop.repository.pulls() == []
    shop.until_synced()
