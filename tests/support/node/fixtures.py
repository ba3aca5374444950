"""Fixtures for tests whose pods really run: one real node per test run, a namespace per test.

Where the machine can't run a node the tests are skipped, and one loud line says why; with
HOLDFAST_REQUIRE_NODE=1 they fail instead.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

import pytest
from tests.support.cluster_fixtures import run_directory, skip_without
from tests.support.go_programs import NotBuilt
from tests.support.node.handle import Node
from tests.support.node.holdfast_image import find_or_build_holdfast_image, install_holdfast
from tests.support.node.process import NoNode, check_machine, prepare
from tests.support.testbed import NoTestbed, find_testbed, say_on_stderr
from tools.debian import NoPackages
from tools.image import ImageNotBuilt

from holdfast.wire.crd import crd_files

__all__ = ["node", "node_namespace", "operator_pods"]

REQUIRED = "HOLDFAST_REQUIRE_NODE"


def _is_required() -> bool:
    return os.environ.get(REQUIRED) == "1"


@pytest.fixture(scope="session")
def node(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The real node of this test run, shared by all its workers, with the definitions installed."""
    try:
        check_machine()
        find_testbed()
        prepare(say_on_stderr)
    except (NoNode, NoTestbed, NoPackages, ImageNotBuilt) as missing:
        skip_without(pytestconfig, "a real node", missing, required=_is_required())
    held = Node.join(run_directory(tmp_path_factory) / "node")
    held.install_definitions(*crd_files().values())
    yield held
    held.leave()


@pytest.fixture
def node_namespace(node: Node) -> Iterator[str]:
    """A namespace of this test's own on the real node."""
    name = node.create_namespace()
    yield name
    node.delete_namespace(name)


@pytest.fixture(scope="session")
def operator_pods(pytestconfig: pytest.Config, node: Node) -> Node:
    """The real node with the operator in pods, installed from Holdfast's own image."""
    try:
        find_or_build_holdfast_image(say_on_stderr)
    except (NoPackages, NotBuilt, ImageNotBuilt) as missing:
        skip_without(pytestconfig, "Holdfast's image", missing, required=_is_required())
    with (node.directory / "install.lock").open("w") as lock:  # one worker installs for all
        fcntl.flock(lock, fcntl.LOCK_EX)
        installed = node.directory / "installed"
        if not installed.exists():
            install_holdfast(node, say_on_stderr)
            installed.touch()
    return node
