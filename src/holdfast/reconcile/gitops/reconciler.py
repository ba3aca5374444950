"""One pass over one application: follow, look, track, handle drift, sync, report.

It may be stopped anywhere: what it knows is in the ledger before it writes to the cluster, and
the next pass finds out anew what is there. Who wrote what is on record before healing erases it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from holdfast.core.gitops import facts
from holdfast.core.gitops.application import AnnotationHolds
from holdfast.core.gitops.drift import DriftState, Resolution
from holdfast.core.gitops.objects import DuplicateDeclaration, ObservedObject
from holdfast.core.gitops.plan import policy_digest
from holdfast.core.gitops.source import RenderedSource
from holdfast.core.gitops.track import close_undeclared, track
from holdfast.core.object_ref import ObjectRef
from holdfast.reconcile.gitops import holds
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_observer import ApplicationObserver
from holdfast.reconcile.gitops.application_status import application_status
from holdfast.reconcile.gitops.heal import DriftHealer, close_drift
from holdfast.reconcile.gitops.reporting import ApplicationResult, PassReporter, SendNotice
from holdfast.reconcile.gitops.source_poller import SourceState
from holdfast.reconcile.gitops.sync import Syncer
from holdfast.reconcile.ports import Clock

MIN_WAIT = 0.5
SUSPENDED_WAIT = 3600.0


ClaimObjects = Callable[[ApplicationContext, RenderedSource], DuplicateDeclaration | None]
"""Takes what is declared for an application; returns what another has of it, and takes nothing."""


def claim_everything(context: ApplicationContext, rendered: RenderedSource) -> None:
    """For who follows one application alone: everything is its own."""


PollSource = Callable[[ApplicationContext], Awaitable[None]]
"""Has the repository of an application asked when it is time to."""


async def poll_and_wait(context: ApplicationContext) -> None:
    """For who follows one application alone: a pass waits for its repository."""
    await context.poller.follow(context.application, context.state.revision)


class Remediator(Protocol):
    """Carries out a remediation that does not write to the cluster by itself."""

    async def remediate(
        self,
        context: ApplicationContext,
        source: SourceState,
        observed: Mapping[ObjectRef, ObservedObject],
        reporter: PassReporter,
    ) -> None:
        """Do what is due about the drifts of an application that have this remediation.

        Called at the end of each pass, when each drift stands as was decided about it. Who is
        asked outside and gives no answer delays nothing else.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilerComponents:
    """What a pass works with."""

    observer: ApplicationObserver
    healer: DriftHealer
    sync: Syncer
    remediators: tuple[Remediator, ...]
    """Beside the healer, which also asks for reviews. Reporting and ignoring need none."""
    clock: Clock
    tell: SendNotice
    key: bytes
    """Marks the values of Secrets."""
    cluster: str = ""
    """How notices name it."""
    base_url: str = ""
    """Where people reach the page; empty when nobody said."""
    claim: ClaimObjects = claim_everything
    poll: PollSource = poll_and_wait
    annotation_holds: AnnotationHolds = AnnotationHolds.LIMITED
    """For applications that do not say whether annotations may hold their objects."""


class ApplicationReconciler:
    """Makes passes. What is remembered between them stands in `ApplicationContext`."""

    def __init__(self, components: ReconcilerComponents) -> None:
        self.components = components
        self._clock = components.clock

    async def reconcile(
        self, context: ApplicationContext, *, only: Collection[ObjectRef] | None = None
    ) -> ApplicationResult:
        """Look at an application, or `only` at some of its objects, and do what is due.

        Raises Conflict when somebody else wrote to the ledger meanwhile, and what the ledger
        raises. It was left where it was then; the next pass reads what is known and goes on.
        """
        async with context.lock:
            reporter = PassReporter(
                application=context.application,
                state=context.state,
                now=self._clock.now(),
                send=self.components.tell,
                cluster=self.components.cluster,
                base_url=self.components.base_url,
            )
            await context.state.refresh()
            await self._take_owner(context, reporter)
            try:
                await self._pass(context, only, reporter)
            except BaseException:
                # Nothing that was half done is gone on with: the next pass looks at everything.
                context.state.discard()
                context.policy = ""
                raise
            return ApplicationResult(
                status=application_status(context, self._clock.now()),
                requeue_after=self._wait(context),
                events=tuple(reporter.events),
            )

    async def _take_owner(self, context: ApplicationContext, reporter: PassReporter) -> None:
        """Note whose an application is. What another project saw and decided stays with that one.

        Its open drifts end there, and are found anew for whoever has the application now. Holds
        and rules go along: they are about objects, and ending them would change those.
        """
        state, project = context.state, context.application.spec.project
        drifts = list(state.drifts.values())
        last = (
            state.projects[-1]
            if state.projects
            else next((drift.project for drift in drifts if drift.project != project), project)
        )
        if last != project:
            state.project = last
            for drift in drifts:
                await close_drift(
                    replace(
                        drift,
                        state=DriftState.RESOLVED,
                        resolved_at=reporter.now,
                        resolution=Resolution.SUPERSEDED,
                    ),
                    reporter,
                )
            for plan in list(state.plans.values()):
                state.put_plan(plan, done=True)
            await reporter.tell(facts.HandedOver())
            context.policy = ""
        state.project = project
        if last != project or not state.projects:
            earlier = [each for each in (*state.projects, last) if each != project]
            state.put_projects((*dict.fromkeys(earlier), project))

    def _wait(self, context: ApplicationContext) -> float:
        """Seconds until the next look that no event asks for."""
        if context.application.spec.suspend:
            return SUSPENDED_WAIT
        due = context.next_due(self._clock.now())
        wait = context.poller.wait
        return max(MIN_WAIT, wait if due is None else min(wait, due))

    async def _pass(
        self,
        context: ApplicationContext,
        only: Collection[ObjectRef] | None,
        reporter: PassReporter,
    ) -> None:
        application, state = context.application, context.state
        request = context.request
        if application.spec.suspend:
            await state.commit()
            return
        await self.components.poll(context)
        before, source = context.source, context.poller.last
        context.source, context.awaiting = source, context.poller.awaited
        await self._tell_of_source(context, before, source, reporter)
        if source.rendered is None:
            await state.commit()
            return
        refused, context.refused = (
            context.refused,
            self.components.claim(context, source.rendered),
        )
        if context.refused is not None:
            if context.refused != refused:
                await reporter.tell(facts.ApplicationRefused(duplicate=context.refused))
            await state.commit()
            return
        only = self._scope(context, source, only)
        observed = await self.components.observer.observe(context, only)
        await self._track(context, observed, reporter, full=only is None)
        await state.commit()
        by_ref = {each.ref: each for each in observed}
        await self.components.healer.remediate(context, by_ref, reporter)
        if context.awaiting:
            # Whoever asked for a look at Git wants what it says now: that is the next pass's.
            if only is None:
                context.policy = ""
            else:
                context.postponed.update(only)
            await state.commit()
            return
        await self.components.sync.sync_objects(
            context, source, by_ref, reporter, full=only is None
        )
        for remediator in self.components.remediators:
            await remediator.remediate(context, source, by_ref, reporter)
        if only is None:
            context.looked_at = reporter.now
            if context.request is request:  # another may have come in the middle
                context.request = None
        await state.commit()

    def _scope(
        self, context: ApplicationContext, source: SourceState, only: Collection[ObjectRef] | None
    ) -> Collection[ObjectRef] | None:
        """Say which objects are looked at: all when what is declared, or the policy, is new."""
        policy = policy_digest(context.application)
        rendered = source.rendered
        assert rendered is not None  # noqa: S101  # asked before
        desired = self.components.observer.declared(context, rendered)
        if desired is not context.desired:
            context.desired, only = desired, None
        if context.policy != policy or context.current_request is not None:
            context.policy, only = policy, None
        postponed, context.postponed = context.postponed, set()
        if only is None or context.ended(self._clock.now()):
            return None
        return {*only, *postponed, *context.due(self._clock.now())}

    async def _track(
        self,
        context: ApplicationContext,
        observed: Sequence[ObservedObject],
        reporter: PassReporter,
        *,
        full: bool,
    ) -> None:
        """Bring the ledger's drifts up to date, and tell of what is new."""
        state = context.state
        assert context.desired is not None  # noqa: S101  # it was looked at
        await holds.follow_annotations(
            context, observed, reporter, self.components.annotation_holds
        )
        tracked = track(
            context.application,
            observed,
            state.drifts,
            commit=context.desired.rendered.commit,
            now=reporter.now,
            healed=state.healed,
        )
        resolved = list(tracked.resolved)
        if full:
            resolved += close_undeclared(
                state.drifts, {each.ref for each in observed}, reporter.now
            )
        for drift in tracked.opened:
            await reporter.tell(facts.DriftDetected(drift=drift))
        for drift in tracked.changed:
            await reporter.tell(facts.DriftChanged(drift=drift))
        for drift in tracked.open:
            state.put_drift(drift)
        for drift in resolved:
            await close_drift(drift, reporter)
        await holds.expire_holds(context, reporter)
        for rule in [each for each in state.rules.values() if each.expires <= reporter.now]:
            state.put_rule(rule, ended=True)
            await reporter.tell(facts.RuleExpired(rule=rule))

    async def _tell_of_source(
        self,
        context: ApplicationContext,
        before: SourceState,
        source: SourceState,
        reporter: PassReporter,
    ) -> None:
        """Tell when the repository goes stale, and when it is back."""
        if (before.stale is None) == (source.stale is None):
            return
        spec = context.application.spec.source
        revision = spec.revision or "main"
        since = before.fetched_at or reporter.now
        if source.stale is not None:
            await reporter.tell(
                facts.SourceStale(
                    repository=spec.url, revision=revision, since=since, stale=source.stale
                )
            )
        elif source.commit is not None:
            await reporter.tell(
                facts.SourceRecovered(
                    repository=spec.url, revision=revision, since=since, commit=source.commit.sha
                )
            )
