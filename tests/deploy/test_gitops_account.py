"""The GitOps controller does its work with the account that the export makes for it."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.support.cluster import Cluster
from tests.support.controllers import ControllerProcess
from tests.support.git_host import BareRepository
from tests.support.manifests import DEPLOYMENT, SERVICE, SETTINGS

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
    with controller(cluster, place, namespace, token, tmp_path):
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
    with controller(cluster, place, namespace, token, tmp_path):
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


def controller(
    cluster: Cluster, place: str, namespace: str, kubeconfig: Path, folder: Path
) -> AbstractContextManager[ControllerProcess]:
    """A running controller for one namespace, ended in order."""
    command = ["gitops", "--db", str(folder / "gitops.db"), "--port", "0", "--allow-local"]
    command += ["--log-format", "json", "--namespace", namespace, "--lease-namespace", place]
    return ControllerProcess(cluster, folder / "log", command, kubeconfig).running()


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
    name = "applications.holdfast.dev"
    cluster.wait(
        name, "shop", namespace, lambda it: (it.get("status") or {}).get("sync") == sync, 60
    )


def refused(cluster: Cluster, place: str) -> list[str]:
    """What the account asked for and did not get."""
    account = f"system:serviceaccount:{place}:{NAME}"
    asked = cluster.audit_events(user=account)
    assert {"watch", "patch"} <= {each.verb for each in asked}
    return [f"{each.verb} {each.resource} {each.name}" for each in asked if each.code == 403]
