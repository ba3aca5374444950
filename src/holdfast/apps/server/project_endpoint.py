"""One OpenAI base URL for a whole project: `/p/{project}/v1`, where `model` names the workload.

A data key of one workload opens that one alone; a key of the project opens all of them. Behind the
choice of the workload everything is as at its own endpoint: retries, streams, headers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from holdfast.adapters.store import WorkloadRecord
from holdfast.apps.server.authorize import find_keyed_record, wrong_workload
from holdfast.apps.server.cluster_routes import find_keyed_service
from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.proxy import ServedWorkload, forward_request, serve_record
from holdfast.apps.server.request import (
    HttpResponse,
    HttpStream,
    Request,
    json_response,
    read_body,
    run_off_loop,
)
from holdfast.apps.server.services import Services
from holdfast.core.live import Live
from holdfast.core.names import is_slug

_LIST_SLICE = 500


class ProjectModelForm(msgspec.Struct, kw_only=True):
    """A workload, as clients of OpenAI's API know a model."""

    id: str
    created: int
    owned_by: str
    object: str = "model"


class ProjectModelListForm(msgspec.Struct, kw_only=True):
    """The workloads that a key opens, by slug."""

    data: list[ProjectModelForm]
    object: str = "list"


async def list_project_models(services: Services, request: Request) -> HttpResponse:
    """List the workloads that the key opens, as models."""
    found = [each async for each in _list_opened(services, request)]
    return json_response(ProjectModelListForm(data=found))


async def get_project_model(services: Services, request: Request) -> HttpResponse:
    """Return one workload that the key opens, as a model."""
    async for each in _list_opened(services, request):
        if each.id == request.params["model"]:
            return json_response(each)
    if request.token is not None and request.token.workload_uid is not None:
        raise wrong_workload()
    raise _no_such_model()


async def ask_project_model(services: Services, request: Request) -> HttpResponse | HttpStream:
    """Pass a request to the workload that its body names as `model`."""
    body = await read_body(request, services.config.limits.routed_body)
    slug = await run_off_loop(request, lambda: _model_of(body))
    return await forward_request(
        services, request, await _find_served(services, request, slug), body
    )


async def _find_served(services: Services, request: Request, slug: str) -> ServedWorkload:
    key = request.token.workload_uid if request.token else ""
    if not is_slug(slug):
        raise _no_such_model() if key is None else wrong_workload()
    try:
        if services.cluster is not None:
            return await find_keyed_service(services, request, slug)
        services.cache.refresh()
        return serve_record(
            services, find_keyed_record(services.store, services.cache, request, slug)
        )
    except HttpError as error:
        if error.status == 404 and key is None:
            raise _no_such_model() from error
        raise


async def _list_opened(services: Services, request: Request) -> AsyncIterator[ProjectModelForm]:
    project = request.params["project"]
    key = request.token.workload_uid if request.token else ""
    if services.cluster is not None:
        for live in await services.cluster.list_workloads(project):
            if key in (live.uid, None):
                yield _model_form(live)
    elif key is not None:
        record = services.store.record_by_uid(key)
        if record is not None and record.id.project == project:
            yield _model_form(record)
    else:
        after: str | None = None
        while records := services.store.records(project, limit=_LIST_SLICE, after=after):
            for record in records:
                yield _model_form(record)
            after = records[-1].id.slug
            await asyncio.sleep(0)


def _model_form(workload: WorkloadRecord | Live) -> ProjectModelForm:
    created = workload.created_at
    return ProjectModelForm(
        id=workload.id.slug,
        created=int(created.timestamp()) if created else 0,
        owned_by=workload.id.project,
    )


class _RoutedBody(msgspec.Struct):
    model: str


_DECODER = msgspec.json.Decoder(_RoutedBody)


def _model_of(body: bytes) -> str:
    try:
        return _DECODER.decode(body).model
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise HttpError(
            400,
            "invalid",
            "The body is not a JSON object with the slug of a workload as its model. Nothing was "
            "sent to a workload. Other bodies go to the workload's own endpoint, "
            "/endpoint/PROJECT/WORKLOAD/v1.",
        ) from None


def _no_such_model() -> HttpError:
    return HttpError(
        404,
        "model_not_found",
        "This project has no workload of that slug. Nothing was sent to a workload. "
        "GET models lists those that the key opens.",
    )
