"""People decide about applications: who it was is on record, and four eyes are two people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2
import pytest
from tests.apps.server.people import (
    ISSUER,
    cookie_headers,
    job_token,
    person_cookie,
    sign_in,
    write_people,
)
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route
from tests.support.issuer import running_issuer
from tests.support.server import bearer

from holdfast.core.gitops.application import DriftSpec, Remediation
from holdfast.core.gitops.drift import DriftState

HERE = f"/api/projects/{PROJECT}/gitops"


class Reviewers:
    """One application with a drift that waits, where approving takes two."""

    def __init__(self, running: ServedApplications, world: GitopsWorld) -> None:
        self.running = running
        self.world = world
        self.http = httpx2.Client(base_url=running.url, timeout=20)

    def person(self, subject: str, name: str, scope: str = "approve") -> dict[str, str]:
        """Sign somebody in; return what the page sends for them."""
        cookie = person_cookie(self.running.server, subject, f"{PROJECT}-{scope}", name=name)
        return cookie_headers(cookie)

    @property
    def drift(self) -> dict[str, str]:
        token = self.running.server.token(PROJECT, ["read"], name="reader")
        answer = self.http.get(f"{HERE}/drifts", headers=bearer(token))
        return dict(answer.json()["drifts"][0])

    def approve(self, who: dict[str, str], comment: str = "") -> httpx2.Response:
        drift = self.drift
        given = {"plan": drift["plan"], "comment": comment}
        return self.http.post(f"{HERE}/drifts/{drift['id']}/approve", json=given, headers=who)

    def journal(self) -> list[dict[str, str]]:
        token = self.running.server.token(PROJECT, ["read"], name="reader")
        return list(self.http.get(f"{HERE}/history", headers=bearer(token)).json()["entries"])


def reviewers_of(
    tmp_path: Path,
    remediation: Remediation,
    *,
    ci: str = "https://ci.test",
    job_scopes: Sequence[str] = ("write",),
) -> Iterator[Reviewers]:
    world = GitopsWorld(route(remediation), drift=DriftSpec(four_eyes=True))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    people = write_people(tmp_path, PROJECT, ci=ci, job_scopes=job_scopes)
    with serve_applications(tmp_path, world, people=people) as running:
        running.reconcile()
        reviewers = Reviewers(running, world)
        running.call(
            lambda: world.kube.edit(config_ref("a"), lambda item: item["data"].update(x="9"))
        )
        running.reconcile()
        running.passes = False
        with reviewers.http:
            yield reviewers


@pytest.fixture
def reviewers(tmp_path: Path) -> Iterator[Reviewers]:
    yield from reviewers_of(tmp_path, Remediation.REVIEW)


def test_two_people_of_one_name_are_two(reviewers: Reviewers) -> None:
    first = reviewers.approve(reviewers.person("7", "Ann"), "it was me")
    assert (first.status_code, first.json()["state"]) == (200, DriftState.AWAITING)
    second = reviewers.approve(reviewers.person("8", "Ann"), "so it was")
    assert (second.status_code, second.json()["state"]) == (200, DriftState.APPROVED)
    actors = {line["action"]: line["actor"] for line in reviewers.journal()}
    assert actors["approved"] == f"Ann ({ISSUER}|8)"
    assert f"Ann ({ISSUER}|7)" in actors.values()
    reviewers.running.reconcile()
    assert reviewers.world.drifts == []


def test_one_person_in_two_browsers_and_under_two_names_is_one(reviewers: Reviewers) -> None:
    for name in ("Ann", "Anna"):
        answer = reviewers.approve(reviewers.person("7", name))
        assert (answer.status_code, answer.json()["state"]) == (200, DriftState.AWAITING)


def test_a_person_and_the_token_that_they_made_are_one(reviewers: Reviewers) -> None:
    reviewers.running.server.token(PROJECT)
    ann = reviewers.person("7", "Ann", "admin")
    made = reviewers.http.post(
        f"/api/projects/{PROJECT}/tokens",
        json={"name": "laptop", "scopes": ["admin"]},
        headers=ann,
    )
    assert made.status_code == 201, made.text
    laptop = bearer(made.json()["token"])
    second = reviewers.http.post(
        f"/api/projects/{PROJECT}/tokens",
        json={"name": "other", "scopes": ["approve"]},
        headers=laptop,
    ).json()
    me = reviewers.http.get("/api/me", headers=laptop).json()
    assert (me["kind"], me["issuer"], me["subject"]) == ("token", ISSUER, "7")
    for who in (ann, laptop, bearer(second["token"])):
        answer = reviewers.approve(who)
        assert (answer.status_code, answer.json()["state"]) == (200, DriftState.AWAITING)
    assert reviewers.approve(reviewers.person("8", "Ben")).json()["state"] == DriftState.APPROVED
    actors = [line["actor"] for line in reviewers.journal()]
    assert f"Ann ({ISSUER}|7)" in actors


def test_a_ci_job_is_no_eye(tmp_path: Path) -> None:
    """Whoever may change the job's repository would be the second person by it."""
    with running_issuer() as issuer:
        for reviewers in reviewers_of(
            tmp_path, Remediation.REVIEW, ci=issuer.url, job_scopes=["approve"]
        ):
            server = reviewers.running.server
            server.token(PROJECT)
            job = bearer(job_token(server, issuer, PROJECT))
            for who in (job, cookie_headers(sign_in(server, job["Authorization"][7:]))):
                refused = reviewers.approve(who)
                assert refused.status_code == 403
                assert "is a CI job" in refused.json()["message"]
            assert (
                reviewers.approve(reviewers.person("7", "Ann")).json()["state"]
                == DriftState.AWAITING
            )
            assert reviewers.approve(job).status_code == 403
            assert reviewers.drift["state"] == DriftState.AWAITING
            waiting = reviewers.http.get(
                f"{HERE}/drifts", params={"waiting_for": "me"}, headers=job
            )
            assert waiting.json()["drifts"] == []
            ben = reviewers.approve(reviewers.person("8", "Ben"))
            assert ben.json()["state"] == DriftState.APPROVED


def test_who_asked_for_it_cannot_approve_it_under_another_name(tmp_path: Path) -> None:
    for reviewers in reviewers_of(tmp_path, Remediation.REPORT):
        ann = reviewers.person("7", "Ann", "admin")
        path = f"{HERE}/drifts/{reviewers.drift['id']}/revert"
        assert reviewers.http.post(path, json={}, headers=ann).status_code == 200
        reviewers.running.reconcile()
        own = reviewers.approve(reviewers.person("7", "Somebody else"))
        assert own.status_code == 403, own.text
        assert reviewers.approve(reviewers.person("8", "Ann")).status_code == 200


def test_a_hold_and_a_comment_bear_the_person(reviewers: Reviewers) -> None:
    ann = reviewers.person("7", "Ann (on call)", "admin")
    app = reviewers.world.application.id.label
    held = reviewers.http.post(
        f"{HERE}/applications/{app}/holds", json={"reason": "INC-1", "seconds": 600}, headers=ann
    )
    assert (held.status_code, held.json()["by"]) == (201, f"Ann (on call) ({ISSUER}|7)")
    rejected = reviewers.http.post(
        f"{HERE}/drifts/{reviewers.drift['id']}/reject", json={"comment": "tuned"}, headers=ann
    )
    assert rejected.json()["decided_by"] == f"Ann (on call) ({ISSUER}|7)"
    assert rejected.json()["comment"] == "tuned"


def test_a_person_who_may_only_read_decides_nothing(reviewers: Reviewers) -> None:
    refused = reviewers.approve(reviewers.person("9", "Eve", "read"))
    assert (refused.status_code, refused.json()["error"]) == (403, "scope_insufficient")
    assert reviewers.drift["state"] == DriftState.AWAITING


def test_what_a_person_approved_stands_when_they_have_signed_out(reviewers: Reviewers) -> None:
    ann, ben = reviewers.person("7", "Ann"), reviewers.person("8", "Ben")
    reviewers.approve(ann)
    reviewers.approve(ben)
    for who in (ann, ben):
        assert reviewers.http.delete("/api/sessions/current", headers=who).status_code == 204
    reviewers.running.reconcile()
    assert reviewers.world.drifts == []
