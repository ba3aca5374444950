"""Everything here runs against the real cluster of the test run, and carries the mark `cluster`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cluster_fixture import (
    cluster,
    namespace,
    pytest_collection_modifyitems,
    pytest_configure,
)

__all__ = ["cluster", "namespace", "pytest_collection_modifyitems", "pytest_configure"]

HERE = Path(__file__).parent


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.is_relative_to(HERE):
        item.add_marker("cluster")
