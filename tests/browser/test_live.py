"""What a page shows while the world goes on: a cut connection, a workload that comes up."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import expect
from tests.support.browser import Screens
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, configmap, route
from tests.support.processes import echo_command
from tests.support.server import bearer, running_server
from tests.support.wire import Wire

from holdfast import Health, ManagementClient, WorkloadSpec
from holdfast.core.gitops.application import Remediation

INBOX = f"/ui/p/{PROJECT}/inbox"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplications]:
    world = GitopsWorld(route(Remediation.REVIEW))
    world.git.commit({f"{name}.yaml": configmap(name, x="1") for name in "abc"})
    with serve_applications(tmp_path_factory.mktemp("live"), world) as running:
        running.reconcile()
        running.call(lambda: world.edit("a"))
        running.reconcile()
        yield running


def test_a_cut_is_said_and_what_was_missed_is_caught_up(
    served: ServedApplications, screens: Screens
) -> None:
    token = served.server.token(PROJECT, ["read"], name="joe")
    with Wire(served.url) as wire:
        screen = screens.open(wire.url, token, path=INBOX)
        screen.tolerated += ["ERR_", "Failed to load resource"]
        live = screen.page.locator(".top .live")
        expect(live).to_have_text("● live")
        expect(screen.row("chat/a")).to_be_visible()
        wire.cut()
        expect(live).to_contain_text("stale since")
        expect(screen.row("chat/a")).to_be_visible()
        served.call(lambda: served.worlds[0].edit("b"))
        served.reconcile()
        wire.mend()
        expect(live).to_have_text("● live")
        expect(screen.page.get_by_role("button", name="1 new drift")).to_be_visible()
        assert screen.rows.count() == 1, "the list does not change under its reader"
        screen.press(".")
        expect(screen.row("chat/b")).to_be_visible()


def test_a_session_that_was_ended_leads_to_the_login_and_back(
    served: ServedApplications, screens: Screens
) -> None:
    token = served.server.token(PROJECT, ["read", "write"], name="ann")
    screen = screens.open(served.url, token, path="/ui/me")
    screen.tolerated += ["401"]
    expect(screen.page.get_by_text("(this one)")).to_be_visible()
    answer = httpx2.get(f"{served.url}/api/sessions", headers=bearer(token))
    for each in answer.json()["sessions"]:
        ended = httpx2.delete(f"{served.url}/api/sessions/{each['id']}", headers=bearer(token))
        assert ended.status_code == 204
    screen.go(f"{INBOX}?q=chat")
    expect(screen.page.get_by_label("Token")).to_be_visible()
    assert "next=" in screen.page.url
    screen.page.get_by_label("Token").fill(token)
    screen.press("Enter")
    expect(screen.rows.first).to_be_visible()
    assert screen.page.url == f"{served.url}{INBOX}?q=chat"


def test_a_link_signs_in_once_and_leaves_no_code_in_the_address(
    served: ServedApplications, screens: Screens
) -> None:
    token = served.server.token(PROJECT, ["read"], name="kim")
    made = httpx2.post(f"{served.url}/api/sign-in-links", headers=bearer(token))
    assert made.status_code == 201, made.text
    screen = screens.open(served.url)
    screen.page.goto(made.json()["url"])
    expect(screen.page.locator("header.top")).to_contain_text("kim")
    assert "code" not in screen.page.url
    other = screens.open(served.url)
    other.tolerated.append("401")
    other.page.goto(made.json()["url"])
    expect(other.page.get_by_role("alert")).to_contain_text("used already")


def test_a_link_of_an_attacker_does_not_take_over_a_browser_that_is_signed_in(
    served: ServedApplications, screens: Screens
) -> None:
    """The victim would go on working, unknowingly, in the attacker's name."""
    victim = served.server.token(PROJECT, ["read"], name="victim")
    attacker = served.server.token(PROJECT, ["read"], name="mallory")
    made = httpx2.post(f"{served.url}/api/sign-in-links", headers=bearer(attacker))
    screen = screens.open(served.url, victim, path=INBOX)
    screen.tolerated.append("409")
    screen.page.goto(made.json()["url"])
    expect(screen.page.get_by_role("alert")).to_contain_text("mallory")
    expect(screen.page.get_by_role("alert")).to_contain_text("in place of victim")
    me = screen.page.evaluate("fetch('/api/me').then((answer) => answer.json())")
    assert me["name"] == "victim"
    assert not screen.check_accessibility()
    screen.page.get_by_role("button", name="Stay signed in as victim").click()
    expect(screen.page.locator("header.top")).to_contain_text("victim")
    assert "code" not in screen.page.url


def test_a_link_is_taken_over_a_session_where_its_owner_says_so(
    served: ServedApplications, screens: Screens
) -> None:
    first = served.server.token(PROJECT, ["read"], name="first")
    second = served.server.token(PROJECT, ["read"], name="second")
    made = httpx2.post(f"{served.url}/api/sign-in-links", headers=bearer(second))
    screen = screens.open(served.url, first, path=INBOX)
    screen.tolerated.append("409")
    screen.page.goto(made.json()["url"])
    screen.page.get_by_role("button", name="Sign in by this link").click()
    expect(screen.page.locator("header.top")).to_contain_text("second")
    sessions = httpx2.get(f"{served.url}/api/sessions", headers=bearer(first)).json()["sessions"]
    assert sessions == []


def test_a_link_from_beyond_this_machine_asks_also_where_nobody_is_signed_in(
    tmp_path: Path, screens: Screens
) -> None:
    with running_server(tmp_path, run=False, host="0.0.0.0") as server:  # noqa: S104  # the point
        url = server.url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104  # the same
        token = server.token("acme", name="mallory")
        made = httpx2.post(f"{url}/api/sign-in-links", headers=bearer(token)).json()
        screen = screens.open(url)
        screen.tolerated += ["409", "401"]
        screen.page.goto(made["url"])
        expect(screen.page.get_by_role("alert")).to_contain_text("mallory")
        assert screen.page.context.cookies() == []
        screen.page.get_by_role("button", name="Do not use it").click()
        expect(screen.page.get_by_label("Token")).to_be_visible()


def test_a_workload_is_watched_to_ready_and_answers_a_prompt_as_a_stream(
    tmp_path_factory: pytest.TempPathFactory, screens: Screens
) -> None:
    command = shlex.join(
        echo_command("--model", "tiny", "--startup-delay", "3", "--token-delay", "0.15")
    )
    spec = WorkloadSpec(
        name="bot",
        model="tiny",
        backend="echo",
        command=command,
        health=Health(path="/health", interval="1s", startup="60s"),
    )
    with running_server(tmp_path_factory.mktemp("plane")) as server:
        token = server.token("acme")
        screen = screens.open(server.url, token, path="/ui/p/acme/workloads")
        screen.see("No workload is declared in this project.")
        with ManagementClient(server.url, project="acme", token=token) as owner:
            owner.ensure(spec)
            expect(screen.row("bot")).to_be_visible()
            screen.press("j")
            expect(screen.page.locator("[role=row]:focus")).to_be_visible()
            screen.press("Enter")
            state = screen.page.locator("main h1 .state")
            expect(state).not_to_contain_text("Ready")
            expect(state).to_contain_text("Ready", timeout=60_000)
            screen.page.get_by_label("Prompt").fill("one two three four five six seven eight")
            screen.press("Control+Enter")
            answer = screen.page.get_by_label("Answer")
            expect(answer).to_have_attribute("aria-busy", "true")
            expect(answer).to_contain_text("one")
            assert "eight" not in answer.inner_text(), "it came in pieces"
            expect(answer).to_contain_text("eight")
            expect(answer).to_have_attribute("aria-busy", "false")
            owner.delete("bot")


AWAY = "Object.defineProperty(document, 'hidden', { get: () => globalThis.away ?? false });"
TURN = (
    "(away) => { globalThis.away = away; document.dispatchEvent(new Event('visibilitychange')); }"
)


def test_a_hidden_tab_gives_its_streams_back_and_catches_up_once_it_is_shown(
    served: ServedApplications, screens: Screens
) -> None:
    screen = screens.open(served.url)
    screen.page.add_init_script(AWAY)
    screen.page.clock.install()
    streams: list[str] = []
    ended: list[str] = []
    screen.page.on("request", lambda asked: streams.append(asked.url))
    screen.page.on("requestfailed", lambda asked: ended.append(asked.url))
    screen.sign_in(served.server.token(PROJECT, ["read"], name="lee"), path=INBOX)
    live = screen.page.locator(".top .live")
    expect(live).to_have_text("● live")
    screen.page.evaluate(TURN, True)
    screen.page.clock.run_for(9_000)
    assert not any(url.endswith("/events") for url in ended), "a look at another tab costs nothing"
    with screen.page.expect_event("requestfailed", lambda asked: asked.url.endswith("/events")):
        screen.page.clock.run_for(2_000)
    served.call(lambda: served.worlds[0].edit("c"))
    served.reconcile()
    with screen.page.expect_request("**/events"):
        screen.page.evaluate(TURN, False)
    expect(screen.page.get_by_role("button", name="new drift")).to_be_visible()
    expect(live).to_have_text("● live")


def test_many_tabs_in_the_background_leave_connections_to_the_one_that_is_looked_at(
    served: ServedApplications, screens: Screens
) -> None:
    """A browser has six to one server; each open stream takes one."""
    first = screens.open(served.url, served.server.token(PROJECT, ["read"], name="max"), path=INBOX)
    expect(first.page.locator(".top .live")).to_have_text("● live")
    hidden = []
    for _ in range(7):
        page = first.page.context.new_page()
        page.add_init_script(AWAY + "globalThis.away = true;")
        page.goto(served.url + INBOX)
        expect(page.locator("main h1")).to_contain_text("in all")
        hidden.append(page)
    expect(hidden[0].locator(".top .live")).to_have_text("◌ connecting")
    hidden[-1].evaluate(TURN, False)
    expect(hidden[-1].locator(".top .live")).to_have_text("● live")


def test_a_browser_that_does_not_say_when_it_is_idle_shows_the_page(
    served: ServedApplications, screens: Screens
) -> None:
    """Safari, on every telephone of its maker."""
    screen = screens.open(served.url)
    screen.page.add_init_script("delete globalThis.requestIdleCallback;")
    screen.sign_in(served.server.token(PROJECT, ["read"], name="sue"), path=INBOX)
    expect(screen.title).to_be_visible()
    expect(screen.page.get_by_role("alert")).to_have_count(0)
    screen.rows.first.locator("a").click()
    expect(screen.page.locator("table.diff").first).to_be_visible()
