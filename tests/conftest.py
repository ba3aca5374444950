"""What every folder may ask for: the real cluster of the run, and its kubeconfig as a target."""

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
