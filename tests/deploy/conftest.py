"""The real cluster of the test run, for manifests that a cluster has to accept."""

from __future__ import annotations

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
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_itemcollected",
]
