"""Figures over HTTP, and what one application tells beside how it stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.gitops_server import (
    PROJECT,
    ServedApplications,
    rename_world,
    serve_applications,
)
from tests.support.gitops_world import GitopsWorld, configmap, route
from tests.support.server import bearer

from holdfast.core.gitops.application import (
    PullRequestKind,
    Remediation,
    SyncSpec,
    WindowKind,
    WindowSpec,
)
from holdfast.reconcile.gitops.application_state import retire_application


class Here:
    def __init__(self, served: ServedApplications, world: GitopsWorld) -> None:
        self.served, self.world = served, world
        self.http = httpx2.Client(
            base_url=f"{served.url}/api/projects/{PROJECT}/gitops",
            headers=bearer(served.server.token(PROJECT, ["admin"], name="maria")),
            timeout=20,
        )

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    world = GitopsWorld(route(Remediation.REVIEW))
    theirs = GitopsWorld(route(Remediation.REVIEW))
    rename_world("depot", project="theirs", ledger=world.ledger_store, world=theirs)
    for each in (world, theirs):
        each.git.commit({f"{name}.yaml": configmap(name, x="1") for name in "abc"})
    with serve_applications(tmp_path, world, theirs) as running:
        running.passes = False
        for each in (world, theirs):
            running.reconcile(each)
            running.call(lambda each=each: [each.edit(name) for name in "abc"])
            running.reconcile(each)
        found = Here(running, world)
        with found.http:
            yield found


def test_drifts_and_decisions_of_a_project_are_counted(here: Here) -> None:
    first, second, _ = here.get("/drifts")["drifts"]
    here.http.post(f"/drifts/{first['id']}/approve", json={"plan": first["plan"]})
    here.http.post(f"/drifts/{second['id']}/reject", json={"comment": "it stays"})
    here.served.reconcile()
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    found = here.get("/statistics", until=soon)
    assert (found["drifts"], found["open"]) == (3, 2)
    assert found["until"] < soon, "what is to come is not counted"
    assert found["time_to_resolve"]["count"] == 1
    assert found["by_cause"][0]["key"] == "person"
    assert found["by_cause"][0]["count"] == 3
    assert [each["key"] for each in found["by_writer"]] == ["kubectl-edit"]
    assert [each["key"] for each in found["by_application"]] == ["team/shop"]
    (decided,) = found["decisions"]
    assert decided["actor"].startswith("maria (")
    assert (decided["approved"], decided["rejected"], decided["snoozed"]) == (1, 1, 0)
    assert here.get("/statistics", application="shop")["drifts"] == 3


def test_times_are_told_in_seconds_and_add_up(here: Here) -> None:
    found = here.get("/statistics")
    (kind,) = found["by_kind"]
    assert kind["seconds"] == pytest.approx(found["drift_seconds"])
    assert found["drift_seconds"] > 0
    assert found["drift_minutes"] == round(found["drift_seconds"] / 60, 1)


def test_of_a_time_in_which_nothing_happened_nothing_is_told(here: Here) -> None:
    found = here.get("/statistics", since="2020-01-01T00:00:00Z", until="2020-01-02T00:00:00")
    assert (found["drifts"], found["open"], found["drift_minutes"]) == (0, 0, 0.0)
    assert found["time_to_resolve"] == {"p50": None, "p90": None, "count": 0}
    assert found["decisions"] == found["by_cause"] == []
    assert found["until"] == "2020-01-02T00:00:00Z"


def test_drifts_of_an_application_that_is_gone_still_count(here: Here) -> None:
    async def leave() -> None:
        assert here.world.context is not None
        here.world.context.state.put_projects((PROJECT,))
        await retire_application(here.world.context.state, here.world.clock.now())

    here.served.run(leave())
    here.served.call(lambda: here.served.followed.pop(here.world.application.id))
    found = here.get("/statistics")
    assert found["drifts"] == 3
    assert {each["key"] for each in found["by_resolution"]} <= {"gone", "open"}


@pytest.mark.parametrize(
    "query",
    [
        {"since": "yesterday"},
        {"until": "0001-01-01T00:00:00+14:00"},
        {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"},
        {"since": "2999-01-01T00:00:00Z"},
        {"by": "cause"},
    ],
)
def test_a_wrong_time_is_refused(here: Here, query: dict[str, str]) -> None:
    answer = here.http.get("/statistics", params=query)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid"), answer.text


def change_sync(here: Here, **sync: Any) -> None:
    def change() -> None:
        assert here.world.context is not None
        spec = replace(here.world.application.spec, sync=SyncSpec(**sync))
        here.world.application = replace(here.world.application, spec=spec)
        here.world.context.application = here.world.application

    here.served.call(change)


def test_an_application_tells_when_its_window_opens_or_closes(here: Here) -> None:
    assert "next_window" not in here.get("/applications/shop")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    schedule = f"0 3 {tomorrow.day} {tomorrow.month} *"
    allow = WindowSpec(kind=WindowKind.ALLOW, schedule=schedule, duration="1h")
    change_sync(here, windows=(allow,))
    found = here.get("/applications/shop")["next_window"]
    assert found == {"opens_at": f"{tomorrow:%Y-%m-%d}T03:00:00Z"}
    deny = WindowSpec(kind=WindowKind.DENY, schedule=schedule, duration="1h")
    change_sync(here, windows=(deny,))
    found = here.get("/applications/shop")["next_window"]
    assert found == {"closes_at": f"{tomorrow:%Y-%m-%d}T03:00:00Z"}


def test_an_application_tells_its_open_pull_requests(here: Here) -> None:
    assert "pull_requests" not in here.get("/applications/shop")
    drift = here.get("/drifts")["drifts"][0]
    here.http.post(f"/drifts/{drift['id']}/codify")
    here.served.reconcile()
    (pull,) = here.get("/applications/shop")["pull_requests"]
    assert (pull["drift"], pull["kind"]) == (drift["id"], PullRequestKind.CODIFY)
    assert pull["object"] == drift["object"]
    after = here.get(f"/drifts/{drift['id']}")
    assert pull["url"] == after["url"] == after["links"]["pull_request"]
    assert here.get("/applications")["applications"][0]["pull_requests"] == [pull]
