"""What every folder may ask for: the real cluster of the run, its kubeconfig as a target, and
other real servers."""

from __future__ import annotations

from tests.support.cluster_fixtures import (
    cluster,
    definitions,
    kubeconfig,
    namespace,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_itemcollected,
)
from tests.support.gitea import gitea, gitea_repository
from tests.support.go_programs import promtool
from tests.support.postgres import postgres, postgres_server
from tests.support.processes import restore_interrupts_for_children

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

restore_interrupts_for_children()
