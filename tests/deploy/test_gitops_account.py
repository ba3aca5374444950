"""The GitOps controller does its work with the account that the export makes for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.support.cluster import Cluster
from tests.support.git_host import BareRepository
from tests.support.manifests import DEPLOYMENT, SERVICE, SETTINGS
from tests.support.processes import wait_until

from holdfast.apps.cli.main import cli

NAME = "holdfast-gitops"
FILES = {
    "settings.yaml": SETTINGS.format(name="settings"),
    "server.yaml": DEPLOYMENT.format(name="server", replicas=1, image="registry.example/a:1"),
    "service.yaml": SERVICE.format(name="server"),
}


def test_with_the_right_to_write_it_syncs_and_heals_and_is_refused_nothing(
    cluster: Cluster, place: str, namespace: str, tmp_path: Path
) -> None:
    token = install(cluster, place, namespace, "--gitops-writes")
    origin = BareRepository(tmp_path / "origin")
    origin.commit(FILES)
    with controller(token, tmp_path, "--namespace", namespace, "--lease-namespace", place):
        routes = [{"name": "all", "remediation": "self-heal"}]
        declare(cluster, namespace, origin, sync={"automatic": True}, drift={"routes": routes})
        until(cluster, namespace, "synced")
        cluster.kubectl(
            *("patch", "configmap", "settings", "-n", namespace, "--type=merge"),
            *("-p", '{"data":{"mode":"slow"}}', "--field-manager=kubectl-edit"),
        )
        cluster.wait("configmap", "settings", namespace, lambda it: it["data"]["mode"] == "fast")
        until(cluster, namespace, "synced")
    assert refused(cluster, place) == []


def test_without_it_what_differs_is_reported_and_nothing_is_written(
    cluster: Cluster, place: str, namespace: str, tmp_path: Path
) -> None:
    token = install(cluster, place, namespace)
    origin = BareRepository(tmp_path / "origin")
    origin.commit(FILES)
    with controller(token, tmp_path, "--namespace", namespace, "--lease-namespace", place):
        declare(cluster, namespace, origin)
        until(cluster, namespace, "ahead")
    account = f"system:serviceaccount:{place}:{NAME}"
    written = {
        each.resource
        for each in cluster.audit_events(user=account)
        if each.wrote and each.code < 400
    }
    assert written <= {"applications/status", "leases", "events"}
    assert refused(cluster, place) == []


@contextmanager
def controller(kubeconfig: Path, folder: Path, *flags: str) -> Iterator[None]:
    """A running controller, ended in order."""
    code = "from holdfast.apps.cli.main import main; main()"
    own = ["--db", str(folder / "gitops.db"), "--port", "0", "--allow-local"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", code, "gitops", *own, *flags],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdout=log,
            stderr=log,
        )
    try:
        yield
    except BaseException as error:
        error.add_note((folder / "log").read_text()[-3000:])
        raise
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


def install(cluster: Cluster, place: str, namespace: str, *more: str) -> Path:
    flags = ["--namespace", place, "--watch-namespace", namespace, "--gitops", *more]
    made = CliRunner().invoke(cli, ["install", "--export", *flags])
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=made.stdout)
    cluster.kubectl(
        *("wait", "--for=condition=Established", "--timeout=30s"), "crd/applications.holdfast.dev"
    )
    return cluster.kubeconfig_for_service_account(NAME, place)


# Any: parts of a spec as they are written in JSON.
def declare(cluster: Cluster, namespace: str, origin: BareRepository, **spec: Any) -> None:
    source = {"url": str(origin.path), "interval": "10s"}
    item = {
        "apiVersion": "holdfast.dev/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "shop", "namespace": namespace},
        "spec": {"project": "acme", "source": source, **spec},
    }
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(item))


def until(cluster: Cluster, namespace: str, sync: str) -> None:
    def found() -> bool:
        item = cluster.get("applications.holdfast.dev", "shop", namespace)
        status: dict[str, Any] = item.get("status") or {}
        return status.get("sync") == sync

    wait_until(found, 60, f"the application to be {sync}")


def refused(cluster: Cluster, place: str) -> list[str]:
    """What the account asked for and did not get."""
    account = f"system:serviceaccount:{place}:{NAME}"
    asked = cluster.audit_events(user=account)
    assert {"watch", "patch"} <= {each.verb for each in asked}
    return [f"{each.verb} {each.resource} {each.name}" for each in asked if each.code == 403]
