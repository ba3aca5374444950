"""The fault proxy does to each request what it was told to, and nothing to the others."""

from __future__ import annotations

import gc
import http.client
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.fault_proxy import FaultProxy, Recorded, Response
from tests.support.processes import RunningBackend, free_port, start_backend, wait_until

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def echo() -> Iterator[RunningBackend]:
    with start_backend() as backend:
        yield backend


@pytest.fixture
def proxy(echo: RunningBackend) -> Iterator[FaultProxy]:
    with FaultProxy(echo.url) as running:
        yield running


class Client:
    """One keep-alive connection."""

    def __init__(self, url: str, timeout: float = 30) -> None:
        self.connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def health(self) -> int:
        return self.fetch("GET", "/health")[0]

    def chat(self, text: str = "hi", **more: object) -> tuple[int, bytes]:
        body = {"messages": [{"role": "user", "content": text}], **more}
        return self.fetch("POST", CHAT, json.dumps(body))

    def fetch(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        self.connection.request(method, path, body)
        with self.connection.getresponse() as response:
            return response.status, response.read()


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[Client]:
    with Client(proxy.url) as connected:
        yield connected


LOST = (ConnectionError, http.client.HTTPException)


def served(echo: RunningBackend) -> int:
    """Say how many inference requests the backend has answered, asking it directly."""
    with Client(echo.url) as direct:
        lines = direct.fetch("GET", "/metrics")[1].decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("echo_requests_total "))


def unanswered(proxy: FaultProxy, number: int) -> Recorded:
    """Send a request that gets no whole answer while we look; give the proxy's record of it."""
    with Client(proxy.url) as client:
        client.connection.request("POST", "/v1/completions", '{"prompt": "hi"}')
        wait_until(lambda: len(proxy.requests) == number, what="the request to arrive")
        client.connection.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.connection.getresponse().read()
    return proxy.requests[number - 1]


def test_without_faults_requests_pass_and_are_recorded(proxy: FaultProxy, client: Client) -> None:
    assert client.health() == 200
    assert b"echo: hi" in client.chat()[1]
    assert client.fetch("HEAD", "/health") == (200, b"")
    assert [(r.number, r.method, r.path, r.status) for r in proxy.requests] == [
        (1, "GET", "/health", 200),
        (2, "POST", CHAT, 200),
        (3, "HEAD", "/health", 200),
    ]
    assert [request.number for request in proxy.mutating] == [2]
    assert json.loads(proxy.requests[1].body)["messages"][0]["content"] == "hi"
    assert proxy.requests[1].headers["host"] in proxy.url
    assert all(request.reached_upstream for request in proxy.requests)


def test_a_chunked_request_reaches_the_server_and_is_recorded_whole(
    proxy: FaultProxy, client: Client
) -> None:
    pieces = [b'{"messages": [{"role": "user",', b' "content": "in parts"}]}']
    client.connection.request("POST", CHAT, iter(pieces), encode_chunked=True)
    with client.connection.getresponse() as response:
        assert b"echo: in parts" in response.read()
    assert proxy.requests[0].body == b"".join(pieces)


def test_a_stream_passes_unbuffered() -> None:
    """The first word arrives although the second one is ten minutes away."""
    with (
        start_backend(rogue="silent-stream") as silent,
        FaultProxy(silent.url) as proxy,
        Client(proxy.url) as client,
    ):
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
        client.connection.request("POST", CHAT, json.dumps(body))
        response = client.connection.getresponse()
        assert b"echo:" in response.readline()
        assert not proxy.requests[0].finished
        response.close()


def test_a_client_that_leaves_is_seen_to_leave_by_the_server() -> None:
    with (
        start_backend("--token-delay", "600") as slow,
        FaultProxy(slow.url) as proxy,
        Client(proxy.url) as client,
        Client(slow.url) as direct,
    ):

        def running() -> bool:
            return b"echo_requests_running 1" in direct.fetch("GET", "/metrics")[1]

        client.connection.request("POST", "/v1/completions", '{"prompt": "hi"}')
        wait_until(running, what="the request to arrive")
        client.connection.close()
        wait_until(lambda: not running(), what="the server to notice")


def test_a_client_that_leaves_a_request_with_a_fault_leaves_its_task_to_wait() -> None:
    """Nothing else holds on to that task; a garbage collection took it, and a test was blamed."""
    with (
        start_backend("--token-delay", "600") as slow,
        FaultProxy(slow.url) as proxy,
        Client(proxy.url) as client,
    ):
        proxy.cut_response(1, after_bytes=10)
        client.connection.request("POST", "/v1/completions", '{"prompt": "hi"}')
        wait_until(
            lambda: bool(proxy.requests) and proxy.requests[0].deliveries == 1,
            what="the request to arrive",
        )
        client.connection.close()
        for _ in range(20):
            gc.collect()
            time.sleep(0.01)
        assert not proxy.requests[0].finished


def test_a_dropped_request_never_reaches_the_server(
    proxy: FaultProxy, client: Client, echo: RunningBackend
) -> None:
    before = served(echo)
    proxy.drop_request(1)
    with pytest.raises(LOST):
        client.chat()
    assert client.chat()[0] == 200
    assert [request.reached_upstream for request in proxy.requests] == [False, True]
    assert served(echo) == before + 1


def test_a_dropped_response_was_answered_by_the_server(
    proxy: FaultProxy, client: Client, echo: RunningBackend
) -> None:
    before = served(echo)
    proxy.drop_response(1)
    with pytest.raises(LOST):
        client.chat()
    assert (proxy.requests[0].deliveries, proxy.requests[0].status) == (1, 200)
    assert served(echo) == before + 1


def test_a_response_can_be_cut_at_every_byte(proxy: FaultProxy, client: Client) -> None:
    client.health()
    whole = proxy.requests[0].response_bytes
    for cut in range(whole):
        proxy.reset()
        proxy.cut_response(1, after_bytes=cut)
        address = proxy.url.removeprefix("http://").split(":")
        with socket.create_connection((address[0], int(address[1])), timeout=30) as raw:
            raw.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            received = b"".join(iter(lambda: raw.recv(65536), b""))
        assert len(received) == cut
        assert proxy.requests[0].status == 200


def test_a_cut_stream_ends_without_done(proxy: FaultProxy, client: Client) -> None:
    proxy.cut_response(1, after_bytes=600)
    with pytest.raises(http.client.IncompleteRead) as caught:
        client.chat("one two three four five six", stream=True)
    assert b"echo:" in caught.value.partial
    assert b"[DONE]" not in caught.value.partial


def test_a_held_request_is_delivered_late_even_when_its_client_has_left(
    proxy: FaultProxy, client: Client, echo: RunningBackend
) -> None:
    release = proxy.hold(1)
    with Client(proxy.url) as impatient:
        impatient.connection.request("POST", "/v1/completions", '{"prompt": "late"}')
        wait_until(lambda: proxy.requests, what="the request to be held")
    assert client.chat("newer")[0] == 200
    assert not proxy.requests[0].reached_upstream
    before = served(echo)
    release()
    wait_until(lambda: proxy.requests[0].finished, what="the held request")
    assert (proxy.requests[0].deliveries, proxy.requests[0].status) == (1, 200)
    assert served(echo) == before + 1


def test_a_delayed_request_waits_before_the_server_and_a_delayed_response_after_it(
    proxy: FaultProxy,
) -> None:
    proxy.delay(1, 3600)
    proxy.delay_response(2, 3600)
    assert not unanswered(proxy, 1).reached_upstream
    answered = unanswered(proxy, 2)
    wait_until(lambda: answered.status == 200, what="the server's answer")
    assert not any(request.finished for request in proxy.requests)


def test_a_short_delay_changes_nothing_but_the_time(proxy: FaultProxy, client: Client) -> None:
    proxy.delay(1, 0.01)
    proxy.delay_response(1, 0.01)
    assert b"echo: hi" in client.chat()[1]


def test_a_hanging_request_is_neither_forwarded_nor_answered(proxy: FaultProxy) -> None:
    proxy.hang(1)
    unanswered(proxy, 1)
    wait_until(lambda: proxy.requests[0].finished, what="the hang to end with its client")
    assert not proxy.requests[0].reached_upstream


@pytest.mark.parametrize("sent", [0, 300])
def test_a_response_can_hang_on_the_way(proxy: FaultProxy, sent: int) -> None:
    proxy.hang(1, after_bytes=sent)
    hanging = unanswered(proxy, 1)
    wait_until(lambda: hanging.finished, what="the hang to end with its client")
    assert hanging.status == 200


def test_closing_the_proxy_ends_what_hangs(echo: RunningBackend) -> None:
    with FaultProxy(echo.url) as proxy:
        proxy.hang(1)
        client = Client(proxy.url)
        client.connection.request("GET", "/health")
        wait_until(lambda: proxy.requests, what="the request")
    with client, pytest.raises(LOST):
        client.connection.getresponse()


def test_a_replayed_request_is_answered_twice_by_the_server(
    proxy: FaultProxy, client: Client, echo: RunningBackend
) -> None:
    before = served(echo)
    proxy.replay(1)
    answer = json.loads(client.chat()[1])
    assert served(echo) == before + 2
    assert answer["id"].endswith(f"-{before + 2}")
    assert proxy.requests[0].deliveries == 2


def test_a_replayed_request_can_lose_its_response_too(
    proxy: FaultProxy, client: Client, echo: RunningBackend
) -> None:
    before = served(echo)
    proxy.replay(1)
    proxy.drop_response(1)
    with pytest.raises(LOST):
        client.chat()
    assert served(echo) == before + 2


def test_a_rewritten_status_comes_without_asking_the_server(
    proxy: FaultProxy, client: Client
) -> None:
    proxy.rewrite_status(1, 503, headers={"Retry-After": "7"}, body=b"later")
    client.connection.request("GET", "/health")
    with client.connection.getresponse() as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "7")
        assert response.read() == b"later"
    assert not proxy.requests[0].reached_upstream
    assert client.health() == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_rewritten_response_is_what_the_client_gets(
    proxy: FaultProxy, client: Client, stream: bool
) -> None:
    def shout(response: Response) -> Response:
        return replace(response, status=202, body=response.body.replace(b"hi", b"HI"))

    proxy.rewrite_response(1, shout)
    status, body = client.chat(stream=stream)
    assert status == 202
    assert b"HI" in body and b"\r\n" not in body
    assert proxy.requests[0].status == 200


def test_faults_can_be_chosen_by_a_predicate(proxy: FaultProxy, client: Client) -> None:
    proxy.rewrite_status(lambda request: request.method == "POST", 500)
    assert [client.health(), client.chat()[0], client.health(), client.chat()[0]] == [
        200,
        500,
        200,
        500,
    ]


def test_reset_forgets_requests_and_faults(proxy: FaultProxy, client: Client) -> None:
    client.health()
    proxy.rewrite_status(1, 500)
    proxy.reset()
    assert proxy.requests == []
    assert client.health() == 200
    assert proxy.requests[0].number == 1


def test_a_server_that_is_not_there_looks_like_a_lost_connection() -> None:
    with FaultProxy(f"http://127.0.0.1:{free_port()}") as proxy, Client(proxy.url) as client:
        with pytest.raises(LOST):
            client.health()
        assert not proxy.requests[0].reached_upstream


def test_a_mistake_in_a_predicate_fails_the_test(echo: RunningBackend) -> None:
    proxy = FaultProxy(echo.url)
    proxy.drop_request(lambda request: bool(1 / 0))
    proxy.__enter__()
    with Client(proxy.url) as client, pytest.raises(LOST):
        client.health()
    with pytest.raises(ZeroDivisionError):
        proxy.__exit__(None, None, None)
