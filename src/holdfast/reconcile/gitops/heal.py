"""Handles drift: decides about each, asks for approval, heals, and notices fights.

What was approved is applied exactly or refused as stale. A claim is in the ledger before the
first write, so a crash leaves no silent second run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.core import fight
from holdfast.core.gitops import facts, wording
from holdfast.core.gitops.application import Remediation, SyncSpec
from holdfast.core.gitops.decide import (
    ADMISSION_RECHECK,
    FIGHT_TRUCE,
    DriftSituation,
    guard_heals,
)
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.objects import ObservedObject, SyncStatus
from holdfast.core.gitops.plan import SyncPlan, make_heal_plan
from holdfast.core.gitops.track import approved_resolution, track
from holdfast.core.gitops.window import window_state
from holdfast.core.ledger import DriftEntry
from holdfast.core.object_ref import ObjectRef
from holdfast.core.plan import Action
from holdfast.core.policy import DecisionAction, Reason
from holdfast.core.tree import show_path
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_observer import ApplicationObserver
from holdfast.reconcile.gitops.apply import PlanApplier
from holdfast.reconcile.gitops.reporting import PassReporter
from holdfast.reconcile.ports import Clock

RETRY_AFTER = timedelta(seconds=15)
"""How long a drift rests after a write that was refused."""
DIFFERING = frozenset({SyncStatus.DRIFTED, SyncStatus.ORPHAN})
IsStillAllowed = Callable[[str], bool]
"""Says whether who decided something, by name and token, may still decide it now."""


@dataclass(slots=True)
class DriftHealer:
    """Decides about the drifts of applications, asks for approval, and puts back what is due."""

    observer: ApplicationObserver
    applier: PlanApplier
    clock: Clock
    still_allowed: IsStillAllowed

    async def remediate(
        self,
        context: ApplicationContext,
        observed: Mapping[ObjectRef, ObservedObject],
        reporter: PassReporter,
    ) -> None:
        """Decide about every drift of the objects that were seen, and do what is due."""
        heals: list[ObjectDrift] = []
        guarded: list[DriftSituation] = []
        for situation in self._situations(context, observed):
            decision = situation.decide()
            after = situation.drift_after(decision)
            await self._settle(situation.drift, after, reporter)
            if decision.action is DecisionAction.HEAL:
                heals.append(after)
            elif decision.reason is Reason.GUARD:
                guarded.append(situation)
            elif decision.action is DecisionAction.REVIEW:
                await self._ask(context, after, observed[after.object], reporter)
        await self._tell_guarded(guarded, reporter)
        await context.state.commit()
        for drift in heals:
            await self._heal(context, drift, reporter)

    def _situations(
        self, context: ApplicationContext, observed: Mapping[ObjectRef, ObservedObject]
    ) -> Sequence[DriftSituation]:
        """Say what counts for each drift of the objects that were seen, and for all together."""
        state, now = context.state, self.clock.now()
        sync = context.application.spec.sync or SyncSpec()
        window = window_state(sync.windows or (), now)
        situations: list[DriftSituation] = []
        for drift in sorted(state.drifts.values(), key=lambda each: each.id):
            each = observed.get(drift.object)
            if each is None or each.sync_status not in DIFFERING:
                continue
            hold = context.hold_of(drift.object, now)
            situations.append(
                DriftSituation(
                    drift=drift if hold else _with_sync_request(context, drift),
                    now=now,
                    window=window,
                    owner=each.owner,
                    hold=hold,
                    recheck_at=each.diff.recheck_at if each.diff else None,
                )
            )
        if context.current_request is not None:
            return situations  # somebody asks for all of it
        return guard_heals(
            situations,
            now=now,
            rounds=[heals[-1].at for heals in state.healed.values()],
            inventory=len(state.inventory),
            guard=sync.guard,
        )

    async def _settle(
        self, before: ObjectDrift, after: ObjectDrift, reporter: PassReporter
    ) -> None:
        """Let a drift stand as was decided, and tell where that is news."""
        reporter.state.put_drift(after)
        if after.state is before.state:
            return
        if after.state is DriftState.BLOCKED and after.altered:
            await reporter.tell(facts.AlteredByAdmission(drift=after))
        elif after.state is DriftState.FIGHTING:
            since = after.rounds[0] if after.rounds else after.first_seen
            writers = fight.fight_writers(after.entries)
            await reporter.tell(facts.FightDetected(drift=after, writers=writers, since=since))
        elif after.state is DriftState.HELD:
            await reporter.tell(facts.DriftHeld(drift=after))

    async def _ask(
        self,
        context: ApplicationContext,
        drift: ObjectDrift,
        observed: ObservedObject,
        reporter: PassReporter,
    ) -> None:
        """Keep the plan that a reviewer is to approve."""
        plan = make_plan_for(context, drift, observed)
        if plan.digest == drift.plan:
            return
        context.state.put_drift(replace(drift, plan=plan.digest))
        await reporter.tell(facts.ApprovalRequested(drift=drift, plan=plan))

    async def _tell_guarded(
        self, guarded: Sequence[DriftSituation], reporter: PassReporter
    ) -> None:
        """Tell that the guard keeps drifts from being healed, unless all of them were blocked."""
        required = guarded[0].guard if guarded else None
        if required is None or all(each.drift.state is DriftState.BLOCKED for each in guarded):
            return
        await reporter.tell(facts.HealsBlocked(requirement=required, count=len(guarded)))

    async def _heal(
        self, context: ApplicationContext, drift: ObjectDrift, reporter: PassReporter
    ) -> None:
        """Put one drift right, if the object is still as it was decided on."""
        state = context.state
        observed = await self.observer.observe_one(context, drift.object)
        if observed.sync_status not in DIFFERING or not _remaining_entries(
            context, observed, drift
        ):
            return  # the next pass tells what became of it
        plan = make_plan_for(context, drift, observed)
        if void := self._void_reason(drift, plan):
            void_drift = replace(
                drift, state=DriftState.DETECTED, note=void, plan="", decided_by=""
            )
            state.put_drift(void_drift)
            await reporter.tell(facts.ApprovalExpired(drift=void_drift))
            return
        await reporter.tell(facts.HealStarted(drift=drift, plan=plan))
        await state.commit()
        done = await self.applier.apply(context, plan, {observed.ref: observed})
        failure = wording.shorten(" ".join(each.message for each in done if not each.ok))
        if failure:
            # A failure is no round of a fight: it is tried again soon, however often.
            failed = replace(drift, note=failure, until=self.clock.now() + RETRY_AFTER)
            state.put_drift(failed)
            await reporter.tell(facts.HealFailed(drift=failed))
            return
        # What was deleted is still to be seen until the watch tells: that is no fight.
        deleted = all(step.action is Action.DELETE for step in plan.changes)
        after = await self.observer.observe_one(context, drift.object)
        remaining = () if deleted else _remaining_entries(context, after, drift)
        altered = {show_path(found.change.path) for each in done for found in each.altered}
        if remaining and all(entry.path in altered for entry in remaining):
            again = after.diff.recheck_at if after.diff else None
            blocked = replace(
                drift,
                entries=remaining,
                state=DriftState.BLOCKED,
                note=fight.describe_admission_change(remaining),
                until=again or self.clock.now() + ADMISSION_RECHECK,
            )
            state.put_drift(blocked)
            await reporter.tell(facts.AlteredByAdmission(drift=blocked))
            return
        healed = state.count_heal(drift)
        if remaining:
            await self._report_rewrite(context, healed, remaining, reporter)
            return
        resolution = Resolution.SELF_HEALED
        if healed.state is DriftState.APPROVED:
            resolution = approved_resolution(healed)
        closed = replace(
            healed, state=DriftState.RESOLVED, resolved_at=self.clock.now(), resolution=resolution
        )
        await close_drift(closed, reporter, healed=True)

    def _void_reason(self, drift: ObjectDrift, plan: SyncPlan) -> str:
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
            if not self.still_allowed(each):
                return f"{each} may not approve any more, so the approval does not hold."
        return ""

    async def _report_rewrite(
        self,
        context: ApplicationContext,
        drift: ObjectDrift,
        remaining: Sequence[DriftEntry],
        reporter: PassReporter,
    ) -> None:
        """Something changes the object as soon as it is written: writing more would not help."""
        note, writers = fight.describe_rewrite(remaining)
        fought = replace(
            drift,
            state=DriftState.FIGHTING,
            note=note,
            until=self.clock.now() + FIGHT_TRUCE,
            entries=tuple(remaining),
            fought=True,
        )
        context.state.put_drift(fought)
        await reporter.tell(
            facts.FightDetected(drift=fought, writers=writers, since=drift.first_seen)
        )


def make_plan_for(
    context: ApplicationContext, drift: ObjectDrift, observed: ObservedObject
) -> SyncPlan:
    """Make the plan that would end one drift."""
    desired = context.desired
    assert desired is not None  # noqa: S101  # it was looked at
    return make_heal_plan(
        context.application,
        desired.rendered.commit,
        observed,
        drift,
        digests=lambda ref: desired.of(ref).digest,
    )


async def close_drift(drift: ObjectDrift, reporter: PassReporter, *, healed: bool = False) -> None:
    """Put a drift that ended into the history."""
    reporter.state.put_drift(drift)
    await reporter.tell(facts.drift_resolved(drift, healed=healed))


def _with_sync_request(context: ApplicationContext, drift: ObjectDrift) -> ObjectDrift:
    """A person who asks for a sync asks for the end of drift that nobody has to approve."""
    request = context.current_request
    if request is None or drift.state is DriftState.APPROVED:
        return drift
    if not (drift.remediation.ends_with_sync or request.force) or not drift.healable:
        return drift
    if not drift.where and drift.remediation is Remediation.REPORT:
        return drift  # its end is to be deleted, and who asks for a sync did not ask for that
    return replace(drift, state=DriftState.APPROVED, plan="", until=None, decided_by=request.actor)


def _remaining_entries(
    context: ApplicationContext, observed: ObservedObject, drift: ObjectDrift
) -> tuple[DriftEntry, ...]:
    """Which fields of a drift an object still has."""
    found = track(
        context.application, [observed], {drift.id: drift}, commit=drift.commit, now=drift.last_seen
    )
    paths = {entry.path for entry in drift.entries}
    return tuple(
        entry
        for each in found.open
        if each.id == drift.id
        for entry in each.entries
        if entry.path in paths
    )
