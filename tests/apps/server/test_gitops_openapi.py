"""What a controller's description allows is answered as it says, and never with a 5xx."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import response_schema_conformance
from tests.support.gitops_server import PROJECT, ServedApplications, serve_applications
from tests.support.gitops_world import GitopsWorld, config_ref, configmap, route

from holdfast.apps.server.open_routes import openapi_bytes
from holdfast.core.gitops.application import Remediation

DOCUMENT = json.loads(openapi_bytes(gitops=True))
LONG = os.environ.get("HOLDFAST_LONG") == "1"
EXAMPLES = 300 if LONG else 12
FUZZED = [
    (path, method)
    for path, operations in DOCUMENT["paths"].items()
    for method in operations
    if ("/gitops" in path or "/hooks" in path) and not path.endswith("/events")  # it never ends
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplications]:
    world = GitopsWorld(route(Remediation.REVIEW))
    world.git.commit({"a.yaml": configmap("a", x="1"), "b.yaml": configmap("b", w="2")})
    with serve_applications(tmp_path_factory.mktemp("fuzz"), world) as found:
        found.reconcile()
        found.call(lambda: world.kube.edit(config_ref("a"), lambda item: item["data"].clear()))
        found.reconcile()
        found.passes = False
        yield found


@pytest.mark.parametrize(("path", "method"), FUZZED)
def test_what_the_document_allows_is_answered_as_it_says(
    running: ServedApplications, path: str, method: str
) -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    operation = schema[path][method.upper()]
    headers = {"Authorization": f"Bearer {running.server.token(PROJECT, ['admin'])}"}
    (drift,) = running.worlds[0].drifts
    known = {"project": PROJECT, "application": "shop", "id": drift.id}

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
        case.path_parameters.update(
            {name: value for name, value in known.items() if name in case.path_parameters}
        )
        if isinstance(case.body, dict) and "wait" in case.body:
            case.body["wait"] = 0  # nobody makes a pass here
        answer = case.call(base_url=running.url, headers=headers)
        checks = [schemathesis.checks.not_a_server_error, response_schema_conformance]
        case.validate_response(answer, checks=checks)
        described = DOCUMENT["paths"][path][method]["responses"]
        assert str(answer.status_code) in {*described, "404", "405", "400"}, answer.text

    check()
