"""The routes about workloads, where a cluster keeps them; `table` puts them in place.

Same paths, credentials, scopes and forms as the embedded ones. What needs only a target (steps,
ensure, plan) is the same code.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from holdfast.adapters.kubernetes.target_objects import NameTaken
from holdfast.apps.server.authorize import wrong_workload
from holdfast.apps.server.body import read_form
from holdfast.apps.server.compat import MAX_PAGE, etags
from holdfast.apps.server.errors import HttpError, not_found
from holdfast.apps.server.forms import ChangeEventForm, WorkloadListForm
from holdfast.apps.server.ledger import MAX_ROWS, drift_parameters
from holdfast.apps.server.native import live_answer, log_parameters, log_stream
from holdfast.apps.server.proxy import pass_on
from holdfast.apps.server.request import Answer, Request, Stream, json_answer
from holdfast.apps.server.services import Services
from holdfast.apps.server.streams import event_stream
from holdfast.core.desired import Desired
from holdfast.core.errors import Conflict, NotFound
from holdfast.core.live import Live, Writer
from holdfast.core.names import WorkloadId, derived_slug
from holdfast.core.plan import Action, Disruption, Step, delete_plan
from holdfast.core.tree import Fields
from holdfast.reconcile import reconciler
from holdfast.wire.ledger_v1 import (
    DriftListForm,
    HistoryListForm,
    ProgressForm,
    drift_to_json,
    history_to_json,
    progress_to_json,
)
from holdfast.wire.workload_v1 import (
    CreateForm,
    UpdateForm,
    create_fields,
    update_fields,
    workload_to_json,
)

if TYPE_CHECKING:
    from holdfast.adapters.kubernetes.target import KubernetesTarget
    from holdfast.apps.server.cluster import ClusterWorkloads

READER = Writer(manager="holdfast-server", operation="read")


async def list_workloads(services: Services, request: Request) -> Answer:
    """List the workloads of a project by slug; all of them unless a limit is given."""
    query = request.known_query("limit", "after")
    limit = request.number("limit", default=MAX_PAGE, high=MAX_PAGE) if "limit" in query else None
    project = request.params["project"]
    after = query.get("after", "")
    found = [live for live in await _target(services).list(project) if live.id.slug > after]
    forms = [
        workload_to_json(services.shown(live), project_id=services.project_id(project))
        for live in found[:limit]
    ]
    return json_answer(WorkloadListForm(workloads=forms))


async def create_workload(services: Services, request: Request) -> Answer:
    """Create a workload; what Kubernetes cannot honour is refused."""
    form = await read_form(request, CreateForm, services.config.limits.control_body)
    sent, fields = create_fields(form)
    where = WorkloadId(project=request.params["project"], slug=derived_slug(sent))
    target = _cluster(services).target(request.writer("create"))
    reconciler.check_honoured(target, [Desired(id=where, fields=fields)])
    step = _step(where, Action.CREATE, fields, None)
    try:
        live = await target.perform(step, key=secrets.token_hex(16))
    except Conflict as error:
        raise HttpError(409, "slug_taken", str(error)) from error
    return live_answer(services, _present(live), status=201)


async def get_workload(services: Services, request: Request) -> Answer:
    """Return one workload, or 304 when the client has this version already."""
    live = await _cluster(services).live(_where(request))
    seen = request.header(b"if-none-match")
    if seen is not None and {"*", f'"{live.version}"'} & set(etags(seen)):
        return Answer(status=304, headers=[(b"etag", f'"{live.version}"'.encode())])
    return live_answer(services, live)


async def update_workload(services: Services, request: Request) -> Answer:
    """Change the fields that were sent: a new declaration, if they are from who declared it."""
    form = await read_form(request, UpdateForm, services.config.limits.control_body)
    live = await _matched(services, request)
    write = update_fields(form)
    target = _cluster(services).target(request.writer("patch"))
    given: Fields = {name: value for name, value in write.items() if value is not None}
    reconciler.check_honoured(target, [Desired(id=live.id, fields=given)])
    step = _step(live.id, Action.UPDATE, write, live)
    after = await target.write(step, key=secrets.token_hex(16), declare=None)
    return live_answer(services, _present(after))


async def delete_workload(services: Services, request: Request) -> Answer:
    """Delete a workload. Its data keys open nothing any more, as they are for its id."""
    live = await _matched(services, request)
    target = _cluster(services).target(request.writer("delete"))
    await target.perform(delete_plan(live).steps[0], key=secrets.token_hex(16))
    return Answer(status=204)


async def readiness_events(services: Services, request: Request) -> Stream:
    """Follow a workload to readiness by what the operator reports."""
    live = await _cluster(services).live(_where(request))
    return event_stream(services, request, _progress(services, live.id))


async def _progress(services: Services, workload: WorkloadId) -> AsyncIterator[ProgressForm]:
    async for progress in _cluster(services).following().progress(workload):
        yield progress_to_json(progress)


async def workload_logs(services: Services, request: Request) -> Stream:
    """Give the last log lines of the pods, and with `follow` those to come."""
    tail, follow = log_parameters(request)
    live = await _cluster(services).live(_where(request))
    return log_stream(_cluster(services).following().logs(live.id, tail=tail, follow=follow))


async def list_drift(services: Services, request: Request) -> Answer:
    """List drifts, newest first, as far as the cluster remembers them."""
    every, slug, limit = drift_parameters(request)
    project = request.params["project"]
    found = await _target(services).drifts(project, slug=slug, include_resolved=every)
    return json_answer(DriftListForm(drifts=[drift_to_json(each) for each in found[:limit]]))


async def show_drift(services: Services, request: Request) -> Answer:
    """Return one drift."""
    found = await _target(services).drifts(request.params["project"], include_resolved=True)
    for drift in found:
        if drift.id == request.params["id"]:
            return json_answer(drift_to_json(drift))
    raise not_found()


async def list_history(services: Services, request: Request) -> Answer:
    """List what Events and field ownership tell, newest first."""
    query = request.known_query("slug", "limit", "before")
    limit = request.number("limit", default=100, high=MAX_ROWS)
    before = request.number("before", default=0, high=2**62) if "before" in query else 2**62
    found = await _target(services).history(
        request.params["project"], slug=query.get("slug"), limit=2**31
    )
    rows = [row for row in found if row.seq < before][:limit]
    return json_answer(HistoryListForm(history=[history_to_json(row) for row in rows]))


async def project_events(services: Services, request: Request) -> Stream:
    """Say which workloads change, from now on."""
    return event_stream(services, request, _changes(services, request.params["project"]))


async def _changes(services: Services, project: str) -> AsyncIterator[ChangeEventForm | bytes]:
    target = _cluster(services).following()
    async with aclosing(target.changed(project)) as changed:
        async for workload in changed:
            if workload is None:
                yield b": listening\n\n"
                continue
            try:
                live = await target.observe(workload)
            except (NameTaken, NotFound):
                continue
            seen = live if isinstance(live, Live) else None
            yield ChangeEventForm(
                project=workload.project,
                slug=workload.slug,
                version=seen.version if seen else None,
                generation=seen.generation if seen else 0,
            )


async def proxy(services: Services, request: Request) -> Answer | Stream:
    """Pass a request to the Service of the workload that the key opens."""
    cluster = _cluster(services)
    token = request.token
    where = WorkloadId(project=request.params["project"], slug=request.params["workload"])
    live = await cluster.recent(where)
    if live is None or token is None or live.uid != token.workload_uid:
        # Answered alike whether the other workload is there or not.
        await cluster.by_uid(where.project, (token and token.workload_uid) or "")
        raise wrong_workload()
    return await pass_on(services, request, cluster.served(live))


def _cluster(services: Services) -> ClusterWorkloads:
    assert services.cluster is not None  # noqa: S101  # the table gives these routes only then
    return services.cluster


def _target(services: Services) -> KubernetesTarget:
    return _cluster(services).target(READER)


def _where(request: Request) -> WorkloadId:
    return WorkloadId(project=request.params["project"], slug=request.params["slug"])


async def _matched(services: Services, request: Request) -> Live:
    """Return the workload in the path, if it is still the one the client has seen."""
    if request.token is None:
        raise not_found()
    live = await _cluster(services).by_uid(request.token.project, request.params["id"])
    wanted = request.header(b"if-match")
    if wanted is not None and not {"*", f'"{live.version}"'} & set(etags(wanted)):
        raise HttpError(
            412,
            "precondition_failed",
            "The workload was changed since you read it. Nothing was changed by this request. "
            "Read it again and decide again.",
        )
    return live


def _step(where: WorkloadId, action: Action, write: Fields, live: Live | None) -> Step:
    return Step(
        id=where,
        action=action,
        reason="asked for",
        disruption=Disruption.NONE,
        write=write,
        uid=live.uid if live else None,
        version=live.version if live else None,
    )


def _present(live: object) -> Live:
    if not isinstance(live, Live):
        raise not_found()
    return live
