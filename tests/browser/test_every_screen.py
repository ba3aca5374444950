"""Every screen with something on it, on a phone, a laptop and a wall, dark and light: nothing to
complain about.

With HOLDFAST_SCREENSHOTS=1 the pictures of the README and of the docs are made anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from playwright.sync_api import expect
from tests.support.browser import Screen, Screens
from tests.support.gitops_server import PROJECT, ServedApplications
from tests.support.page_content import serve_full_applications, serve_full_plane
from tests.support.server import RunningServer, bearer

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
REMAKE = os.environ.get("HOLDFAST_SCREENSHOTS") == "1"
SIZES = [(360, 780), (1280, 800), (1920, 1080)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplications]:
    with serve_full_applications(tmp_path_factory.mktemp("screens")) as running:
        yield running


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serve_full_plane(tmp_path_factory.mktemp("plane")) as server:
        yield server


@pytest.fixture(scope="module")
def paths(served: ServedApplications) -> dict[str, str]:
    """Where each screen is, by a name for it."""

    def ask(path: str) -> Any:
        answer = httpx2.get(
            f"{served.url}/api/projects/{PROJECT}/gitops{path}",
            headers=bearer(served.server.token(PROJECT, ["read"])),
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    drifts = {each["object"]["name"]: each for each in ask("/drifts?state=all")["drifts"]}
    parked = [each for each in ask("/history")["entries"] if each["action"] == "parked"]
    newest, oldest = (each["subject"] for each in (parked[0], parked[-1]))
    below = f"/ui/p/{PROJECT}"
    return {
        "inbox": f"{below}/inbox",
        "everything": f"{below}/inbox?state=all",
        "causes": f"{below}/inbox?group=cause",
        "drift": f"{below}/drifts/{drifts['support-bot-prompts']['id']}",
        "drift-image": f"{below}/drifts/{drifts['support-bot']['id']}",
        "drift-held": f"{below}/drifts/{drifts['reranker']['id']}",
        "drift-proposed": f"{below}/drifts/{drifts['flags']['id']}",
        "plan": f"{below}/plans/{newest}",
        "plan-stale": f"{below}/plans/{oldest}",
        "plan-cost": f"{below}/plans/{drifts['indexer']['plan']}",
        "applications": f"{below}/applications",
        "application": f"{below}/applications/team.shop",
        "application-diff": f"{below}/applications/team.shop?tab=diff",
        "application-plan": f"{below}/applications/team.reports?tab=plan",
        "holds": f"{below}/holds",
        "rules": f"{below}/rules",
        "history": f"{below}/history",
        "me": "/ui/me",
        "nowhere": f"{below}/nowhere",
    }


SEEN = {
    "everything": "Rejected",
    "causes": "kubectl-scale",
    "drift-held": "INC-1432",
    "drift-proposed": "https://git.example.com/pulls/1",
    "plan": "Approve",
    "plan-stale": "cannot be approved",
    "plan-cost": "v0.11.0",
    "application": "holds",
    "application-plan": "Create Deployment chat/writer",
    "holds": "spec.replicas",
    "rules": "fewer-at-night",
    "history": "Who decided",
}
"""What shows that a screen has something on it."""
WORKLOAD_PATHS = {
    "workload-inbox": "/ui/p/acme/inbox",
    "workloads": "/ui/p/acme/workloads",
    "workload-failed": "/ui/p/acme/workloads/embedder",
    "workload": "/ui/p/acme/workloads/support-bot",
    "workload-history": "/ui/p/acme/history",
}
PICTURES = {
    ("inbox", 1280, "light"), ("drift", 1280, "light"), ("drift", 1280, "dark"),
    ("history", 1280, "light"), ("inbox", 360, "dark"),
}  # fmt: skip


def settle(screen: Screen) -> None:
    """Wait until a screen has read what it shows."""
    expect(screen.page.locator("main")).to_be_visible()
    expect(screen.page.locator(".loading")).to_have_count(0)


def show(screen: Screen, path: str) -> None:
    """Go to a screen as a link in the page does."""
    screen.page.evaluate(
        "(path) => { history.pushState(null, '', path); dispatchEvent(new Event('popstate')) }",
        path,
    )


BROKEN_WORDS = """() => {
  const lines = (each) => {
    const range = document.createRange();
    range.selectNodeContents(each);
    return new Set([...range.getClientRects()].map(({top}) => top)).size;
  };
  const heads = [...document.querySelectorAll("thead th")].filter(
    (each) => /^\\S+$/.test(each.textContent.trim()) && lines(each) > 1);
  const states = [...document.querySelectorAll(".row .state")].filter(
    ({textContent, parentElement}) => !textContent.includes(":")
      && parentElement.scrollWidth > parentElement.clientWidth);
  return [...heads, ...states].map(({textContent}) => textContent);
}"""
"""Headers of one word on two lines, and states that are cut."""


def check(screen: Screen, name: str, width: int, scheme: str) -> list[str]:
    """Return what is wrong with a screen as it stands."""
    settle(screen)
    screen.see(SEEN.get(name, ""))
    # What has no colour is the same in the dark.
    rules = ["color-contrast"] if scheme == "dark" else []
    found = [f"{name}: {each}" for each in screen.check_accessibility(*rules)]
    wide = screen.page.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        found.append(f"{name}: is {wide} wide on {width}")
    found += [f"{name}: {each} is broken" for each in screen.page.evaluate(BROKEN_WORDS)]
    if REMAKE and (name, width, scheme) in PICTURES:
        IMAGES.mkdir(exist_ok=True)
        screen.page.screenshot(path=IMAGES / f"{name}-{scheme}-{width}.png")
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_screen_of_applications(
    served: ServedApplications,
    paths: dict[str, str],
    screens: Screens,
    width: int,
    height: int,
    scheme: Literal["light", "dark"],
) -> None:
    token = served.server.token(PROJECT, ["read", "write", "approve", "admin"], name="maria")
    screen = screens.open(served.url, token, width=width, height=height, scheme=scheme)
    found = []
    for name, path in paths.items():
        show(screen, path)
        found += check(screen, name, width, scheme)
    show(screen, paths["rules"])
    preview = screen.page.locator("details", has_text="What would a new rule hide?")
    preview.locator("summary").first.click()
    preview.get_by_label("Path").fill("data.x")
    preview.get_by_role("button", name="Preview").click()
    expect(preview.get_by_role("status")).to_contain_text("It would hide")
    found += check(screen, "rules-preview", width, scheme)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_screen_of_workloads(
    plane: RunningServer,
    screens: Screens,
    width: int,
    height: int,
    scheme: Literal["light", "dark"],
) -> None:
    token = plane.token("acme", name="maria")
    screen = screens.open(plane.url, width=width, height=height, scheme=scheme)
    screen.go("/ui/login")
    found = check(screen, "login", width, scheme)
    screen.sign_in(token)
    for name, path in WORKLOAD_PATHS.items():
        show(screen, path)
        if name == "workload":
            screen.page.get_by_label("Prompt").fill("Where is order 1432?")
            screen.press("Control+Enter")
            expect(screen.page.locator(".prompt")).to_contain_text("ended: stop")
        found += check(screen, name, width, scheme)
    show(screen, WORKLOAD_PATHS["workload-inbox"])
    screen.rows.first.click()
    found += check(screen, "workload-drift", width, scheme)
    assert not found, "\n".join(found)


def test_windows_over_a_screen(
    served: ServedApplications, paths: dict[str, str], screens: Screens
) -> None:
    token = served.server.token(PROJECT, ["read", "write", "approve", "admin"], name="maria")
    screen = screens.open(served.url, token, path=paths["drift"])
    settle(screen)
    expect(screen.page.get_by_role("button", name="Approve")).to_be_visible()
    found = []
    for key in ("?", "Control+k", "x", "z", "h", "i", "r", "c"):
        screen.press(key)
        dialog = screen.page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        expect(screen.page.locator("dialog .loading")).to_have_count(0)
        found += [f"{key}: {each}" for each in screen.check_accessibility()]
        screen.press("Escape")
        expect(dialog).to_have_count(0)
    assert not found, "\n".join(found)


def test_a_screen_says_once_and_of_the_whole_what_is_so(
    served: ServedApplications, paths: dict[str, str], screens: Screens
) -> None:
    token = served.server.token(PROJECT, ["read"], name="joe")
    screen = screens.open(served.url, token, path=paths["applications"])
    expect(screen.row("team/shop")).to_contain_text("2 held")
    expect(screen.row("team/shop")).not_to_contain_text("On hold")
    show(screen, paths["plan-cost"])
    expect(screen.page.locator("table.diff")).to_have_count(2)
    expect(screen.page.locator("h3.object")).to_have_count(1)
    show(screen, paths["plan"])
    expect(screen.page.locator(".steps li").first).to_contain_text("delete ConfigMap")
    expect(screen.page.locator(".steps li").first).not_to_contain_text("- delete")
    screen.not_see("by whom is unknown")


def test_a_phone_in_forced_colours_and_without_motion_shows_the_same(
    served: ServedApplications, screens: Screens
) -> None:
    token = served.server.token(PROJECT, ["read"], name="joe")
    screen = screens.open(
        served.url, token, width=360, height=780, forced_colors="active", reduced_motion="reduce"
    )
    settle(screen)
    expect(screen.row("support-bot-prompts")).to_contain_text("Needs approval")
    moving = screen.page.evaluate("document.getAnimations().length")
    assert moving == 0
