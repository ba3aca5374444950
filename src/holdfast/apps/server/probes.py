"""The open routes: is it alive, is it ready, its figures, and its own description."""

from __future__ import annotations

from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.forms import HealthForm
from holdfast.apps.server.metrics import CONTENT_TYPE
from holdfast.apps.server.request import JSON, Answer, Request, json_answer
from holdfast.apps.server.services import Services
from holdfast.core.errors import HoldfastError


async def healthz(services: Services, request: Request) -> Answer:
    """Answer while the process lives."""
    return json_answer(HealthForm(status="ok"))


async def readyz(services: Services, request: Request) -> Answer:
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
    return json_answer(HealthForm(status="ready"))


async def metrics(services: Services, request: Request) -> Answer:
    """Give the figures in Prometheus's text format."""
    content_type = (b"content-type", CONTENT_TYPE.encode())
    return Answer(body=services.metrics.render(), headers=[content_type])


async def openapi(services: Services, request: Request) -> Answer:
    """Describe every route."""
    from holdfast.apps.server.openapi import document_bytes  # needs the table, which has us

    body = document_bytes(gitops=services.desk is not None)
    return Answer(body=body, headers=[JSON])
