"""The branch of a model moves on: the operator says so, and a pull request bumps the pin.

A real operator asks a hub of ours with the shapes of the Hugging Face Hub's API; the controller,
the forge and the cluster are real, too. Nothing is restarted before the request is merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.gitops_team import Team, running_team
from tests.support.cluster import Cluster
from tests.support.controllers import (
    SERVICES,
    condition,
    install_service_crd,
    running_operator,
)
from tests.support.gitea import Gitea
from tests.support.hub import ModelHub, serve_hub

pytestmark = pytest.mark.cluster
OLD = {"config.json": b"{}", "model.safetensors": b"1" * 2000}
NEW = {"config.json": b"{}", "model.safetensors": b"2" * 2000}


def declared(commit: str, url: str) -> str:
    return f"""\
# The support bot.
apiVersion: holdfast.dev/v1alpha1
kind: InferenceService
metadata:
  name: bot
spec:
  replicas: 1
  env: {{HF_ENDPOINT: "{url}"}}
  modelRevision: {commit}  # reviewed by maria
  modelRef: org/tiny
  resources: {{cpu: 100m, memory: 64Mi}}
"""


@pytest.fixture
def hub() -> Iterator[tuple[ModelHub, str]]:
    hub = ModelHub(files=dict(OLD))
    with serve_hub(hub) as url:
        yield hub, url


@pytest.fixture
def team(cluster: Cluster, gitea: Gitea, tmp_path: Path) -> Iterator[Team]:
    install_service_crd(cluster)
    with running_team(cluster, gitea, tmp_path) as team:
        yield team


# Any: objects of the Kubernetes API.
def test_a_pin_is_reported_bumped_and_served_in_that_order(
    cluster: Cluster, team: Team, hub: tuple[ModelHub, str], tmp_path: Path
) -> None:
    models, url = hub
    first = models.commit
    models_route = {
        "name": "models",
        "match": {"drift": ["model"]},
        "remediation": "pull-request",
    }
    files = {"bot.yaml": declared(first, url)}
    shop = team.follow(files, routes=[models_route], modelHeads=True)
    namespace = shop.namespace

    def moved(status: str) -> dict[str, Any]:
        def says(found: dict[str, Any]) -> bool:
            conditions = (found.get("status") or {}).get("conditions") or ()
            return any(
                each["type"] == "ModelMoved" and each["status"] == status for each in conditions
            )

        return cluster.wait(SERVICES, "bot", namespace, says, 30)

    with running_operator(cluster, namespace, tmp_path, "--model-hub", url) as operator:
        found = moved("False")
        assert condition(found["status"], "ModelMoved")["reason"] == "AtHead"
        assert shop.drifts() == []
        before = cluster.get("deployment", "bot-primary", namespace)["metadata"]["generation"]

        models.move(dict(NEW))
        operator.restart()  # it asks anew when it starts, and in ten minutes otherwise
        found = moved("True")
        model = found["status"]["model"]
        assert (model["commit"], model["branch"], model["head"]) == (first, "main", models.commit)
        pull = shop.until_pull("InferenceService", "bot")
        assert shop.changed_files(pull) == {"bot.yaml": declared(models.commit, url)}
        assert "has moved on. What runs is as Git says." in pull["body"]
        live = cluster.get("deployment", "bot-primary", namespace)
        assert live["metadata"]["generation"] == before
        assert cluster.get(SERVICES, "bot", namespace)["spec"]["modelRevision"] == first

        assert shop.merge(pull)["resolution"] == "codified"
        cluster.wait(
            SERVICES,
            "bot",
            namespace,
            lambda each: each["spec"]["modelRevision"] == models.commit,
            30,
        )
        found = moved("False")
        assert found["status"]["model"]["commit"] == models.commit
        live = cluster.get("deployment", "bot-primary", namespace)
        assert models.commit in str(live["spec"]["template"])
        assert shop.drifts() == []
    events = cluster.objects("events.events.k8s.io", namespace)
    assert len([each for each in events if each["reason"] == "ModelMoved"]) == 1
    assert all("authorization" not in headers for _, headers in models.requests)
