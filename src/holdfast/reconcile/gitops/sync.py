"""Brings the cluster to what Git declares anew, unless that is too much or too strange.

Drift is not overwritten by the way: what somebody changed stays as it is until its own route
says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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
from holdfast.core.gitops.records import AppliedRevision, ApprovalReason, PendingPlan
from holdfast.core.gitops.source import DeclaredObject
from holdfast.core.gitops.window import window_state
from holdfast.core.object_ref import ObjectRef
from holdfast.core.plan import Action
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
        sync = context.application.spec.sync or SyncSpec()
        request = context.current_request
        if source.stale and source.commit is None and request is None:
            return  # what is known is the last commit that was applied whole: nothing new is asked
        asked = bool(sync.prune) or bool(request and request.prune)
        # What is not known for sure is no reason to delete anything.
        sure = full and not source.stale
        sure = sure and all(
            each.sync_status is not SyncStatus.UNKNOWN for each in observed.values()
        )
        # A plan that waits is made again, to see whether it is still the same.
        plan = self.plan(context, observed, prune=sure and (asked or bool(state.plans)))
        context.kept_objects = dict(_claimed_elsewhere(context, observed)) if sure else {}
        await self._drop_void_approvals(context, reporter)
        if request is not None:
            for pending in list(state.plans.values()):  # somebody asks for what they would do
                if pending.rejected_by:
                    state.put_plan(replace(pending, rejected_by="", comment=""))
        if source.requirement is not None and source.commit is not None:
            await self._accept_commit(context, source.commit.sha, source.requirement, reporter)
            return
        if not full and any(
            WHOLE_PLAN_REASONS & {*pending.reasons} for pending in state.plans.values()
        ):
            return  # all of a commit waits, so no part of it is done by the way
        automatic = bool(sync.automatic)
        extent = SyncExtent(
            inventory=len(state.inventory),
            declared=_declared_objects(context),
            lately=state.unapproved,
            by_itself=automatic and request is None,
            acting=automatic or request is not None,
        )
        requirements = approvals_for_sync(
            plan,
            extent,
            guard=sync.guard,
            ancestry=source.ancestry,
            now=now,
        )
        if not sync.allow_empty and any(each.why is ApprovalReason.EMPTY for each in requirements):
            plan = _without_deletes(plan)  # an approval alone does not make it meant
        if sure and not requirements:
            self._drop_plans(context)
        # Where only deletions are in question, they alone wait: the rest may be done by then.
        all_of_it = any(each.whole for each in requirements)
        waiting = _only_deletes(plan)
        if all_of_it:
            waiting = plan if asked else _without_deletes(plan)
        approved = state.plans.get(waiting.id)
        agreed = bool(approved and approved.approved_by and approved.digest == waiting.digest)
        waits = bool(requirements) and not agreed and not (request and request.force)
        if waits:
            await self._block(context, waiting, list(requirements), reporter)
        window = window_state(sync.windows or (), now)
        if not (request or (automatic and window.open)):
            if not agreed:
                return
            plan = waiting
        elif all_of_it:
            plan = waiting if not waits else replace(plan, steps=())
        elif waits or not (asked or agreed):
            plan = _without_deletes(plan)
        if plan:
            self._begin(context, source, reporter)
            if request is None and not agreed:
                state.count_unapproved(unapproved_changes_of(plan, extent.declared, now))
            await self._apply(context, plan, observed, reporter)
        if agreed and approved is not None:
            state.put_plan(approved, done=True)
        # While some of a commit waits it is not applied whole: its history stays in question.
        if full and not waits and self._is_complete(context):
            self._finish(context, reporter)

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

    async def _drop_void_approvals(
        self, context: ApplicationContext, reporter: PassReporter
    ) -> None:
        """Take back the approvals of who may not approve any more."""
        for pending in list(context.state.plans.values()):
            if pending.approved_by and not self.still_allowed(pending.approved_by):
                await reporter.tell(facts.PlanApprovalExpired(plan=pending))
                context.state.put_plan(replace(pending, approved_by="", comment=""))

    def _drop_plans(self, context: ApplicationContext) -> None:
        """Put away plans that nobody has to decide about any more."""
        for pending in list(context.state.plans.values()):
            context.state.put_plan(pending, done=True)

    async def _block(
        self,
        context: ApplicationContext,
        plan: SyncPlan,
        requirements: list[ApprovalRequirement],
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


def _without_deletes(plan: SyncPlan) -> SyncPlan:
    steps = tuple(step for step in plan.steps if step.action is not Action.DELETE)
    return replace(plan, steps=steps)


def _only_deletes(plan: SyncPlan) -> SyncPlan:
    return replace(plan, steps=tuple(s for s in plan.steps if s.action is Action.DELETE))
