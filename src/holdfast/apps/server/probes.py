"""The open routes: is it alive, is it ready, its figures, and its own description."""

from __future__ import annotations

from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.forms import HealthForm
from holdfast.apps.server.metrics import CONTENT_TYPE
from holdfast.apps.server.request import JSON_CONTENT_TYPE, HttpResponse, Request, json_response
from holdfast.apps.server.services import Services
from holdfast.core.errors import HoldfastError


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
    from holdfast.apps.server.openapi import openapi_bytes  # needs the table, which has us

    body = openapi_bytes(gitops=services.review_service is not None)
    return HttpResponse(body=body, headers=[JSON_CONTENT_TYPE])
