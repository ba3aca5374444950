"""A reviewer in a real browser: what drifted is read and decided, by keyboard, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect
from tests.support.browser import Screens
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, configmap, route
from tests.support.review import INBOX, Review

from holdfast.core.gitops.application import Remediation

NAMES = [*"abcdefghijklmopqrstuv", *(f"many-{place}" for place in range(50))]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplications]:
    tmp_path: Path = tmp_path_factory.mktemp("page")
    world = GitopsWorld(route(Remediation.REVIEW, name="settings-are-reviewed"))
    world.git.commit({f"deploy/{name}.yaml": configmap(name, x="1") for name in NAMES})
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        yield running


@pytest.fixture
def review(served: ServedApplications, screens: Screens) -> Review:
    return Review(served, served.worlds[0], screens)


def test_a_token_signs_in_and_leads_to_the_inbox(review: Review) -> None:
    screen = review.screens.open(review.url)
    screen.sign_in(review.token())
    assert screen.page.url == f"{review.url}{INBOX}"
    kept = screen.page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
    assert "ik_sdk" not in kept, "no token stays in the browser"
    assert screen.page.evaluate("document.cookie") == "", "and no script can read the session"


def test_a_wrong_token_is_refused_in_words(review: Review) -> None:
    screen = review.screens.open(review.url)
    screen.tolerated.append("401")
    screen.go("/ui/login")
    screen.page.get_by_label("Token").fill("ik_sdk_wrong")
    screen.press("Enter")
    expect(screen.page.get_by_role("alert")).to_be_visible()
    assert "ik_sdk_wrong" not in screen.page.content()


def test_a_drift_appears_is_read_and_approved_by_keyboard_and_healed(review: Review) -> None:
    screen = review.open()
    expect(screen.title.locator(".count")).to_be_visible()  # the list was read before
    review.drift("a")
    screen.page.get_by_role("button", name="1 new drift").wait_for()
    expect(screen.page.locator("#announcements")).to_have_text("1 new drift")
    screen.press(".")
    expect(screen.row("chat/a")).to_contain_text("Needs approval")
    screen.press("j")
    expect(screen.row("chat/a")).to_be_focused()
    screen.press("Enter")
    expect(screen.title).to_have_text(
        "ConfigMap chat/a differs from Git in data.x, by kubectl-edit (a person's tool)."
    )
    expect(screen.page.locator("td.live")).to_have_text("9")
    expect(screen.page.locator("td.git")).to_have_text("1")
    expect(screen.page.get_by_role("button", name="Approve")).to_be_visible()
    screen.press("a")
    expect(screen.page.locator(".facts")).to_contain_text("approved and put back")
    assert review.data("a") == {"x": "1"}
    timeline = screen.page.locator(".timeline")
    expect(timeline).to_contain_text("Approved by maria")
    expect(timeline).to_contain_text("Resolved")
    assert review.drift_of("a")["decided_by"].startswith("maria (")


def test_a_plan_that_moved_shows_what_moved_and_approves_nothing(review: Review) -> None:
    review.drift("b")
    screen = review.read("b")
    expect(screen.page.get_by_role("button", name="Approve")).to_be_visible()
    review.drift("b", value="10")
    alert = screen.page.get_by_role("alert")
    expect(alert).to_contain_text("changed since you read it")
    expect(alert).to_contain_text("data.x: live was 9 and is 10.")
    screen.press("a")
    expect(screen.page.get_by_role("button", name="Approve")).to_have_count(0)
    assert review.drift_of("b")["state"] == "awaiting-approval"
    assert review.data("b") == {"x": "10"}
    screen.press("Enter")
    expect(screen.page.locator("td.live")).to_have_text("10")
    screen.page.get_by_role("button", name="Approve").click()
    expect(screen.page.locator(".facts")).to_contain_text("approved and put back")


def test_an_approval_that_races_a_change_is_refused_by_its_digest(review: Review) -> None:
    review.drift("c")
    screen = review.open()
    screen.tolerated += ["409", "ERR_FAILED"]
    screen.page.route("**/gitops/events*", lambda route: route.abort())
    screen.go(f"/ui/p/{PROJECT}/drifts/{review.drift_of('c')['id']}")
    expect(screen.page.get_by_role("button", name="Approve")).to_be_visible()
    review.drift("c", value="11")
    screen.press("a")
    alert = screen.page.get_by_role("alert")
    expect(alert).to_contain_text("Nothing was approved")
    expect(alert).to_contain_text("live was 9 and is 11")
    assert review.drift_of("c")["state"] == "awaiting-approval"
    assert review.data("c") == {"x": "11"}


def test_a_rejection_says_why_and_the_live_side_stays(review: Review) -> None:
    review.drift("d")
    screen = review.read("d")
    expect(screen.page.get_by_role("button", name="Reject")).to_be_visible()
    screen.press("x")
    expect(screen.page.get_by_label("Why")).to_be_focused()
    screen.press("Control+Enter")
    expect(screen.page.get_by_role("dialog")).to_be_visible()
    screen.page.keyboard.type("it is needed for the launch")
    screen.press("Control+Enter")
    expect(screen.page.locator(".facts")).to_contain_text("Rejected")
    expect(screen.page.locator(".timeline")).to_contain_text("it is needed for the launch")
    found = review.drift_of("d")
    assert (found["state"], found["comment"]) == ("rejected", "it is needed for the launch")
    assert review.data("d") == {"x": "9"}


def test_a_key_decides_nothing_where_no_difference_is_shown(review: Review) -> None:
    review.drift("e")
    screen = review.open()
    expect(screen.row("chat/e")).to_be_visible()
    screen.press("j", "a", "x", "r")
    assert screen.page.get_by_role("dialog").count() == 0
    assert review.drift_of("e")["state"] == "awaiting-approval"


def test_snooze_asks_until_when(review: Review) -> None:
    review.drift("f")
    screen = review.read("f")
    expect(screen.page.get_by_role("button", name="Snooze")).to_be_visible()
    screen.press("z")
    screen.page.get_by_label("For").select_option("1 hour")
    screen.press("Control+Enter")
    expect(screen.page.locator(".facts")).to_contain_text("Snoozed")
    expect(screen.page.locator(".facts")).to_contain_text("ends in")
    assert review.drift_of("f")["state"] == "snoozed"


def test_a_hold_says_why_until_when_and_is_ended_from_its_screen(review: Review) -> None:
    review.drift("g")
    screen = review.read("g")
    expect(screen.page.get_by_role("button", name="Hold")).to_be_visible()
    screen.press("h")
    screen.page.get_by_label("Reason").fill("INC-1432")
    screen.press("Control+Enter")
    expect(screen.page.locator(".facts")).to_contain_text("On hold")
    screen.press("g", "o")
    expect(screen.page.locator("article")).to_contain_text("ConfigMap chat/g")
    expect(screen.page.locator("article")).to_contain_text("INC-1432")
    assert [hold["reason"] for hold in review.api("/holds")["holds"]] == ["INC-1432"]
    screen.page.get_by_role("button", name="End it now").click()
    screen.see("Nothing is on hold.")
    assert review.api("/holds")["holds"] == []


def test_a_revert_of_what_is_reviewed_asks_for_a_review_in_ones_name(review: Review) -> None:
    review.drift("h")
    screen = review.read("h")
    expect(screen.page.get_by_role("button", name="Revert")).to_be_visible()
    screen.press("r")
    screen.page.get_by_label("Comment").fill("it was a mistake")
    screen.press("Control+Enter")
    expect(screen.page.locator(".notices")).to_contain_text("It waits for a review.")
    expect(screen.page.locator(".note")).to_contain_text("maria")
    assert review.drift_of("h")["requested_by"].startswith("maria (")


def test_codify_shows_its_patch_and_opens_a_pull_request(review: Review) -> None:
    review.drift("i")
    screen = review.read("i")
    expect(screen.page.get_by_role("button", name="Codify")).to_be_visible()
    screen.press("c")
    patch = screen.page.get_by_label("Patch")
    expect(patch).to_contain_text("deploy/i.yaml")
    screen.press("Control+Enter")
    expect(screen.page.locator(".facts")).to_contain_text("https://git.example.com/pulls/")
    forge = review.world.forge
    assert forge is not None and len(forge.pulls) == 1


def test_a_reader_sees_no_buttons_and_the_server_refuses_them(review: Review) -> None:
    review.drift("j")
    screen = review.read("j", "read", by="joe")
    screen.see("joe may read here, and decide nothing.")
    expect(screen.page.locator(".choices button")).to_have_count(0)
    expect(screen.page.locator(".choices")).to_contain_text("approve")
    screen.press("a", "x", "c", "r", "z", "h", "i")
    assert screen.page.get_by_role("dialog").count() == 0
    screen.tolerated.append("403")
    found = review.drift_of("j")
    status = screen.page.evaluate(
        """([path, plan]) => fetch(path, {
            method: "POST", body: JSON.stringify({plan}),
            headers: {"Content-Type": "application/json", "Holdfast-CSRF": "1"},
        }).then((answer) => answer.status)""",
        [f"/api/projects/{PROJECT}/gitops/drifts/{found['id']}/approve", found["plan"]],
    )
    assert status == 403
    assert review.drift_of("j")["state"] == "awaiting-approval"


def test_of_two_reviewers_at_once_one_decision_counts(review: Review) -> None:
    """Neither page hears of the other's decision, and both are sent before one is answered."""
    review.drift("k")
    review.served.passes = False
    held: list[Route] = []

    def hold_until_both(request: Route) -> None:
        held.append(request)
        if len(held) == 2:
            for each in held:
                each.continue_()

    try:
        maria, joe = review.read_unheard("k"), review.read_unheard("k", by="joe")
        for screen in (maria, joe):
            screen.page.route("**/approve", hold_until_both)
        maria.press("a")
        joe.press("a")
        for screen in (maria, joe):
            expect(screen.page.locator(".facts")).to_contain_text("Approved")
        winner = review.drift_of("k")["decided_by"]
        won, lost = (joe, maria) if winner.startswith("joe (") else (maria, joe)
        expect(won.page.get_by_role("alert")).to_have_count(0)
        alert = lost.page.get_by_role("alert")
        expect(alert).to_contain_text(f"it is approved, by {winner}")
        expect(lost.page.locator("#announcements")).not_to_contain_text("Nothing was approved")
        lost.not_see("Nothing was approved")
        subject = review.drift_of("k")["id"]
        lines = [each["action"] for each in review.api("/history", subject=subject)["entries"]]
        assert (lines.count("approved"), lines.count("refused")) == (1, 1)
    finally:
        review.served.passes = True
        review.heal()


def test_who_approves_what_was_put_back_meanwhile_is_told_by_whom(review: Review) -> None:
    review.drift("l")
    maria, joe = review.read_unheard("l"), review.read("l", by="joe")
    joe.press("a")
    expect(joe.page.locator(".facts")).to_contain_text("approved and put back")
    maria.press("a")
    alert = maria.page.get_by_role("alert")
    expect(alert).to_contain_text("was approved by joe (")
    expect(alert).to_contain_text("already, and was put back")
    maria.not_see("There is nothing here")
    maria.not_see("Nothing was approved")


def test_a_window_that_is_open_sends_nothing_about_what_moved(review: Review) -> None:
    review.drift("m")
    screen = review.read("m")
    screen.press("x")
    screen.page.get_by_label("Why").fill("9 is needed")
    review.drift("m", value="evil")
    dialog = screen.page.get_by_role("dialog")
    expect(dialog).to_contain_text("It moved since you read it")
    expect(dialog.get_by_role("button", name="Reject")).to_have_count(0)
    screen.press("Control+Enter", "Escape")
    expect(screen.page.get_by_role("alert")).to_contain_text("live was 9 and is evil")
    screen.not_see("Nothing was approved")
    assert review.drift_of("m")["state"] == "awaiting-approval"
    screen.press("Enter")
    expect(screen.page.get_by_role("button", name="Reject")).to_be_visible()


@pytest.mark.parametrize(
    ("name", "key", "fill"),
    [
        ("v", "x", "it stays"),
        ("o", "z", ""),
        ("p", "c", ""),
        ("q", "r", ""),
        ("r", "i", "a test"),
    ],
)
def test_a_decision_about_what_its_reader_did_not_see_is_refused(
    review: Review, name: str, key: str, fill: str
) -> None:
    """The page hears of nothing, and what it sends names what was read."""
    review.drift(name)
    screen = review.read_unheard(name)
    screen.press(key)
    dialog = screen.page.get_by_role("dialog")
    if key == "c":
        expect(dialog.get_by_label("Patch")).to_be_visible()
    if fill:
        dialog.locator("textarea").fill(fill)
    review.drift(name, value="evil")
    screen.press("Control+Enter")
    expect(dialog).to_contain_text("changed after it was read")
    expect(dialog).to_contain_text("It moved since you read it")
    screen.press("Escape")
    expect(screen.page.get_by_role("alert")).to_contain_text("live was 9 and is evil")
    found = review.drift_of(name)
    assert (found["state"], found.get("requested_by")) == ("awaiting-approval", None)
    assert review.data(name) == {"x": "evil"}


def test_what_moved_after_ones_own_approval_does_not_say_that_nothing_was_approved(
    review: Review,
) -> None:
    review.drift("s")
    review.served.passes = False
    try:
        screen = review.read("s")
        screen.press("a")
        expect(screen.page.locator(".facts")).to_contain_text("Approved")
        review.drift("s", value="10")
        alert = screen.page.get_by_role("alert")
        expect(alert).to_contain_text("so the approval does not hold any more")
        expect(alert).to_contain_text("live was 9 and is 10")
        screen.not_see("Nothing was approved")
    finally:
        review.served.passes = True


def test_what_happens_to_other_drifts_is_not_read_on_an_open_one(review: Review) -> None:
    review.drift("t")
    list_beside = review.open()
    expect(list_beside.row("chat/t")).to_be_visible()
    screen = review.read("t")
    expect(screen.page.get_by_role("button", name="Approve")).to_be_visible()
    asked: list[str] = []
    own = review.drift_of("t")["id"]
    screen.page.on("request", lambda request: asked.append(request.url))
    seen = -1
    while seen < len(asked):  # it reads once more when its stream stands
        seen = len(asked)
        screen.page.wait_for_timeout(500)
    asked.clear()
    review.drift("u")
    expect(list_beside.page.get_by_role("button", name="1 new drift")).to_be_visible()
    assert [url for url in asked if own in url] == []
    review.drift("t", value="10")
    expect(screen.page.get_by_role("alert")).to_contain_text("live was 9 and is 10")
    assert [url for url in asked if own in url] != []


def test_fifty_drifts_are_triaged_by_keyboard_alone(review: Review) -> None:
    names = [f"many-{place}" for place in range(50)]
    review.drift(*names)
    screen = review.open(path=f"{INBOX}?q=many-")
    expect(screen.page.locator(".row.heading").first).to_have_text("Waiting for you: 50")
    expect(screen.rows.first).to_be_visible()
    screen.press("j")
    expect(screen.page.locator("[role=row]:focus")).to_be_visible()
    screen.press("Enter")
    for _ in names:
        expect(screen.page.get_by_role("button", name="Approve")).to_be_visible()
        before = screen.page.url
        screen.press("a")
        expect(screen.page.get_by_role("button", name="Approve")).to_have_count(0)
        screen.press("j")
        if _ != names[-1]:
            expect(screen.page).not_to_have_url(before)
    states = {review.drift_of(name)["decided_by"].split(" ")[0] for name in names[:3]}
    assert states == {"maria"}
    review.heal()
    left = review.api("/drifts", q="many-")["drifts"]
    assert left == []
    assert all(review.data(name) == {"x": "1"} for name in names)


def test_an_address_that_is_none_of_the_web_is_no_link(review: Review) -> None:
    """The ledger has what the forge said; what the server made a link of is looked at alone."""
    review.drift("q")
    (found,) = [each for each in review.api("/drifts")["drifts"] if each["object"]["name"] == "q"]
    screen = review.open()
    screen.page.route(
        f"**/drifts/{found['id']}",
        lambda seen: (
            seen.fulfill(json={**review.api(f"/drifts/{found['id']}"), "url": "data:,x"})
            if seen.request.resource_type == "fetch"
            else seen.continue_()
        ),
    )
    screen.go(f"/ui/p/{PROJECT}/drifts/{found['id']}")
    expect(screen.page.locator(".facts")).to_contain_text("data:,x")
    assert screen.page.locator('a[href^="data:"]').count() == 0
