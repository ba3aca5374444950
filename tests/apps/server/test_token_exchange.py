"""CI jobs change their forge's token for a short one of ours, as the people file says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.apps.server.people import cookie_headers
from tests.support.issuer import Issuer, make_key, running_issuer
from tests.support.server import RunningServer, bearer, running_server

from holdfast.core.errors import ConfigurationError

AUDIENCE = "https://holdfast.example.com"
GITHUB = {
    "aud": AUDIENCE,
    "sub": "repo:acme/models:ref:refs/heads/main",
    "repository": "acme/models",
    "repository_id": "74",
    "repository_owner": "acme",
    "ref": "refs/heads/main",
    "ref_type": "branch",
    "workflow_ref": "acme/models/.github/workflows/deploy.yml@refs/heads/main",
    "event_name": "push",
    "actor": "octocat",
    "run_id": "30433642",
    "jti": "example-id",
}
"""What GitHub Actions says of a job."""
GITLAB = {
    "aud": AUDIENCE,
    "sub": "project_path:acme/models:ref_type:branch:ref:main",
    "project_path": "acme/models",
    "project_id": "22",
    "namespace_path": "acme",
    "ref": "main",
    "ref_type": "branch",
    "ref_protected": "true",
    "pipeline_source": "push",
    "user_login": "ann",
    "jti": "a1b2",
}
"""What GitLab CI says of a job."""


def ci_file(folder: Path, issuer: str, *rules: dict[str, Any]) -> Path:
    path = folder / "people.yaml"
    entry = {"id": "forge", "issuer": issuer, "audience": AUDIENCE, "rules": list(rules)}
    path.write_text(json.dumps({"ci": [entry]}))
    return path


RULES = (
    {
        "claims": {"repository": "acme/models", "ref": ["refs/heads/main", "refs/heads/next"]},
        "project": "acme",
        "scopes": ["write"],
        "minutes": 5,
    },
    {
        "claims": {"project_path": "acme/models", "ref_protected": "true"},
        "project": "acme",
        "scopes": ["read"],
    },
)


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("ci")
    limits = {"sign_in_rate": 1e6, "failure_rate": 1e6}
    people = ci_file(folder, issuer.url, *RULES)
    with running_server(folder, run=False, people=people, limits=limits) as server:
        server.token("acme")
        server.token("other")
        yield server


def exchange(server: RunningServer, token: str, project: str = "acme") -> httpx2.Response:
    url = f"{server.url}/api/projects/{project}/token-exchange"
    return httpx2.post(url, json={"id_token": token})


def test_a_job_of_github_gets_a_short_token_of_one_project(
    server: RunningServer, issuer: Issuer
) -> None:
    answer = exchange(server, issuer.token(**GITHUB))
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["kind"], made["project"], made["scopes"]) == ("sdk", "acme", ["write"])
    assert made["name"] == "forge:acme/models"
    left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert timedelta(minutes=4) < left <= timedelta(minutes=5)
    headers = bearer(made["token"])
    assert httpx2.get(f"{server.url}/api/projects/acme/workloads", headers=headers).is_success
    other = httpx2.get(f"{server.url}/api/projects/other/workloads", headers=headers)
    assert other.json()["error"] == "project_scope_mismatch"
    tokens = httpx2.get(f"{server.url}/api/projects/acme/tokens", headers=headers)
    assert tokens.json()["error"] == "scope_insufficient"
    with server.admin() as store:
        made_by = [each for each in store.history("acme") if each.action == "token-created"]
        assert (made_by[0].writer.manager, made_by[0].writer.actor) == (
            "holdfast-ci",
            "forge:acme/models",
        )


def test_a_job_of_gitlab_gets_what_its_rule_says(server: RunningServer, issuer: Issuer) -> None:
    answer = exchange(server, issuer.token(**GITLAB))
    assert (answer.status_code, answer.json()["scopes"]) == (201, ["read"])


@pytest.mark.parametrize(
    "change",
    [
        {"ref": "refs/heads/feature"},
        {"ref": "refs/pull/7/merge"},
        {"ref": None},
        {"repository": "evil/models"},
        {"repository": "acme/models-evil"},
        {"repository": ["evil/models"]},
        {"repository": {"acme/models": 1}},
    ],
    ids=str,
)
def test_a_job_that_no_rule_is_about_gets_nothing(
    server: RunningServer, issuer: Issuer, change: dict[str, Any]
) -> None:
    answer = exchange(server, issuer.token(**{**GITHUB, **change}))
    assert (answer.status_code, answer.json()["error"]) == (403, "scope_insufficient")


@pytest.mark.parametrize("project", ["other", "no-such-project"])
def test_a_rule_is_of_its_project_alone(
    server: RunningServer, issuer: Issuer, project: str
) -> None:
    answer = exchange(server, issuer.token(**GITHUB), project)
    assert (answer.status_code, answer.json()["error"]) == (403, "scope_insufficient")


@pytest.mark.parametrize(
    "change",
    [
        {"aud": "https://another.example.com"},
        {"aud": None},
        {"exp": 1},
        {"exp": None},
        {"nbf": 4_000_000_000},
        {"iss": "https://evil.example"},
        {"iss": None},
    ],
    ids=str,
)
def test_a_token_that_is_not_for_us_gets_nothing(
    server: RunningServer, issuer: Issuer, change: dict[str, Any]
) -> None:
    answer = exchange(server, issuer.token(**{**GITHUB, **change}))
    assert (answer.status_code, answer.json()["error"]) == (401, "unauthenticated")
    assert "token" not in answer.json()


def test_a_token_that_somebody_else_signed_gets_nothing(
    server: RunningServer, issuer: Issuer
) -> None:
    head, claims, _ = issuer.token(**GITHUB).split(".")
    forged = issuer.sign({"iss": issuer.url, **GITHUB}, key=make_key("first"))
    for token in (forged, f"{head}.{claims}.", f"eyJhbGciOiJub25lIn0.{claims}.", "x", "a.b.c"):
        answer = exchange(server, token)
        assert (answer.status_code, answer.json()["error"]) == (401, "unauthenticated")
        assert claims[:40] not in answer.text


def test_an_unknown_issuer_is_not_even_asked(server: RunningServer, issuer: Issuer) -> None:
    with running_issuer() as other:
        answer = exchange(server, other.token(**GITHUB))
        assert answer.status_code == 401
        assert other.asked == []


def test_strangers_behind_the_same_proxy_keep_no_job_out(tmp_path: Path, issuer: Issuer) -> None:
    limits = {"sign_in_rate": 0.1, "failure_rate": 0.1}
    people = ci_file(tmp_path, issuer.url, *RULES)
    with running_server(tmp_path, run=False, people=people, limits=limits) as server:
        server.token("acme")
        for _ in range(5):
            exchange(server, "a.b.c")
            exchange(server, issuer.token(**{**GITHUB, "ref": "refs/heads/other"}))
        assert exchange(server, issuer.token(**GITHUB)).status_code == 201
        assert exchange(server, issuer.token(**GITHUB)).status_code == 429, "one job, too often"
        assert exchange(server, issuer.token(**GITLAB)).status_code == 201


def test_an_audience_at_which_people_sign_in_is_refused_for_jobs(tmp_path: Path) -> None:
    """A person's id token would be taken for a job's."""
    url = "https://git.example.com"
    people = {"claim": "groups", "value": "all", "project": "acme", "scopes": ["read"]}
    provider = {"id": "own", "issuer": url, "client_id": AUDIENCE, "rules": [people]}
    path = ci_file(tmp_path, url, RULES[0])
    entries = json.loads(path.read_text())
    path.write_text(json.dumps({**entries, "openid": [provider]}))
    with (
        pytest.raises(ConfigurationError, match="person's token would do for a job's"),
        running_server(tmp_path, run=False, people=path),
    ):
        pass
    path.write_text(json.dumps({**entries, "openid": [{**provider, "client_id": "page"}]}))
    with running_server(tmp_path, run=False, people=path):
        pass


def test_a_jobs_token_can_sign_a_browser_in_no_longer_than_it_lives(
    server: RunningServer, issuer: Issuer
) -> None:
    made = exchange(server, issuer.token(**GITHUB)).json()
    begun = httpx2.post(f"{server.url}/api/sessions", json={"token": made["token"]})
    session = begun.json()["session"]
    assert session["expires_at"] == made["expires_at"]
    cookie = begun.headers["set-cookie"].partition("=")[2].partition(";")[0]
    me = httpx2.get(f"{server.url}/api/me", headers=cookie_headers(cookie)).json()
    assert me["projects"] == [{"project": "acme", "scopes": ["read", "write"]}]


def test_without_rules_for_jobs_there_is_nothing_to_exchange(tmp_path: Path) -> None:
    with running_server(tmp_path, run=False) as server:
        server.token("acme")
        assert exchange(server, "a.b.c").status_code == 404


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"claims": {"ref": "refs/heads/main"}}, "any job of anybody"),
        ({"claims": {"repository_owner": "acme"}}, "any job of anybody"),
        ({"claims": {}}, "length"),
        ({"scopes": ["admin"]}, "Invalid enum value 'admin'"),
        ({"minutes": 600}, "<= 60"),
    ],
    ids=str,
)
def test_a_rule_that_lets_too_many_in_is_refused_at_the_start(
    tmp_path: Path, rule: dict[str, Any], told: str
) -> None:
    path = ci_file(tmp_path, "https://token.example.com", {**RULES[0], **rule})
    with (
        pytest.raises(ConfigurationError) as caught,
        running_server(tmp_path, run=False, people=path),
    ):
        pass
    assert told in str(caught.value)
