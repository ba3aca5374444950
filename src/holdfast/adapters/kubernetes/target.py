"""A cluster as a target: each workload is one InferenceService, which the operator serves.

Nothing is kept beside the objects. A write is guarded by the uid and the resourceVersion of the
object that was observed, so that nobody can come between the observation and the write. Called by
the SDK and the command line for `kubernetes://` addresses, and by the control plane.
"""

from __future__ import annotations

import asyncio
import builtins  # `list` is a method here
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.connection import KubeConnection
from holdfast.adapters.kubernetes.kubeconfig import load_config
from holdfast.adapters.kubernetes.objects import Object, uid_of, version_of
from holdfast.adapters.kubernetes.pod_logs import read_logs
from holdfast.adapters.kubernetes.target_history import EventHistory, healed_drifts, open_drifts
from holdfast.adapters.kubernetes.target_objects import (
    PROJECT_LABEL,
    NameTaken,
    WorkloadObject,
    WriteRecord,
    live_or_error,
    project_of,
    read_workload_object,
    service_display_name,
)
from holdfast.adapters.kubernetes.target_writes import WorkloadWriter, reused_key_error
from holdfast.adapters.kubernetes.watch import WatchSilent
from holdfast.core.desired import Desired
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    NotFound,
    Problem,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.ledger import DriftRecord, HistoryEntry
from holdfast.core.live import Absent, Live, Phase, Progress, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.plan import Action, Step
from holdfast.core.service.spec import API_VERSION, KIND
from holdfast.core.tree import digest
from holdfast.reconcile.kube import (
    KindNotServed,
    ObjectList,
    ObjectRef,
    Scope,
    VersionExpired,
    WatchEvent,
    WatchEventType,
)
from holdfast.reconcile.ports import Clock
from holdfast.version import __version__
from holdfast.wire.service_mapping import unsupported_on_kubernetes


async def follow_progress(
    api: KubeApi, first: Object, *, clock: Clock
) -> AsyncGenerator[Progress, None]:
    """Yield how the workload does, now and at each change, up to `ready` or `error`."""
    began = clock.monotonic()
    metadata = first["metadata"]
    events = _watch_events(
        api, metadata["namespace"], version_of(first), fields=f"metadata.name={metadata['name']}"
    )
    last: tuple[Phase, str] | None = None
    item = first
    async with aclosing(events):
        while True:
            live = live_or_error(item)
            status = live.status
            if (status.phase, status.message) != last:
                last = status.phase, status.message
                yield Progress(
                    phase=status.phase,
                    message=status.message,
                    elapsed_ms=round((clock.monotonic() - began) * 1000),
                    step=f"{status.ready}/{status.wanted} ready" if status.wanted else None,
                )
                if status.phase in (Phase.READY, Phase.ERROR):
                    return
            event = await anext(events, None)
            if event is None:
                return
            item = event.item
            if event.type is WatchEventType.DELETED or uid_of(item) != uid_of(first):
                raise NotFound(f"Workload {live.id} was deleted while it was waited for.")


async def _watch_events(
    api: KubeApi, namespace: str, version: str, *, fields: str = ""
) -> AsyncGenerator[WatchEvent, None]:
    """Yield events without bookmarks. An end means that events may have been missed."""
    while True:
        try:
            stream = api.watch(_services(namespace), version=version, fields=fields)
            async with aclosing(stream) as events:
                async for event in events:
                    version = version_of(event.item) or version
                    if event.type is not WatchEventType.BOOKMARK:
                        yield event
        except (VersionExpired, WatchSilent):
            return


def _services(namespace: str, labels: str = "") -> Scope:
    return Scope(api_version=API_VERSION, kind=KIND, namespace=namespace, labels=labels)


REMEMBERED_OUTCOMES = 256
"""Outcomes kept for calls that are repeated with the same key."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _RememberedOutcome:
    request: str
    live: Live | Absent


class KubernetesTarget:
    """The `ControlTarget` port over one cluster.

    `namespace` holds all projects; left empty, each project has the namespace of its name.
    `discreet` is for callers of whom one project must not learn of another.
    """

    def __init__(
        self,
        api: KubeApi,
        *,
        writer: Writer,
        clock: Clock,
        namespace: str = "",
        discreet: bool = False,
    ) -> None:
        self.api = api
        self._writer = writer
        self._clock = clock
        self._namespace = namespace
        self._discreet = discreet
        self._deadline: float | None = None
        self._ledger = EventHistory(api, writer=writer, clock=clock)
        self._outcomes: OrderedDict[str, _RememberedOutcome] = OrderedDict()

    def __repr__(self) -> str:
        return f"KubernetesTarget({self.api.connection!r}, namespace={self._namespace!r})"

    def within(self, seconds: float | None) -> KubernetesTarget:
        """Return this target with a total deadline for everything asked through it."""
        limited = self._as(self._writer)
        limited._deadline = None if seconds is None else self._clock.monotonic() + seconds
        return limited

    def writing_as(self, writer: Writer) -> KubernetesTarget:
        """Return this target for another writer; the connection is shared."""
        return self._as(writer)

    def namespace_of(self, project: str) -> str:
        """Say in which namespace a project's workloads are."""
        return self._namespace or project

    def refuses(self, desired: Desired) -> Sequence[Problem]:
        """Say what an InferenceService cannot carry or Kubernetes cannot honour."""
        return unsupported_on_kubernetes(desired.id.slug, desired.fields)

    async def observe(self, workload: WorkloadId) -> Live | Absent:
        """Read one InferenceService. Raises NameTaken for a name that another project has."""
        async with self._limit():
            found = await self._find(workload)
        return found.live if found else Absent(id=workload)

    async def perform(self, step: Step, *, key: str) -> Live | Absent:
        """Carry out one step, once per key."""
        return await self.write(step, key=key, declare=True)

    async def write(self, step: Step, *, key: str, declare: bool | None) -> Live | Absent:
        """Carry out one step, declaring what it writes, or not; None if it is the declarer's."""
        if step.action is Action.NOTHING:
            return await self.observe(step.id)
        basis = [str(step.id), step.action.value, step.write, step.uid, step.version]
        mark = WriteRecord(
            key=digest([step.id.project, key]), request=digest(basis), by=str(self._writer)
        )
        kept = self._outcomes.get(mark.key)
        if kept is not None:
            if kept.request != mark.request:
                raise reused_key_error()
            return kept.live
        async with self._limit(writes=True):
            after = await self._act(step, mark, declare=declare)
        self._outcomes[mark.key] = _RememberedOutcome(request=mark.request, live=after)
        while len(self._outcomes) > REMEMBERED_OUTCOMES:
            self._outcomes.popitem(last=False)
        return after

    async def list(self, project: str) -> Sequence[Live]:
        """Read every InferenceService of the project."""
        async with self._limit():
            return [live_or_error(item) for item in await self._items(project)]

    async def progress(self, workload: WorkloadId) -> AsyncIterator[Progress]:
        """Follow the status that the operator writes."""
        async with self._limit():
            found = await self._require(workload)
        updates = follow_progress(self.api, found.item, clock=self._clock)
        async with aclosing(self._each(updates)) as limited:
            async for progress in limited:
                yield progress

    async def changes(self, project: str) -> AsyncIterator[None]:
        """Yield once the watch stands, then whenever something in the namespace changed."""
        async with aclosing(self.watch_workloads(project)) as found:
            async for _ in found:
                yield None

    async def watch_workloads(self, project: str) -> AsyncGenerator[WorkloadId | None, None]:
        """Yield None once the watch stands, then each workload of the project that changed."""
        namespace = self.namespace_of(project)
        async with self._limit():
            version = (await self._list(namespace)).version
        yield None
        async with aclosing(self._each(_watch_events(self.api, namespace, version))) as events:
            async for event in events:
                workload = live_or_error(event.item).id
                if workload.project == project:
                    yield workload

    async def drifts(
        self, project: str, *, slug: str | None = None, include_resolved: bool = False
    ) -> Sequence[DriftRecord]:
        """Compare declarations with what is there; ended drifts come from Events."""
        now = self._clock.now()
        async with self._limit():
            records: list[DriftRecord] = []
            for item in await self._items(project, slug):
                try:
                    found = read_workload_object(item)
                except ValidationError:  # the list of workloads says what is wrong with it
                    continue
                records += open_drifts(found, now)
                if include_resolved:
                    records += healed_drifts(found)
            if include_resolved:
                namespace = self.namespace_of(project)
                records += await self._ledger.list_resolved(namespace, project, slug=slug)
        return sorted(records, key=lambda record: record.first_seen, reverse=True)

    async def history(
        self, project: str, *, slug: str | None = None, limit: int = 100
    ) -> Sequence[HistoryEntry]:
        """Tell what Events and field ownership say, newest first."""
        async with self._limit():
            items = await self._items(project, slug)
            rows = await self._ledger.history(self.namespace_of(project), project, items, slug=slug)
        return rows[:limit]

    async def logs(self, workload: WorkloadId, *, tail: int, follow: bool) -> AsyncIterator[str]:
        """Read the logs of the workload's pods."""
        async with self._limit():
            found = await self._require(workload)
        namespace = found.service.namespace
        lines = read_logs(self.api, namespace, workload.slug, tail=tail, follow=follow)
        async with aclosing(self._each(lines)) as limited:
            async for line in limited:
                yield line

    async def aclose(self) -> None:
        """Close the connection."""
        await self.api.aclose()

    async def _act(
        self, step: Step, write_record: WriteRecord, *, declare: bool | None
    ) -> Live | Absent:
        writes = WorkloadWriter(
            client=self.api,
            ledger=self._ledger,
            manager=self._writer.manager,
            clock=self._clock,
            find=self._find,
        )
        match step.action:
            case Action.CREATE:
                namespace = self.namespace_of(step.id.project)
                return await writes.create(step, write_record, namespace=namespace)
            case Action.DELETE:
                return await writes.delete(step)
            case _:
                return await writes.update(step, write_record, declare=declare)

    async def _find(self, workload: WorkloadId) -> WorkloadObject | None:
        """Read one object, if it is this project's. Absent only on the cluster's own word."""
        ref = ObjectRef(
            api_version=API_VERSION,
            kind=KIND,
            namespace=self.namespace_of(workload.project),
            name=workload.slug,
        )
        try:
            item: Object | None = await self.api.get(ref)
        except KindNotServed as error:
            raise not_installed(error) from error
        if item is None:
            return None
        owner = project_of(item)
        if owner != workload.project:
            raise self._taken(workload, owner, item)
        return read_workload_object(item)

    def _taken(self, workload: WorkloadId, owner: str, item: Object) -> NameTaken:
        what = f"InferenceService {service_display_name(item)}"
        labelled = PROJECT_LABEL in (item["metadata"].get("labels") or {})
        why = "its label says so" if labelled else "it has no label, and that is its namespace"
        belongs = "belongs to another project"
        if not self._discreet:
            belongs = f"belongs to project {owner} ({why})"
        return NameTaken(
            f"{what} {belongs}, so the slug {workload.slug} is taken for project "
            f"{workload.project}.",
            hint="Choose another slug, or give each project a namespace of its own.",
        )

    async def _require(self, workload: WorkloadId) -> WorkloadObject:
        found = await self._find(workload)
        if found is None:
            raise NotFound(f"There is no workload {workload}.", hint="Create it first.")
        return found

    async def _items(self, project: str, slug: str | None = None) -> builtins.list[Object]:
        namespace = self.namespace_of(project)
        # Objects without the label belong to the project of their namespace.
        labels = "" if project == namespace else f"{PROJECT_LABEL}={project}"
        fields = f"metadata.name={slug}" if slug else ""
        items: Sequence[Object] = (await self._list(namespace, labels, fields)).items
        mine = [item for item in items if project_of(item) == project]
        return sorted(mine, key=lambda item: str(item["metadata"]["name"]))

    async def _list(self, namespace: str, labels: str = "", fields: str = "") -> ObjectList:
        try:
            return await self.api.list(_services(namespace, labels), fields=fields)
        except KindNotServed as error:
            raise not_installed(error) from error

    def _as(self, writer: Writer) -> KubernetesTarget:
        other = KubernetesTarget(
            self.api,
            writer=writer,
            clock=self._clock,
            namespace=self._namespace,
            discreet=self._discreet,
        )
        other._deadline = self._deadline
        other._outcomes = self._outcomes
        return other

    @asynccontextmanager
    async def _limit(self, *, writes: bool = False) -> AsyncIterator[None]:
        """Keep the total deadline over everything in the block."""
        if self._deadline is None:
            yield
            return
        left = self._deadline - self._clock.monotonic()
        try:
            async with asyncio.timeout(max(left, 0.0)):
                yield
        except TimeoutError:
            raise TargetUnavailable(
                f"The cluster at {self.api.connection.config.server} did not answer in time.",
                changed=OUTCOME_UNKNOWN if writes else NOTHING_CHANGED,
                hint="Check the API server, or allow more time (timeout).",
            ) from None

    async def _each(self, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Pass items on while the deadline lasts. It never stands around a yield."""
        async with aclosing(items):
            while True:
                try:
                    async with self._limit():
                        item = await anext(items)
                except StopAsyncIteration:
                    return
                yield item


def not_installed(error: KindNotServed) -> KindNotServed:
    """Say how to install the definition that is missing."""
    return KindNotServed(
        f"The cluster does not know InferenceServices. {error.happened}",
        hint="Install Holdfast's definitions: holdfast install --export | kubectl apply -f -",
    )


def open_kubernetes_target(
    context: str, namespace: str, *, writer: Writer, timeout: float, discreet: bool = False
) -> KubernetesTarget:
    """Return the target. Raises ConfigurationError when there is no such cluster."""
    clock = SystemClock()
    config = load_config(context or None, clock=clock)
    agent = f"{writer.manager}/{__version__}"
    api = KubeApi(
        KubeConnection(config, clock=clock, user_agent=agent),
        manager=writer.manager,
        timeout=timeout,
    )
    return KubernetesTarget(api, writer=writer, clock=clock, namespace=namespace, discreet=discreet)
