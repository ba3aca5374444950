"""The cluster of the test run with a fault proxy before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.kube_faults import KubeFaults, faults_before
from tests.support.cluster import Cluster


@pytest.fixture
def kube(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[KubeFaults]:
    """A proxy of this test's own; the user behind it is an administrator."""
    with faults_before(cluster, tmp_path, namespace=namespace) as running:
        yield running
