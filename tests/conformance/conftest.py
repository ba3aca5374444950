"""The real cluster of the test run, for the half of the suite that runs on it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.support.cluster import Cluster
from tests.support.cluster_fixture import (
    cluster,
    namespace,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_itemcollected,
)
from tests.support.service_world import World, Worlds

from holdfast.wire.crd import GROUP, PLURAL, crd

__all__ = [
    "cluster",
    "namespace",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_itemcollected",
    "world",
]


@pytest.fixture(params=["memory", "cluster"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """An empty namespace, in memory and on a real API server."""
    with Worlds() as worlds:
        if request.param == "memory":
            yield worlds.memory()
            return
        held: Cluster = request.getfixturevalue("cluster")
        install(held)
        yield worlds.real(held.kubeconfig, request.getfixturevalue("namespace"))


def install(held: Cluster) -> None:
    """The definition of the custom resource; it stays for whoever else uses the cluster."""
    text = json.dumps(crd())
    held.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    held.kubectl("wait", "--for=condition=Established", f"crd/{PLURAL}.{GROUP}", "--timeout=30s")
