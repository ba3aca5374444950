"""Every route of a GitOps controller × every identity × every object, from its table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from tests.apps.server.people import (
    PEOPLE_ALLOWED,
    PEOPLE_BODIES,
    cookie_headers,
    ended_job_token,
    job_token,
    people_expectation,
    person_cookie,
    session_headers,
    write_people,
)
from tests.support.gitops_server import ServedApplications, rename_world, serve_applications
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route
from tests.support.issuer import Issuer, running_issuer
from tests.support.server import bearer

from holdfast.adapters.store import TokenKind, TokenScope
from holdfast.apps.server.open_routes import openapi_bytes, openapi_document
from holdfast.apps.server.route_table import GITOPS_ROUTES
from holdfast.apps.server.routes import ApiRoute, RouteCredential
from holdfast.core import tokens
from holdfast.core.gitops.application import Remediation, SyncSpec

MINE, THEIRS = "mine", "theirs"
STRANGERS = (
    "none",
    "nothing",
    "unknown",
    "expired",
    "revoked",
    "basic",
    "cookie, ended",
    "cookie, unknown",
    "person, expired",
    "CI job, its time is up",
)
HELD = {
    "read": {TokenScope.READ},
    "write": {TokenScope.READ, TokenScope.WRITE},
    "approve": {TokenScope.READ, TokenScope.APPROVE},
    "admin": set(TokenScope),
}
HELD |= {
    f"{kind}, {who}": scopes for kind in ("session", "person") for who, scopes in HELD.items()
} | {"CI job": {TokenScope.READ, TokenScope.WRITE}}
NAMES = [
    *STRANGERS,
    *HELD,
    "other project",
    "session, other project",
    "person, other project",
    "person of another issuer",
    "CI job, other project",
    "data",
]
HERE = "/api/projects/{project}/gitops"
ONE = f"{HERE}/applications/{{application}}"

# What a permitted caller gets for its own object and for one that is not there. A route without
# a row fails `test_every_route_has_a_row`. Bodies are such that nothing is changed by them.
ALLOWED: dict[tuple[str, str], tuple[int, int]] = {
    ("GET", f"{HERE}/applications"): (200, 200),
    ("GET", ONE): (200, 404),
    ("GET", f"{ONE}/objects"): (200, 404),
    ("GET", f"{ONE}/diff"): (200, 404),
    ("GET", f"{ONE}/plan"): (200, 404),
    ("POST", f"{ONE}/sync"): (202, 404),
    ("POST", f"{ONE}/holds"): (404, 404),
    ("DELETE", f"{ONE}/holds"): (404, 404),
    ("GET", f"{HERE}/holds"): (200, 200),
    ("GET", f"{HERE}/plans/{{id}}"): (200, 404),
    ("POST", f"{HERE}/plans/{{id}}/approve"): (409, 404),
    ("POST", f"{HERE}/plans/{{id}}/reject"): (400, 400),
    ("GET", f"{HERE}/drifts"): (200, 200),
    ("GET", f"{HERE}/drifts/{{id}}"): (200, 404),
    ("POST", f"{HERE}/drifts/{{id}}/approve"): (409, 404),
    ("POST", f"{HERE}/drifts/{{id}}/reject"): (400, 400),
    ("POST", f"{HERE}/drifts/{{id}}/snooze"): (400, 400),
    ("POST", f"{HERE}/drifts/{{id}}/codify"): (200, 404),
    ("POST", f"{HERE}/drifts/{{id}}/revert"): (400, 400),
    ("POST", f"{HERE}/drifts/{{id}}/ignore"): (400, 404),
    ("GET", f"{HERE}/history"): (200, 200),
    ("GET", f"{HERE}/export"): (200, 200),
    ("GET", "/api/projects/{project}/tokens"): (200, 200),
    ("POST", "/api/projects/{project}/tokens"): (400, 400),
    ("DELETE", "/api/projects/{project}/tokens/{id}"): (204, 404),
    ("POST", "/hooks/{provider}"): (404, 404),
    ("GET", "/healthz"): (200, 200),
    ("GET", "/readyz"): (200, 200),
    ("GET", "/metrics"): (200, 200),
    ("GET", "/openapi.json"): (200, 200),
    ("GET", f"{HERE}/events"): (200, 200),
    ("GET", f"{HERE}/statistics"): (200, 200),
    ("GET", f"{HERE}/ignore-rules"): (200, 200),
    ("POST", f"{HERE}/ignore-rules/preview"): (200, 200),
    ("DELETE", f"{HERE}/ignore-rules/{{name}}"): (404, 404),
    ("GET", f"{HERE}/drifts/{{id}}/choices"): (200, 404),
    ("GET", f"{HERE}/drifts/{{id}}/codify-preview"): (200, 404),
    ("GET", "/"): (302, 302),
    ("GET", "/ui"): (302, 302),
    ("GET", "/ui/"): (200, 200),
    ("GET", "/ui/{path:path}"): (200, 200),
    ("GET", "/ui/assets/{path:path}"): (404, 404),
} | PEOPLE_ALLOWED
BODIES: dict[str, Any] = {
    f"{ONE}/sync": {},
    f"{ONE}/holds": {"reason": "x", "seconds": 60, "object": "ConfigMap/chat/none"},
    f"{HERE}/plans/{{id}}/approve": {"plan": "sha256:0"},
    f"{HERE}/plans/{{id}}/reject": {"comment": ""},
    f"{HERE}/drifts/{{id}}/approve": {"plan": "sha256:0"},
    f"{HERE}/drifts/{{id}}/reject": {"comment": ""},
    f"{HERE}/drifts/{{id}}/snooze": {},
    f"{HERE}/drifts/{{id}}/revert": {"via": "mail"},
    f"{HERE}/drifts/{{id}}/ignore": {"reason": "x", "seconds": 60, "path": "data.none"},
    f"{HERE}/ignore-rules/preview": {"path": "data.x"},
    "/api/projects/{project}/tokens": {"name": "x"},
} | PEOPLE_BODIES


@dataclass(frozen=True, kw_only=True)
class Place:
    """Two projects, each with an application that has a drift and a plan that waits."""

    served: ServedApplications
    http: httpx2.Client
    headers: dict[str, dict[str, str]]
    drift: dict[str, str]
    plan: dict[str, str]
    app: dict[str, str]


def application(name: str, project: str, first: GitopsWorld | None) -> GitopsWorld:
    world = GitopsWorld(route(Remediation.REVIEW), sync=SyncSpec(automatic=True, prune=True))
    rename_world(name, project=project, ledger=(first or world).ledger_store, world=world)
    world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(20)})
    return world


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    mine = application("shop", MINE, None)
    theirs = application("depot", THEIRS, mine)
    folder = tmp_path_factory.mktemp("matrix")
    with (
        running_issuer() as issuer,
        serve_applications(
            folder, mine, theirs, people=write_people(folder, MINE, THEIRS, ci=issuer.url)
        ) as running,
        httpx2.Client(base_url=running.url, timeout=20) as http,
    ):
        running.passes = False
        for world in (mine, theirs):
            running.reconcile(world)
            running.call(
                lambda world=world: world.kube.edit(
                    config_ref("c0"), lambda item: item["data"].update(x="9")
                )
            )
            world.git.commit({f"{n}.yaml": configmap(f"c{n}", x="1") for n in range(12)})
            running.run(world.fetch_and_reconcile())
        apps = {MINE: mine, THEIRS: theirs}
        yield Place(
            served=running,
            http=http,
            headers=identities(running, issuer),
            drift={project: world.drifts[0].id for project, world in apps.items()},
            plan={project: plan_of(world) for project, world in apps.items()},
            app={project: world.application.id.label for project, world in apps.items()},
        )


def plan_of(world: GitopsWorld) -> str:
    assert world.context is not None
    (plan,) = world.context.state.plans
    return plan


def identities(running: ServedApplications, issuer: Issuer) -> dict[str, dict[str, str]]:
    server = running.server
    revoked = server.token(MINE, name="revoked")
    server.revoke(revoked)
    past = datetime.now(UTC) - timedelta(seconds=1)
    unknown = tokens.mint("sdk", os.urandom(32)).secret.reveal()
    key = tokens.mint("live", os.urandom(32))
    with server.admin() as store:
        store.write(
            lambda tx: tx.create_token(
                id=key.id,
                kind=TokenKind.LIVE,
                project=MINE,
                name="x",
                scopes=(),
                secret_hash=key.secret_hash,
                workload_uid="elsewhere",
                elsewhere=True,
            )
        )
    held = {who: server.token(MINE, [who], name=who) for who in TokenScope}
    found = {
        "nothing": {"Authorization": "Bearer nothing"},
        "unknown": bearer(unknown),
        "expired": bearer(server.token(MINE, name="expired", expires_at=past)),
        "revoked": bearer(revoked),
        "basic": {"Authorization": f"Basic {held['admin']}"},
        "other project": bearer(server.token(THEIRS)),
        "data": bearer(key.secret.reveal()),
    }
    found |= {str(who): bearer(token) for who, token in held.items()}
    found |= {f"session, {who}": session_headers(server, token) for who, token in held.items()}
    for who in TokenScope:
        found[f"person, {who}"] = cookie_headers(person_cookie(server, who, f"{MINE}-{who}"))
    theirs = person_cookie(server, "other", f"{THEIRS}-admin")
    found["person, other project"] = cookie_headers(theirs)
    found["CI job"] = bearer(job_token(server, issuer, MINE))
    found["CI job, its time is up"] = bearer(ended_job_token(server, MINE))
    job = job_token(server, issuer, THEIRS, repository="acme/others")
    found["CI job, other project"] = bearer(job)
    evil = person_cookie(server, "1", f"{MINE}-admin", issuer="https://evil.test")
    found["person of another issuer"] = cookie_headers(evil)
    over = person_cookie(server, "6", f"{MINE}-admin", expires_at=datetime.now(UTC))
    found["person, expired"] = cookie_headers(over)
    stray = tokens.mint(tokens.SESSION_KIND, os.urandom(32)).secret.reveal()
    found["cookie, unknown"] = cookie_headers(stray)
    ended = session_headers(server, server.token(MINE))
    left = httpx2.delete(f"{running.url}/api/sessions/current", headers=ended)
    assert left.status_code == 204
    found["cookie, ended"] = ended
    found["session, other project"] = session_headers(server, server.token(THEIRS))
    return {"none": {}} | found


def concrete(place: Place, route: ApiRoute, which: str) -> str:
    """Fill a path with the own project, and an object that is one's own, another's, or nobody's."""
    absent = {"drift": "drf-0000000000", "plan": "plan-00000000", "app": "team.nowhere"}

    def chosen(sort: str, known: dict[str, str]) -> str:
        return {"own": known[MINE], "other": known[THEIRS], "absent": absent[sort]}[which]

    id = chosen("plan", place.plan) if "/plans/" in route.path else chosen("drift", place.drift)
    if "/tokens/" in route.path:
        spare = tokens.parse(place.served.server.token(MINE, [TokenScope.READ], name="spare"))
        theirs = tokens.parse(place.served.server.token(THEIRS))
        assert spare
        assert theirs
        id = {"own": spare.id, "other": theirs.id, "absent": "00000000"}[which]
    return route.path.replace("{path:path}", "p/mine/inbox").format(
        project=MINE,
        application=chosen("app", place.app),
        id=id,
        provider="github",
        name=f"{id}-0",  # a rule that somebody would have added for the drift
    )


def ask(place: Place, route: ApiRoute, who: str, path: str) -> httpx2.Response:
    json = BODIES.get(route.path) if route.method == "POST" else None
    headers = place.headers[who]
    ends = who.startswith(("session", "person")) and who not in STRANGERS
    if route.path == "/api/sessions/current" and ends:
        headers = session_headers(place.served.server, place.served.server.token(MINE))
    request = place.http.build_request(route.method, path, headers=headers, json=json)
    if route.method == "DELETE" and route.path.endswith("/holds"):
        request = place.http.build_request(
            "DELETE", path, headers=place.headers[who], params={"object": "ConfigMap/chat/c1"}
        )
    answer = place.http.send(request, stream=True)
    try:
        if not (route.media == "text/event-stream" and answer.status_code == 200):
            answer.read()
    finally:
        answer.close()
    return answer


def expected(route: ApiRoute, who: str, which: str) -> tuple[int, str]:
    """Say the status and the error code, from the rules as they are documented."""
    allowed = ALLOWED[route.method, route.path]
    permitted = allowed[0] if which == "own" else allowed[1]
    if route.credential is RouteCredential.OPEN:
        return permitted, ""
    if who in STRANGERS:
        return 401, "unauthenticated"
    if who == "data":
        return 403, "wrong_credential_type"
    if expectation := people_expectation(route.method, route.path, who):
        return expectation
    if who.endswith("other project") or who == "person of another issuer":
        return 403, "project_scope_mismatch"
    if route.scope not in HELD[who]:
        return 403, "scope_insufficient"
    return permitted, ""


def test_every_route_has_a_row() -> None:
    assert {(route.method, route.path) for route in GITOPS_ROUTES} == set(ALLOWED)
    assert {route.path for route in GITOPS_ROUTES if route.body is not None} == set(BODIES)


@pytest.mark.parametrize("route", GITOPS_ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_each_identity_gets_what_it_may_have(place: Place, route: ApiRoute) -> None:
    wrong = []
    for who in NAMES:
        for which in ("own", "other", "absent"):
            answer = ask(place, route, who, concrete(place, route, which))
            status, code = expected(route, who, which)
            got = answer.json()["error"] if code and answer.is_error else ""
            if (answer.status_code, got) != (status, code):
                wrong.append((who, which, answer.status_code, answer.text, "instead of", status))
    assert wrong == []


@pytest.mark.parametrize(
    "route",
    [
        route
        for route in GITOPS_ROUTES
        if ("{id}" in route.path or "{application}" in route.path)
        and "/sessions/" not in route.path
    ],
    ids=lambda route: f"{route.method} {route.path}",
)
def test_another_projects_object_looks_exactly_like_an_absent_one(
    place: Place, route: ApiRoute
) -> None:
    for who in HELD:
        seen = set()
        for which in ("other", "absent"):
            path = concrete(place, route, which)
            answer = ask(place, route, who, path)
            text = answer.text.replace(answer.headers["x-request-id"], "")
            for asked in path.split("/"):
                text = text.replace(f"'{asked}'", "'it'")  # the name that the caller gave
            seen.add((answer.status_code, text))
        assert len(seen) == 1, seen


def test_workloads_are_not_served_beside_applications(place: Place) -> None:
    answer = place.http.get(f"/api/projects/{MINE}/workloads", headers=place.headers["admin"])
    assert (answer.status_code, answer.json()["error"]) == (404, "no_such_route")


def test_the_controller_describes_its_own_routes(place: Place) -> None:
    from openapi_spec_validator import validate

    described = place.http.get("/openapi.json").json()
    assert described == openapi_document(GITOPS_ROUTES)
    assert place.http.get("/openapi.json").content == openapi_bytes(gitops=True)
    validate(described)
    paths = {(method.upper(), path) for path, ways in described["paths"].items() for method in ways}
    assert paths == {(route.method, route.path.replace(":path}", "}")) for route in GITOPS_ROUTES}
