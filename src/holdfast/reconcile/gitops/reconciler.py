"""One pass over one application: follow, look, track, handle drift, sync, report.

It may be stopped anywhere: what it knows is in the ledger before it writes to the cluster, and
the next pass finds out anew what is there. Who wrote what is on record before healing erases it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace

from holdfast.core.gitops import message
from holdfast.core.gitops.application import AnnotationHolds
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.source import Rendered
from holdfast.core.gitops.standing import Seen
from holdfast.core.gitops.steps import policy_of
from holdfast.core.gitops.track import track, without_declaration
from holdfast.core.objects import ObjectRef
from holdfast.core.tree import Fields
from holdfast.reconcile.gitops import holds, words
from holdfast.reconcile.gitops.follow import Source
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.heal import Healer, close
from holdfast.reconcile.gitops.looking import Looking
from holdfast.reconcile.gitops.pulls import Pulls
from holdfast.reconcile.gitops.report import report
from holdfast.reconcile.gitops.result import Result, Tell, Voice
from holdfast.reconcile.gitops.sync import Sync
from holdfast.reconcile.ports import Clock

SOONEST = 0.5
SUSPENDED = 3600.0


Claim = Callable[[Following, Rendered], str]
"""Takes what is declared for an application; says why not where another has some of it."""


def unclaimed(following: Following, rendered: Rendered) -> str:
    """For who follows one application alone: everything is its own."""
    return ""


Poll = Callable[[Following], Awaitable[None]]
"""Has the repository of an application asked when it is time to."""


async def fetch_first(following: Following) -> None:
    """For who follows one application alone: a pass waits for its repository."""
    await following.follower.follow(following.application, following.shelf.followed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a pass works with."""

    looking: Looking
    healer: Healer
    sync: Sync
    pulls: Pulls
    clock: Clock
    tell: Tell
    key: bytes
    """Marks the values of Secrets."""
    cluster: str = ""
    """How notices name it."""
    claim: Claim = unclaimed
    poll: Poll = fetch_first
    annotation_holds: AnnotationHolds = AnnotationHolds.LIMITED
    """For applications that do not say whether annotations may hold their objects."""


class Reconciler:
    """Makes passes. What is remembered between them stands in `Following`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._clock = parts.clock

    async def reconcile(
        self, following: Following, *, only: Collection[ObjectRef] | None = None
    ) -> Result:
        """Look at an application, or `only` at some of its objects, and do what is due.

        Raises Conflict when somebody else wrote to the ledger meanwhile, and what the ledger
        raises. It was left where it was then; the next pass reads what is known and goes on.
        """
        async with following.lock:
            voice = Voice(
                application=following.application, now=self._clock.now(), tell=self._parts.tell,
                cluster=self._parts.cluster,
            )  # fmt: skip
            await following.shelf.refresh()
            self._take_owner(following, voice)
            try:
                await self._pass(following, only, voice)
            except BaseException:
                # Nothing that was half done is gone on with: the next pass looks at everything.
                following.shelf.discard()
                following.policy = ""
                raise
            return Result(
                status=report(following, self._clock.now()),
                requeue_after=self._wait(following),
                notes=tuple(voice.notes),
            )

    def _take_owner(self, following: Following, voice: Voice) -> None:
        """Note whose an application is. What another project saw and decided stays with that one.

        Its open drifts end there, and are found anew for whoever has the application now. Holds
        and rules go along: they are about objects, and ending them would change those.
        """
        shelf, project = following.shelf, following.application.spec.project
        drifts = list(shelf.drifts.values())
        last = shelf.projects[-1] if shelf.projects else next(
            (drift.project for drift in drifts if drift.project != project), project
        )  # fmt: skip
        if last != project:
            shelf.project = last
            for drift in drifts:
                ended = Resolution.SUPERSEDED
                close(
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

    def _wait(self, following: Following) -> float:
        """Seconds until the next look that no event asks for."""
        if following.application.spec.suspend:
            return SUSPENDED
        due = following.next_due(self._clock.now())
        wait = following.follower.wait
        return max(SOONEST, wait if due is None else min(wait, due))

    async def _pass(
        self, following: Following, only: Collection[ObjectRef] | None, voice: Voice
    ) -> None:
        application, shelf = following.application, following.shelf
        request = following.request
        if application.spec.suspend:
            await shelf.commit()
            return
        await self._parts.poll(following)
        before, source = following.source, following.follower.last
        following.source, following.awaiting = source, following.follower.awaited
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
        self, following: Following, source: Source, only: Collection[ObjectRef] | None
    ) -> Collection[ObjectRef] | None:
        """Say which objects are looked at: all when what is declared, or the policy, is new."""
        policy = policy_of(following.application)
        rendered = source.rendered
        assert rendered is not None  # noqa: S101  # asked before
        wanted = self._parts.looking.declared(following, rendered)
        if wanted is not following.wanted:
            following.wanted, only = wanted, None
        if following.policy != policy or following.current_request is not None:
            following.policy, only = policy, None
        postponed, following.postponed = following.postponed, set()
        if only is None or following.ended(self._clock.now()):
            return None
        return {*only, *postponed, *following.due(self._clock.now())}

    async def _track(
        self, following: Following, seen: Sequence[Seen], voice: Voice, *, whole: bool
    ) -> None:
        """Bring the ledger's drifts up to date, and tell of what is new."""
        shelf = following.shelf
        assert following.wanted is not None  # noqa: S101  # it was looked at
        holds.follow_annotations(following, seen, voice, self._parts.annotation_holds)
        tracked = track(
            following.application, seen, shelf.drifts, commit=following.wanted.rendered.commit,
            now=voice.now, healed=shelf.healed,
        )  # fmt: skip
        resolved = list(tracked.resolved)
        if whole:
            resolved += without_declaration(shelf.drifts, {each.ref for each in seen}, voice.now)
        for drift in tracked.opened:
            told = words.told(drift)
            shelf.note("detected", told, subject=drift.id, detail=_facts(drift))
            voice.event("DriftDetected", told, warning=True, object=drift.object)
            await voice.notice(
                message.drift_detected(
                    voice.about(drift), kinds=drift.kinds, fields=drift.entries,
                    writer=" and ".join(words.writers(drift)),
                    remediation=drift.remediation.value,
                    waits_for_review=drift.remediation == "review",
                )
            )  # fmt: skip
        for drift in tracked.changed:
            shelf.note("changed", words.told(drift), subject=drift.id, detail=_facts(drift))
        for drift in tracked.open:
            shelf.put_drift(drift)
        for drift in resolved:
            close(following, drift, voice)
        await holds.expire(following, voice)
        for rule in [each for each in shelf.rules.values() if each.expires <= voice.now]:
            shelf.put_rule(rule, ended=True)
            shelf.note("rule-expired", f"{rule.path} is compared again.", subject=rule.drift)

    async def _tell_of_source(
        self, following: Following, before: Source, source: Source, voice: Voice
    ) -> None:
        """Tell when the repository goes stale, and when it is back."""
        if bool(before.stale) == bool(source.stale):
            return
        spec = following.application.spec.source
        revision = spec.revision or "main"
        since = before.fetched_at or voice.now
        if source.stale:
            following.shelf.note("source-stale", words.cut(source.stale))
            voice.event("SourceStale", words.cut(source.stale), warning=True)
            await voice.notice(
                message.source_stale(
                    voice.about(), repository=spec.url, revision=revision, since=since,
                    reason=words.cut(source.stale),
                )
            )  # fmt: skip
        elif source.commit is not None:
            following.shelf.note("source-recovered", f"{revision} is {source.commit.sha[:7]}.")
            await voice.notice(
                message.source_recovered(
                    voice.about(), repository=spec.url, revision=revision, since=since,
                    commit=source.commit.sha,
                )
            )  # fmt: skip


def _facts(drift: ObjectDrift) -> Fields:
    return {
        "object": str(drift.object),
        "kinds": [kind.value for kind in drift.kinds],
        "causes": [cause.value for cause in drift.causes],
        "fields": [entry.path for entry in drift.entries],
        "writers": list(words.writers(drift)),
        "commit": drift.commit,
        "remediation": drift.remediation.value,
        "route": drift.route,
    }
