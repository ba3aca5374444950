"""The real cluster of the test run, for manifests that a cluster has to accept."""

from __future__ import annotations

import fcntl
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

__all__ = [
    "cluster",
    "namespace",
    "place",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_itemcollected",
]


NAME = "holdfast-operator"


@pytest.fixture
def place(cluster: Cluster) -> Iterator[str]:
    """A namespace for an operator of this test's own; what it has in no namespace is shared.

    So one test at a time installs, whichever worker runs it.
    """
    with (cluster.directory / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        name = cluster.create_namespace("holdfast")
        yield name
        cluster.kubectl("delete", "clusterrole,clusterrolebinding", NAME, "--ignore-not-found")
        cluster.delete_namespace(name)
