"""A control plane, a proxy before it, and names that no other test uses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.support.fault_proxy import FaultProxy
from tests.support.server import RunningServer, running_server

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for the package; its runner is off, as nothing here needs to serve."""
    with running_server(tmp_path_factory.mktemp("server"), run=False) as server:
        yield server


@pytest.fixture
def proxy(server: RunningServer) -> Iterator[FaultProxy]:
    """A proxy before the server, for one test."""
    with FaultProxy(server.url) as proxy:
        yield proxy


@pytest.fixture
def slug() -> str:
    """A workload of this test alone."""
    return f"chat-{next(_NUMBERS)}"
