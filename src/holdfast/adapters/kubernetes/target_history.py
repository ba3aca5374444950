"""What a cluster remembers of its workloads, as drifts and history.

Three sources, each with its limits. The declaration in an annotation against the live fields
says what has drifted now, and `managedFields` who wrote it. What the operator found on the objects
it keeps stands in the status. Everything past is an Event, and a cluster keeps those for an hour
unless it was told otherwise. So each write of ours leaves an Event, beside the write and not in one
transaction with it; a write without one still shows in `managedFields`.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.objects import Object, uid_of
from holdfast.adapters.kubernetes.target_objects import (
    HOLDFAST_MANAGERS,
    PROJECT_LABEL,
    WorkloadObject,
    project_of,
)
from holdfast.core.drift import Cause, DriftKind, find_drift, runtime_drift
from holdfast.core.errors import HoldfastError
from holdfast.core.ledger import DriftEntry, DriftRecord, HistoryEntry, drift_entry_of
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId
from holdfast.core.node_health import HardwareFailure, read_time
from holdfast.core.ownership.managed_fields import read_ownership
from holdfast.core.redact import redact
from holdfast.core.service.facts import ConditionReason
from holdfast.core.service.spec import API_VERSION, KIND, Condition
from holdfast.core.tree import Fields, digest
from holdfast.core.workload import Desired
from holdfast.reconcile.kube import Scope
from holdfast.reconcile.ports import Clock
from holdfast.wire.decode import reshape
from holdfast.wire.ledger_v1 import DriftForm, drift_from_json, drift_to_json
from holdfast.wire.plan_v1 import WriterForm

EVENT_ANNOTATION = "holdfast.dev/event"
"""The annotation with what an Event of ours adds to the form that Kubernetes gives it."""
_MESSAGE_LIMIT = 1_000
"""Characters; the API server refuses an Event with more than 1024."""
log = logging.getLogger("holdfast")


class _EventDetails(msgspec.Struct, omit_defaults=True):
    writer: WriterForm
    generation: int
    detail: dict[str, object] = {}
    drift: DriftForm | None = None


def open_drifts(found: WorkloadObject, now: datetime) -> list[DriftRecord]:
    """Say how one workload differs from its declaration, and what the operator found drifted."""
    written = written_drift(found, now)
    return [*([written] if written else []), *reported_drifts(found, now)]


def reported_drifts(found: WorkloadObject, now: datetime) -> list[DriftRecord]:
    """Say what the operator found drifted: on the objects it keeps, and in what pods do."""
    return [
        *_object_drifts(found, now),
        *_runtime_drifts(found, now),
        *_hardware_drifts(found, now),
    ]


def written_drift(found: WorkloadObject, now: datetime) -> DriftRecord | None:
    """Say how what is written differs from the declaration."""
    if found.declared is None:
        return None
    live = found.live
    drift = find_drift(desired=Desired(id=live.id, fields=found.declared), live=live)
    written = [each for each in drift.fields if each.kind is not DriftKind.RUNTIME]
    if not written:
        return None
    entries = tuple(
        drift_entry_of(
            each, f"written by {each.writer}" if each.writer else "no writer is recorded"
        )
        for each in written
    )
    times = [each.writer.at for each in written if each.writer and each.writer.at]
    return DriftRecord(
        id=_drift_id(live.uid, [[entry.path, entry.live] for entry in entries]),
        workload=live.id,
        kinds=tuple(kind for kind in drift.kinds if kind is not DriftKind.RUNTIME),
        fields=entries,
        first_seen=min(times, default=live.updated_at or now),
    )


def _runtime_drifts(found: WorkloadObject, now: datetime) -> Iterable[DriftRecord]:
    """Say what pods serve otherwise than declared."""
    if not found.live.status.runtime:
        return
    fields = [runtime_drift(each) for each in found.live.status.runtime]
    entries = tuple(drift_entry_of(each, each.evidence) for each in fields)
    condition = _condition(found, "RuntimeVerified")
    yield DriftRecord(
        id=_drift_id(found.live.uid, [[entry.path, entry.live] for entry in entries]),
        workload=found.live.id,
        kinds=(DriftKind.RUNTIME,),
        fields=entries,
        first_seen=(condition and _transition_time(condition)) or now,
    )


def _hardware_drifts(found: WorkloadObject, now: datetime) -> Iterable[DriftRecord]:
    """Say which replicas are lost or fail by the fault of hardware. Nothing puts that back.

    Named by what is broken, not by the pods, which come and go meanwhile.
    """
    failures = (found.service.status.hardware if found.service.status else None) or ()
    if not failures:
        return
    by_pod: dict[str, list[HardwareFailure]] = {}
    for each in failures:
        by_pod.setdefault(each.pod, []).append(each)
    entries = tuple(
        DriftEntry(
            path=f"/replicas/{pod}",
            desired="running",
            live=redact(rows[0].reason),
            kind=DriftKind.RESOURCE,
            cause=Cause.HARDWARE,
            evidence=redact("; ".join(dict.fromkeys(row.cause for row in rows))),
        )
        for pod, rows in sorted(by_pod.items())
    )
    broken = sorted(
        {f"{each.node or each.pod} {each.condition or each.reason}" for each in failures}
    )
    times = [time for each in failures if (time := read_time(each.since)) is not None]
    condition = _condition(found, "Degraded")
    yield DriftRecord(
        id=_drift_id(found.live.uid, ["hardware", broken]),
        workload=found.live.id,
        kinds=(DriftKind.RESOURCE,),
        fields=entries,
        first_seen=min(times, default=(condition and _transition_time(condition)) or now),
    )


def _object_drifts(found: WorkloadObject, now: datetime) -> Iterable[DriftRecord]:
    condition = _condition(found)
    if condition is not None and condition.reason == ConditionReason.RUNTIME:
        return  # told field by field
    if condition is not None and condition.status == "True":
        status = found.service.status
        cost = status.drift_cost if status is not None else None
        yield replace(_operator_drift(found, condition, now), cost=cost)
        return
    written = _condition(found, "UpToDate")
    if written is not None and (written.status, written.reason) == ("False", "WriteRefused"):
        # What is declared could not be written, so it is not what runs.
        yield _operator_drift(found, written, now)


def healed_drifts(found: WorkloadObject) -> Iterable[DriftRecord]:
    """Say what the operator put back last. It remembers one such drift, and when it ended."""
    condition = _condition(found)
    if condition is not None and condition.status == "False" and condition.reason == "Healed":
        ended = _transition_time(condition) or found.live.updated_at
        record = _operator_drift(found, condition, ended or datetime.now(UTC))
        yield replace(record, resolved_at=ended, resolution="healed")


def _condition(found: WorkloadObject, about: str = "DriftDetected") -> Condition | None:
    conditions = found.service.status.conditions if found.service.status else ()
    return next((each for each in conditions if each.type == about), None)


def _operator_drift(
    found: WorkloadObject, condition: Condition, otherwise: datetime
) -> DriftRecord:
    entry = DriftEntry(
        path="/objects",
        desired="as declared",
        live=condition.message,
        kind=DriftKind.CONFIGURATION,
        cause=Cause.UNKNOWN,
        evidence="told by the operator",
    )
    return DriftRecord(
        id=_drift_id(found.live.uid, ["objects", condition.last_transition_time]),
        workload=found.live.id,
        kinds=(entry.kind,),
        fields=(entry,),
        first_seen=_transition_time(condition) or otherwise,
    )


def _transition_time(condition: Condition) -> datetime | None:
    stamp = condition.last_transition_time
    return datetime.fromisoformat(stamp) if stamp else None


def _drift_id(uid: str, what: object) -> str:
    """Name a drift by what it is: nothing counts them here, and it must not change by itself."""
    return "drf-" + digest([uid, what]).removeprefix("sha256:")[:10]


class EventHistory:
    """The Events of one cluster, as one writer leaves and reads them."""

    def __init__(self, api: KubeApi, *, writer: Writer, clock: Clock) -> None:
        self._api = api
        self._writer = writer
        self._clock = clock

    async def record_event(
        self,
        item: Object,
        action: str,
        summary: str,
        *,
        detail: Fields | None = None,
        drift: DriftRecord | None = None,
    ) -> None:
        """Leave an Event. Its failure is logged: the write it is about has happened."""
        metadata = item["metadata"]
        details = _EventDetails(
            writer=reshape(WriterForm, self._writer),
            generation=int(metadata.get("generation", 0)),
            detail=dict(detail or {}),
            drift=drift_to_json(drift) if drift else None,
        )
        now = self._clock.now().astimezone(UTC)
        manager = self._writer.manager
        event: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata['name']}.{secrets.token_hex(8)}",
                "namespace": metadata["namespace"],
                "labels": {PROJECT_LABEL: project_of(item)},
                "annotations": {EVENT_ANNOTATION: msgspec.json.encode(details).decode()},
            },
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": uid_of(item),
            },
            "type": "Normal",
            "reason": action.capitalize(),
            "action": action,
            "message": f"{summary} (by {self._writer})"[:_MESSAGE_LIMIT],
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingComponent": manager if manager in HOLDFAST_MANAGERS else "holdfast",
            "reportingInstance": manager[:128],
        }
        try:
            await self._api.create(event, manager=manager)
        except HoldfastError as error:
            log.warning("event_not_left workload=%s reason=%s", metadata["name"], error.happened)

    async def history(
        self, namespace: str, project: str, items: Sequence[Object], *, slug: str | None
    ) -> list[HistoryEntry]:
        """Return every row that is known, newest first."""
        projects = {uid_of(item): project_of(item) for item in items}
        events = await self._events(namespace, slug)
        rows = [_history_entry(each, projects, namespace) for each in events]
        reported: dict[str, set[str]] = {}
        for event, row in zip(events, rows, strict=True):
            managers = reported.setdefault(str(event["involvedObject"].get("uid")), set())
            managers.add(row.writer.manager)
            if row.action == "created":
                managers.add("")  # the creation itself has an Event
        for item in items:
            rows += _entries_without_event(item, reported.get(uid_of(item), set()))
        mine = [row for row in rows if row.workload.project == project]
        return sorted(mine, key=lambda row: row.seq, reverse=True)

    async def list_resolved(
        self, namespace: str, project: str, *, slug: str | None
    ) -> list[DriftRecord]:
        """Return the drifts that writes of ours ended."""
        found: list[DriftRecord] = []
        for event in await self._events(namespace, slug):
            details = _event_details(event)
            if details is not None and details.drift and details.drift.project == project:
                found.append(drift_from_json(details.drift))
        return found

    async def _events(self, namespace: str, slug: str | None) -> Sequence[Object]:
        fields = f"involvedObject.kind={KIND}"
        if slug is not None:
            fields += f",involvedObject.name={slug}"
        scope = Scope(api_version="v1", kind="Event", namespace=namespace)
        return (await self._api.list(scope, fields=fields)).items


def _history_entry(event: Object, projects: dict[str, str], namespace: str) -> HistoryEntry:
    about = event["involvedObject"]
    labels = event["metadata"].get("labels") or {}
    project = labels.get(PROJECT_LABEL) or projects.get(str(about.get("uid"))) or namespace
    details = _event_details(event)
    at = _event_time(event)
    source = event.get("reportingComponent") or (event.get("source") or {}).get("component")
    return HistoryEntry(
        seq=int(at.timestamp() * 1_000_000),
        at=at,
        workload=WorkloadId(project=str(project), slug=str(about.get("name", ""))),
        action=_action(str(event.get("reason", "")), ours=details is not None),
        writer=reshape(Writer, details.writer)
        if details
        else Writer(manager=str(source or "unknown"), operation="event", at=at),
        generation=details.generation if details else 0,
        summary=str(event.get("message", "")),
        detail=dict(details.detail) if details else {},  # type: ignore[arg-type]  # JSON, as written
    )


def _action(reason: str, *, ours: bool) -> str:
    """Name what an Event reports. The operator's are about the objects that it keeps."""
    if ours:
        return reason.lower()
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", reason).lower()
    return f"object-{words}" if words in ("created", "updated", "deleted") else words


def _entries_without_event(item: Object, reported: set[str]) -> Iterable[HistoryEntry]:
    """Rows for writes that left no Event: of other tools, and of times that are past keeping."""
    metadata = item["metadata"]
    where = WorkloadId(project=project_of(item), slug=str(metadata["name"]))
    generation = int(metadata.get("generation", 0))
    made = datetime.fromisoformat(metadata["creationTimestamp"])
    entries = [
        entry
        for entry in read_ownership(metadata.get("managedFields")).entries
        if entry.at is not None and entry.subresource != "status"
    ]
    # Times are whole seconds, and one that left an Event for its write did not create it.
    first = next(
        (each for each in entries if each.at == made and each.manager not in reported), None
    )

    def row(at: datetime, action: str, writer: Writer, summary: str) -> HistoryEntry:
        return HistoryEntry(
            seq=int(at.timestamp() * 1_000_000),
            at=at,
            workload=where,
            action=action,
            writer=writer,
            generation=generation,
            summary=summary,
            detail={},
        )

    if "" not in reported:
        by = first.writer if first else Writer(manager="unknown")
        yield row(made, "created", by, "created")
    for entry in entries:
        if entry.at is not None and entry.at > made and entry.manager not in reported:
            names = sorted({path[1] for path in entry.paths if path[0] == "spec" and path[1:]})
            if names:
                summary = f"last wrote {', '.join(names)}"
                yield row(entry.at, "updated", entry.writer, summary)


def _event_details(event: Object) -> _EventDetails | None:
    text = (event["metadata"].get("annotations") or {}).get(EVENT_ANNOTATION)
    try:
        return msgspec.json.decode(text or "", type=_EventDetails)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _event_time(event: Object) -> datetime:
    # Any: the first of these that is set.
    at: Any = (
        event.get("eventTime")
        or event.get("lastTimestamp")
        or event.get("firstTimestamp")
        or event["metadata"].get("creationTimestamp")
    )
    return datetime.fromisoformat(str(at))
