"""Carries out one step on one InferenceService, guarded by what the step saw.

Each method observes first. What it then sends holds for the object that it observed and for no
other; when only the operator's report came between, it observes and sends again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

import msgspec
from msgspec.structs import replace as replace_struct

from holdfast.adapters.kubernetes.objects import Object, version_of
from holdfast.adapters.kubernetes.target_history import EventHistory, open_drifts
from holdfast.adapters.kubernetes.target_objects import (
    DECLARED_ANNOTATION,
    LAST_WRITE_ANNOTATION,
    PROJECT_LABEL,
    WorkloadObject,
    WriteRecord,
    read_workload_object,
)
from holdfast.core.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    Problem,
    ValidationError,
    report_changes,
)
from holdfast.core.live import Absent, Live
from holdfast.core.names import WorkloadId
from holdfast.core.normalize import normalize_workload
from holdfast.core.plan import Step
from holdfast.core.tree import Fields, Tree, json_pointer
from holdfast.core.workload_write import declared_after_write, fields_after_write
from holdfast.reconcile.kube import ConflictReason, KubeClient, KubeConflict, ref_of
from holdfast.reconcile.ports import Clock
from holdfast.wire.inference_service_v1alpha1 import service_to_json, spec_to_json
from holdfast.wire.service_mapping import service_of
from holdfast.wire.spec_v1 import spec_from_fields

WRITE_ATTEMPTS = 8
"""How often a write is sent again because the object's status changed under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadWriter:
    """One writer's steps. `find` reads a workload, and refuses another project's."""

    client: KubeClient
    ledger: EventHistory
    manager: str
    clock: Clock
    find: Callable[[WorkloadId], Awaitable[WorkloadObject | None]]

    async def create(self, step: Step, write_record: WriteRecord, *, namespace: str) -> Live:
        """Make the object, unless there is one."""
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
            made = await self.client.apply(
                service_to_json(service), manager=self.manager, absent=True
            )
        except KubeConflict as conflict:
            return await self._find_created_before(step, write_record, conflict)
        except NotFound as error:
            raise NotFound(
                f"Workload {step.id} could not be created: {error.happened}",
                hint=f"Make its namespace first: kubectl create namespace {namespace}",
            ) from error
        await self.ledger.record_event(made, "created", f"created with {len(given)} fields")
        return read_workload_object(made).live

    async def update(self, step: Step, write_record: WriteRecord, *, declare: bool | None) -> Live:
        """Write whole fields of the object that the step saw.

        It is declared from then on. Without `declare` it is a change beside the declaration;
        None leaves it to who writes: the one who declared the workload, or another.
        """
        for _ in range(WRITE_ATTEMPTS):
            found = await self.find(step.id)
            if found is not None and _is_repeated(found, write_record):
                return found.live
            if found is None:
                raise Conflict(f"Workload {step.id} was deleted meanwhile.", hint=_OBSERVE_AGAIN)
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
                made = await self.client.patch(ref_of(found.item), operations, manager=self.manager)
            except KubeConflict as conflict:
                if conflict.reason is ConflictReason.CHANGED:
                    continue
                raise Conflict(
                    f"Workload {step.id} was replaced by another of the same slug meanwhile.",
                    hint=_OBSERVE_AGAIN,
                ) from conflict
            except NotFound as error:
                raise Conflict(
                    f"Workload {step.id} was deleted meanwhile.", hint=_OBSERVE_AGAIN
                ) from error
            now = read_workload_object(made)
            await self._note_update(found, now, names, declare=declare)
            return now.live
        raise _contended(step)

    async def delete(self, step: Step) -> Live | Absent:
        """Delete the object that the step saw; what is gone already is no conflict."""
        for _ in range(WRITE_ATTEMPTS):
            found = await self.find(step.id)
            if found is None:
                return Absent(id=step.id)
            check_unchanged(step, found)
            try:
                gone = await self.client.delete(
                    ref_of(found.item), uid=found.live.uid, version=version_of(found.item)
                )
            except KubeConflict as conflict:
                if conflict.reason is ConflictReason.CHANGED:
                    continue
                raise Conflict(
                    f"Workload {step.id} was replaced by another of the same slug meanwhile.",
                    hint=_OBSERVE_AGAIN,
                ) from conflict
            if gone:
                await self.ledger.record_event(found.item, "deleted", "deleted")
            if not found.item["metadata"].get("finalizers"):
                return Absent(id=step.id)
            with report_changes(f"Workload {step.id} is being deleted."):
                left = await self.find(step.id)
            return left.live if left else Absent(id=step.id)
        raise _contended(step)

    async def _find_created_before(
        self, step: Step, write_record: WriteRecord, conflict: KubeConflict
    ) -> Live:
        found = await self.find(step.id)
        if found is not None and _is_repeated(found, write_record):
            return found.live
        raise AlreadyExists(
            f"Workload {step.id} already exists.", hint=_OBSERVE_AGAIN
        ) from conflict

    async def _note_update(
        self, before: WorkloadObject, after: WorkloadObject, names: list[str], *, declare: bool
    ) -> None:
        summary = f"wrote {', '.join(names)}"
        await self.ledger.record_event(after.item, "updated", summary, detail={"fields": [*names]})
        if not declare:
            return
        now = self.clock.now()
        open_still = {record.id for record in open_drifts(after, now)}
        resolution = "reconciled" if before.declared == after.declared else "declared"
        for record in open_drifts(before, now):
            if record.id not in open_still:
                ended = replace(record, resolved_at=now, resolution=resolution)
                await self.ledger.record_event(
                    after.item, "resolved", f"drift {record.id} {resolution}", drift=ended
                )


_OBSERVE_AGAIN = "Observe it again."


def check_unchanged(step: Step, found: WorkloadObject) -> None:
    """Raise Conflict unless the object is the one that the step saw, as it saw it."""
    if found.live.uid != step.uid:
        raise Conflict(
            f"Workload {step.id} was replaced by another of the same slug meanwhile.",
            hint=_OBSERVE_AGAIN,
        )
    if found.live.version != step.version:
        raise Conflict(
            f"Workload {step.id} is not as it was when the step was planned.", hint=_OBSERVE_AGAIN
        )


def _is_repeated(found: WorkloadObject, write_record: WriteRecord) -> bool:
    """True when this very request wrote the object last."""
    if found.write_record is None or found.write_record.key != write_record.key:
        return False
    if found.write_record.request != write_record.request:
        raise reused_key_error()
    return True


def reused_key_error() -> ValidationError:
    """A key that was used for another step: neither outcome would be right."""
    problem = Problem(
        field="Idempotency-Key",
        reason="it was used for another request.",
        fix="Use a new key for each request.",
    )
    return ValidationError(problems=[problem])


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
