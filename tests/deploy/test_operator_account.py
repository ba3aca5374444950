"""The operator does all its work with the account that the export makes for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.cluster import Cluster
from tests.support.controllers import ControllerProcess
from tests.support.inference_services import canary, document
from tests.support.processes import wait_until

from holdfast.apps.cli.main import cli

NAME = "holdfast-operator"


def test_nothing_that_the_operator_of_one_namespace_asks_for_is_refused(
    cluster: Cluster, place: str, namespace: str, tmp_path: Path
) -> None:
    work(cluster, place, namespace, tmp_path, ["--watch-namespace", namespace])


@pytest.mark.cluster
def test_nothing_that_the_operator_of_a_cluster_asks_for_is_refused(tmp_path: Path) -> None:
    """On a cluster of its own: it would serve the other tests' services too."""
    own = Cluster.join(tmp_path / "cluster")
    try:
        work(own, own.create_namespace("holdfast"), own.create_namespace(), tmp_path, [])
    finally:
        own.stop()


def work(cluster: Cluster, place: str, namespace: str, folder: Path, flags: list[str]) -> None:
    """Install, and have the operator do everything it can do."""
    export = CliRunner().invoke(cli, ["install", "--export", "--namespace", place, *flags])
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=export.stdout)
    token = cluster.kubeconfig_for_service_account(NAME, place)
    # Where it looks by itself in a pod.
    own = [f"--lease-namespace={place}", *([f"--namespace={namespace}"] if flags else [])]
    command = ["operator", "--metrics-address=127.0.0.1:0", *own]
    with ControllerProcess(cluster, folder / "log", command, token).running():
        small = {"resources": {"gpuMemory": None}}
        scaled = {**small, **canary(), "minReplicas": 2, "maxReplicas": 5}
        cluster.apply(document(scaled, namespace=namespace))
        cluster.wait("hold", "my-llama", namespace, is_ready, timeout=60)
        cluster.kubectl(
            *("patch", "deployment/my-llama-primary", "-n", namespace, "--type=json", "-p"),
            '[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"x:1"}]',
        )
        cluster.wait("deployment", "my-llama-primary", namespace, has_own_image, timeout=60)
        cluster.apply(document(small, namespace=namespace))
        wait_until(lambda: not leftovers(cluster, namespace), 60, "the children to go")
    account = f"system:serviceaccount:{place}:{NAME}"
    asked = cluster.audit_events(user=account)
    assert {"create", "patch", "watch"} <= {each.verb for each in asked}
    assert [each for each in asked if each.code == 403] == []


def leftovers(cluster: Cluster, namespace: str) -> list[str]:
    """What the service no longer asks for."""
    shown = cluster.kubectl("get", "deployments,hpa", "-n", namespace, "-o", "name")
    return [name for name in shown.split() if name.endswith(("-canary", "-hpa"))]


# Any: objects of the Kubernetes API as they come over the wire.
def is_ready(found: dict[str, Any]) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def has_own_image(found: dict[str, Any]) -> bool:
    image: str = found["spec"]["template"]["spec"]["containers"][0]["image"]
    return image != "x:1"
