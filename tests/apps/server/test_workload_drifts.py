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
    assert inbox.ask("GET", f"drift/{found['id']}").json() == found


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
