"""Starting and stopping a real process, and what it says meanwhile."""

from __future__ import annotations

import json
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.apps.server.api import ECHO, Api, body, spec
from tests.support.processes import is_alive, wait_until
from tests.support.server import bearer, running_server

from holdfast.adapters.store import Store
from holdfast.apps.server.config import ServerConfig
from holdfast.apps.server.main import Server
from holdfast.core.errors import ConfigurationError, RefusedByPolicy, StoreUnavailable


def test_a_second_server_on_the_same_file_is_refused_and_told_by_whom(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, run=False) as first,
        pytest.raises(StoreUnavailable, match=first.url),
        running_server(tmp_path, run=False),
    ):
        pass


def test_a_port_in_use_is_said_so_and_the_store_is_let_go(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port}"):
            Server(ServerConfig(db=tmp_path / "holdfast.db", port=port, run=False)).run()
    with running_server(tmp_path, run=False):
        pass


@pytest.mark.parametrize(
    ("host", "run", "wanted"),
    [
        ("127.0.0.1", None, True),
        ("::1", None, True),
        ("localhost", None, True),
        ("0.0.0.0", None, False),  # noqa: S104  # the case under test
        ("0.0.0.0", True, True),  # noqa: S104
        ("example.org", None, False),
        ("127.0.0.1", False, False),
    ],
)
def test_the_runner_is_off_beyond_loopback_unless_asked_for(
    host: str, run: bool | None, wanted: bool
) -> None:
    assert ServerConfig(db=Path("x"), host=host, run=run).runs is wanted


def test_a_signal_lets_a_stream_end_and_stops_every_process(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, process=True, log_level="info") as server,
        httpx2.Client(base_url=server.url, timeout=30) as http,
    ):
        assert server.process
        api = Api(server=server, http=http, project="acme")
        command = f"{ECHO} --token-delay 0.1 --tokens 15"
        api.ask("POST", "ensure", json={"spec": spec(command=command)})
        assert '"phase":"ready"' in api.ask("GET", "workloads/bot/readiness-events").text
        rows = api.ask("GET", "history?slug=bot").json()["history"]
        pid = next(int(row["summary"].split()[1]) for row in rows if row["action"] == "started")
        key = bearer(server.data_key("acme", "bot"))
        sent = {"model": "bot", "stream": True, "messages": [{"role": "user", "content": "a"}]}
        events = http.build_request("GET", api.path("events"), headers=bearer(server.token("acme")))
        watcher = http.send(events, stream=True)
        with http.stream(
            "POST", "/endpoint/acme/bot/v1/chat/completions", json=sent, headers=key
        ) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            rest = list(lines)
        assert rest[-2] == "data: [DONE]" or "data: [DONE]" in rest
        assert b"data:" not in watcher.read().replace(b": listening", b"")
        watcher.close()
        assert server.process.wait(30) == 0
        assert not is_alive(pid)


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, process=True, limits={"grace": 60}) as server,
        httpx2.Client(base_url=server.url, timeout=30) as http,
    ):
        assert server.process
        api = Api(server=server, http=http, project="acme")
        command = f"{ECHO} --token-delay 0.1 --tokens 1000"
        api.ask("POST", "ensure", json={"spec": spec(command=command)})
        assert '"phase":"ready"' in api.ask("GET", "workloads/bot/readiness-events").text
        key = bearer(server.data_key("acme", "bot"))
        sent = {"model": "bot", "stream": True, "messages": [{"role": "user", "content": "a"}]}
        with http.stream(
            "POST", "/endpoint/acme/bot/v1/chat/completions", json=sent, headers=key
        ) as answer:
            lines = answer.iter_lines()  # held on to: dropping it hangs up, and nothing is awaited
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            url = server.url

            def refused() -> bool:
                try:
                    httpx2.get(f"{url}/healthz", timeout=30)
                except httpx2.ConnectError:
                    return True
                except httpx2.TransportError:
                    pass  # hung up on, or slow: the first signal may not have been taken yet
                return False

            wait_until(refused, 30, "it to stop accepting")
            assert next(lines) is not None
            assert server.process.poll() is None
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(30) == 1
    # What it left behind is taken up by the next server.
    with (
        running_server(tmp_path, process=True) as server,
        httpx2.Client(base_url=server.url, timeout=30) as http,
    ):
        api = Api(server=server, http=http, project="acme")
        assert '"phase":"ready"' in api.ask("GET", "workloads/bot/readiness-events").text

        def adopted() -> bool:
            """It is recorded after it has happened."""
            rows = api.ask("GET", "history?slug=bot").json()["history"]
            return "adopted" in {row["action"] for row in rows}

        wait_until(adopted, 20, "the adoption to be recorded")


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    with running_server(tmp_path, process=True, run=False) as server:
        assert server.process
        headers = bearer(server.token("acme"))

        def write() -> None:
            with httpx2.Client(base_url=server.url, headers=headers) as http:
                for number in range(10_000):
                    slug = f"w-{threading.get_ident()}-{number}"
                    try:
                        answer = http.post("/api/projects/acme/workloads", json=body(slug))
                    except httpx2.TransportError:
                        return
                    if answer.status_code == 201:
                        acknowledged.append(slug)

        writers = [threading.Thread(target=write) for _ in range(3)]
        for each in writers:
            each.start()
        wait_until(lambda: len(acknowledged) > 60, 30, "some writes")
        server.process.kill()
        for each in writers:
            each.join()
    with running_server(tmp_path, run=False) as server, httpx2.Client(base_url=server.url) as http:
        api = Api(server=server, http=http, project="acme")
        found = {each["slug"] for each in api.ask("GET", "workloads").json()["workloads"]}
    assert set(acknowledged) <= found
    assert len(found) <= len(acknowledged) + 3


def test_logs_are_json_with_a_constant_event_and_without_secrets(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, process=True, run=False, log_level="debug") as server,
        httpx2.Client(base_url=server.url) as http,
    ):
        assert server.log
        token = server.token("acme")
        secret = token.rsplit("_", 1)[1]
        api = Api(server=server, http=http, project="acme")
        api.ask("GET", "workloads", headers={"X-Request-Id": "req-1"})
        api.ask("GET", f"workloads?{token}=1")
        api.ask("GET", f"/{token}")
        api.ask("GET", f"/api/projects/{token}/workloads")
        api.ask("POST", "workloads", json=body(description=token))
        http.get("/healthz", headers={"Authorization": f"Basic {token}", "User-Agent": token})
        made = api.ask("POST", "tokens", json={"name": "x", "scopes": ["read"]}).json()["token"]
        log = server.log
        wait_until(lambda: log.read_text().count('"status":201') > 0, 10, "the last line")
        text = log.read_text()
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    assert {"listening", "request"} <= {line["event"] for line in lines}
    assert any(line.get("request_id") == "req-1" for line in lines)
    assert secret not in text
    assert made.rsplit("_", 1)[1] not in text
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("holdfast.db*") if path.is_file())
    assert secret.encode() not in stored


def test_text_logs_are_one_line_each(tmp_path: Path) -> None:
    with running_server(
        tmp_path, process=True, run=False, log_level="info", log_format="text"
    ) as server:
        assert server.log
        log = server.log
        httpx2.get(f"{server.url}/a%1b%0ared")
        wait_until(lambda: "status=404" in log.read_text(), 10, "the line")
        assert "\u001b" not in log.read_text()
        assert all(line.split()[1] == "info" for line in log.read_text().splitlines())


def test_figures_name_no_project_and_no_workload(tmp_path: Path) -> None:
    with (
        running_server(tmp_path, run=False) as server,
        httpx2.Client(base_url=server.url) as http,
    ):
        api = Api(server=server, http=http, project="hidden-project")
        api.create("hidden-workload")
        api.ask(
            "PATCH",
            f"/api/workloads/{api.get('hidden-workload')['id']}",
            json={"model_name": "x"},
            agent="curl/8",
        )
        figures = ""

        def counted() -> bool:
            nonlocal figures
            figures = http.get("/metrics").text
            return (
                'holdfast_drift_detected_total{cause="person",type="configuration"} 1.0' in figures
            )

        wait_until(counted, 10, "the drift to be counted")
    assert "hidden" not in figures
    assert 'holdfast_workloads{phase="error"} 1.0' in figures
    assert "holdfast_store_commits_total" in figures
    assert "holdfast_build_info{" in figures
    assert (
        'holdfast_http_requests_total{method="POST",route="/api/projects/{project}/workloads"'
        ',status="201"} 1.0' in figures
    )
    assert "holdfast_http_request_duration_seconds_bucket" in figures


def test_a_server_that_runs_is_alive_and_ready(tmp_path: Path) -> None:
    with running_server(tmp_path, run=False) as server:
        assert httpx2.get(f"{server.url}/readyz").json() == {"status": "ready"}
        assert httpx2.get(f"{server.url}/healthz").json() == {"status": "ok"}


def test_a_second_project_is_refused_beside_a_server_that_runs_workloads(tmp_path: Path) -> None:
    """A command of one project can read what the other's secrets are: one runner, one trust."""
    with running_server(tmp_path, shared_runner=False) as server:
        server.token("acme")
        with pytest.raises(RefusedByPolicy, match="every project's secrets") as refused:
            server.token("other")
        assert "--shared-runner" in str(refused.value)
        with server.admin() as store:
            assert [each.slug for each in store.projects()] == ["acme"]
        server.token("acme", name="a second token of the same project")


@pytest.mark.parametrize("settings", [{"shared_runner": True}, {"run": False}])
def test_several_projects_need_a_word_or_no_runner(
    tmp_path: Path, settings: dict[str, bool]
) -> None:
    with Store.open(tmp_path / "holdfast.db") as store:
        for project in ("acme", "other"):
            store.write(lambda tx, slug=project: tx.create_project(slug))
    with (
        pytest.raises(ConfigurationError, match=r"2 projects \(acme, other\)") as refused,
        running_server(tmp_path, shared_runner=False),
    ):
        pass
    assert "--shared-runner" in str(refused.value) and "--no-run" in str(refused.value)
    with running_server(tmp_path, **{"shared_runner": False, **settings}) as server:
        server.token("third")
