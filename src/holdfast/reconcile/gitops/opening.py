"""Has a pull request for a drift, and one only: opened within limits, and updated in place.

Branch names follow from the object, so that after a lost answer or a restart the same pull
request is found again. A claim is in the ledger before the forge is asked, so that a crash leaves
none that nobody knows of. Two controllers may be at it all the same for a moment, and a person may
answer at once: whoever opened one looks for an older answer, and takes its own back when there is
one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.core.errors import ValidationError, having_changed
from holdfast.core.gitops import message
from holdfast.core.gitops import pull_text as text
from holdfast.core.gitops.application import PullKind, PullsSpec
from holdfast.core.gitops.codify import Codified
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.inventory import KeptPull
from holdfast.core.gitops.standing import Seen
from holdfast.core.quantity import parse_duration
from holdfast.reconcile.gitops import decisions, words
from holdfast.reconcile.gitops.follow import Source, Sources
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.heal import DIFFERS
from holdfast.reconcile.gitops.ports import Forge, HumanCommits, NewPull, Pull, PullState, Push
from holdfast.reconcile.gitops.result import Voice

MOST_OPEN, MOST_HOURLY = 5, 3
DEADLINE = timedelta(hours=72)
HOUR = timedelta(hours=1)
CLAIMED = timedelta(seconds=60)
"""How long a claim is left to who made it; then whoever holds it went away, or the forge failed."""

Codifies = Callable[[Following, ObjectDrift, Seen], Awaitable[Codified]]
"""Edits the files that declare an object so that they declare what is live."""


class Opening:
    """Opens and updates the pull requests of one application in one pass."""

    def __init__(
        self,
        following: Following,
        source: Source,
        sources: Sources,
        codify: Codifies,
        forge: Forge | None,
        voice: Voice,
    ) -> None:
        self._following = following
        self._shelf = following.shelf
        self._source = source
        self._sources = sources
        self._codify = codify
        self._forge = forge
        self._voice = voice
        self._spec = following.application.spec.pull_requests or PullsSpec()

    async def ensure(self, drift: ObjectDrift, seen: Seen | None) -> None:
        """Have a pull request that proposes the drift as it is now."""
        branch = text.branch_of(drift)
        kept = self._shelf.pulls.get(branch)
        if kept is not None and kept.drift != drift.id:
            note = f"It waits for {kept.url or kept.branch}, on the same object."
            self._shelf.put_drift(replace(drift, note=note))
            return
        claim = kept if kept and self._forge and not kept.number else None
        if claim is not None:
            if timedelta() <= self._voice.now - claim.checked_at < CLAIMED:
                return
            kept = None
        if kept is not None and (kept.digest == drift.digest or kept.stopped):
            return
        if seen is None or seen.standing not in DIFFERS:
            return  # one that could not be read looks as if it were deleted
        if self._source.commit is None or self._source.stale:
            return  # it is looked at again when there is something to base it on
        if kept is None and (told := self._refused(drift, branch)):
            self._shelf.put_drift(replace(drift, state=DriftState.REJECTED, note=told))
            return
        if kept is None and claim is None and (told := self._too_many()):
            self._shelf.put_drift(replace(drift, note=told))
            return
        try:
            files, body = await self._files(drift, seen)
        except ValidationError as error:
            told = words.cut(str(error))
            self._shelf.put_drift(replace(drift, state=DriftState.PARKED, note=told))
            if told != drift.note:
                self._voice.event("PullRequestFailed", told, warning=True, object=drift.object)
            return
        answered = await self._answered(drift, branch) if kept is None else None
        if answered is not None:
            self._keep(drift, branch, answered.head, answered, None)
            return
        await self._propose(drift, kept, files, body)

    async def _propose(
        self,
        drift: ObjectDrift,
        kept: KeptPull | None,
        files: Mapping[str, bytes | None],
        body: str,
    ) -> None:
        assert self._source.commit is not None  # noqa: S101  # asked before
        branch = text.branch_of(drift)
        repository = await self._sources.repository(self._following.application)
        if kept is None and self._forge is not None:
            self._shelf.put_pull(self._kept(drift, branch, "", None, None))
            await self._shelf.commit()
        push = Push(
            branch=branch, base=self._source.commit.sha, files=files, at=drift.first_seen,
            message=text.commit_message(drift),
        )  # fmt: skip
        try:
            head = await repository.push(push)
        except HumanCommits:
            await self._leave_alone(drift, branch, kept)
            return
        with having_changed(f"Branch {branch} was pushed."):
            pull = await self._opened(drift, branch, body)
        if kept is None and pull is not None:
            answered = await self._answered(drift, branch, beside=pull)
            if answered is not None:
                await self._take_back(pull, answered)
                self._keep(drift, branch, answered.head, answered, None)
                return
        self._keep(drift, branch, head, pull, kept)
        if kept is None:
            where = pull.url if pull else branch
            told = f"{where} proposes to {drift.pull} {drift.object}."
            self._shelf.note("pull-opened", told, subject=drift.id)
            self._voice.event("PullRequestOpened", told, object=drift.object)
            await self._voice.notice(
                message.drift_codified(self._voice.about(drift), pull=where)
            )  # fmt: skip

    async def _answered(
        self, drift: ObjectDrift, branch: str, *, beside: Pull | None = None
    ) -> Pull | None:
        """Return one about exactly this that was merged or closed before we knew of it.

        The answer to its opening was lost, or another controller opened it. The first one is a
        person's answer; one after it may have been taken back by us.
        """
        if self._forge is None:
            return None
        marker, ended = text.marker_of(drift), self._shelf.ended.get(branch)
        found = [
            pull
            for pull in await self._forge.past(branch)
            if marker in pull.body
            and (ended is None or pull.number > ended.number)
            and (beside is None or pull.number != beside.number)
        ]
        return min(found, key=lambda pull: pull.number, default=None)

    async def _take_back(self, pull: Pull, answered: Pull) -> None:
        assert self._forge is not None  # noqa: S101  # it opened one
        told = f"{answered.url} is about the same and was {answered.state} already, so that counts."
        await self._forge.close(pull.number, comment=told)

    async def _files(
        self, drift: ObjectDrift, seen: Seen
    ) -> tuple[Mapping[str, bytes | None], str]:
        """Return what a pull request changes, and how it is described."""
        if drift.pull is PullKind.REVERT:
            expires = self._voice.now + self._deadline
            return decisions.files(drift, expires=expires), text.body_of(drift)
        codified = await self._codify(self._following, drift, seen)
        body = text.body_of(drift, notes=codified.notes, repointed=codified.repointed)
        return codified.files, body

    async def _opened(self, drift: ObjectDrift, branch: str, body: str) -> Pull | None:
        """Open it, or bring the open one up to date. None where there is no forge."""
        if self._forge is None:
            return None
        spec, title = self._spec, text.title_of(drift)
        pull = await self._forge.open(
            NewPull(
                branch=branch, title=title, body=body, draft=bool(spec.draft),
                base=spec.base or self._following.application.spec.source.revision or "main",
                labels=text.labels_of(drift, spec.labels or ()),
            )
        )  # fmt: skip
        if (pull.title, pull.body) != (title, body):
            pull = await self._forge.update(pull.number, title=title, body=body)
        return pull

    async def _leave_alone(self, drift: ObjectDrift, branch: str, kept: KeptPull | None) -> None:
        """A person works on the branch: say there what changed, and leave it to them."""
        told = "A person pushed to its branch, so it is not written any more."
        pull = await self._forge.find(branch) if self._forge else None
        if pull is not None and pull.state is not PullState.OPEN:
            pull = None  # nobody reads there any more
        if pull is not None and self._forge is not None:
            await self._forge.comment(pull.number, text.moved_on(drift))
        if kept is None and pull is not None:
            kept = self._kept(drift, branch, pull.head, pull, None)
        if kept is not None:
            self._shelf.put_pull(replace(kept, digest=drift.digest, stopped=told))
        if drift.note == told:
            return  # it was said before
        self._shelf.put_drift(replace(drift, state=DriftState.PULL_REQUEST, note=told))
        self._shelf.note("pull-left-alone", told, subject=drift.id)
        self._voice.event("PullRequestLeftAlone", f"{branch}: {told}")

    def _keep(
        self, drift: ObjectDrift, branch: str, head: str, pull: Pull | None, kept: KeptPull | None
    ) -> None:
        now = self._kept(drift, branch, head, pull, kept)
        self._shelf.put_pull(now)
        self._shelf.put_drift(
            replace(
                drift, state=DriftState.PULL_REQUEST, url=now.url,
                until=now.opened_at + self._deadline,
                note="Tolerated while its pull request is open.",
            )
        )  # fmt: skip

    def _kept(
        self, drift: ObjectDrift, branch: str, head: str, pull: Pull | None, kept: KeptPull | None
    ) -> KeptPull:
        now, ended = self._voice.now, self._shelf.ended.get(branch)
        lately = _lately(ended, now) if ended else ()
        return KeptPull(
            branch=branch, drift=drift.id, digest=drift.digest, head=head,
            number=pull.number if pull else 0, url=pull.url if pull else "", checked_at=now,
            opened_at=kept.opened_at if kept else now, lately=kept.lately if kept else lately,
        )  # fmt: skip

    def _refused(self, drift: ObjectDrift, branch: str) -> str:
        """How a person said no to exactly this since it began, though it was another meanwhile."""
        ended = self._shelf.ended.get(branch)
        if ended is None or (ended.drift, ended.digest) != (drift.id, drift.digest):
            return ""
        return ended.stopped if ended.opened_at >= drift.first_seen else ""

    def _too_many(self) -> str:
        """Why no further pull request is opened now; empty when one may be."""
        count = sum(not pull.merged for pull in self._shelf.pulls.values())
        if count >= (self._spec.most_open or MOST_OPEN):
            return f"It waits: {count} pull requests of this application are open."
        # Those that are over count too: an object that comes and goes would open one each time.
        every = {**self._shelf.ended, **self._shelf.pulls}.values()
        lately = [at for pull in every for at in _lately(pull, self._voice.now)]
        if len(lately) >= (self._spec.most_hourly or MOST_HOURLY):
            return f"It waits: {len(lately)} pull requests were opened within the hour."
        return ""

    @property
    def _deadline(self) -> timedelta:
        seconds = parse_duration(self._spec.deadline) if self._spec.deadline else None
        return timedelta(seconds=seconds) if seconds else DEADLINE


def _lately(pull: KeptPull, now: datetime) -> tuple[datetime, ...]:
    """When pull requests of a branch were opened within the hour."""
    return tuple(at for at in (*pull.lately, pull.opened_at) if now - at < HOUR)
