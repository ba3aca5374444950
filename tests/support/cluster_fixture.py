"""Fixtures and hooks for tests that need a real cluster: one per run, a namespace per test.

Tests that ask for the cluster get the mark `cluster`. Where the programs are not built they are
skipped, and one line says so; with HOLDFAST_REQUIRE_TESTBED=1 the programs are built first, and
the tests fail if that is impossible.
A conftest imports the names, or names this module in `pytest_plugins` if it is the top one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster import Cluster
from tests.support.testbed import NoTestbed, find, find_or_build

__all__ = [
    "cluster",
    "namespace",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_itemcollected",
]

REQUIRED = "HOLDFAST_REQUIRE_TESTBED"
_SEEN = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cluster: needs the real test cluster (`make testbed`)")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark whatever asks for the cluster, before `-m` chooses."""
    if isinstance(item, pytest.Function) and "cluster" in item.fixturenames:
        item.add_marker("cluster")


@pytest.hookimpl(trylast=True)  # after `-m` and `-k` have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Find or build the programs before the first test, whose time-out a build would exceed."""
    wanting = [item for item in items if item.get_closest_marker("cluster")]
    if not wanting or config.stash.get(_SEEN, False) or config.option.collectonly:
        return
    config.stash[_SEEN] = True
    required = os.environ.get(REQUIRED) == "1"
    try:
        if required:
            find_or_build(lambda text: _say(config, text))
        else:
            find()
    except NoTestbed as missing:
        # Where it is required the tests stay, and fail one by one when they ask for the cluster.
        for item in wanting if not required else ():
            item.add_marker(pytest.mark.skip(reason=str(missing)))
        if os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0":
            fate = "CANNOT RUN" if required else "SKIPPED"
            _say(config, f"{fate}: {len(wanting)} tests on a real cluster. {missing}")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of this test run, shared by all its workers."""
    held = Cluster.join(_directory_of_the_run(tmp_path_factory) / "cluster")
    yield held
    held.leave()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of this test's own."""
    name = cluster.create_namespace()
    yield name
    cluster.delete_namespace(name)


def _directory_of_the_run(factory: pytest.TempPathFactory) -> Path:
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def _say(config: pytest.Config, text: str) -> None:
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        print(text, file=sys.stderr, flush=True)
        return
    with capture.global_and_fixture_disabled():
        print(f"\n{text}", file=sys.stderr, flush=True)
