"""What the InferenceKey wire lacks: one workload by slug, guarded steps, ensure and plan."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping

from holdfast.apps.server.body import apart, read_form
from holdfast.apps.server.compat import SLICE, etags, slug_record, workload_form
from holdfast.apps.server.errors import HttpError, not_found
from holdfast.apps.server.forms import EnsuredForm, EnsureForm, PlanRequestForm
from holdfast.apps.server.request import JSON, Answer, Request, Stream, encode, json_answer
from holdfast.apps.server.services import Services
from holdfast.apps.server.streams import with_pings
from holdfast.core.desired import Desired, desired_of
from holdfast.core.drift import Situation, find_drift
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.live import Absent, Live
from holdfast.core.outcome import Outcome
from holdfast.core.plan import Action, Step, make_plan
from holdfast.core.show import plan_text
from holdfast.core.tree import Fields
from holdfast.reconcile import reconciler
from holdfast.wire.plan_v1 import StepForm, plan_to_json, step_from_json
from holdfast.wire.spec_v1 import spec_from_document
from holdfast.wire.workload_v1 import workload_to_json

MAX_SPECS = 1_000
MAX_TAIL = 10_000


async def get_workload(services: Services, request: Request) -> Answer:
    """Return one workload, or 304 when the client has this version already.

    A version covers what is written, not how the workload is doing; ask without
    If-None-Match for its status.
    """
    record = services.recent.record(request.params["project"], request.params["slug"])
    if record is None:
        raise not_found()
    etag = (b"etag", f'"{record.version}"'.encode())
    seen = request.header(b"if-none-match")
    if seen is not None and {"*", f'"{record.version}"'} & set(etags(seen)):
        return Answer(status=304, headers=[etag])
    status = services.supervisor.status(record.uid)
    body = services.recent.body(record, status)
    if body is None:
        body = encode(workload_form(services, record))
        services.recent.remember_body(record, status, body)
    return Answer(body=body, headers=[JSON, etag])


async def workload_logs(services: Services, request: Request) -> Stream:
    """Give the last log lines, and with `follow` those to come."""
    tail, follow = log_parameters(request)
    record = slug_record(services, request)
    return log_stream(services.supervisor.logs(record.uid, tail=tail, follow=follow))


def log_parameters(request: Request) -> tuple[int, bool]:
    """Read how many lines are wanted, and whether to wait for more."""
    query = request.known_query("tail", "follow")
    tail = request.number("tail", default=100, high=MAX_TAIL, low=0)
    follow = query.get("follow", "false")
    if follow not in ("true", "false"):
        raise HttpError(400, "invalid", "The parameter follow is either true or false.")
    return tail, follow == "true"


def log_stream(lines: AsyncIterator[str]) -> Stream:
    """Answer with lines as they come."""
    return Stream(headers=[(b"content-type", b"text/plain; charset=utf-8")], chunks=_text(lines))


async def _text(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for line in with_pings(lines, b""):
        yield line.encode("utf-8", "replace") + b"\n" if isinstance(line, str) else line


async def perform_step(services: Services, request: Request) -> Answer:
    """Carry out one step, guarded by what it saw; safe to repeat with the same key."""
    key = idempotency_key(request)
    if key is None:
        raise HttpError(400, "bad_request", "A step needs the header Idempotency-Key.")
    form = await read_form(request, StepForm, services.config.limits.control_body)
    if form.project != request.params["project"]:
        problem = Problem(
            field="project", reason="it is not the project of the path.", fix="Send one of the two."
        )
        raise HttpError(400, "invalid", "The step was refused.", problems=[problem])
    step = step_from_json(form)
    target = services.target(request.writer(step.action.value))
    if step.action in (Action.CREATE, Action.UPDATE):
        reconciler.check_honoured(target, [_written(step)])
    try:
        after = await target.perform(step, key=key)
    except ValidationError as error:
        if any(problem.field == "Idempotency-Key" for problem in error.problems):
            raise HttpError(
                422, "idempotency_key_reused", str(error), problems=error.problems
            ) from error
        raise
    if isinstance(after, Absent):
        return Answer(status=204)
    return live_answer(services, after)


def _written(step: Step) -> Desired:
    given: Fields = {name: value for name, value in step.write.items() if value is not None}
    return Desired(id=step.id, fields=given)


def live_answer(services: Services, live: Live, *, status: int = 200) -> Answer:
    """Answer with a workload and its entity tag."""
    form = workload_to_json(services.shown(live), project_id=services.project_id(live.id.project))
    return json_answer(form, status=status, headers=[(b"etag", f'"{live.version}"'.encode())])


async def ensure(services: Services, request: Request) -> Answer:
    """Make the live side match the declaration, as far as the policy allows."""
    form = await read_form(request, EnsureForm, services.config.limits.control_body)
    desired = await apart(request, lambda: _desired(form.spec, request))
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
    workload = (
        workload_to_json(
            services.shown(ref.live), project_id=services.project_id(desired.id.project)
        )
        if ref.live
        else None
    )
    return json_answer(
        EnsuredForm(outcome=ref.outcome, plan=plan_to_json(ref.plan), workload=workload)
    )


async def plan(services: Services, request: Request) -> Answer:
    """Say what ensure would do. Changes nothing."""
    form = await read_form(request, PlanRequestForm, services.config.limits.control_body)
    if len(form.specs) > MAX_SPECS:
        raise HttpError(400, "invalid", f"One plan takes {MAX_SPECS} specs at most.")
    desired = await apart(request, lambda: [_desired(spec, request) for spec in form.specs])
    if len({each.id for each in desired}) != len(desired):
        raise HttpError(400, "invalid", "Two of the specs have the same slug.")
    target = services.target(request.writer("plan"))
    seen = []
    for count, each in enumerate(desired, 1):
        seen.append(await target.observe(each.id))
        if count % SLICE == 0:
            await asyncio.sleep(0)

    def planned() -> bytes:
        reconciler.check_honoured(target, desired)
        pairs = zip(desired, seen, strict=True)
        return encode(
            plan_to_json(make_plan(find_drift(desired=each, live=live) for each, live in pairs))
        )

    return Answer(body=await apart(request, planned), headers=[JSON])


def _desired(document: Mapping[str, object], request: Request) -> Desired:
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
