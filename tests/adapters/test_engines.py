"""Engines are asked within bounds, at the address that was given and nowhere else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from threading import Event, Thread
from typing import Any

import pytest

from holdfast.adapters.engines import EngineClient, pod_address_problem
from holdfast.core.backends import backend_profile
from holdfast.core.engine_answer import MAX_ANSWER, EngineReport, Unreported
from holdfast.core.engine_report import AdapterRequest

CARDS = {"data": [{"id": "bot", "root": "org/base", "max_model_len": 4096}]}


class Peer:
    """A server that answers each path with a status and a body."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.seen: list[tuple[str, str, bytes]] = []
        self.headers: dict[str, str] = {}
        self.hang = Event()
        self.url = ""


@contextmanager
def serve() -> Iterator[Peer]:
    peer = Peer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            peer.seen.append((self.command, self.path, self.rfile.read(length)))
            status, body = peer.answers.get(self.path, (404, b""))
            if body == b"hang":
                peer.hang.wait(10)
            self.send_response(status)
            for name, value in peer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  # a name of the standard library

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    peer.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield peer
    finally:
        peer.hang.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    with serve() as found:
        yield found


def ask(url: str, backend: str = "vllm", *, rule: Any = None, within: float = 5.0) -> EngineReport:
    async def run() -> EngineReport:
        client = EngineClient(address_rule=rule, timeout=within)
        try:
            return await client.report(url, backend_profile(backend))
        finally:
            await client.aclose()

    return asyncio.run(run())


def reason(report: EngineReport) -> str:
    assert isinstance(report.model, Unreported)
    return report.model.reason


def test_an_engine_tells_what_it_serves(peer: Peer) -> None:
    peer.answers["/v1/models"] = (200, json.dumps(CARDS).encode())
    report = ask(peer.url)
    assert (report.model, report.names, report.length) == ("org/base", ("bot",), 4096)
    assert [each[:2] for each in peer.seen] == [("GET", "/v1/models")]


def test_an_older_path_is_asked_where_the_new_one_is_not_known(peer: Peer) -> None:
    """SGLang called it /get_model_info before it was /model_info."""
    peer.answers["/get_model_info"] = (200, b'{"model_path": "org/base"}')
    assert ask(peer.url, "sglang").model == "org/base"


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"", "it asks for a key (401)"),
        (404, b"", "it knows no such path (404)"),
        (302, b"", "it sends elsewhere (302)"),
        (500, b"out of memory", "it answered with 500: out of memory"),
        (200, b"<html>", "it is no JSON"),
        (200, b" " * (MAX_ANSWER + 1), f"answered with more than {MAX_ANSWER} bytes"),
        (200, b"hang", "gave no answer in"),
    ],
)
def test_what_is_no_answer_is_unknown_and_says_why(
    peer: Peer, status: int, body: bytes, said: str
) -> None:
    peer.answers["/v1/models"] = (status, body)
    peer.headers["location"] = "/elsewhere"
    assert said in reason(ask(peer.url, within=0.5))
    assert [each[1] for each in peer.seen] == ["/v1/models"]


def test_nobody_there_is_asked_once() -> None:
    report = ask("http://127.0.0.1:1", "llamacpp")
    assert "could not be reached" in reason(report)
    assert isinstance(report.adapters, Unreported)
    assert report.adapters.reason == reason(report)


def test_a_change_of_adapters_is_sent_as_json_and_a_refusal_is_told(peer: Peer) -> None:
    peer.answers["/lora-adapters"] = (200, b'{"success":true}')

    async def send(path: str, url: str = "") -> Unreported | None:
        client = EngineClient(address_rule=None)
        try:
            return await client.send(
                url or peer.url, AdapterRequest(path=path, body=[{"id": 0, "scale": 1.0}])
            )
        finally:
            await client.aclose()

    assert asyncio.run(send("/lora-adapters")) is None
    assert json.loads(peer.seen[0][2]) == [{"id": 0, "scale": 1.0}]
    refused = Unreported(reason="POST /absent: it answered with 404.")
    assert asyncio.run(send("/absent")) == refused
    lost = asyncio.run(send("/lora-adapters", "http://127.0.0.1:1"))
    assert lost is not None and lost.unreachable, "and whether it was taken is not known"


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::1", "0.0.0.1"])
def test_no_pod_is_at_this_machine_or_a_metadata_service(address: str, peer: Peer) -> None:
    assert pod_address_problem(ip_address(address))
    assert "was not asked" in reason(ask(peer.url, rule=pod_address_problem))
    assert peer.seen == []


@pytest.mark.parametrize("address", ["10.1.2.3", "192.168.0.7", "fd00::1", "34.0.0.9"])
def test_pods_are_in_private_networks_and_public_ones(address: str) -> None:
    assert pod_address_problem(ip_address(address)) == ""
