"""The whole controller on a real cluster, with a real repository, as people run it."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import httpx2
from tests.support.cluster import Cluster
from tests.support.controllers import application_of, install_application_crd, running_gitops
from tests.support.git_host import BareRepository
from tests.support.gitops_world import configmap

HEAL = {"drift": {"routes": [{"name": "all", "remediation": "self-heal"}]}}


def test_it_applies_heals_goes_on_after_a_kill_and_writes_nothing_at_rest(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    install_application_crd(cluster)
    origin = BareRepository(tmp_path / "origin.git")
    origin.commit({"app/config.yaml": configmap("config", mode="declared")})
    document = application_of("shop", namespace, str(origin.path), HEAL, path="app")

    def mode() -> str:
        data = cluster.get("configmap", "config", namespace)["data"]
        return str(data["mode"])

    with running_gitops(cluster, tmp_path / "run", namespace=namespace, elect=False) as controller:
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
        figures = controller.metrics()
        named = f'name="shop",namespace="{namespace}"'
        assert f"holdfast_git_fetch_overdue_timestamp_seconds{{{named},repo=" in figures
        assert f"holdfast_application_pass_due_timestamp_seconds{{{named}}}" in figures
        assert 'leader_election_master_status{name="holdfast-gitops"} 1.0' in figures
        lines = controller.log.read_text().splitlines()
        told = [json.loads(line) for line in lines if '"transition"' in line]
        assert told and {line["project"] for line in told} == {document["spec"]["project"]}

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


def test_a_second_controller_waits_and_goes_on_where_the_first_ended(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    install_application_crd(cluster)
    origin = BareRepository(tmp_path / "origin.git")
    origin.commit({"config.yaml": configmap("config", mode="declared")})
    with (
        running_gitops(cluster, tmp_path / "one", namespace=namespace) as first,
        running_gitops(cluster, tmp_path / "two", namespace=namespace, until="") as second,
    ):
        second.wait_for("waiting-for-lease")
        ready = httpx2.get(f"{second.url}/readyz", timeout=10)
        assert ready.status_code == 503
        assert "leads" in ready.text
        assert second.ask("GET", "applications").status_code == 503
        assert httpx2.get(f"{first.url}/readyz", timeout=10).status_code == 200
        cluster.apply(application_of("shop", namespace, str(origin.path), HEAL))
        first.wait_status("shop", namespace, lambda it: it["sync"] == "synced")
        assert first.stop() == 0
        second.wait_for("working")
        patch = '{"data":{"mode":"edited"}}'
        cluster.kubectl("patch", "configmap", "config", "-n", namespace, "-p", patch)
        second.wait_until(
            lambda: cluster.get("configmap", "config", namespace)["data"]["mode"] == "declared",
            "the edit to be healed",
        )


def test_who_takes_no_lease_gives_way_to_who_does(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    install_application_crd(cluster)
    with (
        running_gitops(cluster, tmp_path / "alone", namespace=namespace, elect=False) as alone,
        running_gitops(cluster, tmp_path / "elected", namespace=namespace) as elected,
    ):
        assert alone.process.wait(60) != 0, "somebody took the Lease"
        assert "took the lease" in alone.log.read_text()
        before = elected.writes(namespace)
        alone.start(until="")
        assert alone.process.wait(60) != 0, "somebody renews it"
        assert "renews it" in alone.log.read_text()
        assert elected.writes(namespace) == before
        assert elected.process.poll() is None


def test_applications_from_files_with_the_ledger_in_postgresql(
    cluster: Cluster, namespace: str, postgres: str, tmp_path: Path
) -> None:
    origin = BareRepository(tmp_path / "origin.git")
    origin.commit({"config.yaml": configmap("config", mode="declared")})
    document = application_of("shop", "", str(origin.path), {"namespace": namespace, **HEAL})
    del document["metadata"]["namespace"]
    files = tmp_path / "applications"
    files.mkdir()
    (files / "shop.json").write_text(json.dumps(document))
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    options = ("-f", str(files), "--ledger", postgres, "--key-file", str(key))
    with running_gitops(cluster, tmp_path / "run", *options, elect=False) as controller:

        def shop() -> str:
            answer = controller.ask("GET", "applications/shop")
            return str(answer.json().get("sync"))

        controller.wait_until(lambda: shop() == "synced", "the application to be synced")
        assert cluster.get("configmap", "config", namespace)["data"] == {"mode": "declared"}
        (files / "shop.json").unlink()
        controller.wait_for("left")
        assert controller.ask("GET", "applications/shop").status_code == 404
        assert postgres not in controller.log.read_text()


def test_twelve_applications_whose_host_hangs_delay_no_heal_of_another(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    install_application_crd(cluster)
    origin = BareRepository(tmp_path / "origin.git")
    origin.commit({"config.yaml": configmap("config", mode="declared")})

    def mode() -> str:
        return str(cluster.get("configmap", "config", namespace)["data"]["mode"])

    with (
        # Takes connections, and never says a word.
        socket.create_server(("127.0.0.1", 0), backlog=64) as mute,
        running_gitops(cluster, tmp_path / "run", namespace=namespace, elect=False) as controller,
    ):
        cluster.apply(application_of("shop", namespace, str(origin.path), HEAL))
        controller.wait_status("shop", namespace, lambda it: it["sync"] == "synced")
        address = f"http://127.0.0.1:{mute.getsockname()[1]}"
        late = [
            application_of(f"late-{n}", namespace, f"{address}/acme/{n}.git", HEAL)
            for n in range(12)
        ]
        cluster.apply(*late)
        mute.settimeout(30)
        held, _ = mute.accept()  # the first of them is asking
        patch = '{"data":{"mode":"edited"}}'
        cluster.kubectl("patch", "configmap", "config", "-n", namespace, "-p", patch)
        began = time.monotonic()
        controller.wait_until(lambda: mode() == "declared", "the edit to be healed")
        assert time.monotonic() - began < 10, "an answer is waited for longer than that"
        held.close()
