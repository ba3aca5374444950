"""A request that was given up leaves no socket behind, though its server never says farewell."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop
from tests.support.certificates import Authority

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.connection import KubeConnection
from holdfast.adapters.kubernetes.credentials import FixedCredentials
from holdfast.adapters.kubernetes.kubeconfig import ClusterConfig
from holdfast.adapters.outbound import NoResponse, OutboundClient
from holdfast.core.errors import TargetUnavailable


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "ca")


@pytest.fixture
def hanging_server(authority: Authority) -> Iterator[str]:
    """A TLS server that takes a request, reads no further and keeps the connection open."""
    identity = authority.issue("server", hosts=["IP:127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepted: list[ssl.SSLSocket] = []

        def serve() -> None:
            connection, _ = listening.accept()
            accepted.append(context.wrap_socket(connection, server_side=True))
            accepted[0].recv(10)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()
        accepted[0].close()


async def ask_as_the_kubernetes_client(url: str, authority: Authority) -> None:
    config = ClusterConfig(
        server=url,
        authority=authority.certificate.read_bytes(),
        credentials=FixedCredentials(),
        source="here",
    )
    connection = KubeConnection(config, clock=SystemClock())
    with pytest.raises(TargetUnavailable, match="no answer"):
        await connection.request("GET", "/version", within=0.3)
    await connection.aclose()


async def ask_as_any_other_client(url: str, authority: Authority) -> None:
    client = OutboundClient(
        timeout=0.3, max_bytes=100, authority=authority.certificate.read_text(), keep_alive=False
    )
    answer = await client.send("GET", url)
    assert isinstance(answer, NoResponse)
    assert "no answer" in answer.reason
    await client.aclose()


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("ask", [ask_as_the_kubernetes_client, ask_as_any_other_client])
def test_a_request_that_was_given_up_leaves_no_open_socket(
    ask: Callable[[str, Authority], Awaitable[None]],
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    hanging_server: str,
    authority: Authority,
) -> None:
    async def run() -> None:
        await ask(hanging_server, authority)

    gc.collect()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always", ResourceWarning)
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(run())
        gc.collect()
    assert [str(each.message) for each in given] == []
