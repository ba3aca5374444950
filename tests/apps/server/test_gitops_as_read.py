"""A decision counts for what its reader saw, says why where that is asked for, and ends no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route
from tests.support.server import bearer

from holdfast.core.gitops.application import DriftSpec, Remediation, SyncSpec
from holdfast.core.gitops.hold import PAUSE_REASON, PAUSED_UNTIL

HOUR = 3600


class Here:
    """One application whose ConfigMap `a` drifted to 9; nothing passes unless a test says so."""

    def __init__(self, served: ServedApplications, world: GitopsWorld) -> None:
        self.served, self.world = served, world
        self.http = httpx2.Client(
            base_url=f"{served.url}/api/projects/{PROJECT}/gitops", timeout=20
        )
        self.me = self.identity("admin", name="maria")

    def identity(self, *scopes: str, name: str) -> dict[str, str]:
        return bearer(self.served.server.token(PROJECT, list(scopes), name=name))

    def get(self, path: str, who: dict[str, str] | None = None, **query: str) -> Any:
        answer = self.http.get(path, params=query, headers=who or self.me)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(
        self, path: str, form: dict[str, Any] | None = None, who: dict[str, str] | None = None
    ) -> httpx2.Response:
        form = form or {}
        query = {"digest": form["digest"]} if path.endswith("codify") and form else {}
        return self.http.post(path, json=form, params=query, headers=who or self.me)

    def edit(self, value: str, name: str = "a") -> None:
        self.served.call(lambda: self.world.edit(name, value))

    def data(self, name: str = "a") -> Any:
        return self.served.run(self.world.data(name))

    @property
    def drift(self) -> Any:
        (found,) = self.get("/drifts")["drifts"]
        return found

    def journal(self, subject: str) -> list[str]:
        return [each["action"] for each in self.get("/history", subject=subject)["entries"]]


@pytest.fixture
def here(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Here]:
    remediation, spec = getattr(request, "param", (Remediation.REVIEW, {}))
    world = GitopsWorld(route(remediation), drift=DriftSpec(**spec))
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", x="1")})
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        found = Here(running, world)
        found.edit("9")
        running.reconcile()
        running.passes = False
        with found.http:
            yield found


REPORT = pytest.mark.parametrize("here", [(Remediation.REPORT, {})], indirect=True)
COMMENT = pytest.mark.parametrize("here", [(Remediation.REVIEW, {"comment": True})], indirect=True)
COMMENT_REPORT = pytest.mark.parametrize(
    "here", [(Remediation.REPORT, {"comment": True})], indirect=True
)
DECISIONS = [
    ("reject", {"comment": "it stays"}),
    ("snooze", {"seconds": HOUR}),
    ("revert", {}),
    ("codify", {}),
    ("ignore", {"reason": "load test", "seconds": HOUR}),
]
each_decision = pytest.mark.parametrize(("verb", "form"), DECISIONS, ids=lambda each: str(each))


@each_decision
def test_a_decision_about_what_moved_since_it_was_read_is_refused(
    here: Here, verb: str, form: dict[str, Any]
) -> None:
    read = here.drift
    here.edit("evil")
    here.served.reconcile()
    path = f"/drifts/{read['id']}/{verb}"
    refused = here.post(path, {**form, "digest": read["digest"]})
    assert (refused.status_code, refused.json()["error"]) == (409, "stale_plan"), refused.text
    assert "changed after it was read" in refused.json()["message"]
    now = here.drift
    assert (now["state"], now.get("requested_by")) == ("awaiting-approval", None)
    assert "refused" in here.journal(read["id"])
    assert here.post(path, {**form, "digest": now["digest"]}).status_code == 200


@each_decision
def test_a_decision_without_a_digest_is_about_what_is_there(
    here: Here, verb: str, form: dict[str, Any]
) -> None:
    here.edit("10")
    here.served.reconcile()
    assert here.post(f"/drifts/{here.drift['id']}/{verb}", form).status_code == 200


@REPORT
@pytest.mark.parametrize("verb", ["revert", "codify"])
def test_what_writes_looks_again_before_any_pass_did(here: Here, verb: str) -> None:
    read = here.drift
    here.edit("evil")  # and no pass has seen it
    path = f"/drifts/{read['id']}/{verb}"
    refused = here.post(path, {"digest": read["digest"]})
    assert (refused.status_code, refused.json()["error"]) == (409, "stale_plan"), refused.text
    here.served.reconcile()
    assert here.data() == {"x": "evil"}, "nothing that nobody read is overwritten"
    assert here.world.forge is not None and not here.world.forge.pulls
    assert here.post(path, {"digest": here.drift["digest"]}).status_code == 200


@REPORT
def test_what_is_still_as_it_was_read_is_put_back(here: Here) -> None:
    read = here.drift
    taken = here.post(f"/drifts/{read['id']}/revert", {"digest": read["digest"]})
    assert taken.status_code == 200, taken.text
    here.served.reconcile()
    assert here.data() == {"x": "1"}


@COMMENT
def test_where_approvals_need_a_comment_the_choices_say_so_and_codify_needs_none(
    here: Here,
) -> None:
    id, plan = here.drift["id"], here.drift["plan"]
    choices = {each["choice"]: each for each in here.get(f"/drifts/{id}/choices")["choices"]}
    needing = [name for name, each in choices.items() if each["needs_comment"]]
    assert needing == ["approve", "reject"], "a revert is reviewed, and its approval needs one"
    refused = here.post(f"/drifts/{id}/approve", {"plan": plan})
    assert refused.status_code == 400
    assert "--comment TEXT, or comment in the request" in refused.json()["message"]
    assert here.post(f"/drifts/{id}/snooze", {"seconds": 60}).status_code == 200
    assert here.post(f"/drifts/{id}/codify").status_code == 200
    assert here.post(f"/drifts/{id}/revert").status_code == 200
    here.served.reconcile()
    plan = here.drift["plan"]
    taken = here.post(f"/drifts/{id}/approve", {"plan": plan, "comment": "agreed"})
    assert taken.status_code == 200, taken.text


def test_what_is_reviewed_stays_so_after_a_pull_request_was_asked_for(here: Here) -> None:
    id, writer = here.drift["id"], here.identity("write", name="wim")
    assert here.post(f"/drifts/{id}/codify", who=writer).status_code == 200
    assert here.post(f"/drifts/{id}/revert", who=writer).json()["state"] == "detected"
    here.served.reconcile()
    assert here.drift["state"] == "awaiting-approval"
    assert here.data() == {"x": "9"}, "a writer approves nothing"


@COMMENT_REPORT
def test_a_revert_that_is_its_own_approval_needs_the_comment(here: Here) -> None:
    id = here.drift["id"]
    choices = {each["choice"]: each for each in here.get(f"/drifts/{id}/choices")["choices"]}
    assert choices["revert"]["needs_comment"]
    assert here.post(f"/drifts/{id}/revert").status_code == 400
    assert here.post(f"/drifts/{id}/revert", {"via": "pull-request"}).status_code == 200
    assert here.post(f"/drifts/{id}/revert", {"comment": "a slip"}).status_code == 200


def test_without_the_rule_only_a_rejection_needs_a_comment(here: Here) -> None:
    choices = here.get(f"/drifts/{here.drift['id']}/choices")["choices"]
    assert [each["choice"] for each in choices if each["needs_comment"]] == ["reject"]


@pytest.mark.parametrize("verb", ["approve", "reject", "snooze", "codify", "revert", "ignore"])
def test_who_comes_after_another_is_told_who_decided(here: Here, verb: str) -> None:
    drift = here.drift
    joe = here.identity("approve", name="joe")
    plan = {"plan": drift["plan"]}
    assert here.post(f"/drifts/{drift['id']}/approve", plan, joe).status_code == 200
    here.served.reconcile()
    assert here.data() == {"x": "1"}
    form = {"approve": plan, **dict(DECISIONS)}[verb]
    late = here.post(f"/drifts/{drift['id']}/{verb}", form)
    assert late.status_code == 409, late.text
    assert "was approved by joe (" in late.json()["message"]
    assert "put back" in late.json()["message"]


def test_what_never_was_is_still_not_found(here: Here) -> None:
    for verb, form in DECISIONS:
        assert here.post(f"/drifts/drf-0000000000/{verb}", form).status_code == 404


def test_one_hold_is_ended_by_its_id_and_the_others_stay(here: Here) -> None:
    path = "/applications/shop/holds"
    whole = here.post(path, {"reason": "INC-1", "seconds": HOUR}).json()
    joe = here.identity("write", name="joe")
    one = {"reason": "INC-2", "seconds": HOUR, "object": "ConfigMap/chat/b"}
    other = here.post(path, one, joe).json()
    ended = here.http.delete(path, params={"id": whole["id"]}, headers=here.me)
    assert [each["id"] for each in ended.json()["holds"]] == [whole["id"]]
    assert [each["id"] for each in here.get("/holds")["holds"]] == [other["id"]]
    again = here.http.delete(path, params={"id": whole["id"]}, headers=here.me)
    assert again.status_code == 404
    assert whole["id"] in again.json()["message"]


def test_a_hold_by_annotation_is_not_ended_by_its_id_and_says_how_it_ends(here: Here) -> None:
    until = here.world.clock.now().replace(microsecond=0)
    end = until.replace(year=until.year + 1).isoformat()
    marks = {PAUSED_UNTIL: end, PAUSE_REASON: "INC-3"}
    here.served.call(
        lambda: here.world.kube.edit(
            config_ref("b"), lambda item: item["metadata"].update(annotations=marks)
        )
    )
    here.served.reconcile()
    (hold,) = here.get("/holds")["holds"]
    assert hold["from_annotation"]
    refused = here.http.delete(
        "/applications/shop/holds", params={"id": hold["id"]}, headers=here.me
    )
    assert refused.status_code == 404
    assert "by an annotation" in refused.json()["message"]


def parked(tmp_path: Path, **spec: bool) -> Iterator[Here]:
    """An application whose newest commit deletes so much that a guard holds it back."""
    world = GitopsWorld(sync=SyncSpec(automatic=True, prune=True), drift=DriftSpec(**spec))
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(20)})
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(12)})
        here = Here(running, world)
        running.passes = False
        with here.http:
            yield here


def test_a_plan_waits_for_whoever_may_approve_it_and_for_nobody_else(tmp_path: Path) -> None:
    for here in parked(tmp_path, four_eyes=True, comment=True):
        joe = here.identity("approve", "write", name="joe")
        reader = here.identity("read", name="rea")
        here.post("/applications/shop/sync", {"prune": True}, joe)
        here.served.run(here.world.fetch_and_reconcile())

        def plan_for(who: dict[str, str] | None, here: Here = here) -> Any:
            (found,) = here.get("/applications/shop", who)["plans"]
            (listed,) = here.get("/applications", who)["applications"]
            assert listed["plans"] == [found]
            whole = here.get(f"/plans/{found['id']}", who)
            assert whole.get("waiting_for_me") == found.get("waiting_for_me")
            return whole

        assert plan_for(None)["waiting_for_me"] is True
        assert plan_for(None)["needs_comment"] is True
        own = plan_for(joe)
        assert "waiting_for_me" not in own
        assert "asked for this" in own["why_not"]
        assert plan_for(reader)["why_not"] == "This credential lacks the scope approve."
        form = {"plan": own["digest"], "comment": "meant"}
        assert here.post(f"/plans/{own['id']}/approve", form).status_code == 200
        decided = plan_for(None)
        assert "waiting_for_me" not in decided
        assert "approved by maria" in decided["why_not"]
