"""Pull requests about drift: opened within limits, updated in place, followed to their end.

Branch names follow from the object, so that after a lost response or a restart the same pull
request is found again. A claim is in the ledger before the forge is called, so that a crash leaves
none unknown. What a person pushed is never overwritten, and what a person closed is not opened
again for the same drift. A merged decision file approves that a drift is reverted, for exactly what
was reviewed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from holdfast.core.errors import (
    HoldfastError,
    NotFound,
    TargetUnavailable,
    ValidationError,
    report_changes,
)
from holdfast.core.gitops import facts, pull_request_text, wording
from holdfast.core.gitops.application import PullRequestKind, PullRequestSpec, Remediation
from holdfast.core.gitops.codify import CodifyResult
from holdfast.core.gitops.drift import DriftReason, DriftState, ObjectDrift
from holdfast.core.gitops.objects import ObservedObject
from holdfast.core.gitops.pull_request_text import (
    branch_of,
    decision_document,
    decision_file,
    is_about_drift,
)
from holdfast.core.gitops.records import PullRequestRecord
from holdfast.core.object_ref import ObjectRef
from holdfast.core.page_links import drift_link
from holdfast.core.quantity import parse_duration
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.application_state import ApplicationState
from holdfast.reconcile.gitops.heal import DIFFERING
from holdfast.reconcile.gitops.ports import (
    BranchPush,
    Forge,
    HumanCommits,
    NewPullRequest,
    PullRequest,
    PullRequestState,
    SourceExport,
)
from holdfast.reconcile.gitops.reporting import PassReporter
from holdfast.reconcile.gitops.source_poller import Sources, SourceState
from holdfast.wire.yaml import read_documents, write_document

_DECISION_HEADER = "# Merging this file approves it. It can be deleted once the drift is gone.\n"
_MAX_DECISION_BYTES = 16 * 1024


def decision_files(drift: ObjectDrift, *, expires: datetime) -> Mapping[str, bytes | None]:
    """Return the file whose merge is the approval."""
    document = write_document(decision_document(drift, expires))
    return {decision_file(drift): (_DECISION_HEADER + document).encode()}


async def take_up_decisions(
    context: ApplicationContext, source: SourceState, sources: Sources, reporter: PassReporter
) -> frozenset[str]:
    """Approve the drifts whose decision was merged. Returns those whose decision does not hold."""
    waiting = [
        drift
        for drift in context.state.drifts.values()
        if drift.remediation is Remediation.PULL_REQUEST
        and drift.pull is PullRequestKind.REVERT
        and drift.state is DriftState.PULL_REQUEST
    ]
    if not waiting or source.commit is None or source.stale:
        return frozenset()
    invalid = set[str]()
    repository = await sources.repository(context.application)
    async with repository.export(source.commit.sha) as export:
        for drift in waiting:
            problem = _decision_problem(export, drift, reporter.now)
            if problem is None:
                continue
            if problem:
                invalid.add(drift.id)
                context.state.put_drift(replace(drift, note=problem))
                continue
            approved = replace(
                drift,
                state=DriftState.APPROVED,
                plan="",
                until=None,
                note="Its decision was merged.",
                decided_by=f"the merge of {drift.url or decision_file(drift)}",
            )
            context.state.put_drift(approved)
            await reporter.tell(facts.DecisionMerged(drift=approved))
    return frozenset(invalid)


def _decision_problem(export: SourceExport, drift: ObjectDrift, now: datetime) -> str | None:
    """Why a merged decision does not hold; empty when it does, None when there is none."""
    path = export.root / decision_file(drift)
    if not path.is_file() or path.is_symlink():
        return None
    try:
        data = path.read_bytes()[:_MAX_DECISION_BYTES]
        found = read_documents(data, source=decision_file(drift))[0].value
    except (ValidationError, IndexError, OSError):
        return "Its decision file cannot be read."
    if not isinstance(found, dict) or found.get("decision") != "revert":
        return "Its decision file does not say what is decided."
    if found.get("digest") != drift.digest:
        return "The live side moved after its decision was reviewed, so it does not hold."
    try:
        expires = datetime.fromisoformat(str(found.get("expires")))
    except ValueError:
        return "Its decision file does not say when it expires."
    return "" if expires.tzinfo and now < expires else "Its decision has expired."


MOST_OPEN, MOST_HOURLY = 5, 3
DEFAULT_DEADLINE = timedelta(hours=72)
HOUR = timedelta(hours=1)
FORGE_POLL = timedelta(seconds=60)
"""How often a forge is asked what became of a pull request, where no webhook tells."""
CLAIM_TIMEOUT = timedelta(seconds=60)
"""How long a claim is left to who made it; then whoever holds it went away, or the forge failed."""

Codify = Callable[[ApplicationContext, ObjectDrift, ObservedObject], Awaitable[CodifyResult]]
"""Edits the files that declare an object so that they declare what is live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PullRequestPass:
    """The pull requests of one application in one pass."""

    context: ApplicationContext
    source: SourceState
    sources: Sources
    codify: Codify
    forge: Forge | None
    reporter: PassReporter

    @property
    def state(self) -> ApplicationState:
        return self.context.state

    @property
    def spec(self) -> PullRequestSpec:
        return self.context.application.spec.pull_requests or PullRequestSpec()

    async def propose(self, drift: ObjectDrift, observed: ObservedObject | None) -> None:
        """Have a pull request that proposes the drift as it is now."""
        branch = branch_of(drift)
        record = self.state.pulls.get(branch)
        if record is not None and record.drift != drift.id:
            note = f"It waits for {record.url or record.branch}, on the same object."
            self.state.put_drift(replace(drift, note=note))
            return
        claim = record if record and self.forge and not record.number else None
        if claim is not None:
            if timedelta() <= self.reporter.now - claim.checked_at < CLAIM_TIMEOUT:
                return
            record = None
        if record is not None and (record.digest == drift.digest or record.stopped):
            return
        if observed is None or observed.sync_status not in DIFFERING:
            return  # one that could not be read looks as if it were deleted
        if self.source.commit is None or self.source.stale:
            return  # it is looked at again when there is something to base it on
        if record is None and (message := self._earlier_refusal(drift)):
            self.state.put_drift(replace(drift, state=DriftState.REJECTED, note=message))
            return
        if record is None and claim is None and (message := self._too_many()):
            self.state.put_drift(replace(drift, note=message))
            return
        try:
            files, body = await self._make_files(drift, observed)
        except ValidationError as error:
            message = wording.shorten(str(error))
            blocked = replace(
                drift, state=DriftState.BLOCKED, note=message, reason=DriftReason.NOT_CODIFIABLE
            )
            self.state.put_drift(blocked)
            if blocked != drift:
                await self.reporter.tell(
                    facts.PullRequestFailed(reason=message, about=drift.object)
                )
            return
        answered = await self._find_answer(drift) if record is None else None
        if answered is not None:
            self._store(drift, answered.head, answered)
            return
        await self._push(drift, record, files, body)

    async def _push(
        self,
        drift: ObjectDrift,
        record: PullRequestRecord | None,
        files: Mapping[str, bytes | None],
        body: str,
    ) -> None:
        assert self.source.commit is not None  # noqa: S101  # asked before
        branch = branch_of(drift)
        repository = await self.sources.repository(self.context.application)
        if record is None and self.forge is not None:
            self.state.put_pull(self._make_record(drift))
            await self.state.commit()
        push = BranchPush(
            branch=branch,
            base=self.source.commit.sha,
            files=files,
            at=drift.first_seen,
            message=pull_request_text.commit_message(drift),
        )
        try:
            head = await repository.push(push)
        except HumanCommits:
            await self._leave_alone(drift, record)
            return
        with report_changes(f"Branch {branch} was pushed."):
            pull = await self._open_or_update(drift, body)
        if record is None and pull is not None and self.forge is not None:
            answered = await self._find_answer(drift, beside=pull)
            if answered is not None:
                message = (
                    f"{answered.url} is about the same and was {answered.state} already, so that "
                    "counts."
                )
                await self.forge.close(pull.number, comment=message)
                self._store(drift, answered.head, answered)
                return
        self._store(drift, head, pull, record)
        if record is None:
            url = pull.url if pull else branch
            await self.reporter.tell(facts.PullRequestOpened(drift=drift, url=url))

    async def _find_answer(
        self, drift: ObjectDrift, *, beside: PullRequest | None = None
    ) -> PullRequest | None:
        """Return one about exactly this that was merged or closed before we knew of it.

        The answer to its opening was lost, or another controller opened it. The first one is a
        person's answer; one after it may have been taken back by us.
        """
        if self.forge is None:
            return None
        branch, marker = branch_of(drift), pull_request_text.marker_of(drift)
        ended = self.state.ended.get(branch)
        found = [
            pull
            for pull in await self.forge.past(branch)
            if marker in pull.body
            and (ended is None or pull.number > ended.number)
            and (beside is None or pull.number != beside.number)
        ]
        return min(found, key=lambda pull: pull.number, default=None)

    async def _make_files(
        self, drift: ObjectDrift, observed: ObservedObject
    ) -> tuple[Mapping[str, bytes | None], str]:
        """Return what a pull request changes, and how it is described."""
        link = drift_link(self.reporter.base_url, drift.project, drift.id) or ""
        if drift.pull is PullRequestKind.REVERT:
            expires = self.reporter.now + self._deadline
            body = pull_request_text.pull_request_body(drift, link=link)
            return decision_files(drift, expires=expires), body
        codified = await self.codify(self.context, drift, observed)
        body = pull_request_text.pull_request_body(
            drift, notes=codified.notes, repointed=codified.repointed, link=link
        )
        return codified.files, body

    async def _open_or_update(self, drift: ObjectDrift, body: str) -> PullRequest | None:
        """Open it, or bring the open one up to date. None where there is no forge."""
        if self.forge is None:
            return None
        spec, title = self.spec, pull_request_text.pull_request_title(drift)
        pull = await self.forge.open(
            NewPullRequest(
                branch=branch_of(drift),
                title=title,
                body=body,
                draft=bool(spec.draft),
                base=spec.base or self.context.application.spec.source.revision or "main",
                labels=pull_request_text.pull_request_labels(drift, spec.labels or ()),
            )
        )
        if (pull.title, pull.body) != (title, body):
            pull = await self.forge.update(pull.number, title=title, body=body)
        return pull

    async def _leave_alone(self, drift: ObjectDrift, record: PullRequestRecord | None) -> None:
        """A person works on the branch: say there what changed, and leave it to them."""
        message = "A person pushed to its branch, so it is not written any more."
        branch = branch_of(drift)
        pull = await self.forge.find(branch) if self.forge else None
        if pull is not None and pull.state is not PullRequestState.OPEN:
            pull = None  # nobody reads there any more
        if pull is not None and self.forge is not None:
            await self.forge.comment(pull.number, pull_request_text.left_alone_comment(drift))
        if record is None and pull is not None:
            record = self._make_record(drift, pull.head, pull)
        if record is not None:
            self.state.put_pull(replace(record, digest=drift.digest, stopped=message))
        left = replace(
            drift,
            state=DriftState.PULL_REQUEST,
            note=message,
            reason=DriftReason.BRANCH_LEFT_ALONE,
        )
        if drift.reason is left.reason:
            return  # it was said before
        self.state.put_drift(left)
        await self.reporter.tell(facts.PullRequestLeftAlone(drift=left, branch=branch))

    def _store(
        self,
        drift: ObjectDrift,
        head: str,
        pull: PullRequest | None,
        record: PullRequestRecord | None = None,
    ) -> None:
        now = self._make_record(drift, head, pull, record)
        self.state.put_pull(now)
        self.state.put_drift(
            replace(
                drift,
                state=DriftState.PULL_REQUEST,
                url=now.url,
                until=now.opened_at + self._deadline,
                note="Tolerated while its pull request is open.",
                reason=None,
            )
        )

    def _make_record(
        self,
        drift: ObjectDrift,
        head: str = "",
        pull: PullRequest | None = None,
        record: PullRequestRecord | None = None,
    ) -> PullRequestRecord:
        branch, now = branch_of(drift), self.reporter.now
        ended = self.state.ended.get(branch)
        lately = _opened_lately(ended, now) if ended else ()
        return PullRequestRecord(
            branch=branch,
            drift=drift.id,
            digest=drift.digest,
            head=head,
            number=pull.number if pull else 0,
            url=pull.url if pull else "",
            checked_at=now,
            opened_at=record.opened_at if record else now,
            lately=record.lately if record else lately,
        )

    def _earlier_refusal(self, drift: ObjectDrift) -> str:
        """How a person said no to exactly this since it began, though it was another meanwhile."""
        ended = self.state.ended.get(branch_of(drift))
        if ended is None or (ended.drift, ended.digest) != (drift.id, drift.digest):
            return ""
        return ended.stopped if ended.opened_at >= drift.first_seen else ""

    def _too_many(self) -> str:
        """Why no further pull request is opened now; empty when one may be."""
        count = sum(not pull.merged for pull in self.state.pulls.values())
        if count >= (self.spec.most_open or MOST_OPEN):
            return f"It waits: {count} pull requests of this application are open."
        # Those that are over count too: an object that comes and goes would open one each time.
        every = {**self.state.ended, **self.state.pulls}.values()
        lately = [at for pull in every for at in _opened_lately(pull, self.reporter.now)]
        if len(lately) >= (self.spec.most_hourly or MOST_HOURLY):
            return f"It waits: {len(lately)} pull requests were opened within the hour."
        return ""

    @property
    def _deadline(self) -> timedelta:
        seconds = parse_duration(self.spec.deadline) if self.spec.deadline else None
        return timedelta(seconds=seconds) if seconds else DEFAULT_DEADLINE

    async def follow(self, record: PullRequestRecord, *, hinted: bool) -> None:
        """Learn what became of one pull request, and close it when it has nothing to ask."""
        state, forge, now = self.state, self.forge, self.reporter.now
        drift = state.drifts.get(record.drift)
        over = _reason_to_close(record, drift)
        if drift is not None and drift.until is not None and drift.until <= now:
            drift = replace(drift, note=wording.OVERDUE, until=None)  # said once
            state.put_drift(drift)
            await self.reporter.tell(facts.PullRequestOverdue(pull=record, drift=drift, ended=now))
        if not over and not hinted and now - record.checked_at < FORGE_POLL:
            return
        if forge is not None and not record.number:
            if not over:
                return  # a claim, with which opening goes on
            record = await _find_claimed(forge, record)
        pull = await _find_pull_request(forge, record) if forge else None
        if pull is None or forge is None:
            if forge is not None or over:
                state.put_pull(record, done=True)
            return
        record = replace(record, checked_at=now, head=pull.head or record.head)
        if pull.state is PullRequestState.OPEN and over:
            await self._close(record, forge, over)
        elif pull.state is PullRequestState.OPEN:
            state.put_pull(record)
            if pull.mergeable is False and drift is not None:
                message = "It conflicts with its base now: rebase or close it."
                state.put_drift(replace(drift, note=message))
        elif pull.state is PullRequestState.MERGED:
            await self._handle_merged(record, drift)
        else:
            await self._handle_closed(record, pull, drift)

    async def _close(self, record: PullRequestRecord, forge: Forge, reason: str) -> None:
        repository = await self.sources.repository(self.context.application)
        await forge.close(record.number, comment=reason)
        with suppress(HumanCommits):  # their work stays
            await repository.delete(record.branch)
        self.state.put_pull(record, done=True)
        await self.reporter.tell(facts.PullRequestClosed(pull=record, reason=reason))

    async def _handle_merged(self, record: PullRequestRecord, drift: ObjectDrift | None) -> None:
        """Wait for Git, which may be followed later than the forge: it is not proposed again."""
        self.state.put_pull(replace(record, merged=True))
        await self.reporter.tell(facts.PullRequestMerged(pull=record, drift=drift))
        self.context.poller.hasten()
        if drift is not None:
            self.state.put_drift(replace(drift, note="Its pull request was merged.", until=None))
        _release_merged(self.context, record)

    async def _handle_closed(
        self, record: PullRequestRecord, pull: PullRequest, drift: ObjectDrift | None
    ) -> None:
        """A person said no: the same drift is not proposed again."""
        by = f" by {pull.closed_by}" if pull.closed_by else ""
        message = f"{record.url} was closed{by}."
        rejected = replace(record, stopped=message)
        self.state.put_pull(rejected, done=True)
        await self.reporter.tell(
            facts.PullRequestRejected(pull=rejected, actor=pull.closed_by or "?")
        )
        if drift is not None:
            state = DriftState.REJECTED if drift.digest == record.digest else DriftState.DETECTED
            self.state.put_drift(
                replace(drift, state=state, note=message, decided_by=pull.closed_by, until=None)
            )


def _opened_lately(pull: PullRequestRecord, now: datetime) -> tuple[datetime, ...]:
    """When pull requests of a branch were opened within the hour."""
    return tuple(at for at in (*pull.lately, pull.opened_at) if now - at < HOUR)


FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=15), timedelta(seconds=300)
"""Between two tries with a forge that gives no answer."""
_NOT_PROPOSED = frozenset(
    {DriftState.REJECTED, DriftState.APPROVED, DriftState.HELD, DriftState.SNOOZED}
)
"""States in which nobody is to be asked by a pull request."""


YieldWorker = Callable[[], AbstractAsyncContextManager[None]]
"""Lets others go on while a pass waits for somebody outside."""


@dataclass(frozen=True, slots=True)
class PullRequestFollower:
    """The remediator of drift that is to become a pull request."""

    sources: Sources
    codify: Codify
    yield_worker: YieldWorker
    """Entered while a forge is talked to, which may take its time."""

    async def remediate(
        self,
        context: ApplicationContext,
        source: SourceState,
        observed: Mapping[ObjectRef, ObservedObject],
        reporter: PassReporter,
    ) -> None:
        """Open, update, follow and close. A forge that fails delays nothing but this."""
        state = context.state
        drifts = [each for each in state.drifts.values() if _wants_pull(each, context, reporter)]
        if not drifts and not state.pulls:
            return
        if context.forge_again is not None and reporter.now < context.forge_again:
            context.postponed.update(drift.object for drift in drifts)
            return
        async with self.yield_worker():
            await self._follow_all(context, source, observed, reporter, drifts)

    async def _follow_all(
        self,
        context: ApplicationContext,
        source: SourceState,
        observed: Mapping[ObjectRef, ObservedObject],
        reporter: PassReporter,
        drifts: Sequence[ObjectDrift],
    ) -> None:
        state = context.state
        hinted, context.forge_moved = context.forge_moved, False
        try:
            invalid = await take_up_decisions(context, source, self.sources, reporter)
            forge = await self.sources.forge(context.application)
            pulls = _PullRequestPass(
                context=context,
                source=source,
                sources=self.sources,
                codify=self.codify,
                forge=forge,
                reporter=reporter,
            )
            for record in list(state.pulls.values()):
                if record.merged:
                    _release_merged(context, record, anew=record.drift in invalid)
                else:
                    await pulls.follow(record, hinted=hinted)
            for drift in sorted(drifts, key=lambda each: each.first_seen):
                now = state.drifts.get(drift.id)
                if now is not None and _wants_pull(now, context, reporter):
                    await pulls.propose(now, observed.get(now.object))
            context.forge_failures, context.forge_again = 0, None
        except HoldfastError as error:
            context.forge_moved = hinted
            context.postponed.update(drift.object for drift in drifts)
            if isinstance(error, TargetUnavailable):
                # Asked less and less, so that one that hangs does not hold up every pass.
                pause = FIRST_PAUSE * 2 ** min(context.forge_failures, 10)
                context.forge_failures += 1
                context.forge_again = reporter.now + min(pause, LONGEST_PAUSE)
            message = wording.shorten(f"Pull requests wait: {error}")
            await reporter.tell(facts.PullRequestFailed(reason=message))
            for drift in drifts:  # who asked for it looks there
                now = state.drifts.get(drift.id)
                if now is not None and _wants_pull(now, context, reporter) and not now.url:
                    state.put_drift(replace(now, note=message))


async def _find_claimed(forge: Forge, record: PullRequestRecord) -> PullRequestRecord:
    """Return a claim with what was opened for it, if anything was."""
    found = await forge.find(record.branch)
    if found is None or not is_about_drift(found.body, record.drift):
        return record
    return replace(record, number=found.number, url=found.url, head=found.head)


async def _find_pull_request(forge: Forge, record: PullRequestRecord) -> PullRequest | None:
    """Return a pull request as it is now; None when there is none any more.

    One that was opened beside it, by another controller at the same moment, is closed.
    """
    found = await forge.find(record.branch)
    if found is None or found.number == record.number:
        return found
    if not record.number:
        return None
    try:
        pull = await forge.get(record.number)
    except NotFound:
        return None
    if pull.branch != record.branch:
        return None
    if found.state is PullRequestState.OPEN and is_about_drift(found.body, record.drift):
        message = f"{record.url} is about the same and was opened before, so that one counts."
        await forge.close(found.number, comment=message)
    return pull


def _reason_to_close(record: PullRequestRecord, drift: ObjectDrift | None) -> str:
    """Why a pull request has nothing to ask any more; empty while it has."""
    if drift is None:
        return f"Drift {record.drift} is gone, so there is nothing left to decide."
    if drift.remediation is not Remediation.PULL_REQUEST:
        return f"Drift {drift.id} is handled without a pull request now: {drift.remediation}."
    if branch_of(drift) != record.branch:
        return f"Drift {drift.id} is to {drift.pull} by another pull request now."
    if drift.state is DriftState.REJECTED:
        return f"Drift {drift.id} was rejected: what is live stays, and Git as it is."
    return ""


def _release_merged(
    context: ApplicationContext, record: PullRequestRecord, *, anew: bool = False
) -> None:
    """Put a merged one away once its drift is gone or is another, or is to be asked anew."""
    drift = context.state.drifts.get(record.drift)
    if anew or drift is None or drift.digest != record.digest or _reason_to_close(record, drift):
        context.state.put_pull(record, done=True)


def _wants_pull(drift: ObjectDrift, context: ApplicationContext, reporter: PassReporter) -> bool:
    return (
        drift.remediation is Remediation.PULL_REQUEST
        and drift.state not in _NOT_PROPOSED
        and context.hold_of(drift.object, reporter.now) is None
    )
