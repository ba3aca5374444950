"""Holds with what changed under them, and ignore rules with what they hide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route
from tests.support.server import bearer

from holdfast.adapters.memory.kube.kinds import custom_kind
from holdfast.core.gitops.application import DriftSpec, IgnoreSpec, Remediation
from holdfast.core.gitops.ignore import FIELDS
from holdfast.core.ownership.signals import APPLIED_PATH

RULES = (
    IgnoreSpec(name="load", owner="team-a", path="data.load", kind="ConfigMap"),
    IgnoreSpec(name="idle", owner="team-a", pointer="/data/idle", manager="tuner-*"),
)
ANNOTATED = configmap("b", y="1").replace(
    "  name: b\n", f"  name: b\n  annotations:\n    {FIELDS}: /data/y\n"
)


class Here:
    """`data.load` is hidden by the spec, `data.y` by an annotation, `data.x` is drift."""

    def __init__(self, served: ServedApplications, world: GitopsWorld) -> None:
        self.served, self.world = served, world
        self.http = httpx2.Client(
            base_url=f"{served.url}/api/projects/{PROJECT}/gitops",
            headers=bearer(served.server.token(PROJECT, ["admin"], name="maria")),
            timeout=20,
        )

    def get(self, path: str) -> Any:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def preview(self, **form: str) -> Any:
        answer = self.http.post("/ignore-rules/preview", json=form)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def edit(self, name: str, **data: str) -> None:
        self.served.call(
            lambda: self.world.kube.edit(config_ref(name), lambda item: item["data"].update(data))
        )
        self.served.reconcile()

    @property
    def rules(self) -> dict[str, Any]:
        return {each["name"]: each for each in self.get("/ignore-rules")["rules"]}

    @property
    def drifts(self) -> list[Any]:
        found: list[Any] = self.get("/drifts")["drifts"]
        return found


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    world = GitopsWorld(route(Remediation.REVIEW), drift=DriftSpec(ignore=RULES))
    world.git.commit({"a.yaml": configmap("a", x="1", load="1"), "b.yaml": ANNOTATED})
    with serve_applications(tmp_path, world) as running:
        running.passes = False
        running.reconcile()
        found = Here(running, world)
        found.edit("a", x="9", load="2")
        found.edit("b", y="2")
        with found.http:
            yield found


A = {"api_version": "v1", "kind": "ConfigMap", "namespace": "chat", "name": "a"}


def test_rules_tell_where_they_come_from_and_what_they_hide_now(here: Here) -> None:
    rules = here.rules
    load = rules["load"]
    assert (load["origin"], load["path"], load["object"]) == ("spec", "data.load", "ConfigMap")
    assert (load["owner"], load["application"]) == ("team-a", "team/shop")
    assert (load["hides"], load["hides_count"]) == ([{"object": A, "path": "data.load"}], 1)
    assert (rules["idle"]["path"], rules["idle"]["manager"]) == ("/data/idle", "tuner-*")
    assert (rules["idle"]["hides"], rules["idle"]["hides_count"]) == ([], 0)
    (annotated,) = [each for each in rules.values() if each["origin"] == "annotation"]
    assert (annotated["object"], annotated["path"]) == ("ConfigMap chat/b", "/data/y")
    assert annotated["hides_count"] == 1


def test_a_rule_of_a_while_is_listed_and_ended_by_hand(here: Here) -> None:
    (drift,) = here.drifts
    here.http.post(f"/drifts/{drift['id']}/ignore", json={"reason": "load test", "seconds": 3600})
    here.served.reconcile()
    assert here.drifts == []
    name = f"{drift['id']}-0"
    rule = here.rules[name]
    assert (rule["origin"], rule["reason"], rule["hides_count"]) == ("temporary", "load test", 1)
    assert rule["owner"].startswith("maria (")
    assert rule["expires"]
    ended = here.http.delete(f"/ignore-rules/{name}", params={"application": "team.shop"})
    assert (ended.status_code, ended.json()["name"]) == (200, name)
    assert name not in here.rules
    here.served.reconcile()
    (again,) = here.drifts
    assert [entry["path"] for entry in again["entries"]] == ["data.x"]
    lines = here.get(f"/history?subject={drift['id']}")["entries"]
    (line,) = [each for each in lines if each["action"] == "rule-expired"]
    assert line["actor"].startswith("maria (")
    assert here.http.delete(f"/ignore-rules/{name}").status_code == 404


def test_no_request_ends_a_rule_that_git_declares(here: Here) -> None:
    answer = here.http.delete("/ignore-rules/load")
    assert (answer.status_code, answer.json()["error"]) == (409, "refused")
    assert "Change the spec" in answer.json()["message"]
    assert "load" in here.rules


def test_ending_a_rule_takes_the_scope_write(here: Here) -> None:
    (drift,) = here.drifts
    here.http.post(f"/drifts/{drift['id']}/ignore", json={"reason": "x", "seconds": 3600})
    name = f"{drift['id']}-0"
    reader = bearer(here.served.server.token(PROJECT, ["approve"], name="joe"))
    answer = here.http.delete(f"/ignore-rules/{name}", headers=reader)
    assert (answer.status_code, answer.json()["error"]) == (403, "scope_insufficient")
    assert name in here.rules


def test_what_argo_cd_ignores_is_told_as_its_rule(tmp_path: Path) -> None:
    world = GitopsWorld()
    world.kube.serve(custom_kind("argoproj.io/v1alpha1", "Application"))
    tracking = {"argocd.argoproj.io/tracking-id": "shop:/ConfigMap:chat/a"}
    world.kube.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "data": {"x": "1", "q": "1"},
            "metadata": {"name": "a", "namespace": "chat", "annotations": tracking},
        },
        manager="argocd-controller",
    )
    world.kube.create(
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": "shop", "namespace": "argocd"},
            "spec": {"ignoreDifferences": [{"kind": "ConfigMap", "jsonPointers": ["/data/x"]}]},
        }
    )
    world.git.commit({"a.yaml": configmap("a", x="5", q="1")})
    with serve_applications(tmp_path, world) as running:
        running.reconcile()
        here = Here(running, world)
        with here.http:
            (rule,) = here.rules.values()
    assert (rule["origin"], rule["hides_count"]) == ("argo-cd", 1)
    assert rule["name"] == "argo-cd Application argocd/shop ignoreDifferences[0]"
    assert rule["hides"] == [{"object": A, "path": "data.x"}]


def test_a_preview_says_what_a_rule_would_hide_and_makes_none(here: Here) -> None:
    before = here.get("/ignore-rules")
    assert here.preview(path="data.x*") == {
        "hides": [{"object": A, "path": "data.x"}],
        "hides_count": 1,
    }
    assert here.preview(path="data.x", kind="ConfigMap", namespace="chat", name="a")["hides_count"]
    for other in (
        {"path": "data.y"},
        {"path": "data.x", "kind": "Deployment"},
        {"path": "data.x", "namespace": "other"},
        {"path": "data.x", "name": "b"},
        {"path": "data.x", "manager": "tuner-*"},
    ):
        assert here.preview(**other) == {"hides": [], "hides_count": 0}, other
    assert here.preview(path="data.x", manager="kubectl-*")["hides_count"] == 1
    assert here.preview(path="data.x", application="shop")["hides_count"] == 1
    assert here.get("/ignore-rules") == before
    assert len(here.drifts) == 1


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({}, 400),
        ({"path": ""}, 400),
        ({"path": "data"}, 400),
        ({"path": "**"}, 400),
        ({"path": "spec.template.spec.containers[name=*].securityContext.privileged"}, 400),
        ({"path": "data.x", "kind": "Secret"}, 400),
        ({"path": "x" * 2_000}, 400),
        ({"path": "data.x", "colour": "red"}, 400),
        ({"path": "data.x", "application": "nowhere"}, 404),
    ],
)
def test_a_rule_that_would_be_refused_is_refused_in_the_preview_too(
    here: Here, form: dict[str, str], status: int
) -> None:
    answer = here.http.post("/ignore-rules/preview", json=form)
    assert answer.status_code == status, answer.text


def test_a_preview_hides_what_the_rule_then_hides(here: Here) -> None:
    """The preview asks drifts, the rule the live objects: both mean the same."""
    told = here.preview(path="data.x*", kind="ConfigMap")
    spec = IgnoreSpec(name="new", owner="team-a", path="data.x*", kind="ConfigMap")
    world = here.world
    drift = replace(world.application.spec.drift or DriftSpec(), ignore=(*RULES, spec))
    world.application = replace(
        world.application, spec=replace(world.application.spec, drift=drift)
    )
    here.served.reconcile()
    assert here.rules["new"]["hides"] == told["hides"]


def test_a_hold_tells_what_changed_under_it(here: Here) -> None:
    held = here.http.post(
        "/applications/shop/holds",
        json={"reason": "INC-1", "seconds": 60, "object": "ConfigMap/chat/a"},
    ).json()
    here.served.reconcile()
    (hold,) = here.get("/holds")["holds"]
    assert hold["id"] == held["id"]
    (drift,) = here.drifts
    assert hold["changes"] == [{"drift": drift["id"], "object": A, "fields": ["data.x"]}]
    assert here.get("/applications/shop")["holds"] == [hold]
    here.http.post(
        "/applications/shop/holds",
        json={"reason": "INC-2", "seconds": 90, "object": "ConfigMap/chat/b"},
    )
    assert "changes" not in here.get("/holds")["holds"][1]


def test_our_own_mark_is_told_only_where_nothing_else_moved(here: Here) -> None:
    """`kubectl replace` takes it off with the file of Git; who takes off nothing else means it."""

    def replace_object(item: dict[str, Any]) -> None:
        del item["metadata"]["annotations"]
        item["data"]["x"] = "8"

    here.http.post("/applications/shop/holds", json={"reason": "INC-1", "seconds": 60})
    here.served.call(lambda: here.world.kube.edit(config_ref("a"), replace_object))
    here.served.call(
        lambda: here.world.kube.edit(
            config_ref("b"), lambda item: item["metadata"]["annotations"].pop(APPLIED_PATH[-1])
        )
    )
    here.served.reconcile()
    fields = {each["object"]["name"]: [e["path"] for e in each["entries"]] for each in here.drifts}
    assert fields == {"a": ["data.x"], "b": ["metadata.annotations.holdfast.dev/applied"]}
    (hold,) = here.get("/holds")["holds"]
    changed = {each["object"]["name"]: each["fields"] for each in hold["changes"]}
    assert changed == fields
