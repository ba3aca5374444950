"""The description is valid, complete, and true: what it says may be sent is never a 5xx."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import validate
from schemathesis.specs.openapi.checks import response_schema_conformance
from tests.apps.server.api import Api
from tests.support.server import RunningServer, running_server

from holdfast.apps.server.open_routes import openapi_bytes, openapi_document
from holdfast.apps.server.route_table import EMBEDDED_ROUTES, GITOPS_ROUTES
from holdfast.apps.server.routes import ApiRoute, RouteCredential

DOCUMENT = json.loads(openapi_bytes())
LONG = os.environ.get("HOLDFAST_LONG") == "1"
EXAMPLES = 300 if LONG else 12
FUZZED = [
    (path, method)
    for path, operations in DOCUMENT["paths"].items()
    for method in operations
    if not path.startswith(("/endpoint", "/p/")) and "events" not in path
]


def test_the_document_is_valid() -> None:
    validate(DOCUMENT)


def test_every_route_is_described_with_its_credential_and_scope() -> None:
    for route in EMBEDDED_ROUTES:
        path = route.path.replace(":path}", "}")
        operation = DOCUMENT["paths"][path][route.method.lower()]
        wanted = [] if route.credential is RouteCredential.OPEN else [{route.credential.value: []}]
        assert operation["security"] == wanted
        assert operation.get("x-holdfast-scope") == (route.scope.value if route.scope else None)
        assert operation["description"]


@pytest.mark.parametrize("routes", [EMBEDDED_ROUTES, GITOPS_ROUTES], ids=["serve", "gitops"])
def test_every_operation_has_a_name_of_its_own(routes: tuple[ApiRoute, ...]) -> None:
    ids = [route.operation_id for route in routes]
    assert len(ids) == len(set(ids))
    assert [id for id in ids if not re.fullmatch(r"[a-z]+([A-Z][a-z0-9]+)+", id)] == []
    document = openapi_document(routes)
    assert sorted(ids) == sorted(
        each["operationId"]
        for path in document["paths"].values()  # type: ignore[union-attr]  # an object
        for each in path.values()  # type: ignore[union-attr]
    )


def test_operations_are_named_by_what_they_do() -> None:
    named = {route.operation_id for route in (*EMBEDDED_ROUTES, *GITOPS_ROUTES)}
    wanted = {"listWorkloads", "getWorkload", "ensureWorkload", "approveDrift", "createToken"}
    assert wanted <= named


def test_the_server_gives_the_document(server: RunningServer, http: Any) -> None:
    assert http.get("/openapi.json").json() == DOCUMENT
    assert openapi_document(EMBEDDED_ROUTES) == DOCUMENT


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(
        tmp_path_factory.mktemp("fuzz"), run=False, limits={"failure_rate": 1e6}
    ) as running:
        yield running


@pytest.mark.parametrize(("path", "method"), FUZZED)
def test_what_the_document_allows_is_answered_as_it_says(
    fuzzed: RunningServer, path: str, method: str
) -> None:
    """Generated requests: no 5xx, no undocumented status, answers that match their schema."""
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    operation = schema[path][method.upper()]
    headers = {"Authorization": f"Bearer {fuzzed.token('acme')}"}

    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=not LONG,
    )
    def check(case: Any) -> None:
        if "project" in (case.path_parameters or {}):
            case.path_parameters["project"] = "acme"
        answer = case.call(base_url=fuzzed.url, headers=headers, allow_redirects=False)
        case.validate_response(
            answer, checks=[schemathesis.checks.not_a_server_error, response_schema_conformance]
        )
        described = DOCUMENT["paths"][path][method]["responses"]
        assert str(answer.status_code) in {*described, "404", "405", "400"}, answer.text

    check()


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "name",
                        "slug",
                        "spec",
                        "specs",
                        "model",
                        "backend",
                        "command",
                        "env",
                        "canary",
                    ]
                )
                | st.text(max_size=5),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_json_makes_the_server_fail(api: Api, value: Any) -> None:
    for path in ("workloads", "plan", "ensure", "steps", "tokens"):
        answer = api.ask("POST", path, json=value, headers={"Idempotency-Key": "k"})
        # Without a body at all it is not JSON: 415.
        assert answer.status_code in (200, 201, 400, 404, 409, 415, 422), answer.text
