"""The real cluster of the test run, for the half of the suite that runs on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.cluster import Cluster
from tests.support.operator_world import OperatorWorld, OperatorWorlds


@pytest.fixture(params=["memory", pytest.param("cluster", marks=pytest.mark.cluster)])
def world(request: pytest.FixtureRequest) -> Iterator[OperatorWorld]:
    """An empty namespace, in memory and on a real API server."""
    with OperatorWorlds() as worlds:
        if request.param == "memory":
            yield worlds.memory()
            return
        held: Cluster = request.getfixturevalue("definitions")
        yield worlds.real(held.kubeconfig, request.getfixturevalue("namespace"))
