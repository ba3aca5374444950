"""Writes what the controller knows of applications as the forms of the wire.

Pure. Values of fields were masked when they were found, those of Secrets marked; here only text
that came with a repository or from a cluster is masked once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from urllib.parse import urlsplit, urlunsplit

from holdfast.core.cost import Cost
from holdfast.core.gitops.application import SyncSpec
from holdfast.core.gitops.drift import DriftState, entry_of
from holdfast.core.gitops.hold import Hold
from holdfast.core.gitops.objects import ObjectHealth, ObservedObject, SyncStatus
from holdfast.core.gitops.plan import SyncPlan
from holdfast.core.gitops.pull_request_text import kind_of_branch
from holdfast.core.gitops.records import PendingPlan, TemporaryIgnoreRule
from holdfast.core.gitops.source import DeclaredObject
from holdfast.core.gitops.window import window_state
from holdfast.core.gitops.wording import describe_stale
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.signals import APPLIED_PATH, FieldDrift
from holdfast.core.redact import redact
from holdfast.core.tree import Path
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_status import application_status
from holdfast.wire.decode import reshape
from holdfast.wire.gitops_http_v1 import (
    ConditionForm,
    DiffFieldForm,
    DiffState,
    FollowedForm,
    HeldChangeForm,
    HoldForm,
    IgnoredForm,
    NextWindowForm,
    ObjectDiffForm,
    ObjectStatusForm,
    OpenPullRequestForm,
    SourceForm,
    SyncPlanForm,
    SyncStepForm,
    ToleratedForm,
    WaitingPlanForm,
)
from holdfast.wire.gitops_v1 import ObjectForm
from holdfast.wire.ledger_v1 import DriftEntryForm
from holdfast.wire.plan_v1 import CostForm, WriterForm

_WAITING_STATES = (DriftState.AWAITING,)
_TOLERATED_CLASSES = (FieldClass.DELEGATED, FieldClass.IGNORED)


def application_form(context: ApplicationContext, now: datetime) -> FollowedForm:
    """Write one application."""
    status, state = application_status(context, now), context.state
    application = context.application
    sync = application.spec.sync or SyncSpec()
    waiting = sum(drift.state is DriftState.AWAITING for drift in state.drifts.values())
    plans = sorted(state.plans.values(), key=lambda plan: plan.made_at)
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
        pull_requests=_pull_request_forms(context),
    )


def _pull_request_forms(context: ApplicationContext) -> list[OpenPullRequestForm]:
    """Write the pull requests that are open; where there is no forge there are only branches."""
    drifts = context.state.drifts
    return [
        OpenPullRequestForm(
            url=pull.url,
            kind=kind_of_branch(pull.branch),
            object=reshape(ObjectForm, drifts[pull.drift].object) if pull.drift in drifts else None,
            drift=pull.drift,
            opened_at=pull.opened_at,
        )
        for pull in sorted(context.state.pulls.values(), key=lambda pull: pull.opened_at)
        if pull.url.startswith(("https://", "http://")) and not pull.merged
    ]


def next_window_form(context: ApplicationContext, now: datetime) -> NextWindowForm | None:
    """Say when windows next open or close; None where there are none, or nothing changes."""
    sync = context.application.spec.sync
    windows = (sync.windows if sync else None) or ()
    state = window_state(windows, now)
    if state.until is None:
        return None
    if state.open:
        return NextWindowForm(closes_at=state.until)
    return NextWindowForm(opens_at=state.until)


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
        stale=redact(describe_stale(source.stale)),
        stale_reason=source.stale.reason.value if source.stale else "",
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
    found.sort(key=lambda hold: (hold.until, hold.id))
    return [hold_form(hold, held_changes(context, hold)) for hold in found]


def held_changes(context: ApplicationContext, hold: Hold) -> list[HeldChangeForm]:
    """Write the drifts that a hold leaves as they are, as the last pass saw them."""
    held = [
        drift
        for drift in context.state.drifts.values()
        if drift.state is DriftState.HELD and hold.object in (None, drift.object)
    ]
    return [
        HeldChangeForm(
            drift=drift.id,
            object=reshape(ObjectForm, drift.object),
            fields=[entry.path for entry in drift.entries],
        )
        for drift in sorted(held, key=lambda each: (each.object, each.id))
    ]


def hold_form(hold: Hold, changes: Sequence[HeldChangeForm] = ()) -> HoldForm:
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
        changes=list(changes),
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
        cost=_cost_form(plan.cost),
    )


def object_forms(context: ApplicationContext, now: datetime) -> list[ObjectStatusForm]:
    """Write every object as it was seen last, with the drift of it that waits for somebody."""
    every = sorted(context.state.drifts.values(), key=lambda each: each.state in _WAITING_STATES)
    drifts = {drift.object: drift.id for drift in every}
    found = []
    for ref, observed in sorted(context.object_states.items()):
        hold = context.hold_of(ref, now)
        found.append(
            ObjectStatusForm(
                object=reshape(ObjectForm, ref),
                standing=observed.sync_status,
                health=observed.health,
                message=redact(context.failed.get(ref) or observed.message),
                owner=observed.owner,
                drift=drifts.get(ref, ""),
                held_until=hold.until if hold else None,
                tolerated=[
                    ToleratedForm(path=path, rule=rule) for path, rule in observed.tolerated
                ],
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
                cost=_cost_form(_cost_of(each)),
            )
        )
    return found


def _cost_of(seen: ObservedObject) -> Cost | None:
    """What it costs to make an object as declared, or to do away with one that is not declared."""
    whole = seen.live is None or seen.diff is None
    fields = seen.diff.differing if seen.diff else ()
    return seen.cost if whole else seen.cost_of((*fields, *seen.running))


def _cost_form(cost: Cost | None) -> CostForm | None:
    return reshape(CostForm, cost) if cost else None


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
                cost=_cost_form(step.cost),
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
