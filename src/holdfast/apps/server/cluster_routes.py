"""The routes about workloads, where a cluster keeps them; `table` puts them in place.

Same paths, credentials, scopes and forms as the embedded ones. What needs only a target (steps,
ensure, plan) is the same code.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.adapters.kubernetes.target import KubernetesTarget, open_kubernetes_target
from holdfast.adapters.kubernetes.target_objects import HOLDFAST_MANAGERS, NameTaken
from holdfast.adapters.runner import ReplicaLease
from holdfast.apps.server.authorize import wrong_workload
from holdfast.apps.server.config import ClusterLocation
from holdfast.apps.server.errors import HttpError, not_found_error
from holdfast.apps.server.forms import ChangeEventForm, WorkloadListForm
from holdfast.apps.server.proxy import ServedWorkload, forward_request
from holdfast.apps.server.request import HttpResponse, HttpStream, Request, json_response, read_form
from holdfast.apps.server.services import Services
from holdfast.apps.server.streams import event_stream_response
from holdfast.apps.server.workload_routes import (
    MAX_PAGE,
    MAX_ROWS,
    check_if_match,
    has_version,
    live_response,
    log_response,
    read_drift_query,
    read_log_query,
)
from holdfast.core.desired import Desired
from holdfast.core.errors import Conflict, NotFound
from holdfast.core.live import Live, Phase, Writer
from holdfast.core.names import WorkloadId, slug_from_name
from holdfast.core.plan import Action, Disruption, Step, delete_plan
from holdfast.core.tree import Fields
from holdfast.reconcile import reconciler
from holdfast.reconcile.ports import Clock
from holdfast.wire.decode import reshape
from holdfast.wire.ledger_v1 import (
    DriftListForm,
    HistoryListForm,
    ProgressForm,
    drift_to_json,
    history_to_json,
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

SERVER_MANAGER = "holdfast-server"
CLUSTER_TIMEOUT = 25.0
"""Seconds for each question to the cluster, well within what clients wait for us."""
FRESH_SECONDS = 2.0
"""Seconds for which the data plane trusts what it saw of a workload."""
MAX_CACHED = 4_096


class ClusterWorkloads:
    """One per server. Used from its event loop only."""

    def __init__(self, target: KubernetesTarget, *, workload_url: str, clock: Clock) -> None:
        self._target = target
        self._workload_url = workload_url
        self._clock = clock
        self._seen: OrderedDict[WorkloadId, tuple[float, Live | None]] = OrderedDict()

    @classmethod
    def open(cls, cluster: ClusterLocation, clock: Clock) -> ClusterWorkloads:
        """Connect as the kubeconfig or the pod's service account says."""
        target = open_kubernetes_target(
            cluster.context,
            cluster.namespace,
            writer=Writer(manager=SERVER_MANAGER),
            timeout=CLUSTER_TIMEOUT,
            discreet=True,
        )
        return cls(target, workload_url=cluster.workload_url, clock=clock)

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._target.aclose()

    def target(self, writer: Writer) -> KubernetesTarget:
        """Return the target, writing under the tool's name unless it claims one of ours."""
        if writer.manager.startswith("holdfast-") and writer.manager not in HOLDFAST_MANAGERS:
            writer = replace(writer, manager=SERVER_MANAGER)
        return self._target.writing_as(writer).within(CLUSTER_TIMEOUT)

    def streaming_target(self) -> KubernetesTarget:
        """Return the target for streams, which last as long as their client listens."""
        return self._target

    async def live(self, workload: WorkloadId) -> Live:
        """Return a workload; what another project has under its name is as good as none."""
        try:
            found = await self._target.within(CLUSTER_TIMEOUT).observe(workload)
        except NameTaken:
            raise not_found_error() from None
        if not isinstance(found, Live):
            raise not_found_error()
        return found

    async def by_uid(self, project: str, uid: str) -> Live:
        """Return the workload of a project that has this id."""
        for live in await self._target.within(CLUSTER_TIMEOUT).list(project):
            if live.uid == uid:
                return live
        raise not_found_error()

    async def uid_of(self, project: str, slug: str) -> str:
        """Return the id of a workload."""
        return (await self.live(WorkloadId(project=project, slug=slug))).uid

    async def recent(self, workload: WorkloadId) -> Live | None:
        """Return what was seen of a workload at most a moment ago."""
        now = self._clock.monotonic()
        at, live = self._seen.get(workload, (0.0, None))
        if workload not in self._seen or now - at > FRESH_SECONDS:
            try:
                found = await self._target.within(CLUSTER_TIMEOUT).observe(workload)
                live = found if isinstance(found, Live) else None
            except NameTaken:
                live = None
            self._seen[workload] = (now, live)
            while len(self._seen) > MAX_CACHED:
                self._seen.popitem(last=False)
        return live

    def served_workload(self, live: Live) -> ServedWorkload:
        """Say how a workload is reached: by its Service, which knows the pods that are ready."""
        name, namespace = live.id.slug, self._target.namespace_of(live.id.project)
        serving = live.status.phase is Phase.READY or live.status.ready > 0

        def acquire() -> ReplicaLease | None:
            if not serving:
                return None
            return ReplicaLease(
                url=self._workload_url.format(name=name, namespace=namespace),
                group="",
                replica=f"{name}-svc",
                release=_no_op,
                failed=_no_op,
            )

        # A canary answers to the slug by itself, and which of both is reached is not known here.
        fields = {} if live.fields.get("canary") else live.fields
        return ServedWorkload(
            id=live.id, fields=fields, acquire=acquire, status=lambda: live.status
        )


def _no_op() -> None:
    """The Service counts and probes for itself."""


READER = Writer(manager="holdfast-server", operation="read")


async def list_cluster_workloads(services: Services, request: Request) -> HttpResponse:
    """List the workloads of a project by slug; all of them unless a limit is given."""
    query = request.known_query("limit", "after")
    limit = request.number("limit", default=MAX_PAGE, high=MAX_PAGE) if "limit" in query else None
    project = request.params["project"]
    after = query.get("after", "")
    found = [live for live in await _reading_target(services).list(project) if live.id.slug > after]
    forms = [
        workload_to_json(services.shown(live), project_id=services.project_id(project))
        for live in found[:limit]
    ]
    return json_response(WorkloadListForm(workloads=forms))


async def create_cluster_workload(services: Services, request: Request) -> HttpResponse:
    """Create a workload; what Kubernetes cannot honour is refused."""
    form = await read_form(request, CreateForm, services.config.limits.control_body)
    sent, fields = create_fields(form)
    where = WorkloadId(project=request.params["project"], slug=slug_from_name(sent))
    target = _cluster_of(services).target(request.writer("create"))
    reconciler.check_supported(target, [Desired(id=where, fields=fields)])
    step = _make_step(where, Action.CREATE, fields, None)
    try:
        live = await target.perform(step, key=secrets.token_hex(16))
    except Conflict as error:
        raise HttpError(409, "slug_taken", str(error)) from error
    return live_response(services, _require_live(live), status=201)


async def get_cluster_workload(services: Services, request: Request) -> HttpResponse:
    """Return one workload, or 304 when the client has this version already."""
    live = await _cluster_of(services).live(_workload_id(request))
    if has_version(request, b"if-none-match", live.version):
        return HttpResponse(status=304, headers=[(b"etag", f'"{live.version}"'.encode())])
    return live_response(services, live)


async def update_cluster_workload(services: Services, request: Request) -> HttpResponse:
    """Change the fields that were sent: a new declaration, if they are from who declared it."""
    form = await read_form(request, UpdateForm, services.config.limits.control_body)
    live = await _find_matching(services, request)
    write = update_fields(form)
    target = _cluster_of(services).target(request.writer("patch"))
    given: Fields = {name: value for name, value in write.items() if value is not None}
    reconciler.check_supported(target, [Desired(id=live.id, fields=given)])
    step = _make_step(live.id, Action.UPDATE, write, live)
    after = await target.write(step, key=secrets.token_hex(16), declare=None)
    return live_response(services, _require_live(after))


async def delete_cluster_workload(services: Services, request: Request) -> HttpResponse:
    """Delete a workload. Its data keys open nothing any more, as they are for its id."""
    live = await _find_matching(services, request)
    target = _cluster_of(services).target(request.writer("delete"))
    await target.perform(delete_plan(live).steps[0], key=secrets.token_hex(16))
    return HttpResponse(status=204)


async def stream_cluster_readiness(services: Services, request: Request) -> HttpStream:
    """Follow a workload to readiness by what the operator reports."""
    live = await _cluster_of(services).live(_workload_id(request))
    return event_stream_response(services, request, _readiness_events(services, live.id))


async def _readiness_events(
    services: Services, workload: WorkloadId
) -> AsyncIterator[ProgressForm]:
    async for progress in _cluster_of(services).streaming_target().progress(workload):
        yield reshape(ProgressForm, progress)


async def stream_cluster_logs(services: Services, request: Request) -> HttpStream:
    """Give the last log lines of the pods, and with `follow` those to come."""
    tail, follow = read_log_query(request)
    live = await _cluster_of(services).live(_workload_id(request))
    return log_response(
        _cluster_of(services).streaming_target().logs(live.id, tail=tail, follow=follow)
    )


async def list_cluster_drifts(services: Services, request: Request) -> HttpResponse:
    """List drifts, newest first, as far as the cluster remembers them."""
    every, slug, limit = read_drift_query(request)
    project = request.params["project"]
    found = await _reading_target(services).drifts(project, slug=slug, include_resolved=every)
    return json_response(DriftListForm(drifts=[drift_to_json(each) for each in found[:limit]]))


async def get_cluster_drift(services: Services, request: Request) -> HttpResponse:
    """Return one drift."""
    found = await _reading_target(services).drifts(request.params["project"], include_resolved=True)
    for drift in found:
        if drift.id == request.params["id"]:
            return json_response(drift_to_json(drift))
    raise not_found_error()


async def list_cluster_history(services: Services, request: Request) -> HttpResponse:
    """List what Events and field ownership tell, newest first."""
    query = request.known_query("slug", "limit", "before")
    limit = request.number("limit", default=100, high=MAX_ROWS)
    before = request.number("before", default=0, high=2**62) if "before" in query else 2**62
    found = await _reading_target(services).history(
        request.params["project"], slug=query.get("slug"), limit=2**31
    )
    rows = [row for row in found if row.seq < before][:limit]
    return json_response(HistoryListForm(history=[history_to_json(row) for row in rows]))


async def stream_cluster_changes(services: Services, request: Request) -> HttpStream:
    """Say which workloads change, from now on."""
    return event_stream_response(
        services, request, _change_events(services, request.params["project"])
    )


async def _change_events(
    services: Services, project: str
) -> AsyncIterator[ChangeEventForm | bytes]:
    target = _cluster_of(services).streaming_target()
    async with aclosing(target.watch_workloads(project)) as changed:
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


async def proxy_to_cluster(services: Services, request: Request) -> HttpResponse | HttpStream:
    """Pass a request to the Service of the workload that the key opens."""
    cluster = _cluster_of(services)
    token = request.token
    where = WorkloadId(project=request.params["project"], slug=request.params["workload"])
    live = await cluster.recent(where)
    if live is None or token is None or live.uid != token.workload_uid:
        # Answered alike whether the other workload is there or not.
        await cluster.by_uid(where.project, (token and token.workload_uid) or "")
        raise wrong_workload()
    return await forward_request(services, request, cluster.served_workload(live))


def _cluster_of(services: Services) -> ClusterWorkloads:
    assert services.cluster is not None  # noqa: S101  # the table gives these routes only then
    return services.cluster


def _reading_target(services: Services) -> KubernetesTarget:
    return _cluster_of(services).target(READER)


def _workload_id(request: Request) -> WorkloadId:
    return WorkloadId(project=request.params["project"], slug=request.params["slug"])


async def _find_matching(services: Services, request: Request) -> Live:
    """Return the workload in the path, if it is still the one the client has seen."""
    if request.token is None:
        raise not_found_error()
    live = await _cluster_of(services).by_uid(request.token.project, request.params["id"])
    check_if_match(request, live.version)
    return live


def _make_step(where: WorkloadId, action: Action, write: Fields, live: Live | None) -> Step:
    return Step(
        id=where,
        action=action,
        reason="asked for",
        disruption=Disruption.NONE,
        write=write,
        uid=live.uid if live else None,
        version=live.version if live else None,
    )


def _require_live(live: object) -> Live:
    if not isinstance(live, Live):
        raise not_found_error()
    return live
