"""Drift, history and readiness on the HTTP wire."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.core.drift import Cause, DriftKind
from holdfast.core.ledger import DriftEntry, DriftRecord, HistoryEntry
from holdfast.core.live import Phase, Writer
from holdfast.core.names import WorkloadId
from holdfast.wire.decode import as_fields, reshape
from holdfast.wire.plan_v1 import CostForm, WriterForm, cost_from_json


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
    # What putting it back costs; left out where nobody can tell.
    cost: CostForm | None = None


class DriftListForm(msgspec.Struct, kw_only=True):
    """Drifts, newest first: of their page as much as every control plane tells."""

    drifts: list[DriftForm]
    next: str = ""


class WorkloadDriftLinksForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where a drift can be looked at. What is not known is left out."""

    page: str = ""
    """In the page of this server, where its base URL is set."""


class RevertChoiceForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Whether who asks may have the declared values put back, and by which plan."""

    allowed: bool
    why_not: str = ""
    effect: str
    """What it does, in a sentence."""
    plan: str = ""
    """The digest that the decision has to name; only where it is allowed."""


class WorkloadDriftForm(DriftForm, kw_only=True, omit_defaults=True):
    """One drift of a workload, as a server gives it."""

    links: WorkloadDriftLinksForm
    revert: RevertChoiceForm | msgspec.UnsetType = msgspec.UNSET
    """Of one drift that is open, where the server holds what was declared."""


class WorkloadRevertForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body that has a workload written as it was declared."""

    plan: str
    """The digest of the plan that was read."""


class WorkloadDriftGroupForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Drifts of one cause and one writer."""

    cause: Cause
    writer: str = ""
    """The tool; left out where nobody knows it."""
    count: int
    kinds: list[DriftKind]
    workloads: list[str]
    """Their slugs."""
    first_seen: datetime
    drifts: list[str]
    """The ids of the newest 50."""


class WorkloadDriftPageForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Drifts, newest first; with `group=cause` groups of them instead, the largest first."""

    drifts: list[WorkloadDriftForm] | msgspec.UnsetType = msgspec.UNSET
    groups: list[WorkloadDriftGroupForm] | msgspec.UnsetType = msgspec.UNSET
    next: str = ""
    """The `cursor` of the next page; left out with the last one."""
    total: int
    """How many there are on all pages."""


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
        fields=[reshape(DriftEntryForm, entry) for entry in drift.fields],
        first_seen=drift.first_seen,
        resolved_at=drift.resolved_at,
        resolution=drift.resolution,
        cost=reshape(CostForm, drift.cost) if drift.cost else None,
    )


def drift_from_json(form: DriftForm) -> DriftRecord:
    """Read one drift."""
    return DriftRecord(
        id=form.id,
        workload=WorkloadId(project=form.project, slug=form.slug),
        kinds=tuple(form.kinds),
        fields=tuple(reshape(DriftEntry, entry) for entry in form.fields),
        first_seen=form.first_seen,
        resolved_at=form.resolved_at,
        resolution=form.resolution,
        cost=cost_from_json(form.cost),
    )


def history_to_json(entry: HistoryEntry) -> HistoryForm:
    """Write one audit row."""
    return HistoryForm(
        seq=entry.seq,
        at=entry.at,
        project=entry.workload.project,
        slug=entry.workload.slug,
        action=entry.action,
        writer=reshape(WriterForm, entry.writer),
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
        writer=reshape(Writer, form.writer),
        generation=form.generation,
        summary=form.summary,
        detail=as_fields(form.detail),
    )
