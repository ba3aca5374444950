"""The cluster of the test run with a fault proxy before it, and a loop for stories in memory."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.kube_faults import KubeFaults, faults_before
from tests.support.cluster import Cluster


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a story that is a coroutine in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def kube(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[KubeFaults]:
    """A proxy of this test's own; the user behind it is an administrator."""
    with faults_before(cluster, tmp_path, namespace=namespace) as running:
        yield running
