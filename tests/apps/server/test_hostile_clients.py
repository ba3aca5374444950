"""What one client sends, holds or leaves unread keeps nobody else from being answered."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.support.processes import kill_group
from tests.support.server import RunningServer, bearer, running_server
from tests.support.serving import clean_environment, serve_command

from holdfast.adapters.store import Store, TokenScope, WorkloadRecord
from holdfast.apps.server.config import ServerLimits
from holdfast.apps.server.protocol import Admission, ConnectionLimiter
from holdfast.apps.server.request import Request
from holdfast.apps.server.workload_routes import LIST_SLICE, list_workloads
from holdfast.core.errors import MAX_PROBLEMS
from holdfast.core.live import Status, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.workload import Desired

BASE = {"name": "bot", "slug": "bot", "model": "tiny", "backend": "custom"}
READ = [TokenScope.READ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("hostile"), run=False) as server:
        yield server


def answered_beside(server: RunningServer, work: Callable[[], Any]) -> tuple[Any, int]:
    """Do the work in a thread; return its result and how many probes were answered meanwhile."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    count = 0
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        http.get("/healthz")
        thread.start()
        while thread.is_alive():
            http.get("/healthz")
            count += 1
            time.sleep(0.005)
    thread.join()
    assert results
    return results[0], count


def planned(server: RunningServer, body: bytes) -> httpx2.Response:
    headers = {**bearer(server.token(scopes=READ)), "content-type": "application/json"}
    return httpx2.post(
        f"{server.url}/api/projects/acme/plan", content=body, headers=headers, timeout=120
    )


def test_a_word_of_megabytes_is_refused_before_it_is_split(server: RunningServer) -> None:
    body = json.dumps({"specs": [{**BASE, "command": "x" * 1_800_000}]}).encode()
    began = time.monotonic()
    answer = planned(server, body)
    assert answer.status_code == 400
    assert answer.json()["problems"][0]["field"] == "command"
    assert time.monotonic() - began < 20, "it took 54 seconds when it was split"


@pytest.mark.parametrize("where", ["top", "spec", "env", "health"])
def test_of_megabytes_of_unknown_keys_a_few_are_named(server: RunningServer, where: str) -> None:
    keys: dict[str, Any] = {f"k{number:030}": 1 for number in range(95_000)}
    spec = {**BASE, where: keys} if where in ("env", "health") else {**BASE, **keys}
    body = keys if where == "top" else {"specs": [spec]}
    raw = json.dumps(body, separators=(",", ":")).encode()
    assert 3_000_000 < len(raw) < 4_194_304
    began = time.monotonic()
    answer = planned(server, raw)
    assert answer.status_code == 400
    assert 0 < len(answer.json()["problems"]) <= MAX_PROBLEMS + 2
    assert len(answer.content) < 100_000
    assert time.monotonic() - began < 15


def test_a_body_of_countless_values_is_refused_before_it_is_parsed(server: RunningServer) -> None:
    raw = b'{"specs":[' + b"{}," * 1_300_000 + b"{}]}"
    answer = planned(server, raw)
    assert answer.status_code == 400
    assert "holds too much" in answer.json()["message"]


def test_a_large_body_is_read_beside_other_requests(server: RunningServer) -> None:
    body = json.dumps(
        {"specs": [{**BASE, "slug": f"s{n}", "description": "d" * 1_000} for n in range(900)]}
    ).encode()
    answer, meanwhile = answered_beside(server, lambda: planned(server, body))
    assert answer.status_code == 200
    assert meanwhile >= 3, "the event loop stood still while the body was read"


def test_a_long_list_is_written_beside_other_requests(server: RunningServer) -> None:
    writer = Writer(manager="test")

    def fill(tx: Any) -> None:
        tx.ensure_project("many")
        for number in range(3_000):
            where = WorkloadId(project="many", slug=f"w{number:05}")
            fields = {name: BASE[name] for name in ("name", "model", "backend")}
            tx.create_workload(Desired(id=where, fields=fields), writer=writer)

    with server.admin() as store:
        store.write(fill)
    token = server.token("many", READ)

    def listed() -> httpx2.Response:
        return httpx2.get(
            f"{server.url}/api/projects/many/workloads", headers=bearer(token), timeout=120
        )

    answer, meanwhile = answered_beside(server, listed)
    slugs = [each["slug"] for each in answer.json()["workloads"]]
    assert slugs == [f"w{number:05}" for number in range(3_000)], "the wire knows no pages"
    assert meanwhile >= 10, "the event loop stood still while the list was written"
    page = httpx2.get(
        f"{server.url}/api/projects/many/workloads?limit=40&after=w00009", headers=bearer(token)
    )
    assert [each["slug"] for each in page.json()["workloads"]] == slugs[10:50]


def test_a_list_lets_others_in_between_its_slices(server: RunningServer) -> None:
    """Beside the one above, and without a clock: how often the event loop turns meanwhile."""

    class Parts:
        def __init__(self, store: Store) -> None:
            self.store = store
            self.listing = asyncio.Lock()

        def status(self, record: WorkloadRecord) -> Status:
            return Status()

        def project_id(self, project: str) -> str:
            return "p"

    def fill(tx: Any) -> None:
        tx.ensure_project("some")
        for number in range(500):
            where = WorkloadId(project="some", slug=f"w{number:05}")
            fields = {name: BASE[name] for name in ("name", "model", "backend")}
            tx.create_workload(Desired(id=where, fields=fields), writer=Writer(manager="test"))

    async def turns(store: Store) -> int:
        count = 0

        async def others() -> None:
            nonlocal count
            while True:
                await asyncio.sleep(0)
                count += 1

        beside = asyncio.create_task(others())
        request = Request({"method": "GET", "headers": [], "query_string": b""}, None)  # type: ignore[arg-type]  # it has no body
        request.params = {"project": "some"}
        answer = await list_workloads(Parts(store), request)  # type: ignore[arg-type]  # all it asks
        beside.cancel()
        assert len(json.loads(answer.body)["workloads"]) == 500
        return count

    with server.admin() as store:
        store.write(fill)
        assert asyncio.run(turns(store)) >= 500 // LIST_SLICE - 1


def test_a_server_whose_log_nobody_reads_goes_on_answering(tmp_path: Path) -> None:
    process = subprocess.Popen(
        serve_command(tmp_path / "holdfast.db", "--no-run"),
        cwd=tmp_path,
        env=clean_environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,  # never read
        start_new_session=True,
    )
    try:
        assert process.stdout and process.stderr
        url = process.stdout.readline().decode().split()[-1]
        with httpx2.Client(base_url=url, timeout=20) as http:
            for _ in range(1_500):  # each is a line of about 200 bytes; a pipe holds 64 KiB
                assert http.get("/api/projects/acme/workloads").status_code in (401, 429)
            assert http.get("/healthz").status_code == 200
        process.terminate()
        process.wait(30)  # the lines that nobody reads must not keep it from ending either
    finally:
        kill_group(process)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


@contextmanager
def idle_sockets(url: str, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    place = urlsplit(url)
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            each = socket.create_connection((place.hostname, place.port), timeout=20)
            stack.enter_context(each)
            each.sendall(first)
            held.append(each)
        yield held


@pytest.mark.parametrize("first", [b"", b"GET /api/projects/a"], ids=["silent", "half a head"])
def test_idle_connections_make_room_for_those_that_ask(tmp_path: Path, first: bytes) -> None:
    limits = {"connections": 20, "head_time": 120.0}
    with (
        running_server(tmp_path, run=False, limits=limits) as server,
        idle_sockets(server.url, 60, first),
    ):
        assert httpx2.get(f"{server.url}/healthz", timeout=20).status_code == 200
        answer = httpx2.get(
            f"{server.url}/api/projects/acme/workloads", headers=bearer(server.token()), timeout=20
        )
        assert answer.status_code == 200


class Held:
    """A connection as the room sees it."""

    def __init__(self, *, idle: bool) -> None:
        self.idle = idle
        self.closed = False

    def make_room(self) -> None:
        self.closed = True


LIMITS = ServerLimits(
    connections=10, peer_connections=4, loopback_connections=2, probe_connections=2
)


def enter(room: ConnectionLimiter, address: str, *, idle: bool) -> tuple[Held, Admission]:
    held = Held(idle=idle)
    return held, room.enter(held, (address, 1))


def test_one_address_cannot_take_what_others_need() -> None:
    room = ConnectionLimiter(LIMITS)
    first, _ = enter(room, "10.0.0.1", idle=True)
    for _ in range(30):
        assert enter(room, "10.0.0.1", idle=True)[1] is Admission.FULL
    assert first.closed
    others = [enter(room, f"10.0.1.{n}", idle=False) for n in range(4)]
    assert {place for _, place in others} == {Admission.FULL}
    assert not any(held.closed for held, _ in others)


def test_an_address_whose_connections_are_all_busy_gets_no_more_but_probes() -> None:
    room = ConnectionLimiter(LIMITS)
    assert [enter(room, "10.0.0.1", idle=False)[1] for _ in range(5)] == [
        *[Admission.FULL] * 4,
        Admission.PROBE,
    ]
    assert enter(room, "10.0.0.2", idle=False)[1] is Admission.FULL


def test_some_places_are_kept_for_this_machine_and_for_probes() -> None:
    room = ConnectionLimiter(LIMITS)
    for number in range(8):
        assert enter(room, f"10.0.0.{number}", idle=False)[1] is Admission.FULL
    assert enter(room, "10.0.0.99", idle=False)[1] is Admission.PROBE
    assert enter(room, "127.0.0.1", idle=False)[1] is Admission.FULL
    assert enter(room, "127.0.0.1", idle=False)[1] is Admission.PROBE
    assert enter(room, "::1", idle=False)[1] is Admission.PROBE
    assert enter(room, "127.0.0.1", idle=False)[1] is Admission.NONE


def test_those_who_left_leave_their_place() -> None:
    room = ConnectionLimiter(LIMITS)
    held = [enter(room, "10.0.0.1", idle=False)[0] for _ in range(4)]
    assert enter(room, "10.0.0.1", idle=False)[1] is Admission.PROBE
    for each in held:
        room.leave(each)
    assert enter(room, "10.0.0.1", idle=False)[1] is Admission.FULL


def test_a_probe_is_answered_while_every_place_is_busy(tmp_path: Path) -> None:
    limits = {"connections": 2, "loopback_connections": 0, "probe_connections": 2}
    with running_server(tmp_path, run=False, limits=limits) as server, ExitStack() as stack:
        token = bearer(server.token())
        held = []  # dropping an iterator would hang up
        for _ in range(2):
            http = stack.enter_context(httpx2.Client(base_url=server.url, timeout=20))
            stream = http.stream("GET", "/api/projects/acme/events", headers=token)
            lines = stack.enter_context(stream).iter_lines()
            next(lines)
            held.append(lines)
        for _ in range(5):
            assert httpx2.get(f"{server.url}/healthz", timeout=20).status_code == 200
        refused = httpx2.get(f"{server.url}/api/projects/acme/workloads", headers=token, timeout=20)
        assert refused.status_code == 503
        assert refused.json()["error"] == "too_many_connections"
        assert int(refused.headers["retry-after"]) > 0
