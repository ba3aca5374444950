"""Bytes on a socket: what no HTTP library would send, and what it would send too slowly."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.apps.server.api import body
from tests.support.server import RunningServer, bearer, running_server

HEAD = b"Host: localhost\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HEAD
POST = b"POST /api/projects/acme/plan HTTP/1.1\r\n" + HEAD
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"
ODDLY = POST + b"tRANSFER-eNCODING: chunked\r\n"
BOTH = POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server whose patience is short."""
    limits = {
        "head_time": 0.6,
        "body_time": 0.6,
        "keep_alive": 1,
        "write_time": 1.0,
        "write_buffer": 4096,
        "connections": 30,
        "control_body": 100_000,
        "data_body": 200_000,
    }
    with running_server(tmp_path_factory.mktemp("quick"), run=False, limits=limits) as running:
        yield running


def connect(server: RunningServer) -> socket.socket:
    url = urlsplit(server.url)
    assert url.hostname and url.port
    return socket.create_connection((url.hostname, url.port), timeout=15)


def everything(connection: socket.socket) -> bytes:
    """Read until the server closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def exchange(server: RunningServer, sent: bytes) -> bytes:
    with connect(server) as connection:
        connection.sendall(sent)
        return everything(connection)


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    return int(answer[9:12])


def authorized(server: RunningServer) -> bytes:
    return b"".join(
        f"{name}: {value}\r\n".encode() for name, value in bearer(server.token("acme")).items()
    )


MALFORMED = {
    "a length and an encoding": BOTH + b"\r\n0\r\n\r\n",
    "an encoding and a length": CHUNKED + b"Content-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "two equal lengths": POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a list of lengths": POST + b"Content-Length: 2, 2\r\n\r\n{}",
    "a negative length": POST + b"Content-Length: -2\r\n\r\n{}",
    "a signed length": POST + b"Content-Length: +2\r\n\r\n{}",
    "a huge length": POST + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    "an unknown encoding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "two encodings": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n{}",
    "chunked in HTTP/1.0": CHUNKED.replace(b"/1.1", b"/1.0") + b"\r\n0\r\n\r\n",
    "a chunk extension": CHUNKED + b"\r\n2;a=b\r\n{}\r\n0\r\n\r\n",
    "a chunk extension, oddly spelt": ODDLY + b"\r\n2;a\r\n{}\r\n0\r\n\r\n",
    "an extension of the last chunk": CHUNKED + b"\r\n2\r\n{}\r\n0;x\r\n\r\n",
    "a trailer": CHUNKED + b"\r\n0\r\nAuthorization: Bearer x\r\n\r\n",
    "a chunk that is longer than it said": CHUNKED + b"\r\n1\r\n{}\r\n0\r\n\r\n",
    "a bare line feed": b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
    "a bare line feed in one header": GET[:-2] + b"\n\r\n",
    "a folded header": GET + b"X-A: b\r\n c\r\n\r\n",
    "a space before a colon": GET + b"X-A : b\r\n\r\n",
    "a null byte in a header": GET + b"X-A: \0\r\n\r\n",
    "a carriage return in a header": GET + b"X-A: a\rb\r\n\r\n",
    "an empty line first": b"\r\n" + GET + b"\r\n",
    "another version": GET.replace(b"/1.1", b"/2.0") + b"\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two hosts": GET + b"Host: other\r\n\r\n",
    "a host with a path": b"GET /healthz HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a host with credentials": b"GET /healthz HTTP/1.1\r\nHost: a@b\r\n\r\n",
    "a host with a space": b"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n",
    "an empty host": b"GET /healthz HTTP/1.1\r\nHost: \r\n\r\n",
    "a whole URL": b"GET http://localhost/healthz HTTP/1.1\r\n" + HEAD + b"\r\n",
    "a fragment": b"GET /healthz#x HTTP/1.1\r\n" + HEAD + b"\r\n",
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "noise": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_could_be_read_in_two_ways_is_refused_and_the_connection_closed(
    server: RunningServer, sent: bytes
) -> None:
    answer = exchange(server, sent)
    assert status(answer) == 400
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED.keys())
def test_the_same_holds_byte_by_byte(server: RunningServer, sent: bytes) -> None:
    with connect(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for place in range(0, len(sent), 7):
                connection.send(sent[place : place + 7])
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = everything(connection)
    # Where the refusal crossed with what was still being sent, only the end is seen. Where the
    # head alone was enough for an answer, that answer stands, and the rest ends the connection.
    assert answer == b"" or status(answer) in (400, 401)
    assert answer.count(b"HTTP/1.1") <= 1


def test_two_requests_in_one_piece_are_refused_together(server: RunningServer) -> None:
    answer = exchange(server, GET + b"\r\n" + GET + b"\r\n")
    assert status(answer) == 400
    assert answer.count(b"HTTP/1.1") == 1


def test_a_request_hidden_in_a_body_is_not_answered(server: RunningServer) -> None:
    hidden = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    length = f"Content-Length: {len(hidden)}\r\nConnection: close\r\n\r\n".encode()
    answer = exchange(server, POST + length + hidden)
    assert status(answer) == 401
    assert answer.count(b"HTTP/1.1") == 1


def test_requests_one_after_the_other_share_a_connection(server: RunningServer) -> None:
    with connect(server) as connection:
        for _ in range(3):
            connection.sendall(GET + b"\r\n")
            assert status(connection.recv(65536)) == 200


def test_a_small_body_that_nobody_wants_does_not_cost_the_connection(
    server: RunningServer,
) -> None:
    with connect(server) as connection:
        connection.sendall(POST + b"Content-Length: 4\r\n\r\n")
        assert status(connection.recv(65536)) == 401
        connection.sendall(b"abcd" + GET + b"\r\n")
        assert status(connection.recv(65536)) == 200


def test_a_well_formed_chunked_body_is_read(server: RunningServer) -> None:
    head = POST + authorized(server) + b"Content-Type: application/json\r\n"
    chunks = b'9\r\n{"specs":\r\n3\r\n[]}\r\n0\r\n\r\n'
    with connect(server) as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        assert status(connection.recv(65536)) == 200
        connection.sendall(GET + b"\r\n")
        assert status(connection.recv(65536)) == 200


PATHS = {
    "/healthz/": 404,
    "//healthz": 404,
    "/./healthz": 404,
    "/api/../healthz": 404,
    "/%68ealthz": 404,
    "/healthz%00": 404,
    "/healthz;a=b": 404,
    "/api/projects/acme/workloads/..%2f..%2fhealthz": 404,
    "/api/projects/acme%2fworkloads": 404,
    "/api/projects/../../healthz": 404,
    "/api/projects//workloads": 404,
    "/endpoint/acme/bot/v1/../../../../healthz": 404,
    "/endpoint/acme/bot/v1/%2e%2e/secret": 404,
    "/endpoint/acme/bot/v1/..%5csecret": 404,
    "/endpoint/acme/bot/v1/a%00b": 404,
    "/endpoint/acme/bot/v1//models": 404,
}


@pytest.mark.parametrize(("path", "wanted"), PATHS.items(), ids=PATHS.keys())
def test_a_path_that_is_not_canonical_leads_nowhere(
    server: RunningServer, path: str, wanted: int
) -> None:
    answer = exchange(
        server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )
    assert status(answer) == wanted
    assert b"no_such_route" in answer


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PUT", "PROPFIND"])
def test_a_method_that_a_path_does_not_take_is_refused(server: RunningServer, method: str) -> None:
    sent = f"{method} /healthz HTTP/1.1\r\nHost: localhost\r\nX-HTTP-Method-Override: GET\r\n"
    answer = exchange(server, f"{sent}Connection: close\r\n\r\n".encode())
    assert status(answer) == 405
    assert b"allow: GET" in answer


def test_head_answers_like_get_without_the_body(server: RunningServer) -> None:
    sent = GET.replace(b"GET", b"HEAD") + b"Connection: close\r\n\r\n"
    answer = exchange(server, sent)
    assert status(answer) == 200
    assert answer.endswith(b"\r\n\r\n")


def test_too_many_headers_are_refused(server: RunningServer) -> None:
    many = b"".join(b"X-%d: a\r\n" % number for number in range(2_000))
    assert status(exchange(server, GET + many + b"\r\n")) == 431


def test_a_large_header_is_refused(server: RunningServer) -> None:
    assert status(exchange(server, GET + b"X: " + b"a" * 70_000 + b"\r\n\r\n")) == 431


def test_a_head_without_an_end_is_refused(server: RunningServer) -> None:
    assert status(exchange(server, GET + b"X: " + b"a" * 200_000)) == 431


@pytest.mark.parametrize("size", [9_000, 100_000])
def test_a_long_url_is_refused(server: RunningServer, size: int) -> None:
    sent = b"GET /healthz?" + b"a=1&" * (size // 4) + b" HTTP/1.1\r\n" + HEAD + b"\r\n"
    assert status(exchange(server, sent)) == 414


def test_a_megabyte_of_token_is_refused(server: RunningServer) -> None:
    assert status(exchange(server, GET + b"Authorization: Bearer " + b"a" * 2**20)) == 431


def test_an_announced_body_over_the_limit_is_refused_before_it_is_sent(
    quick: RunningServer,
) -> None:
    began = time.monotonic()
    head = POST + authorized(quick) + b"Content-Type: application/json\r\n"
    with connect(quick) as connection:
        connection.sendall(head + b"Content-Length: 100001\r\n\r\n")
        answer = everything(connection)
    assert status(answer) == 413
    assert time.monotonic() - began < 5


def test_an_endless_chunked_body_is_refused_once_it_is_over_the_limit(
    quick: RunningServer,
) -> None:
    head = POST + authorized(quick) + b"Content-Type: application/json\r\n"
    with connect(quick) as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(200):
                connection.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = connection.recv(65536)
    assert status(answer) == 413


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(GET[:20], id="half a head"),
        pytest.param(POST + b"Content-Length: 10\r\n\r\nabc", id="half a body"),
    ],
)
def test_a_client_that_drips_is_cut_at_an_absolute_deadline(
    quick: RunningServer, sent: bytes
) -> None:
    """A byte now and then does not buy more time."""
    with connect(quick) as connection:
        connection.sendall(sent)
        connection.settimeout(0.2)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                if sent:
                    connection.send(b"x")
                if connection.recv(65536) == b"":
                    break
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break
        else:
            pytest.fail("it was never cut")


def test_a_slow_body_is_told_so(quick: RunningServer) -> None:
    head = POST + authorized(quick) + b"Content-Type: application/json\r\n"
    answer = exchange(quick, head + b"Content-Length: 10\r\n\r\nabc")
    assert status(answer) == 408


def test_an_idle_connection_is_closed(quick: RunningServer) -> None:
    with connect(quick) as connection:
        connection.sendall(GET + b"\r\n")
        assert status(connection.recv(65536)) == 200
        assert connection.recv(65536) == b""


def test_a_client_that_does_not_read_is_cut(quick: RunningServer) -> None:
    """Ten megabytes are asked for and none is taken: more than any kernel would hold."""
    with httpx2.Client(base_url=quick.url, headers=bearer(quick.token("acme"))) as http:
        for number in range(80):
            text = body(f"w{number}", description="x" * 60_000)
            assert http.post("/api/projects/acme/workloads", json=text).status_code == 201
    request = b"GET /api/projects/acme/workloads HTTP/1.1\r\n" + HEAD + authorized(quick) + b"\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        url = urlsplit(quick.url)
        connection.connect((url.hostname, url.port))
        connection.sendall(request)
        ended = select.poll()
        ended.register(connection, select.POLLERR | select.POLLHUP)
        assert ended.poll(20_000), "the server still waits"
    assert status(exchange(quick, GET + b"Connection: close\r\n\r\n")) == 200


def test_idle_connections_beyond_the_limit_keep_nobody_out(quick: RunningServer) -> None:
    held = [connect(quick) for _ in range(30)]
    try:
        assert status(exchange(quick, GET + b"Connection: close\r\n\r\n")) == 200
    finally:
        for each in held:
            each.close()


def test_an_upgrade_is_ignored(server: RunningServer) -> None:
    sent = GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n"
    assert status(exchange(server, sent)) == 200


def test_a_request_id_is_echoed_only_where_it_is_harmless(server: RunningServer) -> None:
    good = exchange(server, GET + b"X-Request-Id: abc-1\r\nConnection: close\r\n\r\n")
    assert b"x-request-id: abc-1\r\n" in good
    bad = exchange(server, GET + b"X-Request-Id: a b<script>\r\nConnection: close\r\n\r\n")
    assert status(bad) == 200
    assert b"script" not in bad
