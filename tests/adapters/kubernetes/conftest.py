"""The real cluster of the test run, for the tests here that need one."""

from __future__ import annotations

from tests.support.cluster_fixture import (
    cluster,
    namespace,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_itemcollected,
)
from tests.support.cluster_target import definitions, kubeconfig

__all__ = [
    "cluster",
    "definitions",
    "kubeconfig",
    "namespace",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_itemcollected",
]
