"""The controller as a process: webhooks, kills, a ledger elsewhere, and what it costs at rest."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.e2e.gitops_team import PULL, REVIEW, SELF_HEAL, FollowedApplication, Team, running_team
from tests.support.cluster import Cluster
from tests.support.gitea import Gitea
from tests.support.manifests import (
    GATEWAY_TOPIC,
    corpus_items,
    corpus_items_in,
    manifests,
    settings_yaml,
)

from holdfast.core.ownership.canonical import value_at
from holdfast.wire.yaml import write_document

pytestmark = pytest.mark.cluster

ALONE = ("--resync", "1s", "--no-elect")
"""Nobody waits for the lease of one that was killed."""
AUTOMANAGED = "v1.traps.mlp.example"


@pytest.fixture
def team(cluster: Cluster, gitea: Gitea, tmp_path: Path) -> Iterator[Team]:
    with running_team(cluster, gitea, tmp_path, *ALONE) as team:
        yield team


def tell(scene: FollowedApplication, secret: str) -> int:
    """Send what the forge sends after a push, signed with a secret; give the answer's status."""
    body = json.dumps(
        {"ref": "refs/heads/main", "repository": {"clone_url": scene.repository.url}}
    ).encode()
    headers = {
        "X-Gitea-Event": "push",
        "X-Gitea-Delivery": hashlib.sha256(secret.encode()).hexdigest()[:16],
        "X-Gitea-Signature": hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(),
        "Content-Type": "application/json",
    }
    address = f"{scene.controller.url}/hooks/gitea"
    return httpx2.post(address, content=body, headers=headers, timeout=30).status_code


def test_a_push_is_applied_at_once_when_the_forge_tells_of_it(team: Team) -> None:
    shop = team.follow({"settings.yaml": settings_yaml()}, interval="1h")
    commit = shop.repository.commit({"settings.yaml": settings_yaml().replace("fast", "calm")})
    shop.until_synced(commit)
    assert shop.data("ConfigMap", "settings")["mode"] == "calm"

    quiet = team.follow({"settings.yaml": settings_yaml()}, interval="1h", watched=False)
    known = quiet.status()["fetched"]
    commit = quiet.repository.commit({"settings.yaml": settings_yaml().replace("fast", "calm")})
    assert tell(quiet, "not-the-secret") == 401
    quiet.until_looked(times=2)
    assert quiet.status()["fetched"] == known
    assert quiet.data("ConfigMap", "settings")["mode"] == "fast"
    assert tell(quiet, quiet.hook_secret) == 202
    quiet.until_synced(commit)
    assert quiet.data("ConfigMap", "settings")["mode"] == "calm"


@pytest.mark.parametrize("ledger", [pytest.param("store", marks=pytest.mark.long), "postgresql"])
def test_nothing_is_lost_when_it_is_killed(
    ledger: str, cluster: Cluster, gitea: Gitea, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options = [*ALONE]
    if ledger == "postgresql":
        key = tmp_path / "key"
        key.write_bytes(b"k" * 32)
        options += ["--ledger", request.getfixturevalue("postgres"), "--key-file", str(key)]
    with running_team(cluster, gitea, tmp_path, *options) as team:
        files = {
            f"{name}.yaml": settings_yaml(name) for name in ("healed", "asked", "proposed", "held")
        }
        routes = [
            {**SELF_HEAL, "match": {"names": ["healed", "held"]}},
            {**REVIEW, "match": {"names": ["asked"]}},
            PULL,
        ]
        shop = team.follow(files, routes=routes)
        shop.holdfast("pause", shop.id, f"ConfigMap/{shop.namespace}/held", "--for", "1h",
                      "--reason", "INC-3")  # fmt: skip
        for name in ("asked", "proposed", "held"):
            shop.patch("configmap", name, {"data": {"mode": "slow"}})
        pull = shop.until_pull("ConfigMap", "proposed")
        asked = shop.until_drift("ConfigMap", "asked", "awaiting-approval")
        shop.until_drift("ConfigMap", "held", "held")
        shop.controller.kill()
        shop.patch("configmap", "healed", {"data": {"mode": "slow"}})
        shop.patch("configmap", "proposed", {"data": {"mode": "slower"}})
        shop.controller.start()
        assert shop.until_healed("ConfigMap", "healed")["resolution"] == "self_heal"
        held = shop.until_drift("ConfigMap", "held", "held")
        assert "INC-3" in held["note"]
        assert shop.data("ConfigMap", "held")["mode"] == "slow"
        again = shop.until_drift("ConfigMap", "asked", "awaiting-approval")
        assert (again["id"], again["plan"]) == (asked["id"], asked["plan"])
        shop.holdfast("approve", asked["id"], "--plan-digest", asked["plan"])
        assert shop.until_resolved(asked["id"])["resolution"] == "approved"
        assert shop.data("ConfigMap", "asked")["mode"] == "fast"
        shop.until(
            lambda: "mode: slower" in (shop.changed_files(pull).get("proposed.yaml") or ""),
            "the pull request to be brought up to date",
        )
        assert [each["number"] for each in shop.repository.pulls()] == [pull["number"]]


def test_when_it_is_killed_in_the_middle_of_a_sync_the_next_one_ends_it(team: Team) -> None:
    files = {f"c{number}.yaml": settings_yaml(f"c{number}") for number in range(60)}
    shop = team.follow(files, wait=False)
    shop.until(lambda: shop.live("ConfigMap", "c1"), "the sync to begin")
    shop.controller.kill()
    shop.controller.start()
    shop.until_synced()
    shop.until_looked()
    assert shop.drifts("all") == []
    created = [event.name for event in shop.written() if event.code == 201]
    assert len(created) == len({*created})
    assert all(shop.live("ConfigMap", f"c{number}") for number in range(60))


def assert_at_rest(scene: FollowedApplication, looks: int = 4) -> None:
    """Look at everything several times; nothing is written, and nothing is drift."""
    before = everything_written(scene)
    scene.until_looked(times=looks)
    assert everything_written(scene) == before
    assert scene.drifts("all") == []


def everything_written(scene: FollowedApplication) -> list[str]:
    """What we wrote anywhere: a declared object may be in any namespace, or in none."""
    found = scene.cluster.audit_events(user_agent="holdfast-gitops")
    return [
        f"{event.verb} {event.uri}"
        for event in found
        if event.wrote and event.resource not in ("leases", "events")
        and event.namespace != scene.team.namespace
        and (event.namespace == scene.namespace or scene.namespace == "default")
    ]  # fmt: skip


def test_at_rest_it_writes_nothing_and_after_a_kill_it_sees_no_drift(team: Team) -> None:
    """Some hundred objects of the built-in kinds, with all that the cluster makes of them."""
    namespace = team.cluster.create_namespace("corpus")
    files = {
        f"{index:03}.yaml": write_document(item)
        for index, item in enumerate(corpus_items_in(namespace))
    }
    assert len(files) > 100
    shop = team.follow(files, routes=[SELF_HEAL], namespace=namespace, wait=False)
    shop.until_synced(timeout=90)
    shop.until(settled(shop), "what runs to settle", timeout=60)
    assert_at_rest(shop)
    status = shop.cluster.audit_events(user_agent="holdfast-gitops", namespace=team.namespace,
                                       resource="applications/status")  # fmt: skip
    shop.until_looked(times=2)
    assert len(status) < 60, "the status is written when it changes, not at each look"
    shop.controller.restart()
    shop.until_looked()
    assert_at_rest(shop, looks=2)


@pytest.mark.long
def test_the_whole_corpus_is_at_rest_as_one_application(gitea: Gitea, tmp_path: Path) -> None:
    """On a cluster of its own: it declares what a cluster has but one of."""
    cluster = Cluster.join(tmp_path / "cluster")
    try:
        (tmp_path / "run").mkdir()
        with running_team(cluster, gitea, tmp_path / "run", "--resync", "2s", "--no-elect") as team:
            files = dict(corpus())
            shop = team.follow(files, routes=[SELF_HEAL], namespace="default", wait=False)
            shop.until_synced(timeout=100)
            assert shop.status()["objects"] == len(corpus_items(without=(GATEWAY_TOPIC,))) - 1
            shop.until_looked(times=3)
            assert_at_rest(shop)
            shop.controller.restart()
            shop.until_looked()
            assert_at_rest(shop)
            team.scenes.clear()
    finally:
        cluster.stop()


def corpus() -> Iterator[tuple[str, str]]:
    """The files of the corpus, but for one object.

    The API server keeps that one itself from when there is the definition that it is about, which
    here is applied first; it would be a fight.
    """
    for file in manifests():
        kept = [item for item in file.items if value_at(item, ("metadata", "name")) != AUTOMANAGED]
        if file.topic != GATEWAY_TOPIC:
            whole = len(kept) == len(file.items)
            text = file.path.read_text() if whole else "---\n".join(map(write_document, kept))
            yield f"{file.topic}/{file.path.name}", text


def settled(scene: FollowedApplication) -> object:
    def asked() -> bool:
        found = scene.cluster.objects("deployments", scene.namespace)
        return all(
            each["status"].get("observedGeneration") == each["metadata"]["generation"]
            for each in found
        )

    return asked
