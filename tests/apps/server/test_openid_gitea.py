"""Signing in at a real issuer, Gitea, as a browser does, and what people decide then."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.support.gitea import PASSWORD, Gitea
from tests.support.processes import free_port
from tests.support.server import RunningServer, running_server

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
WRITE = {"Holdfast-CSRF": "1", **SAME_ORIGIN}


@dataclass(frozen=True, kw_only=True)
class Place:
    server: RunningServer
    gitea: Gitea


@pytest.fixture(scope="module")
def place(gitea: Gitea, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("gitea-login")
    for name in ("ann", "ben", "eve"):
        gitea.create_user(f"{name}-signs-in")
    gitea.ask("POST", "/orgs", {"username": "acme-people"})
    team = gitea.ask(
        "POST",
        "/orgs/acme-people/teams",
        {"name": "reviewers", "permission": "read", "units": ["repo.code"]},
    )
    for name in ("ann", "ben"):
        gitea.ask("PUT", f"/teams/{team['id']}/members/{name}-signs-in")
    port = free_port()
    client, secret = gitea.create_login(f"http://127.0.0.1:{port}/api/openid/gitea/callback")
    (folder / "secret").write_text(secret)
    people = folder / "people.yaml"
    rule = {"claim": "groups", "value": "acme-people:reviewers", "project": "acme"}
    provider = {
        "id": "gitea",
        "name": "Our Gitea",
        "issuer": issuer_of(gitea),
        "client_id": client,
        "client_secret": {"file": str(folder / "secret")},
        "scopes": ["openid", "profile", "email", "groups"],
        "rules": [{**rule, "scopes": ["approve"]}],
    }
    people.write_text(json.dumps({"openid": [provider]}))
    with running_server(folder, run=False, port=port, people=people) as server:
        server.token("acme")
        yield Place(server=server, gitea=gitea)


def issuer_of(gitea: Gitea) -> str:
    described = httpx2.get(f"{gitea.url}/.well-known/openid-configuration").json()
    return str(described["issuer"])


def sign_in(place: Place, http: httpx2.Client, user: str) -> httpx2.Response:
    """Walk the whole way: to Gitea, its password form, and back. Returns our last answer."""
    gitea = place.gitea.url
    page = http.post(
        f"{gitea}/user/login",
        data={"user_name": user, "password": PASSWORD},
        headers={**SAME_ORIGIN, "Origin": gitea},
    )
    assert page.status_code in (302, 303), page.text[:500]
    answer = http.get(f"{place.server.url}/api/openid/gitea/login?next=/ui/p/acme/inbox")
    assert answer.status_code == 302, answer.text
    for _ in range(5):
        answer = http.get(answer.headers["location"])
        if "/login/oauth/grant" in answer.text:
            fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', answer.text))
            fields = {name: html.unescape(value) for name, value in fields.items()}
            answer = http.post(
                f"{gitea}/login/oauth/grant",
                data={**fields, "granted": "true"},
                headers={**SAME_ORIGIN, "Origin": gitea},
            )
        assert answer.status_code in (302, 303), answer.text[:2000]
        if answer.headers["location"].startswith("/ui/"):
            return answer
    raise AssertionError(answer.headers["location"])


def test_a_member_of_the_team_signs_in_at_gitea_and_is_a_person_here(place: Place) -> None:
    with httpx2.Client() as http:
        answer = sign_in(place, http, "ann-signs-in")
        assert answer.headers["location"] == "/ui/p/acme/inbox"
        me = http.get(f"{place.server.url}/api/me").json()
        assert me["kind"] == "person"
        assert me["name"] == "ann-signs-in"
        assert me["issuer"] == issuer_of(place.gitea)
        assert me["subject"].isdigit()
        assert me["projects"] == [{"project": "acme", "scopes": ["read", "approve"]}]
        assert http.get(f"{place.server.url}/api/projects/acme/workloads").status_code == 200
        tokens = http.get(f"{place.server.url}/api/projects/acme/tokens")
        assert tokens.json()["error"] == "scope_insufficient"
        cookie = http.cookies.get("holdfast", domain=urlsplit(place.server.url).hostname)
        left = http.delete(f"{place.server.url}/api/sessions/current", headers=WRITE)
        assert left.status_code == 204
    stolen = {"Cookie": f"holdfast={cookie}"}
    assert httpx2.get(f"{place.server.url}/api/me", headers=stolen).status_code == 401


def test_a_user_of_gitea_outside_the_team_is_not_let_in(place: Place) -> None:
    with httpx2.Client() as http:
        answer = sign_in(place, http, "eve-signs-in")
        assert answer.headers["location"] == "/ui/login#error=no_access"
        assert http.get(f"{place.server.url}/api/me").status_code == 401


def test_two_people_of_one_gitea_are_two(place: Place) -> None:
    subjects = []
    for user in ("ann-signs-in", "ben-signs-in"):
        with httpx2.Client() as http:
            sign_in(place, http, user)
            subjects.append(http.get(f"{place.server.url}/api/me").json()["subject"])
    assert len(set(subjects)) == 2
