"""Handles drift: decides about each, asks for approval, heals, and notices fights.

What was approved is applied exactly or refused as stale. A claim is in the ledger before the
first write, so a crash leaves no silent second run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from holdfast.core.gitops import fight, message
from holdfast.core.gitops.application import Remediation
from holdfast.core.gitops.decide import RECHECK, TRUCE, Decision, Move, decide
from holdfast.core.gitops.drift import DriftState, ObjectDrift, Resolution
from holdfast.core.gitops.guard import park_heals
from holdfast.core.gitops.plan import SyncPlan
from holdfast.core.gitops.standing import Seen, Standing
from holdfast.core.gitops.steps import heal_plan
from holdfast.core.gitops.track import approved_as, track
from holdfast.core.gitops.window import open_now
from holdfast.core.ledger import DriftEntry
from holdfast.core.objects import ObjectRef
from holdfast.core.plan import Action
from holdfast.core.tree import Fields, show_path
from holdfast.reconcile.gitops import words
from holdfast.reconcile.gitops.apply import Applier, Done
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.looking import Looking
from holdfast.reconcile.gitops.result import Voice
from holdfast.reconcile.ports import Clock

AGAIN = timedelta(seconds=15)
"""How long a drift rests after a write that was refused."""
DIFFERS = frozenset({Standing.DRIFTED, Standing.ORPHAN})
StillAllowed = Callable[[str], bool]
"""Says whether who decided something, by name and token, may still decide it now."""


class Hands:
    """What healing and syncing both work with."""

    def __init__(
        self,
        looking: Looking,
        applier: Applier,
        clock: Clock,
        still_allowed: StillAllowed = lambda decided_by: True,
    ) -> None:
        self._looking = looking
        self._applier = applier
        self._clock = clock
        self._still_allowed = still_allowed


class Healer(Hands):
    """Handles the drifts of applications."""

    async def see_to(
        self, following: Following, seen: Mapping[ObjectRef, Seen], voice: Voice
    ) -> None:
        """Decide about every drift of the objects that were seen, and do what is due."""
        sync = following.application.spec.sync
        window = open_now((sync.windows if sync else None) or (), self._clock.now())
        heals: list[ObjectDrift] = []
        parked = {
            drift.id for drift in following.shelf.drifts.values()
            if drift.state is DriftState.PARKED
        }  # fmt: skip
        for drift in sorted(following.shelf.drifts.values(), key=lambda each: each.id):
            each = seen.get(drift.object)
            if each is None or each.standing not in DIFFERS:
                continue
            now = self._clock.now()
            hold = following.hold_of(drift.object, now)
            if hold is None:
                drift = _asked_for(following, drift)
            decided = decide(
                drift,
                owner=each.owner,
                hold=hold,
                window=window,
                now=now,
                recheck_at=each.verdict.recheck_at if each.verdict else None,
            )
            drift = await self._settled(following, drift, decided, voice)
            if decided.move is Move.HEAL:
                heals.append(drift)
            elif decided.move is Move.ASK:
                self._ask(following, drift, each, voice)
        heals = await self._guarded(following, heals, parked, voice)
        await following.shelf.commit()
        for drift in heals:
            await self._heal(following, drift, voice)

    async def _settled(
        self, following: Following, drift: ObjectDrift, decided: Decision, voice: Voice
    ) -> ObjectDrift:
        """Let a drift stand as was decided, and tell where that is news."""
        after = replace(drift, state=decided.state, note=decided.note, until=decided.until)
        following.shelf.put_drift(after)
        if after.state is drift.state:
            return after
        if after.state is DriftState.PARKED and after.altered:
            await self._tell_altered(following, after, voice)
        elif after.state is DriftState.FIGHTING:
            following.shelf.note("fight", after.note, subject=after.id)
            voice.event("SelfHealLoopDetected", after.note, warning=True, object=after.object)
            theirs = fight.rivals(after.entries)
            since = after.rounds[0] if after.rounds else after.first_seen
            await voice.notice(
                message.fight(
                    voice.about(after), ours="holdfast-gitops", theirs=theirs,
                    rounds=len(after.rounds), since=since,
                )
            )  # fmt: skip
        elif after.state is DriftState.HELD:
            following.shelf.note("held", after.note, subject=after.id)
            voice.event("DriftTolerated", after.note, object=after.object)
            await voice.notice(
                message.drift_tolerated(voice.about(after), reason=after.note, until=after.until)
            )
        return after

    def _ask(self, following: Following, drift: ObjectDrift, seen: Seen, voice: Voice) -> None:
        """Keep the plan that a reviewer is to approve."""
        plan = plan_for(following, drift, seen)
        if plan.digest == drift.plan:
            return
        following.shelf.put_drift(replace(drift, plan=plan.digest))
        detail: Fields = {
            "plan": plan.digest, "steps": [words.step_line(step) for step in plan.steps],
        }  # fmt: skip
        told = f"{plan.id} waits for a review."
        following.shelf.note("approval-requested", told, subject=drift.id, detail=detail)
        voice.event(
            "ApprovalRequested", f"{words.told(drift)} Next: holdfast approve {drift.id}",
            object=drift.object,
        )  # fmt: skip

    async def _guarded(
        self, following: Following, heals: list[ObjectDrift], known: Collection[str], voice: Voice
    ) -> list[ObjectDrift]:
        """Keep back what is too much to be healed without asking; what was approved is not.

        `known` are those that were kept back before: only others are news.
        """
        shelf = following.shelf
        own = [drift for drift in heals if drift.state is not DriftState.APPROVED]
        asked = following.current_request is not None
        sync = following.application.spec.sync
        parked = park_heals(
            self._clock.now(),
            healing=len({drift.object for drift in own}),
            rounds=[heals[-1].at for heals in shelf.healed.values()],
            inventory=len(shelf.inventory),
            guard=sync.guard if sync else None,
        )
        if parked is None or asked or not own:
            return heals
        for drift in own:
            shelf.put_drift(replace(drift, state=DriftState.PARKED, note=parked.told))
        if any(drift.id not in known for drift in own):
            shelf.note("parked", parked.told)
            voice.event("Parked", parked.told, warning=True)
            await voice.notice(
                message.parked(voice.about(), plan="", reasons=[parked.told], changes=len(own))
            )
        return [drift for drift in heals if drift.state is DriftState.APPROVED]

    async def _heal(self, following: Following, drift: ObjectDrift, voice: Voice) -> None:
        """Put one drift right, if the object is still as it was decided on."""
        shelf = following.shelf
        seen = await self._looking.at_one(following, drift.object)
        if seen.standing not in DIFFERS or not _still(following, seen, drift):
            return  # the next pass tells what became of it
        plan = plan_for(following, drift, seen)
        if told := self._void(drift, plan):
            shelf.note("stale", told, subject=drift.id)
            voice.event("PlanStale", f"{drift.id}: {told}", warning=True, object=drift.object)
            shelf.put_drift(
                replace(drift, state=DriftState.DETECTED, note=told, plan="", decided_by="")
            )
            return
        shelf.note("applying", plan.id, subject=drift.id, detail={"plan": plan.digest})
        await shelf.commit()
        done = await self._applier.carry_out(following, plan, {seen.ref: seen})
        if failure := _failure(done):
            # A failure is no round of a fight: it is tried again soon, however often.
            shelf.put_drift(replace(drift, note=failure, until=self._clock.now() + AGAIN))
            shelf.note("heal-failed", failure, subject=drift.id)
            voice.event("ReconciliationFailed", failure, warning=True, object=drift.object)
            await voice.notice(message.heal_failed(voice.about(drift), reason=failure))
            return
        # What was deleted is still to be seen until the watch tells: that is no fight.
        deleted = all(step.action is Action.DELETE for step in plan.changes)
        after = await self._looking.at_one(following, drift.object)
        left = () if deleted else _still(following, after, drift)
        altered = {show_path(found.change.path) for each in done for found in each.altered}
        if left and all(entry.path in altered for entry in left):
            again = after.verdict.recheck_at if after.verdict else None
            blocked = replace(
                drift,
                entries=left,
                state=DriftState.PARKED,
                note=fight.altered(left),
                until=again or self._clock.now() + RECHECK,
            )
            shelf.put_drift(blocked)
            await self._tell_altered(following, blocked, voice)
            return
        healed = shelf.count_heal(drift)
        if left:
            await self._rewritten(following, healed, left, voice)
            return
        await self._healed(following, healed, voice)

    async def _tell_altered(self, following: Following, drift: ObjectDrift, voice: Voice) -> None:
        """Say that the server stores it differently than it was sent, so nothing was put back."""
        following.shelf.note("altered", drift.note, subject=drift.id)
        voice.event("AlteredByAdmission", drift.note, warning=True, object=drift.object)
        await voice.notice(message.heal_failed(voice.about(drift), reason=drift.note))

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
        self, following: Following, drift: ObjectDrift, left: Sequence[DriftEntry], voice: Voice
    ) -> None:
        """Something changes the object as soon as it is written: writing more would not help."""
        told, theirs = fight.rewritten(left)
        drift = replace(
            drift, state=DriftState.FIGHTING, note=told, until=self._clock.now() + TRUCE,
            entries=tuple(left), fought=True,
        )  # fmt: skip
        following.shelf.put_drift(drift)
        following.shelf.note("fight", told, subject=drift.id)
        voice.event("SelfHealLoopDetected", told, warning=True, object=drift.object)
        await voice.notice(
            message.fight(
                voice.about(drift), ours="holdfast-gitops", theirs=theirs,
                rounds=len(drift.rounds), since=drift.first_seen,
            )
        )  # fmt: skip

    async def _healed(self, following: Following, drift: ObjectDrift, voice: Voice) -> None:
        resolution = Resolution.SELF_HEALED
        if drift.state is DriftState.APPROVED:
            resolution = approved_as(drift)
        closed = replace(
            drift, state=DriftState.RESOLVED, resolved_at=self._clock.now(), resolution=resolution
        )
        close(following, closed, voice)
        await voice.notice(
            message.drift_healed(
                voice.about(closed), actor=drift.decided_by, fields=drift.entries
            )
        )  # fmt: skip


def plan_for(following: Following, drift: ObjectDrift, seen: Seen) -> SyncPlan:
    """Make the plan that would end one drift."""
    wanted = following.wanted
    assert wanted is not None  # noqa: S101  # it was looked at
    return heal_plan(
        following.application, wanted.rendered.commit, seen, drift,
        digests=lambda ref: wanted.of(ref).digest,
    )  # fmt: skip


def close(following: Following, drift: ObjectDrift, voice: Voice) -> None:
    """Put a drift that ended into the history."""
    following.shelf.put_drift(drift)
    how = str(drift.resolution)
    back = "is as declared again" if drift.where else "is gone, as Git does not declare it"
    told = f"{drift.object} {_ENDED.get(drift.resolution, back)} ({how})."
    detail: Fields = {"resolution": how, "plan": drift.plan}
    following.shelf.note(
        "resolved", told, subject=drift.id, actor=drift.decided_by or "holdfast-gitops",
        detail=detail,
    )  # fmt: skip
    corrected = drift.resolution not in (Resolution.IGNORED, Resolution.SUPERSEDED)
    voice.event("DriftCorrected" if corrected else "DriftEnded", told, object=drift.object)


_ENDED: dict[Resolution | None, str] = {
    Resolution.CODIFIED: "is what Git declares now",
    Resolution.IGNORED: "differs still, and a rule hides it",
    Resolution.SUPERSEDED: "differs still, otherwise than this drift told",
    Resolution.GONE: "is no longer declared",
}


def _asked_for(following: Following, drift: ObjectDrift) -> ObjectDrift:
    """A person who asks for a sync asks for the end of drift that nobody has to approve."""
    request = following.current_request
    if request is None or drift.state is DriftState.APPROVED:
        return drift
    plain = drift.remediation in (Remediation.REPORT, Remediation.SELF_HEAL)
    if not (plain or request.force) or not drift.healable:
        return drift
    if not drift.where and drift.remediation is Remediation.REPORT:
        return drift  # its end is to be deleted, and who asks for a sync did not ask for that
    return replace(drift, state=DriftState.APPROVED, plan="", until=None, decided_by=request.actor)


def _still(following: Following, seen: Seen, drift: ObjectDrift) -> tuple[DriftEntry, ...]:
    """Which fields of a drift an object still has."""
    found = track(
        following.application, [seen], {drift.id: drift}, commit=drift.commit, now=drift.last_seen
    )
    paths = {entry.path for entry in drift.entries}
    return tuple(
        entry for each in found.open if each.id == drift.id
        for entry in each.entries if entry.path in paths
    )  # fmt: skip


def _failure(done: Sequence[Done]) -> str:
    return words.cut(" ".join(each.told for each in done if not each.ok))
