"""The total deadline holds wherever the other side stops: connecting, shaking hands, dripping.

Without it each of these would wait for minutes or for ever; the bounds asserted here are far
above the deadline and far below that, so that a slow machine does not fail them.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.support.both_clients import CLIENT_KINDS, management_client

from holdfast import TargetUnavailable
from holdfast.core.errors import NOTHING_CHANGED, OUTCOME_UNKNOWN
from holdfast.testing import a_spec

pytestmark = pytest.mark.parametrize("colour", CLIENT_KINDS)
DEADLINE = 0.5
LATEST = 10.0


@contextmanager
def listener(serve: Callable[[socket.socket], None] | None, *, backlog: int = 8) -> Iterator[int]:
    """Listen on loopback; each connection is given to `serve` in a thread."""
    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as server:
        server.settimeout(0.1)

        def accept() -> None:
            while not stopped.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                except OSError:
                    return
                if serve is not None:
                    threading.Thread(target=_guarded, args=(serve, connection)).start()

        thread = threading.Thread(target=accept)
        if serve is not None:
            thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stopped.set()
            if serve is not None:
                thread.join()


def _guarded(serve: Callable[[socket.socket], None], connection: socket.socket) -> None:
    # The client leaves in the middle, which is what these tests are about.
    with connection, suppress(OSError):
        serve(connection)


def _until_left(connection: socket.socket) -> None:
    connection.settimeout(LATEST * 2)
    while connection.recv(65536):
        pass


def _drip(head: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(head)
        for _ in range(int(LATEST * 20)):
            connection.sendall(b"x")
            time.sleep(0.05)  # the pace of a peer that never falls silent for long

    return serve


def refused(
    colour: str, url: str, call: str = "get", *, deadline: float = DEADLINE
) -> tuple[TargetUnavailable, float]:
    began = time.monotonic()
    with (
        management_client(
            colour, url, project="acme", token="ik_sdk_a_b", timeout=deadline, max_retries=9
        ) as client,
        pytest.raises(TargetUnavailable) as raised,
    ):
        client.get("chat") if call == "get" else client.ensure(a_spec(name="chat"))
    return raised.value, time.monotonic() - began


def test_a_peer_that_never_accepts(colour: str) -> None:
    with listener(None, backlog=0) as port:
        held = [socket.socket() for _ in range(4)]
        try:
            for each in held:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", port))
            error, took = refused(colour, f"http://127.0.0.1:{port}", "ensure")
        finally:
            for each in held:
                each.close()
    assert took < LATEST
    assert error.changed == NOTHING_CHANGED


def test_a_peer_that_never_shakes_hands(colour: str) -> None:
    with listener(_until_left) as port:
        error, took = refused(colour, f"https://127.0.0.1:{port}", "ensure")
    assert took < LATEST
    assert error.changed == NOTHING_CHANGED


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-slow: ",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n",
    ],
    ids=["status line", "headers", "body", "body without length"],
)
def test_a_peer_that_drips_byte_by_byte(colour: str, head: bytes) -> None:
    with listener(_drip(head)) as port:
        error, took = refused(colour, f"http://127.0.0.1:{port}")
    assert took < LATEST
    assert error.changed == NOTHING_CHANGED


def test_a_write_to_a_peer_that_falls_silent_has_an_unknown_outcome(colour: str) -> None:
    absent = b'{"error": "not_found", "message": ""}'
    head = b"HTTP/1.1 404 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(head % len(absent) + absent)
        _until_left(connection)

    with listener(serve) as port:
        error, took = refused(colour, f"http://127.0.0.1:{port}", "ensure", deadline=1.5)
    assert took < LATEST
    assert error.changed == OUTCOME_UNKNOWN
