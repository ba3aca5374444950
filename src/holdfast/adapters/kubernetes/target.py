"""A cluster as a target: each workload is one InferenceService, which the operator serves.

Nothing is kept beside the objects. A write is guarded by the uid and the resourceVersion of the
object that was observed, so that nobody can come between the observation and the write; when only
the operator's report came between, it is observed and sent again. Called by the SDK and the
command line for `kubernetes://` addresses, and by the control plane.
"""

from __future__ import annotations

import asyncio
import builtins  # `list` is a method here
import copy
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
from msgspec.structs import replace as replace_struct

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.connection import KubeConnection
from holdfast.adapters.kubernetes.kubeconfig import load_config
from holdfast.adapters.kubernetes.objects import Object, uid_of, version_of
from holdfast.adapters.kubernetes.pod_logs import read_logs
from holdfast.adapters.kubernetes.target_history import (
    EventHistory,
    healed_drifts,
    open_drifts,
    reported_drifts,
    written_drift,
)
from holdfast.adapters.kubernetes.target_objects import (
    DECLARED_ANNOTATION,
    LAST_WRITE_ANNOTATION,
    PROJECT_LABEL,
    NameTaken,
    WorkloadObject,
    WriteRecord,
    live_or_error,
    project_of,
    read_workload_object,
    service_display_name,
)
from holdfast.adapters.kubernetes.watch import WatchSilent
from holdfast.core.cost import Cost
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    AlreadyExists,
    Conflict,
    HoldfastError,
    NotFound,
    Problem,
    TargetUnavailable,
    ValidationError,
    report_changes,
)
from holdfast.core.ledger import DriftRecord, HistoryEntry
from holdfast.core.live import Absent, Live, Phase, Progress, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.normalize import normalize_workload
from holdfast.core.plan import (
    Action,
    Step,
    declared_after_write,
    fields_after_write,
    step_back,
)
from holdfast.core.service.spec import API_VERSION, KIND, InferenceService
from holdfast.core.tree import Fields, Tree, digest, json_pointer
from holdfast.core.workload import Desired
from holdfast.reconcile.kube import (
    ConflictReason,
    KindNotServed,
    KubeConflict,
    ObjectList,
    ObjectRef,
    Scope,
    VersionExpired,
    WatchEvent,
    WatchEventType,
    ref_of,
)
from holdfast.reconcile.objects.cost import CostEstimator
from holdfast.reconcile.ports import Clock, reused_key_error
from holdfast.version import __version__
from holdfast.wire.inference_service_v1alpha1 import service_to_json, spec_to_json
from holdfast.wire.service_mapping import service_of, unsupported_on_kubernetes
from holdfast.wire.spec_v1 import spec_from_fields


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


WRITE_ATTEMPTS = 8
"""How often a write is sent again because the object's status changed under it."""
COST_SECONDS = 5.0
"""Seconds that the question what a step costs may take; then it is unknown."""
REMEMBERED_OUTCOMES = 256
"""Outcomes kept for calls that are repeated with the same key."""
T = TypeVar("T")
_OBSERVE_AGAIN = "Observe it again."
_REPLACED = "was replaced by another of the same slug meanwhile"
_DELETED = "was deleted meanwhile"


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
        self._costs = CostEstimator(api, clock)
        self._outcomes: OrderedDict[str, _RememberedOutcome] = OrderedDict()

    def __repr__(self) -> str:
        return f"KubernetesTarget({self.api.connection!r}, namespace={self._namespace!r})"

    def within(self, seconds: float | None) -> KubernetesTarget:
        """Return this target with a total deadline for everything asked through it."""
        limited = copy.copy(self)
        limited._deadline = None if seconds is None else self._clock.monotonic() + seconds
        return limited

    def writing_as(self, writer: Writer) -> KubernetesTarget:
        """Return this target for another writer; connection and remembered outcomes are shared."""
        other = copy.copy(self)
        other._writer = writer
        other._ledger = EventHistory(self.api, writer=writer, clock=self._clock)
        return other

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

    async def cost(self, step: Step) -> Cost | None:
        """Say what the operator does to pods when it has this step to carry out."""
        try:
            async with asyncio.timeout(COST_SECONDS), self._limit():
                found = await self._find(step.id)
                if found is not None:
                    check_unchanged(step, found)
                elif step.uid is not None:
                    return None
                before = found.service if found else None
                return await self._costs.cost_of_service(before, self._service_after(step, found))
        except (HoldfastError, TimeoutError):
            return None

    def _service_after(self, step: Step, found: WorkloadObject | None) -> InferenceService | None:
        """The service as it will be after a step; None for none."""
        if step.action is Action.DELETE:
            return None
        live = found.live.fields if found else {}
        spec = spec_from_fields(step.id.slug, fields_after_write(live, step.write))
        if found is None:
            return service_of(spec, namespace=self.namespace_of(step.id.project))
        return service_of(spec, namespace=found.service.namespace, base=found.service)

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
            after: Live | Absent
            match step.action:
                case Action.CREATE:
                    after = await self._create(step, mark)
                case Action.DELETE:
                    after = await self._delete(step)
                case _:
                    after = await self._update(step, mark, declare=declare)
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
            written: dict[str, WorkloadObject] = {}
            for item in await self._items(project, slug):
                try:
                    found = read_workload_object(item)
                except ValidationError:  # the list of workloads says what is wrong with it
                    continue
                if drift := written_drift(found, now):
                    records.append(drift)
                    written[drift.id] = found
                records += reported_drifts(found, now)
                if include_resolved:
                    records += healed_drifts(found)
            if include_resolved:
                namespace = self.namespace_of(project)
                records += await self._ledger.list_resolved(namespace, project, slug=slug)
        costs = await self._costs_of_drifts(written)
        records = [replace(each, cost=costs.get(each.id, each.cost)) for each in records]
        return sorted(records, key=lambda record: record.first_seen, reverse=True)

    async def _costs_of_drifts(
        self, written: Mapping[str, WorkloadObject]
    ) -> dict[str, Cost | None]:
        """Say what it costs to write each workload of one namespace as declared, by the id of its
        drift, as far as that is known in time. What starts took is asked once for all."""
        known: dict[str, Cost | None] = {}
        if not written:
            return known
        with suppress(HoldfastError, TimeoutError):
            async with asyncio.timeout(COST_SECONDS), self._limit():
                services = [found.service for found in written.values()]
                cold_starts = await self._costs.cold_starts(services)
                for id, found in written.items():
                    with suppress(ValidationError):  # what was declared can be spoilt
                        step = step_back(found.live, found.declared or {})
                        known[id] = await self._costs.cost_of_service(
                            found.service,
                            self._service_after(step, found),
                            cold_starts=cold_starts,
                        )
                    await asyncio.sleep(0)  # to render takes a while; others, and the time, count
        return known

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

    async def _create(self, step: Step, write_record: WriteRecord) -> Live:
        """Make the object, unless there is one."""
        namespace = self.namespace_of(step.id.project)
        given = {name: value for name, value in step.write.items() if value is not None}
        spec = spec_from_fields(step.id.slug, given)
        service = replace(
            service_of(spec, namespace=namespace),
            labels={PROJECT_LABEL: step.id.project},
            annotations={
                DECLARED_ANNOTATION: _to_json(spec.fields()),
                LAST_WRITE_ANNOTATION: _to_json(write_record),
            },
        )
        try:
            made = await self.api.apply(
                service_to_json(service), manager=self._writer.manager, absent=True
            )
        except KubeConflict as conflict:
            return await self._find_created_before(step, write_record, conflict)
        except NotFound as error:
            raise NotFound(
                f"Workload {step.id} could not be created: {error.happened}",
                hint=f"Make its namespace first: kubectl create namespace {namespace}",
            ) from error
        await self._ledger.record_event(made, "created", f"created with {len(given)} fields")
        return read_workload_object(made).live

    async def _update(self, step: Step, write_record: WriteRecord, *, declare: bool | None) -> Live:
        """Write whole fields of the object that the step saw.

        It is declared from then on. Without `declare` it is a change beside the declaration;
        None leaves it to who writes: the one who declared the workload, or another.
        """
        for _ in range(WRITE_ATTEMPTS):
            found = await self._find(step.id)
            if found is not None and _is_repeated(found, write_record):
                return found.live
            if found is None:
                raise _changed(step, _DELETED)
            check_unchanged(step, found)
            live = found.live
            if declare is None:
                declare = found.write_record is None or found.write_record.by == write_record.by
            spec = spec_from_fields(step.id.slug, fields_after_write(live.fields, step.write))
            fields = spec.fields()
            if normalize_workload(fields) == normalize_workload(live.fields):
                return live
            after = service_of(spec, namespace=found.service.namespace, base=found.service)
            names = [name for name in step.write if fields.get(name) != live.fields.get(name)]
            declared = found.declared
            if declare:
                declared = declared_after_write(
                    step.write, declared=declared or {}, before=live.fields, after=fields
                )
            elif found.write_record is not None:
                write_record = replace_struct(write_record, by=found.write_record.by)
            operations = [
                *_guard_operations(found.item),
                *_spec_operations(spec_to_json(found.service.spec), spec_to_json(after.spec)),
                *_metadata_operations(found.item, step.id, declared, write_record),
            ]
            try:
                made = await self.api.patch(
                    ref_of(found.item), operations, manager=self._writer.manager
                )
            except KubeConflict as conflict:
                if conflict.reason is ConflictReason.CHANGED:
                    continue
                raise _changed(step, _REPLACED) from conflict
            except NotFound as error:
                raise _changed(step, _DELETED) from error
            now = read_workload_object(made)
            await self._note_update(found, now, names, declare=declare)
            return now.live
        raise _contended(step)

    async def _delete(self, step: Step) -> Live | Absent:
        """Delete the object that the step saw; what is gone already is no conflict."""
        for _ in range(WRITE_ATTEMPTS):
            found = await self._find(step.id)
            if found is None:
                return Absent(id=step.id)
            check_unchanged(step, found)
            try:
                gone = await self.api.delete(
                    ref_of(found.item), uid=found.live.uid, version=version_of(found.item)
                )
            except KubeConflict as conflict:
                if conflict.reason is ConflictReason.CHANGED:
                    continue
                raise _changed(step, _REPLACED) from conflict
            if gone:
                await self._ledger.record_event(found.item, "deleted", "deleted")
            if not found.item["metadata"].get("finalizers"):
                return Absent(id=step.id)
            with report_changes(f"Workload {step.id} is being deleted."):
                left = await self._find(step.id)
            return left.live if left else Absent(id=step.id)
        raise _contended(step)

    async def _find_created_before(
        self, step: Step, write_record: WriteRecord, conflict: KubeConflict
    ) -> Live:
        found = await self._find(step.id)
        if found is not None and _is_repeated(found, write_record):
            return found.live
        raise AlreadyExists(
            f"Workload {step.id} already exists.", hint=_OBSERVE_AGAIN
        ) from conflict

    async def _note_update(
        self,
        before: WorkloadObject,
        after: WorkloadObject,
        names: builtins.list[str],
        *,
        declare: bool,
    ) -> None:
        summary = f"wrote {', '.join(names)}"
        await self._ledger.record_event(after.item, "updated", summary, detail={"fields": [*names]})
        if not declare:
            return
        now = self._clock.now()
        open_still = {record.id for record in open_drifts(after, now)}
        resolution = "reconciled" if before.declared == after.declared else "declared"
        for record in open_drifts(before, now):
            if record.id not in open_still:
                ended = replace(record, resolved_at=now, resolution=resolution, cost=None)
                await self._ledger.record_event(
                    after.item, "resolved", f"drift {record.id} {resolution}", drift=ended
                )

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


def _changed(step: Step, how: str) -> Conflict:
    return Conflict(f"Workload {step.id} {how}.", hint=_OBSERVE_AGAIN)


def check_unchanged(step: Step, found: WorkloadObject) -> None:
    """Raise Conflict unless the object is the one that the step saw, as it saw it."""
    if found.live.uid != step.uid:
        raise _changed(step, _REPLACED)
    if found.live.version != step.version:
        raise _changed(step, "is not as it was when the step was planned")


def _is_repeated(found: WorkloadObject, write_record: WriteRecord) -> bool:
    """True when this very request wrote the object last."""
    if found.write_record is None or found.write_record.key != write_record.key:
        return False
    if found.write_record.request != write_record.request:
        raise reused_key_error()
    return True


def _guard_operations(item: Object) -> list[Fields]:
    """Given as values and not as tests: the API server then says itself that it is a conflict."""
    return [
        {"op": "add", "path": "/metadata/uid", "value": item["metadata"]["uid"]},
        {"op": "add", "path": "/metadata/resourceVersion", "value": version_of(item)},
    ]


def _spec_operations(before: Fields, after: Fields) -> list[Fields]:
    changed: list[Fields] = [
        {"op": "add", "path": json_pointer(("spec", name)), "value": value}
        for name, value in after.items()
        if before.get(name) != value
    ]
    return changed + [
        {"op": "remove", "path": json_pointer(("spec", name))}
        for name in before
        if name not in after
    ]


def _metadata_operations(
    item: Object,
    workload: WorkloadId,
    declared: Mapping[str, Tree] | None,
    write_record: WriteRecord,
) -> list[Fields]:
    """Write what we keep on the object: whose it is, what was declared, the key of the write."""
    metadata = item["metadata"]
    entries: list[tuple[str, str, str]] = [
        ("labels", PROJECT_LABEL, workload.project),
        ("annotations", LAST_WRITE_ANNOTATION, _to_json(write_record)),
    ]
    if declared is not None:
        entries.append(("annotations", DECLARED_ANNOTATION, _to_json(declared)))
    made: list[Fields] = [
        {"op": "add", "path": f"/metadata/{part}", "value": {}}
        for part in ("labels", "annotations")
        if not metadata.get(part)
    ]
    return made + [
        {"op": "add", "path": json_pointer(("metadata", part, name)), "value": value}
        for part, name, value in entries
    ]


def _contended(step: Step) -> Conflict:
    return Conflict(
        f"InferenceService {step.id.slug} was written by others {WRITE_ATTEMPTS} times meanwhile.",
        hint="Find out who keeps writing it (kubectl get hold --show-managed-fields).",
    )


def _to_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
