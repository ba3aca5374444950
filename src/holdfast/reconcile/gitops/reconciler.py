"""One pass over one application: follow, look, track, handle drift, sync, report.

It may be stopped anywhere: what it knows is in the ledger before it writes to the cluster, and
the next pass finds out anew what is there. Who wrote what is on record before healing erases it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace

from holdfast.core.gitops import message, wording
from holdfast.core.gitops.application import AnnotationHolds
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.objects import ObservedObject
from holdfast.core.gitops.planning import policy_digest
from holdfast.core.gitops.source import RenderedSource
from holdfast.core.gitops.track import close_undeclared, track
from holdfast.core.object_ref import ObjectRef
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops import holds
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_observer import ApplicationObserver
from holdfast.reconcile.gitops.application_status import application_status
from holdfast.reconcile.gitops.heal import DriftHealer, close_drift
from holdfast.reconcile.gitops.pull_requests import PullRequestFollower
from holdfast.reconcile.gitops.reporting import ApplicationResult, PassReporter, SendNotice
from holdfast.reconcile.gitops.source_poller import SourceState
from holdfast.reconcile.gitops.sync import Syncer
from holdfast.reconcile.ports import Clock

MIN_WAIT = 0.5
SUSPENDED_WAIT = 3600.0


ClaimObjects = Callable[[ApplicationContext, RenderedSource], str]
"""Takes what is declared for an application; says why not where another has some of it."""


def claim_everything(following: ApplicationContext, rendered: RenderedSource) -> str:
    """For who follows one application alone: everything is its own."""
    return ""


PollSource = Callable[[ApplicationContext], Awaitable[None]]
"""Has the repository of an application asked when it is time to."""


async def poll_and_wait(following: ApplicationContext) -> None:
    """For who follows one application alone: a pass waits for its repository."""
    await following.poller.follow(following.application, following.state.followed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilerComponents:
    """What a pass works with."""

    looking: ApplicationObserver
    healer: DriftHealer
    sync: Syncer
    pulls: PullRequestFollower
    clock: Clock
    tell: SendNotice
    key: bytes
    """Marks the values of Secrets."""
    cluster: str = ""
    """How notices name it."""
    claim: ClaimObjects = claim_everything
    poll: PollSource = poll_and_wait
    annotation_holds: AnnotationHolds = AnnotationHolds.LIMITED
    """For applications that do not say whether annotations may hold their objects."""


class ApplicationReconciler:
    """Makes passes. What is remembered between them stands in `ApplicationContext`."""

    def __init__(self, parts: ReconcilerComponents) -> None:
        self._parts = parts
        self._clock = parts.clock

    async def reconcile(
        self, following: ApplicationContext, *, only: Collection[ObjectRef] | None = None
    ) -> ApplicationResult:
        """Look at an application, or `only` at some of its objects, and do what is due.

        Raises Conflict when somebody else wrote to the ledger meanwhile, and what the ledger
        raises. It was left where it was then; the next pass reads what is known and goes on.
        """
        async with following.lock:
            voice = PassReporter(
                application=following.application, now=self._clock.now(), tell=self._parts.tell,
                cluster=self._parts.cluster,
            )  # fmt: skip
            await following.state.refresh()
            self._take_owner(following, voice)
            try:
                await self._pass(following, only, voice)
            except BaseException:
                # Nothing that was half done is gone on with: the next pass looks at everything.
                following.state.discard()
                following.policy = ""
                raise
            return ApplicationResult(
                status=application_status(following, self._clock.now()),
                requeue_after=self._wait(following),
                notes=tuple(voice.notes),
            )

    def _take_owner(self, following: ApplicationContext, voice: PassReporter) -> None:
        """Note whose an application is. What another project saw and decided stays with that one.

        Its open drifts end there, and are found anew for whoever has the application now. Holds
        and rules go along: they are about objects, and ending them would change those.
        """
        shelf, project = following.state, following.application.spec.project
        drifts = list(shelf.drifts.values())
        last = shelf.projects[-1] if shelf.projects else next(
            (drift.project for drift in drifts if drift.project != project), project
        )  # fmt: skip
        if last != project:
            shelf.project = last
            for drift in drifts:
                ended = Resolution.SUPERSEDED
                close_drift(
                    following,
                    replace(
                        drift, state=DriftState.RESOLVED, resolved_at=voice.now, resolution=ended
                    ),
                    voice,
                )
            for plan in list(shelf.plans.values()):
                shelf.put_plan(plan, done=True)
            shelf.note("handed-over", "The application belongs to another project now.")
            following.policy = ""
        shelf.project = project
        if last != project or not shelf.projects:
            earlier = [each for each in (*shelf.projects, last) if each != project]
            shelf.put_projects((*dict.fromkeys(earlier), project))

    def _wait(self, following: ApplicationContext) -> float:
        """Seconds until the next look that no event asks for."""
        if following.application.spec.suspend:
            return SUSPENDED_WAIT
        due = following.next_due(self._clock.now())
        wait = following.poller.wait
        return max(MIN_WAIT, wait if due is None else min(wait, due))

    async def _pass(
        self, following: ApplicationContext, only: Collection[ObjectRef] | None, voice: PassReporter
    ) -> None:
        application, shelf = following.application, following.state
        request = following.request
        if application.spec.suspend:
            await shelf.commit()
            return
        await self._parts.poll(following)
        before, source = following.source, following.poller.last
        following.source, following.awaiting = source, following.poller.awaited
        await self._tell_of_source(following, before, source, voice)
        if source.rendered is None:
            await shelf.commit()
            return
        refused, following.refused = (
            following.refused,
            self._parts.claim(following, source.rendered),
        )
        if following.refused:
            if following.refused != refused:
                shelf.note("refused", following.refused)
                voice.event("DeclaredTwice", following.refused, warning=True)
            await shelf.commit()
            return
        only = self._scope(following, source, only)
        seen = await self._parts.looking.at(following, only)
        await self._track(following, seen, voice, whole=only is None)
        await shelf.commit()
        by_ref = {each.ref: each for each in seen}
        await self._parts.healer.see_to(following, by_ref, voice)
        if following.awaiting:
            # Whoever asked for a look at Git wants what it says now: that is the next pass's.
            if only is None:
                following.policy = ""
            else:
                following.postponed.update(only)
            await shelf.commit()
            return
        await self._parts.sync.see_to(following, source, by_ref, voice, whole=only is None)
        await self._parts.pulls.see_to(following, source, by_ref, voice)
        if only is None:
            following.looked_at = voice.now
            if following.request is request:  # another may have come in the middle
                following.request = None
        await shelf.commit()

    def _scope(
        self, following: ApplicationContext, source: SourceState, only: Collection[ObjectRef] | None
    ) -> Collection[ObjectRef] | None:
        """Say which objects are looked at: all when what is declared, or the policy, is new."""
        policy = policy_digest(following.application)
        rendered = source.rendered
        assert rendered is not None  # noqa: S101  # asked before
        wanted = self._parts.looking.declared(following, rendered)
        if wanted is not following.desired:
            following.desired, only = wanted, None
        if following.policy != policy or following.current_request is not None:
            following.policy, only = policy, None
        postponed, following.postponed = following.postponed, set()
        if only is None or following.ended(self._clock.now()):
            return None
        return {*only, *postponed, *following.due(self._clock.now())}

    async def _track(
        self,
        following: ApplicationContext,
        seen: Sequence[ObservedObject],
        voice: PassReporter,
        *,
        whole: bool,
    ) -> None:
        """Bring the ledger's drifts up to date, and tell of what is new."""
        shelf = following.state
        assert following.desired is not None  # noqa: S101  # it was looked at
        holds.follow_annotations(following, seen, voice, self._parts.annotation_holds)
        tracked = track(
            following.application, seen, shelf.drifts, commit=following.desired.rendered.commit,
            now=voice.now, healed=shelf.healed,
        )  # fmt: skip
        resolved = list(tracked.resolved)
        if whole:
            resolved += close_undeclared(shelf.drifts, {each.ref for each in seen}, voice.now)
        for drift in tracked.opened:
            told = wording.describe_drift(drift)
            shelf.note("detected", told, subject=drift.id, detail=_drift_detail(drift))
            voice.event("DriftDetected", told, warning=True, object=drift.object)
            await voice.notice(
                message.drift_detected(
                    voice.about(drift), kinds=drift.kinds, fields=drift.entries,
                    writer=" and ".join(wording.drift_writers(drift)),
                    remediation=drift.remediation.value,
                    waits_for_review=drift.remediation == "review",
                )
            )  # fmt: skip
        for drift in tracked.changed:
            shelf.note(
                "changed",
                wording.describe_drift(drift),
                subject=drift.id,
                detail=_drift_detail(drift),
            )
        for drift in tracked.open:
            shelf.put_drift(drift)
        for drift in resolved:
            close_drift(following, drift, voice)
        await holds.expire_holds(following, voice)
        for rule in [each for each in shelf.rules.values() if each.expires <= voice.now]:
            shelf.put_rule(rule, ended=True)
            shelf.note("rule-expired", f"{rule.path} is compared again.", subject=rule.drift)

    async def _tell_of_source(
        self,
        following: ApplicationContext,
        before: SourceState,
        source: SourceState,
        voice: PassReporter,
    ) -> None:
        """Tell when the repository goes stale, and when it is back."""
        if bool(before.stale) == bool(source.stale):
            return
        spec = following.application.spec.source
        revision = spec.revision or "main"
        since = before.fetched_at or voice.now
        if source.stale:
            following.state.note("source-stale", wording.shorten(source.stale))
            voice.event("SourceStale", wording.shorten(source.stale), warning=True)
            await voice.notice(
                message.source_stale(
                    voice.about(), repository=spec.url, revision=revision, since=since,
                    reason=wording.shorten(source.stale),
                )
            )  # fmt: skip
        elif source.commit is not None:
            following.state.note("source-recovered", f"{revision} is {source.commit.sha[:7]}.")
            await voice.notice(
                message.source_recovered(
                    voice.about(), repository=spec.url, revision=revision, since=since,
                    commit=source.commit.sha,
                )
            )  # fmt: skip


def _drift_detail(drift: ObjectDrift) -> Fields:
    return {
        "object": str(drift.object),
        "kinds": [kind.value for kind in drift.kinds],
        "causes": [cause.value for cause in drift.causes],
        "fields": [entry.path for entry in drift.entries],
        "writers": list(wording.drift_writers(drift)),
        "commit": drift.commit,
        "remediation": drift.remediation.value,
        "route": drift.route,
    }
