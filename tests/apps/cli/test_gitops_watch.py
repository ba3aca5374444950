"""`watch` where a GitOps controller answers: a table on a terminal, lines of JSON elsewhere."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.apps.cli.conftest import Holdfast
from tests.apps.cli.gitops_application import Serve
from tests.apps.cli.test_terminal import Terminal
from tests.support.gitops_world import GitopsWorld, configmap, route
from tests.support.processes import HOLDFAST, started

from holdfast.apps.cli.applications import application_changes
from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.applications import draw_applications
from holdfast.apps.cli.views.text import display_width
from holdfast.core.gitops.application import HoldEnd, Remediation
from holdfast.core.gitops.objects import ObjectHealth
from holdfast.wire.gitops_http_v1 import FollowedForm, HoldForm, JournalEntryForm, SourceForm

NOW = datetime(2026, 11, 16, 14, 21, 7, tzinfo=UTC)


@contextmanager
def watching(*args: str) -> Iterator[Iterator[dict[str, Any]]]:
    with started([*HOLDFAST, "watch", *args], stderr=subprocess.DEVNULL) as child:
        assert child.stdout
        yield (json.loads(line) for line in iter(child.stdout.readline, ""))


def test_off_a_terminal_each_change_is_a_line(serve: Serve) -> None:
    app = serve(GitopsWorld(route(Remediation.REVIEW)))
    with watching() as lines:
        assert next(lines) == {
            "type": "version", "apiVersion": "cli.holdfast.dev/v1", "kind": "Watch",
        }  # fmt: skip
        first = next(lines)
        assert (first["type"], first["application"]["id"]) == ("present", "team/shop")
        assert first["application"]["sync"] == "synced"
        id = app.move()
        seen = [next(lines)]
        while seen[-1]["type"] != "updated":
            seen.append(next(lines))
        told = [each["entry"]["action"] for each in seen[:-1]]
        assert told == ["detected", "approval-requested"]
        assert {each["type"] for each in seen[:-1]} == {"journal"}
        assert seen[0]["entry"]["subject"] == id
        assert seen[-1]["application"]["sync"] == "drifted"
        review = app.served.services.review_service
        assert review is not None
        app.served.call(review._contexts.clear)
        assert next(lines)["type"] == "deleted"


def test_a_pass_in_which_nothing_moved_is_no_change(serve: Serve, holdfast: Holdfast) -> None:
    app = serve()
    app.reconcile()
    run = holdfast("watch", "shop", "--timeout", "100ms")
    kinds = [json.loads(line)["type"] for line in run.out.splitlines()]
    assert (run.code, kinds) == (0, ["version", "present"])
    assert holdfast("watch", "nope").code == 1


def test_on_a_terminal_the_table_is_redrawn_with_the_last_lines(
    serve: Serve,
) -> None:
    app = serve(GitopsWorld(route(Remediation.SELF_HEAL)))
    terminal = Terminal("watch", COLUMNS="120")
    terminal.read_until("team/shop  synced  healthy")
    assert "project ml-platform" in terminal.seen
    app.commit(c=configmap("c", z="1"))
    app.reconcile()
    terminal.read_until("1 to create, 0 to update")
    assert terminal.interrupt() == 130
    assert "Traceback" not in terminal.seen


def test_a_controller_that_is_away_is_waited_for(
    serve: Serve, holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer 503 is what a controller gives while it starts."""
    from holdfast.apps.cli import applications

    app = serve()
    monkeypatch.setattr(applications, "POLL_SECONDS", 0.05)
    drawn: list[datetime | None] = []

    def on_a_terminal(screen: Screen, found: Any, recent: Any, **more: Any) -> None:
        drawn.append(more["silent_since"])
        assert [each.id for each in found] == ["team/shop"]
        assert recent
        services = app.served.services
        services.waiting = "It starts." if len(drawn) < 3 else ""
        if len(drawn) > 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(applications, "draw_applications", on_a_terminal)
    made = Screen.__init__

    def live(self: Screen, **more: Any) -> None:
        made(self, **more)
        self.live = True

    monkeypatch.setattr(Screen, "__init__", live)
    assert holdfast("watch").code == 130
    assert [each is None for each in drawn[:4]] == [True, False, False, True]
    assert drawn[1] == drawn[2]


def application(name: str, **more: Any) -> FollowedForm:
    given = {"sync": "synced", "health": ObjectHealth.HEALTHY, "revision": "4f2c9e1aaa", **more}
    source = given.pop("source", SourceForm(url="https://git.example.com/x.git", revision="main"))
    return FollowedForm(id=name, label=name, project="p", source=source, **given)


def hold(name: str, minutes: int, **more: Any) -> HoldForm:
    until = NOW + timedelta(minutes=minutes)
    return HoldForm(
        id="h", application=name, reason="INC", by="joe", since=NOW, until=until,
        end=HoldEnd.REVERT, **more,
    )  # fmt: skip


def test_the_table_says_what_matters_and_keeps_to_the_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "96")
    monkeypatch.setenv("TZ", "UTC")
    found = [
        application("team/shop", sync="drifted", drifted=2, awaiting=1, message="2 drifts open."),
        application("team/big", holds=[hold("team/big", 38)]),
        application("team/off", suspended=True, sync="unknown"),
        application("team/far", message="x" * 200),
    ]  # fmt: skip
    entry = JournalEntryForm(
        seq=1, at=NOW, application="team/shop", action="detected", actor="a",
        summary="ConfigMap chat/a: drift\x1b[31m of data.x by kubectl-edit.",
    )  # fmt: skip
    draw_applications(
        Screen(), found, [entry], connected_to="https://x, project p", silent_since=NOW, now=NOW
    )
    lines = capsys.readouterr().out.removeprefix("\x1b[H\x1b[2J").splitlines()
    assert all(display_width(line) <= 96 for line in lines)
    assert "Ctrl-C to leave" in lines[0]
    assert "this is the last known state" in lines[1]
    assert lines[2].split() == [
        "NAME", "SYNC", "HEALTH", "REVISION", "DRIFT", "WAITING", "PAUSED", "MESSAGE",
    ]  # fmt: skip
    assert lines[3].split()[:7] == ["team/shop", "drifted", "healthy", "4f2c9e1", "2", "1", "-"]
    assert "38m left" in lines[4]
    assert lines[5].startswith("team/off   suspended")
    assert lines[6].endswith("x…")
    assert "team/shop  detected  ConfigMap chat/a: drift\\x1b[31m of data.x" in lines[8]


def test_what_needs_to_be_seen_is_seen_where_there_is_little_room(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES", "10")
    found = [application(f"team/{number:02}") for number in range(30)]
    found[20] = application("team/bad", health=ObjectHealth.DEGRADED)
    found[25] = application("team/moved", sync="drifted")
    draw_applications(Screen(), found, [], connected_to="here", silent_since=None, now=NOW)
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]]
    assert names == ["team/bad", "team/moved", "team/00", "team/01", "team/02", "25"]


def test_looking_is_no_change_and_everything_else_is() -> None:
    one = application("a", looked_at=NOW)
    later = msgspec.structs.replace(
        one, looked_at=NOW + timedelta(1),
        source=msgspec.structs.replace(one.source, fetched_at=NOW),
    )  # fmt: skip
    assert list(application_changes({"a": one}, {"a": later})) == []
    moved = msgspec.structs.replace(one, drifted=1)
    assert list(application_changes({"a": one}, {"a": moved})) == [("updated", moved)]
    assert list(application_changes(None, {"a": one})) == [("present", one)]
    assert list(application_changes({}, {"a": one})) == [("created", one)]
    assert list(application_changes({"a": one}, {})) == [("deleted", one)]
