"""The keyboard: what each key does, and what none may do by mistake."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import expect
from tests.support.browser import Screens
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, configmap, route
from tests.support.server import bearer

from holdfast.core.gitops.application import Remediation

INBOX = f"/ui/p/{PROJECT}/inbox"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplications]:
    world = GitopsWorld(route(Remediation.REVIEW, name="settings-are-reviewed"))
    world.git.commit({f"{name}.yaml": configmap(name, x="1") for name in "abcd"})
    with serve_applications(tmp_path_factory.mktemp("keys"), world) as running:
        running.reconcile()
        for name in "abc":
            running.call(lambda name=name: world.edit(name, "9"))
        running.reconcile()
        yield running


def reviewer(served: ServedApplications, name: str = "maria") -> str:
    return served.server.token(PROJECT, ["read", "write", "approve"], name=name)


def states(served: ServedApplications) -> set[str]:
    answer = httpx2.get(
        f"{served.url}/api/projects/{PROJECT}/gitops/drifts", headers=bearer(reviewer(served))
    )
    return {each["state"] for each in answer.json()["drifts"]}


@pytest.mark.parametrize(
    ("keys", "screen_name"),
    [("i", "inbox"), ("a", "applications"), ("h", "history"), ("m", "me")],
)
def test_g_goes_to_a_screen_however_long_the_second_key_takes(
    served: ServedApplications, screens: Screens, keys: str, screen_name: str
) -> None:
    screen = screens.open(served.url)
    screen.page.clock.install()
    screen.sign_in(reviewer(served), path=INBOX)
    screen.rows.first.locator("a").click()
    expect(screen.page.locator("table.diff").first).to_be_visible()
    screen.press("g")
    expect(screen.page.locator(".prefix")).to_contain_text("and then?")
    screen.page.clock.run_for(60_000)
    screen.press(keys)
    screen.page.wait_for_url(f"**/{screen_name}*")
    assert states(served) == {"awaiting-approval"}, "a alone would have approved"


def test_no_key_decides_by_mistake(served: ServedApplications, screens: Screens) -> None:
    screen = screens.open(served.url, reviewer(served), path=INBOX)
    screen.press("a")  # in the list, where no difference is shown
    screen.rows.first.locator("a").click()
    expect(screen.page.locator("table.diff").first).to_be_visible()
    screen.press("Shift+A", "g", "x", "g", "Escape")
    expect(screen.page.locator("dialog")).to_have_count(0)
    expect(screen.page.locator(".prefix")).to_have_count(0)
    assert states(served) == {"awaiting-approval"}


def test_the_keys_that_only_show(served: ServedApplications, screens: Screens) -> None:
    screen = screens.open(
        served.url, reviewer(served), path=INBOX, permissions=["clipboard-read", "clipboard-write"]
    )
    expect(screen.rows).to_have_count(3)
    screen.press("/")
    screen.page.keyboard.type("chat/b")
    expect(screen.rows).to_have_count(1)
    screen.press("Enter", "j", "Enter")
    expect(screen.title).to_contain_text("chat/b")
    split = screen.page.locator("table.diff.split")
    expect(split.first).to_be_visible()
    screen.press("s")
    expect(split).to_have_count(0)
    screen.press("s")
    expect(split.first).to_be_visible()
    screen.press("y")
    assert screen.page.evaluate("navigator.clipboard.readText()") == screen.page.url
    screen.press("e")
    expect(screen.page.locator(".notices")).to_contain_text("Copied the command")
    assert "holdfast" in screen.page.evaluate("navigator.clipboard.readText()")
    screen.press("?")
    expect(screen.page.get_by_role("dialog")).to_contain_text("Keys")
    screen.press("Escape", "Control+k")
    expect(screen.page.get_by_role("combobox", name="Find")).to_be_focused()
    screen.page.keyboard.type("history")
    screen.press("Enter")
    screen.page.wait_for_url("**/history*")


def test_the_list_stays_where_it_is_while_a_colleague_decides(
    served: ServedApplications, screens: Screens
) -> None:
    """And what came since waits behind a button."""
    screen = screens.open(served.url, reviewer(served), path=INBOX)
    expect(screen.rows).to_have_count(3)
    before = screen.rows.locator("a").all_inner_texts()
    drifts = httpx2.get(
        f"{served.url}/api/projects/{PROJECT}/gitops/drifts", headers=bearer(reviewer(served))
    ).json()["drifts"]
    first = next(each for each in drifts if each["object"]["name"] in before[0])
    answer = httpx2.post(
        f"{served.url}/api/projects/{PROJECT}/gitops/drifts/{first['id']}/reject",
        json={"comment": "known"},
        headers=bearer(reviewer(served, "joe")),
    )
    assert answer.status_code == 200, answer.text
    served.call(lambda: served.worlds[0].edit("d", "9"))
    served.reconcile()
    expect(screen.row(before[0])).to_contain_text("Rejected")
    expect(screen.page.get_by_role("button", name="1 new drift")).to_be_visible()
    assert screen.rows.locator("a").all_inner_texts() == before
