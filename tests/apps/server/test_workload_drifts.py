"""Drifts of workloads over HTTP: in pages and groups, searched, filtered, and with their links."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.apps.server.api import Api
from tests.support.server import running_server

from holdfast import ManagementClient
from holdfast.apps.server import drift_queries
from holdfast.core.drift import Cause, DriftKind
from holdfast.core.ledger import DriftEntry
from holdfast.core.names import WorkloadId

BASE = "https://holdfast.example.com"


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Api]:
    """Six workloads, five of which were changed: three by curl, two by a controller."""
    with (
        running_server(tmp_path, run=False, base_url=BASE) as running,
        httpx2.Client(base_url=running.url, timeout=20) as http,
    ):
        api = Api(server=running, http=http, project="acme")
        for slug in "abcdef":
            api.create(slug)
        for slug in "abc":
            change(api, slug)
        for slug in "de":
            change(api, slug, agent="tuning-operator/1")
        yield api


def change(api: Api, slug: str, value: str = "other", agent: str = "curl/8") -> None:
    where = f"/api/workloads/{api.get(slug)['id']}"
    answer = api.ask("PATCH", where, json={"model_name": value}, agent=agent, name="ops")
    assert answer.status_code == 200, answer.text


def page(api: Api, **query: Any) -> Any:
    answer = api.ask("GET", f"drift?{httpx2.QueryParams(query)}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def slugs(api: Api, **query: Any) -> list[str]:
    return [each["slug"] for each in page(api, **query)["drifts"]]


@pytest.mark.parametrize("query", [{}, {"q": "acme"}], ids=["whole", "searched"])
def test_pages_give_every_drift_once_newest_first(inbox: Api, query: dict[str, str]) -> None:
    first = page(inbox, limit=2, **query)
    assert first["total"] == 5
    second = page(inbox, limit=2, cursor=first["next"], **query)
    third = page(inbox, limit=2, cursor=second["next"], **query)
    found = [each["slug"] for part in (first, second, third) for each in part["drifts"]]
    assert found == ["e", "d", "c", "b", "a"]
    assert "next" not in third
    assert slugs(inbox, **query) == found


@pytest.mark.parametrize("query", [{}, {"q": "acme"}], ids=["whole", "searched"])
def test_a_cursor_stays_right_while_drifts_come_and_go(inbox: Api, query: dict[str, str]) -> None:
    cursor = page(inbox, limit=2, **query)["next"]
    change(inbox, "d", "tiny", agent="tuning-operator/1")
    change(inbox, "f")
    assert slugs(inbox, limit=2, cursor=cursor, **query) == ["c", "b"]
    assert slugs(inbox, **query) == ["f", "e", "c", "b", "a"]
    assert len(slugs(inbox, state="all", **query)) == 6


def test_words_are_searched_in_names_paths_writers_and_ids_and_never_in_values(
    inbox: Api,
) -> None:
    ids = {each["slug"]: each["id"] for each in page(inbox)["drifts"]}
    assert slugs(inbox, q="ACME/B") == ["b"]
    assert slugs(inbox, q="tuning /model") == ["e", "d"]
    assert slugs(inbox, q=ids["c"]) == ["c"]
    assert slugs(inbox, q="other") == [], "a value"
    assert slugs(inbox, q="tuning curl") == []


def test_drifts_are_filtered_by_cause_writer_kind_and_workload(inbox: Api) -> None:
    assert slugs(inbox, cause="person") == ["c", "b", "a"]
    assert slugs(inbox, writer="tuning-operator") == ["e", "d"]
    assert slugs(inbox, writer="tuning") == [], "a writer is named whole"
    assert slugs(inbox, type="image") == []
    assert slugs(inbox, type="configuration", slug="b") == ["b"]


def test_drifts_of_one_cause_and_writer_are_one_group(inbox: Api) -> None:
    found = page(inbox, group="cause")
    assert "drifts" not in found
    assert found["total"] == 5
    first, second = found["groups"]
    assert (first["cause"], first["writer"], first["count"]) == ("person", "curl", 3)
    assert (first["workloads"], first["kinds"]) == (["a", "b", "c"], ["configuration"])
    assert first["drifts"] == [each["id"] for each in page(inbox, cause="person")["drifts"]]
    assert (second["writer"], second["count"]) == ("tuning-operator", 2)
    assert [each["count"] for each in page(inbox, group="cause", q="tuning")["groups"]] == [2]


def test_every_drift_links_to_its_screen(inbox: Api) -> None:
    (found,) = page(inbox, slug="a")["drifts"]
    assert found["links"] == {"page": f"{BASE}/ui/p/acme/workload-drifts/{found['id']}"}
    one = inbox.ask("GET", f"drift/{found['id']}").json()
    del one["revert"]
    assert one == found


def test_without_a_base_url_there_is_no_link(api: Api) -> None:
    api.create()
    change(api, "bot")
    (found,) = page(api)["drifts"]
    assert found["links"] == {}


@pytest.mark.parametrize(
    "query",
    [
        {"cause": "moon"},
        {"type": "pull"},
        {"group": "writer"},
        {"cursor": "nonsense"},
        {"cursor": base64.urlsafe_b64encode(b"2026-01-01T00:00:00+00:00 drift-0").decode()},
        {"q": "x" * 201},
        {"limit": "0"},
        {"state": "held"},
        {"application": "shop"},
    ],
    ids=str,
)
def test_what_means_nothing_is_refused(inbox: Api, query: dict[str, str]) -> None:
    answer = inbox.ask("GET", f"drift?{httpx2.QueryParams(query)}")
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid"), answer.text


def test_groups_come_on_one_page(inbox: Api) -> None:
    cursor = page(inbox, limit=1)["next"]
    assert inbox.ask("GET", f"drift?group=cause&cursor={cursor}").status_code == 400


def test_a_cursor_of_another_project_opens_nothing(inbox: Api) -> None:
    cursor = page(inbox, limit=1)["next"]
    other = Api(server=inbox.server, http=inbox.http, project="beta")
    assert other.ask("GET", f"drift?cursor={cursor}").status_code == 400


def test_the_client_reads_all_pages(inbox: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift_queries, "MAX_ROWS", 2)
    token = inbox.server.token("acme")
    with ManagementClient(inbox.http.base_url, project="acme", token=token) as client:
        assert [each.workload.slug for each in client.drifts()] == ["e", "d", "c", "b", "a"]


def read_drift(api: Api, slug: str = "a", **more: Any) -> Any:
    (listed,) = page(api, slug=slug)["drifts"]
    answer = api.ask("GET", f"drift/{listed['id']}", **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


def revert(api: Api, drift: Any, plan: str, **more: Any) -> httpx2.Response:
    return api.ask("POST", f"drift/{drift['id']}/revert", json={"plan": plan}, **more)


def test_a_workload_is_written_as_declared_by_the_plan_that_was_read(inbox: Api) -> None:
    drift = read_drift(inbox)
    choice = drift["revert"]
    assert (choice["allowed"], choice["effect"]) == (True, "Writes model as declared last.")
    answer = revert(inbox, drift, choice["plan"], name="maria", agent="Mozilla/5.0")
    assert answer.status_code == 200, answer.text
    assert answer.json()["resolution"] == "reverted"
    assert "revert" not in answer.json(), "there is nothing left to decide"
    assert inbox.get("a")["model_name"] == "tiny"
    assert slugs(inbox) == ["e", "d", "c", "b"]
    rows = inbox.ask("GET", "history?slug=a").json()["history"]
    assert [row["action"] for row in rows[:2]] == ["resolved", "updated"]
    assert {row["writer"]["actor"] for row in rows[:2]} == {"maria"}
    assert rows[1]["writer"]["operation"] == "revert"


def test_who_declared_a_workload_is_not_taken_over_by_who_puts_it_back(inbox: Api) -> None:
    drift = read_drift(inbox)
    revert(inbox, drift, drift["revert"]["plan"], name="maria", agent="Mozilla/5.0")
    where = f"/api/workloads/{inbox.get('a')['id']}"
    inbox.ask("PATCH", where, json={"model_name": "newer"})  # the one who declared it
    assert page(inbox, slug="a")["total"] == 0
    inbox.ask("PATCH", where, json={"model_name": "z"}, name="maria", agent="Mozilla/5.0")
    assert page(inbox, slug="a")["total"] == 1


def test_a_plan_of_a_workload_that_moved_writes_nothing(inbox: Api) -> None:
    drift = read_drift(inbox)
    change(inbox, "a", "moved on")
    answer = revert(inbox, drift, drift["revert"]["plan"])
    assert (answer.status_code, answer.json()["error"]) == (409, "stale_plan")
    assert "Nothing was changed" in answer.json()["message"]
    assert inbox.get("a")["model_name"] == "moved on"
    again = read_drift(inbox)
    assert again["id"] == drift["id"]
    assert revert(inbox, again, again["revert"]["plan"]).status_code == 200


def test_a_plan_of_a_declaration_that_moved_writes_nothing(inbox: Api) -> None:
    """The live fields, and with them the version, stay as they were."""
    where = f"/api/workloads/{inbox.create('g', description='ours')['id']}"
    theirs = {"model_name": "other", "description": "by hand"}
    inbox.ask("PATCH", where, json=theirs, agent="curl/8", name="ops")
    drift = read_drift(inbox, "g")
    before = inbox.get("g")["version"]
    # Its owner declares what is live in one of the two fields.
    answer = inbox.ask("PATCH", where, json={"model_name": "other"})
    assert answer.json()["version"] == before
    refused = revert(inbox, drift, drift["revert"]["plan"])
    assert (refused.status_code, refused.json()["error"]) == (409, "stale_plan")
    after = inbox.get("g")
    assert (after["model_name"], after["description"]) == ("other", "by hand")


def test_a_drift_that_ended_is_not_put_back_again(inbox: Api) -> None:
    drift = read_drift(inbox)
    assert revert(inbox, drift, drift["revert"]["plan"]).status_code == 200
    before = inbox.get("a")["version"]
    late = revert(inbox, drift, drift["revert"]["plan"])
    assert (late.status_code, late.json()["error"]) == (409, "conflict")
    assert "reverted" in late.json()["message"]
    assert inbox.get("a")["version"] == before


def test_who_may_only_read_is_told_so_and_given_no_plan(inbox: Api) -> None:
    reader = inbox.server.token("acme", ["read"], name="joe")
    drift = read_drift(inbox, token=reader)
    assert drift["revert"] == {
        "allowed": False,
        "why_not": "This credential lacks the scope write.",
        "effect": "Writes model as declared last.",
    }
    plan = read_drift(inbox)["revert"]["plan"]
    assert revert(inbox, drift, plan, token=reader).status_code == 403
    assert inbox.get("a")["model_name"] == "other"


def test_what_no_write_puts_back_says_so(inbox: Api) -> None:
    entry = DriftEntry(
        path="/replicas/primary-1",
        desired="running",
        live="exited",
        kind=DriftKind.RESOURCE,
        cause=Cause.UNKNOWN,
        evidence="",
    )
    where = WorkloadId(project="acme", slug="f")
    with inbox.server.admin() as store:
        store.write(lambda tx: tx.open_drift(where, [entry]))
    drift = read_drift(inbox, "f")
    assert drift["revert"]["allowed"] is False
    assert revert(inbox, drift, "sha256:0").status_code == 409
