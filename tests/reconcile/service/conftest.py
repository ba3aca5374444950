"""A cluster in memory for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.operator_world import GATEWAY, OperatorWorld, OperatorWorlds


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with OperatorWorlds() as worlds:
        yield worlds.memory()


@pytest.fixture
def routed() -> Iterator[OperatorWorld]:
    """The same, with a gateway."""
    with OperatorWorlds() as worlds:
        yield worlds.memory(GATEWAY)
