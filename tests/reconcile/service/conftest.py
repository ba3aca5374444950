"""A cluster in memory for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.service_world import GATEWAY, World, Worlds


@pytest.fixture
def world() -> Iterator[World]:
    with Worlds() as worlds:
        yield worlds.memory()


@pytest.fixture
def routed() -> Iterator[World]:
    """The same, with a gateway."""
    with Worlds() as worlds:
        yield worlds.memory(GATEWAY)
