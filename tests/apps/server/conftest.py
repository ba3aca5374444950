"""One server for each test module: starting it is cheap, but not for every test."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from tests.apps.server.api import Api
from tests.support.server import RunningServer, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server without a runner: nothing here depends on processes."""
    limits = {"failure_rate": 100_000.0, "recheck_time": 0.2}
    with running_server(tmp_path_factory.mktemp("server"), run=False, limits=limits) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=server.url, timeout=20) as client:
        yield client


@pytest.fixture
def api(server: RunningServer, http: httpx2.Client, request: pytest.FixtureRequest) -> Api:
    """An administrator's view of a project that this test alone uses."""
    project = f"p{abs(hash(request.node.nodeid)) % 10**12}"
    return Api(server=server, http=http, project=project)
