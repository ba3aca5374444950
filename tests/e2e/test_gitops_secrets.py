"""Secrets are planted wherever GitOps meets one, and looked for wherever it shows something."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.gitops_team import PULL, REVIEW, SELF_HEAL, FollowedApplication, Team, running_team
from tests.support.cluster import Cluster
from tests.support.gitea import Gitea
from tests.support.go_programs import IDENTITY, Sops, sops
from tests.support.manifests import deployment_yaml, secret_yaml
from tests.support.planted_secrets import PlantedSecret, Surfaces, planted_secret, planted_value

__all__ = ["sops"]
pytestmark = pytest.mark.cluster

PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.fixture
def team(cluster: Cluster, gitea: Gitea, tmp_path: Path) -> Iterator[Team]:
    with running_team(cluster, gitea, tmp_path, "--log-level", "debug") as team:
        yield team


def story(
    team: Team, sops: Sops, surfaces: Surfaces
) -> tuple[FollowedApplication, list[PlantedSecret]]:
    """Let secrets drift in every way, and be healed, reviewed, proposed, refused and shown."""
    planted = {
        name: planted_secret(name, shape)
        for name, shape in {
            "sealed in Git": "pw-{}",
            "healed": "pw-{}",
            "reviewed": "pw-{}",
            "proposed": "pw-{}",
            "live, and in clear in Git": "pw-{}",
            "live, in a variable": "key-{}",
            "a key of ssh": PEM,
            "a key that was added": PEM,
        }.items()
    }

    def value(name: str) -> str:
        return planted[name].value

    names = ("healed", "reviewed", "proposed")
    files = {
        f"{name}.yaml": sops.encrypt(secret_yaml(name, value("sealed in Git"))) for name in names
    } | {"plain.yaml": secret_yaml("plain", "in-clear"), "web.yaml": deployment_yaml("web")}
    routes = [
        {**SELF_HEAL, "match": {"names": ["healed"]}},
        {**REVIEW, "match": {"names": ["reviewed"]}},
        PULL,
    ]
    shop = team.follow(files, routes=routes)
    shop.put_secret("unused", **{"ssh-privatekey": value("a key of ssh"), "token": "unused"})
    for name in names:
        shop.patch("secret", name, {"stringData": {"password": value(name)}})
    live = {"password": value("live, and in clear in Git"), "more": value("a key that was added")}
    shop.patch("secret", "plain", {"stringData": live})
    shop.kubectl("set", "env", "deployment/web", f"API_KEY={value('live, in a variable')}")
    shop.until_healed("Secret", "healed")
    assert shop.data("Secret", "healed")["password"] == value("sealed in Git")
    pull = shop.until_pull("Secret", "proposed")
    assert value("proposed") in sops.decrypt(shop.changed_files(pull)["proposed.yaml"] or "")
    refused = shop.until_drift("Secret", "plain", "parked")
    drift = shop.until_drift("Secret", "reviewed", "awaiting-approval")
    shop.until_drift("Deployment", "web")
    for words in (
        ("status",), ("status", shop.id, "-o", "json"), ("diff", shop.id),
        ("drift", "list"), ("drift", "list", "-o", "json"), ("drift", "show", drift["id"]),
        ("drift", "show", refused["id"], "-o", "yaml"), ("drift", "explain", drift["id"]),
        ("sync", shop.id, "--dry-run"), ("history", shop.id),
    ):  # fmt: skip
        shop.holdfast(*words)
    surfaces.add("the Application", shop.status())
    shop.approve("Secret", "reviewed")
    shop.until_resolved(drift["id"])
    shop.merge(pull)
    assert shop.data("Secret", "proposed")["password"] == value("proposed")
    tokens = [
        PlantedSecret("the token of the forge", shop.bot.token, shop.bot.token[:20]),
        PlantedSecret("the secret of webhooks", shop.hook_secret, shop.hook_secret),
        PlantedSecret("the key of age", IDENTITY, IDENTITY.rpartition("-1")[2][:20]),
        planted_value("the token of a reviewer", team.controller.token_of("maria")),
    ]
    return shop, [*planted.values(), *tokens]


def test_no_secret_is_seen_anywhere(team: Team, sops: Sops, tmp_path: Path) -> None:
    surfaces = Surfaces()
    shop, canaries = story(team, sops, surfaces)
    controller, repository = shop.controller, shop.repository
    surfaces.add("the commands", *controller.outputs)
    surfaces.add("the figures", controller.metrics())
    for path in (
        "applications", f"applications/{shop.label}", f"applications/{shop.label}/objects",
        f"applications/{shop.label}/diff", f"applications/{shop.label}/plan", "holds",
        "drifts?state=all", "history", "export?what=drifts", "export?what=journal",
    ):  # fmt: skip
        answer = controller.ask("GET", path, token=controller.token_of("maria"))
        assert answer.is_success, answer.text
        surfaces.add(f"HTTP {path}", answer.content)
    surfaces.add("the Application", shop.status())
    for namespace in (shop.namespace, team.namespace):
        surfaces.add("events", shop.cluster.objects("events", namespace))
    for pull in repository.pulls():
        surfaces.add("pull requests", pull, *repository.comments(pull["number"]))
    mirror = tmp_path / "mirror"
    address = repository.url.replace("://", f"://{repository.owner.name}:{repository.owner.token}@")
    subprocess.run(["git", "clone", "--quiet", "--mirror", "--", address, str(mirror)], check=True)
    surfaces.add("what was pushed", every_object(mirror))
    assert controller.stop() == 0
    surfaces.add("the log", controller.log.read_bytes())
    kept = [path for path in sorted(controller.directory.rglob("*")) if path.is_file()]
    ours = [path for path in kept if mirror not in path.parents]
    assert controller.server.db in ours
    for path in ours:
        surfaces.add(f"the file {path.relative_to(controller.directory)}", path.read_bytes())
    for bare in {path.parent for path in ours if path.name == "HEAD" and path.parent != mirror}:
        surfaces.add("the copy of the repository", every_object(bare))
    said = [name for name, text in surfaces.seen.items() if b"proposed" in text]
    assert {"the commands", "the Application", "events", "pull requests", "what was pushed",
            "the log", "the file gitops.db", "HTTP history", "HTTP drifts?state=all",
            "the copy of the repository"} <= {*said}, "these have something to hide"  # fmt: skip
    assert surfaces.leaks(canaries) == []


def every_object(repository: Path) -> bytes:
    """All that a Git repository holds, commits and files, uncompressed."""
    ran = subprocess.run(
        ["git", "cat-file", "--batch", "--batch-all-objects"],
        cwd=repository, capture_output=True, check=True,
    )  # fmt: skip
    return ran.stdout
