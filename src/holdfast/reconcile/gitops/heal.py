"""Handles drift: decides about each, asks for approval, heals, and notices fights.

What was approved is applied exactly or refused as stale. A claim is in the ledger before the
first write, so a crash leaves no silent second run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from holdfast.core import fight
from holdfast.core.gitops import message, wording
from holdfast.core.gitops.application import Remediation
from holdfast.core.gitops.decide import (
    ADMISSION_RECHECK,
    FIGHT_TRUCE,
    DriftAction,
    DriftDecision,
    decide_drift,
)
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.guard import approval_for_heals
from holdfast.core.gitops.objects import ObservedObject, SyncStatus
from holdfast.core.gitops.plan import SyncPlan
from holdfast.core.gitops.planning import make_heal_plan
from holdfast.core.gitops.track import approved_resolution, track
from holdfast.core.gitops.window import window_state
from holdfast.core.ledger import DriftEntry
from holdfast.core.object_ref import ObjectRef
from holdfast.core.plan import Action
from holdfast.core.tree import Fields, show_path
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_observer import ApplicationObserver
from holdfast.reconcile.gitops.apply import PlanApplier, StepOutcome
from holdfast.reconcile.gitops.reporting import PassReporter
from holdfast.reconcile.ports import Clock

RETRY_AFTER = timedelta(seconds=15)
"""How long a drift rests after a write that was refused."""
DIFFERING = frozenset({SyncStatus.DRIFTED, SyncStatus.ORPHAN})
IsStillAllowed = Callable[[str], bool]
"""Says whether who decided something, by name and token, may still decide it now."""


class Remediator:
    """What healing and syncing both work with."""

    def __init__(
        self,
        looking: ApplicationObserver,
        applier: PlanApplier,
        clock: Clock,
        still_allowed: IsStillAllowed = lambda decided_by: True,
    ) -> None:
        self._looking = looking
        self._applier = applier
        self._clock = clock
        self._still_allowed = still_allowed


class DriftHealer(Remediator):
    """Handles the drifts of applications."""

    async def see_to(
        self,
        context: ApplicationContext,
        seen: Mapping[ObjectRef, ObservedObject],
        reporter: PassReporter,
    ) -> None:
        """Decide about every drift of the objects that were seen, and do what is due."""
        sync = context.application.spec.sync
        window = window_state((sync.windows if sync else None) or (), self._clock.now())
        heals: list[ObjectDrift] = []
        parked = {
            drift.id for drift in context.state.drifts.values()
            if drift.state is DriftState.BLOCKED
        }  # fmt: skip
        for drift in sorted(context.state.drifts.values(), key=lambda each: each.id):
            each = seen.get(drift.object)
            if each is None or each.standing not in DIFFERING:
                continue
            now = self._clock.now()
            hold = context.hold_of(drift.object, now)
            if hold is None:
                drift = _with_sync_request(context, drift)
            decided = decide_drift(
                drift,
                owner=each.owner,
                hold=hold,
                window=window,
                now=now,
                recheck_at=each.diff.recheck_at if each.diff else None,
            )
            drift = await self._settled(context, drift, decided, reporter)
            if decided.move is DriftAction.HEAL:
                heals.append(drift)
            elif decided.move is DriftAction.ASK:
                self._ask(context, drift, each, reporter)
        heals = await self._guarded(context, heals, parked, reporter)
        await context.state.commit()
        for drift in heals:
            await self._heal(context, drift, reporter)

    async def _settled(
        self,
        context: ApplicationContext,
        drift: ObjectDrift,
        decided: DriftDecision,
        reporter: PassReporter,
    ) -> ObjectDrift:
        """Let a drift stand as was decided, and tell where that is news."""
        after = replace(drift, state=decided.state, note=decided.note, until=decided.until)
        context.state.put_drift(after)
        if after.state is drift.state:
            return after
        if after.state is DriftState.BLOCKED and after.altered:
            await self._tell_altered(context, after, reporter)
        elif after.state is DriftState.FIGHTING:
            context.state.note("fight", after.note, subject=after.id)
            reporter.event("SelfHealLoopDetected", after.note, warning=True, object=after.object)
            theirs = fight.fight_writers(after.entries)
            since = after.rounds[0] if after.rounds else after.first_seen
            await reporter.notice(
                message.fight(
                    reporter.about(after), ours="holdfast-gitops", theirs=theirs,
                    rounds=len(after.rounds), since=since,
                )
            )  # fmt: skip
        elif after.state is DriftState.HELD:
            context.state.note("held", after.note, subject=after.id)
            reporter.event("DriftTolerated", after.note, object=after.object)
            await reporter.notice(
                message.drift_tolerated(reporter.about(after), reason=after.note, until=after.until)
            )
        return after

    def _ask(
        self,
        context: ApplicationContext,
        drift: ObjectDrift,
        seen: ObservedObject,
        reporter: PassReporter,
    ) -> None:
        """Keep the plan that a reviewer is to approve."""
        plan = make_plan_for(context, drift, seen)
        if plan.digest == drift.plan:
            return
        context.state.put_drift(replace(drift, plan=plan.digest))
        detail: Fields = {
            "plan": plan.digest, "steps": [wording.describe_step(step) for step in plan.steps],
        }  # fmt: skip
        told = f"{plan.id} waits for a review."
        context.state.note("approval-requested", told, subject=drift.id, detail=detail)
        reporter.event(
            "ApprovalRequested", f"{wording.describe_drift(drift)} Next: holdfast approve {drift.id}",
            object=drift.object,
        )  # fmt: skip

    async def _guarded(
        self,
        context: ApplicationContext,
        heals: list[ObjectDrift],
        known: Collection[str],
        reporter: PassReporter,
    ) -> list[ObjectDrift]:
        """Keep back what is too much to be healed without asking; what was approved is not.

        `known` are those that were kept back before: only others are news.
        """
        state = context.state
        own = [drift for drift in heals if drift.state is not DriftState.APPROVED]
        asked = context.current_request is not None
        sync = context.application.spec.sync
        parked = approval_for_heals(
            self._clock.now(),
            healing=len({drift.object for drift in own}),
            rounds=[heals[-1].at for heals in state.healed.values()],
            inventory=len(state.inventory),
            guard=sync.guard if sync else None,
        )
        if parked is None or asked or not own:
            return heals
        for drift in own:
            state.put_drift(replace(drift, state=DriftState.BLOCKED, note=parked.told))
        if any(drift.id not in known for drift in own):
            state.note("parked", parked.told)
            reporter.event("Parked", parked.told, warning=True)
            await reporter.notice(
                message.approval_required(
                    reporter.about(), plan="", reasons=[parked.told], changes=len(own)
                )
            )
        return [drift for drift in heals if drift.state is DriftState.APPROVED]

    async def _heal(
        self, context: ApplicationContext, drift: ObjectDrift, reporter: PassReporter
    ) -> None:
        """Put one drift right, if the object is still as it was decided on."""
        state = context.state
        seen = await self._looking.at_one(context, drift.object)
        if seen.standing not in DIFFERING or not _remaining_entries(context, seen, drift):
            return  # the next pass tells what became of it
        plan = make_plan_for(context, drift, seen)
        if told := self._void(drift, plan):
            state.note("stale", told, subject=drift.id)
            reporter.event("PlanStale", f"{drift.id}: {told}", warning=True, object=drift.object)
            state.put_drift(
                replace(drift, state=DriftState.DETECTED, note=told, plan="", decided_by="")
            )
            return
        state.note("applying", plan.id, subject=drift.id, detail={"plan": plan.digest})
        await state.commit()
        done = await self._applier.carry_out(context, plan, {seen.ref: seen})
        if failure := _failure_message(done):
            # A failure is no round of a fight: it is tried again soon, however often.
            state.put_drift(replace(drift, note=failure, until=self._clock.now() + RETRY_AFTER))
            state.note("heal-failed", failure, subject=drift.id)
            reporter.event("ReconciliationFailed", failure, warning=True, object=drift.object)
            await reporter.notice(message.heal_failed(reporter.about(drift), reason=failure))
            return
        # What was deleted is still to be seen until the watch tells: that is no fight.
        deleted = all(step.action is Action.DELETE for step in plan.changes)
        after = await self._looking.at_one(context, drift.object)
        left = () if deleted else _remaining_entries(context, after, drift)
        altered = {show_path(found.change.path) for each in done for found in each.altered}
        if left and all(entry.path in altered for entry in left):
            again = after.diff.recheck_at if after.diff else None
            blocked = replace(
                drift,
                entries=left,
                state=DriftState.BLOCKED,
                note=fight.describe_admission_change(left),
                until=again or self._clock.now() + ADMISSION_RECHECK,
            )
            state.put_drift(blocked)
            await self._tell_altered(context, blocked, reporter)
            return
        healed = state.count_heal(drift)
        if left:
            await self._rewritten(context, healed, left, reporter)
            return
        await self._healed(context, healed, reporter)

    async def _tell_altered(
        self, context: ApplicationContext, drift: ObjectDrift, reporter: PassReporter
    ) -> None:
        """Say that the server stores it differently than it was sent, so nothing was put back."""
        context.state.note("altered", drift.note, subject=drift.id)
        reporter.event("AlteredByAdmission", drift.note, warning=True, object=drift.object)
        await reporter.notice(message.heal_failed(reporter.about(drift), reason=drift.note))

    def _void(self, drift: ObjectDrift, plan: SyncPlan) -> str:
        """Say why an approval does not hold any more; empty while it does.

        What was not approved by its digest, such as the end of a hold, is no approval.
        """
        if drift.state is not DriftState.APPROVED or not drift.plan:
            return ""
        if plan.digest != drift.plan:
            return "It moved after it was reviewed, so the approval does not hold any more."
        approvers = [drift.decided_by]
        if drift.first_approver and drift.first_plan == drift.plan:
            approvers.append(drift.first_approver)
        for each in approvers:
            if not self._still_allowed(each):
                return f"{each} may not approve any more, so the approval does not hold."
        return ""

    async def _rewritten(
        self,
        context: ApplicationContext,
        drift: ObjectDrift,
        left: Sequence[DriftEntry],
        reporter: PassReporter,
    ) -> None:
        """Something changes the object as soon as it is written: writing more would not help."""
        told, theirs = fight.describe_rewrite(left)
        drift = replace(
            drift, state=DriftState.FIGHTING, note=told, until=self._clock.now() + FIGHT_TRUCE,
            entries=tuple(left), fought=True,
        )  # fmt: skip
        context.state.put_drift(drift)
        context.state.note("fight", told, subject=drift.id)
        reporter.event("SelfHealLoopDetected", told, warning=True, object=drift.object)
        await reporter.notice(
            message.fight(
                reporter.about(drift), ours="holdfast-gitops", theirs=theirs,
                rounds=len(drift.rounds), since=drift.first_seen,
            )
        )  # fmt: skip

    async def _healed(
        self, context: ApplicationContext, drift: ObjectDrift, reporter: PassReporter
    ) -> None:
        resolution = Resolution.SELF_HEALED
        if drift.state is DriftState.APPROVED:
            resolution = approved_resolution(drift)
        closed = replace(
            drift, state=DriftState.RESOLVED, resolved_at=self._clock.now(), resolution=resolution
        )
        close_drift(context, closed, reporter)
        await reporter.notice(
            message.drift_healed(
                reporter.about(closed), actor=drift.decided_by, fields=drift.entries
            )
        )  # fmt: skip


def make_plan_for(
    context: ApplicationContext, drift: ObjectDrift, seen: ObservedObject
) -> SyncPlan:
    """Make the plan that would end one drift."""
    desired = context.desired
    assert desired is not None  # noqa: S101  # it was looked at
    return make_heal_plan(
        context.application, desired.rendered.commit, seen, drift,
        digests=lambda ref: desired.of(ref).digest,
    )  # fmt: skip


def close_drift(context: ApplicationContext, drift: ObjectDrift, reporter: PassReporter) -> None:
    """Put a drift that ended into the history."""
    context.state.put_drift(drift)
    how = str(drift.resolution)
    back = "is as declared again" if drift.where else "is gone, as Git does not declare it"
    told = f"{drift.object} {_RESOLUTION_TEXT.get(drift.resolution, back)} ({how})."
    detail: Fields = {"resolution": how, "plan": drift.plan}
    context.state.note(
        "resolved", told, subject=drift.id, actor=drift.decided_by or "holdfast-gitops",
        detail=detail,
    )  # fmt: skip
    corrected = drift.resolution not in (Resolution.IGNORED, Resolution.SUPERSEDED)
    reporter.event("DriftCorrected" if corrected else "DriftEnded", told, object=drift.object)


_RESOLUTION_TEXT: dict[Resolution | None, str] = {
    Resolution.CODIFIED: "is what Git declares now",
    Resolution.IGNORED: "differs still, and a rule hides it",
    Resolution.SUPERSEDED: "differs still, otherwise than this drift told",
    Resolution.GONE: "is no longer declared",
}


def _with_sync_request(context: ApplicationContext, drift: ObjectDrift) -> ObjectDrift:
    """A person who asks for a sync asks for the end of drift that nobody has to approve."""
    request = context.current_request
    if request is None or drift.state is DriftState.APPROVED:
        return drift
    plain = drift.remediation in (Remediation.REPORT, Remediation.SELF_HEAL)
    if not (plain or request.force) or not drift.healable:
        return drift
    if not drift.where and drift.remediation is Remediation.REPORT:
        return drift  # its end is to be deleted, and who asks for a sync did not ask for that
    return replace(drift, state=DriftState.APPROVED, plan="", until=None, decided_by=request.actor)


def _remaining_entries(
    context: ApplicationContext, seen: ObservedObject, drift: ObjectDrift
) -> tuple[DriftEntry, ...]:
    """Which fields of a drift an object still has."""
    found = track(
        context.application, [seen], {drift.id: drift}, commit=drift.commit, now=drift.last_seen
    )
    paths = {entry.path for entry in drift.entries}
    return tuple(
        entry for each in found.open if each.id == drift.id
        for entry in each.entries if entry.path in paths
    )  # fmt: skip


def _failure_message(done: Sequence[StepOutcome]) -> str:
    return wording.shorten(" ".join(each.told for each in done if not each.ok))
