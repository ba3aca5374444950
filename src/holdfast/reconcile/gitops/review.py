"""What a person can ask and decide about applications, whichever app they come through.

A decision is one write to the ledger, guarded by what was seen: of two at once, one wins. It
takes effect with the next pass, which every decision requests. Nothing is decided about what
has moved since it was reviewed. What belongs to another project is answered as if it did not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from difflib import get_close_matches

from holdfast.core.errors import (
    Ambiguous,
    Conflict,
    HoldfastError,
    InvalidState,
    NotFound,
    PermissionDenied,
    RefusedByPolicy,
    StalePlan,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.gitops import facts
from holdfast.core.gitops.application import (
    ApplicationId,
    DriftSpec,
    HoldEnd,
    PullRequestKind,
    Remediation,
)
from holdfast.core.gitops.decide import DriftSituation
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.facts import JournalAction
from holdfast.core.gitops.hold import PAUSED_UNTIL, Hold
from holdfast.core.gitops.notices import notice_of
from holdfast.core.gitops.objects import ObservedObject, SyncStatus
from holdfast.core.gitops.plan import SyncPlan
from holdfast.core.gitops.pull_request_text import branch_of
from holdfast.core.gitops.records import PendingPlan, TemporaryIgnoreRule
from holdfast.core.gitops.window import window_state
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.ignore import concerns_security
from holdfast.core.policy import DecisionAction
from holdfast.core.quantity import format_seconds
from holdfast.core.redact import credential_in, redact
from holdfast.core.tree import digest
from holdfast.reconcile.gitops.application_context import ApplicationContext, SyncRequest
from holdfast.reconcile.gitops.application_observer import ApplicationObserver
from holdfast.reconcile.gitops.heal import make_plan_for
from holdfast.reconcile.gitops.holds import MAX_HOLD
from holdfast.reconcile.gitops.reporting import SendNotice
from holdfast.reconcile.gitops.sync import Syncer
from holdfast.reconcile.ports import Clock

WakeApplication = Callable[[ApplicationId], None]
"""Asks for a pass over an application."""
READ_TIMEOUT = 20.0
"""Seconds in which a repository has to answer who asks for a diff."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitComparison:
    """What was found when an application was compared with Git."""

    observed: tuple[ObservedObject, ...]
    commit: str
    stale: str = ""
    """Why that is not the newest commit for sure; empty when it is."""


_DECIDED_STATES = frozenset({DriftState.APPROVED, DriftState.REJECTED, DriftState.SNOOZED})
_PROPOSING = frozenset({JournalAction.CODIFY_REQUESTED, JournalAction.REVERT_REQUESTED})


class ReviewService:
    """Everything a person can ask and decide about the applications of one controller."""

    def __init__(
        self,
        followed: Mapping[ApplicationId, ApplicationContext],
        observer: ApplicationObserver,
        sync: Syncer,
        clock: Clock,
        *,
        wake: WakeApplication,
        send: SendNotice,
    ) -> None:
        self._contexts = followed
        self._observer = observer
        self._sync = sync
        self._clock = clock
        self._wake = wake
        self._send = send

    def applications(self, project: str) -> tuple[ApplicationContext, ...]:
        """Return the applications of a project, by name."""
        found = [each for each in self._contexts.values() if _is_in_project(each, project)]
        return tuple(sorted(found, key=lambda each: each.application.id))

    def application(self, project: str, name: str) -> ApplicationContext:
        """Return one by `name` or `namespace/name`; another project's is as good as none."""
        every = self.applications(project)
        found = [each for each in every if each.application.id.is_called(name)]
        if len(found) > 1:
            names = ", ".join(str(each.application.id) for each in found)
            raise Ambiguous(f"{name[:80]} may be {names}.", hint="Name it with its namespace.")
        if not found:
            known = [each.application.id.name for each in every]
            close = get_close_matches(name.rpartition(".")[2], known, n=1)
            hint = f"Did you mean {close[0]}? " if close else ""
            raise NotFound(
                f"There is no application {name[:80]!a} in project {project}.",
                hint=f"{hint}holdfast status lists them.",
            )
        return found[0]

    def follows(self, id: ApplicationId) -> bool:
        """True for an application that is followed, of whichever project."""
        return id in self._contexts

    def drift(self, project: str, id: str) -> tuple[ApplicationContext, ObjectDrift]:
        """Return an open drift of a project."""
        for context in self.applications(project):
            if (drift := context.state.drifts.get(id)) is not None:
                return context, drift
        raise NotFound(
            f"There is no open drift {id[:40]!a} in project {project}.",
            hint="holdfast drift list shows the open ones, holdfast drift history all of them.",
        )

    def waiting_plan(self, project: str, id: str) -> tuple[ApplicationContext, PendingPlan]:
        """Return a plan that waits for a person."""
        for context in self.applications(project):
            if (pending := context.state.plans.get(id)) is not None:
                return context, pending
        raise NotFound(
            f"There is no plan {id[:40]!a} that waits in project {project}.",
            hint="holdfast status -o wide shows which plans wait.",
        )

    async def compare(self, context: ApplicationContext) -> GitComparison:
        """Compare all objects of an application with what Git declares now. Writes nothing."""
        async with self._at_newest(context) as stale:
            observed = await self._observer.observe(context, None)
            return GitComparison(observed=observed, commit=_rendered_commit(context), stale=stale)

    async def plan(self, context: ApplicationContext, *, prune: bool) -> tuple[SyncPlan, str]:
        """Say what a sync would do now, and why Git could not be read now if so."""
        async with self._at_newest(context) as stale:
            observed = {each.ref: each for each in await self._observer.observe(context, None)}
            return self._sync.plan(context, observed, prune=prune), stale

    def sync(self, context: ApplicationContext, *, actor: str, prune: bool, force: bool) -> None:
        """Have Git applied. The next pass does it.

        Raises PermissionDenied for `force` where four eyes are asked for: these would be two.
        """
        drift = context.application.spec.drift
        if force and drift and drift.four_eyes:
            raise PermissionDenied(
                f"{context.application.id} asks for four eyes, and force does without a review.",
                hint="Leave --force out, and have somebody else approve what waits.",
            )
        context.request = SyncRequest(actor=actor, prune=prune, force=force)
        context.poller.hasten()
        self._wake(context.application.id)

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
        context, _ = self.drift(project, id)
        async with context.lock:
            await context.state.refresh()
            drift = self._open_drift(context, id)
            if drift.state is not DriftState.AWAITING:
                raise _not_waiting_error(drift)
            if plan != drift.plan:
                raise StalePlan(
                    f"{id} changed after you reviewed it: its plan is {drift.plan[:19]} now.",
                    hint=f"Review it again: holdfast drift show {id}",
                )
            self._may_decide(context, drift, actor, comment)
            if self._needs_another(context, drift, actor):
                return await self._first_approval(context, drift, actor, comment)
            after = replace(
                drift, state=DriftState.APPROVED, decided_by=actor, comment=one_line(comment)
            )
            decided = await self._record(context, after, JournalAction.APPROVED, actor, comment)
            await self._notify(context, decided)
        self._wake(context.application.id)
        return after

    async def approve_plan(
        self, project: str, id: str, *, plan: str, actor: str, comment: str = ""
    ) -> PendingPlan:
        """Agree to a plan that a guard parked. It is carried out if it is still the same."""
        context, pending = self.waiting_plan(project, id)
        async with context.lock:
            await context.state.refresh()
            _, pending = self.waiting_plan(project, id)
            if plan != pending.digest:
                raise StalePlan(f"{id} is a different plan now.", hint="Review it again.")
            if pending.rejected_by:
                raise _rejected_error(context, pending)
            spec = context.application.spec.drift or DriftSpec()
            _check_comment(spec, comment)
            _check_four_eyes(spec, actor, {pending.requested_by})
            after = replace(pending, approved_by=actor, comment=one_line(comment))
            context.state.put_plan(after)
            context.state.record(facts.PlanApproved(plan=after, actor=actor))
            await self._commit(context)
        context.poller.hasten()
        self._wake(context.application.id)
        return after

    async def reject_plan(self, project: str, id: str, *, actor: str, comment: str) -> PendingPlan:
        """Say that a plan which a guard parked is not to be carried out.

        It is not asked about again while it stays the same, unless somebody asks for a sync.
        Raises Conflict when it was decided before.
        """
        context, pending = self.waiting_plan(project, id)
        async with context.lock:
            await context.state.refresh()
            _, pending = self.waiting_plan(project, id)
            if pending.rejected_by:
                raise _rejected_error(context, pending)
            if pending.approved_by:
                raise Conflict(
                    f"{id} was approved by {pending.approved_by} already.",
                    hint=f"holdfast pause {context.application.id} stops what is not done yet.",
                )
            _check_comment(context.application.spec.drift or DriftSpec(), comment, needed=True)
            after = replace(pending, rejected_by=actor, comment=one_line(comment))
            context.state.put_plan(after)
            context.state.record(facts.PlanRejected(plan=after, actor=actor))
            await self._commit(context)
        self._wake(context.application.id)
        return after

    async def reject(self, project: str, id: str, *, actor: str, comment: str) -> ObjectDrift:
        """Say that the live side stays as it is. Asked again only when it changes."""
        return await self._decide(
            project,
            id,
            JournalAction.REJECTED,
            actor,
            comment,
            state=DriftState.REJECTED,
            until=None,
            note=f"Rejected by {actor}.",
        )

    async def snooze(
        self, project: str, id: str, *, actor: str, comment: str, until: datetime
    ) -> ObjectDrift:
        """Be asked again later."""
        self._check_end(until)
        return await self._decide(
            project,
            id,
            JournalAction.SNOOZED,
            actor,
            comment,
            state=DriftState.SNOOZED,
            until=until,
            note=f"Snoozed by {actor}.",
        )

    async def codify(self, project: str, id: str, *, actor: str) -> ObjectDrift:
        """Propose the live value to Git by a pull request."""
        return await self._decide(
            project,
            id,
            JournalAction.CODIFY_REQUESTED,
            actor,
            "",
            state=DriftState.DETECTED,
            until=None,
            note=f"{actor} asked for a pull request.",
            url="",
            remediation=Remediation.PULL_REQUEST,
            pull=PullRequestKind.CODIFY,
            chosen_by=actor,
        )

    async def revert(
        self, project: str, id: str, *, actor: str, comment: str = "", by_pull: bool = False
    ) -> ObjectDrift:
        """Have the declared value put back: by a merged decision, by a review, or at once."""
        context, drift = self.drift(project, id)
        spec = context.application.spec.drift or DriftSpec()
        async with context.lock:
            self._require_known(context)
            observed = await self._observer.observe_one(context, drift.object)
            self._check_revertible(context, drift, observed)
        if by_pull:
            return await self._decide(
                project,
                id,
                JournalAction.REVERT_REQUESTED,
                actor,
                comment,
                state=DriftState.DETECTED,
                until=None,
                note=f"{actor} asked for a decision.",
                chosen_by=actor,
                url="",
                remediation=Remediation.PULL_REQUEST,
                pull=PullRequestKind.REVERT,
            )
        if drift.remediation is Remediation.REVIEW or spec.four_eyes:
            return await self._decide(
                project,
                id,
                JournalAction.REVERT_REQUESTED,
                actor,
                comment,
                state=DriftState.DETECTED,
                until=None,
                note=f"{actor} asked for it; it waits for a review.",
                remediation=Remediation.REVIEW,
                chosen_by=actor,
                requested_by=actor,
            )
        if observed.sync_status is SyncStatus.UNKNOWN:
            raise TargetUnavailable(
                f"{drift.object} could not be read, so nothing was decided.",
                hint="Try again when the cluster answers.",
            )
        plan = make_plan_for(context, drift, observed)
        return await self._decide(
            project,
            id,
            JournalAction.APPROVED,
            actor,
            comment,
            state=DriftState.APPROVED,
            until=None,
            note=f"{actor} asked for it.",
            plan=plan.digest,
            decided_by=actor,
        )

    async def ignore(
        self,
        project: str,
        id: str,
        *,
        actor: str,
        until: datetime,
        reason: str,
        path: str = "",
        manager: str = "",
    ) -> tuple[TemporaryIgnoreRule, ...]:
        """Hide a drift, or one field of it, for a while."""
        self._check_end(until)
        context, drift = self.drift(project, id)
        paths = [entry.path for entry in drift.entries if path in ("", entry.path)]
        if "" in paths:
            raise ValidationError(
                f"{id} is about {drift.object} as a whole, and a rule hides fields alone.",
                hint=f"holdfast snooze {id} --for 4h, or reject, leaves it as it is.",
            )
        if not paths:
            raise ValidationError(
                f"{id} has no field {path[:80]!a}.",
                hint=f"Name one that holdfast drift show {id} lists.",
            )
        for each in paths:
            if concerns_security(tuple(each.split(".")), drift.object.kind):
                raise PermissionDenied(
                    f"{each} concerns security, so no command hides it.",
                    hint="Declare the rule in the Application, with security: true.",
                )
        async with context.lock:
            await context.state.refresh()
            rules = tuple(
                TemporaryIgnoreRule(
                    name=f"{id}-{place}",
                    drift=id,
                    path=each,
                    manager=manager or None,
                    kind=drift.object.kind,
                    object_name=drift.object.name,
                    namespace=drift.object.namespace or "*",
                    owner=actor,
                    reason=one_line(reason),
                    expires=until,
                )
                for place, each in enumerate(paths)
            )
            for rule in rules:
                context.state.put_rule(rule)
            context.state.record(
                facts.DriftIgnored(drift=drift, paths=tuple(paths), until=until, actor=actor)
            )
            await self._commit(context)
        self._wake(context.application.id)
        return rules

    async def pause(
        self,
        context: ApplicationContext,
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
        spec = context.application.spec.drift or DriftSpec()
        basis = [str(context.application.id), str(object), actor, now.isoformat()]
        hold = Hold(
            id="hold-" + digest(basis).removeprefix("sha256:")[:8],
            application=context.application.id,
            object=object,
            reason=one_line(reason),
            by=actor,
            since=now,
            until=until,
            end=end or spec.hold_end or HoldEnd.PULL_REQUEST,
        )
        context.state.holds[hold.id] = hold
        try:
            async with context.lock:
                await context.state.refresh()
                context.state.put_hold(hold)
                context.state.record(facts.Paused(hold=hold, actor=actor))
                await self._commit(context)
        except BaseException:
            context.state.take_back(hold)
            raise
        self._wake(context.application.id)
        return hold

    async def resume(
        self, context: ApplicationContext, *, actor: str, object: ObjectRef | None = None
    ) -> tuple[Hold, ...]:
        """End the holds of an application, or of one object, before their time."""
        async with context.lock:
            await context.state.refresh()
            found = tuple(
                hold
                for hold in context.state.holds.values()
                if (object is None or hold.object == object) and not hold.from_annotation
            )
            if not found:
                raise _not_held_error(context, object)
            for hold in found:
                context.state.put_hold(hold, ended=True)
                context.state.record(facts.Resumed(hold=hold, actor=actor))
            await self._commit(context)
        self._wake(context.application.id)
        return found

    @contextlib.asynccontextmanager
    async def _at_newest(self, context: ApplicationContext) -> AsyncIterator[str]:
        """Have what Git declares now at hand for a question, and nothing of it kept.

        The next pass takes up what was read. Gives why the newest commit is not the one that is
        compared with; empty when it is.
        """
        stale = await self._read(context)  # without the lock, which passes need to heal
        async with context.lock:
            await context.state.refresh()
            rendered = context.poller.last.rendered
            before, glances = context.desired, dict(context.object_states)
            compared = context.compared
            if rendered is not None:
                context.desired = self._observer.declared(context, rendered)
            self._require_known(context)
            try:
                yield stale
            finally:
                context.desired, context.object_states = before, glances
                context.compared = compared

    async def _read(self, context: ApplicationContext) -> str:
        poller, application = context.poller, context.application
        followed = context.state.revision
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                asked = await poller.ask(application, followed, fresh=True)
        except TimeoutError:
            return f"Its repository did not answer within {format_seconds(READ_TIMEOUT)}."
        async with context.lock:
            if context.state.revision != followed or context.poller is not poller:
                return "It moved on while its repository was read; ask again."
            poller.take(application, asked)
        return " ".join(asked.source.stale.split())

    def _require_known(self, context: ApplicationContext) -> None:
        if context.desired is None:
            id, stale = context.application.id, " ".join(context.poller.last.stale.split())
            why = context.refused or stale or "Its repository was not read yet."
            raise NotFound(
                f"What {id} declares is not known. {why}",
                hint=f"holdfast status {id} shows when it is.",
            )

    async def _commit(self, context: ApplicationContext) -> None:
        try:
            await context.state.commit()
        except HoldfastError:
            # What may not have been written is not shown as if it were: the ledger knows.
            with contextlib.suppress(HoldfastError):
                await context.state.read()
            raise

    def _check_end(self, until: datetime) -> None:
        left = until - self._clock.now()
        if not timedelta(0) < left <= MAX_HOLD:
            raise ValidationError(
                f"It would end {until:%Y-%m-%dT%H:%M:%SZ}, which is in the past or more "
                "than 30 days away.",
                hint="Give a time between a minute and 30 days.",
            )

    def _check_revertible(
        self, context: ApplicationContext, drift: ObjectDrift, observed: ObservedObject
    ) -> None:
        """Refuse what no pass would carry out, however it is approved, with the reason."""
        now = self._clock.now()
        hold = context.hold_of(drift.object, now)
        situation = DriftSituation(
            drift=replace(drift, state=DriftState.APPROVED, until=None),
            now=now,
            window=window_state((), now),
            owner=observed.owner,
            hold=hold,
        )
        decision = situation.decide()
        if decision.action is not DecisionAction.HEAL:
            hint = f"holdfast drift explain {drift.id} tells who applies it and what is left."
            if hold is not None:
                hint = f"End the hold first: holdfast resume {context.application.id}"
            raise RefusedByPolicy(
                f"{drift.id} cannot be put back. {situation.explain(decision.reason)}", hint=hint
            )

    async def _decide(
        self,
        project: str,
        id: str,
        decision: JournalAction,
        actor: str,
        comment: str,
        **changes: object,
    ) -> ObjectDrift:
        context, _ = self.drift(project, id)
        state = context.state
        async with context.lock:
            await state.refresh()
            drift = self._open_drift(context, id)
            if drift.state is DriftState.APPROVED:
                raise Conflict(
                    f"{id} was approved by {drift.decided_by} already, and is being put back.",
                    hint=f"holdfast drift show {id} tells what became of it.",
                )
            spec = context.application.spec.drift or DriftSpec()
            _check_comment(spec, comment, needed=decision is JournalAction.REJECTED)
            changes = {"decided_by": actor, "comment": one_line(comment), **changes}
            after = replace(drift, **changes)  # type: ignore[arg-type]
            ended = state.ended.get(branch_of(after))
            if ended is not None and decision in _PROPOSING and ended.branch not in state.pulls:
                # Whoever asks for one again is not held to the answer of before.
                state.put_pull(replace(ended, stopped=""), done=True)
            decided = await self._record(context, after, decision, actor, comment)
            if after.state is DriftState.REJECTED:
                await self._notify(context, decided)
        self._wake(context.application.id)
        return after

    async def _record(
        self,
        context: ApplicationContext,
        after: ObjectDrift,
        decision: JournalAction,
        actor: str,
        comment: str,
    ) -> facts.DriftDecided:
        """Commit a decision with the line of the journal that says so."""
        fact = facts.DriftDecided(
            drift=after, decision=decision, actor=actor, comment=one_line(comment)
        )
        context.state.put_drift(after)
        context.state.record(fact)
        await self._commit(context)
        return fact

    async def _notify(self, context: ApplicationContext, fact: facts.DriftDecided) -> None:
        notice = notice_of(fact, context.application.id, self._clock.now())
        if notice is not None:
            await self._send(context.application, notice)

    def _open_drift(self, context: ApplicationContext, id: str) -> ObjectDrift:
        drift = context.state.drifts.get(id)
        if drift is None:
            raise Conflict(
                f"{id} was resolved meanwhile, so there is nothing to decide.",
                hint=f"holdfast drift show {id} tells how it ended.",
            )
        return drift

    def _may_decide(
        self, context: ApplicationContext, drift: ObjectDrift, actor: str, comment: str
    ) -> None:
        spec = context.application.spec.drift or DriftSpec()
        _check_comment(spec, comment)
        _check_four_eyes(spec, actor, drift.involved)

    def _needs_another(self, context: ApplicationContext, drift: ObjectDrift, actor: str) -> bool:
        """True when the eyes of one person are all that have seen it, as far as is known."""
        spec = context.application.spec.drift or DriftSpec()
        if not spec.four_eyes or drift.known_origin:
            return False
        first = drift.first_approver if drift.first_plan == drift.plan else ""
        return not first or _person(first) == _person(actor)

    async def _first_approval(
        self, context: ApplicationContext, drift: ObjectDrift, actor: str, comment: str
    ) -> ObjectDrift:
        if drift.first_plan == drift.plan and drift.first_approver:
            return drift  # said twice by one person, which changes nothing
        message = f"{actor} approved it. Nobody knows who made the change, so it takes one more."
        after = replace(drift, first_approver=actor, first_plan=drift.plan, note=message)
        await self._record(context, after, JournalAction.FIRST_APPROVED, actor, comment)
        return after


def _rendered_commit(context: ApplicationContext) -> str:
    assert context.desired is not None  # noqa: S101  # it was looked at
    return context.desired.rendered.commit


def _is_in_project(context: ApplicationContext, project: str) -> bool:
    return context.application.spec.project == project


def _not_held_error(context: ApplicationContext, object: ObjectRef | None) -> NotFound:
    """Say why there is nothing to end by a command, and how what there is ends."""
    what = object or context.application.id
    noted = [
        hold.object
        for hold in context.state.holds.values()
        if hold.from_annotation and hold.object and object in (None, hold.object)
    ]
    if not noted:
        return NotFound(f"{what} is not on hold.", hint="holdfast status lists holds.")
    ref = noted[0]
    place = f"-n {ref.namespace} " if ref.namespace else ""
    return NotFound(
        f"{ref} is on hold by an annotation, which no command ends.",
        hint=f"kubectl annotate {place}{ref.kind.lower()}/{ref.name} {PAUSED_UNTIL}-",
    )


def one_line(text: str) -> str:
    """A text of a person as it is kept: on one line, not too long, and without credentials."""
    return redact(" ".join(text.split()))[:500]


def _not_waiting_error(drift: ObjectDrift) -> HoldfastError:
    """Say why there is nothing to approve: somebody decided before, or nobody was ever asked."""
    todo = f"holdfast revert {drift.id} asks again for it to be put back."
    stands = f"{drift.id} is not waiting for approval: it is {drift.state}"
    if drift.state in _DECIDED_STATES and drift.decided_by:
        return Conflict(f"{stands}, by {drift.decided_by}.", hint=todo)
    return InvalidState(f"{stands}.", hint=todo)


def _rejected_error(context: ApplicationContext, plan: PendingPlan) -> Conflict:
    return Conflict(
        f"{plan.id} was rejected by {plan.rejected_by}.",
        hint=f"holdfast sync {context.application.id} has it asked about again.",
    )


def _check_comment(spec: DriftSpec, comment: str, *, needed: bool = False) -> None:
    if (spec.comment or needed) and not comment.strip():
        raise ValidationError("A comment is needed for this.", hint="Give --comment TEXT.")
    if credential_in(comment):
        raise ValidationError(
            "The comment looks as if it held a credential.", hint="Leave it out of the comment."
        )


def _check_four_eyes(spec: DriftSpec, actor: str, involved: Collection[str]) -> None:
    if spec.four_eyes and _person(actor) in {_person(each) for each in involved if each}:
        raise PermissionDenied(
            f"{actor} asked for this or made the change, so somebody else has to approve it.",
            hint="Have another reviewer approve it.",
        )


def _person(actor: str) -> str:
    """Who stands behind a credential: tokens of one person bear one name."""
    return actor.partition(" (")[0]
