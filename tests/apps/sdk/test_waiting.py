"""Waiting for readiness: what is shown, what ends it, and that it never overruns."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from tests.apps.sdk.remote_target import TestClock, instant_client
from tests.support.both_clients import CLIENT_KINDS, DrivenClient, management_client
from tests.support.fault_proxy import FaultProxy
from tests.support.server import RunningServer

from holdfast import (
    AuthError,
    NotFound,
    Phase,
    Progress,
    TargetUnavailable,
    WaitTimeout,
    WorkloadFailed,
)
from holdfast.apps.sdk.api import TargetCalls
from holdfast.apps.sdk.progress import ProgressView
from holdfast.apps.sdk.watching import wait_until_ready
from holdfast.core.names import WorkloadId
from holdfast.reconcile.sync_bridge import run_sync
from holdfast.testing import a_spec, async_memory_client, memory_client, set_logs, set_progress

SCHEDULING = Progress(phase=Phase.SCHEDULING, message="looking for a place")
LOADING = Progress(phase=Phase.BOOTSTRAPPING, message="loading the model", step="weights")
READY = Progress(phase=Phase.READY, message="serving")
FAILED = Progress(phase=Phase.ERROR, message="out of memory")

Client = Any  # either colour, under the same names


@pytest.fixture(params=CLIENT_KINDS)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    made = memory_client() if request.param == "sync" else DrivenClient(async_memory_client())
    with made:
        made.ensure(a_spec())
        yield made


def test_the_wait_ends_when_the_workload_serves(client: Client) -> None:
    set_progress(client, "support-bot", [SCHEDULING, LOADING, READY])
    seen: list[Progress] = []
    assert client.wait_until_ready("support-bot", on_progress=seen.append) == READY
    assert seen == [SCHEDULING, LOADING, READY]


def test_an_error_ends_the_wait_with_what_the_workload_said(client: Client) -> None:
    set_progress(client, "support-bot", [LOADING, FAILED])
    with pytest.raises(WorkloadFailed, match="out of memory"):
        client.wait_until_ready("support-bot", silent=True)


def test_a_workload_that_is_not_there_is_not_waited_for(client: Client) -> None:
    with pytest.raises(NotFound):
        client.wait_until_ready("nobody", silent=True)


def test_away_from_a_terminal_each_phase_is_one_plain_line_on_stderr(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    set_progress(client, "support-bot", [SCHEDULING, SCHEDULING, LOADING, READY])
    client.wait_until_ready("support-bot")
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.rpartition(" (")[0] for line in err.splitlines()] == [
        "support-bot: scheduling: looking for a place",
        "support-bot: bootstrapping [weights]: loading the model",
        "support-bot: ready: serving",
    ]
    client.wait_until_ready("support-bot", silent=True)
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_one_line_is_redrawn_with_a_dot_for_each_phase(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen = io.StringIO()
    with ProgressView("chat", out=screen, live=True) as view:
        for progress in (SCHEDULING, LOADING, READY):
            view(progress)
    drawn = screen.getvalue().split("\r\x1b[K")
    assert [text.split("  ")[0] for text in drawn[1:]] == ["◐ ○ ○ ○", "● ● ◐ ○", "● ● ● ●"]
    assert screen.getvalue().count("\n") == 1


def test_a_message_cannot_move_the_cursor_or_leak_a_token() -> None:
    screen = io.StringIO()
    token = "ik_sdk_0123abcd_" + "f" * 64
    with ProgressView("chat", out=screen, live=False) as view:
        view(Progress(phase=Phase.BOOTSTRAPPING, message=f"\x1b[2J\r\n{token}"))
    assert "\x1b" not in screen.getvalue() and "f" * 64 not in screen.getvalue()
    assert screen.getvalue().count("\n") == 1


class Flaky:
    """Gives a script of connections, one after another; the last repeats."""

    def __init__(self, *connections: Callable[[], AsyncIterator[Progress]]) -> None:
        self.connections = list(connections)
        self.opened = 0

    def progress(self, workload: WorkloadId) -> AsyncIterator[Progress]:
        made = self.connections[min(self.opened, len(self.connections) - 1)]
        self.opened += 1
        return made()


async def _dropped() -> AsyncIterator[Progress]:
    yield LOADING


async def _unreachable() -> AsyncIterator[Progress]:
    raise TargetUnavailable("gone")
    yield LOADING


async def _revoked() -> AsyncIterator[Progress]:
    raise AuthError("revoked")
    yield LOADING


async def _ready() -> AsyncIterator[Progress]:
    yield READY


def waited(target: Any, clock: TestClock, timeout: float) -> Progress:
    calls = TargetCalls(target=target, project="acme", timeout=30, clock=clock)
    workload = calls.workload_id("chat", None)
    return run_sync(wait_until_ready(calls, workload, timeout=timeout, show=lambda progress: None))


def test_a_lost_connection_is_taken_up_after_1_2_4_and_then_5_seconds() -> None:
    clock = TestClock()
    target = Flaky(*[_unreachable] * 6, _ready)
    assert waited(target, clock, 600) == READY
    assert clock.slept == [1, 2, 4, 5, 5, 5]


def test_hearing_something_starts_the_back_off_anew() -> None:
    clock = TestClock()
    assert waited(Flaky(_unreachable, _unreachable, _dropped, _dropped, _ready), clock, 600)
    assert clock.slept == [1, 2, 1, 1]


def test_a_wait_ends_on_the_second() -> None:
    clock = TestClock()
    began = clock.monotonic()
    with pytest.raises(WaitTimeout, match="loading the model"):
        waited(Flaky(_dropped, _unreachable), clock, 9.5)
    assert clock.monotonic() - began == 9.5


def test_an_error_that_waiting_cannot_mend_ends_the_wait() -> None:
    clock = TestClock()
    target = Flaky(_dropped, _revoked)
    with pytest.raises(AuthError):
        waited(target, clock, 600)
    assert target.opened == 2


@pytest.mark.parametrize("colour", CLIENT_KINDS)
def test_an_embedded_target_says_at_once_that_nothing_runs_there(
    colour: str, tmp_path: Any
) -> None:
    with management_client(colour, f"sqlite:///{tmp_path}/holdfast.db") as client:
        client.ensure(a_spec())
        with pytest.raises(WorkloadFailed, match="holdfast serve"):
            client.wait_until_ready("support-bot", silent=True)


@pytest.mark.parametrize("colour", CLIENT_KINDS)
def test_a_readiness_stream_that_breaks_off_or_lies_is_followed_to_its_end(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str
) -> None:
    stream = {"content-type": "text/event-stream"}
    loading = b'data: {"phase": "bootstrapping", "message": "loading", "elapsed_ms": 5}\n\n'
    ready = b': alive\n\ndata: {"phase": "ready", "message": "serving", "elapsed_ms": 9}\n\n'
    proxy.rewrite_status(1, 200, headers=stream, body=loading)
    proxy.rewrite_status(2, 200, headers=stream, body=loading + ready[:-9])
    proxy.rewrite_status(3, 200, headers=stream, body=loading + ready)
    seen: list[str] = []
    with instant_client(colour, proxy.url, server.token("acme")) as client:
        client.wait_until_ready(slug, on_progress=lambda each: seen.append(each.message))
    assert seen == ["loading", "loading", "loading", "serving"]


@pytest.mark.parametrize("colour", CLIENT_KINDS)
def test_a_silent_readiness_stream_does_not_overrun_the_wait(
    colour: str, server: RunningServer, proxy: FaultProxy, slug: str
) -> None:
    proxy.hang(lambda request: True)
    token = server.token("acme")
    with (
        management_client(colour, proxy.url, project="acme", token=token) as client,
        pytest.raises(WaitTimeout),
    ):
        client.wait_until_ready(slug, timeout=0.5, silent=True)


def test_logs_are_the_last_lines(client: Client) -> None:
    set_logs(client, "support-bot", ["one", "two", "three"])
    assert list(client.logs("support-bot", tail=2)) == ["two", "three"]
    assert list(client.logs("support-bot", tail=0)) == []


@pytest.mark.parametrize("colour", CLIENT_KINDS)
def test_a_server_that_never_answers_is_named_when_the_time_is_up(colour: str) -> None:
    with (
        management_client(colour, "http://127.0.0.1:9", project="acme", token="ik_sdk_x") as client,
        pytest.raises(WaitTimeout, match=r"not ready after 0\.2 s.*127\.0\.0\.1:9 could not be"),
    ):
        client.wait_until_ready("chat", timeout=0.2, silent=True)
