"""The drift of a workload in the page: what was declared is put back by exactly the plan shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import expect
from tests.support.browser import Screen, Screens
from tests.support.server import RunningServer, bearer, running_server

from holdfast import ManagementClient, WorkloadSpec


@dataclass(frozen=True, kw_only=True)
class Plane:
    """A control plane with one workload, whose model somebody else changed."""

    server: RunningServer
    uid: str

    def change(self, **fields: Any) -> None:
        answer = httpx2.patch(
            f"{self.server.url}/api/workloads/{self.uid}",
            json=fields,
            headers={**bearer(self.server.token("acme", name="ops")), "User-Agent": "curl/8"},
        )
        assert answer.status_code == 200, answer.text

    def get(self, path: str) -> Any:
        answer = httpx2.get(
            f"{self.server.url}/api/projects/acme/{path}",
            headers=bearer(self.server.token("acme")),
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def open(self, screens: Screens, *scopes: str) -> Screen:
        (drift,) = self.get("drift")["drifts"]
        token = self.server.token("acme", scopes or ("read", "write"), name="maria")
        path = f"/ui/p/acme/workload-drifts/{drift['id']}"
        screen = screens.open(self.server.url, token, path=path)
        expect(screen.title).to_contain_text("Workload bot differs")
        return screen


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    with running_server(tmp_path, run=False) as server:
        token = server.token("acme", name="deploy-script")
        with ManagementClient(server.url, project="acme", token=token) as owner:
            owner.ensure(WorkloadSpec(name="bot", model="org/tiny", backend="vllm", replicas=2))
            made = Plane(server=server, uid=owner.get("bot").uid)
        made.change(model_name="org/another")
        yield made


def test_what_was_declared_is_put_back_by_keyboard_and_the_history_says_by_whom(
    plane: Plane, screens: Screens
) -> None:
    screen = plane.open(screens)
    screen.see("Writes model as declared last.")
    screen.press("r")
    dialog = screen.page.get_by_role("dialog")
    expect(dialog).to_contain_text("/model: org/another → org/tiny")
    screen.press("Control+Enter")
    expect(dialog).to_have_count(0)
    expect(screen.page.locator(".facts")).to_contain_text("reverted")
    expect(screen.page.get_by_role("button", name="Put back")).to_have_count(0)
    assert plane.get("workloads/bot")["model_name"] == "org/tiny"
    rows = plane.get("history?slug=bot")["history"][:2]
    assert [(row["action"], row["writer"]["actor"]) for row in rows] == [
        ("resolved", "maria"),
        ("updated", "maria"),
    ]


def test_an_open_window_sends_nothing_about_a_workload_that_moved(
    plane: Plane, screens: Screens
) -> None:
    screen = plane.open(screens)
    screen.page.get_by_role("button", name="Put back").click()
    dialog = screen.page.get_by_role("dialog")
    expect(dialog).to_contain_text("org/another")
    plane.change(model_name="org/third")
    expect(dialog.get_by_role("alert")).to_contain_text("It moved since you read it")
    expect(dialog.get_by_role("button", name="Put back")).to_have_count(0)
    screen.press("Escape")
    screen.press("r")
    expect(dialog).to_contain_text("/model: org/third → org/tiny")
    assert plane.get("workloads/bot")["model_name"] == "org/third"


def test_a_reader_is_told_why_there_is_no_button(plane: Plane, screens: Screens) -> None:
    screen = plane.open(screens, "read")
    screen.see("This credential lacks the scope write.")
    screen.press("r")
    expect(screen.page.get_by_role("dialog")).to_have_count(0)
    expect(screen.page.get_by_role("button", name="Put back")).to_have_count(0)
