"""Plans that a guard holds back, holds, and figures: in a real browser, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import expect
from tests.support.browser import Screens
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route
from tests.support.review import Review
from tests.support.server import bearer

from holdfast.core.gitops.application import DriftSpec, OrphanPolicy, Remediation, SyncSpec
from holdfast.core.gitops.hold import PAUSE_REASON, PAUSED_UNTIL

HISTORY = f"/ui/p/{PROJECT}/history"


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplications]:
    """An application that only reports drift, and whose approvals have to say why."""
    world = GitopsWorld(
        route(Remediation.REPORT),
        sync=SyncSpec(automatic=True, prune=True),
        drift=DriftSpec(comment=True),
    )
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(20)})
    with serve_applications(tmp_path_factory.mktemp("plans"), world) as running:
        running.reconcile()
        yield running


@pytest.fixture
def review(served: ServedApplications, screens: Screens) -> Review:
    return Review(served, served.worlds[0], screens)


def delete_eight(review: Review) -> str:
    """Have Git declare so much less that a guard holds the plan back; give its id."""
    review.world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(12)})
    review.served.run(review.world.fetch_and_reconcile())
    (plan,) = review.api("/applications/shop")["plans"]
    return str(plan["id"])


def test_a_plan_waits_in_the_list_of_whoever_may_approve_it(review: Review) -> None:
    id = delete_eight(review)
    review.drift("c1")
    maria = review.open()
    expect(maria.title).to_contain_text("1 decision waits for you")
    expect(maria.page.locator(".row.heading").first).to_have_text("Waiting for you: 1")
    expect(maria.page.locator(".row.heading").last).to_have_text("Also open: 1")
    joe = review.open("read", name="joe")
    expect(joe.row(id)).to_be_visible()
    expect(joe.title).to_contain_text("Inbox")
    expect(joe.page.get_by_text("Waiting for you")).to_have_count(0)
    joe.go(f"/ui/p/{PROJECT}/plans/{id}")
    joe.see("This credential lacks the scope approve.")
    expect(joe.page.locator(".actions button")).to_have_count(0)
    first = joe.page.locator("table.diff").first
    expect(first.locator("td.live")).to_have_text("it is there")
    expect(first.locator("td.git")).to_have_text("not declared")


def test_a_plan_is_approved_with_its_reason_and_says_later_what_became_of_it(
    review: Review,
) -> None:
    id = delete_eight(review)
    screen = review.open(path=f"/ui/p/{PROJECT}/plans/{id}")
    expect(screen.page.get_by_role("button", name="Approve")).to_be_visible()
    screen.press("a")
    dialog = screen.page.get_by_role("dialog")
    expect(dialog.get_by_label("Why")).to_be_focused()
    screen.press("Control+Enter")
    expect(dialog).to_be_visible()
    assert review.data("c19") == {"x": "1"}
    screen.page.keyboard.type("the move is agreed")
    screen.press("Control+Enter")
    expect(dialog).to_have_count(0)
    expect(screen.page.locator(".facts")).to_contain_text("“the move is agreed”")
    screen.see("It was approved by maria (")
    screen.not_see("cannot be approved")
    expect(screen.page.locator(".facts .state")).to_contain_text("Approved")
    assert review.data("c19") is None


def test_a_plan_is_rejected_with_its_reason(review: Review) -> None:
    id = delete_eight(review)
    screen = review.open(path=f"/ui/p/{PROJECT}/plans/{id}")
    expect(screen.page.get_by_role("button", name="Reject")).to_be_visible()
    screen.press("x")
    screen.page.get_by_label("Why").fill("set back by mistake")
    screen.press("Control+Enter")
    expect(screen.page.locator(".facts")).to_contain_text("“set back by mistake”")
    expect(screen.page.locator(".actions button")).to_have_count(0)
    review.heal()
    assert review.data("c19") == {"x": "1"}


def test_a_revert_says_how_it_goes_and_why_where_that_is_asked_for(review: Review) -> None:
    review.drift("c1", "c2", "c3")
    screen = review.read("c1")
    expect(screen.page.get_by_role("button", name="Revert")).to_be_visible()
    screen.press("r")
    dialog = screen.page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    screen.press("Control+Enter")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Comment").fill("a slip")
    screen.press("Control+Enter")
    expect(screen.page.locator(".notices")).to_contain_text("It is put back with the next pass")
    expect(screen.page.locator(".facts")).to_contain_text("Resolved")
    assert review.data("c1") == {"x": "1"}
    other = review.read("c2")
    expect(other.page.get_by_role("button", name="Revert")).to_be_visible()
    other.press("r")
    other.page.get_by_label("How").select_option("pull-request")
    other.press("Control+Enter")
    expect(other.page.locator(".notices")).to_contain_text("opens a pull request with the decision")
    expect(other.page.locator(".facts")).to_contain_text("https://git.example.com/pulls/")
    assert review.data("c2") == {"x": "9"}


def test_a_revert_overwrites_nothing_that_no_pass_has_seen(review: Review) -> None:
    review.drift("c1")
    screen = review.read_unheard("c1")
    review.edit("c1", "evil")
    screen.press("r")
    screen.page.get_by_label("Comment").fill("a slip")
    screen.press("Control+Enter")
    expect(screen.page.get_by_role("dialog")).to_contain_text("changed after it was read")
    review.heal()
    assert review.data("c1") == {"x": "evil"}


def test_one_hold_is_ended_and_another_persons_stays(review: Review) -> None:
    now = review.world.clock.now()
    marks = {PAUSED_UNTIL: (now + timedelta(hours=2)).isoformat(), PAUSE_REASON: "INC-3"}
    review.served.call(
        lambda: review.world.kube.edit(
            config_ref("c2"), lambda item: item["metadata"].update(annotations=marks)
        )
    )
    for name, more in (("maria", {}), ("joe", {"object": "ConfigMap/chat/c1"})):
        answer = httpx2.post(
            f"{review.url}/api/projects/{PROJECT}/gitops/applications/shop/holds",
            json={"reason": f"of {name}", "seconds": 3600, **more},
            headers=bearer(review.token(name=name)),
        )
        assert answer.status_code == 201, answer.text
    review.heal()
    screen = review.open(path=f"/ui/p/{PROJECT}/holds")
    cards = screen.page.locator("article")
    expect(cards).to_have_count(3)
    noted = cards.filter(has_text="INC-3")
    expect(noted.get_by_role("button")).to_have_count(0)
    expect(noted).to_contain_text("when holdfast.dev/paused-until is removed there")
    cards.filter(has_text="The whole application").get_by_role("button").click()
    expect(cards).to_have_count(2)
    expect(cards.filter(has_text="of joe")).to_be_visible()
    reasons = {hold["reason"] for hold in review.api("/holds")["holds"]}
    assert reasons == {"of joe", "INC-3"}
    screen.go(f"/ui/p/{PROJECT}/applications/team.shop")
    screen.page.get_by_role("button", name="End its holds").click()
    expect(screen.page.locator(".notices")).to_contain_text(
        "1 hold ended. 1 hold by annotation stays until the annotation is removed."
    )
    expect(screen.page.get_by_role("button", name="End its holds")).to_have_count(0)


def test_figures_add_up_in_seconds_and_follow_what_happens(review: Review) -> None:
    world = review.world
    review.served.call(lambda: world.pass_time(-600))
    review.drift("c1")
    review.served.call(lambda: world.pass_time(7))
    review.edit("c1", "1")
    review.heal()
    screen = review.open(path=HISTORY)
    figures = screen.page.locator(".figure")
    expect(figures.filter(has_text="Time drifted")).to_contain_text("7 s")
    expect(screen.page.locator(".bars").first).to_contain_text("7 s")
    drifts = figures.filter(has_text="1 open now")
    expect(drifts).to_have_count(0)
    review.drift("c2")
    expect(drifts).to_be_visible()


def test_what_is_there_without_git_is_not_called_deleted(screens: Screens, tmp_path: Path) -> None:
    spec = DriftSpec(namespaces=("chat",), orphans=OrphanPolicy.REPORT)
    world = GitopsWorld(route(Remediation.REPORT), drift=spec)
    world.git.commit({"a.yaml": configmap("a", x="1")})
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        review = Review(running, world, screens)
        live = running.run(world.live("a"))
        assert live is not None
        left = {**live, "metadata": {"name": "left", "namespace": "chat"}}
        running.call(lambda: world.kube.create(left))
        running.run(world.kube.delete(config_ref("a"), uid=live["metadata"]["uid"]))  # type: ignore[index, call-overload, arg-type]  # it is one
        review.heal()
        gone, orphan = review.read("a"), review.read("left")
        expect(gone.title).to_contain_text("ConfigMap chat/a was deleted")
        expect(gone.page.locator("td.live")).to_have_text("it is not there")
        expect(gone.page.locator("td.git")).to_have_text("declared")
        expect(orphan.title).to_contain_text("ConfigMap chat/left is there without Git")
        expect(orphan.page.locator("td.live")).to_have_text("it is there")
        expect(orphan.page.locator("td.git")).to_have_text("not declared")
