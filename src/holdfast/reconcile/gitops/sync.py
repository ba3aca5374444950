"""Brings the cluster to what Git declares anew, unless that is too much or too strange.

Drift is not overwritten by the way: what somebody changed stays as it is until its own route
says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.core import fight
from holdfast.core.cost import total_cost
from holdfast.core.gitops import facts, wording
from holdfast.core.gitops.application import SyncSpec
from holdfast.core.gitops.drift import entry_of
from holdfast.core.gitops.guard import (
    WHOLE_PLAN_REASONS,
    ApprovalRequirement,
    SyncExtent,
    approvals_for_sync,
    unapproved_changes_of,
)
from holdfast.core.gitops.objects import ObservedObject, SyncStatus
from holdfast.core.gitops.plan import SyncPlan, make_sync_plan, planned_fields
from holdfast.core.gitops.records import AppliedRevision, PendingPlan
from holdfast.core.gitops.source import DeclaredObject
from holdfast.core.gitops.sync_decision import SyncTerms, decide_sync
from holdfast.core.gitops.window import window_state
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_observer import ApplicationObserver
from holdfast.reconcile.gitops.apply import PlanApplier
from holdfast.reconcile.gitops.heal import IsStillAllowed
from holdfast.reconcile.gitops.reporting import PassReporter
from holdfast.reconcile.gitops.source_poller import SourceState
from holdfast.reconcile.ports import Clock


@dataclass(slots=True)
class Syncer:
    """Carries out what Git asks for."""

    observer: ApplicationObserver
    applier: PlanApplier
    clock: Clock
    still_allowed: IsStillAllowed

    async def sync_objects(
        self,
        context: ApplicationContext,
        source: SourceState,
        observed: Mapping[ObjectRef, ObservedObject],
        reporter: PassReporter,
        *,
        full: bool,
    ) -> None:
        """Plan, and carry out what may be. Only a look at everything may prune or finish."""
        state, now = context.state, self.clock.now()
        terms = _terms_of(context, now)
        if source.stale and source.commit is None and not terms.requested:
            return  # what is known is the last commit that was applied whole: nothing new is asked
        # What is not known for sure is no reason to delete anything.
        sure = full and not source.stale
        sure = sure and all(
            each.sync_status is not SyncStatus.UNKNOWN for each in observed.values()
        )
        # A plan that waits is made again, to see whether it is still the same.
        plan = self.plan(context, observed, prune=sure and (terms.prunes or bool(state.plans)))
        context.kept_objects = dict(_claimed_elsewhere(context, observed)) if sure else {}
        await self._drop_void_decisions(context, terms, reporter)
        if source.requirement is not None and source.commit is not None:
            await self._accept_commit(context, source.commit.sha, source.requirement, reporter)
            return
        if not full and any(
            WHOLE_PLAN_REASONS & {*pending.reasons} for pending in state.plans.values()
        ):
            return  # all of a commit waits, so no part of it is done by the way
        requirements = self._requirements(context, source, plan, terms)
        if sure and not requirements:
            self._drop_plans(context)
        decision = decide_sync(plan, requirements, terms, state.plans)
        if decision.waiting is not None:
            await self._block(context, decision.waiting, requirements, reporter)
        if decision.now is None:
            return
        if decision.now:
            self._begin(context, source, reporter)
            if decision.unapproved:
                done = unapproved_changes_of(decision.now, _declared_objects(context), now)
                state.count_unapproved(done)
            await self._apply(context, decision.now, observed, reporter)
        if decision.approval is not None:
            state.put_plan(decision.approval, done=True)
        # While some of a commit waits it is not applied whole: its history stays in question.
        if full and decision.waiting is None and self._is_complete(context):
            self._finish(context, reporter)

    def _requirements(
        self, context: ApplicationContext, source: SourceState, plan: SyncPlan, terms: SyncTerms
    ) -> tuple[ApprovalRequirement, ...]:
        """Ask the guards about a plan."""
        sync = context.application.spec.sync
        extent = SyncExtent(
            inventory=len(context.state.inventory),
            declared=_declared_objects(context),
            lately=context.state.unapproved,
            by_itself=terms.automatic and not terms.requested,
            acting=terms.automatic or terms.requested,
        )
        return approvals_for_sync(
            plan,
            extent,
            guard=sync.guard if sync else None,
            ancestry=source.ancestry,
            now=self.clock.now(),
        )

    def plan(
        self,
        context: ApplicationContext,
        observed: Mapping[ObjectRef, ObservedObject],
        *,
        prune: bool,
    ) -> SyncPlan:
        """Say what a sync would do now."""
        desired = context.desired
        assert desired is not None  # noqa: S101  # it was looked at
        now = self.clock.now()
        held = {ref for ref in observed if context.hold_of(ref, now) is not None}
        pending = dict(_claimed_elsewhere(context, observed)) if prune else {}
        return make_sync_plan(
            context.application,
            desired.rendered.commit,
            observed.values(),
            digests=lambda ref: desired.of(ref).digest,
            inventory=context.state.inventory,
            prune=prune,
            held=held | pending.keys(),
        )

    async def _apply(
        self,
        context: ApplicationContext,
        plan: SyncPlan,
        observed: Mapping[ObjectRef, ObservedObject],
        reporter: PassReporter,
    ) -> None:
        state = context.state
        actor = context.current_request.actor if context.current_request else facts.CONTROLLER
        await reporter.tell(facts.SyncStarted(plan=plan, actor=actor))
        await state.commit()
        done = await self.applier.apply(context, plan, observed)
        await self.observer.observe(context, {each.step.ref for each in done})
        failed = [each for each in done if not each.ok]
        if failed:
            first = f"{failed[0].step.ref}: {failed[0].message}"
            reason = f"{len(failed)} of {len(done)} objects were not applied. {first}"
            await reporter.tell(facts.SyncFailed(reason=wording.shorten(reason)))
        else:
            await reporter.tell(facts.Synced(plan=plan, actor=actor))
        for each in done:
            if each.altered:
                fields = (entry_of(found) for found in each.altered)
                reason = f"{each.step.ref}: {fight.describe_admission_change(fields)}"
                await reporter.tell(
                    facts.ObjectAltered(about=each.step.ref, reason=wording.shorten(reason))
                )

    async def _accept_commit(
        self,
        context: ApplicationContext,
        commit: str,
        requirements: ApprovalRequirement,
        reporter: PassReporter,
    ) -> None:
        """Follow a commit of strange history once a person agreed to it."""
        state, request = context.state, context.current_request
        plan = SyncPlan(application=context.application.id, commit=commit, steps=())
        pending = state.plans.get(plan.id)
        by = pending.approved_by if pending else ""
        if request is not None and request.force:
            by = request.actor
        if not by or state.revision is None:
            await self._block(context, plan, [requirements], reporter)
            return
        state.put_revision(replace(state.revision, accepted=commit))
        await reporter.tell(facts.CommitAccepted(commit=commit, actor=by))
        self._drop_plans(context)
        context.poller.hasten()

    async def _drop_void_decisions(
        self, context: ApplicationContext, terms: SyncTerms, reporter: PassReporter
    ) -> None:
        """Take back approvals of who may not approve any more, and rejections once a person asks
        for what was rejected."""
        for pending in list(context.state.plans.values()):
            if pending.approved_by and not self.still_allowed(pending.approved_by):
                await reporter.tell(facts.PlanApprovalExpired(plan=pending))
                context.state.put_plan(replace(pending, approved_by="", comment=""))
            elif pending.rejected_by and terms.requested:
                context.state.put_plan(replace(pending, rejected_by="", comment=""))

    def _drop_plans(self, context: ApplicationContext) -> None:
        """Put away plans that nobody has to decide about any more."""
        for pending in list(context.state.plans.values()):
            context.state.put_plan(pending, done=True)

    async def _block(
        self,
        context: ApplicationContext,
        plan: SyncPlan,
        requirements: Sequence[ApprovalRequirement],
        reporter: PassReporter,
    ) -> None:
        """Keep a plan for a person. Told once."""
        state = context.state
        message = " ".join(each.message for each in requirements)
        for pending in list(state.plans.values()):
            if pending.digest != plan.digest and not pending.approved_by:
                state.put_plan(pending, done=True)
        if plan.id in state.plans:
            return
        state.put_plan(
            PendingPlan(
                id=plan.id,
                digest=plan.digest,
                commit=plan.commit,
                reasons=tuple(each.why for each in requirements),
                told=message,
                steps=tuple(wording.describe_step(step) for step in plan.changes),
                made_at=reporter.now,
                fields=planned_fields(plan),
                cost=total_cost(step.cost for step in plan.changes) if plan else None,
                requested_by=context.current_request.actor if context.current_request else "",
            )
        )
        await reporter.tell(facts.PlanBlocked(plan=plan, requirements=tuple(requirements)))

    def _is_complete(self, context: ApplicationContext) -> bool:
        """True when nothing that Git asked for is still to be done."""
        return not any(
            snapshot.sync_status in (SyncStatus.OUT_OF_SYNC, SyncStatus.UNKNOWN)
            for snapshot in context.object_states.values()
        )

    def _finish(self, context: ApplicationContext, reporter: PassReporter) -> None:
        desired = context.desired
        assert desired is not None  # noqa: S101  # it was looked at
        known = context.state.revision
        if known is None or known.newest != desired.rendered.commit or known.begun:
            context.state.put_revision(
                AppliedRevision(commit=desired.rendered.commit, at=reporter.now)
            )

    def _begin(
        self, context: ApplicationContext, source: SourceState, reporter: PassReporter
    ) -> None:
        """Note which commit is about to be applied: a branch may be set back in the middle."""
        desired, known = context.desired, context.state.revision
        assert desired is not None  # noqa: S101  # it was looked at
        commit = desired.rendered.commit
        if source.commit is None or source.commit.sha != commit:
            return  # what is followed is older, and was begun before
        if known is None or known.newest != commit:
            before = known or AppliedRevision(commit="", at=reporter.now)
            context.state.put_revision(
                replace(before, at=reporter.now, begun=commit, begun_as=source.ancestry)
            )


def _terms_of(context: ApplicationContext, now: datetime) -> SyncTerms:
    sync, request = context.application.spec.sync or SyncSpec(), context.current_request
    return SyncTerms(
        requested=request is not None,
        forced=request is not None and request.force,
        automatic=bool(sync.automatic),
        window_open=window_state(sync.windows or (), now).open,
        prunes=bool(sync.prune) or bool(request and request.prune),
        allow_empty=bool(sync.allow_empty),
    )


def _declared_objects(context: ApplicationContext) -> Sequence[DeclaredObject]:
    assert context.desired is not None  # noqa: S101  # it was looked at
    return context.desired.rendered.objects


def _claimed_elsewhere(
    context: ApplicationContext, observed: Mapping[ObjectRef, ObservedObject]
) -> Iterator[tuple[ObjectRef, str]]:
    """What is not deleted because another application has it, or may have it, and why.

    Whoever forces a sync answers for what is not known; what another declares is never deleted.
    """
    if context.other_claim is None:
        return
    forced = context.current_request is not None and context.current_request.force
    for ref, each in observed.items():
        if each.sync_status is not SyncStatus.PRUNABLE or each.live is None:
            continue
        other_claim = context.other_claim(ref)
        if other_claim is not None and (other_claim.declares or not forced):
            yield ref, other_claim.message
