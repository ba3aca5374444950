"""Makes the status of an application from what is known of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime

from holdfast.core.gitops.application import ApplicationStatus, ObjectSummary
from holdfast.core.gitops.drift import DriftState
from holdfast.core.gitops.standing import Health, Standing
from holdfast.core.objects import ObjectRef
from holdfast.core.service.spec import Condition
from holdfast.reconcile.gitops import words
from holdfast.reconcile.gitops.follow import Source
from holdfast.reconcile.gitops.following import FINE, Following, Glance

RECONCILE_REQUESTED = "holdfast.dev/reconcile-requested-at"
MOST = 100
_WORST = (Health.DEGRADED, Health.MISSING, Health.PROGRESSING, Health.UNKNOWN, Health.SUSPENDED)
_WAITING = frozenset({DriftState.AWAITING})


def report(following: Following, now: datetime) -> ApplicationStatus:
    """Describe an application."""
    application, shelf, source = following.application, following.shelf, following.follower.last
    others = {ref: each for ref, each in following.glances.items() if each is not FINE}
    standings = [glance.standing for glance in others.values()]
    held = {hold.object for hold in shelf.holds.values() if hold.until > now}
    sync = _sync(following, source, set(standings))
    conditions = tuple(_conditions(following, source, sync, now))
    ready = next(each for each in conditions if each.type == "Ready")
    undecided = [plan for plan in shelf.plans.values() if not plan.rejected_by]
    waiting = min(undecided, key=lambda plan: plan.made_at, default=None)
    return ApplicationStatus(
        sync=sync,
        health=_health(others, all_of_it=len(others) == len(following.glances)).value,
        revision=(shelf.followed.commit or None) if shelf.followed else None,
        fetched=source.commit.sha if source.commit else None,
        fetched_at=_stamp(source.fetched_at) if source.fetched_at else None,
        message=ready.message,
        objects=len(following.glances),
        drifted=len({drift.object for drift in shelf.drifts.values()}),
        ahead=standings.count(Standing.AHEAD) + standings.count(Standing.LEFT_OVER),
        held=len(held),
        tolerated=sum(len(glance.tolerated) for glance in others.values()),
        orphans=standings.count(Standing.ORPHAN),
        plan=waiting.digest if waiting else None,
        not_in_sync=tuple(_summaries(following, others)) or None,
        observed_generation=application.generation or None,
        last_handled_reconcile_at=_handled(following),
        conditions=_dated(following, conditions, now),
    )


def _handled(following: Following) -> str | None:
    """Return the last request by annotation that was carried out."""
    application = following.application
    if following.awaiting:
        return application.status.last_handled_reconcile_at if application.status else None
    return application.annotations.get(RECONCILE_REQUESTED)


def _sync(following: Following, source: Source, standings: Set[Standing]) -> str:
    if following.wanted is None or following.application.spec.suspend:
        return "unknown"
    if following.shelf.drifts or Standing.DRIFTED in standings:
        return "drifted"
    if following.compared is not following.wanted.rendered:
        return "unknown"  # what is known is how things stood to something else
    if Standing.UNKNOWN in standings:
        return "unknown"
    if {Standing.AHEAD, Standing.LEFT_OVER} & standings or source.parked is not None:
        return "ahead"
    return "synced"


def _health(others: Mapping[ObjectRef, Glance], *, all_of_it: bool) -> Health:
    """The worst there is; those that are fine are not among the others."""
    found = {each.health for each in others.values() if each.standing is not Standing.ORPHAN}
    if not all_of_it:
        found.add(Health.HEALTHY)
    return next((each for each in _WORST if each in found), Health.HEALTHY if found else _WORST[3])


def _summaries(following: Following, others: Mapping[ObjectRef, Glance]) -> Iterator[ObjectSummary]:
    drifts = {drift.object: drift.id for drift in following.shelf.drifts.values()}
    worth = [
        ref
        for ref, glance in others.items()
        if glance.standing is not Standing.IN_SYNC
        or glance.health is Health.DEGRADED
        or glance.health is Health.MISSING
    ]
    for ref in sorted(worth)[:MOST]:
        glance = others[ref]
        yield ObjectSummary(
            object=str(ref), standing=glance.standing.value, health=glance.health.value,
            message=_message(following, ref, glance) or None, drift=drifts.get(ref),
        )  # fmt: skip


def _message(following: Following, ref: ObjectRef, glance: Glance) -> str:
    return words.cut(following.failed.get(ref) or following.kept.get(ref) or glance.message)


def _conditions(
    following: Following, source: Source, sync: str, now: datetime
) -> Iterator[Condition]:
    """`Ready` says whether Git could be read and applied; drift is a condition of its own."""
    shelf = following.shelf
    failed = following.failed
    if following.application.spec.suspend:
        yield _condition("Ready", "Unknown", "Suspended", "spec.suspend is set.")
    elif following.refused:
        yield _condition("Ready", "False", "DeclaredTwice", following.refused)
    elif following.wanted is None:
        told = source.stale or "The repository has not been read yet."
        yield _condition("Ready", "False", "SourceUnavailable", told)
    elif failed:
        ref, why = next(iter(failed.items()))
        refused = "1 object was" if len(failed) == 1 else f"{len(failed)} objects were"
        told = f"{refused} refused. {ref}: {why}"
        yield _condition("Ready", "False", "ReconciliationFailed", told)
    else:
        applied = shelf.followed is not None and shelf.followed.commit
        first = "first" if sync == "ahead" and not applied else sync
        told = _TOLD[first].format(
            commit=following.wanted.rendered.commit[:7], count=_drifts(len(shelf.drifts)),
            unread=_unread(following),
        )  # fmt: skip
        if sync == "ahead" and source.parked is not None:
            told = f"{source.parked.told} It is not followed before somebody agrees."
        yield _condition("Ready", "True", "ReconciliationSucceeded", told)
    if source.stale:
        yield _condition("SourceStale", "True", "NotFollowed", source.stale)
    if shelf.drifts:
        newest = max(shelf.drifts.values(), key=lambda drift: drift.last_seen)
        yield _condition("Drifted", "True", "DriftDetected", words.told(newest))
    else:
        yield _condition("Drifted", "False", "NoDrift", "No drift is open.")
    waiting = [drift.id for drift in shelf.drifts.values() if drift.state in _WAITING]
    waiting += [plan.id for plan in shelf.plans.values() if not plan.rejected_by]
    if waiting:
        verb = "waits" if len(waiting) == 1 else "wait"
        told = f"{words.listed(sorted(waiting))} {verb} for a person: holdfast approve ID"
        yield _condition("ApprovalRequired", "True", "AwaitingApproval", told)
    on_hold = [hold for hold in shelf.holds.values() if hold.until > now]
    if on_hold:
        last = max(on_hold, key=lambda hold: hold.until)
        told = f"{last.by}: {last.reason}, until {_stamp(last.until)}"
        yield _condition("Paused", "True", "BreakGlass", told)


_TOLD = {
    "synced": "Everything is as {commit} declares.",
    "first": "{commit} is not applied yet, or not all of it.",
    "ahead": "Git moved ahead to {commit}; some of it is not applied yet.",
    "drifted": "{count} open.",
    "unknown": "{unread}",
}


def _unread(following: Following) -> str:
    """Name what could not be read, and why."""
    wanted = following.wanted
    if wanted is not None and following.compared is not wanted.rendered:
        return f"Its objects were not compared with {wanted.rendered.commit[:7]} yet."
    found = [
        (ref, glance)
        for ref, glance in sorted(following.glances.items())
        if glance.standing is Standing.UNKNOWN
    ]
    if not found:
        return "Not everything could be read."
    objects = "1 object" if len(found) == 1 else f"{len(found)} objects"
    ref, glance = found[0]
    return f"{objects} could not be read. {ref}: {glance.message}"


def _drifts(number: int) -> str:
    return "1 drift is" if number == 1 else f"{number} drifts are"


def _condition(type: str, status: str, reason: str, message: str) -> Condition:
    return Condition(type=type, status=status, reason=reason, message=words.cut(message))


def _dated(following: Following, made: Sequence[Condition], now: datetime) -> tuple[Condition, ...]:
    """Date conditions: the time moves only when the status does."""
    status = following.application.status
    old = {each.type: each for each in status.conditions} if status else {}
    dated = []
    for each in made:
        before = old.get(each.type)
        kept = before.last_transition_time if before and before.status == each.status else None
        dated.append(
            replace(
                each, observed_generation=following.application.generation or None,
                last_transition_time=kept or _stamp(now),
            )
        )  # fmt: skip
    return tuple(dated)


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
