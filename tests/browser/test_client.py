"""The JavaScript client in a browser, in a page of another origin that the server lists."""

from __future__ import annotations

import shlex
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.browser import Screen, Screens
from tests.support.processes import ROOT, echo_command
from tests.support.server import RunningServer, running_server
from tests.support.wire import Wire

from holdfast import Health, ManagementClient, WorkloadSpec

SOURCE = ROOT / "clients" / "javascript" / "src"
ON_DRIFT = """
async ({baseUrl, sdkToken}) => {
  const {DriftError, ManagementClient, OnDrift} = await import("/index.js");
  const warnings = [];
  const onWarning = (text) => warnings.push(text);
  const mgmt = new ManagementClient({baseUrl, project: "acme", sdkToken, onWarning});
  const rows = {};
  for (const onDrift of Object.values(OnDrift)) {
    const name = `row-${onDrift}`.replace("_", "-");
    const spec = {name, model: "m", backend: "echo", description: "declared", replicas: 0};
    const ensure = () => mgmt.ensure(spec, {onDrift}).catch((error) => error);
    const said = [await ensure(), await ensure()];
    const {uid} = await mgmt.get(name);
    await mgmt.api.send("PATCH", `/api/workloads/${uid}`, {description: "edited"});
    const [told, last] = [warnings.length, await ensure()];
    said.push(last);
    rows[onDrift] = [
      ...said.map((each) => each.outcome ?? each.name),
      (await mgmt.get(name)).spec.description,
      last.plan.steps[0].changes.map(({path}) => path).join(),
      warnings.length - told,
      last instanceof DriftError,
    ];
  }
  return rows;
}
"""
STREAM = """
async ({baseUrl, apiKey}) => {
  const {DataClient} = await import("/index.js");
  const endpoint = new DataClient({baseUrl, project: "acme"}).endpoint("bot", {apiKey});
  window.pieces = [];
  try {
    const reply = endpoint.generateTextStream({prompt: "one two three four five six"});
    for await (const {text} of reply) pieces.push(text);
    return "whole";
  } catch (error) {
    return error.name;
  }
}
"""
WATCH = """
async ({baseUrl, sdkToken}) => {
  const {ManagementClient} = await import("/index.js");
  const mgmt = new ManagementClient({baseUrl, project: "acme", sdkToken});
  window.seen = [];
  for await (const {kind, workload: {spec}} of mgmt.watch({slug: "watched"})) {
    // How it is doing may change meanwhile, which is an update, too.
    if (seen.at(-1)?.[1] !== spec.description) seen.push([kind, spec.description]);
    if (spec.description === "third") return seen;
  }
}
"""
READ = """
async ({baseUrl, sdkToken, timeoutMs}) => {
  const {ManagementClient} = await import("/index.js");
  const mgmt = new ManagementClient({baseUrl, project: "acme", sdkToken, timeoutMs, retries: 0});
  const error = await mgmt.get("none").catch((thrown) => thrown);
  return [error.name, error.code, error.outcomeUnknown];
}
"""


class QuietFiles(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path != "/favicon.ico":
            super().do_GET()
            return
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve_files(directory: Path) -> Iterator[str]:
    """An origin of its own, with these files."""
    files = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietFiles, directory=str(directory)))
    threading.Thread(target=files.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{files.server_port}"
    finally:
        files.shutdown()
        files.server_close()


@pytest.fixture(scope="module")
def app() -> Iterator[str]:
    """The origin of an application that uses the client."""
    with serve_files(SOURCE) as url:
        yield url


@pytest.fixture(scope="module")
def server(app: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("plane"), cors_origins=(app,)) as running:
        yield running


def open_page(screens: Screens, app: str, *tolerated: str) -> Screen:
    screen = screens.open(app)
    screen.tolerated += ["another origin was asked", *tolerated]
    return screen.go("/index.js")


def credentials(server: RunningServer, url: str = "") -> dict[str, Any]:
    return {"baseUrl": url or server.url, "sdkToken": server.token()}


def test_each_policy_does_in_a_browser_what_the_table_says(
    app: str, server: RunningServer, screens: Screens
) -> None:
    screen = open_page(screens, app, "409")
    found = screen.page.evaluate(ON_DRIFT, credentials(server))
    path = "/description"
    assert found == {
        "reconcile": ["created", "unchanged", "updated", "declared", path, 0, False],
        "fail": ["created", "unchanged", "DriftError", "edited", path, 0, True],
        "dry_run": ["created", "unchanged", "planned", "edited", path, 0, False],
        "warn": ["created", "unchanged", "left", "edited", path, 1, False],
        "ignore": ["created", "unchanged", "left", "edited", path, 0, False],
    }


@pytest.fixture(scope="module")
def data_key(server: RunningServer) -> Iterator[str]:
    """The key of a workload that takes its time for each word."""
    spec = WorkloadSpec(
        name="bot",
        model="tiny",
        backend="echo",
        command=shlex.join(echo_command("--model", "tiny", "--token-delay", "0.3")),
        health=Health(path="/health", interval="1s", startup="60s"),
    )
    with ManagementClient(server.url, project="acme", token=server.token()) as owner:
        owner.ensure(spec)
        owner.wait_until_ready("bot", timeout=60, silent=True)
        yield server.data_key("acme", "bot")
        owner.delete("bot")


def test_a_reply_comes_to_a_browser_in_pieces(
    app: str, server: RunningServer, screens: Screens, data_key: str
) -> None:
    page = open_page(screens, app).page
    given = {"baseUrl": server.url, "apiKey": data_key}
    assert page.evaluate(STREAM, given) == "whole"
    pieces = page.evaluate("pieces")
    assert len(pieces) > 5
    assert "one two three four five six" in "".join(pieces)


def test_a_reply_that_breaks_off_is_an_error_in_a_browser(
    app: str, server: RunningServer, screens: Screens, data_key: str
) -> None:
    with Wire(server.url) as wire:
        page = open_page(screens, app, "ERR_").page
        given = {"baseUrl": wire.url, "apiKey": data_key}
        page.evaluate(f"(given) => {{ window.ended = ({STREAM})(given) }}", given)
        page.wait_for_function("window.pieces?.length > 0")
        wire.cut()
        assert page.evaluate("ended") == "UnavailableError"
        assert "six" not in "".join(page.evaluate("pieces"))


def test_a_watch_in_a_browser_misses_nothing_over_a_cut(
    app: str, server: RunningServer, screens: Screens
) -> None:
    def declare(text: str) -> None:
        spec = WorkloadSpec(name="watched", model="m", backend="echo", description=text, replicas=0)
        owner.ensure(spec)

    with (
        Wire(server.url) as wire,
        ManagementClient(server.url, project="acme", token=server.token()) as owner,
    ):
        page = open_page(screens, app, "ERR_").page
        declare("first")
        given = credentials(server, wire.url)
        page.evaluate(f"(given) => {{ window.ended = ({WATCH})(given) }}", given)
        page.wait_for_function("window.seen?.length === 1")
        wire.cut()
        declare("second")
        wire.mend()
        page.wait_for_function("window.seen?.length === 2")
        declare("third")
        told = [["present", "first"], ["updated", "second"], ["updated", "third"]]
        assert page.evaluate("ended") == told


def test_a_deadline_counts_in_a_browser_too(
    app: str, server: RunningServer, screens: Screens
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        given = {**credentials(server, url), "timeoutMs": 300}
        found = open_page(screens, app, "ERR_").page.evaluate(READ, given)
    assert found == ["DeadlineError", "deadline", False]


def test_a_refusal_is_told_to_a_listed_origin_and_nothing_to_another(
    app: str, server: RunningServer, screens: Screens
) -> None:
    given = credentials(server)
    listed = open_page(screens, app, "404").page.evaluate(READ, given)
    assert listed == ["NotFoundError", "not_found", False]
    with serve_files(SOURCE) as elsewhere:
        screen = open_page(screens, elsewhere, "CORS policy", "ERR_FAILED")
        assert screen.page.evaluate(READ, given) == ["UnavailableError", "unavailable", False]
