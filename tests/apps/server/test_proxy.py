"""The data plane against real processes: what passes, what does not, what happens when they die."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.apps.server.api import ECHO, Api, body, spec
from tests.support.processes import is_alive, rogue_command, wait_until
from tests.support.server import RunningServer, bearer, running_server

HOSTILE = [
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Credentials", "true"),
    ("Clear-Site-Data", '"*"'),
    ("Set-Cookie", "session=stolen; Path=/"),
    ("Content-Security-Policy", "default-src *"),
    ("Strict-Transport-Security", "max-age=0"),
    ("Location", "https://elsewhere.example/"),
    ("Refresh", "0; url=https://elsewhere.example/"),
    ("Link", "<https://elsewhere.example/>; rel=preload"),
    ("Service-Worker-Allowed", "/"),
    ("Cache-Control", "public, max-age=99999"),
    ("X-Accel-Redirect", "/etc/passwd"),
    ("X-Sendfile", "/etc/passwd"),
    ("X-Holdfast-Replica", "another"),
    ("Report-To", "{}"),
    ("Alt-Svc", 'h2="elsewhere.example:443"'),
    ("WWW-Authenticate", "Basic realm=x"),
]
"""Headers that would speak for the control plane's own origin, or order a proxy about."""
MIRROR = '''
import json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOSTILE = @HOSTILE@

class Mirror(BaseHTTPRequestHandler):
    """Answers with the request as it arrived."""
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        length = int(self.headers.get("Content-Length") or 0)
        chunked = "chunked" in (self.headers.get("Transfer-Encoding") or "")
        size = length
        if chunked:
            size = 0
            while True:
                n = int(self.rfile.readline(), 16)
                size += n
                self.rfile.read(n + 2)
                if not n:
                    break
            text = ""
        else:
            text = self.rfile.read(length).decode("latin-1")
        seen = {"path": self.path, "method": self.command, "body": text[:1000], "size": size,
                "headers": [[k.lower(), v] for k, v in self.headers.items()]}
        answer = json.dumps(seen).encode()
        if "switch" in self.path:
            self.connection.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: x\\r\\n"
                                    b"Connection: Upgrade\\r\\n\\r\\nnot HTTP any more")
            self.close_connection = True
            return
        status = 418 if "teapot" in self.path else 422 if "refuse" in self.path else 200
        self.send_response(status)
        hostile = "hostile" in self.path
        self.send_header("Content-Type", "text/html" if hostile else "application/json")
        for name, value in HOSTILE if hostile else ():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Set-Cookie", "a=b")
        self.send_header("Keep-Alive", "timeout=5")
        self.send_header("X-Compute-Time", "17")
        self.end_headers()
        self.wfile.write(answer)
    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET
    def log_message(self, *_): pass

ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Mirror).serve_forever()
'''.replace("@HOSTILE@", repr(HOSTILE))


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    limits = {"idle_time": 0.5, "recheck_time": 0.2, "data_body": 3_000_000}
    with running_server(tmp_path_factory.mktemp("proxy"), limits=limits) as running:
        yield running


@pytest.fixture(scope="module")
def client(runner: RunningServer) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=runner.url, timeout=30) as http:
        yield http


@pytest.fixture
def data(runner: RunningServer, client: httpx2.Client, request: pytest.FixtureRequest) -> Api:
    return Api(server=runner, http=client, project=f"d{abs(hash(request.node.nodeid)) % 10**12}")


def serve(data: Api, command: str, **more: Any) -> tuple[str, dict[str, str]]:
    """Run a workload until it is ready; give its endpoint and the header with its key."""
    answer = data.ask("POST", "ensure", json={"spec": spec(command=command, **more)})
    assert answer.status_code == 200, answer.text
    ready = data.ask("GET", "workloads/bot/readiness-events").text
    assert '"phase":"ready"' in ready, ready
    return f"/endpoint/{data.project}/bot/v1", bearer(data.server.data_key(data.project, "bot"))


def chat(text: str = "hello there", **more: Any) -> dict[str, Any]:
    return {"model": "bot", "messages": [{"role": "user", "content": text}], **more}


def pids(data: Api) -> dict[str, int]:
    """The process of each replica, as the history has it."""
    rows = data.ask("GET", "history?slug=bot&limit=1000").json()["history"]
    started = [row for row in reversed(rows) if row["action"] == "started"]
    return {row["detail"]["replica"]: int(row["summary"].split()[1]) for row in started}


@pytest.fixture
def mirror(data: Api, tmp_path: Path) -> tuple[str, dict[str, str]]:
    script = tmp_path / "mirror.py"
    script.write_text(MIRROR)
    return serve(data, f"{sys.executable} {script}")


def test_a_request_passes_as_it_is_without_its_credentials(
    data: Api, mirror: tuple[str, dict[str, str]]
) -> None:
    where, key = mirror
    sent = {
        **key,
        "Cookie": "session=1",
        "X-Forwarded-For": "10.0.0.1",
        "Forwarded": "for=10.0.0.1",
        "X-Custom": "kept",
        "X-Hop": "dropped",
        "Connection": "X-Hop, keep-alive",
        "Proxy-Authorization": "Basic x",
        "User-Agent": "app/1",
    }
    answer = data.http.post(f"{where}/things/a%2Fb?x=%20y&z", content=b"\0raw", headers=sent)
    seen = answer.json()
    headers = dict(seen["headers"])
    assert (seen["method"], seen["path"]) == ("POST", "/v1/things/a%2Fb?x=%20y&z")
    assert seen["body"] == "\0raw"
    assert headers["x-custom"] == "kept"
    assert headers["user-agent"] == "app/1"
    assert headers["host"].startswith("127.0.0.1:")
    for name in ("authorization", "cookie", "x-forwarded-for", "forwarded", "x-hop"):
        assert name not in headers
    assert "proxy-authorization" not in headers
    assert headers["x-request-id"] == answer.headers["x-request-id"]


def test_an_answer_passes_as_it_is_without_what_concerns_the_connection(
    data: Api, mirror: tuple[str, dict[str, str]]
) -> None:
    where, key = mirror
    answer = data.http.get(f"{where}/teapot", headers=key)
    assert answer.status_code == 418
    assert answer.headers["x-compute-time"] == "17"
    assert answer.headers["x-holdfast-replica"] == "primary-1"
    for name in ("set-cookie", "keep-alive", "server"):
        assert name not in answer.headers


def test_a_workload_cannot_speak_for_the_servers_origin(
    data: Api, mirror: tuple[str, dict[str, str]]
) -> None:
    where, key = mirror
    answer = data.http.get(f"{where}/hostile", headers=key)
    assert answer.status_code == 200
    ours = {
        "x-holdfast-replica": "primary-1",
        "cache-control": "no-store",
        "content-security-policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
    }
    for name, _ in HOSTILE:
        assert answer.headers.get(name) == ours.get(name.lower()), name
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"] == "text/html", "it is shown in a sandbox, not changed"


def test_a_workloads_own_error_passes_as_it_is(
    data: Api, mirror: tuple[str, dict[str, str]]
) -> None:
    where, key = mirror
    answer = data.http.post(f"{where}/refuse", content=b"abc", headers=key)
    assert answer.status_code == 422
    assert answer.json()["body"] == "abc", "the workload's own words, not ours"
    assert answer.headers["x-holdfast-replica"] == "primary-1"


def test_a_workload_cannot_switch_protocols(data: Api, mirror: tuple[str, dict[str, str]]) -> None:
    where, key = mirror
    sent = {**key, "Connection": "Upgrade", "Upgrade": "websocket"}
    for headers in (key, sent):
        answer = data.http.get(f"{where}/switch", headers=headers)
        assert answer.status_code == 502, answer.text


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_every_method_passes(data: Api, mirror: tuple[str, dict[str, str]], method: str) -> None:
    where, key = mirror
    assert data.http.request(method, f"{where}/models", headers=key).json()["method"] == method


def test_a_large_upload_passes_in_pieces(data: Api, mirror: tuple[str, dict[str, str]]) -> None:
    where, key = mirror
    pieces = (b"x" * 100_000 for _ in range(20))
    assert data.http.post(f"{where}/files", content=pieces, headers=key).json()["size"] == 2_000_000
    whole = data.http.post(f"{where}/files", content=b"x" * 2_000_000, headers=key)
    assert whole.json()["size"] == 2_000_000


def test_an_upload_over_the_limit_is_refused(data: Api, mirror: tuple[str, dict[str, str]]) -> None:
    where, key = mirror
    answer = data.http.post(f"{where}/files", content=b"x" * 3_000_001, headers=key)
    assert answer.status_code == 413
    pieces = (b"x" * 100_000 for _ in range(31))
    assert data.http.post(f"{where}/files", content=pieces, headers=key).status_code == 413


def test_the_workloads_slug_stands_for_its_model(
    data: Api, mirror: tuple[str, dict[str, str]]
) -> None:
    where, key = mirror
    seen = data.http.post(f"{where}/chat/completions", json=chat(temperature=0.5), headers=key)
    assert json.loads(seen.json()["body"]) == {**chat(temperature=0.5), "model": "tiny"}
    other = {**chat(), "model": "something-else"}
    seen = data.http.post(f"{where}/chat/completions", json=other, headers=key)
    assert json.loads(seen.json()["body"]) == other


def test_a_stream_arrives_as_it_is_made(data: Api) -> None:
    where, key = serve(data, f"{ECHO} --token-delay 0.15")
    sent = chat("one two three four five", stream=True)
    with data.http.stream("POST", f"{where}/chat/completions", json=sent, headers=key) as answer:
        lines = (line for line in answer.iter_lines() if line)
        first = next(lines)
        # The rest takes most of a second: had the stream been held back, it would be here.
        assert "echo:" in first
        rest = list(lines)
    assert rest[-1] == "data: [DONE]"


def test_a_stream_that_falls_silent_ends_with_an_error_and_no_done(data: Api) -> None:
    where, key = serve(data, " ".join(rogue_command("silent-stream")))
    answer = data.http.post(
        f"{where}/chat/completions", json=chat("a b c d", stream=True), headers=key
    )
    assert "stream_interrupted" in answer.text
    assert "[DONE]" not in answer.text


def test_a_stream_whose_process_dies_ends_with_an_error_and_no_done(data: Api) -> None:
    where, key = serve(data, f"{ECHO} --token-delay 0.2 --tokens 100")
    sent = chat(stream=True)
    with data.http.stream("POST", f"{where}/chat/completions", json=sent, headers=key) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        os.kill(pids(data)["primary-1"], signal.SIGKILL)
        rest = "\n".join(lines)
    assert "stream_interrupted" in rest
    assert "[DONE]" not in rest


def test_no_request_is_lost_when_one_of_two_replicas_dies(data: Api) -> None:
    where, key = serve(data, ECHO, replicas=2)
    os.kill(pids(data)["primary-1"], signal.SIGKILL)
    answers = [
        data.http.post(f"{where}/chat/completions", json=chat(), headers=key) for _ in range(20)
    ]
    assert {answer.status_code for answer in answers} == {200}


def test_a_killed_process_is_drift_until_it_serves_again(data: Api) -> None:
    serve(data, ECHO)
    os.kill(pids(data)["primary-1"], signal.SIGKILL)

    def healed() -> dict[str, Any] | None:
        found = data.ask("GET", "drift?state=all").json()["drifts"]
        return found[0] if found and found[0].get("resolution") else None

    drift = wait_until(healed, 30, "the drift to be recorded and healed")
    assert drift["kinds"] == ["resource"]
    assert drift["resolution"] == "healed"
    (field,) = drift["fields"]
    assert (field["desired"], field["live"]) == ("running", "exited")
    assert field["evidence"]
    figures = data.http.get("/metrics").text
    assert 'holdfast_drift_detected_total{cause="unknown",type="resource"}' in figures
    assert 'holdfast_drift_resolved_total{resolution="healed",type="resource"}' in figures


def test_a_client_that_leaves_frees_the_replica(data: Api) -> None:
    where, key = serve(data, f"{ECHO} --token-delay 0.05 --tokens 1000")
    sent = chat(stream=True)
    with data.http.stream("POST", f"{where}/chat/completions", json=sent, headers=key) as answer:
        next(answer.iter_lines())

    def running() -> float:
        text = data.http.get(f"{where}/models", headers=key)
        assert text.status_code == 200
        return proxied_abandoned(data)

    assert wait_until(running, 20, "the proxy to notice")


def proxied_abandoned(data: Api) -> float:
    for line in data.http.get("/metrics").text.splitlines():
        if line.startswith('holdfast_proxy_requests_total{outcome="abandoned"}'):
            return float(line.split()[1])
    return 0.0


def test_an_open_stream_ends_when_its_key_is_revoked(data: Api) -> None:
    where, key = serve(data, f"{ECHO} --token-delay 0.05 --tokens 2000")
    sent = chat(stream=True)
    with data.http.stream("POST", f"{where}/chat/completions", json=sent, headers=key) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        data.server.revoke(key["Authorization"].removeprefix("Bearer "))
        rest = "\n".join(lines)
    assert "[DONE]" not in rest
    assert "stream_interrupted" in rest


def test_a_workload_that_is_not_ready_says_when_to_come_back(data: Api) -> None:
    made = data.ask(
        "POST", "workloads", json=body(config={"command": f"{ECHO} --startup-delay 60"})
    )
    assert made.status_code == 201
    key = bearer(data.server.data_key(data.project, "bot"))
    answer = data.http.post(
        f"/endpoint/{data.project}/bot/v1/chat/completions", json=chat(), headers=key
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
    assert int(answer.headers["retry-after"]) > 0
    assert "bootstrapping" in answer.json()["message"]


def test_a_changed_workload_is_rolled_over_without_losing_a_request(data: Api) -> None:
    where, key = serve(data, f"{ECHO} --model one")
    first = pids(data)["primary-1"]
    changed = {"spec": spec(command=f"{ECHO} --model two")}
    assert data.ask("POST", "ensure", json=changed).json()["outcome"] == "updated"
    seen = []

    def rolled() -> bool:
        answer = data.http.post(f"{where}/chat/completions", json=chat(), headers=key)
        assert answer.status_code == 200
        seen.append(answer.json()["model"])
        return seen[-1] == "two"

    wait_until(rolled, 30, "the new process to serve")
    wait_until(lambda: not is_alive(first), 30, "the old process to end")


def test_logs_are_given_and_followed(data: Api) -> None:
    serve(data, ECHO)
    assert "primary-1 listening on" in data.ask("GET", "workloads/bot/logs?tail=5").text
    headers = bearer(data.server.token(data.project))
    path = data.path("workloads/bot/logs?follow=true")
    with data.http.stream("GET", path, headers=headers) as answer:
        assert "listening" in next(answer.iter_lines())
