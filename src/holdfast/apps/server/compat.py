"""The routes that the published InferenceKey client knows, in its own shapes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from holdfast.adapters.store import Record, Transaction
from holdfast.apps.server.authorize import own_record
from holdfast.apps.server.body import read_form
from holdfast.apps.server.errors import HttpError, not_found
from holdfast.apps.server.request import (
    JSON,
    Answer,
    Request,
    Stream,
    encode,
    json_answer,
)
from holdfast.apps.server.services import Services
from holdfast.apps.server.streams import event_stream
from holdfast.core.desired import Desired
from holdfast.core.errors import Conflict
from holdfast.core.names import WorkloadId, derived_slug
from holdfast.wire.ledger_v1 import ProgressForm, progress_to_json
from holdfast.wire.workload_v1 import (
    CreateForm,
    UpdateForm,
    WorkloadForm,
    create_fields,
    update_fields,
    workload_to_json,
)

MAX_PAGE = 1_000
SLICE = 25
"""Workloads that are written at one go, which takes some milliseconds."""


def workload_form(services: Services, record: Record) -> WorkloadForm:
    """Write a stored workload with how it is doing."""
    return workload_to_json(
        record.live(services.status(record)), project_id=services.project_id(record.id.project)
    )


def workload_answer(services: Services, record: Record, *, status: int = 200) -> Answer:
    """Answer with a workload and its entity tag."""
    etag = f'"{record.version}"'.encode()
    return json_answer(workload_form(services, record), status=status, headers=[(b"etag", etag)])


async def list_workloads(services: Services, request: Request) -> Answer:
    """List the workloads of a project by slug; all of them unless a limit is given.

    Clients of the InferenceKey wire know no pages and take a list for the whole, so it is one.
    It is put together in slices, between which other requests are answered.
    """
    query = request.known_query("limit", "after")
    left = request.number("limit", default=MAX_PAGE, high=MAX_PAGE) if "limit" in query else None
    after = query.get("after")
    shown: list[bytes] = []
    async with services.listing:
        while True:
            take = SLICE if left is None else min(SLICE, left)
            records = services.store.records(request.params["project"], limit=take, after=after)
            shown += [encode(workload_form(services, record)) for record in records]
            left = None if left is None else left - len(records)
            if len(records) < take or left == 0:
                break
            after = records[-1].id.slug
            await asyncio.sleep(0)
    return Answer(body=b'{"workloads":[%s]}' % b",".join(shown), headers=[JSON])


async def create_workload(services: Services, request: Request) -> Answer:
    """Create a workload; its slug is made canonical as the client makes it."""
    form = await read_form(request, CreateForm, services.config.limits.control_body)
    sent, fields = create_fields(form)
    where = WorkloadId(project=request.params["project"], slug=derived_slug(sent))
    writer = request.writer("create")

    def work(tx: Transaction) -> Record:
        return tx.create_workload(Desired(id=where, fields=fields), writer=writer, declare=True)

    try:
        record = await services.store.submit(work)
    except Conflict as error:
        raise HttpError(409, "slug_taken", str(error)) from error
    return workload_answer(services, record, status=201)


async def update_workload(services: Services, request: Request) -> Answer:
    """Change the fields that were sent.

    From the writer who declared the workload this is a new declaration; from anyone else it
    is a change beside it, and shows as drift.
    """
    own_record(services.store, request)
    form = await read_form(request, UpdateForm, services.config.limits.control_body)
    write = update_fields(form)
    writer = request.writer("patch")

    def work(tx: Transaction) -> Record:
        record = _matched(tx, request)
        return tx.update_workload(
            record.uid,
            write,
            version=record.version,
            writer=writer,
            declare=record.is_declared_by(writer),
        )

    return workload_answer(services, await services.store.submit(work))


async def delete_workload(services: Services, request: Request) -> Answer:
    """Delete a workload and revoke its data keys."""
    own_record(services.store, request)
    writer = request.writer("delete")

    def work(tx: Transaction) -> None:
        record = _matched(tx, request)
        tx.delete_workload(record.uid, version=record.version, writer=writer)

    await services.store.submit(work)
    return Answer(status=204)


async def readiness_events(services: Services, request: Request) -> Stream:
    """Follow a workload to readiness: a snapshot first, then each change, to ready or error."""
    record = slug_record(services, request)
    return event_stream(services, request, _progress(services, record.uid))


async def _progress(services: Services, uid: str) -> AsyncIterator[ProgressForm]:
    async for progress in services.supervisor.progress(uid):
        yield progress_to_json(progress)


def slug_record(services: Services, request: Request) -> Record:
    """Return the workload whose slug is in the path."""
    where = WorkloadId(project=request.params["project"], slug=request.params["slug"])
    record = services.store.record(where)
    if record is None:
        raise not_found()
    return record


def etags(header: str) -> list[str]:
    """Read a list of entity tags. Weak ones never match, as nothing here is weak."""
    return [each.strip() for each in header.split(",")]


def _matched(tx: Transaction, request: Request) -> Record:
    """Return the workload in the path, if it is still the one the client has seen."""
    record = tx.record_by_uid(request.params["id"])
    if record is None:
        raise not_found()
    wanted = request.header(b"if-match")
    if wanted is not None and not {"*", f'"{record.version}"'} & set(etags(wanted)):
        raise HttpError(
            412,
            "precondition_failed",
            "The workload was changed since you read it. Nothing was changed by this request. "
            "Read it again and decide again.",
        )
    return record
