"""Applications over HTTP: what is told, what is decided, what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route
from tests.support.server import bearer

from holdfast.apps.server.services import WebhookResponse
from holdfast.core.gitops.application import DriftSpec, Remediation, SourceSpec, SyncSpec
from holdfast.core.gitops.drift import DriftState
from holdfast.reconcile.gitops.application_state import retire_application
from holdfast.reconcile.gitops.heal import DriftHealer

A = config_ref("a")


class Here:
    """One application with one drift, asked about by a person."""

    def __init__(self, served: ServedApplications, world: GitopsWorld) -> None:
        self.served, self.world = served, world
        self.http = httpx2.Client(
            base_url=f"{served.url}/api/projects/{PROJECT}/gitops",
            headers=bearer(served.server.token(PROJECT, ["admin"], name="maria")),
            timeout=20,
        )

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **form: Any) -> httpx2.Response:
        return self.http.post(path, json=form)

    def edit(self, value: str) -> None:
        self.served.call(lambda: self.world.kube.edit(A, lambda item: item["data"].update(x=value)))

    def data(self, name: str = "a") -> object:
        return self.served.run(self.world.data(name))

    @property
    def drift(self) -> Any:
        (found,) = self.get("/drifts")["drifts"]
        return found


@pytest.fixture
def here(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Here]:
    remediation, spec = getattr(request, "param", (Remediation.REVIEW, {}))
    world = GitopsWorld(route(remediation), drift=DriftSpec(**spec))
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", w="2")})
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        found = Here(running, world)
        found.edit("9")
        running.reconcile()
        running.passes = False
        with found.http:
            yield found


REPORT = pytest.mark.parametrize("here", [(Remediation.REPORT, {})], indirect=True)


def test_an_application_tells_how_it_stands_and_where_it_comes_from(here: Here) -> None:
    (found,) = here.get("/applications")["applications"]
    assert found == here.get("/applications/shop") == here.get("/applications/team.shop")
    assert (found["id"], found["sync"], found["health"]) == ("team/shop", "drifted", "healthy")
    assert (found["objects"], found["drifted"], found["awaiting"]) == (2, 1, 1)
    assert found["source"]["url"] == "https://git.example.com/acme/deploy.git"
    assert found["source"]["commit"] == found["revision"] == here.world.git.head_sha
    objects = here.get("/applications/shop/objects")["objects"]
    assert [(each["object"]["name"], each["standing"]) for each in objects] == [
        ("a", "drifted"),
        ("b", "in-sync"),
    ]
    assert objects[0]["drift"] == here.drift["id"]


def test_no_credential_of_a_repository_is_shown(here: Here) -> None:
    here.world.git.down = "https://maria:s3cretpass1@git.example.com did not answer"
    url = "https://maria:s3cretpass1@git.example.com/acme/deploy.git?token=s3cretpass1"
    application = here.world.application
    here.world.application = replace(
        application, spec=replace(application.spec, source=SourceSpec(url=url))
    )
    here.served.run(here.world.fetch_and_reconcile())
    found = here.http.get("/applications/shop")
    assert "s3cretpass1" not in found.text
    assert found.json()["source"]["url"] == "https://git.example.com/acme/deploy.git"
    assert "did not answer" in found.json()["source"]["stale"]


def test_a_diff_looks_anew_and_names_the_writer_the_line_and_the_cause(here: Here) -> None:
    here.edit("10")
    (found,) = here.get("/applications/shop/diff")["objects"]
    (field,) = found["fields"]
    assert (field["path"], field["live"], field["git"]) == ("data.x", "10", "1")
    assert (field["state"], field["kind"], field["cause"]) == ("drifted", "configuration", "person")
    assert (field["writer"]["manager"], field["where"]) == ("kubectl-edit", "a.yaml:6")


def test_a_diff_tells_what_git_moved_from_what_somebody_changed(here: Here) -> None:
    world = here.world
    sync = SyncSpec(automatic=False)
    world.application = replace(world.application, spec=replace(world.application.spec, sync=sync))
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", w="7")})
    here.served.run(world.fetch_and_reconcile())
    first, second = here.get("/applications/shop/diff")["objects"]
    assert [field["state"] for field in first["fields"]] == ["drifted"]
    assert [(field["path"], field["state"]) for field in second["fields"]] == [
        ("data.w", "pending")
    ]
    plan = here.get("/applications/shop/plan")
    assert [(step["object"]["name"], step["action"]) for step in plan["steps"]] == [("b", "update")]
    assert plan["steps"][0]["fields"][0]["desired"] == "7"


def test_exactly_the_reviewed_plan_is_approved_and_twice_is_once(here: Here) -> None:
    drift = here.drift
    assert here.post(f"/drifts/{drift['id']}/approve", comment="x").status_code == 400
    first = here.post(f"/drifts/{drift['id']}/approve", plan=drift["plan"], comment="agreed")
    again = here.post(f"/drifts/{drift['id']}/approve", plan=drift["plan"], comment="agreed")
    assert (first.status_code, again.status_code) == (200, 200)
    here.served.reconcile()
    later = here.post(f"/drifts/{drift['id']}/approve", plan=drift["plan"])
    assert later.json()["state"] == "resolved"
    assert here.data() == {"x": "1"}
    lines = here.get("/history", subject=drift["id"])["entries"]
    assert [each["action"] for each in lines].count("approved") == 1
    assert [each["action"] for each in lines].count("applying") == 1
    assert lines[2]["actor"].startswith("maria (")


def test_what_was_rejected_or_put_off_is_not_said_to_be_approved(here: Here) -> None:
    id, plan = here.drift["id"], here.drift["plan"]
    here.post(f"/drifts/{id}/snooze", seconds=60)
    assert here.post(f"/drifts/{id}/approve", plan=plan).status_code == 409
    joe = bearer(here.served.server.token(PROJECT, ["approve"], name="joe"))
    here.http.post(f"/drifts/{id}/reject", json={"comment": "it stays"}, headers=joe)
    assert here.drift["decided_by"].startswith("joe ("), "the last word counts"
    again = here.http.post(f"/drifts/{id}/approve", json={"plan": plan}, headers=joe)
    assert (again.status_code, here.drift["state"]) == (409, "rejected")
    assert f"holdfast revert {id}" in again.json()["message"]


def test_a_plan_that_moved_is_refused_with_what_moved(here: Here) -> None:
    drift = here.drift
    here.edit("10")
    here.served.reconcile()
    answer = here.post(f"/drifts/{drift['id']}/approve", plan=drift["plan"])
    assert (answer.status_code, answer.json()["error"]) == (409, "stale_plan")
    assert "drift of data.x by kubectl-edit" in answer.json()["message"]
    assert "Nothing was changed." in answer.json()["message"]
    assert here.drift["state"] == "awaiting-approval"
    (refused,) = [
        each
        for each in here.get("/history", subject=drift["id"])["entries"]
        if each["action"] == "refused"
    ]
    assert refused["actor"].startswith("maria (")
    (kept, detail) = next(
        each for each in here.world.ledger_store._entries if each[0].action == "refused"
    )
    assert (kept.application, kept.subject) == ("team/shop", drift["id"])
    assert (kept.actor, detail) == (refused["actor"], '{"project":"ml-platform"}')
    assert kept.summary == (
        f"Its approval was refused: {drift['id']} changed after you reviewed it: "
        f"its plan is {here.drift['plan'][:19]} now."
    )


def test_of_two_people_who_decide_at_once_one_wins_and_both_are_on_record(here: Here) -> None:
    drift = here.drift
    joe = bearer(here.served.server.token(PROJECT, ["approve"], name="joe"))

    def ask(form: tuple[str, dict[str, Any], dict[str, str]]) -> int:
        verb, body, headers = form
        path = f"{here.http.base_url}drifts/{drift['id']}/{verb}"
        return httpx2.post(path, json=body, headers=headers, timeout=20).status_code

    forms = [
        ("approve", {"plan": drift["plan"]}, dict(here.http.headers)),
        ("approve", {"plan": drift["plan"]}, joe),
    ]
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(ask, forms)) == [200, 409]
    lines = here.get("/history", subject=drift["id"])["entries"]
    assert sorted(each["action"] for each in lines[:2]) == ["approved", "refused"]
    assert len({each["actor"] for each in lines[:2]}) == 2


def test_an_approval_ends_with_the_right_to_give_it(here: Here) -> None:
    drift, world = here.drift, here.world
    token = here.served.server.token(PROJECT, ["approve"], name="joe")
    answer = httpx2.post(
        f"{here.http.base_url}drifts/{drift['id']}/approve",
        json={"plan": drift["plan"]},
        headers=bearer(token),
    )
    assert answer.json()["state"] == "approved"
    here.served.server.revoke(token)
    parts = world.reconciler.components
    still_allowed = here.served.services.still_deciding
    healer = DriftHealer(world.observer, parts.healer.applier, world.clock, still_allowed)
    world.reconciler.components = replace(parts, healer=healer)
    here.served.reconcile()
    assert here.data() == {"x": "9"}, "nothing was applied in the name of a revoked token"
    here.served.reconcile()
    assert here.drift["state"] == "awaiting-approval"
    assert any(
        "may not approve any more" in each["summary"]
        for each in here.get("/history", subject=drift["id"])["entries"]
    )


def test_a_rejection_and_a_snooze_are_kept_with_their_reason(here: Here) -> None:
    drift = here.drift
    rejected = here.post(f"/drifts/{drift['id']}/reject", comment="tuned on purpose").json()
    assert (rejected["state"], rejected["comment"]) == ("rejected", "tuned on purpose")
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    snoozed = here.post(f"/drifts/{drift['id']}/snooze", until=until).json()
    assert snoozed["state"] == "snoozed"
    both = here.post(f"/drifts/{drift['id']}/snooze", until=until, seconds=5)
    assert both.status_code == 400
    assert here.get("/drifts", state="snoozed")["drifts"][0]["id"] == drift["id"]
    assert here.get("/drifts", state="awaiting-approval")["drifts"] == []


@REPORT
def test_a_drift_is_reverted_codified_or_hidden_by_hand(here: Here) -> None:
    drift = here.drift
    rules = here.post(f"/drifts/{drift['id']}/ignore", reason="load test", seconds=3600)
    assert [rule["path"] for rule in rules.json()["rules"]] == ["data.x"]
    here.served.reconcile()
    assert here.get("/drifts")["drifts"] == []
    (told,) = here.get("/applications/shop/objects")["objects"][0]["tolerated"]
    assert told == {"path": "data.x", "rule": f"{drift['id']}-0"}
    (hidden,) = here.get("/applications/shop/diff")["objects"]
    assert [(each["state"], each["rule"]) for each in hidden["fields"]] == [
        ("tolerated", f"{drift['id']}-0")
    ]


@REPORT
def test_a_revert_puts_the_declared_value_back(here: Here) -> None:
    assert here.post(f"/drifts/{here.drift['id']}/revert").status_code == 200
    here.served.reconcile()
    assert here.data() == {"x": "1"}


@REPORT
def test_codify_opens_a_pull_request(here: Here) -> None:
    id = here.drift["id"]
    assert here.http.post(f"/drifts/{id}/codify").status_code == 200
    here.served.reconcile()
    assert here.get(f"/drifts/{id}")["url"] == here.world.forge.pulls[1].url


@REPORT
def test_a_sync_is_awaited_and_tells_what_became_of_it(here: Here) -> None:
    here.world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", w="7")})
    here.served.passes = True
    answer = here.post("/applications/shop/sync", wait=10)
    assert answer.status_code == 200
    assert answer.json()["done"] is True
    assert any("1 to update" in told for told in answer.json()["told"])
    assert answer.json()["application"]["sync"] == "synced"
    assert (here.data("a"), here.data("b")) == ({"x": "1"}, {"w": "7"})


def test_a_sync_that_nobody_takes_up_is_said_to_be_under_way(here: Here) -> None:
    answer = here.post("/applications/shop/sync", wait=1)
    assert (answer.status_code, answer.json()["done"]) == (202, False)


def test_a_hold_counts_at_once_and_ends_by_command(here: Here) -> None:
    path = "/applications/shop/holds"
    made = here.post(path, reason="INC-1432", seconds=7200, object="configmap/chat/b")
    assert made.status_code == 201
    here.post(path, reason="INC-1433", seconds=3600, end="revert")
    assert [each["reason"] for each in here.get("/holds")["holds"]] == ["INC-1433", "INC-1432"]
    assert here.get("/applications/shop")["held"] == 2
    ended = here.http.delete(path, params={"object": "ConfigMap/chat/b"}).json()["holds"]
    assert [each["id"] for each in ended] == [made.json()["id"]]
    assert here.http.delete(path).status_code == 200
    assert here.http.delete(path).status_code == 404
    assert here.post(path, reason="x", seconds=60, object="ConfigMap/chat/no").status_code == 404
    assert here.post(path, reason="x", seconds=31 * 86_400).status_code == 400


def test_the_journal_is_paged_and_exported_whole(here: Here) -> None:
    every = here.get("/history", application="shop")["entries"]
    pages: list[Any] = []
    before = 0
    while before is not None:
        page = here.get("/history", limit=2, before=before)
        pages += page["entries"]
        before = page.get("next")
    assert pages == every
    lines = here.http.get("/export", params={"what": "journal"})
    assert lines.headers["content-type"] == "application/jsonl"
    assert [json.loads(line)["seq"] for line in lines.text.splitlines()] == [
        each["seq"] for each in every
    ]
    (drift,) = map(json.loads, here.http.get("/export").text.splitlines())
    assert drift["drift"]["id"] == here.drift["id"]


def test_what_an_application_was_stays_on_record_when_it_is_no_more(here: Here) -> None:
    id, review = here.drift["id"], here.served.services.review_service
    assert review is not None
    following = review.application(PROJECT, "shop")
    here.served.run(retire_application(following.state, here.world.clock.now()))
    here.served.call(lambda: here.served.followed.pop(following.application.id))
    assert here.get("/drifts")["drifts"] == []
    for query in ({}, {"application": "shop"}, {"application": "team.shop"}):
        (drift,) = here.get("/drifts", state="all", **query)["drifts"]
        assert (drift["id"], drift["resolution"]) == (id, "gone")
        assert here.get("/history", **query)["entries"][0]["action"] == "left"
    assert here.get("/history", subject=id)["entries"][0]["action"] == "resolved"
    assert here.http.get("/history", params={"application": "shp"}).status_code == 404
    stranger = bearer(here.served.server.token("other", ["admin"], name="joe"))
    theirs = f"{here.served.url}/api/projects/other/gitops"
    assert httpx2.get(f"{theirs}/history", headers=stranger).json()["entries"] == []
    asked = httpx2.get(f"{theirs}/history?application=shop", headers=stranger)
    assert asked.status_code == 404


def test_drifts_are_chosen_by_kind_and_namespace(here: Here) -> None:
    assert here.get("/drifts", type="image")["drifts"] == []
    assert len(here.get("/drifts", type="configuration", namespace="chat")["drifts"]) == 1
    assert here.get("/drifts", namespace="other")["drifts"] == []
    assert here.http.get("/drifts", params={"type": "colour"}).status_code == 400
    assert here.http.get("/drifts", params={"sort": "x"}).status_code == 400


@contextmanager
def parked(tmp_path: Path) -> Iterator[Here]:
    """An application whose newest commit deletes so much that a guard parks it."""
    world = GitopsWorld(sync=SyncSpec(automatic=True, prune=True))
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(20)})
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(12)})
        running.run(world.fetch_and_reconcile())
        here = Here(running, world)
        yield here
        here.http.close()


def test_a_parked_plan_is_shown_and_approved_by_its_digest(tmp_path: Path) -> None:
    with parked(tmp_path) as here:
        (plan,) = here.get("/applications/shop")["plans"]
        whole = here.get(f"/plans/{plan['id']}")
        assert plan == {name: whole[name] for name in plan}
        assert plan["cost"] == {"kind": "none"}
        assert len(plan["steps"]) == 8
        stale = here.post(f"/plans/{plan['id']}/approve", plan="sha256:0")
        assert (stale.status_code, stale.json()["error"]) == (409, "stale_plan")
        here.served.passes = False
        taken = here.post(f"/plans/{plan['id']}/approve", plan=plan["digest"])
        assert taken.json()["approved_by"].startswith("maria (")
        here.world.syncer.still_allowed = lambda decided_by: False
        here.served.reconcile()
        assert here.data("c19") is not None, "the approver's token was revoked meanwhile"
        assert "approved_by" not in here.get(f"/plans/{plan['id']}")
        here.world.syncer.still_allowed = lambda decided_by: True
        here.post(f"/plans/{plan['id']}/approve", plan=plan["digest"])
        here.served.reconcile()
        assert here.data("c19") is None


def test_a_parked_plan_is_rejected_with_a_comment_and_stays_on_record(tmp_path: Path) -> None:
    with parked(tmp_path) as here:
        (plan,) = here.get("/applications/shop")["plans"]
        path = f"/plans/{plan['id']}/reject"
        assert here.post(path, comment="").status_code == 400
        taken = here.post(path, comment="set back by mistake").json()
        assert taken["rejected_by"].startswith("maria (")
        assert taken["comment"] == "set back by mistake"
        again = here.post(path, comment="once more")
        assert again.status_code == 409 and "was rejected by maria" in again.text
        here.served.reconcile()
        assert here.data("c19") is not None
        lines = here.get("/history", subject=plan["id"])["entries"]
        assert "rejected" in [line["action"] for line in lines]


def test_a_drift_that_nobody_is_known_to_have_made_takes_two_to_approve(tmp_path: Path) -> None:
    world = GitopsWorld(route(Remediation.REVIEW), drift=DriftSpec(four_eyes=True))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        here = Here(running, world)
        here.edit("9")
        running.reconcile()
        running.passes = False
        drift = here.drift
        path, plan = f"/drifts/{drift['id']}/approve", {"plan": drift["plan"]}
        for _ in range(2):
            first = here.post(path, **plan)
            assert (first.status_code, first.json()["state"]) == (200, DriftState.AWAITING)
            assert first.json()["first_approver"]
        joe = bearer(running.server.token(PROJECT, ["approve"], name="joe"))
        second = here.http.post(path, json=plan, headers=joe)
        assert (second.status_code, second.json()["state"]) == (200, DriftState.APPROVED)
        running.reconcile()
        assert here.data("a") == {"x": "1"}
        here.http.close()


def test_who_asked_for_it_cannot_approve_it(tmp_path: Path) -> None:
    world = GitopsWorld(route(Remediation.REPORT), drift=DriftSpec(four_eyes=True))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        here = Here(running, world)
        here.edit("9")
        running.reconcile()
        running.passes = False
        here.post(f"/drifts/{here.drift['id']}/revert")
        running.reconcile()
        drift = here.drift
        assert drift["state"] == DriftState.AWAITING
        own = here.post(f"/drifts/{drift['id']}/approve", plan=drift["plan"])
        assert own.status_code == 403
        joe = bearer(running.server.token(PROJECT, ["approve"], name="joe"))
        other = here.http.post(
            f"/drifts/{drift['id']}/approve", json={"plan": drift["plan"]}, headers=joe
        )
        assert other.status_code == 200
        here.http.close()


def test_a_webhook_is_taken_by_its_raw_body_and_only_where_one_is_configured(
    tmp_path: Path,
) -> None:
    taken: list[tuple[str, str, bytes]] = []

    async def hook(provider: str, headers: Any, body: bytes) -> WebhookResponse:
        if headers.get("x-hub-signature-256") != "sha256=good":
            return WebhookResponse(status=401, message="The signature does not fit.")
        taken.append((provider, headers["x-github-event"], body))
        return WebhookResponse(status=202, message="Taken.")

    world = GitopsWorld()
    world.git.commit({"a.yaml": configmap("a", x="1")})
    with serve_applications(tmp_path, world, hook=hook) as running:
        url = f"{running.url}/hooks/github"
        headers = {"X-Hub-Signature-256": "sha256=good", "X-GitHub-Event": "push"}
        assert httpx2.post(url, content=b"{ not json", headers=headers).status_code == 202
        assert taken == [("github", "push", b"{ not json")]
        refused = httpx2.post(url, content=b"x")
        assert (refused.status_code, refused.json()["error"]) == (401, "unauthenticated")
        assert httpx2.post(url, content=b"x" * (1024 * 1024 + 1)).status_code == 413
        running.services.webhook_handler = None
        assert httpx2.post(url, content=b"x", headers=headers).status_code == 404
        assert len(taken) == 1


def test_what_does_without_a_review_needs_the_right_to_review(here: Here) -> None:
    def forced(*scopes: str) -> int:
        token = here.served.server.token(PROJECT, list(scopes), name="joe")
        answer = here.http.post(
            "/applications/shop/sync", json={"force": True}, headers=bearer(token)
        )
        return answer.status_code

    assert forced("write") == 403
    assert here.data() == {"x": "9"}
    assert forced("write", "approve") in (200, 202)


def test_an_application_that_changes_its_project_leaves_its_journal_behind(tmp_path: Path) -> None:
    world = GitopsWorld(route(Remediation.REVIEW))
    world.git.commit({"a.yaml": configmap("a", x="1")})
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        running.call(lambda: world.kube.edit(config_ref("a"), lambda i: i["data"].update(x="9")))
        running.reconcile()
        old, new = ("ml-platform", "payments")
        (before,) = ids_of(running, old, "drifts?state=open", "drifts")
        spec = replace(world.application.spec, project=new)
        world.application = replace(world.application, spec=spec)
        running.call(lambda: world.pass_time(60))
        running.reconcile()
        (after,) = ids_of(running, new, "drifts?state=open", "drifts")
        assert after != before, "a drift of its own, which nobody of the other project decided on"
        assert ids_of(running, old, "drifts?state=open", "drifts") == []
        assert ids_of(running, old, "drifts?state=all&application=shop", "drifts") == [before]
        assert before not in ids_of(running, new, "drifts?state=all", "drifts")
        subjects = {each.get("subject") for each in rows(running, new, "history", "entries")}
        assert before not in subjects and after in subjects
        for path in ("history", "history?application=shop"):
            lines = rows(running, old, path, "entries")
            assert {each.get("subject") for each in lines} >= {before} and after not in str(lines)
            assert lines[0]["action"] == "handed-over"
        exported = fetch(running, new, "export?what=journal").text
        assert before not in exported and after in exported
        assert before in fetch(running, old, "export?what=journal").text
        assert fetch(running, "third", "history?application=shop").status_code == 404


def fetch(running: ServedApplications, project: str, path: str) -> httpx2.Response:
    token = running.server.token(project, ["read"])
    url = f"{running.url}/api/projects/{project}/gitops/{path}"
    return httpx2.get(url, headers={"authorization": f"Bearer {token}"})


def rows(running: ServedApplications, project: str, path: str, name: str) -> list[dict[str, Any]]:
    answer = fetch(running, project, path)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()[name]
    return found


def ids_of(running: ServedApplications, project: str, path: str, name: str) -> list[str]:
    return [each["id"] for each in rows(running, project, path, name)]
