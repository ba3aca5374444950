"""The routes about workloads, where a cluster keeps them; `table` puts them in place.

Same paths, credentials, scopes and forms as the embedded ones. What needs only a target (steps,
ensure, plan) is the same code.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import replace
from functools import partial

from holdfast.adapters.kubernetes.target import KubernetesTarget, open_kubernetes_target
from holdfast.adapters.kubernetes.target_objects import HOLDFAST_MANAGERS, NameTaken
from holdfast.adapters.runner import ReplicaLease
from holdfast.apps.server import logs
from holdfast.apps.server.authorize import wrong_workload
from holdfast.apps.server.config import WORKLOAD_URL, ClusterLocation
from holdfast.apps.server.errors import HttpError, not_found_error
from holdfast.apps.server.forms import WorkloadListForm, change_event
from holdfast.apps.server.live_events import EventHub, read_last_event_id
from holdfast.apps.server.metrics import ServerMetrics
from holdfast.apps.server.pods import PodRouter, ReplicaConnector
from holdfast.apps.server.proxy import ServedWorkload, forward_request
from holdfast.apps.server.request import HttpResponse, HttpStream, Request, json_response, read_form
from holdfast.apps.server.services import Services
from holdfast.apps.server.streams import event_stream_response
from holdfast.apps.server.waking import WorkloadWaker, give_signs
from holdfast.apps.server.workload_drifts import (
    listed_drifts_response,
    read_workload_drift_query,
    workload_drift_form,
)
from holdfast.apps.server.workload_routes import (
    MAX_PAGE,
    MAX_ROWS,
    check_if_match,
    entity_tag,
    has_version,
    log_response,
    progress_response,
    read_log_query,
    workload_form,
    workload_response,
)
from holdfast.core.errors import Conflict, HoldfastError, NotFound, TargetUnavailable
from holdfast.core.live import Live, Phase, Status, Writer
from holdfast.core.names import WorkloadId, slug_from_name
from holdfast.core.plan import Action, Disruption, Step, delete_plan
from holdfast.core.tree import Fields
from holdfast.core.workload import Desired
from holdfast.reconcile import reconciler
from holdfast.reconcile.ports import Clock
from holdfast.wire.ledger_v1 import (
    HistoryListForm,
    history_to_json,
)
from holdfast.wire.workload_v1 import (
    CreateForm,
    UpdateForm,
    create_fields,
    update_fields,
)

SERVER_MANAGER = "holdfast-server"
CLUSTER_TIMEOUT = 25.0
"""Seconds for each question to the cluster, well within what clients wait for us."""
FRESH_SECONDS = 2.0
"""Seconds for which the data plane trusts what it saw of a workload."""
MAX_CACHED = 4_096
RESUME_SECONDS = 120.0
"""For how long changes are still noted when nobody listens, so that whoever comes back has all."""


class ClusterWorkloads:
    """One per server. Used from its event loop only."""

    def __init__(
        self,
        target: KubernetesTarget,
        *,
        workload_url: str | None,
        connector: ReplicaConnector,
        metrics: ServerMetrics,
        clock: Clock,
    ) -> None:
        self._target = target
        self._workload_url = workload_url
        self._router = PodRouter(target.api, connector, metrics, clock)
        self._waker = WorkloadWaker(target.api, self._router, clock)
        self._clock = clock
        self.change_feed = ChangeFeed(target)
        self._seen: OrderedDict[WorkloadId, tuple[float, Live | None]] = OrderedDict()

    @classmethod
    def open(
        cls,
        cluster: ClusterLocation,
        connector: ReplicaConnector,
        metrics: ServerMetrics,
        clock: Clock,
    ) -> ClusterWorkloads:
        """Connect as the kubeconfig or the pod's service account says."""
        target = open_kubernetes_target(
            cluster.context,
            cluster.namespace,
            writer=Writer(manager=SERVER_MANAGER),
            timeout=CLUSTER_TIMEOUT,
            discreet=True,
        )
        return cls(
            target,
            workload_url=cluster.workload_url,
            connector=connector,
            metrics=metrics,
            clock=clock,
        )

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self.change_feed.aclose()
        await self._router.aclose()
        await self._target.aclose()

    def give_signs(
        self, projects: Callable[[], Iterable[str]]
    ) -> AbstractAsyncContextManager[None]:
        """While entered, have the operator know that workloads without replicas can be woken.

        Where requests go to Services nothing is held for them, so nothing is promised either.
        """
        if self._workload_url is not None:
            return nullcontext()
        return give_signs(
            self._waker, lambda: sorted({self._target.namespace_of(each) for each in projects()})
        )

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
        for live in await self.list_workloads(project):
            if live.uid == uid:
                return live
        raise not_found_error()

    async def list_workloads(self, project: str) -> Sequence[Live]:
        """Return the workloads of a project."""
        return await self._target.within(CLUSTER_TIMEOUT).list(project)

    async def uid_of(self, project: str, slug: str) -> str:
        """Return the id of a workload."""
        return (await self.live(WorkloadId(project=project, slug=slug))).uid

    async def recent(self, workload: WorkloadId) -> Live | None:
        """Return what was seen of a workload at most a moment ago, or last if none can be asked."""
        now = self._clock.monotonic()
        at, live = self._seen.get(workload, (0.0, None))
        if workload not in self._seen or now - at > FRESH_SECONDS:
            try:
                found = await self._target.within(CLUSTER_TIMEOUT).observe(workload)
                live = found if isinstance(found, Live) else None
            except NameTaken:
                live = None
            except TargetUnavailable:
                if live is None:  # pods go on serving while the API server is away
                    raise
            self._seen[workload] = (now, live)
            while len(self._seen) > MAX_CACHED:
                self._seen.popitem(last=False)
        return live

    async def serve_workload(self, live: Live) -> ServedWorkload:
        """Say how a workload is reached: by its pods, or by its Service where told so."""
        # A canary answers to the slug by itself, whichever of both is reached.
        fields = {} if live.fields.get("canary") else live.fields
        namespace = self._target.namespace_of(live.id.project)
        if self._workload_url is None and await self._router.follow(namespace):
            acquire = partial(
                self._router.acquire, namespace, live.id.slug, live.status.canary_weight
            )
            budget = live.status.wake_budget
            return ServedWorkload(
                id=live.id,
                fields=fields,
                acquire=acquire,
                status=lambda: _without_pods(self._last_observed(live)),
                wake=None if budget is None else partial(self._wake, live, namespace, budget),
            )
        return ServedWorkload(
            id=live.id,
            fields=fields,
            acquire=partial(self._acquire_service, live, namespace),
            status=lambda: live.status,
        )

    async def _wake(
        self, live: Live, namespace: str, budget: float, tried: Collection[str]
    ) -> ReplicaLease | None:
        slug = live.id.slug
        if tried and self._router.has_pods(namespace, slug):
            return None  # what let the request down is still there, so no other pod is to come
        acquire = partial(self._router.acquire, namespace, slug, live.status.canary_weight, tried)
        lease = await self._waker.wait_for_lease(live.id, namespace, budget, acquire)
        if lease is None:
            await self.recent(live.id)  # what keeps it from starting
        return lease

    def _last_observed(self, live: Live) -> Live:
        return self._seen.get(live.id, (0.0, None))[1] or live

    def _acquire_service(
        self, live: Live, namespace: str, tried: Collection[str]
    ) -> ReplicaLease | None:
        """Take the Service for a replica: it knows the pods that are ready, and tells no more."""
        replica = f"{live.id.slug}-svc"
        serving = live.status.phase is Phase.READY or live.status.ready > 0
        if not serving or replica in tried:
            return None
        url = (self._workload_url or WORKLOAD_URL).format(name=live.id.slug, namespace=namespace)
        return ReplicaLease(url=url, group="", replica=replica, release=_no_op, failed=_no_op)


class ChangeFeed:
    """What changes in the cluster, watched once for all streams of a project.

    A watch goes on for a while when the last stream has ended, so that a client that lost its
    connection can resume. When it breaks off, streams end and come back to a reset.
    """

    def __init__(self, target: KubernetesTarget) -> None:
        self._target = target
        self._watches: dict[str, _ProjectWatch] = {}

    async def follow(self, hub: EventHub, project: str, after: int | None) -> AsyncIterator[bytes]:
        """Yield the encoded events of a project while its watch is established."""
        watch = self._watches.get(project)
        if watch is None or watch.task.done():
            watch = self._watches[project] = _ProjectWatch(self._target, hub, project)
        watch.enter()
        try:
            await watch.wait_established()
            async with aclosing(hub.follow(project, after)) as events:
                async for each in events:
                    yield each
        finally:
            watch.leave()

    async def aclose(self) -> None:
        """End every watch."""
        tasks = [watch.task for watch in self._watches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _ProjectWatch:
    """One project's watch, for as long as somebody reads it and a while longer."""

    def __init__(self, target: KubernetesTarget, hub: EventHub, project: str) -> None:
        self._target = target
        self._hub = hub
        self._project = project
        self._readers = 0
        self._stop: asyncio.TimerHandle | None = None
        self._established = asyncio.Event()
        self._error: HoldfastError | None = None
        self.task = asyncio.create_task(self._run())

    def enter(self) -> None:
        """Count a reader."""
        self._readers += 1
        if self._stop is not None:
            self._stop.cancel()
            self._stop = None

    def leave(self) -> None:
        """Count a reader out; without any, the watch ends after a while."""
        self._readers -= 1
        if not self._readers:
            loop = asyncio.get_running_loop()
            self._stop = loop.call_later(RESUME_SECONDS, self.task.cancel)

    async def wait_established(self) -> None:
        """Wait until nothing is missed any more; raise what hinders it."""
        await self._established.wait()
        if self._error is not None:
            raise self._error

    async def _run(self) -> None:
        target = self._target
        try:
            async with aclosing(target.watch_workloads(self._project)) as changed:
                async for workload in changed:
                    if workload is None:
                        self._established.set()
                        continue
                    try:
                        live = await target.observe(workload)
                    except (NameTaken, NotFound):
                        continue
                    now = live if isinstance(live, Live) else None
                    event = change_event(workload, now, self._hub.base_url)
                    self._hub.publish(self._project, event)
        except HoldfastError as error:
            self._error = error
            logs.event(
                "change_feed_ended",
                level=logging.WARNING,
                project=self._project,
                why=error.happened,
            )
        finally:
            self._hub.forget(self._project)
            self._established.set()


def _without_pods(live: Live) -> Status:
    """The status of a workload none of whose pods takes requests, whatever was reported last."""
    status = live.status
    if status.phase is not Phase.READY:
        return status
    message = f"None of its pods takes requests at the moment. Reported last: {status.message}"
    return replace(status, phase=Phase.BOOTSTRAPPING, message=message)


def _no_op() -> None:
    """The Service counts and probes for itself."""


READER = Writer(manager=SERVER_MANAGER, operation="read")


async def list_cluster_workloads(services: Services, request: Request) -> HttpResponse:
    """List the workloads of a project by slug; all of them unless a limit is given."""
    query = request.known_query("limit", "after")
    limit = request.number("limit", default=MAX_PAGE, high=MAX_PAGE) if "limit" in query else None
    project = request.params["project"]
    after = query.get("after", "")
    found = [live for live in await _reading_target(services).list(project) if live.id.slug > after]
    forms = [workload_form(services, live) for live in found[:limit]]
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
    return workload_response(services, _require_live(live), status=201)


async def get_cluster_workload(services: Services, request: Request) -> HttpResponse:
    """Return one workload, or 304 when the client has this version already."""
    live = await _cluster_of(services).live(_workload_id(request))
    if has_version(request, b"if-none-match", live.version):
        return HttpResponse(status=304, headers=[entity_tag(live.version)])
    return workload_response(services, live)


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
    return workload_response(services, _require_live(after))


async def delete_cluster_workload(services: Services, request: Request) -> HttpResponse:
    """Delete a workload. Its data keys open nothing any more, as they are for its id."""
    live = await _find_matching(services, request)
    target = _cluster_of(services).target(request.writer("delete"))
    await target.perform(delete_plan(live).steps[0], key=secrets.token_hex(16))
    return HttpResponse(status=204)


async def stream_cluster_readiness(services: Services, request: Request) -> HttpStream:
    """Follow a workload to readiness by what the operator reports."""
    live = await _cluster_of(services).live(_workload_id(request))
    progress = _cluster_of(services).streaming_target().progress(live.id)
    return progress_response(services, request, progress)


async def stream_cluster_logs(services: Services, request: Request) -> HttpStream:
    """Give the last log lines of the pods, and with `follow` those to come."""
    tail, follow = read_log_query(request)
    live = await _cluster_of(services).live(_workload_id(request))
    return log_response(
        _cluster_of(services).streaming_target().logs(live.id, tail=tail, follow=follow)
    )


async def list_cluster_drifts(services: Services, request: Request) -> HttpResponse:
    """List drifts, newest first, as far as the cluster remembers them."""
    asked = read_workload_drift_query(request)
    found = await _reading_target(services).drifts(
        request.params["project"], slug=asked.slug, include_resolved=asked.include_resolved
    )
    return listed_drifts_response(services, found, asked.listed)


async def get_cluster_drift(services: Services, request: Request) -> HttpResponse:
    """Return one drift."""
    found = await _reading_target(services).drifts(request.params["project"], include_resolved=True)
    for drift in found:
        if drift.id == request.params["id"]:
            return json_response(workload_drift_form(services, drift))
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
    """Say which workloads change, from now on or since the last event that the client has."""
    after = read_last_event_id(request)
    project = request.params["project"]
    events = _cluster_of(services).change_feed.follow(services.hub, project, after)
    return event_stream_response(services, request, events)


async def proxy_to_cluster(services: Services, request: Request) -> HttpResponse | HttpStream:
    """Pass a request to a pod of the workload that the key opens."""
    served = await find_keyed_service(services, request, request.params["workload"])
    return await forward_request(services, request, served)


async def find_keyed_service(services: Services, request: Request, slug: str) -> ServedWorkload:
    """Return a workload of the project in the path, if the data key opens it.

    A key of the whole project opens each of its workloads.
    """
    cluster = _cluster_of(services)
    key = request.token.workload_uid if request.token else ""
    where = WorkloadId(project=request.params["project"], slug=slug)
    live = await cluster.recent(where)
    if live is not None and key in (live.uid, None):
        return await cluster.serve_workload(live)
    if key is None:
        raise not_found_error()
    # Answered alike whether the other workload is there or not.
    await cluster.by_uid(where.project, key)
    raise wrong_workload()


async def serve_by_slug(services: Services, request: Request) -> ServedWorkload:
    """Say how the workload whose slug is in the path is reached."""
    cluster = _cluster_of(services)
    return await cluster.serve_workload(await cluster.live(_workload_id(request)))


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
