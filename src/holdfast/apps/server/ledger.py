"""What is kept of the past, and what changes now: drift, history, events."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.apps.server.errors import HttpError, not_found
from holdfast.apps.server.forms import ChangeEventForm
from holdfast.apps.server.request import Answer, Request, Stream, json_answer
from holdfast.apps.server.services import Services
from holdfast.apps.server.streams import event_stream
from holdfast.core.names import WorkloadId
from holdfast.wire.ledger_v1 import (
    DriftListForm,
    HistoryListForm,
    drift_to_json,
    history_to_json,
)

MAX_ROWS = 1_000


async def list_drift(services: Services, request: Request) -> Answer:
    """List drifts, newest first: the open ones, or with `state=all` those that ended too."""
    every, slug, limit = drift_parameters(request)
    found = services.store.drifts(
        request.params["project"], slug=slug, include_resolved=every, limit=limit
    )
    return json_answer(DriftListForm(drifts=[drift_to_json(each) for each in found]))


def drift_parameters(request: Request) -> tuple[bool, str | None, int]:
    """Read whether ended drifts are wanted too, of which workload, and how many."""
    query = request.known_query("state", "slug", "limit")
    state = query.get("state", "open")
    if state not in ("open", "all"):
        raise HttpError(400, "invalid", "The parameter state is either open or all.")
    limit = request.number("limit", default=MAX_ROWS, high=MAX_ROWS)
    return state == "all", query.get("slug"), limit


async def show_drift(services: Services, request: Request) -> Answer:
    """Return one drift."""
    found = services.store.drift(request.params["project"], request.params["id"])
    if found is None:
        raise not_found()
    return json_answer(drift_to_json(found))


async def list_history(services: Services, request: Request) -> Answer:
    """List audit rows, newest first; `before` goes back from a row's `seq`."""
    query = request.known_query("slug", "limit", "before")
    found = services.store.history(
        request.params["project"],
        slug=query.get("slug"),
        limit=request.number("limit", default=100, high=MAX_ROWS),
        before=request.number("before", default=0, high=2**62) if "before" in query else None,
    )
    return json_answer(HistoryListForm(history=[history_to_json(each) for each in found]))


async def project_events(services: Services, request: Request) -> Stream:
    """Say which workloads change, from now on. A client that lags behind is cut off."""
    return event_stream(services, request, _changes(services, request.params["project"]))


async def _changes(services: Services, project: str) -> AsyncIterator[ChangeEventForm | bytes]:
    stream = services.hub.subscribe(project)
    try:
        yield b": listening\n\n"
        while (workload := await stream.get()) is not None:
            yield _change(services, workload)
    finally:
        services.hub.unsubscribe(stream)


def _change(services: Services, workload: WorkloadId) -> ChangeEventForm:
    record = services.store.record(workload)
    return ChangeEventForm(
        project=workload.project,
        slug=workload.slug,
        version=record.version if record else None,
        generation=record.generation if record else 0,
    )
