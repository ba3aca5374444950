"""What a person can ask and decide about applications, whichever door they come through.

A decision is one write to the ledger, guarded by what was seen: of two at once, one wins. It
takes effect with the next pass, which every decision asks for. Nothing is decided about what
has moved since it was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.core.errors import Conflict, NotFound, PermissionDenied, StalePlan, ValidationError
from holdfast.core.gitops import message
from holdfast.core.gitops.application import AppId, DriftSpec, HoldEnd, PullKind, Remediation
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.hold import Hold
from holdfast.core.gitops.inventory import KeptPlan, KeptRule
from holdfast.core.gitops.plan import SyncPlan
from holdfast.core.gitops.standing import Seen
from holdfast.core.objects import ObjectRef
from holdfast.core.ownership.ignore import concerns_security
from holdfast.core.redact import credential_in
from holdfast.core.tree import digest
from holdfast.reconcile.gitops.following import Following, SyncRequest
from holdfast.reconcile.gitops.heal import plan_for
from holdfast.reconcile.gitops.looking import Looking
from holdfast.reconcile.gitops.result import Tell, Voice
from holdfast.reconcile.gitops.sync import Sync
from holdfast.reconcile.ports import Clock

LONGEST = timedelta(days=30)
"""No hold, snooze or rule of a moment lasts longer: what is meant for good belongs in Git."""

Wake = Callable[[AppId], None]
"""Asks for a pass over an application."""


class Desk:
    """Decisions about the applications that one controller follows."""

    def __init__(
        self,
        followed: Mapping[AppId, Following],
        looking: Looking,
        sync: Sync,
        clock: Clock,
        *,
        wake: Wake,
        tell: Tell,
    ) -> None:
        self._followed = followed
        self._looking = looking
        self._sync = sync
        self._clock = clock
        self._wake = wake
        self._tell = tell

    def applications(self, project: str) -> tuple[Following, ...]:
        """Return the applications of a project, by name."""
        found = [each for each in self._followed.values() if _in(each, project)]
        return tuple(sorted(found, key=lambda each: each.application.id))

    def application(self, project: str, name: str) -> Following:
        """Return one by `name` or `namespace/name`; another project's is as good as none."""
        found = [
            each
            for each in self.applications(project)
            if name in (each.application.id.name, str(each.application.id))
            or name == each.application.id.label
        ]
        if len(found) > 1:
            names = ", ".join(str(each.application.id) for each in found)
            raise Conflict(f"{name[:80]} may be {names}.", todo="Name it with its namespace.")
        if not found:
            raise NotFound(
                f"There is no application {name[:80]!a} in project {project}.",
                todo="holdfast status lists them.",
            )
        return found[0]

    def drift(self, project: str, id: str) -> tuple[Following, ObjectDrift]:
        """Return an open drift of a project."""
        for following in self.applications(project):
            if (drift := following.shelf.drifts.get(id)) is not None:
                return following, drift
        raise NotFound(
            f"There is no open drift {id[:40]!a} in project {project}.",
            todo="holdfast drift list shows the open ones, holdfast drift history all of them.",
        )

    async def look(self, following: Following) -> tuple[Seen, ...]:
        """Look at all objects of an application now. Writes nothing."""
        async with following.lock:
            if following.wanted is None:
                raise NotFound(
                    f"What {following.application.id} declares is not known yet.",
                    todo=following.follower.last.stale or "Wait for its first fetch.",
                )
            return await self._looking.at(following, None)

    async def plan(self, following: Following, *, prune: bool) -> SyncPlan:
        """Say what a sync would do now."""
        seen = {each.ref: each for each in await self.look(following)}
        return self._sync.plan(following, seen, prune=prune)

    def sync(self, following: Following, *, actor: str, prune: bool, force: bool) -> None:
        """Have Git applied. The next pass does it."""
        following.request = SyncRequest(actor=actor, prune=prune, force=force)
        following.follower.hasten()
        self._wake(following.application.id)

    async def approve(
        self, project: str, id: str, *, plan: str, actor: str, comment: str = ""
    ) -> ObjectDrift:
        """Approve exactly the plan that was reviewed.

        Raises StalePlan when it is not the one that waits any more, Conflict when the drift waits
        for nothing, PermissionDenied where four eyes are asked for and these are the first two.
        """
        following, _ = self.drift(project, id)
        async with following.lock:
            drift = self._open(following, id)
            if drift.state is not DriftState.AWAITING:
                raise Conflict(
                    f"{id} waits for no approval: it is {drift.state}.",
                    todo=f"holdfast drift show {id} tells how it stands.",
                )
            if plan != drift.plan:
                raise StalePlan(
                    f"{id} changed after you reviewed it: its plan is {drift.plan[:19]} now.",
                    todo=f"Review it again: holdfast drift show {id}",
                )
            self._may_decide(following, drift, actor, comment)
            after = replace(drift, state=DriftState.APPROVED, decided_by=actor, comment=comment)
            voice = await self._decided(following, after, "approved", actor, comment)
            await voice.notice(
                message.drift_approved(voice.about(after), actor=actor, plan=plan, comment=comment)
            )
        self._wake(following.application.id)
        return after

    async def approve_plan(
        self, project: str, id: str, *, plan: str, actor: str, comment: str = ""
    ) -> KeptPlan:
        """Agree to a plan that a guard parked. It is carried out if it is still the same."""
        following, kept = self.waiting_plan(project, id)
        async with following.lock:
            kept = following.shelf.plans.get(id, kept)
            if plan != kept.digest:
                raise StalePlan(f"{id} is another plan now.", todo="Review it again.")
            spec = following.application.spec.drift or DriftSpec()
            _check_comment(spec, comment)
            after = replace(kept, approved_by=actor, comment=comment)
            following.shelf.put_plan(after)
            following.shelf.note("approved", f"{id} was approved.", subject=id, actor=actor)
            await self._commit(following)
        following.follower.hasten()
        self._wake(following.application.id)
        return after

    def waiting_plan(self, project: str, id: str) -> tuple[Following, KeptPlan]:
        """Return a plan that waits for a person."""
        for following in self.applications(project):
            if (kept := following.shelf.plans.get(id)) is not None:
                return following, kept
        raise NotFound(
            f"There is no plan {id[:40]!a} that waits in project {project}.",
            todo="holdfast status -o wide shows which plans wait.",
        )

    async def reject(self, project: str, id: str, *, actor: str, comment: str) -> ObjectDrift:
        """Say that the live side stays as it is. Asked again only when it changes."""
        return await self._decide(
            project, id, "rejected", actor, comment, state=DriftState.REJECTED, until=None,
            note=f"Rejected by {actor}.",
        )  # fmt: skip

    async def snooze(
        self, project: str, id: str, *, actor: str, comment: str, until: datetime
    ) -> ObjectDrift:
        """Be asked again later."""
        self._check_end(until)
        return await self._decide(
            project, id, "snoozed", actor, comment, state=DriftState.SNOOZED, until=until,
            note=f"Snoozed by {actor}.",
        )  # fmt: skip

    async def codify(self, project: str, id: str, *, actor: str) -> ObjectDrift:
        """Propose the live value to Git by a pull request."""
        return await self._decide(
            project, id, "codify-requested", actor, "", state=DriftState.DETECTED, until=None,
            note=f"{actor} asked for a pull request.", remediation=Remediation.PULL_REQUEST,
            pull=PullKind.CODIFY, chosen_by=actor,
        )  # fmt: skip

    async def revert(
        self, project: str, id: str, *, actor: str, comment: str = "", by_pull: bool = False
    ) -> ObjectDrift:
        """Have the declared value put back: by a merged decision, by a review, or at once."""
        following, drift = self.drift(project, id)
        spec = following.application.spec.drift or DriftSpec()
        if by_pull:
            return await self._decide(
                project, id, "revert-requested", actor, comment, state=DriftState.DETECTED,
                until=None, note=f"{actor} asked for a decision.", chosen_by=actor,
                remediation=Remediation.PULL_REQUEST, pull=PullKind.REVERT,
            )  # fmt: skip
        if drift.remediation is Remediation.REVIEW or spec.four_eyes:
            return await self._decide(
                project, id, "revert-requested", actor, comment, state=DriftState.DETECTED,
                until=None, note=f"{actor} asked for it; it waits for a review.",
                remediation=Remediation.REVIEW, chosen_by=actor, requested_by=actor,
            )  # fmt: skip
        async with following.lock:
            seen = await self._looking.at_one(following, drift.object)
            plan = plan_for(following, drift, seen)
        return await self._decide(
            project, id, "approved", actor, comment, state=DriftState.APPROVED, until=None,
            note=f"{actor} asked for it.", plan=plan.digest, decided_by=actor,
        )  # fmt: skip

    async def ignore(
        self, project: str, id: str, *, actor: str, until: datetime, reason: str,
        path: str = "", manager: str = "",
    ) -> tuple[KeptRule, ...]:  # fmt: skip
        """Hide a drift, or one field of it, for a while."""
        self._check_end(until)
        following, drift = self.drift(project, id)
        paths = [entry.path for entry in drift.entries if path in ("", entry.path)]
        if not paths or "" in paths:
            raise ValidationError(
                f"{id} has no field {path[:80]!a} that a rule could hide.",
                todo="Name one that holdfast drift show lists; whole objects cannot be hidden.",
            )
        for each in paths:
            if concerns_security(tuple(each.split(".")), drift.object.kind):
                raise PermissionDenied(
                    f"{each} concerns security, so it is not hidden for a moment.",
                    todo="Declare the rule in the Application, with security: true.",
                )
        async with following.lock:
            rules = tuple(
                KeptRule(
                    name=f"{id}-{place}", drift=id, path=each, manager=manager or None,
                    kind=drift.object.kind, object_name=drift.object.name,
                    namespace=drift.object.namespace or "*", owner=actor,
                    reason=_clean(reason), expires=until,
                )
                for place, each in enumerate(paths)
            )  # fmt: skip
            for rule in rules:
                following.shelf.put_rule(rule)
            told = f"{', '.join(paths)} of {drift.object} until {until:%Y-%m-%dT%H:%M:%SZ}."
            following.shelf.note("ignored", told, subject=id, actor=actor)
            await self._commit(following)
        self._wake(following.application.id)
        return rules

    async def pause(
        self,
        following: Following,
        *,
        actor: str,
        reason: str,
        until: datetime,
        object: ObjectRef | None = None,
        end: HoldEnd | None = None,
    ) -> Hold:
        """Hold an application, or one object: nothing is written to it until the hold ends.

        Counts at once, also in the middle of a sync.
        """
        self._check_end(until)
        now = self._clock.now()
        spec = following.application.spec.drift or DriftSpec()
        basis = [str(following.application.id), str(object), actor, now.isoformat()]
        hold = Hold(
            id="hold-" + digest(basis).removeprefix("sha256:")[:8],
            application=following.application.id, object=object, reason=_clean(reason), by=actor,
            since=now, until=until, end=end or spec.hold_end or HoldEnd.PULL_REQUEST,
        )  # fmt: skip
        following.shelf.holds[hold.id] = hold
        async with following.lock:
            following.shelf.put_hold(hold)
            told = f"{object or following.application.id} until {until:%Y-%m-%dT%H:%M:%SZ}: "
            following.shelf.note("paused", told + hold.reason, subject=hold.id, actor=actor)
            await self._commit(following)
        self._wake(following.application.id)
        return hold

    async def resume(
        self, following: Following, *, actor: str, object: ObjectRef | None = None
    ) -> tuple[Hold, ...]:
        """End the holds of an application, or of one object, before their time."""
        async with following.lock:
            found = tuple(
                hold
                for hold in following.shelf.holds.values()
                if (object is None or hold.object == object) and not hold.from_annotation
            )
            if not found:
                raise NotFound(
                    f"{object or following.application.id} is not on hold by command.",
                    todo="A hold by annotation ends when the annotation is removed.",
                )
            for hold in found:
                following.shelf.put_hold(hold, ended=True)
                told = f"{hold.object or following.application.id} is no longer on hold."
                following.shelf.note("resumed", told, subject=hold.id, actor=actor)
            await self._commit(following)
        self._wake(following.application.id)
        return found

    async def _decide(
        self,
        project: str,
        id: str,
        action: str,
        actor: str,
        comment: str,
        **changes: object,
    ) -> ObjectDrift:
        following, _ = self.drift(project, id)
        async with following.lock:
            drift = self._open(following, id)
            if drift.state is DriftState.APPROVED:
                raise Conflict(
                    f"{id} was approved by {drift.decided_by} already, and is being put back.",
                    todo=f"holdfast drift show {id} tells what became of it.",
                )
            spec = following.application.spec.drift or DriftSpec()
            _check_comment(spec, comment, needed=action == "rejected")
            after = replace(drift, comment=_clean(comment), **changes)  # type: ignore[arg-type]
            if not after.decided_by:
                after = replace(after, decided_by=actor)
            await self._decided(following, after, action, actor, comment)
        self._wake(following.application.id)
        return after

    async def _decided(
        self, following: Following, after: ObjectDrift, action: str, actor: str, comment: str
    ) -> Voice:
        following.shelf.put_drift(after)
        told = f"{after.object}: {action} by {actor}."
        following.shelf.note(
            action, told, subject=after.id, actor=actor,
            detail={"plan": after.plan, "comment": _clean(comment), "digest": after.digest},
        )  # fmt: skip
        await self._commit(following)
        return Voice(application=following.application, now=self._clock.now(), tell=self._tell)

    async def _commit(self, following: Following) -> None:
        try:
            await following.shelf.commit()
        except Conflict:
            await following.shelf.read()
            raise

    def _open(self, following: Following, id: str) -> ObjectDrift:
        drift = following.shelf.drifts.get(id)
        if drift is None:
            raise Conflict(
                f"{id} was resolved meanwhile, so there is nothing to decide.",
                todo=f"holdfast drift show {id} tells how it ended.",
            )
        return drift

    def _may_decide(
        self, following: Following, drift: ObjectDrift, actor: str, comment: str
    ) -> None:
        spec = following.application.spec.drift or DriftSpec()
        _check_comment(spec, comment)
        if not spec.four_eyes:
            return
        involved = {drift.requested_by, drift.chosen_by}
        involved |= {entry.writer.actor or "" for entry in drift.entries if entry.writer}
        if _person(actor) in {_person(each) for each in involved if each}:
            raise PermissionDenied(
                f"{actor} asked for this or made the change, so somebody else has to approve it.",
                todo="Have another reviewer approve it.",
            )

    def _check_end(self, until: datetime) -> None:
        left = until - self._clock.now()
        if not timedelta(0) < left <= LONGEST:
            raise ValidationError(
                f"It would end {until:%Y-%m-%dT%H:%M:%SZ}, which is over or more than 30 days off.",
                todo="Give a time between a minute and 30 days.",
            )


def _in(following: Following, project: str) -> bool:
    return following.application.spec.project == project


def _check_comment(spec: DriftSpec, comment: str, *, needed: bool = False) -> None:
    if (spec.comment or needed) and not comment.strip():
        raise ValidationError("A comment is needed for this.", todo="Give --comment TEXT.")
    if credential_in(comment):
        raise ValidationError(
            "The comment looks as if it held a credential.", todo="Leave it out of the comment."
        )


def _clean(text: str) -> str:
    return " ".join(text.split())[:500]


def _person(actor: str) -> str:
    """Who stands behind a credential: tokens of one person bear one name."""
    return actor.partition(" (")[0]
