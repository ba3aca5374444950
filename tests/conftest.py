"""What every folder may ask for: the real cluster of the run, its kubeconfig as a target, and
other real servers."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
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

LONG = os.environ.get("HOLDFAST_LONG") == "1"
# The same examples each time and no clock, since a test must not fail because the machine is busy;
# many random ones in the long run. Set here, before any test module is read.
settings.register_profile(
    "holdfast",
    deadline=None,
    derandomize=not LONG,
    max_examples=1_000 if LONG else 25,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("holdfast")

LOGGERS = ("holdfast", "uvicorn", "aiohttp", "asyncio")
"""Those that a server, or a controller, sends to the log of its process when it starts."""


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """Loggers as they were: a command that a test ran in this process keeps them for good."""
    before = []
    for name in LOGGERS:
        logger = logging.getLogger(name)
        before.append((logger, logger.handlers[:], logger.level, logger.propagate))
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers = handlers
        logger.setLevel(level)
        logger.propagate = propagate


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
