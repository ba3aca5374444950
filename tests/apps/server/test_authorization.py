"""Every route × every identity × every object, from the table of routes itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from tests.apps.server.api import body, spec
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
from tests.support.issuer import Issuer, running_issuer
from tests.support.server import RunningServer, running_server

from holdfast.adapters.store import TokenKind, TokenScope
from holdfast.apps.server.route_table import EMBEDDED_ROUTES
from holdfast.apps.server.routes import ApiRoute, RouteCredential
from holdfast.core import tokens
from holdfast.core.names import WorkloadId

MINE, THEIRS = "mine", "theirs"
OBJECTS = ("own", "other", "absent")


@dataclass(frozen=True, kw_only=True)
class World:
    """Two projects with one workload, one drift and one token each."""

    server: RunningServer
    http: httpx2.Client
    uid: dict[str, str]
    drift: dict[str, str]
    headers: dict[str, dict[str, str]]


def identities(server: RunningServer, issuer: Issuer) -> dict[str, dict[str, str]]:
    """Everyone who might knock, by name. `server` has workloads already."""
    admin = server.token(MINE, name="admin")
    revoked = server.token(MINE, name="revoked")
    server.revoke(revoked)
    unknown = tokens.mint("sdk", os.urandom(32)).secret.reveal()
    forged = tokens.mint("sdk", bytes.fromhex(admin[7:15]) + os.urandom(28)).secret.reveal()
    past = datetime.now(UTC) - timedelta(seconds=1)
    credentials = {
        "nothing": "Bearer nothing",
        "malformed": "Bearer ik_sdk_12_34",
        "wrong checksum": f"Bearer {admin[:-1]}{'0' if admin[-1] != '0' else '1'}",
        "unknown": f"Bearer {unknown}",
        "right id, other secret": f"Bearer {forged}",
        "expired": f"Bearer {server.token(MINE, name='expired', expires_at=past)}",
        "revoked": f"Bearer {revoked}",
        "basic": f"Basic {admin}",
        "lower case": f"bearer {admin}",
        "two spaces": f"Bearer  {admin}",
        "empty": "",
        "control, other project": f"Bearer {server.token(THEIRS)}",
        "control, read": f"Bearer {server.token(MINE, [TokenScope.READ])}",
        "control, write": f"Bearer {server.token(MINE, [TokenScope.WRITE])}",
        "control, admin": f"Bearer {admin}",
        "control, of a CI job": f"Bearer {job_token(server, issuer, MINE)}",
        "CI job, its time is up": f"Bearer {ended_job_token(server, MINE)}",
        "CI job, other project": "Bearer "
        + job_token(server, issuer, THEIRS, repository="acme/others"),
        "data": f"Bearer {server.data_key(MINE, 'bot')}",
        "data, other project": f"Bearer {server.data_key(THEIRS, 'bot')}",
        "data, other workload": f"Bearer {server.data_key(MINE, 'second')}",
        "data, whole project": f"Bearer {server.project_key(MINE)}",
        "data, whole other project": f"Bearer {server.project_key(THEIRS)}",
    }
    known = {name: {"Authorization": value} for name, value in credentials.items()}
    return {"none": {}} | known | cookies(server)


def cookies(server: RunningServer) -> dict[str, dict[str, str]]:
    """Everyone who comes with a cookie."""
    revoked = server.token(MINE, name="revoked with a session")
    of_revoked = session_headers(server, revoked)
    server.revoke(revoked)
    ended = session_headers(server, server.token(MINE))
    answer = httpx2.delete(f"{server.url}/api/sessions/current", headers=ended)
    assert answer.status_code == 204
    unknown = tokens.mint(tokens.SESSION_KIND, os.urandom(32)).secret.reveal()
    return {
        "cookie, ended": ended,
        "cookie of a revoked token": of_revoked,
        "cookie, unknown": cookie_headers(unknown),
        "cookie, a token": cookie_headers(server.token(MINE)),
        "person of another issuer": cookie_headers(
            person_cookie(server, "1", f"{MINE}-admin", issuer="https://evil.test")
        ),
        "person, expired": cookie_headers(
            person_cookie(server, "6", f"{MINE}-admin", expires_at=datetime.now(UTC))
        ),
        "person, other project": cookie_headers(person_cookie(server, "2", f"{THEIRS}-admin")),
        "person, read": cookie_headers(person_cookie(server, "3", f"{MINE}-read")),
        "person, write": cookie_headers(person_cookie(server, "4", f"{MINE}-write")),
        "person, admin": cookie_headers(person_cookie(server, "5", f"{MINE}-admin")),
        "session, other project": session_headers(server, server.token(THEIRS)),
    } | {
        f"session, {scope}": session_headers(server, server.token(MINE, [scope], name=scope))
        for scope in ("read", "write", "admin")
    }


STRANGERS = {
    "none",
    "nothing",
    "malformed",
    "wrong checksum",
    "unknown",
    "right id, other secret",
    "expired",
    "revoked",
    "basic",
    "lower case",
    "two spaces",
    "empty",
    "cookie, ended",
    "cookie of a revoked token",
    "cookie, unknown",
    "cookie, a token",
    "person, expired",
    "CI job, its time is up",
}
HELD = {
    "control, read": {TokenScope.READ},
    "control, write": {TokenScope.READ, TokenScope.WRITE},
    "control, admin": {TokenScope.READ, TokenScope.WRITE, TokenScope.ADMIN},
}
HELD |= {
    who.replace("control", kind): scopes
    for kind in ("session", "person")
    for who, scopes in HELD.items()
} | {"control, of a CI job": {TokenScope.READ, TokenScope.WRITE}}
OTHERS = (
    "control, other project",
    "session, other project",
    "person, other project",
    "person of another issuer",
    "CI job, other project",
    "data",
    "data, other project",
    "data, other workload",
    "data, whole project",
    "data, whole other project",
)
NAMES = [*sorted(STRANGERS), *HELD, *OTHERS]

# What a permitted caller gets for its own object and for one that is not there. A route
# without a row fails `test_every_route_has_a_row`.
ALLOWED: dict[tuple[str, str], tuple[int, int]] = (
    {
        ("GET", "/api/projects/{project}/workloads"): (200, 200),
        ("POST", "/api/projects/{project}/workloads"): (409, 409),
        ("GET", "/api/projects/{project}/workloads/{slug}"): (200, 404),
        ("PATCH", "/api/workloads/{id}"): (200, 404),
        ("DELETE", "/api/workloads/{id}"): (412, 404),
        ("GET", "/api/projects/{project}/workloads/{slug}/readiness-events"): (200, 404),
        ("GET", "/api/projects/{project}/workloads/{slug}/logs"): (200, 404),
        ("POST", "/api/projects/{project}/steps"): (409, 409),
        ("POST", "/api/projects/{project}/ensure"): (409, 409),
        ("POST", "/api/projects/{project}/plan"): (200, 200),
        ("POST", "/api/projects/{project}/cost"): (200, 200),
        ("GET", "/api/projects/{project}/drift"): (200, 200),
        ("GET", "/api/projects/{project}/drift/{id}"): (200, 404),
        ("POST", "/api/projects/{project}/drift/{id}/revert"): (409, 404),
        ("GET", "/api/projects/{project}/history"): (200, 200),
        ("GET", "/api/projects/{project}/events"): (200, 200),
        ("GET", "/api/projects/{project}/tokens"): (200, 200),
        ("POST", "/api/projects/{project}/tokens"): (400, 400),
        ("DELETE", "/api/projects/{project}/tokens/{id}"): (204, 404),
        ("GET", "/healthz"): (200, 200),
        ("GET", "/readyz"): (200, 200),
        ("GET", "/metrics"): (200, 200),
        ("GET", "/openapi.json"): (200, 200),
        ("POST", "/api/projects/{project}/workloads/{slug}/prompt"): (503, 404),
        ("GET", "/p/{project}/v1/models"): (200, 200),
        ("GET", "/p/{project}/v1/models/{model}"): (200, 403),
        ("POST", "/p/{project}/v1/{path:path}"): (503, 403),
        ("GET", "/"): (302, 302),
        ("GET", "/ui"): (302, 302),
        ("GET", "/ui/"): (200, 200),
        ("GET", "/ui/{path:path}"): (200, 200),
        ("GET", "/ui/assets/{path:path}"): (404, 404),
    }
    | {
        (method, "/endpoint/{project}/{workload}/v1/{path:path}"): (503, 403)
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    }
    | PEOPLE_ALLOWED
)

BODIES: dict[str, Callable[[], Any]] = {
    "/api/projects/{project}/workloads": lambda: body("bot"),
    "/api/workloads/{id}": dict,
    "/api/projects/{project}/steps": lambda: creation(),
    "/api/projects/{project}/cost": lambda: creation(),
    "/api/projects/{project}/ensure": lambda: {"spec": spec(model="other"), "on_drift": "fail"},
    "/api/projects/{project}/drift/{id}/revert": lambda: {"plan": "sha256:0"},
    "/api/projects/{project}/plan": lambda: {"specs": [spec()]},
    "/api/projects/{project}/tokens": lambda: {"name": "x"},
    "/api/projects/{project}/workloads/{slug}/prompt": lambda: {
        "messages": [{"role": "user", "content": "x"}]
    },
} | {path: (lambda given=given: given) for path, given in PEOPLE_BODIES.items()}


def creation() -> dict[str, Any]:
    return {"project": MINE, "slug": "bot", "action": "create", "write": spec()}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    limits = {"failure_rate": 1e6, "sign_in_rate": 1e6, "recheck_time": 0.1}
    folder = tmp_path_factory.mktemp("matrix")
    with (
        running_issuer() as issuer,
        running_server(
            folder,
            run=False,
            limits=limits,
            people=write_people(folder, MINE, THEIRS, ci=issuer.url),
        ) as server,
        httpx2.Client(base_url=server.url, timeout=20) as http,
    ):
        uid, drift = {}, {}
        for project in (MINE, THEIRS):
            own = {"Authorization": f"Bearer {server.token(project)}"}
            where = f"/api/projects/{project}"
            for slug in ("bot", "second"):
                made = http.post(f"{where}/workloads", json=body(slug), headers=own)
                uid[project] = uid.get(project) or made.json()["id"]
            patch = {**own, "User-Agent": "curl/8"}
            http.patch(f"/api/workloads/{uid[project]}", json={"description": "x"}, headers=patch)
            http.patch(f"/api/workloads/{uid[project]}", json={"model_name": "y"}, headers=patch)
            drift[project] = http.get(f"{where}/drift", headers=own).json()["drifts"][0]["id"]
        headers = identities(server, issuer)
        yield World(server=server, http=http, uid=uid, drift=drift, headers=headers)


def concrete(world: World, route: ApiRoute, which: str) -> str:
    """Fill a path with the own project and an object of the asked sort.

    Another's object is asked for by its id under the own project, or, where the path has
    only a project and a slug, under the other project.
    """
    project = {"own": MINE, "other": MINE, "absent": MINE}[which]
    slug = {"own": "bot", "other": "elsewhere", "absent": "nowhere"}[which]
    id = {"own": world.uid[MINE], "other": world.uid[THEIRS], "absent": "0" * 8}[which]
    if "/drift/" in route.path:
        id = {"own": world.drift[MINE], "other": world.drift[THEIRS], "absent": "drift-0"}[which]
    if "/tokens/" in route.path:
        mine = tokens.parse(world.server.token(MINE, [TokenScope.READ], name="spare"))
        theirs = tokens.parse(world.server.token(THEIRS))
        assert mine and theirs
        id = {"own": mine.id, "other": theirs.id, "absent": "00000000"}[which]
    rest = f"chat/{slug}" if route.path.startswith("/p/") else "chat/completions"
    path = route.path.replace("{path:path}", rest)
    return path.format(project=project, slug=slug, workload=slug, model=slug, id=id)


def ask(world: World, route: ApiRoute, who: str, path: str) -> httpx2.Response:
    headers = dict(world.headers[who])
    ends = who.startswith(("session", "person")) and who not in STRANGERS
    if route.path == "/api/sessions/current" and ends:
        project = THEIRS if "other" in who else MINE  # one to end, so that the others stay
        headers = session_headers(world.server, world.server.token(project))
    if route.path.endswith("/steps"):
        headers["Idempotency-Key"] = os.urandom(8).hex()
    if route.method == "DELETE" and "/workloads/" in route.path:
        headers["If-Match"] = '"never"'  # so that the matrix can be asked again
    make = BODIES.get(route.path)
    json = make() if make and route.method in ("POST", "PATCH") else None
    if route.path.startswith("/p/") and route.method == "POST":
        json = {"model": path.rpartition("/")[2]}  # as `concrete` ends it
    request = world.http.build_request(route.method, path, headers=headers, json=json)
    answer = world.http.send(request, stream=True)
    try:
        if not (route.streams and answer.status_code == 200):
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
    session = who.startswith(("session", "person"))
    if session and route.credential is RouteCredential.DATA:
        return 401, "unauthenticated"  # a cookie is not looked at
    control = session or who.startswith(("control", "CI job"))
    if control != (route.credential is RouteCredential.CONTROL):
        return 403, "wrong_credential_type"
    if expectation := people_expectation(route.method, route.path, who):
        return expectation
    if who == "person of another issuer":
        # Signed in, and in no rule: as with any project that is not one's own.
        return (403, "project_scope_mismatch") if "{project}" in route.path else (
            403, "scope_insufficient"
        )  # fmt: skip
    if who.endswith("other project"):
        if "{project}" in route.path:
            return 403, "project_scope_mismatch"
        # Without a project in the path, what is another's is as good as absent; what the other
        # project's own identity finds there is its own.
        return (allowed[0], "") if which == "other" else (404, "not_found")
    if not control:
        if route.path.endswith("/v1/models"):
            return permitted, ""  # whichever the key opens
        if who == "data, whole project":
            absent = "model_not_found" if route.path.startswith("/p/") else "not_found"
            return (permitted, "") if which == "own" else (404, absent)
        if who == "data, other workload" or which != "own":
            return 403, "scope_insufficient"
        return permitted, ""
    if route.scope not in HELD[who]:
        return 403, "scope_insufficient"
    return permitted, ""


def test_every_route_has_a_row() -> None:
    assert {(route.method, route.path) for route in EMBEDDED_ROUTES} == set(ALLOWED)
    with_body = {route.path for route in EMBEDDED_ROUTES if route.body is not None}
    assert with_body == set(BODIES)


def code_of(answer: httpx2.Response) -> str:
    """Our code of an error; the data plane has it where clients of OpenAI's API look for it."""
    error = answer.json()["error"]
    return str(error["code"] if isinstance(error, dict) else error)


@pytest.mark.parametrize("route", EMBEDDED_ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_each_identity_gets_what_it_may_have(world: World, route: ApiRoute) -> None:
    wrong = []
    for who in NAMES:
        for which in OBJECTS:
            answer = ask(world, route, who, concrete(world, route, which))
            status, code = expected(route, who, which)
            got = code_of(answer) if code and answer.is_error else ""
            if (answer.status_code, got) != (status, code):
                wrong.append((who, which, answer.status_code, got, "instead of", status, code))
    assert wrong == []


@pytest.mark.parametrize(
    "route",
    [
        route
        for route in EMBEDDED_ROUTES
        if route.path.count("{")
        and "/sessions/" not in route.path
        and route.credential is not RouteCredential.OPEN
    ],
    ids=lambda route: f"{route.method} {route.path}",
)
def test_another_projects_object_looks_exactly_like_an_absent_one(
    world: World, route: ApiRoute
) -> None:
    for who in NAMES:
        seen = []
        for which in ("other", "absent"):
            if who.endswith("other project") and "{project}" not in route.path:
                continue  # to it, the other's object is its own
            answer = ask(world, route, who, concrete(world, route, which))
            text = b"" if route.streams and answer.status_code == 200 else answer.content
            request_id = answer.headers.pop("x-request-id")
            answer.headers.pop("date")
            plain = text.replace(request_id.encode(), b"")
            if route.method == "POST" and answer.is_success:
                plain = b""  # the own answer, which names what was asked for
            seen.append((answer.status_code, plain, dict(answer.headers)))
        assert len(seen) < 2 or seen[0] == seen[1], who


def test_another_project_looks_the_same_whether_it_exists_or_not(world: World) -> None:
    seen = set()
    for project in (THEIRS, "no-such-project"):
        answer = world.http.get(
            f"/api/projects/{project}/workloads", headers=world.headers["control, admin"]
        )
        seen.add((answer.status_code, code_of(answer), answer.json()["message"]))
    assert [code for _, code, _ in seen] == ["project_scope_mismatch"]


def test_a_data_key_for_one_workload_cannot_tell_whether_another_exists(world: World) -> None:
    seen = set()
    for slug in ("bot", "no-such-workload"):
        answer = world.http.get(
            f"/endpoint/{MINE}/{slug}/v1/models", headers=world.headers["data, other workload"]
        )
        seen.add((answer.status_code, answer.json()["message"]))
    assert len(seen) == 1


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param({"params": {"token": "T"}}, id="in the query"),
        pytest.param({"cookies": {"token": "T"}}, id="in a cookie"),
        pytest.param({"headers": {"X-Api-Key": "T"}}, id="in another header"),
    ],
)
def test_a_token_elsewhere_than_in_the_authorization_header_is_not_seen(
    world: World, extra: dict[str, dict[str, str]]
) -> None:
    token = world.server.token(MINE)
    ((where, pairs),) = extra.items()
    given = {where: dict.fromkeys(pairs, token)}
    if where == "cookies":
        given = {"headers": {"Cookie": f"token={token}"}}
    answer = world.http.get(f"/api/projects/{MINE}/workloads", **given)
    assert answer.status_code == 401


def test_two_authorization_headers_are_refused(world: World) -> None:
    token = world.server.token(MINE)
    headers = [("Authorization", f"Bearer {token}"), ("Authorization", f"Bearer {token}")]
    answer = world.http.get(f"/api/projects/{MINE}/workloads", headers=headers)
    assert answer.status_code == 400


def test_a_revoked_token_is_refused_from_the_next_request_on(world: World) -> None:
    token = world.server.token(MINE, name="short-lived")
    path, headers = f"/api/projects/{MINE}/workloads", {"Authorization": f"Bearer {token}"}
    assert world.http.get(path, headers=headers).status_code == 200
    world.server.revoke(token)
    assert world.http.get(path, headers=headers).status_code == 401


def test_a_token_whose_name_is_a_prefix_of_another_project_opens_only_its_own(
    world: World,
) -> None:
    token = world.server.token("mine-too")
    answer = world.http.get(
        f"/api/projects/{MINE}/workloads", headers={"Authorization": f"Bearer {token}"}
    )
    assert answer.json()["error"] == "project_scope_mismatch"


def test_the_key_of_a_deleted_workload_ends_with_it(world: World) -> None:
    headers = {"Authorization": f"Bearer {world.server.token(MINE)}"}
    made = world.http.post(f"/api/projects/{MINE}/workloads", json=body("brief"), headers=headers)
    key = {"Authorization": f"Bearer {world.server.data_key(MINE, 'brief')}"}
    path = f"/endpoint/{MINE}/brief/v1/models"
    assert world.http.get(path, headers=key).status_code == 503
    world.http.delete(f"/api/workloads/{made.json()['id']}", headers=headers)
    assert world.http.get(path, headers=key).status_code == 401


def test_a_key_that_outlived_its_workload_opens_nothing(world: World) -> None:
    """Keys are revoked with their workload; this holds even for one that was missed."""
    minted = tokens.mint("live", os.urandom(32))
    with world.server.admin() as store:
        record = store.record(WorkloadId(project=MINE, slug="bot"))
        assert record
        store.write(
            lambda tx: tx.create_token(
                id=minted.id,
                kind=TokenKind.LIVE,
                project=MINE,
                name="x",
                scopes=(),
                secret_hash=minted.secret_hash,
                workload_uid=record.uid,
            )
        )
    answer = world.http.get(
        f"/endpoint/{MINE}/second/v1/models",
        headers={"Authorization": f"Bearer {minted.secret.reveal()}"},
    )
    assert answer.status_code == 403
