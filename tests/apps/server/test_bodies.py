"""What a request body may hold, and that everything wrong with it is said at once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apps.server.api import Api, body, spec

from holdfast.adapters.store import TokenScope
from holdfast.apps.server.request import SERVER_OWNED

BAD_JSON = {
    "a repeated key": b'{"specs": [], "specs": []}',
    "a repeated key deep down": b'{"specs": [{"env": {"A": "1", "A": "2"}}]}',
    "a number beyond 64 bits": b'{"specs": [{"replicas": 9223372036854775808}]}',
    "a number of 5,000 digits": b'{"specs": [' + b"9" * 5_000 + b"]}",
    "a number beyond floats": b'{"specs": [1e400]}',
    "not a number": b'{"specs": [NaN]}',
    "infinity": b'{"specs": [-Infinity]}',
    "a lone surrogate": b'{"specs": ["\\ud800"]}',
    "invalid UTF-8": b'{"specs": ["\xff"]}',
    "an encoded surrogate": b'{"specs": ["\xed\xa0\x80"]}',
    "a byte order mark": b'\xef\xbb\xbf{"specs": []}',
    "UTF-16": '{"specs": []}'.encode("utf-16"),
    "a null byte": b'{"specs": ["\0"]}',
    "deep nesting": b'{"specs": ' + b"[" * 70 + b"]" * 70 + b"}",
    "very deep nesting": b'{"specs": ' + b"[" * 100_000,
    "half a document": b'{"specs": [',
    "two documents": b'{"specs": []}{"specs": []}',
    "nothing": b"",
    "a list": b"[]",
    "text": b'"specs"',
    "a comment": b'{"specs": []} // all',
}


@pytest.mark.parametrize("raw", BAD_JSON.values(), ids=BAD_JSON.keys())
def test_json_that_is_not_plain_is_refused(api: Api, raw: bytes) -> None:
    token = api.server.token(api.project)
    answer = api.http.post(
        api.path("plan"),
        content=raw,
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_does_not_say_it_is_json_is_refused(api: Api, kind: str) -> None:
    answer = api.ask("POST", "plan", json={"specs": []}, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "zstd", "gzip, identity"])
def test_a_compressed_body_is_refused(api: Api, coding: str) -> None:
    answer = api.ask("POST", "plan", json={"specs": []}, headers={"Content-Encoding": coding})
    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")


def test_every_problem_of_a_body_is_reported(api: Api) -> None:
    sent = {"name": 5, "backend": "custom", "colour": "red", "size": 1, "config": []}
    answer = api.ask("POST", "workloads", json=sent)
    assert answer.status_code == 400
    found = {problem["field"] for problem in answer.json()["problems"]}
    assert found == {"name", "model_name", "colour", "size", "config"}


@pytest.mark.parametrize("field", sorted(SERVER_OWNED))
def test_a_field_that_the_server_owns_cannot_be_written(api: Api, field: str) -> None:
    made = api.create()
    answers = [
        api.ask("POST", "workloads", json=body("other", **{field: "x"})),
        api.ask("PATCH", f"/api/workloads/{made['id']}", json={field: "x"}),
        api.ask("POST", "ensure", json={"spec": spec(**{field: "x"})}),
        api.ask("POST", "tokens", json={"name": "x", "scopes": ["read"], field: "x"}),
    ]
    assert [answer.status_code for answer in answers] == [400] * 4
    assert field in answers[0].json()["message"] + str(answers[0].json()["problems"])
    assert api.get()["generation"] == made["generation"]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(body(slug="Ünïcode"), id="letters outside ASCII"),
        pytest.param(body(slug="healthz"), id="a reserved slug"),
        pytest.param(body(slug="-"), id="no letter"),
        pytest.param(body(slug="a" * 64), id="too long a slug"),
        pytest.param(body(config={"command": "serve | tee"}), id="shell syntax"),
        pytest.param(body(description="\x1b[31mred"), id="control characters"),
        pytest.param(body(execution_policy="sometimes"), id="an unknown policy"),
    ],
)
def test_a_workload_that_is_not_valid_is_refused_with_its_problems(
    api: Api, sent: dict[str, Any]
) -> None:
    answer = api.ask("POST", "workloads", json=sent)
    assert answer.status_code == 400
    assert answer.json()["problems"]
    assert api.ask("GET", "workloads").json() == {"workloads": []}


def test_a_token_in_a_declaration_is_refused_and_not_repeated(api: Api) -> None:
    token = api.server.token(api.project)
    secret = token.rsplit("_", 1)[1]
    for sent in (
        body(description=f"see {token}"),
        body(config={"command": f"serve --header {token}"}),
        body(config={"nested": [{"deep": token}]}),
        {**body(), token: "x"},
    ):
        answer = api.ask("POST", "workloads", json=sent)
        assert answer.status_code == 400
        assert secret not in answer.text


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=-1", "limit=x", "limit=99999", "limit=1&limit=2", "colour=red", "limit=%FF"],
)
def test_a_query_that_means_nothing_is_refused(api: Api, query: str) -> None:
    assert api.ask("GET", f"workloads?{query}").status_code == 400


def test_a_hundred_thousand_query_parameters_are_refused(api: Api) -> None:
    assert api.ask("GET", "workloads?" + "&".join(["a=1"] * 1_500)).status_code == 400


def test_a_wrong_choice_is_refused_with_the_choices(api: Api) -> None:
    sent = {"spec": spec(), "on_drift": "panic", "on_absent": 3}
    refused = api.ask("POST", "ensure", json=sent)
    assert refused.status_code == 400
    assert {each["field"]: each["fix"] for each in refused.json()["problems"]} == {
        "on_drift": "Use reconcile, fail, dry_run, warn, ignore.",
        "on_absent": "Use create, plan, fail.",
    }
    token = api.ask("POST", "tokens", json={"name": "x", "scopes": ["root"]})
    (problem,) = token.json()["problems"]
    assert problem["field"] == "scopes"
    assert set(problem["fix"].removeprefix("Use ").rstrip(".").split(", ")) == set(TokenScope)
