"""The whole controller on a real cluster, with a real repository, as people run it."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.git_host import Origin
from tests.support.gitops_process import application, gitops, install
from tests.support.gitops_world import configmap

HEAL = {"drift": {"routes": [{"name": "all", "remediation": "self-heal"}]}}


def test_it_applies_heals_goes_on_after_a_kill_and_writes_nothing_at_rest(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    install(cluster)
    origin = Origin(tmp_path / "origin.git")
    origin.commit({"app/config.yaml": configmap("config", mode="declared")})
    document = application("shop", namespace, str(origin.path), HEAL, path="app")

    def mode() -> str:
        data = cluster.get("configmap", "config", namespace)["data"]
        return str(data["mode"])

    with gitops(cluster, tmp_path / "run", namespace=namespace) as controller:
        cluster.apply(document)
        status = controller.wait_status("shop", namespace, lambda it: it["sync"] == "synced")
        assert (status["objects"], status["drifted"]) == (1, 0)
        assert mode() == "declared"

        patch = '{"data":{"mode":"edited"}}'
        cluster.kubectl("patch", "configmap", "config", "-n", namespace, "-p", patch)
        controller.wait_until(lambda: mode() == "declared", "the edit to be healed")
        controller.wait_until(
            lambda: "holdfast_drift_resolved_total{" in controller.metrics(), "it to be counted"
        )
        assert controller.ask("GET", "applications").status_code == 200

        controller.restart()
        commit = origin.commit({"app/config.yaml": configmap("config", mode="newer")})
        controller.refresh("shop", namespace)
        controller.wait_until(lambda: mode() == "newer", "the new commit to be applied")
        controller.wait_status("shop", namespace, lambda it: it["revision"] == commit)

        controller.wait_status("shop", namespace, lambda it: it["health"] == "healthy")
        time.sleep(1)
        before = controller.writes(namespace)
        time.sleep(12)  # a fetch at least, in which nothing may be written
        assert controller.writes(namespace) == before

        cluster.kubectl("delete", "applications.holdfast.dev", "shop", "-n", namespace)
        controller.wait_for("left")
        assert mode() == "newer"
        assert controller.stop() == 0
