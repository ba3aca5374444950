"""The routes that the published InferenceKey client knows, in its own shapes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping

from holdfast.adapters.store import Transaction, WorkloadRecord
from holdfast.apps.server.authorize import find_own_record
from holdfast.apps.server.errors import HttpError, not_found_error
from holdfast.apps.server.forms import EnsuredForm, EnsureForm, PlanRequestForm
from holdfast.apps.server.live_events import live_events_response
from holdfast.apps.server.request import (
    JSON_CONTENT_TYPE,
    HttpResponse,
    HttpStream,
    Request,
    encode_json,
    json_response,
    read_form,
    run_off_loop,
)
from holdfast.apps.server.services import Services
from holdfast.apps.server.streams import event_stream_response, with_pings
from holdfast.core.drift import Situation, find_drift
from holdfast.core.errors import Conflict, Problem, ValidationError
from holdfast.core.live import Absent, Live, Progress
from holdfast.core.names import WorkloadId, slug_from_name
from holdfast.core.outcome import Outcome
from holdfast.core.plan import Action, Plan, Step, make_plan, with_cost
from holdfast.core.show import plan_text
from holdfast.core.tree import Fields
from holdfast.core.workload import Desired, desired_of
from holdfast.reconcile import reconciler
from holdfast.wire.decode import reshape
from holdfast.wire.ledger_v1 import (
    HistoryListForm,
    ProgressForm,
    history_to_json,
)
from holdfast.wire.plan_v1 import (
    CostForm,
    StepCostForm,
    StepForm,
    plan_to_json,
    step_from_json,
)
from holdfast.wire.spec_v1 import spec_from_document
from holdfast.wire.workload_v1 import (
    CreateForm,
    UpdateForm,
    WorkloadForm,
    create_fields,
    update_fields,
    workload_to_json,
)

MAX_PAGE = 1_000
LIST_SLICE = 25
"""Workloads that are written at one go, which takes some milliseconds."""


def workload_form(services: Services, workload: WorkloadRecord | Live) -> WorkloadForm:
    """Write a workload with how it is doing and where it answers."""
    if isinstance(workload, WorkloadRecord):
        live = workload.live(services.status(workload))
    else:
        live = services.shown(workload)
    return workload_to_json(live, project_id=services.project_id(live.id.project))


def workload_response(
    services: Services, workload: WorkloadRecord | Live, *, status: int = 200
) -> HttpResponse:
    """Answer with a workload and its entity tag."""
    form = workload_form(services, workload)
    return json_response(form, status=status, headers=[entity_tag(workload.version)])


def entity_tag(version: str) -> tuple[bytes, bytes]:
    """Return the header that names a version."""
    return (b"etag", f'"{version}"'.encode())


async def list_workloads(services: Services, request: Request) -> HttpResponse:
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
            take = LIST_SLICE if left is None else min(LIST_SLICE, left)
            records = services.store.records(request.params["project"], limit=take, after=after)
            shown += [encode_json(workload_form(services, record)) for record in records]
            left = None if left is None else left - len(records)
            if len(records) < take or left == 0:
                break
            after = records[-1].id.slug
            await asyncio.sleep(0)
    return HttpResponse(body=b'{"workloads":[%s]}' % b",".join(shown), headers=[JSON_CONTENT_TYPE])


async def create_workload(services: Services, request: Request) -> HttpResponse:
    """Create a workload; its slug is made canonical as the client makes it."""
    form = await read_form(request, CreateForm, services.config.limits.control_body)
    sent, fields = create_fields(form)
    where = WorkloadId(project=request.params["project"], slug=slug_from_name(sent))
    writer = request.writer("create")

    def work(tx: Transaction) -> WorkloadRecord:
        return tx.create_workload(Desired(id=where, fields=fields), writer=writer, declare=True)

    try:
        record = await services.store.submit(work)
    except Conflict as error:
        raise HttpError(409, "slug_taken", str(error)) from error
    return workload_response(services, record, status=201)


async def update_workload(services: Services, request: Request) -> HttpResponse:
    """Change the fields that were sent.

    From the writer who declared the workload this is a new declaration; from anyone else it
    is a change beside it, and shows as drift.
    """
    find_own_record(services.store, request)
    form = await read_form(request, UpdateForm, services.config.limits.control_body)
    write = update_fields(form)
    writer = request.writer("patch")

    def work(tx: Transaction) -> WorkloadRecord:
        record = _find_matching_record(tx, request)
        return tx.update_workload(
            record.uid,
            write,
            version=record.version,
            writer=writer,
            declare=record.is_declared_by(writer),
        )

    return workload_response(services, await services.store.submit(work))


async def delete_workload(services: Services, request: Request) -> HttpResponse:
    """Delete a workload and revoke its data keys."""
    find_own_record(services.store, request)
    writer = request.writer("delete")

    def work(tx: Transaction) -> None:
        record = _find_matching_record(tx, request)
        tx.delete_workload(record.uid, version=record.version, writer=writer)

    await services.store.submit(work)
    return HttpResponse(status=204)


async def stream_readiness(services: Services, request: Request) -> HttpStream:
    """Follow a workload to readiness: a snapshot first, then each change, to ready or error."""
    record = find_record_by_slug(services, request)
    return progress_response(services, request, services.supervisor.progress(record.uid))


def progress_response(
    services: Services, request: Request, progress: AsyncIterator[Progress]
) -> HttpStream:
    """Answer with each step on the way to readiness."""
    forms = (reshape(ProgressForm, each) async for each in progress)
    return event_stream_response(services, request, forms)


def find_record_by_slug(services: Services, request: Request) -> WorkloadRecord:
    """Return the workload whose slug is in the path."""
    where = WorkloadId(project=request.params["project"], slug=request.params["slug"])
    record = services.store.record(where)
    if record is None:
        raise not_found_error()
    return record


def has_version(request: Request, header: bytes, version: str) -> bool | None:
    """Say whether If-Match or If-None-Match names this version; None when it was not sent.

    Weak entity tags never match, as nothing here is weak.
    """
    sent = request.header(header)
    if sent is None:
        return None
    return not {"*", f'"{version}"'}.isdisjoint(each.strip() for each in sent.split(","))


def check_if_match(request: Request, version: str) -> None:
    """Refuse to change a workload that is no longer the one the client has seen."""
    if has_version(request, b"if-match", version) is False:
        raise HttpError(
            412,
            "precondition_failed",
            "The workload was changed since you read it. Nothing was changed by this request. "
            "Read it again and decide again.",
        )


def _find_matching_record(tx: Transaction, request: Request) -> WorkloadRecord:
    """Return the workload in the path, if it is still the one the client has seen."""
    record = tx.record_by_uid(request.params["id"])
    if record is None:
        raise not_found_error()
    check_if_match(request, record.version)
    return record


MAX_SPECS = 1_000
MAX_TAIL = 10_000


async def get_workload(services: Services, request: Request) -> HttpResponse:
    """Return one workload, or 304 when the client has this version already.

    A version covers what is written, not how the workload is doing; ask without
    If-None-Match for its status.
    """
    record = services.cache.record(request.params["project"], request.params["slug"])
    if record is None:
        raise not_found_error()
    etag = entity_tag(record.version)
    if has_version(request, b"if-none-match", record.version):
        return HttpResponse(status=304, headers=[etag])
    status = services.supervisor.status(record.uid)
    body = services.cache.body(record, status)
    if body is None:
        body = encode_json(workload_form(services, record))
        services.cache.remember_body(record, status, body)
    return HttpResponse(body=body, headers=[JSON_CONTENT_TYPE, etag])


async def stream_workload_logs(services: Services, request: Request) -> HttpStream:
    """Give the last log lines, and with `follow` those to come."""
    tail, follow = read_log_query(request)
    record = find_record_by_slug(services, request)
    return log_response(services.supervisor.logs(record.uid, tail=tail, follow=follow))


def read_log_query(request: Request) -> tuple[int, bool]:
    """Read how many lines are wanted, and whether to wait for more."""
    query = request.known_query("tail", "follow")
    tail = request.number("tail", default=100, high=MAX_TAIL, low=0)
    follow = query.get("follow", "false")
    if follow not in ("true", "false"):
        raise HttpError(400, "invalid", "The parameter follow is either true or false.")
    return tail, follow == "true"


def log_response(lines: AsyncIterator[str]) -> HttpStream:
    """Answer with lines as they come."""
    return HttpStream(
        headers=[(b"content-type", b"text/plain; charset=utf-8")], chunks=_log_chunks(lines)
    )


async def _log_chunks(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for line in with_pings(lines, b""):
        yield line.encode("utf-8", "replace") + b"\n" if isinstance(line, str) else line


async def perform_step(services: Services, request: Request) -> HttpResponse:
    """Carry out one step, guarded by what it saw; safe to repeat with the same key."""
    key = idempotency_key(request)
    if key is None:
        raise HttpError(400, "bad_request", "A step needs the header Idempotency-Key.")
    step = await _read_step(services, request)
    target = services.target(request.writer(step.action.value))
    if step.action in (Action.CREATE, Action.UPDATE):
        reconciler.check_supported(target, [_desired_after_step(step)])
    try:
        after = await target.perform(step, key=key)
    except ValidationError as error:
        if any(problem.field == "Idempotency-Key" for problem in error.problems):
            raise HttpError(
                422, "idempotency_key_reused", str(error), problems=error.problems
            ) from error
        raise
    if isinstance(after, Absent):
        return HttpResponse(status=204)
    return workload_response(services, after)


async def _read_step(services: Services, request: Request) -> Step:
    form = await read_form(request, StepForm, services.config.limits.control_body)
    if form.project != request.params["project"]:
        problem = Problem(
            field="project", reason="it is not the project of the path.", fix="Send one of the two."
        )
        raise HttpError(400, "invalid", "The step was refused.", problems=[problem])
    return step_from_json(form)


async def estimate_step(services: Services, request: Request) -> HttpResponse:
    """Say what a step would cost. Changes nothing."""
    step = await _read_step(services, request)
    cost = await services.target(request.writer("plan")).cost(step)
    return json_response(StepCostForm(cost=reshape(CostForm, cost) if cost else None))


def _desired_after_step(step: Step) -> Desired:
    given: Fields = {name: value for name, value in step.write.items() if value is not None}
    return Desired(id=step.id, fields=given)


async def ensure_workload(services: Services, request: Request) -> HttpResponse:
    """Make the live side match the declaration, as far as the policy allows."""
    form = await read_form(request, EnsureForm, services.config.limits.control_body)
    desired = await run_off_loop(request, lambda: _read_desired(form.spec, request))
    ref = await reconciler.ensure(
        services.target(request.writer("ensure")),
        desired,
        on_drift=form.on_drift,
        on_absent=form.on_absent,
        key=idempotency_key(request) or f"{request.id}-{secrets.token_hex(8)}",
    )
    if ref.outcome is Outcome.REFUSED:
        if ref.drift.situation is Situation.ABSENT:
            raise HttpError(
                404,
                "not_found",
                f"Workload {desired.id} is not there, and the policy is to fail then. "
                "Nothing was changed.",
                plan=ref.plan,
            )
        raise HttpError(
            409,
            "drift",
            f"Workload has drifted. The policy is to fail then. Nothing was changed.\n"
            f"{plan_text(ref.plan)}",
            plan=ref.plan,
        )
    workload = workload_form(services, ref.live) if ref.live else None
    return json_response(
        EnsuredForm(outcome=ref.outcome, plan=plan_to_json(ref.plan), workload=workload)
    )


async def plan_workloads(services: Services, request: Request) -> HttpResponse:
    """Say what ensure would do, and what each step costs. Changes nothing."""
    form = await read_form(request, PlanRequestForm, services.config.limits.control_body)
    if len(form.specs) > MAX_SPECS:
        raise HttpError(400, "invalid", f"One plan takes {MAX_SPECS} specs at most.")
    desired = await run_off_loop(
        request, lambda: [_read_desired(spec, request) for spec in form.specs]
    )
    if len({each.id for each in desired}) != len(desired):
        raise HttpError(400, "invalid", "Two of the specs have the same slug.")
    target = services.target(request.writer("plan"))
    seen = []
    for count, each in enumerate(desired, 1):
        seen.append(await target.observe(each.id))
        if count % LIST_SLICE == 0:
            await asyncio.sleep(0)

    def compare() -> Plan:
        reconciler.check_supported(target, desired)
        pairs = zip(desired, seen, strict=True)
        return make_plan(find_drift(desired=each, live=live) for each, live in pairs)

    plan = await run_off_loop(request, compare)
    steps: list[Step] = []
    for count, step in enumerate(plan.steps, 1):
        cost = None if step.action is Action.NOTHING else await target.cost(step)
        steps.append(with_cost(step, cost))
        if count % LIST_SLICE == 0:
            await asyncio.sleep(0)
    body = await run_off_loop(request, lambda: encode_json(plan_to_json(Plan(steps=tuple(steps)))))
    return HttpResponse(body=body, headers=[JSON_CONTENT_TYPE])


def _read_desired(document: Mapping[str, object], request: Request) -> Desired:
    spec = spec_from_document(document)
    project = request.params["project"]
    if spec.project not in (None, project):
        problem = Problem(
            field="project", reason="it is not the project of the path.", fix="Leave it out."
        )
        raise HttpError(400, "invalid", "The spec was refused.", problems=[problem])
    return desired_of(spec, project=project)


def idempotency_key(request: Request) -> str | None:
    """Return the caller's key. The target keeps the keys of each project apart."""
    key = request.header(b"idempotency-key")
    if key is None:
        return None
    if not (0 < len(key) <= 200 and key.isascii() and key.isprintable()):
        raise HttpError(
            400, "bad_request", "Idempotency-Key takes 1 to 200 printable ASCII characters."
        )
    return key


MAX_ROWS = 1_000


async def list_workload_history(services: Services, request: Request) -> HttpResponse:
    """List audit rows, newest first; `before` goes back from a row's `seq`."""
    query = request.known_query("slug", "limit", "before")
    found = services.store.history(
        request.params["project"],
        slug=query.get("slug"),
        limit=request.number("limit", default=100, high=MAX_ROWS),
        before=request.number("before", default=0, high=2**62) if "before" in query else None,
    )
    return json_response(HistoryListForm(history=[history_to_json(each) for each in found]))


async def stream_workload_changes(services: Services, request: Request) -> HttpStream:
    """Say which workloads change, from now on or since the last event that the client has.

    A client that lags behind is cut off; it comes back with its last id.
    """
    return live_events_response(services, request, services.hub)
