"""Writes what the controller knows of applications as the forms of the wire.

Pure. Values of fields were masked when they were found, those of Secrets marked; here only text
that came with a repository or from a cluster is masked once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from urllib.parse import urlsplit, urlunsplit

from holdfast.core.gitops.application import SyncSpec
from holdfast.core.gitops.drift import DriftState, entry_of
from holdfast.core.gitops.hold import Hold
from holdfast.core.gitops.objects import ObjectHealth, ObservedObject, SyncStatus
from holdfast.core.gitops.plan import SyncPlan
from holdfast.core.gitops.records import PendingPlan, TemporaryIgnoreRule
from holdfast.core.gitops.source import DeclaredObject
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.signals import APPLIED_PATH, FieldDrift
from holdfast.core.redact import redact
from holdfast.core.tree import Path
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_status import application_status
from holdfast.reconcile.gitops.ports import JournalEntry
from holdfast.wire.decode import reshape
from holdfast.wire.gitops_http_v1 import (
    ConditionForm,
    DiffFieldForm,
    DiffState,
    FollowedForm,
    HoldForm,
    IgnoredForm,
    JournalEntryForm,
    ObjectDiffForm,
    ObjectStatusForm,
    SourceForm,
    SyncPlanForm,
    SyncStepForm,
    ToleratedForm,
    WaitingPlanForm,
)
from holdfast.wire.gitops_v1 import ObjectForm
from holdfast.wire.ledger_v1 import DriftEntryForm
from holdfast.wire.plan_v1 import WriterForm

_WAITING_STATES = (DriftState.AWAITING,)
_TOLERATED_CLASSES = (FieldClass.DELEGATED, FieldClass.IGNORED)


def application_form(context: ApplicationContext, now: datetime) -> FollowedForm:
    """Write one application."""
    status, shelf = application_status(context, now), context.state
    application = context.application
    sync = application.spec.sync or SyncSpec()
    waiting = sum(drift.state is DriftState.AWAITING for drift in shelf.drifts.values())
    plans = sorted(shelf.plans.values(), key=lambda plan: plan.made_at)
    return FollowedForm(
        id=str(application.id),
        label=application.id.label,
        project=application.spec.project,
        sync=status.sync,
        health=ObjectHealth(status.health),
        message=redact(status.message),
        revision=status.revision or "",
        source=_source_form(context),
        objects=status.objects,
        drifted=status.drifted,
        ahead=status.ahead,
        held=status.held,
        tolerated=status.tolerated,
        orphans=status.orphans,
        awaiting=waiting + len(plans),
        suspended=bool(application.spec.suspend),
        looked_at=context.looked_at,
        automatic=bool(sync.automatic),
        prunes=bool(sync.prune),
        holds=hold_forms(context, now),
        plans=[waiting_plan_form(context, plan) for plan in plans],
        conditions=[
            ConditionForm(
                type=each.type, status=each.status, reason=each.reason, message=redact(each.message)
            )
            for each in status.conditions
        ],
    )


def _source_form(context: ApplicationContext) -> SourceForm:
    spec, source = context.application.spec.source, context.poller.last
    commit = source.commit
    return SourceForm(
        url=url_without_credentials(spec.url),
        revision=spec.revision or "main",
        path=spec.path or "",
        commit=commit.sha if commit else "",
        subject=redact(commit.subject) if commit else "",
        author=redact(commit.author) if commit else "",
        fetched_at=source.fetched_at,
        stale=redact(source.stale),
    )


def url_without_credentials(url: str) -> str:
    """Write the address of a repository without whatever could be a credential."""
    if "://" not in url:
        return redact(url)
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return redact(urlunsplit((parts.scheme, host, parts.path, "", "")))


def hold_forms(context: ApplicationContext, now: datetime) -> list[HoldForm]:
    """Write the holds of an application that still hold, those that end first first."""
    found = [hold for hold in context.state.holds.values() if hold.until > now]
    return [hold_form(hold) for hold in sorted(found, key=lambda hold: (hold.until, hold.id))]


def hold_form(hold: Hold) -> HoldForm:
    """Write one hold."""
    return HoldForm(
        id=hold.id,
        application=str(hold.application),
        object=reshape(ObjectForm, hold.object) if hold.object else None,
        reason=redact(hold.reason),
        by=hold.by,
        since=hold.since,
        until=hold.until,
        end=hold.end,
        from_annotation=hold.from_annotation,
    )


def waiting_plan_form(context: ApplicationContext, plan: PendingPlan) -> WaitingPlanForm:
    """Write a plan that waits."""
    return WaitingPlanForm(
        id=plan.id,
        digest=plan.digest,
        application=str(context.application.id),
        commit=plan.commit,
        reasons=list(plan.reasons),
        told=plan.told,
        steps=list(plan.steps),
        made_at=plan.made_at,
        approved_by=plan.approved_by,
        rejected_by=plan.rejected_by,
        comment=plan.comment,
    )


def object_forms(context: ApplicationContext, now: datetime) -> list[ObjectStatusForm]:
    """Write every object as it was seen last, with the drift of it that waits for somebody."""
    every = sorted(context.state.drifts.values(), key=lambda each: each.state in _WAITING_STATES)
    drifts = {drift.object: drift.id for drift in every}
    found = []
    for ref, glance in sorted(context.object_states.items()):
        hold = context.hold_of(ref, now)
        found.append(
            ObjectStatusForm(
                object=reshape(ObjectForm, ref),
                standing=glance.sync_status,
                health=glance.health,
                message=redact(context.failed.get(ref) or glance.message),
                owner=glance.owner,
                drift=drifts.get(ref, ""),
                held_until=hold.until if hold else None,
                tolerated=[ToleratedForm(path=path, rule=rule) for path, rule in glance.tolerated],
            )
        )
    return found


def diff_forms(context: ApplicationContext, seen: Sequence[ObservedObject]) -> list[ObjectDiffForm]:
    """Write every object that differs, or that only a rule keeps from being drift."""
    drifts = {drift.object: drift.id for drift in context.state.drifts.values()}
    found = []
    for each in sorted(seen, key=lambda one: one.ref):
        fields = list(_field_forms(each))
        if each.sync_status is SyncStatus.IN_SYNC and not fields:
            continue
        found.append(
            ObjectDiffForm(
                object=reshape(ObjectForm, each.ref),
                standing=each.sync_status,
                health=each.health,
                message=redact(each.message),
                where=_source_location(each.declared, ()),
                drift=drifts.get(each.ref, ""),
                owner=each.owner,
                fields=fields,
            )
        )
    return found


def _field_forms(seen: ObservedObject) -> Iterator[DiffFieldForm]:
    judged = seen.diff.field_drifts if seen.diff else ()
    for found in (*judged, *seen.running):
        state = _diff_state(found, seen)
        if state is None or found.change.path == APPLIED_PATH:
            continue
        entry = entry_of(found)
        yield DiffFieldForm(
            path=entry.path,
            state=state,
            kind=entry.kind,
            live=entry.live,
            git=entry.desired,
            cause=entry.cause,
            evidence=redact(entry.evidence),
            rule=found.rule or "",
            writer=reshape(WriterForm, entry.writer) if entry.writer else None,
            where=_source_location(seen.declared, found.change.path),
        )


def _diff_state(found: FieldDrift, seen: ObservedObject) -> DiffState | None:
    if found.field_class in _TOLERATED_CLASSES:
        return DiffState.TOLERATED
    if found.field_class is not FieldClass.OWNED or not found.confirmed:
        return None
    return DiffState.PENDING if found.pending or not seen.applied else DiffState.DRIFTED


def _source_location(declared: DeclaredObject | None, path: Path) -> str:
    return "" if declared is None else declared.where(path)


def sync_plan_form(plan: SyncPlan, *, prune: bool, stale: str) -> SyncPlanForm:
    """Write what a sync would do."""
    return SyncPlanForm(
        id=plan.id,
        digest=plan.digest,
        application=str(plan.application),
        commit=plan.commit,
        prune=prune,
        stale=redact(stale),
        steps=[
            SyncStepForm(
                object=reshape(ObjectForm, step.ref),
                action=step.action,
                reason=step.reason,
                fields=[reshape(DriftEntryForm, entry) for entry in step.entries],
            )
            for step in plan.changes
        ],
    )


def ignore_rule_form(rule: TemporaryIgnoreRule) -> IgnoredForm:
    """Write a rule of a moment."""
    ref = ObjectRef(
        api_version="",
        kind=rule.kind,
        name=rule.object_name,
        namespace="" if rule.namespace == "*" else rule.namespace,
    )
    return IgnoredForm(
        name=rule.name,
        path=rule.path,
        object=str(ref),
        manager=rule.manager or "",
        owner=rule.owner,
        reason=rule.reason,
        expires=rule.expires,
    )


def journal_entry_form(entry: JournalEntry) -> JournalEntryForm:
    """Write a line of the journal."""
    return JournalEntryForm(
        seq=entry.seq,
        at=entry.at,
        application=entry.application,
        subject=entry.subject,
        action=entry.action,
        actor=entry.actor,
        summary=entry.summary,
        detail=dict(entry.detail),
    )
