"""Describes the API in OpenAPI 3.1, from the table of routes and the forms it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from http import HTTPStatus

import msgspec

from holdfast.apps.server.errors import EndpointErrorForm, ErrorForm
from holdfast.apps.server.gitops_table import GITOPS
from holdfast.apps.server.request import encode
from holdfast.apps.server.routes import Credential, Query, Route
from holdfast.apps.server.table import ROUTES
from holdfast.core.tree import Fields, Tree, plain
from holdfast.version import __version__

_REFERENCE = "#/components/schemas/{name}"
_ERROR: Fields = {"$ref": _REFERENCE.format(name="ErrorForm")}
_ENDPOINT_ERROR: Fields = {"$ref": _REFERENCE.format(name="EndpointErrorForm")}
_PARAM = re.compile(r"\{(\w+)(:path)?\}")
_TYPES: dict[type, Fields] = {
    str: {"type": "string"},
    int: {"type": "integer", "minimum": 0},
    bool: {"type": "boolean"},
}
_BEYOND_OPEN = (400, 401, 403, 429, 503)
_WITH_BODY = (408, 413, 415)


@cache
def document_bytes(*, gitops: bool = False) -> bytes:
    """Return the document as JSON; it does not change while the server runs."""
    return encode(document(GITOPS if gitops else ROUTES))


def document(routes: Sequence[Route]) -> Fields:
    """Describe these routes."""
    forms = [each for route in routes for each in (route.body, route.answer) if _is_form(each)]
    _, schemas = msgspec.json.schema_components(
        [*forms, ErrorForm, EndpointErrorForm],
        schema_hook=lambda kind: {"description": "Any JSON value."},
        ref_template=_REFERENCE,
    )
    paths: Fields = {}
    for route in routes:
        path = _PARAM.sub(r"{\1}", route.path)
        operations = paths.setdefault(path, {})
        assert isinstance(operations, dict)  # noqa: S101  # we put it there
        operations[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": __version__,
            "description": "The control plane and the data plane of Holdfast.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": plain(schemas),
            "securitySchemes": {
                Credential.CONTROL.value: _scheme("A control token, ik_sdk_…, of one project."),
                Credential.DATA.value: _scheme("A data key, ik_live_…, of one workload."),
            },
        },
    }


def _operation(route: Route) -> Fields:
    path = _PARAM.sub(r"by_\1", route.path)
    name = re.sub(r"\W+", "_", route.method.lower() + path)
    operation: Fields = {
        "operationId": name.strip("_"),
        "summary": route.summary,
        "description": " ".join((route.handler.__doc__ or route.summary).split()),
        "tags": [route.credential.value],
        "security": [] if route.credential is Credential.OPEN else [{route.credential.value: []}],
        "parameters": [
            *(_path_parameter(match[0]) for match in _PARAM.findall(route.path)),
            *(_query_parameter(each) for each in route.query),
            *(_header_parameter(each, route) for each in route.headers),
        ],
        "responses": _responses(route),
    }
    if route.scope is not None:
        operation["x-holdfast-scope"] = route.scope.value
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": _of(route.body)},
        }
    elif route.credential is not Credential.CONTROL and route.method != "GET":
        operation["requestBody"] = {"content": {"*/*": {}}}
    return operation


def _responses(route: Route) -> Fields:
    success: Fields = {"description": HTTPStatus(route.status).phrase}
    if route.status != 204 and (route.answer or route.method == "GET" or route.streams):
        schema = _of(route.answer) if route.answer else {}
        success["content"] = {route.media: schema}
    found: dict[int, Tree] = {route.status: success}
    if route.credential is Credential.DATA:
        found = {"default": {"description": "What the workload answered"}}  # type: ignore[dict-item]  # the one key that is no number
    statuses = set(route.errors)
    if route.credential is not Credential.OPEN:
        statuses |= set(_BEYOND_OPEN)
    elif route.path == "/readyz":
        statuses.add(503)
    if route.body is not None or route.credential is Credential.DATA:
        statuses |= {*_WITH_BODY, 507}
    for status in sorted(statuses):
        described: Fields = {"description": HTTPStatus(status).phrase}
        if status >= 400:
            data = route.credential is Credential.DATA
            schema = _ENDPOINT_ERROR if data else _ERROR
            described["content"] = {"application/json": {"schema": dict(schema)}}
        elif status == 202 and route.answer:
            described["content"] = {route.media: _of(route.answer)}
        found[status] = described
    return {str(status): answer for status, answer in found.items()}


def _of(form: type) -> Fields:
    if not _is_form(form):
        return {"schema": {"type": "object"}}
    return {"schema": {"$ref": _REFERENCE.format(name=form.__name__)}}


def _is_form(form: type | None) -> bool:
    return form is not None and issubclass(form, msgspec.Struct)


def _scheme(about: str) -> Fields:
    return {"type": "http", "scheme": "bearer", "description": about}


def _path_parameter(name: str) -> Fields:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameter(query: Query) -> Fields:
    return {
        "name": query.name,
        "in": "query",
        "required": False,
        "description": query.about,
        "schema": dict(_TYPES[query.type]),
    }


def _header_parameter(name: str, route: Route) -> Fields:
    return {
        "name": name,
        "in": "header",
        "required": name == "Idempotency-Key" and route.path.endswith("/steps"),
        "schema": {"type": "string"},
    }
