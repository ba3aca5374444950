"""Workloads over HTTP: the compatible routes, and what the published wire lacks."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.apps.server.api import Api, body, spec


def test_a_created_workload_is_answered_under_both_sets_of_names(api: Api) -> None:
    made = api.create("My Bot", config={"command": "serve --a 1", "extra": 1})
    assert made["slug"] == made["workload_slug"] == "my-bot"
    assert made["project_slug"] == api.project
    assert made["model_name"] == made["spec"]["model"] == "tiny"
    assert made["config"] == {"command": "serve --a 1", "extra": 1}
    assert made["spec"]["command"] == "serve --a 1"
    assert api.get("my-bot") == made


def test_a_slug_can_be_taken_once(api: Api) -> None:
    api.create()
    answer = api.ask("POST", "workloads", json=body())
    assert (answer.status_code, answer.json()["error"]) == (409, "slug_taken")


def test_of_many_who_create_the_same_slug_one_succeeds(api: Api) -> None:
    api.server.token(api.project)
    start = threading.Barrier(8)

    def create(_: int) -> int:
        start.wait()
        return api.ask("POST", "workloads", json=body()).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(create, range(8))) == [201, *[409] * 7]


def test_lists_come_in_pages_by_slug(api: Api) -> None:
    for slug in ("c", "a", "d", "b"):
        api.create(slug)
    page = api.ask("GET", "workloads?limit=2&after=a").json()["workloads"]
    assert [each["slug"] for each in page] == ["b", "c"]
    every = api.ask("GET", "workloads").json()["workloads"]
    assert [each["slug"] for each in every] == ["a", "b", "c", "d"]


def test_a_workload_that_the_client_has_is_not_sent_again(api: Api) -> None:
    api.create()
    answer = api.ask("GET", "workloads/bot")
    etag = answer.headers["etag"]
    again = api.ask("GET", "workloads/bot", headers={"If-None-Match": f'"x", {etag}'})
    assert (again.status_code, again.content) == (304, b"")
    assert api.ask("GET", "workloads/bot", headers={"If-None-Match": '"x"'}).status_code == 200


def test_an_update_is_guarded_by_the_version_that_was_seen(api: Api) -> None:
    made = api.create()
    where, seen = f"/api/workloads/{made['id']}", {"If-Match": f'"{made["version"]}"'}
    first = api.ask("PATCH", where, json={"description": "one"}, headers=seen)
    second = api.ask("PATCH", where, json={"description": "two"}, headers=seen)
    assert first.status_code == 200
    assert (second.status_code, second.json()["error"]) == (412, "precondition_failed")
    assert api.get()["description"] == "one"
    assert api.ask("DELETE", where, headers=seen).status_code == 412
    assert api.ask("DELETE", where, headers={"If-Match": first.headers["etag"]}).status_code == 204


def test_the_second_of_two_deletions_finds_nothing(api: Api) -> None:
    made = api.create()
    answers = [api.ask("DELETE", f"/api/workloads/{made['id']}") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [204, 404]


def test_a_patch_that_changes_nothing_writes_nothing(api: Api) -> None:
    made = api.create(config={"command": "serve --a 1"})
    before = api.ask("GET", "history").json()
    api.ask("PATCH", f"/api/workloads/{made['id']}", json={"config": {"command": "serve --a=1"}})
    assert api.get()["version"] == made["version"]
    assert api.ask("GET", "history").json() == before


def test_a_change_by_another_tool_is_drift_until_it_is_put_back(api: Api) -> None:
    made = api.create()
    where = f"/api/workloads/{made['id']}"
    api.ask("PATCH", where, json={"model_name": "other"}, agent="curl/8.1", name="ops")
    (drift,) = api.ask("GET", "drift").json()["drifts"]
    (field,) = drift["fields"]
    assert drift["kinds"] == ["configuration"]
    assert (field["path"], field["desired"], field["live"]) == ("/model", "tiny", "other")
    assert (field["writer"]["manager"], field["writer"]["actor"]) == ("curl", "ops")
    assert field["cause"] == "person"
    one = api.ask("GET", f"drift/{drift['id']}").json()
    assert {name: one[name] for name in drift} == drift

    ensured = api.ask("POST", "ensure", json={"spec": spec()})
    assert ensured.json()["outcome"] == "updated"
    assert api.ask("GET", "drift").json() == {"drifts": [], "total": 0}
    (closed,) = api.ask("GET", "drift?state=all&slug=bot").json()["drifts"]
    assert (closed["id"], closed["resolution"]) == (drift["id"], "reconciled")


def test_a_change_by_the_one_who_declared_it_is_a_new_declaration(api: Api) -> None:
    made = api.create()
    api.ask("PATCH", f"/api/workloads/{made['id']}", json={"model_name": "other"})
    assert api.ask("GET", "drift?state=all").json() == {"drifts": [], "total": 0}


def test_the_history_says_who_did_what_and_goes_back(api: Api) -> None:
    made = api.create()
    api.ask("PATCH", f"/api/workloads/{made['id']}", json={"description": "x"}, agent="curl/8")
    rows = api.ask("GET", "history?slug=bot").json()["history"]
    assert [row["action"] for row in rows] == ["updated", "created"] or [
        row["action"] for row in rows
    ] == ["drifted", "updated", "created"]
    older = api.ask("GET", f"history?slug=bot&limit=1&before={rows[-2]['seq']}").json()["history"]
    assert [row["action"] for row in older] == ["created"]


POLICIES = {
    ("absent", "reconcile", "create"): (200, "created", "tiny"),
    ("absent", "fail", "create"): (200, "created", "tiny"),
    ("absent", "dry_run", "create"): (200, "created", "tiny"),
    ("absent", "warn", "create"): (200, "created", "tiny"),
    ("absent", "ignore", "create"): (200, "created", "tiny"),
    ("absent", "reconcile", "plan"): (200, "planned", None),
    ("absent", "reconcile", "fail"): (404, "not_found", None),
    ("in sync", "reconcile", "create"): (200, "unchanged", "tiny"),
    ("in sync", "fail", "fail"): (200, "unchanged", "tiny"),
    ("drifted", "reconcile", "create"): (200, "updated", "tiny"),
    ("drifted", "fail", "create"): (409, "drift", "other"),
    ("drifted", "dry_run", "create"): (200, "planned", "other"),
    ("drifted", "warn", "create"): (200, "left", "other"),
    ("drifted", "ignore", "create"): (200, "left", "other"),
}


@pytest.mark.parametrize("case", POLICIES, ids=" ".join)
def test_ensure_follows_the_policy(api: Api, case: tuple[str, str, str]) -> None:
    situation, on_drift, on_absent = case
    if situation != "absent":
        api.create(model_name="other" if situation == "drifted" else "tiny")
    sent = {"spec": spec(), "on_drift": on_drift, "on_absent": on_absent}
    answer = api.ask("POST", "ensure", json=sent)
    status, said, model = POLICIES[case]
    assert answer.status_code == status
    assert answer.json().get("outcome", answer.json().get("error")) == said
    assert answer.json()["plan"]["steps"]
    found = api.ask("GET", "workloads/bot")
    assert (found.json()["model_name"] if found.is_success else None) == model


def test_plan_changes_nothing(api: Api) -> None:
    made = api.create(model_name="other")
    before = api.ask("GET", "history").json()
    plan = api.ask("POST", "plan", json={"specs": [spec(), spec("new")]}).json()
    assert [(step["slug"], step["action"]) for step in plan["steps"]] == [
        ("bot", "update"),
        ("new", "create"),
    ]
    assert api.get() == made
    assert api.ask("GET", "history").json() == before


def test_what_one_machine_cannot_honour_is_refused_by_our_own_routes(api: Api) -> None:
    declared = spec(resources={"memory": "16Gi"})
    for path, sent in (
        ("plan", {"specs": [declared]}),
        ("ensure", {"spec": declared}),
        ("steps", api.step("create", write=declared)),
    ):
        sent = {**sent}
        if path == "steps":
            sent["write"] = {name: value for name, value in declared.items() if name != "slug"}
        answer = api.ask("POST", path, json=sent, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 400
        assert "resources.memory" in str(answer.json()["problems"])


def test_what_the_published_wire_may_declare_and_nobody_honours_is_said_in_the_status(
    api: Api,
) -> None:
    made = api.create(worker_id="w1")
    assert made["worker_id"] == "w1"
    assert "Not honoured on this machine: worker_id." in made["status"]["message"]


def fields(**more: object) -> dict[str, object]:
    return {name: value for name, value in spec(**more).items() if name != "slug"}


def test_a_step_takes_effect_once_for_one_key(api: Api) -> None:
    step = api.step("create", write=fields())
    answers = [
        api.ask("POST", "steps", json=step, headers={"Idempotency-Key": "one"}) for _ in range(3)
    ]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert len({answer.json()["id"] for answer in answers}) == 1
    rows = api.ask("GET", "history?slug=bot").json()["history"]
    assert [row["action"] for row in rows] == ["created"]


def test_a_key_cannot_be_used_for_something_else(api: Api) -> None:
    key = {"Idempotency-Key": "one"}
    api.ask("POST", "steps", json=api.step("create", write=fields()), headers=key)
    other = api.step("create", "second", write=fields())
    answer = api.ask("POST", "steps", json=other, headers=key)
    assert (answer.status_code, answer.json()["error"]) == (422, "idempotency_key_reused")


def test_a_key_is_its_projects_own(api: Api) -> None:
    key = {"Idempotency-Key": "shared"}
    api.ask("POST", "steps", json=api.step("create", write=fields()), headers=key)
    other = Api(server=api.server, http=api.http, project=f"{api.project}-b")
    answer = other.ask("POST", "steps", json=other.step("create", write=fields()), headers=key)
    assert answer.status_code == 200


def test_a_step_on_a_world_that_moved_is_refused(api: Api) -> None:
    made = api.create()
    seen = {"uid": made["id"], "version": made["version"]}
    api.ask("PATCH", f"/api/workloads/{made['id']}", json={"description": "x"})
    step = api.step("update", write={"model": "other"}, **seen)
    answer = api.ask("POST", "steps", json=step, headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["error"]) == (409, "conflict")
    assert api.get()["model_name"] == "tiny"


def test_a_deletion_step_leaves_nothing_and_can_be_repeated(api: Api) -> None:
    made = api.create()
    step = api.step("delete", uid=made["id"], version=made["version"])
    for key in ("a", "a", "b"):
        answer = api.ask("POST", "steps", json=step, headers={"Idempotency-Key": key})
        assert (answer.status_code, answer.content) == (204, b"")
    assert api.ask("GET", "workloads/bot").status_code == 404


def test_a_step_needs_a_key_and_its_own_project(api: Api) -> None:
    assert api.ask("POST", "steps", json=api.step("create", write=fields())).status_code == 400
    elsewhere = {**api.step("create", write=fields()), "project": "elsewhere"}
    answer = api.ask("POST", "steps", json=elsewhere, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 400


def test_readiness_says_at_once_that_nothing_runs_here(api: Api) -> None:
    api.create()
    answer = api.ask("GET", "workloads/bot/readiness-events")
    assert answer.headers["content-type"] == "text/event-stream"
    assert '"phase":"error"' in answer.text
    assert "--run" in answer.text
    assert api.get()["status"]["phase"] == "error"


def test_a_token_is_shown_once_and_works_until_it_is_revoked(api: Api) -> None:
    api.create()
    made = api.ask("POST", "tokens", json={"name": "ci", "scopes": ["read"]})
    assert made.status_code == 201
    token, id = made.json()["token"], made.json()["id"]
    listed = api.ask("GET", "tokens")
    assert id in listed.text
    assert token not in listed.text
    assert api.ask("GET", "workloads", token=token).status_code == 200
    assert api.ask("DELETE", f"tokens/{id}").status_code == 204
    assert api.ask("GET", "workloads", token=token).status_code == 401


def test_a_data_key_is_made_for_one_workload(api: Api) -> None:
    api.create()
    made = api.ask("POST", "tokens", json={"name": "app", "kind": "live", "workload": "bot"})
    key = made.json()["token"]
    assert key.startswith("ik_live_")
    path = f"/endpoint/{api.project}/bot/v1/models"
    assert api.ask("GET", path, token=key).json()["error"]["code"] == "not_ready"


@pytest.mark.parametrize(
    "sent",
    [
        {"name": "x"},
        {"name": "x", "scopes": ["everything"]},
        {"name": "", "scopes": ["read"]},
        {"name": "x", "kind": "live", "scopes": ["read"]},
        {"name": "x", "kind": "live", "workload": "bot", "scopes": ["read"]},
        {"name": "x", "scopes": ["read"], "workload": "bot"},
        {"name": "x", "scopes": ["read"], "expires_in": 0},
    ],
    ids=str,
)
def test_a_token_that_makes_no_sense_is_not_made(api: Api, sent: dict[str, object]) -> None:
    assert api.ask("POST", "tokens", json=sent).status_code == 400


def test_events_say_which_workload_changed(api: Api) -> None:
    token = api.server.token(api.project)
    headers = {"Authorization": f"Bearer {token}"}
    with api.http.stream("GET", api.path("events"), headers=headers) as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": listening"
        api.create()
        event = next(line for line in lines if line.startswith("data: "))
    assert '"slug":"bot"' in event


def test_an_open_stream_ends_when_its_token_is_revoked(api: Api) -> None:
    token = api.server.token(api.project, name="watcher")
    headers = {"Authorization": f"Bearer {token}"}
    with api.http.stream("GET", api.path("events"), headers=headers) as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": listening"
        api.server.revoke(token)
        assert [line for line in lines if line.startswith("data: ")] == []
