"""The inbox over HTTP: drifts in pages and groups, searched, filtered, and waiting for somebody."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, configmap, route
from tests.support.server import bearer

from holdfast.core.gitops.application import DriftSpec, Remediation, SourceSpec
from holdfast.core.gitops.drift import ObjectDrift

BASE = "https://holdfast.example.com"


class Inbox:
    """Six objects, five of which were changed: three by kubectl, two by a controller."""

    def __init__(self, served: ServedApplications, world: GitopsWorld) -> None:
        self.served, self.world = served, world
        self.http = httpx2.Client(
            base_url=f"{served.url}/api/projects/{PROJECT}/gitops", timeout=20
        )
        self.me = self.identity("admin", name="maria")

    def identity(self, *scopes: str, name: str) -> dict[str, str]:
        return bearer(self.served.server.token(PROJECT, list(scopes), name=name))

    def get(self, path: str, *, who: dict[str, str] | None = None, **query: Any) -> Any:
        answer = self.http.get(path, params=query, headers=who or self.me)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query, headers=self.me)
        assert answer.status_code == 400, answer.text
        return answer.json()

    def names(self, **query: Any) -> list[str]:
        return [each["object"]["name"] for each in self.get("/drifts", **query)["drifts"]]

    def edit(self, name: str, value: str = "9", manager: str = "kubectl-edit") -> None:
        self.served.call(lambda: self.world.edit(name, value, manager))

    def age(self, **seconds: int) -> None:
        """Say that drifts were first seen so many seconds ago; the ledger is not asked."""

        def change() -> None:
            for drift in self.world.drifts:
                self.put(
                    replace(
                        drift,
                        first_seen=datetime.now(UTC).replace(microsecond=0)
                        - timedelta(seconds=seconds[drift.object.name]),
                    )
                )

        self.served.call(change)

    def put(self, drift: ObjectDrift) -> None:
        assert self.world.context is not None
        state = self.world.context.state
        state.drifts[drift.id] = drift
        state.changes += 1


@pytest.fixture
def inbox(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Inbox]:
    spec = getattr(request, "param", {})
    world = GitopsWorld(route(Remediation.REVIEW), drift=DriftSpec(**spec))
    world.git.commit({f"{name}.yaml": configmap(name, x="1") for name in "abcdef"})
    source = SourceSpec(url="https://github.com/acme/deploy.git")
    world.application = replace(
        world.application, spec=replace(world.application.spec, source=source)
    )
    with serve_applications(tmp_path, world, base_url=BASE) as running:
        running.reconcile()
        found = Inbox(running, world)
        for name in "abc":
            found.edit(name)
        for name in "de":
            found.edit(name, manager="tuning-operator")
        running.reconcile()
        running.passes = False
        with found.http:
            yield found


FOUR_EYES = pytest.mark.parametrize("inbox", [{"four_eyes": True}], indirect=True)


def test_pages_give_every_drift_once_newest_first(inbox: Inbox) -> None:
    inbox.age(a=50, b=40, c=30, d=20, e=10)
    first = inbox.get("/drifts", limit=2)
    assert first["total"] == 5
    second = inbox.get("/drifts", limit=2, cursor=first["next"])
    third = inbox.get("/drifts", limit=2, cursor=second["next"])
    pages = [first, second, third]
    names = [each["object"]["name"] for page in pages for each in page["drifts"]]
    assert names == ["e", "d", "c", "b", "a"]
    assert "next" not in third
    whole = inbox.get("/drifts")
    assert [each["id"] for each in whole["drifts"]] == [
        each["id"] for page in pages for each in page["drifts"]
    ]
    assert "next" not in whole


def test_a_cursor_stays_right_while_drifts_come_and_go(inbox: Inbox) -> None:
    inbox.age(a=50, b=40, c=30, d=20, e=10)
    first = inbox.get("/drifts", limit=2)
    cursor = first["next"]
    # The last of the page ends, and a new one comes in front of it.
    inbox.edit("d", "1", "tuning-operator")
    inbox.edit("f")
    inbox.served.reconcile()
    assert inbox.names(limit=2, cursor=cursor) == ["c", "b"]
    assert inbox.names(limit=9) == ["f", "e", "c", "b", "a"]


def test_drifts_of_one_moment_are_parted_by_their_ids(inbox: Inbox) -> None:
    inbox.age(a=5, b=5, c=5, d=5, e=5)
    names, cursor = [], {}
    while True:
        page = inbox.get("/drifts", limit=1, **cursor)
        names += [each["object"]["name"] for each in page["drifts"]]
        if "next" not in page:
            break
        cursor = {"cursor": page["next"]}
    assert sorted(names) == ["a", "b", "c", "d", "e"]


def test_ended_drifts_are_paged_with_the_open_ones(inbox: Inbox) -> None:
    inbox.edit("a", "1")
    inbox.served.reconcile()
    assert inbox.get("/drifts")["total"] == 4
    found, cursor = [], {}
    while True:
        page = inbox.get("/drifts", state="all", limit=2, **cursor)
        assert page["total"] == 5
        found += [(each["object"]["name"], each["state"]) for each in page["drifts"]]
        if "next" not in page:
            break
        cursor = {"cursor": page["next"]}
    assert len(found) == len(set(found)) == 5
    assert ("a", "resolved") in found
    assert inbox.names(state="resolved", limit=1) == ["a"]
    assert inbox.names(state="resolved", q="configmap chat/a") == ["a"]


def test_words_are_searched_in_names_paths_writers_and_ids_and_all_must_match(
    inbox: Inbox,
) -> None:
    ids = {each["object"]["name"]: each["id"] for each in inbox.get("/drifts")["drifts"]}
    assert sorted(inbox.names(q="KUBECTL")) == ["a", "b", "c"]
    assert inbox.names(q=f"configmap {ids['b']}") == ["b"]
    assert len(inbox.names(q="data.x shop")) == 5
    assert inbox.names(q="kubectl tuning") == []
    assert inbox.names(q="%_*.?[") == [], "no pattern, only text"
    assert len(inbox.names(q="  ")) == 5


def test_no_value_is_searched(inbox: Inbox) -> None:
    inbox.edit("a", "orchid")
    inbox.served.reconcile()
    (found,) = [
        each for each in inbox.get("/drifts")["drifts"] if each["entries"][0]["live"] == "orchid"
    ]
    assert found["object"]["name"] == "a"
    assert inbox.names(q="orchid") == []


def test_drifts_are_filtered_by_cause_and_by_writer(inbox: Inbox) -> None:
    assert sorted(inbox.names(cause="person")) == ["a", "b", "c"]
    assert sorted(inbox.names(cause="controller")) == ["d", "e"]
    assert sorted(inbox.names(writer="tuning-operator")) == ["d", "e"]
    assert inbox.names(writer="tuning") == [], "a writer is named whole"
    assert inbox.get("/drifts", cause="hardware") == {"drifts": [], "total": 0}


def test_drifts_of_one_cause_and_writer_are_one_group(inbox: Inbox) -> None:
    found = inbox.get("/drifts", group="cause")
    assert (found["total"], [each["count"] for each in found["groups"]]) == (5, [3, 2])
    first = found["groups"][0]
    assert (first["cause"], first["writer"]) == ("person", "kubectl-edit")
    assert (first["kinds"], first["applications"]) == (["configuration"], ["team/shop"])
    assert sorted(first["drifts"]) == sorted(
        each["id"] for each in inbox.get("/drifts", cause="person")["drifts"]
    )
    assert "drifts" not in found
    one = inbox.get("/drifts", group="cause", q="tuning-operator")
    assert [each["cause"] for each in one["groups"]] == ["controller"]


@pytest.mark.parametrize(
    "query",
    [
        {"cursor": "nonsense"},
        {"cursor": ""},
        {"cursor": "x" * 5_000},
        {"cursor": base64.urlsafe_b64encode(b"2026-11-18T10:00:00 drf-1").decode()},
        {"cursor": base64.urlsafe_b64encode(b"9999999-01-01T00:00:00+00:00 x").decode()},
        {"cursor": base64.urlsafe_b64encode(b"\xff\xfe").decode()},
        {"q": "x" * 201},
        {"q": "a\0b"},
        {"q": "\x1b[31m"},
        {"cause": "aliens"},
        {"group": "colour"},
        {"waiting_for": "you"},
        {"state": "odd"},
        {"type": "odd"},
        {"limit": "0"},
        {"limit": "1001"},
        {"sort": "id"},
    ],
)
def test_a_wrong_parameter_is_refused_by_name_and_changes_nothing(
    inbox: Inbox, query: dict[str, str]
) -> None:
    told = inbox.refused("/drifts", **query)
    (name,) = query
    assert name in str(told), told
    assert told["error"] == "invalid"
    assert inbox.get("/drifts")["total"] == 5


def test_groups_have_no_cursor(inbox: Inbox) -> None:
    cursor = inbox.get("/drifts", limit=1)["next"]
    assert "cursor" in inbox.refused("/drifts", group="cause", cursor=cursor)["message"]


def test_what_waits_for_me_is_what_i_may_approve(inbox: Inbox) -> None:
    reader = inbox.identity("read", name="reader")
    assert inbox.get("/drifts", who=reader, waiting_for="me")["total"] == 0
    assert not any(each["waiting_for_me"] for each in inbox.get("/drifts", who=reader)["drifts"])
    joe = inbox.identity("approve", name="joe")
    found = inbox.get("/drifts", who=joe, waiting_for="me")
    assert found["total"] == 5
    assert all(each["waiting_for_me"] for each in found["drifts"])
    first = found["drifts"][0]
    answer = inbox.http.post(
        f"/drifts/{first['id']}/reject", json={"comment": "it stays"}, headers=joe
    )
    assert answer.json()["waiting_for_me"] is False
    assert inbox.get("/drifts", who=joe, waiting_for="me")["total"] == 4


@FOUR_EYES
def test_four_eyes_keep_what_one_asked_for_or_approved_from_waiting_for_them(
    inbox: Inbox,
) -> None:
    maria, joe = inbox.me, inbox.identity("admin", name="joe")
    first, second = inbox.get("/drifts")["drifts"][:2]
    # Nobody knows who is behind kubectl, so it takes two; the first of them has said yes.
    answer = inbox.http.post(
        f"/drifts/{first['id']}/approve", json={"plan": first["plan"]}, headers=maria
    )
    assert answer.json()["waiting_for_me"] is False
    assert inbox.get(f"/drifts/{first['id']}", who=joe)["waiting_for_me"] is True
    inbox.http.post(f"/drifts/{second['id']}/revert", json={}, headers=maria)
    inbox.served.reconcile()
    assert inbox.get(f"/drifts/{second['id']}", who=maria)["waiting_for_me"] is False
    assert inbox.get(f"/drifts/{second['id']}", who=joe)["waiting_for_me"] is True
    assert inbox.get("/drifts", who=maria, waiting_for="me")["total"] == 3
    assert inbox.get("/drifts", who=joe, waiting_for="me")["total"] == 5


def test_a_drift_links_to_its_page_and_to_its_line_on_the_forge(inbox: Inbox) -> None:
    found = next(each for each in inbox.get("/drifts")["drifts"] if each["object"]["name"] == "a")
    commit = inbox.world.git.head_sha
    assert found["links"] == {
        "page": f"{BASE}/ui/p/{PROJECT}/drifts/{found['id']}",
        "source": f"https://github.com/acme/deploy/blob/{commit}/a.yaml#L6",
    }
    assert inbox.get(f"/drifts/{found['id']}") == found
