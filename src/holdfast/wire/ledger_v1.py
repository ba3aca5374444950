"""Drift, history and readiness on the HTTP wire."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.ledger import DriftEntry, DriftRecord, HistoryEntry
from holdfast.core.live import Phase, Progress
from holdfast.core.names import WorkloadId
from holdfast.wire.decode import as_fields, as_tree
from holdfast.wire.plan_v1 import WriterForm, writer_from_json, writer_to_json


class DriftEntryForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One drifted field."""

    path: str
    kind: DriftKind
    # A tree: any JSON value.
    desired: object = None
    live: object = None
    cause: Cause = Cause.UNKNOWN
    evidence: str = ""
    writer: WriterForm | None = None


class DriftForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One drift, from first seen to resolved."""

    id: str
    project: str
    slug: str
    kinds: list[DriftKind]
    fields: list[DriftEntryForm]
    first_seen: datetime
    resolved_at: datetime | None = None
    resolution: str | None = None


class DriftListForm(msgspec.Struct, kw_only=True):
    """Drifts, newest first."""

    drifts: list[DriftForm]


class HistoryForm(msgspec.Struct, kw_only=True):
    """One audit row."""

    seq: int
    at: datetime
    project: str
    slug: str
    action: str
    writer: WriterForm
    generation: int
    summary: str
    detail: dict[str, object] = {}


class HistoryListForm(msgspec.Struct, kw_only=True):
    """Audit rows, newest first."""

    history: list[HistoryForm]


class ProgressForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One readiness update, as the InferenceKey wire has it."""

    phase: Phase
    message: str
    elapsed_ms: int
    step: str | None = None


def drift_to_json(drift: DriftRecord) -> DriftForm:
    """Write one drift."""
    return DriftForm(
        id=drift.id,
        project=drift.workload.project,
        slug=drift.workload.slug,
        kinds=list(drift.kinds),
        fields=[entry_to_json(entry) for entry in drift.fields],
        first_seen=drift.first_seen,
        resolved_at=drift.resolved_at,
        resolution=drift.resolution,
    )


def drift_from_json(form: DriftForm) -> DriftRecord:
    """Read one drift."""
    return DriftRecord(
        id=form.id,
        workload=WorkloadId(project=form.project, slug=form.slug),
        kinds=tuple(form.kinds),
        fields=tuple(entry_from_json(entry) for entry in form.fields),
        first_seen=form.first_seen,
        resolved_at=form.resolved_at,
        resolution=form.resolution,
    )


def entry_to_json(entry: DriftEntry) -> DriftEntryForm:
    """Write one drifted field."""
    return DriftEntryForm(
        path=entry.path, kind=entry.kind, desired=entry.desired, live=entry.live,
        cause=entry.cause, evidence=entry.evidence,
        writer=writer_to_json(entry.writer) if entry.writer else None,
    )  # fmt: skip


def entry_from_json(form: DriftEntryForm) -> DriftEntry:
    """Read one drifted field."""
    return DriftEntry(
        path=form.path, kind=form.kind, desired=as_tree(form.desired), live=as_tree(form.live),
        cause=form.cause, evidence=form.evidence,
        writer=writer_from_json(form.writer) if form.writer else None,
    )  # fmt: skip


def history_to_json(entry: HistoryEntry) -> HistoryForm:
    """Write one audit row."""
    return HistoryForm(
        seq=entry.seq,
        at=entry.at,
        project=entry.workload.project,
        slug=entry.workload.slug,
        action=entry.action,
        writer=writer_to_json(entry.writer),
        generation=entry.generation,
        summary=entry.summary,
        detail=dict(entry.detail),
    )


def history_from_json(form: HistoryForm) -> HistoryEntry:
    """Read one audit row."""
    return HistoryEntry(
        seq=form.seq,
        at=form.at,
        workload=WorkloadId(project=form.project, slug=form.slug),
        action=form.action,
        writer=writer_from_json(form.writer),
        generation=form.generation,
        summary=form.summary,
        detail=as_fields(form.detail),
    )


def progress_to_json(progress: Progress) -> ProgressForm:
    """Write one readiness update."""
    return ProgressForm(
        phase=progress.phase,
        message=progress.message,
        elapsed_ms=progress.elapsed_ms,
        step=progress.step,
    )


def progress_from_json(form: ProgressForm) -> Progress:
    """Read one readiness update."""
    return Progress(
        phase=form.phase, message=form.message, elapsed_ms=form.elapsed_ms, step=form.step
    )
