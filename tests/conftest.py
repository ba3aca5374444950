"""What every folder may ask for: the real cluster of the run, its kubeconfig as a target, and
other real servers."""

from __future__ import annotations

import asyncio
import inspect

import pytest
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
from tests.support.node.fixtures import node, node_namespace, operator_pods
from tests.support.postgres import postgres, postgres_server
from tests.support.processes import restore_interrupts_for_children

__all__ = [
    "cluster",
    "definitions",
    "gitea",
    "gitea_repository",
    "kubeconfig",
    "namespace",
    "node",
    "node_namespace",
    "operator_pods",
    "postgres",
    "postgres_server",
    "promtool",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_itemcollected",
]

restore_interrupts_for_children()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
