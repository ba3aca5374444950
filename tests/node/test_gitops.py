"""The GitOps controller in a pod of its own image, on a repository that it reaches by network."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority
from tests.support.git_host import BareRepository, GitHost, serve
from tests.support.manifests import SETTINGS
from tests.support.node.handle import NODE_ADDRESS, Node
from tests.support.node.holdfast_image import NAMESPACE, install_holdfast
from tests.support.node.process import enter_network
from tests.support.testbed import say_on_stderr

pytestmark = pytest.mark.timeout(600)  # the first to ask starts a node

KIND = "applications.holdfast.dev"
TOKEN = "of-the-git-host"
USER = 65532  # of the controller's pod
CONTROLLER = "deployment/holdfast-gitops"


@pytest.fixture
def gitops_pod(operator_pods: Node, tmp_path: Path) -> Iterator[Node]:
    """The node with the GitOps controller beside the operator, on a volume of its own."""
    node = operator_pods
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, USER, USER)
    node.apply(volume(data))
    install_holdfast(node, say_on_stderr, "--gitops", "--gitops-writes", "--gitops-secrets")
    yield node
    for thing in (CONTROLLER, "pvc/holdfast-gitops"):
        node.kubectl("delete", thing, "-n", NAMESPACE)
    node.kubectl("delete", "pv", f"gitops-{NAMESPACE}")


# Any: objects of the Kubernetes API, here and below.
def volume(directory: Path, namespace: str = NAMESPACE) -> dict[str, Any]:
    """A directory as the volume of the controller in a namespace."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"gitops-{namespace}"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": namespace, "name": "holdfast-gitops"},
            "hostPath": {"path": str(directory)},
        },
    }


@contextmanager
def git_host(node: Node, root: Path) -> Iterator[GitHost]:
    """Serve repositories over HTTPS at the node's own address, with a token."""
    authority = Authority(directory=node.directory / "pki")
    identity = authority.issue("git", hosts=[f"IP:{NODE_ADDRESS}"])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(identity.certificate, identity.key)
    inside = node.pids["inside"]
    with serve(
        root, token=TOKEN, tls=tls, address=NODE_ADDRESS, enter=lambda: enter_network(inside)
    ) as host:
        yield host


def application(node: Node, namespace: str, url: str) -> list[dict[str, Any]]:
    """An Application that heals, and the Secret it reaches its repository with."""
    values = {
        "username": "holdfast",
        "token": TOKEN,
        "ca.crt": (node.directory / "pki" / "ca.crt").read_text(),
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "git",
            "namespace": namespace,
            "annotations": {"holdfast.dev/hosts": url.split("/")[2]},
        },
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in values.items()},
    }
    shop = {
        "apiVersion": "holdfast.dev/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "shop", "namespace": namespace},
        "spec": {
            "project": "acme",
            "source": {"url": url, "interval": "10s", "credentials": "git"},
            "sync": {"automatic": True},
            "drift": {"routes": [{"name": "all", "remediation": "self-heal"}]},
        },
    }
    return [secret, shop]


def test_the_controller_in_its_pod_follows_a_repository_and_heals_an_edit(
    gitops_pod: Node, node_namespace: str, tmp_path: Path
) -> None:
    node = gitops_pod
    origin = BareRepository(tmp_path / "git" / "shop")
    commit = origin.commit({"settings.yaml": SETTINGS.format(name="settings")})
    with git_host(node, tmp_path / "git") as host:
        url = f"https://{NODE_ADDRESS}:{host.port}/shop"
        node.apply(*application(node, node_namespace, url))
        found = node.wait(
            KIND,
            "shop",
            node_namespace,
            lambda each: (each.get("status") or {}).get("sync") == "synced",
            60,
        )
        assert commit in str(found["status"])
        node.kubectl(
            *("patch", "configmap", "settings", "-n", node_namespace, "--type=merge"),
            *("-p", '{"data":{"mode":"slow"}}', "--field-manager=kubectl-edit"),
        )
        healed = node.wait(
            "configmap", "settings", node_namespace, lambda each: each["data"]["mode"] == "fast"
        )
    (writer,) = {
        each["manager"]
        for each in healed["metadata"]["managedFields"]
        if "f:mode" in str(each["fieldsV1"])
    }
    assert writer.startswith("holdfast")
    account = f"system:serviceaccount:{NAMESPACE}:holdfast-gitops"
    asked = node.audit_events(user=account)
    assert [f"{each.verb} {each.uri}" for each in asked if each.code == 403] == []
