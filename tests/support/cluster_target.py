"""The real cluster as a target of workloads: the definition installed, the kubeconfig chosen.

A conftest that has the cluster's fixtures imports these as well.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.kube_api import MERGE_PATCH

from holdfast.wire.crd import GROUP, PLURAL, VERSION, crd

__all__ = ["definitions", "kubeconfig"]


@pytest.fixture(scope="session")
def definitions(cluster: Cluster) -> Cluster:
    """The cluster with the custom resource installed and served."""
    cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(crd())
    )
    name = f"crd/{PLURAL}.{GROUP}"
    cluster.kubectl("wait", "--for=condition=Established", name, "--timeout=30s")
    return cluster


@pytest.fixture
def kubeconfig(definitions: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, chosen the way a user chooses one."""
    monkeypatch.setenv("KUBECONFIG", str(definitions.kubeconfig))
    return definitions


# Any: objects of the Kubernetes API as they come over the wire, here and below.
def put(cluster: Cluster, namespace: str, name: str, spec: dict[str, Any], **labels: str) -> None:
    """Create an InferenceService as somebody with kubectl would."""
    metadata = {"name": name, "labels": {f"holdfast.dev/{key}": labels[key] for key in labels}}
    document = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "InferenceService",
        "metadata": metadata,
        "spec": spec,
    }
    cluster.api().request("POST", f"{path(namespace)}?fieldManager=kubectl-create", document)


def edit(
    cluster: Cluster, namespace: str, name: str, change: dict[str, Any], manager: str = "curl"
) -> dict[str, Any]:
    """Change an InferenceService past Holdfast."""
    where = f"{path(namespace)}/{name}?fieldManager={manager}"
    return cluster.api().request("PATCH", where, change, content_type=MERGE_PATCH)


def report(cluster: Cluster, namespace: str, name: str, **status: Any) -> None:
    """Write a status as the operator does."""
    where = f"{path(namespace)}/{name}/status?fieldManager=holdfast-operator"
    cluster.api().request("PATCH", where, {"status": status}, content_type=MERGE_PATCH)


def path(namespace: str) -> str:
    """Give the address of a namespace's InferenceServices."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"
