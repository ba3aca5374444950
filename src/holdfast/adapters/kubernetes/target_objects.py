"""An InferenceService as a workload: whose it is, what was declared, who wrote what, how it does.

Pure functions over objects as the API server has them. `target` and `target_ledger` call them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from holdfast.adapters.kubernetes.objects import Object, uid_of
from holdfast.core.errors import Conflict, ValidationError
from holdfast.core.live import Live, Phase, Status, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.ownership.managed_fields import (
    ManagedFieldsEntry,
    Ownership,
    read_ownership,
    touches,
)
from holdfast.core.service.pod import startup_seconds
from holdfast.core.service.spec import InferenceService, InferenceServiceStatus
from holdfast.core.tree import Fields
from holdfast.wire.inference_service_v1alpha1 import service_from_json
from holdfast.wire.service_mapping import RESOURCE_FIELDS, spec_of, spell_as_declared

PROJECT_LABEL = "holdfast.dev/project"
"""The label that says whose a workload is; without it, it belongs to its namespace's project."""
DECLARED_ANNOTATION = "holdfast.dev/declared"
"""The annotation with the fields as they were declared through Holdfast, as JSON."""
LAST_WRITE_ANNOTATION = "holdfast.dev/last-write"
"""The annotation with the key of the last write, which makes it safe to repeat."""
HOLDFAST_MANAGERS = frozenset({"holdfast-sdk", "holdfast-cli"})
NOT_OBSERVED = "No operator has taken it up yet."
_FAILED_REASONS = frozenset(
    {
        "InvalidSpec",
        "MultiNodeNotInstalled",
        "ForeignObject",
        "RolloutStuck",
        "Fighting",
        "AlteredByAdmission",
        "PodsCannotStart",
        "PodsRefused",
    }
)
"""Why a service is not ready and will not be by waiting. Pods that fail otherwise may recover."""


class NameTaken(Conflict):
    """The name of a workload is another project's in the same namespace."""


class WriteRecord(msgspec.Struct, frozen=True):
    """Which request wrote an object last, and who sent it."""

    key: str
    """A digest: the key itself is the caller's."""
    request: str
    by: str = ""
    """Who declared the workload; a write of another beside the declaration leaves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadObject:
    """One object, read."""

    item: Object
    service: InferenceService
    live: Live
    declared: Fields | None
    write_record: WriteRecord | None


def project_of(item: Object) -> str:
    """Say which project an object belongs to."""
    metadata = item["metadata"]
    return str((metadata.get("labels") or {}).get(PROJECT_LABEL) or metadata.get("namespace", ""))


def read_workload_object(item: Object) -> WorkloadObject:
    """Read an object. Raises ValidationError for one that is no workload of ours."""
    where = WorkloadId(project=project_of(item), slug=str(item["metadata"]["name"]))
    try:
        service = service_from_json(item)
        fields = spec_of(service).fields()
    except ValidationError as error:
        raise ValidationError(
            f"InferenceService {service_display_name(item)} cannot be read as a workload.",
            problems=error.problems,
            hint="Fix it with kubectl edit, or delete it.",
        ) from error
    annotations = service.annotations
    declared = _decode_fields(annotations.get(DECLARED_ANNOTATION))
    if declared is not None:
        fields = spell_as_declared(fields, where.slug, declared)
    ownership = read_ownership(item["metadata"].get("managedFields"))
    return WorkloadObject(
        item=item,
        service=service,
        live=replace(
            _live_without_fields(item, where),
            fields=fields,
            writers=_writers(fields, ownership),
            status=workload_status(service),
            updated_at=_last_write_time(ownership)
            or _time(item["metadata"].get("creationTimestamp")),
        ),
        declared=declared,
        write_record=_decode_write_record(annotations.get(LAST_WRITE_ANNOTATION)),
    )


def live_or_error(item: Object) -> Live:
    """Read an object for a list, where one that cannot be read must not hide the others."""
    try:
        return read_workload_object(item).live
    except ValidationError as error:
        where = WorkloadId(project=project_of(item), slug=str(item["metadata"]["name"]))
        status = Status(
            phase=Phase.ERROR, message=error.happened, drift_unknown="It cannot be read."
        )
        return replace(_live_without_fields(item, where), status=status)


def service_display_name(item: Object) -> str:
    """Name an object for a message."""
    return f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"


def workload_version(item: Object) -> str:
    """Return what changes with every write of the spec, and not when the operator reports."""
    return f"{uid_of(item)[:8]}.{item['metadata'].get('generation', 0)}"


def workload_status(service: InferenceService) -> Status:
    """Say how a workload does, by what the operator wrote."""
    reported = service.status
    spec = service.spec
    if service.deleting:
        return Status(phase=Phase.ERROR, message="It is being deleted.")
    declared = (spec.min_replicas if spec.autoscaled else spec.replicas) or 1
    if spec.scales_to_zero:
        declared = 0
    if reported is None:
        return Status(phase=Phase.SCHEDULING, message=NOT_OBSERVED, wanted=declared)
    behind = (reported.observed_generation or 0) < service.generation
    phase = Phase.SCHEDULING if behind else _phase(reported)
    return Status(
        phase=phase,
        message="The operator has not seen the last change yet." if behind else reported.message,
        ready=reported.ready_replicas or 0,
        wanted=max(declared, reported.replicas) if spec.autoscaled else declared,
        canary_weight=reported.canary_weight or 0,
        endpoint=reported.url,
        suspended=_true_condition(reported, "Suspended"),
        scaled_to_zero=_true_condition(reported, "ScaledToZero"),
        wake_budget=startup_seconds(service) if spec.scales_to_zero else None,
        drift_unknown=_unknown_condition(reported, "DriftDetected"),
        runtime=reported.runtime or (),
        runtime_unknown=_unknown_condition(reported, "RuntimeVerified"),
    )


def _true_condition(reported: InferenceServiceStatus, kind: str) -> str:
    """Say what a condition that is True says; empty otherwise."""
    found = next((each for each in reported.conditions if each.type == kind), None)
    return found.message or found.reason if found and found.status == "True" else ""


def _unknown_condition(reported: InferenceServiceStatus, type: str) -> str:
    """Why a condition is unknown; empty where it is not, or is not there."""
    found = next((each for each in reported.conditions if each.type == type), None)
    if found is None or found.status != "Unknown":
        return ""
    return found.message or found.reason or "The operator does not say why."


def _phase(reported: InferenceServiceStatus) -> Phase:
    if reported.ready:
        return Phase.READY
    if any(each.type == "Ready" and each.reason in _FAILED_REASONS for each in reported.conditions):
        return Phase.ERROR
    return Phase.BOOTSTRAPPING if reported.replicas else Phase.PROVISIONING


def _live_without_fields(item: Object, where: WorkloadId) -> Live:
    metadata = item["metadata"]
    return Live(
        id=where,
        uid=uid_of(item),
        version=workload_version(item),
        generation=int(metadata.get("generation", 0)),
        fields={},
        created_at=_time(metadata.get("creationTimestamp")),
    )


def _writers(fields: Fields, ownership: Ownership) -> dict[str, Writer]:
    """Give each field its last writer, where the API server knows one."""
    found: dict[str, Writer] = {}
    for name in fields:
        entry = _last_owner(ownership, [("spec", part) for part in RESOURCE_FIELDS[name]])
        if entry is None and name == "name":
            # Not written where it is the object's own name, which came with the object.
            entry = _last_owner(ownership, [("metadata", "labels", PROJECT_LABEL)])
        if entry is not None:
            found[name] = entry.writer
    return found


def _last_owner(ownership: Ownership, paths: list[tuple[str, ...]]) -> ManagedFieldsEntry | None:
    owners = [
        entry
        for entry in ownership.entries
        if entry.subresource != "status" and any(touches(entry.paths, path) for path in paths)
    ]
    return max(owners, key=_recency, default=None)


def _recency(entry: ManagedFieldsEntry) -> tuple[bool, float, bool]:
    """Times are whole seconds; of two in one second, the other tool came after us or is us."""
    at = entry.at.timestamp() if entry.at else 0.0
    return entry.at is not None, at, entry.manager not in HOLDFAST_MANAGERS


def _last_write_time(ownership: Ownership) -> datetime | None:
    times = [entry.at for entry in ownership.entries if entry.at and entry.subresource != "status"]
    return max(times, default=None)


def _time(value: object) -> datetime | None:
    return datetime.fromisoformat(str(value)) if value else None


def _decode_fields(text: str | None) -> Fields | None:
    """Read the declaration; None when there is none, or somebody spoilt it."""
    try:
        value: Any = msgspec.json.decode(text or "")  # Any: JSON of any shape
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return dict(value) if isinstance(value, Mapping) else None


def _decode_write_record(text: str | None) -> WriteRecord | None:
    try:
        return msgspec.json.decode(text or "", type=WriteRecord)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
