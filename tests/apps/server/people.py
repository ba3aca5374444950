"""Identities with a cookie, and the rows of the routes about who somebody is, for both matrices."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
from tests.support.issuer import Issuer
from tests.support.server import RunningServer

from holdfast.adapters.store import SignedInSession, TokenKind, TokenScope
from holdfast.core import tokens
from holdfast.core.people import Person

ISSUER = "https://issuer.test"
AUDIENCE = "https://holdfast.test"

PEOPLE_ALLOWED: dict[tuple[str, str], tuple[int, int]] = {
    ("GET", "/api/login"): (200, 200),
    ("POST", "/api/sessions"): (401, 401),
    ("GET", "/api/sessions"): (200, 200),
    ("DELETE", "/api/sessions/current"): (404, 404),
    ("DELETE", "/api/sessions/{id}"): (404, 404),
    ("POST", "/api/sign-in-links"): (201, 201),
    ("GET", "/api/me"): (200, 200),
    ("GET", "/api/openid/{id}/login"): (404, 404),
    ("GET", "/api/openid/{id}/callback"): (404, 404),
    ("POST", "/api/projects/{project}/token-exchange"): (401, 401),
}
PEOPLE_BODIES: dict[str, Any] = {
    "/api/sessions": {"token": "nothing"},
    "/api/projects/{project}/token-exchange": {"id_token": "nothing"},
}


def write_people(
    folder: Path, *projects: str, ci: str, job_scopes: Sequence[str] = ("write",)
) -> Path:
    """Write a people file: in each project a group for each scope, and jobs of one repository.

    The jobs of another repository are let into each project but the first.
    """
    rules = [
        {"claim": "groups", "value": f"{project}-{scope}", "project": project, "scopes": [scope]}
        for project in projects
        for scope in ("read", "write", "approve", "admin")
    ]
    openid = {"id": "own", "issuer": ISSUER, "client_id": "holdfast", "rules": rules}
    jobs = [
        {
            "claims": {"repository": "acme/others" if number else "acme/models"},
            "project": project,
            "scopes": list(job_scopes),
        }
        for number, project in enumerate(projects)
    ]
    forge = {"id": "forge", "issuer": ci, "audience": AUDIENCE, "rules": jobs}
    path = folder / "people.yaml"
    path.write_text(json.dumps({"openid": [openid], "ci": [forge]}))
    return path


def person_cookie(
    server: RunningServer,
    subject: str,
    *groups: str,
    name: str = "Ann",
    issuer: str = ISSUER,
    expires_at: datetime | None = None,
) -> str:
    """Sign a person in as if the issuer had vouched for them; return the cookie."""
    minted = tokens.mint(tokens.SESSION_KIND, os.urandom(32))
    now = datetime.now(UTC)
    session = SignedInSession(
        id=minted.id,
        secret_hash=minted.secret_hash,
        created_at=now,
        last_seen=now,
        expires_at=expires_at or now + timedelta(hours=1),
        provider="own",
        person=Person(issuer=issuer, subject=subject, name=name),
        claims={"groups": groups},
    )
    with server.admin() as store:
        store.write(lambda tx: tx.create_session(session, limit=1_000))
    return minted.secret.reveal()


def job_token(
    server: RunningServer, issuer: Issuer, project: str, *, repository: str = "acme/models"
) -> str:
    """Exchange the token of a CI job."""
    given = issuer.token(aud=AUDIENCE, repository=repository)
    answer = httpx2.post(
        f"{server.url}/api/projects/{project}/token-exchange", json={"id_token": given}
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def ended_job_token(server: RunningServer, project: str) -> str:
    """Make the token that a CI job had, as it is once its time is up."""
    minted = tokens.mint(TokenKind.SDK.value, os.urandom(32))
    job = Person(issuer=ISSUER, subject="x", name="forge:acme/models", job=True)
    with server.admin() as store:
        store.write(
            lambda tx: tx.create_token(
                id=minted.id,
                kind=TokenKind.SDK,
                project=project,
                name=job.name,
                scopes={TokenScope.WRITE},
                secret_hash=minted.secret_hash,
                expires_at=datetime.now(UTC) - timedelta(seconds=1),
                person=job,
            )
        )
    return minted.secret.reveal()


def cookie_headers(cookie: str) -> dict[str, str]:
    """What our own page sends with a cookie."""
    return {
        "Cookie": f"holdfast={cookie}",
        "Holdfast-CSRF": "1",
        "Sec-Fetch-Site": "same-origin",
    }


def sign_in(server: RunningServer, token: str, *, name: str = "holdfast") -> str:
    """Begin a session by a token; return its cookie."""
    answer = httpx2.post(f"{server.url}/api/sessions", json={"token": token})
    assert answer.status_code == 201, answer.text
    return cookie_of(answer, name=name)


def cookie_of(answer: httpx2.Response, *, name: str = "holdfast") -> str:
    """Read the session cookie that an answer sets."""
    for header in answer.headers.get_list("set-cookie"):
        key, _, rest = header.partition("=")
        if key == name:
            return str(rest.partition(";")[0])
    raise AssertionError(f"no cookie {name}: {answer.headers}")


def session_headers(server: RunningServer, token: str) -> dict[str, str]:
    """Begin a session by a token; return what the page sends from then on."""
    return cookie_headers(sign_in(server, token))


def people_expectation(method: str, path: str, who: str) -> tuple[int, str] | None:
    """What a known identity gets from the routes that ask for no scope; None for the others."""
    row = PEOPLE_ALLOWED.get((method, path))
    if row is None:
        return None
    if (method, path) == ("DELETE", "/api/sessions/current"):
        return (204, "") if who.startswith(("session", "person")) else (404, "not_found")
    if path == "/api/sign-in-links" and who.startswith(("session", "person")):
        return 403, "wrong_credential_type"
    return row[0], "not_found" if row[0] == 404 else ""
