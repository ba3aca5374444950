"""Cancelled or interrupted anywhere, a client leaves nothing held and the next call converges."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.fault_proxy import FaultProxy, Recorded
from tests.support.processes import kill_group, wait_until
from tests.support.server import RunningServer

from holdfast import AsyncManagementClient, ManagementClient
from holdfast.testing import a_spec

POINTS: dict[str, Callable[[FaultProxy], None]] = {
    "while reading": lambda proxy: proxy.hang(lambda request: request.method == "GET"),
    "before the write arrives": lambda proxy: proxy.hang(_is_write),
    "after the write committed": lambda proxy: proxy.hang(_is_write, after_bytes=0),
    "in the middle of the answer": lambda proxy: proxy.hang(_is_write, after_bytes=300),
}


def _is_write(request: Recorded) -> bool:
    return request.method == "POST"


def _stuck(proxy: FaultProxy, point: str) -> bool:
    method = "GET" if point == "while reading" else "POST"
    found = [request for request in proxy.requests if request.method == method]
    if not found:
        return False
    return "write" not in point or "before" in point or found[0].status is not None


@pytest.mark.parametrize("point", POINTS)
def test_a_cancelled_call_leaves_the_client_usable(
    server: RunningServer, proxy: FaultProxy, slug: str, point: str
) -> None:
    async def scenario() -> int:
        url, token = proxy.url, server.token("acme")
        async with AsyncManagementClient(url, project="acme", token=token) as client:
            POINTS[point](proxy)
            task = asyncio.create_task(client.ensure(a_spec(name=slug)))
            while not _stuck(proxy, point):  # noqa: ASYNC110  # the proxy runs in a thread
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            proxy.reset()
            ref = await client.ensure(a_spec(name=slug))
            assert ref.live is not None
            return ref.live.generation

    assert asyncio.run(scenario()) == 1


def test_a_call_cancelled_at_any_turn_of_the_loop_converges(
    server: RunningServer, slug: str
) -> None:
    async def scenario() -> None:
        token = server.token("acme")
        async with AsyncManagementClient(server.url, project="acme", token=token) as client:
            for turn in range(40):
                name = f"{slug}-{turn}"
                task = asyncio.create_task(client.ensure(a_spec(name=name)))
                for _ in range(turn):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                ref = await client.ensure(a_spec(name=name))
                assert ref.live is not None
                assert ref.live.generation == 1

    asyncio.run(scenario())


CHILD = """
import sys
from holdfast import ManagementClient
from holdfast.testing import a_spec
ManagementClient(sys.argv[1], project="acme", timeout=100).ensure(a_spec(name=sys.argv[2]))
"""


@pytest.mark.parametrize("point", POINTS)
def test_an_interrupted_process_leaves_nothing_held(
    server: RunningServer, proxy: FaultProxy, slug: str, point: str
) -> None:
    token = server.token("acme")
    POINTS[point](proxy)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, proxy.url, slug],
        env={**os.environ, "HOLDFAST_TOKEN": token},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        wait_until(lambda: _stuck(proxy, point), 30, "the child to be stuck")
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=30)
    finally:
        kill_group(child)
        assert child.stderr
        child.stderr.close()
    assert b"KeyboardInterrupt" in said
    assert token.encode() not in said
    with ManagementClient(server.url, project="acme", token=token) as client:
        ref = client.ensure(a_spec(name=slug))
        assert ref.live is not None
        assert ref.live.generation == 1


def test_an_interrupted_embedded_client_leaves_the_file_free(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    client = ManagementClient(url, project="acme")
    with suppress(KeyboardInterrupt), client:
        client.ensure(a_spec())
        raise KeyboardInterrupt
    with ManagementClient(url, project="acme") as client:
        assert client.ensure(a_spec()).outcome == "unchanged"
