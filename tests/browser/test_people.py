"""People at the page: signing in at a real Gitea, and approvals that take two of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
import pytest
from playwright.sync_api import expect
from tests.support.browser import Screen, Screens
from tests.support.gitea import PASSWORD, Gitea
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, configmap, route
from tests.support.processes import free_port

from holdfast.core.gitops.application import DriftSpec, Remediation
from holdfast.core.gitops.drift import DriftState, ObjectDrift

REVIEWERS = ("page-ann", "page-ben")


@dataclass(frozen=True, kw_only=True)
class Office:
    """A server that takes approvals by two people, who sign in at Gitea."""

    served: ServedApplications
    gitea: Gitea

    def drift(self) -> str:
        self.served.call(lambda: self.served.worlds[0].edit("a"))
        self.served.reconcile()
        assert self.served.worlds[0].context is not None
        (found,) = self.served.worlds[0].context.state.drifts.values()
        return found.id

    def drift_of(self, id: str) -> ObjectDrift:
        assert self.served.worlds[0].context is not None
        return self.served.worlds[0].context.state.drifts[id]

    @property
    def data(self) -> object:
        return self.served.run(self.served.worlds[0].data("a"))


@pytest.fixture(scope="module")
def office(gitea: Gitea, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("office")
    for name in (*REVIEWERS, "page-eve"):
        gitea.create_user(name)
    gitea.ask("POST", "/orgs", {"username": "page-people"})
    team = {"name": "reviewers", "permission": "read", "units": ["repo.code"]}
    made = gitea.ask("POST", "/orgs/page-people/teams", team)
    for name in REVIEWERS:
        gitea.ask("PUT", f"/teams/{made['id']}/members/{name}")
    port = free_port()
    client, secret = gitea.create_login(
        f"http://127.0.0.1:{port}/api/openid/gitea/callback", name="the page"
    )
    (folder / "secret").write_text(secret)
    described = httpx2.get(f"{gitea.url}/.well-known/openid-configuration").json()
    rule = {"claim": "groups", "value": "page-people:reviewers", "project": PROJECT}
    provider = {
        "id": "gitea",
        "name": "Our Gitea",
        "issuer": described["issuer"],
        "client_id": client,
        "client_secret": {"file": str(folder / "secret")},
        "scopes": ["openid", "profile", "email", "groups"],
        "rules": [{**rule, "scopes": ["approve", "write"]}],
    }
    people = folder / "people.yaml"
    people.write_text(json.dumps({"openid": [provider]}))
    world = GitopsWorld(route(Remediation.REVIEW), drift=DriftSpec(four_eyes=True))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    with serve_applications(folder, world, port=port, people=people) as running:
        running.server.token(PROJECT)
        running.reconcile()
        yield Office(served=running, gitea=gitea)


def sign_in(office: Office, screens: Screens, user: str, *, path: str = "/ui/") -> Screen:
    """Follow the login screen's link to Gitea, and come back."""
    screen = screens.open(office.served.url)
    screen.tolerated += ["another origin was asked", office.gitea.url, "warning:", "error:"]
    screen.go(f"/ui/login?next={path}")
    screen.page.get_by_role("link", name="Sign in with Our Gitea").click()
    screen.page.locator("input[name=user_name]").fill(user)
    screen.page.locator("input[name=password]").fill(PASSWORD)
    screen.page.keyboard.press("Enter")
    grant = screen.page.locator("button[name=granted][value=true], #authorize-app")
    expect(grant.or_(screen.page.locator("main")).first).to_be_visible()
    if grant.count():
        grant.first.click()
    screen.page.wait_for_url(f"{office.served.url}/ui/**")
    return screen


def ask(screen: Screen, path: str, body: dict[str, str]) -> int:
    """Send a decision past the page's buttons, as whoever is signed in; return the status."""
    status: int = screen.page.evaluate(
        """([path, body]) => fetch(path, {
            method: "POST", body: JSON.stringify(body),
            headers: {"Content-Type": "application/json", "Holdfast-CSRF": "1"},
        }).then((answer) => answer.status)""",
        [f"/api/projects/{PROJECT}/gitops{path}", body],
    )
    return status


def test_two_people_sign_in_at_gitea_and_only_both_approve(
    office: Office, screens: Screens
) -> None:
    id = office.drift()
    path = f"/ui/p/{PROJECT}/drifts/{id}"
    ann = sign_in(office, screens, "page-ann", path=path)
    expect(ann.page.locator(".who")).to_have_text("page-ann")
    expect(ann.page.get_by_role("button", name="Approve")).to_be_visible()
    ann.press("a")
    expect(ann.page.locator(".facts")).to_contain_text("it takes a second person")
    expect(ann.page.get_by_role("button", name="Approve")).to_have_count(0)
    expect(ann.page.locator(".choices")).to_contain_text("it takes somebody else too")
    ann.press("a")
    drift = office.drift_of(id)
    assert ask(ann, f"/drifts/{id}/approve", {"plan": drift.plan}) == 200
    assert (office.drift_of(id).state, office.data) == (DriftState.AWAITING, {"x": "9"})
    ben = sign_in(office, screens, "page-ben", path=path)
    expect(ben.page.get_by_role("button", name="Approve")).to_be_visible()
    ben.press("a")
    expect(ben.page.locator(".facts")).to_contain_text("approved and put back")
    expect(ben.page.locator(".timeline")).to_contain_text("page-ann")
    expect(ben.page.locator(".timeline")).to_contain_text("page-ben")
    assert office.data == {"x": "1"}


def test_who_asked_for_a_revert_cannot_approve_it(office: Office, screens: Screens) -> None:
    id = office.drift()
    path = f"/ui/p/{PROJECT}/drifts/{id}"
    ann = sign_in(office, screens, "page-ann", path=path)
    expect(ann.page.get_by_role("button", name="Revert")).to_be_visible()
    ann.press("r", "Control+Enter")
    expect(ann.page.locator(".notices")).to_contain_text("It waits for a review.")
    expect(ann.page.locator(".choices")).to_contain_text("asked for this or made the change")
    expect(ann.page.get_by_role("button", name="Approve")).to_have_count(0)
    ann.tolerated.append("403")
    assert ask(ann, f"/drifts/{id}/approve", {"plan": office.drift_of(id).plan}) == 403
    assert (office.drift_of(id).state, office.data) == (DriftState.AWAITING, {"x": "9"})
    ben = sign_in(office, screens, "page-ben", path=path)
    expect(ben.page.get_by_role("button", name="Approve")).to_be_visible()
    ben.press("a")
    expect(ben.page.locator(".facts")).to_contain_text("approved and put back")
    assert office.data == {"x": "1"}


def test_who_has_no_rights_here_is_told_so(office: Office, screens: Screens) -> None:
    eve = sign_in(office, screens, "page-eve")
    expect(eve.page.get_by_role("alert")).to_contain_text("no rights in any project")
    assert "error" not in eve.page.url
