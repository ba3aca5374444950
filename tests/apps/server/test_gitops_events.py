"""The live stream of applications: what to read anew, resumed where it was left."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
from tests.support.gitops_world import ControllerWorld, GitopsWorld, configmap, route
from tests.support.server import bearer

from holdfast.apps.server.live_events import encode_event
from holdfast.core.gitops.application import Remediation


class Stream:
    """One reader."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.iter_lines()
        self.last = ""

    def next(self) -> tuple[str, Any]:
        """The next event that is one: its kind and data."""
        kind, data = "", None
        for line in self._lines:
            name, _, value = line.partition(":")
            if name == "id":
                self.last = value.strip()
            elif name == "event":
                kind = value.strip()
            elif name == "data":
                data = json.loads(value)
            elif not line and data is not None:
                return kind, data
        raise AssertionError("the stream ended")

    def until(self, kind: str) -> tuple[list[str], Any]:
        """Go on until an event of a kind; the kinds before it, and its data."""
        before = []
        while True:
            found, data = self.next()
            if found == kind:
                return before, data
            before.append(found)


class Here:
    def __init__(self, served: ServedApplications, world: GitopsWorld) -> None:
        self.served, self.world = served, world
        self.token = served.server.token(PROJECT, ["admin"], name="maria")
        self.http = httpx2.Client(
            base_url=f"{served.url}/api/projects/{PROJECT}/gitops",
            headers=bearer(self.token),
            timeout=20,
        )

    @contextmanager
    def stream(
        self, *, last: str = "", who: dict[str, str] | None = None, **query: Any
    ) -> Iterator[Stream]:
        headers = {**({"Last-Event-ID": last} if last else {}), **(who or {})}
        with self.http.stream("GET", "/events", params=query, headers=headers) as response:
            assert response.status_code == 200
            yield Stream(response)

    def drift(self, value: str = "9") -> str:
        self.served.call(lambda: self.world.edit("a", value))
        self.served.reconcile()
        return self.world.drifts[0].id


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    world = GitopsWorld(route(Remediation.REVIEW))
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", w="2")})
    with serve_applications(tmp_path, world) as running:
        running.passes = False
        running.reconcile()
        found = Here(running, world)
        with found.http:
            yield found


def test_a_drift_is_told_when_it_comes_with_what_to_read_and_nothing_else(here: Here) -> None:
    with here.stream() as stream:
        id = here.drift("s3cretpass1")
        kind, data = stream.next()
        assert (kind, data["id"], data["application"]) == ("drift", id, "team/shop")
        assert set(data) == {"id", "application", "state", "at"}
        _, line = stream.until("journal")
        assert line["id"] == id
        _, status = stream.until("application")
        assert (status["id"], status["state"]) == ("team.shop", "drifted")
        assert "s3cretpass1" not in str((data, line, status))


def test_events_link_to_the_screen_of_what_they_are_about(tmp_path: Path) -> None:
    base = "https://holdfast.example.com"
    world = GitopsWorld(route(Remediation.REVIEW))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    with serve_applications(tmp_path, world, base_url=base) as running:
        running.passes = False
        running.reconcile()
        here, below = Here(running, world), f"{base}/ui/p/{PROJECT}"
        with here.http, here.stream() as stream:
            id = here.drift()
            assert stream.next()[1]["url"] == f"{below}/drifts/{id}"
            assert stream.until("journal")[1]["url"] == f"{below}/drifts/{id}"
            assert stream.until("application")[1]["url"] == f"{below}/applications/team.shop"
            here.http.post("/applications/shop/holds", json={"reason": "x", "seconds": 60})
            assert stream.until("hold")[1]["url"] == f"{below}/holds"


def test_decisions_holds_and_plans_are_told(here: Here) -> None:
    id = here.drift()
    with here.stream() as stream:
        here.http.post(f"/drifts/{id}/reject", json={"comment": "it stays"})
        kind, data = stream.next()
        assert (kind, data["id"], data["state"]) == ("drift", id, "rejected")
        held = here.http.post("/applications/shop/holds", json={"reason": "x", "seconds": 60})
        _, data = stream.until("hold")
        assert (data["id"], data["state"]) == (held.json()["id"], "open")
        here.http.delete("/applications/shop/holds")
        _, data = stream.until("hold")
        assert data["state"] == "closed"
        refused = here.http.post(f"/drifts/{id}/approve", json={"plan": "sha256:0"})
        assert refused.status_code == 409
        while data["state"] != "refused":
            _, data = stream.until("journal")
        assert data["id"] == id


def test_what_was_missed_is_replayed_in_order_and_nothing_twice(here: Here) -> None:
    with here.stream() as stream:
        id = here.drift()
        stream.until("application")
        last = stream.last
    here.http.post(f"/drifts/{id}/snooze", json={"seconds": 60})
    here.drift("10")
    with here.stream(last=last) as stream, here.stream(after=last) as other:
        assert int(stream.last or 0) == 0
        first = stream.next()
        assert (first[0], first[1]["state"]) == ("drift", "snoozed")
        assert other.next() == first
        assert int(stream.last) == int(last) + 1


@pytest.mark.parametrize("last", ["1", "999999999999999", "nonsense", "-5"])
def test_who_comes_back_from_another_process_or_too_late_reads_everything_anew(
    here: Here, last: str
) -> None:
    here.drift()
    with here.stream(last=last) as stream:
        assert stream.next()[0] == "reset"
        here.drift("10")
        assert stream.next()[0] != "reset", "once"


@pytest.mark.parametrize("query", [{"after": "x"}, {"after": "-1"}, {"since": "1"}])
def test_a_wrong_parameter_of_the_stream_is_refused(here: Here, query: dict[str, str]) -> None:
    answer = here.http.get("/events", params=query)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid")


def test_no_project_hears_of_anothers_applications(tmp_path: Path) -> None:
    mine = GitopsWorld(route(Remediation.REVIEW))
    theirs = GitopsWorld(route(Remediation.REVIEW))
    rename_world("depot", project="theirs", ledger=mine.ledger_store, world=theirs)
    for world in (mine, theirs):
        world.git.commit({"a.yaml": configmap("a", x="1")})
    with serve_applications(tmp_path, mine, theirs) as running:
        running.passes = False
        running.reconcile(mine)
        running.reconcile(theirs)
        here = Here(running, mine)
        with here.http, here.stream() as stream:
            running.call(lambda: theirs.edit("a"))
            running.reconcile(theirs)
            id = here.drift()
            assert stream.next()[1]["id"] == id


def test_a_stream_ends_with_its_credential(here: Here) -> None:
    token = here.served.server.token(PROJECT, ["read"], name="joe")
    with here.stream(who=bearer(token)) as stream:
        here.drift()
        stream.next()
        here.served.server.revoke(token)
        began = time.monotonic()
        with pytest.raises(AssertionError, match="the stream ended"):
            stream.until("an end")
        assert time.monotonic() - began < 10


async def test_a_controller_tells_of_applications_that_come_and_go() -> None:
    world = ControllerWorld()
    id = world.declare("shop", {"a.yaml": configmap("a", x="1")})
    hub = world.live_events.hub
    found: list[tuple[str, Any]] = []
    lines = hub.follow("ml-platform")
    await anext(lines)
    async with world:
        await world.wait_sync(id, "synced")
        world.applications.remove(id)
        while ("application", "gone") not in found:
            for text in (await anext(lines)).decode().split("\n\n"):
                parts = dict(line.split(": ", 1) for line in text.splitlines())
                if parts.get("event") == "application":
                    found.append(("application", json.loads(parts["data"]).get("state")))
    assert ("application", "synced") in found
    await lines.aclose()


def test_one_event_is_encoded_once_however_many_listen(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []

    def encode(form: object, *, id: int, event: str = "") -> bytes:
        encoded.append(id)
        return encode_event(form, id=id, event=event)

    heard: list[str] = []

    def listen() -> None:
        with here.stream() as stream:
            ready.release()
            heard.append(stream.next()[1]["id"])

    ready = threading.Semaphore(0)
    threads = [threading.Thread(target=listen) for _ in range(5)]
    for each in threads:
        each.start()
    for _ in threads:
        ready.acquire()
    time.sleep(0.3)
    monkeypatch.setattr("holdfast.apps.server.live_events.encode_event", encode)
    id = here.drift()
    for each in threads:
        each.join(10)
    assert heard == [id] * 5
    assert len(encoded) == len(set(encoded)) < 2 * len(heard)
