"""What every folder may ask for: the real cluster of the run, its kubeconfig as a target, and
other real servers."""

from __future__ import annotations

from tests.support.cluster_fixture import (
    cluster,
    namespace,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_itemcollected,
)
from tests.support.cluster_target import definitions, kubeconfig
from tests.support.gitea_fixture import gitea, gitea_repository
from tests.support.postgres import postgres, postgres_server
from tests.support.processes import let_children_be_interrupted
from tests.support.promtool import promtool

__all__ = [
    "cluster",
    "definitions",
    "gitea",
    "gitea_repository",
    "kubeconfig",
    "namespace",
    "postgres",
    "postgres_server",
    "promtool",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_itemcollected",
]

let_children_be_interrupted()
