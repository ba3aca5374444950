"""`holdfast ui`: the page, signed in, by a link that works once."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.apps.cli.conftest import Holdfast
from tests.support.server import RunningServer, running_server


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    with running_server(tmp_path, run=False) as running:
        monkeypatch.setenv("HOLDFAST_URL", running.url)
        monkeypatch.setenv("HOLDFAST_PROJECT", "acme")
        monkeypatch.setenv("HOLDFAST_TOKEN", running.token("acme", ["read"], name="ann"))
        yield running


def me_of(server: RunningServer, url: str) -> dict[str, object]:
    base, _, code = url.partition("/ui/login#code=")
    assert base == server.url
    made = httpx2.post(f"{base}/api/sessions", json={"code": code})
    assert made.status_code == 201, made.text
    return dict(made.json())


def test_without_a_browser_the_link_is_printed(
    holdfast: Holdfast, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    run = holdfast("ui")
    assert run.code == 0, run.screen
    (url,) = [word for word in run.out.split() if word.startswith("http")]
    assert me_of(server, url)["name"] == "ann"


def test_a_browser_is_opened_with_the_link_and_the_screen_does_not_show_it(
    holdfast: Holdfast, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    class Browser:
        name = "firefox"

        def open(self, url: str) -> bool:
            opened.append(url)
            return True

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "get", Browser)
    run = holdfast("ui")
    assert run.code == 0, run.screen
    (url,) = opened
    assert "code=" not in run.screen
    assert me_of(server, url)["kind"] == "token"


def test_no_open_prints_the_link_also_where_there_is_a_browser(
    holdfast: Holdfast, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "get", lambda: pytest.fail("a browser was looked for"))
    assert "/ui/login#code=ik_link_" in holdfast("ui", "--no-open").out
    url = holdfast("ui", "-o", "name").out.strip()
    assert me_of(server, url)["projects"] == [{"project": "acme", "scopes": ["read"]}]
    assert json.loads(holdfast("ui", "-o", "json").out)["url"].startswith(server.url)


def test_on_the_servers_machine_the_store_file_is_enough(
    holdfast: Holdfast, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOLDFAST_URL", "HOLDFAST_TOKEN"):
        monkeypatch.delenv(name)
    run = holdfast("ui", "--no-open", "--db", str(server.db), "-o", "name")
    assert run.code == 0, run.screen
    me = me_of(server, run.out.strip())
    assert me["projects"] == [{"project": "acme", "scopes": ["read", "write", "approve", "admin"]}]
    assert "expires_at" in me["token"]  # type: ignore[operator]  # a form


def test_without_a_server_there_is_no_page(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOLDFAST_URL", "HOLDFAST_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    run = holdfast("ui", "--db", str(tmp_path / "none.db"))
    assert run.code == 1
    assert "none runs on" in run.err
    assert "holdfast serve" in run.err


def test_without_a_token_it_says_how_to_get_one(
    holdfast: Holdfast, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_TOKEN")
    run = holdfast("ui")
    assert run.code == 4
    assert "holdfast token create" in run.err
