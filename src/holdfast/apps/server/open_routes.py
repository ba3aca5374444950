"""The open routes: is it alive, is it ready, its figures, and its own description.

The description is OpenAPI 3.1, made from the table of routes and the forms it names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from http import HTTPStatus

import msgspec

from holdfast.apps.server.errors import EndpointErrorForm, ErrorForm, HttpError
from holdfast.apps.server.forms import HealthForm
from holdfast.apps.server.metrics import CONTENT_TYPE
from holdfast.apps.server.request import (
    JSON_CONTENT_TYPE,
    HttpResponse,
    Request,
    encode_json,
    json_response,
)
from holdfast.apps.server.routes import ApiRoute, QueryParameter, RouteCredential
from holdfast.apps.server.services import Services
from holdfast.core.errors import HoldfastError
from holdfast.core.tree import Fields, Tree, plain_tree
from holdfast.version import __version__


async def get_health(services: Services, request: Request) -> HttpResponse:
    """Answer while the process lives."""
    return json_response(HealthForm(status="ok"))


async def get_readiness(services: Services, request: Request) -> HttpResponse:
    """Answer 200 while requests are welcome: started, the store readable, not stopping."""
    try:
        _ = services.store.serial
        usable = True
    except HoldfastError:
        usable = False
    if not services.ready or services.closing.is_set() or not usable:
        raise HttpError(503, "unavailable", "The server is starting or stopping.", retry_after=1)
    if services.waiting:
        raise HttpError(503, "unavailable", services.waiting, retry_after=1)
    return json_response(HealthForm(status="ready"))


async def get_metrics(services: Services, request: Request) -> HttpResponse:
    """Give the figures in Prometheus's text format."""
    content_type = (b"content-type", CONTENT_TYPE.encode())
    return HttpResponse(body=services.metrics.render(), headers=[content_type])


async def get_openapi(services: Services, request: Request) -> HttpResponse:
    """Describe every route."""
    body = openapi_bytes(gitops=services.review_service is not None)
    return HttpResponse(body=body, headers=[JSON_CONTENT_TYPE])


_REFERENCE = "#/components/schemas/{name}"
_ERROR: Fields = {"$ref": _REFERENCE.format(name="ErrorForm")}
_ENDPOINT_ERROR: Fields = {"$ref": _REFERENCE.format(name="EndpointErrorForm")}
_PARAM = re.compile(r"\{(\w+)(:path)?\}")
_SCHEMA_TYPES: dict[type, Fields] = {
    str: {"type": "string"},
    int: {"type": "integer", "minimum": 0},
    bool: {"type": "boolean"},
}
_AUTHENTICATED_ERRORS = (400, 401, 403, 429, 503)
_BODY_ERRORS = (408, 413, 415)


@cache
def openapi_bytes(*, gitops: bool = False) -> bytes:
    """Return the document as JSON; it does not change while the server runs."""
    from holdfast.apps.server.route_table import EMBEDDED_ROUTES, GITOPS_ROUTES  # it names us

    return encode_json(openapi_document(GITOPS_ROUTES if gitops else EMBEDDED_ROUTES))


def openapi_document(routes: Sequence[ApiRoute]) -> Fields:
    """Describe these routes."""
    forms = [each for route in routes for each in (route.body, route.response) if _is_form(each)]
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
            "schemas": plain_tree(schemas),
            "securitySchemes": {
                RouteCredential.CONTROL.value: _bearer_scheme(
                    "A control token, ik_sdk_…, of one project."
                ),
                RouteCredential.DATA.value: _bearer_scheme(
                    "A data key, ik_live_…, of one workload or of a project."
                ),
            },
        },
    }


def _operation(route: ApiRoute) -> Fields:
    operation: Fields = {
        "operationId": route.operation_id,
        "summary": route.summary,
        "description": " ".join((route.handler.__doc__ or route.summary).split()),
        "tags": [route.credential.value],
        "security": []
        if route.credential is RouteCredential.OPEN
        else [{route.credential.value: []}],
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
            "content": {"application/json": _schema_of(route.body)},
        }
    elif route.credential is not RouteCredential.CONTROL and route.method != "GET":
        operation["requestBody"] = {"content": {"*/*": {}}}
    return operation


def _responses(route: ApiRoute) -> Fields:
    success: Fields = {"description": HTTPStatus(route.status).phrase}
    if route.status != 204 and (route.response or route.method == "GET" or route.streams):
        schema = _schema_of(route.response) if route.response else {}
        success["content"] = {route.media: schema}
    found: dict[int, Tree] = {route.status: success}
    if route.credential is RouteCredential.DATA and route.response is None:
        found = {"default": {"description": "What the workload answered"}}  # type: ignore[dict-item]  # the one key that is no number
    statuses = set(route.errors)
    if route.credential is not RouteCredential.OPEN:
        statuses |= set(_AUTHENTICATED_ERRORS)
        if route.method != "GET":
            statuses.add(504)
    elif route.path == "/readyz":
        statuses.add(503)
    if route.body is not None or route.credential is RouteCredential.DATA:
        statuses |= {*_BODY_ERRORS, 507}
    for status in sorted(statuses):
        described: Fields = {"description": HTTPStatus(status).phrase}
        if status >= 400:
            data = route.credential is RouteCredential.DATA
            schema = _ENDPOINT_ERROR if data else _ERROR
            described["content"] = {"application/json": {"schema": dict(schema)}}
        elif status == 202 and route.response:
            described["content"] = {route.media: _schema_of(route.response)}
        found[status] = described
    return {str(status): answer for status, answer in found.items()}


def _schema_of(form: type) -> Fields:
    if not _is_form(form):
        return {"schema": {"type": "object"}}
    return {"schema": {"$ref": _REFERENCE.format(name=form.__name__)}}


def _is_form(form: type | None) -> bool:
    return form is not None and issubclass(form, msgspec.Struct)


def _bearer_scheme(about: str) -> Fields:
    return {"type": "http", "scheme": "bearer", "description": about}


def _path_parameter(name: str) -> Fields:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameter(query: QueryParameter) -> Fields:
    return {
        "name": query.name,
        "in": "query",
        "required": False,
        "description": query.about,
        "schema": dict(_SCHEMA_TYPES[query.type]),
    }


def _header_parameter(name: str, route: ApiRoute) -> Fields:
    return {
        "name": name,
        "in": "header",
        "required": name == "Idempotency-Key" and route.path.endswith("/steps"),
        "schema": {"type": "string"},
    }
