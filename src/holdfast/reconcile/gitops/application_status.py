"""Makes the status of an application from what is known of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime

from holdfast.core.gitops import wording
from holdfast.core.gitops.application import ApplicationStatus, ObjectSummary
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.objects import ObjectHealth, SyncStatus
from holdfast.core.object_ref import ObjectRef
from holdfast.core.service.spec import Condition
from holdfast.reconcile.gitops.application_context import (
    HEALTHY_AND_IN_SYNC,
    ApplicationContext,
    ObjectSnapshot,
)
from holdfast.reconcile.gitops.source_poller import SourceState

RECONCILE_REQUESTED = "holdfast.dev/reconcile-requested-at"
MAX_OBJECTS = 100
_HEALTH_BY_SEVERITY = (
    ObjectHealth.DEGRADED,
    ObjectHealth.MISSING,
    ObjectHealth.PROGRESSING,
    ObjectHealth.UNKNOWN,
    ObjectHealth.SUSPENDED,
)
_WAITING_STATES = frozenset({DriftState.AWAITING})


def application_status(context: ApplicationContext, now: datetime) -> ApplicationStatus:
    """Describe an application."""
    application, state, source = context.application, context.state, context.poller.last
    others = {
        ref: each for ref, each in context.object_states.items() if each is not HEALTHY_AND_IN_SYNC
    }
    statuses = [snapshot.sync_status for snapshot in others.values()]
    held = {hold.object for hold in state.holds.values() if hold.until > now}
    sync = _sync_word(context, source, set(statuses))
    conditions = tuple(_conditions(context, source, sync, now))
    ready = next(each for each in conditions if each.type == "Ready")
    undecided = [plan for plan in state.plans.values() if not plan.rejected_by]
    waiting = min(undecided, key=lambda plan: plan.made_at, default=None)
    return ApplicationStatus(
        sync=sync,
        health=_worst_health(others, all_of_it=len(others) == len(context.object_states)).value,
        revision=(state.revision.commit or None) if state.revision else None,
        fetched=source.commit.sha if source.commit else None,
        fetched_at=_stamp(source.fetched_at) if source.fetched_at else None,
        message=ready.message,
        objects=len(context.object_states),
        drifted=len({drift.object for drift in state.drifts.values()}),
        ahead=statuses.count(SyncStatus.OUT_OF_SYNC) + statuses.count(SyncStatus.PRUNABLE),
        held=len(held),
        tolerated=sum(len(snapshot.tolerated) for snapshot in others.values()),
        orphans=statuses.count(SyncStatus.ORPHAN),
        plan=waiting.digest if waiting else None,
        not_in_sync=tuple(_summaries(context, others)) or None,
        observed_generation=application.generation or None,
        last_handled_reconcile_at=_handled_request(context),
        conditions=_with_times(context, conditions, now),
    )


def _handled_request(context: ApplicationContext) -> str | None:
    """Return the last request by annotation that was carried out."""
    application = context.application
    if context.awaiting:
        return application.status.last_handled_reconcile_at if application.status else None
    return application.annotations.get(RECONCILE_REQUESTED)


def _sync_word(context: ApplicationContext, source: SourceState, statuses: Set[SyncStatus]) -> str:
    if context.desired is None or context.application.spec.suspend:
        return "unknown"
    if context.state.drifts or SyncStatus.DRIFTED in statuses:
        return "drifted"
    if context.compared is not context.desired.rendered:
        return "unknown"  # what is known is how things stood to something else
    if SyncStatus.UNKNOWN in statuses:
        return "unknown"
    if {SyncStatus.OUT_OF_SYNC, SyncStatus.PRUNABLE} & statuses or source.requirement is not None:
        return "ahead"
    return "synced"


def _worst_health(others: Mapping[ObjectRef, ObjectSnapshot], *, all_of_it: bool) -> ObjectHealth:
    """The worst there is; those that are fine are not among the others."""
    found = {each.health for each in others.values() if each.sync_status is not SyncStatus.ORPHAN}
    if not all_of_it:
        found.add(ObjectHealth.HEALTHY)
    return next(
        (each for each in _HEALTH_BY_SEVERITY if each in found),
        ObjectHealth.HEALTHY if found else _HEALTH_BY_SEVERITY[3],
    )


def _summaries(
    context: ApplicationContext, others: Mapping[ObjectRef, ObjectSnapshot]
) -> Iterator[ObjectSummary]:
    drifts = {drift.object: drift.id for drift in context.state.drifts.values()}
    worth = [
        ref
        for ref, snapshot in others.items()
        if snapshot.sync_status is not SyncStatus.IN_SYNC
        or snapshot.health is ObjectHealth.DEGRADED
        or snapshot.health is ObjectHealth.MISSING
    ]
    for ref in sorted(worth)[:MAX_OBJECTS]:
        snapshot = others[ref]
        yield ObjectSummary(
            object=str(ref),
            standing=snapshot.sync_status.value,
            health=snapshot.health.value,
            message=_object_message(context, ref, snapshot) or None,
            drift=drifts.get(ref),
        )


def _object_message(context: ApplicationContext, ref: ObjectRef, snapshot: ObjectSnapshot) -> str:
    return wording.shorten(
        context.failed.get(ref) or context.kept_objects.get(ref) or snapshot.message
    )


def _conditions(
    context: ApplicationContext, source: SourceState, sync: str, now: datetime
) -> Iterator[Condition]:
    """`Ready` says whether Git could be read and applied; drift is a condition of its own."""
    state = context.state
    failed = context.failed
    if context.application.spec.suspend:
        yield _condition("Ready", "Unknown", "Suspended", "spec.suspend is set.")
    elif context.refused:
        yield _condition(
            "Ready", "False", "DeclaredTwice", wording.describe_duplicate(context.refused)
        )
    elif context.desired is None:
        message = wording.describe_stale(source.stale) or "The repository has not been read yet."
        yield _condition("Ready", "False", "SourceUnavailable", message)
    elif failed:
        ref, why = next(iter(failed.items()))
        refused = "1 object was" if len(failed) == 1 else f"{len(failed)} objects were"
        message = f"{refused} refused. {ref}: {why}"
        yield _condition("Ready", "False", "ReconciliationFailed", message)
    else:
        applied = state.revision is not None and state.revision.commit
        first = "first" if sync == "ahead" and not applied else sync
        message = _READY_TEXT[first].format(
            commit=context.desired.rendered.commit[:7],
            count=_drift_count(len(state.drifts)),
            unread=_unread_text(context),
        )
        if sync == "ahead" and source.requirement is not None:
            message = f"{source.requirement.message} It is not followed before somebody agrees."
        yield _condition("Ready", "True", "ReconciliationSucceeded", message)
    if source.stale:
        yield _condition("SourceStale", "True", "NotFollowed", wording.describe_stale(source.stale))
    if state.drifts:
        newest = max(state.drifts.values(), key=lambda drift: drift.last_seen)
        yield _condition("Drifted", "True", "DriftDetected", wording.describe_drift(newest))
    else:
        yield _condition("Drifted", "False", "NoDrift", "No drift is open.")
    waiting = [drift.id for drift in state.drifts.values() if drift.state in _WAITING_STATES]
    waiting += [plan.id for plan in state.plans.values() if not plan.rejected_by]
    if waiting:
        verb = "waits" if len(waiting) == 1 else "wait"
        message = f"{wording.list_names(sorted(waiting))} {verb} for a person: holdfast approve ID"
        yield _condition("ApprovalRequired", "True", "AwaitingApproval", message)
    on_hold = [hold for hold in state.holds.values() if hold.until > now]
    if on_hold:
        last = max(on_hold, key=lambda hold: hold.until)
        message = f"{last.by}: {last.reason}, until {_stamp(last.until)}"
        yield _condition("Paused", "True", "BreakGlass", message)


_READY_TEXT = {
    "synced": "Everything is as {commit} declares.",
    "first": "{commit} is not applied yet, or not all of it.",
    "ahead": "Git moved ahead to {commit}; some of it is not applied yet.",
    "drifted": "{count} open.",
    "unknown": "{unread}",
}


def _unread_text(context: ApplicationContext) -> str:
    """Name what could not be read, and why."""
    desired = context.desired
    if desired is not None and context.compared is not desired.rendered:
        return f"Its objects were not compared with {desired.rendered.commit[:7]} yet."
    found = [
        (ref, snapshot)
        for ref, snapshot in sorted(context.object_states.items())
        if snapshot.sync_status is SyncStatus.UNKNOWN
    ]
    if not found:
        return "Not everything could be read."
    objects = "1 object" if len(found) == 1 else f"{len(found)} objects"
    ref, snapshot = found[0]
    return f"{objects} could not be read. {ref}: {snapshot.message}"


def _drift_count(number: int) -> str:
    return "1 drift is" if number == 1 else f"{number} drifts are"


def _condition(type: str, status: str, reason: str, message: str) -> Condition:
    return Condition(type=type, status=status, reason=reason, message=wording.shorten(message))


def _with_times(
    context: ApplicationContext, made: Sequence[Condition], now: datetime
) -> tuple[Condition, ...]:
    """Date conditions: the time moves only when the status does."""
    status = context.application.status
    old = {each.type: each for each in status.conditions} if status else {}
    dated = []
    for each in made:
        before = old.get(each.type)
        kept = before.last_transition_time if before and before.status == each.status else None
        dated.append(
            replace(
                each,
                observed_generation=context.application.generation or None,
                last_transition_time=kept or _stamp(now),
            )
        )
    return tuple(dated)


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
