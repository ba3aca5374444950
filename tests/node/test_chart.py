"""The chart on the real node: what `helm install` gives is pods of our image that do their work."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.node.test_gitops import USER, volume
from tests.node.test_serving import CHAT, KIND, PROMPT, address, is_ready
from tests.support.cluster_fixtures import create_inference_service, skip_without
from tests.support.go_programs import HELM, NotBuilt
from tests.support.node.handle import Node
from tests.support.node.holdfast_image import offer_holdfast_image, wait_for_rollouts
from tests.support.processes import ROOT
from tests.support.testbed import say_on_stderr

pytestmark = pytest.mark.timeout(600)  # the first to ask starts a node

CONTROLLERS = ("holdfast-operator", "holdfast-gitops")


@pytest.fixture
def release(
    operator_pods: Node, node_namespace: str, tmp_path: Path, pytestconfig: pytest.Config
) -> Iterator[str]:
    """The namespace of a release of the chart that looks after the test's namespace alone."""
    try:
        helm = HELM.find()
    except NotBuilt as missing:
        skip_without(pytestconfig, "Helm", missing)
    node = operator_pods
    namespace = node.create_namespace()
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, USER, USER)
    node.apply(volume(data, namespace))
    repository, _, tag = offer_holdfast_image(node, say_on_stderr).rpartition(":")
    values = {
        "image.repository": repository,
        "image.tag": tag,
        "image.pullPolicy": "Always",
        "replicas": 1,
        "watchNamespaces": f"{{{node_namespace}}}",
        "gitops.enabled": "true",
        # The definitions are there, and are those of the whole test run.
        "crds.install": "false",
    }
    settings = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    ran = subprocess.run(
        [helm, "install", "ours", ROOT / "deploy/chart/holdfast", "-n", namespace, *settings],
        env={**node.kubectl_environment(), "HOME": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    yield namespace
    node.delete_namespace(namespace)
    node.kubectl("delete", "pv", f"gitops-{namespace}")


def test_what_helm_installs_runs_in_pods_and_serves(
    operator_pods: Node, node_namespace: str, release: str
) -> None:
    node = operator_pods
    wait_for_rollouts(node, release)
    pods = {each["metadata"]["name"]: each for each in node.objects("pods", release)}
    for controller in CONTROLLERS:
        assert any(name.startswith(f"{controller}-") for name in pods), sorted(pods)
    statuses = [each["status"]["containerStatuses"][0] for each in pods.values()]
    assert [(each["ready"], each["restartCount"]) for each in statuses] == [(True, 0)] * len(pods)

    create_inference_service(node, node_namespace, "chat", {**CHAT, "replicas": 1})
    node.wait(KIND, "chat", node_namespace, is_ready, 60)
    url = f"{address(node, node_namespace)}/v1/chat/completions"
    assert "abcdefghijklmnopqrstuvwxyz." in node.run_inside("curl", "-s", url, "-d", PROMPT)
    # The operator of the test run looks after every namespace, so this one has to show its part.
    for name in CONTROLLERS:
        asked = node.audit_events(user=f"system:serviceaccount:{release}:{name}")
        assert asked, f"{name} asked nothing"
        assert [f"{each.verb} {each.uri}" for each in asked if each.code == 403] == []
    account = f"system:serviceaccount:{release}:holdfast-operator"
    applied = node.audit_events(user=account, namespace=node_namespace)
    assert any(each.wrote and each.code < 300 for each in applied)
