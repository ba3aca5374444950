"""What a person can ask and decide about applications, whichever app they come through.

A decision is one write to the ledger, guarded by what was seen: of two at once, one wins. It
takes effect with the next pass, which every decision asks for. Nothing is decided about what
has moved since it was looked at.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from holdfast.core.errors import (
    Conflict,
    HoldfastError,
    InvalidState,
    PermissionDenied,
    RefusedByPolicy,
    StalePlan,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.gitops import message
from holdfast.core.gitops.application import DriftSpec, PullKind, Remediation
from holdfast.core.gitops.decide import Move, decide
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.inventory import KeptPlan
from holdfast.core.gitops.pull_text import branch_of
from holdfast.core.gitops.standing import Seen, Standing
from holdfast.core.gitops.window import open_now
from holdfast.core.redact import credential_in
from holdfast.reconcile.gitops.following import Following, SyncRequest
from holdfast.reconcile.gitops.heal import plan_for
from holdfast.reconcile.gitops.result import Voice
from holdfast.reconcile.gitops.tolerate import Tolerance, one_line

_PROPOSED = frozenset({"codify-requested", "revert-requested"})


class Desk(Tolerance):
    """Decisions about the applications that one controller follows."""

    def sync(self, following: Following, *, actor: str, prune: bool, force: bool) -> None:
        """Have Git applied. The next pass does it.

        Raises PermissionDenied for `force` where four eyes are asked for: these would be two.
        """
        drift = following.application.spec.drift
        if force and drift and drift.four_eyes:
            raise PermissionDenied(
                f"{following.application.id} asks for four eyes, and force does without a review.",
                todo="Leave --force out, and have somebody else approve what waits.",
            )
        following.request = SyncRequest(actor=actor, prune=prune, force=force)
        following.follower.hasten()
        self._wake(following.application.id)

    async def approve(
        self, project: str, id: str, *, plan: str, actor: str, comment: str = ""
    ) -> ObjectDrift:
        """Approve exactly the plan that was reviewed.

        Where four eyes are asked for and nobody knows who made the change, it takes two people:
        after the first one it still waits.

        Raises StalePlan when it is not the one that waits any more, Conflict when somebody decided
        before, InvalidState when the drift waits for nothing, PermissionDenied where four eyes are
        asked for and these are the first two.
        """
        following, _ = self.drift(project, id)
        async with following.lock:
            await following.shelf.refresh()
            drift = self._open(following, id)
            if drift.state is not DriftState.AWAITING:
                raise _not_waiting(drift)
            if plan != drift.plan:
                raise StalePlan(
                    f"{id} changed after you reviewed it: its plan is {drift.plan[:19]} now.",
                    todo=f"Review it again: holdfast drift show {id}",
                )
            self._may_decide(following, drift, actor, comment)
            if self._needs_another(following, drift, actor):
                return await self._first_approval(following, drift, actor, comment)
            after = replace(
                drift, state=DriftState.APPROVED, decided_by=actor, comment=one_line(comment)
            )
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
            await following.shelf.refresh()
            _, kept = self.waiting_plan(project, id)
            if plan != kept.digest:
                raise StalePlan(f"{id} is a different plan now.", todo="Review it again.")
            if kept.rejected_by:
                raise _rejected(following, kept)
            spec = following.application.spec.drift or DriftSpec()
            _check_comment(spec, comment)
            _check_eyes(spec, actor, {kept.requested_by})
            after = replace(kept, approved_by=actor, comment=one_line(comment))
            following.shelf.put_plan(after)
            following.shelf.note("approved", f"{id} was approved.", subject=id, actor=actor)
            await self._commit(following)
        following.follower.hasten()
        self._wake(following.application.id)
        return after

    async def reject_plan(self, project: str, id: str, *, actor: str, comment: str) -> KeptPlan:
        """Say that a plan which a guard parked is not to be carried out.

        It is not asked about again while it stays the same, unless somebody asks for a sync.
        Raises Conflict when it was decided before.
        """
        following, kept = self.waiting_plan(project, id)
        async with following.lock:
            await following.shelf.refresh()
            _, kept = self.waiting_plan(project, id)
            if kept.rejected_by:
                raise _rejected(following, kept)
            if kept.approved_by:
                raise Conflict(
                    f"{id} was approved by {kept.approved_by} already.",
                    todo=f"holdfast pause {following.application.id} stops what is not done yet.",
                )
            _check_comment(following.application.spec.drift or DriftSpec(), comment, needed=True)
            after = replace(kept, rejected_by=actor, comment=one_line(comment))
            following.shelf.put_plan(after)
            following.shelf.note(
                "rejected",
                f"{id} was rejected.",
                subject=id,
                actor=actor,
                detail={"plan": kept.digest, "comment": one_line(comment)},
            )
            await self._commit(following)
        self._wake(following.application.id)
        return after

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
            note=f"{actor} asked for a pull request.", url="",
            remediation=Remediation.PULL_REQUEST,
            pull=PullKind.CODIFY, chosen_by=actor,
        )  # fmt: skip

    async def revert(
        self, project: str, id: str, *, actor: str, comment: str = "", by_pull: bool = False
    ) -> ObjectDrift:
        """Have the declared value put back: by a merged decision, by a review, or at once."""
        following, drift = self.drift(project, id)
        spec = following.application.spec.drift or DriftSpec()
        async with following.lock:
            self._known(following)
            seen = await self._looking.at_one(following, drift.object)
            self._check_can_be_put_back(following, drift, seen)
        if by_pull:
            return await self._decide(
                project, id, "revert-requested", actor, comment, state=DriftState.DETECTED,
                until=None, note=f"{actor} asked for a decision.", chosen_by=actor, url="",
                remediation=Remediation.PULL_REQUEST, pull=PullKind.REVERT,
            )  # fmt: skip
        if drift.remediation is Remediation.REVIEW or spec.four_eyes:
            return await self._decide(
                project, id, "revert-requested", actor, comment, state=DriftState.DETECTED,
                until=None, note=f"{actor} asked for it; it waits for a review.",
                remediation=Remediation.REVIEW, chosen_by=actor, requested_by=actor,
            )  # fmt: skip
        if seen.standing is Standing.UNKNOWN:
            raise TargetUnavailable(
                f"{drift.object} could not be read, so nothing was decided.",
                todo="Try again when the cluster answers.",
            )
        plan = plan_for(following, drift, seen)
        return await self._decide(
            project, id, "approved", actor, comment, state=DriftState.APPROVED, until=None,
            note=f"{actor} asked for it.", plan=plan.digest, decided_by=actor,
        )  # fmt: skip

    def _check_can_be_put_back(self, following: Following, drift: ObjectDrift, seen: Seen) -> None:
        """Refuse what no pass would carry out, however it is approved, with the reason."""
        now = self._clock.now()
        hold = following.hold_of(drift.object, now)
        decided = decide(
            replace(drift, state=DriftState.APPROVED, until=None),
            owner=seen.owner,
            hold=hold,
            window=open_now((), now),
            now=now,
        )
        if decided.move is not Move.HEAL:
            raise RefusedByPolicy(
                f"{drift.id} cannot be put back. {decided.note}",
                todo=f"End the hold first: holdfast resume {following.application.id}"
                if hold is not None
                else f"holdfast drift explain {drift.id} tells who applies it and what is left.",
            )

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
        shelf = following.shelf
        async with following.lock:
            await shelf.refresh()
            drift = self._open(following, id)
            if drift.state is DriftState.APPROVED:
                raise Conflict(
                    f"{id} was approved by {drift.decided_by} already, and is being put back.",
                    todo=f"holdfast drift show {id} tells what became of it.",
                )
            spec = following.application.spec.drift or DriftSpec()
            _check_comment(spec, comment, needed=action == "rejected")
            changes = {"decided_by": actor, "comment": one_line(comment), **changes}
            after = replace(drift, **changes)  # type: ignore[arg-type]
            ended = shelf.ended.get(branch_of(after))
            if ended is not None and action in _PROPOSED and ended.branch not in shelf.pulls:
                # Whoever asks for one again is not held to the answer of before.
                shelf.put_pull(replace(ended, stopped=""), done=True)
            voice = await self._decided(following, after, action, actor, comment)
            if after.state is DriftState.REJECTED:
                about, reason = voice.about(after), one_line(comment)
                await voice.notice(
                    message.drift_rejected(about, actor=actor, reason=reason, plan=after.plan)
                )
        self._wake(following.application.id)
        return after

    async def _decided(
        self, following: Following, after: ObjectDrift, action: str, actor: str, comment: str
    ) -> Voice:
        following.shelf.put_drift(after)
        told = f"{after.object}: {_DONE[action]} by {actor}."
        following.shelf.note(
            action, told, subject=after.id, actor=actor,
            detail={"plan": after.plan, "comment": one_line(comment), "digest": after.digest},
        )  # fmt: skip
        await self._commit(following)
        return Voice(application=following.application, now=self._clock.now(), tell=self._tell)

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
        _check_eyes(spec, actor, drift.involved)

    def _needs_another(self, following: Following, drift: ObjectDrift, actor: str) -> bool:
        """True when the eyes of one person are all that have seen it, as far as is known."""
        spec = following.application.spec.drift or DriftSpec()
        if not spec.four_eyes or drift.known_origin:
            return False
        first = drift.first_approver if drift.first_plan == drift.plan else ""
        return not first or _person(first) == _person(actor)

    async def _first_approval(
        self, following: Following, drift: ObjectDrift, actor: str, comment: str
    ) -> ObjectDrift:
        if drift.first_plan == drift.plan and drift.first_approver:
            return drift  # said twice by one person, which changes nothing
        told = f"{actor} approved it. Nobody knows who made the change, so it takes one more."
        after = replace(drift, first_approver=actor, first_plan=drift.plan, note=told)
        await self._decided(following, after, "first-approved", actor, comment)
        return after


_DONE = {
    "approved": "its plan was approved",
    "first-approved": "its plan was approved by the first of two",
    "rejected": "its plan was rejected",
    "snoozed": "the decision was put off",
    "codify-requested": "a pull request that declares it was asked for",
    "revert-requested": "a revert was asked for",
}
"""What was done, by the action that the journal has for it."""


_DECIDED = frozenset({DriftState.APPROVED, DriftState.REJECTED, DriftState.SNOOZED})


def _not_waiting(drift: ObjectDrift) -> HoldfastError:
    """Say why there is nothing to approve: somebody decided before, or nobody was ever asked."""
    todo = f"holdfast revert {drift.id} asks again for it to be put back."
    stands = f"{drift.id} is not waiting for approval: it is {drift.state}"
    if drift.state in _DECIDED and drift.decided_by:
        return Conflict(f"{stands}, by {drift.decided_by}.", todo=todo)
    return InvalidState(f"{stands}.", todo=todo)


def _rejected(following: Following, plan: KeptPlan) -> Conflict:
    return Conflict(
        f"{plan.id} was rejected by {plan.rejected_by}.",
        todo=f"holdfast sync {following.application.id} has it asked about again.",
    )


def _check_comment(spec: DriftSpec, comment: str, *, needed: bool = False) -> None:
    if (spec.comment or needed) and not comment.strip():
        raise ValidationError("A comment is needed for this.", todo="Give --comment TEXT.")
    if credential_in(comment):
        raise ValidationError(
            "The comment looks as if it held a credential.", todo="Leave it out of the comment."
        )


def _check_eyes(spec: DriftSpec, actor: str, involved: Collection[str]) -> None:
    if spec.four_eyes and _person(actor) in {_person(each) for each in involved if each}:
        raise PermissionDenied(
            f"{actor} asked for this or made the change, so somebody else has to approve it.",
            todo="Have another reviewer approve it.",
        )


def _person(actor: str) -> str:
    """Who stands behind a credential: tokens of one person bear one name."""
    return actor.partition(" (")[0]
