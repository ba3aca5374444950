"""The cluster of the test run, and a fault proxy before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster import Cluster
from tests.support.cluster_fixture import (
    cluster,
    namespace,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_itemcollected,
)
from tests.support.kube_faults import KubeFaults, faults_before

__all__ = [
    "cluster",
    "namespace",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_itemcollected",
]


@pytest.fixture
def kube(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[KubeFaults]:
    """A proxy of this test's own; the user behind it is an administrator."""
    with faults_before(cluster, tmp_path, namespace=namespace) as running:
        yield running
