"""What a person can ask and decide about applications, whichever app they come through.

A decision is one write to the ledger, guarded by what was seen: of two at once, one wins. It
takes effect with the next pass, which every decision requests. Nothing is decided about what
has moved since it was reviewed: an approval names its plan, and every other decision may name the
digest of the drift that was read. What belongs to another project is answered as if it did not
exist.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any

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
from holdfast.core.gitops.notices import link_of, notice_of
from holdfast.core.gitops.objects import ForeignOwner, ObservedObject, SyncStatus
from holdfast.core.gitops.plan import SyncPlan
from holdfast.core.gitops.pull_request_text import branch_of, pull_request_title
from holdfast.core.gitops.records import PendingPlan, TemporaryIgnoreRule
from holdfast.core.gitops.track import track
from holdfast.core.gitops.window import window_state
from holdfast.core.gitops.wording import describe_duplicate, describe_stale, describe_state, shorten
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.ignore import concerns_security
from holdfast.core.people import parse_actor, same_person
from holdfast.core.policy import DecisionAction
from holdfast.core.quantity import format_seconds
from holdfast.core.redact import credential_in, redact
from holdfast.core.tree import digest
from holdfast.reconcile.gitops.application_context import ApplicationContext, SyncRequest
from holdfast.reconcile.gitops.application_observer import ApplicationObserver
from holdfast.reconcile.gitops.codify_preview import CodifyPreview, make_patch
from holdfast.reconcile.gitops.drift_index import DriftIndex
from holdfast.reconcile.gitops.heal import DIFFERING, make_plan_for
from holdfast.reconcile.gitops.holds import MAX_HOLD
from holdfast.reconcile.gitops.pull_requests import Codify
from holdfast.reconcile.gitops.reporting import SendNotice
from holdfast.reconcile.gitops.sync import Syncer
from holdfast.reconcile.ports import Clock

WakeApplication = Callable[[ApplicationId], None]
"""Asks for a pass over an application."""
READ_TIMEOUT = 20.0
"""Seconds in which a repository has to answer who asks for a diff."""
PREVIEW_TIMEOUT = 30.0
"""Seconds in which an edit of a repository has to be found for who asks what it would be."""
MAX_PREVIEWS = 2
"""How many such edits are made at once: each may render a repository several times."""


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
        codify: Codify,
        base_url: str = "",
    ) -> None:
        self._contexts = followed
        self.index = DriftIndex(followed)
        """The open drifts, in order."""
        self._observer = observer
        self._sync = sync
        self._clock = clock
        self._wake = wake
        self._send = send
        self._codify = codify
        self._base_url = base_url
        self._previews = asyncio.Semaphore(MAX_PREVIEWS)

    def applications(self, project: str) -> tuple[ApplicationContext, ...]:
        """Return the applications of a project, by name."""
        found = [
            each for each in self._contexts.values() if each.application.spec.project == project
        ]
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

    def approval_obstacle(self, context: ApplicationContext, drift: ObjectDrift, actor: str) -> str:
        """Say why this person's approval of a drift would not count now; empty when it would."""
        if drift.state is not DriftState.AWAITING:
            return _not_waiting_error(drift).happened
        rules = _rules_of(context)
        if not rules.four_eyes:
            return ""
        try:
            _check_four_eyes(rules, actor, drift.involved)
        except PermissionDenied as error:
            return error.happened
        if not drift.known_origin and drift.first_plan == drift.plan:
            first = drift.first_approver
            if first and same_person(first, actor):
                return f"{first} approved it already, and it takes somebody else too."
        return ""

    def plan_obstacle(self, context: ApplicationContext, plan: PendingPlan, actor: str) -> str:
        """Say why this person's approval of a plan would not count now; empty when it would."""
        if plan.rejected_by:
            return _rejected_error(context, plan).happened
        if plan.approved_by:
            return _approved_error(context, plan).happened
        try:
            _check_four_eyes(_rules_of(context), actor, {plan.requested_by})
        except PermissionDenied as error:
            return error.happened
        return ""

    async def compare(self, context: ApplicationContext) -> GitComparison:
        """Compare all objects of an application with what Git declares now. Writes nothing."""
        async with self._at_newest(context) as stale:
            observed = await self._observer.observe(context, None)
            assert context.desired is not None  # noqa: S101  # it was observed
            commit = context.desired.rendered.commit
            return GitComparison(observed=observed, commit=commit, stale=stale)

    async def plan(self, context: ApplicationContext, *, prune: bool) -> tuple[SyncPlan, str]:
        """Say what a sync would do now, and why Git could not be read now if so."""
        async with self._at_newest(context) as stale:
            observed = {each.ref: each for each in await self._observer.observe(context, None)}
            return self._sync.plan(context, observed, prune=prune), stale

    def sync(self, context: ApplicationContext, *, actor: str, prune: bool, force: bool) -> None:
        """Have Git applied. The next pass does it.

        Raises PermissionDenied for `force` where four eyes are asked for: these would be two.
        """
        if force and _rules_of(context).four_eyes:
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
        async with self._decision(context):
            drift = _open_drift(context, id)
            if drift.state is not DriftState.AWAITING:
                raise _not_waiting_error(drift)
            if plan != drift.plan:
                raise StalePlan(
                    f"{id} changed after you reviewed it: its plan is {drift.plan[:19]} now.",
                    hint=f"Review it again: holdfast drift show {id}",
                )
            rules = _rules_of(context)
            _check_comment(comment, needed=bool(rules.comment))
            _check_four_eyes(rules, actor, drift.involved)
            if rules.four_eyes and not drift.known_origin:
                first = drift.first_approver if drift.first_plan == drift.plan else ""
                if first and same_person(first, actor):
                    return drift  # said twice by one person, which changes nothing
                if not first:
                    return _first_approval(context, drift, actor, comment)
            after = replace(
                drift, state=DriftState.APPROVED, decided_by=actor, comment=one_line(comment)
            )
            decided = _record(context, after, JournalAction.APPROVED, actor, comment)
        await self._notify(context, decided)
        return after

    async def approve_plan(
        self, project: str, id: str, *, plan: str, actor: str, comment: str = ""
    ) -> PendingPlan:
        """Agree to a plan that a guard parked. It is carried out if it is still the same."""
        context, _ = self.waiting_plan(project, id)
        async with self._decision(context):
            _, pending = self.waiting_plan(project, id)
            if plan != pending.digest:
                raise StalePlan(f"{id} is a different plan now.", hint="Review it again.")
            if pending.rejected_by:
                raise _rejected_error(context, pending)
            _check_comment(comment, needed=bool(_rules_of(context).comment))
            _check_four_eyes(_rules_of(context), actor, {pending.requested_by})
            after = replace(pending, approved_by=actor, comment=one_line(comment))
            context.state.put_plan(after)
            context.state.record(facts.PlanApproved(plan=after, actor=actor))
        context.poller.hasten()
        return after

    async def reject_plan(self, project: str, id: str, *, actor: str, comment: str) -> PendingPlan:
        """Say that a plan which a guard parked is not to be carried out.

        It is not asked about again while it stays the same, unless somebody asks for a sync.
        Raises Conflict when it was decided before.
        """
        context, _ = self.waiting_plan(project, id)
        async with self._decision(context):
            _, pending = self.waiting_plan(project, id)
            if pending.rejected_by:
                raise _rejected_error(context, pending)
            if pending.approved_by:
                raise _approved_error(context, pending)
            _check_comment(comment, needed=True)
            after = replace(pending, rejected_by=actor, comment=one_line(comment))
            context.state.put_plan(after)
            context.state.record(facts.PlanRejected(plan=after, actor=actor))
        return after

    async def reject(
        self, project: str, id: str, *, actor: str, comment: str, digest: str = ""
    ) -> ObjectDrift:
        """Say that the live side stays as it is. Asked again only when it changes."""
        return await self._decide(
            project,
            id,
            JournalAction.REJECTED,
            actor=actor,
            comment=comment,
            needs_comment=True,
            digest=digest,
            state=DriftState.REJECTED,
            note=f"Rejected by {actor}.",
        )

    async def snooze(
        self,
        project: str,
        id: str,
        *,
        actor: str,
        comment: str,
        until: datetime,
        digest: str = "",
    ) -> ObjectDrift:
        """Be asked again later."""
        self._check_end(until)
        return await self._decide(
            project,
            id,
            JournalAction.SNOOZED,
            actor=actor,
            comment=comment,
            digest=digest,
            state=DriftState.SNOOZED,
            until=until,
            note=f"Snoozed by {actor}.",
        )

    async def codify(self, project: str, id: str, *, actor: str, digest: str = "") -> ObjectDrift:
        """Propose the live value to Git by a pull request."""
        if digest:
            context, drift = self.drift(project, id)
            await self._observe_as_read(context, drift, digest)
        return await self._decide(
            project,
            id,
            JournalAction.CODIFY_REQUESTED,
            actor=actor,
            digest=digest,
            note=f"{actor} asked for a pull request.",
            **_proposal(PullRequestKind.CODIFY, actor),
        )

    async def revert(
        self,
        project: str,
        id: str,
        *,
        actor: str,
        comment: str = "",
        by_pull: bool = False,
        digest: str = "",
    ) -> ObjectDrift:
        """Have the declared value put back: by a merged decision, by a review, or at once."""
        context, drift = self.drift(project, id)
        observed = await self._observe_as_read(context, drift, digest)
        self._check_revertible(context, drift, observed)
        decision = JournalAction.REVERT_REQUESTED
        changes: dict[str, Any]
        if by_pull:
            note = f"{actor} asked for a decision."
            changes = _proposal(PullRequestKind.REVERT, actor)
        elif not self.reverts_at_once(context, drift):
            note = f"{actor} asked for it; it waits for a review."
            changes = {
                "remediation": Remediation.REVIEW,
                "chosen_by": actor,
                "requested_by": actor,
            }
        else:
            if observed.sync_status is SyncStatus.UNKNOWN:
                raise TargetUnavailable(
                    f"{drift.object} could not be read, so nothing was decided.",
                    hint="Try again when the cluster answers.",
                )
            decision, note = JournalAction.APPROVED, f"{actor} asked for it."
            plan = make_plan_for(context, drift, observed)
            changes = {"state": DriftState.APPROVED, "plan": plan.digest}
        return await self._decide(
            project,
            id,
            decision,
            actor=actor,
            comment=comment,
            needs_comment=decision is JournalAction.APPROVED and self.asks_for_comment(context),
            digest=digest,
            note=note,
            **changes,
        )

    def reverts_at_once(self, context: ApplicationContext, drift: ObjectDrift) -> bool:
        """True where asking for a revert is its approval: no review comes first.

        What somebody chose instead of a review, such as a pull request, does not do away with it.
        """
        rules = _rules_of(context)
        routed = {each.remediation for each in rules.routes or () if each.name == drift.route} | {
            drift.remediation
        }
        return Remediation.REVIEW not in routed and not rules.four_eyes

    def asks_for_comment(self, context: ApplicationContext) -> bool:
        """True where an approval has to say why."""
        return bool(_rules_of(context).comment)

    async def preview_codify(self, project: str, id: str) -> CodifyPreview:
        """Say what `codify` would propose for an open drift. Changes nothing anywhere."""
        context, drift = self.drift(project, id)
        drift = replace(drift, pull=PullRequestKind.CODIFY)
        preview = CodifyPreview(title=pull_request_title(drift), branch=branch_of(drift))
        secret = drift.object.kind == "Secret" and drift.object.api_version == "v1"
        async with context.lock:
            self._require_known(context)
            observed = await self._observer.observe_one(context, drift.object)
        if observed.sync_status not in DIFFERING:
            read = observed.sync_status is not SyncStatus.UNKNOWN
            why = "does not differ from Git any more" if read else "could not be read"
            return replace(preview, obstacle=f"{drift.object} {why}.", secret=secret)
        try:
            async with self._previews, asyncio.timeout(PREVIEW_TIMEOUT):
                result = await self._codify(context, drift, observed)
                patch = "" if secret else await asyncio.to_thread(make_patch, result)
        except ValidationError as error:
            return replace(preview, obstacle=shorten(str(error)), secret=secret)
        except TimeoutError:
            raise TargetUnavailable(
                f"No edit was found within {format_seconds(PREVIEW_TIMEOUT)}.",
                hint="Try again, or have the pull request opened, which may take its time.",
            ) from None
        return replace(
            preview, files=tuple(result.files), notes=result.notes, patch=patch, secret=secret
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
        digest: str = "",
    ) -> tuple[TemporaryIgnoreRule, ...]:
        """Hide a drift, or one field of it, for a while."""
        self._check_end(until)
        context, drift = self.drift(project, id)
        _check_as_read(drift, digest)
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
        async with self._decision(context):
            _check_as_read(_open_drift(context, id), digest)
            rules = tuple(
                TemporaryIgnoreRule(
                    name=f"{id}-{index}",
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
                for index, each in enumerate(paths)
            )
            for rule in rules:
                context.state.put_rule(rule)
            context.state.record(
                facts.DriftIgnored(drift=drift, paths=tuple(paths), until=until, actor=actor)
            )
        return rules

    async def end_ignore(
        self, context: ApplicationContext, name: str, *, actor: str
    ) -> TemporaryIgnoreRule:
        """End an ignore rule that a person added, before its time."""
        async with self._decision(context):
            rule = context.state.rules.get(name)
            if rule is None:
                raise NotFound(
                    f"{context.application.id} has no rule {name[:80]!a} that a person added.",
                    hint="Rules of the Application end when its spec is changed.",
                )
            context.state.put_rule(rule, ended=True)
            context.state.record(facts.RuleExpired(rule=rule, actor=actor))
        return rule

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
        basis = [str(context.application.id), str(object), actor, now.isoformat()]
        hold = Hold(
            id="hold-" + digest(basis).removeprefix("sha256:")[:8],
            application=context.application.id,
            object=object,
            reason=one_line(reason),
            by=actor,
            since=now,
            until=until,
            end=end or _rules_of(context).hold_end or HoldEnd.PULL_REQUEST,
        )
        context.state.holds[hold.id] = hold
        try:
            async with self._decision(context):
                context.state.put_hold(hold)
                context.state.record(facts.Paused(hold=hold, actor=actor))
        except BaseException:
            context.state.take_back(hold)
            raise
        return hold

    async def resume(
        self,
        context: ApplicationContext,
        *,
        actor: str,
        object: ObjectRef | None = None,
        id: str = "",
    ) -> tuple[Hold, ...]:
        """End the holds of an application, of one object, or one by its id, before their time."""
        async with self._decision(context):
            named = [
                hold
                for hold in context.state.holds.values()
                if object in (None, hold.object) and id in ("", hold.id)
            ]
            found = tuple(hold for hold in named if not hold.from_annotation)
            if not found:
                what = id[:80] or str(object or context.application.id)
                raise _not_held_error(what, named)
            for hold in found:
                context.state.put_hold(hold, ended=True)
                context.state.record(facts.Resumed(hold=hold, actor=actor))
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
            before = context.desired, dict(context.object_states), context.compared
            if rendered is not None:
                context.desired = self._observer.declared(context, rendered)
            self._require_known(context)
            try:
                yield stale
            finally:
                context.desired, context.object_states, context.compared = before

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
        return " ".join(describe_stale(asked.source.stale).split())

    def _require_known(self, context: ApplicationContext) -> None:
        if context.desired is None:
            id = context.application.id
            if context.refused is not None:
                why = describe_duplicate(context.refused)
            else:
                stale = " ".join(describe_stale(context.poller.last.stale).split())
                why = stale or "Its repository was not read yet."
            raise NotFound(
                f"What {id} declares is not known. {why}",
                hint=f"holdfast status {id} shows when it is.",
            )

    @contextlib.asynccontextmanager
    async def _decision(self, context: ApplicationContext) -> AsyncIterator[None]:
        """Decide on what the ledger says now, write that to it, and ask for a pass."""
        async with context.lock:
            await context.state.refresh()
            yield
            try:
                await context.state.commit()
            except HoldfastError:
                # What may not have been written is not shown as if it were: the ledger knows.
                with contextlib.suppress(HoldfastError):
                    await context.state.read()
                raise
        self._wake(context.application.id)

    def _check_end(self, until: datetime) -> None:
        left = until - self._clock.now()
        if not timedelta(0) < left <= MAX_HOLD:
            raise ValidationError(
                f"It would end {until:%Y-%m-%dT%H:%M:%SZ}, which is in the past or more "
                "than 30 days away.",
                hint="Give a time between a minute and 30 days.",
            )

    def revert_obstacle(
        self,
        context: ApplicationContext,
        drift: ObjectDrift,
        owner: ForeignOwner | None,
        now: datetime,
    ) -> str:
        """Say why no pass would put a drift back, however it is approved; empty if one would."""
        situation = DriftSituation(
            drift=replace(drift, state=DriftState.APPROVED, until=None),
            now=now,
            window=window_state((), now),
            owner=owner,
            hold=context.hold_of(drift.object, now),
        )
        decision = situation.decide()
        if decision.action is DecisionAction.HEAL:
            return ""
        why = situation.explain(decision.reason)
        return why or f"It would be left as it is ({decision.reason})."

    def _check_revertible(
        self, context: ApplicationContext, drift: ObjectDrift, observed: ObservedObject
    ) -> None:
        """Refuse what no pass would carry out, however it is approved, with the reason."""
        now = self._clock.now()
        obstacle = self.revert_obstacle(context, drift, observed.owner, now)
        if obstacle:
            hint = f"holdfast drift explain {drift.id} tells who applies it and what is left."
            if context.hold_of(drift.object, now) is not None:
                hint = f"End the hold first: holdfast resume {context.application.id}"
            raise RefusedByPolicy(f"{drift.id} cannot be put back. {obstacle}", hint=hint)

    async def _observe_as_read(
        self, context: ApplicationContext, drift: ObjectDrift, read: str
    ) -> ObservedObject:
        """Look at the object of a drift now.

        Raises StalePlan where it is not what was read, though no pass has seen that yet.
        """
        state = context.state
        async with context.lock:
            self._require_known(context)
            observed = await self._observer.observe_one(context, drift.object)
            if not read or observed.sync_status is SyncStatus.UNKNOWN:
                return observed
            found = track(
                context.application,
                [observed],
                {each.id: each for each in state.drifts.values() if each.object == drift.object},
                commit=drift.commit,
                now=self._clock.now(),
                healed=state.healed,
            )
        if all(each.id != drift.id or each.digest != read for each in found.open):
            raise _moved_error(drift.id)
        return observed

    async def _decide(
        self,
        project: str,
        id: str,
        decision: JournalAction,
        *,
        actor: str,
        comment: str = "",
        needs_comment: bool = False,
        digest: str = "",
        **changes: Any,
    ) -> ObjectDrift:
        """Record a decision about a drift, which is as detected anew unless `changes` say so."""
        context, _ = self.drift(project, id)
        state = context.state
        async with self._decision(context):
            drift = _open_drift(context, id)
            if drift.state is DriftState.APPROVED:
                raise Conflict(
                    f"{id} was approved by {drift.decided_by} already, and is being put back.",
                    hint=f"holdfast drift show {id} tells what became of it.",
                )
            _check_as_read(drift, digest)
            _check_comment(comment, needed=needs_comment)
            decided = {
                "state": DriftState.DETECTED,
                "until": None,
                "decided_by": actor,
                "comment": one_line(comment),
                **changes,
            }
            after = replace(drift, **decided)
            ended = state.ended.get(branch_of(after))
            if ended is not None and decision in _PROPOSING and ended.branch not in state.pulls:
                # Whoever asks for one again is not held to the answer of before.
                state.put_pull(replace(ended, stopped=""), done=True)
            fact = _record(context, after, decision, actor, comment)
        if decision is JournalAction.REJECTED:
            await self._notify(context, fact)
        return after

    async def _notify(self, context: ApplicationContext, fact: facts.DriftDecided) -> None:
        application = context.application
        link = link_of(fact, application.id, application.spec.project, self._base_url)
        notice = notice_of(fact, application.id, self._clock.now(), link=link)
        if notice is not None:
            await self._send(application, notice)


def _rules_of(context: ApplicationContext) -> DriftSpec:
    return context.application.spec.drift or DriftSpec()


def _proposal(kind: PullRequestKind, actor: str) -> dict[str, Any]:
    """What a drift becomes that somebody wants a pull request for."""
    return {
        "remediation": Remediation.PULL_REQUEST,
        "pull": kind,
        "chosen_by": actor,
        "url": "",
    }


def _open_drift(context: ApplicationContext, id: str) -> ObjectDrift:
    drift = context.state.drifts.get(id)
    if drift is None:
        raise Conflict(
            f"{id} was resolved meanwhile, so there is nothing to decide.",
            hint=f"holdfast drift show {id} tells how it ended.",
        )
    return drift


def _record(
    context: ApplicationContext,
    after: ObjectDrift,
    decision: JournalAction,
    actor: str,
    comment: str,
) -> facts.DriftDecided:
    """Keep a decision, with the line of the journal that says so."""
    fact = facts.DriftDecided(
        drift=after, decision=decision, actor=actor, comment=one_line(comment)
    )
    context.state.put_drift(after)
    context.state.record(fact)
    return fact


def _first_approval(
    context: ApplicationContext, drift: ObjectDrift, actor: str, comment: str
) -> ObjectDrift:
    message = f"{actor} approved it. Nobody knows who made the change, so it takes one more."
    after = replace(drift, first_approver=actor, first_plan=drift.plan, note=message)
    _record(context, after, JournalAction.FIRST_APPROVED, actor, comment)
    return after


def _not_held_error(what: str, left: Sequence[Hold]) -> NotFound:
    """Say why there is nothing to end by a command, and how what is left ends."""
    noted = [hold.object for hold in left if hold.object]
    if not noted:
        if what.startswith("hold-"):
            return NotFound(f"There is no hold {what}.", hint="It may have ended by itself.")
        return NotFound(f"{what} is not on hold.", hint="holdfast status lists holds.")
    ref = noted[0]
    namespace = f"-n {ref.namespace} " if ref.namespace else ""
    return NotFound(
        f"{ref} is on hold by an annotation, which no command ends.",
        hint=f"kubectl annotate {namespace}{ref.kind.lower()}/{ref.name} {PAUSED_UNTIL}-",
    )


def one_line(text: str) -> str:
    """A text of a person as it is kept: on one line, not too long, and without credentials."""
    return redact(" ".join(text.split()))[:500]


def _not_waiting_error(drift: ObjectDrift) -> HoldfastError:
    """Say why there is nothing to approve: somebody decided before, or nobody was ever asked."""
    hint = f"holdfast revert {drift.id} asks again for it to be put back."
    stands = f"{drift.id} is not waiting for approval: it is {describe_state(drift.state)}"
    if drift.state in _DECIDED_STATES and drift.decided_by:
        return Conflict(f"{stands}, by {drift.decided_by}.", hint=hint)
    return InvalidState(f"{stands}.", hint=hint)


def _rejected_error(context: ApplicationContext, plan: PendingPlan) -> Conflict:
    return Conflict(
        f"{plan.id} was rejected by {plan.rejected_by}.",
        hint=f"holdfast sync {context.application.id} has it asked about again.",
    )


def _approved_error(context: ApplicationContext, plan: PendingPlan) -> Conflict:
    return Conflict(
        f"{plan.id} was approved by {plan.approved_by} already.",
        hint=f"holdfast pause {context.application.id} stops what is not done yet.",
    )


def _moved_error(id: str) -> StalePlan:
    return StalePlan(
        f"{id} changed after it was read.", hint=f"Read it again: holdfast drift show {id}"
    )


def _check_as_read(drift: ObjectDrift, read: str) -> None:
    """Refuse a decision about a drift that is not what was read; without a digest it is taken."""
    if read and read != drift.digest:
        raise _moved_error(drift.id)


def _check_comment(comment: str, *, needed: bool) -> None:
    if needed and not comment.strip():
        raise ValidationError(
            "A comment is needed for this.",
            hint="Say why: --comment TEXT, or comment in the request.",
        )
    if credential_in(comment):
        raise ValidationError(
            "The comment looks as if it held a credential.", hint="Leave it out of the comment."
        )


def _check_four_eyes(spec: DriftSpec, actor: str, involved: Collection[str]) -> None:
    if not spec.four_eyes:
        return
    if parse_actor(actor).job:
        raise PermissionDenied(
            f"{actor} is a CI job, and four eyes are those of people: whoever wrote the job may "
            "have made the change.",
            hint="Have a reviewer approve it.",
        )
    if any(same_person(actor, each) for each in involved if each):
        raise PermissionDenied(
            f"{actor} asked for this or made the change, so somebody else has to approve it.",
            hint="Have another reviewer approve it.",
        )
