"""Drift to pull request: one for each drift, updated in place, closed by itself.

Branch names follow from the object, so that after a lost answer or a restart the same pull
request is found again. What a person pushed is never written over, and what a person closed is
not opened again for the same drift.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.core.errors import HoldfastError, ValidationError
from holdfast.core.gitops import message
from holdfast.core.gitops import pull_text as text
from holdfast.core.gitops.application import PullKind, PullsSpec, Remediation
from holdfast.core.gitops.codify import Codified
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.inventory import KeptPull
from holdfast.core.gitops.standing import Seen
from holdfast.core.objects import ObjectRef
from holdfast.core.quantity import parse_duration
from holdfast.reconcile.gitops import decisions, words
from holdfast.reconcile.gitops.follow import Source, Sources
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.heal import DIFFERS
from holdfast.reconcile.gitops.ports import Forge, HumanCommits, NewPull, Pull, PullState, Push
from holdfast.reconcile.gitops.result import Voice

POLL = timedelta(seconds=60)
"""How often a forge is asked what became of a pull request, where no webhook tells."""
MOST_OPEN, MOST_HOURLY = 5, 3
DEADLINE = timedelta(hours=72)
HOUR = timedelta(hours=1)

_SETTLED = frozenset(
    {DriftState.REJECTED, DriftState.APPROVED, DriftState.HELD, DriftState.SNOOZED}
)
"""States in which nobody is to be asked by a pull request."""

Codifies = Callable[[Following, ObjectDrift, Seen], Awaitable[Codified]]
"""Edits the files that declare an object so that they declare what is live."""


class Pulls:
    """Sees to the pull requests of applications."""

    def __init__(self, sources: Sources, codify: Codifies) -> None:
        self._sources = sources
        self._codify = codify

    async def see_to(
        self, following: Following, source: Source, seen: Mapping[ObjectRef, Seen], voice: Voice
    ) -> None:
        """Open, update, follow and close. A forge that fails delays nothing but this."""
        shelf = following.shelf
        wanting = [each for each in shelf.drifts.values() if _wants_pull(each, following, voice)]
        if not wanting and not shelf.pulls:
            return
        hinted, following.forge_moved = following.forge_moved, False
        try:
            await decisions.take_up(following, source, self._sources, voice)
            forge = await self._sources.forge(following.application)
            for pull in list(shelf.pulls.values()):
                await self._follow(following, pull, forge, voice, hinted=hinted)
            for drift in sorted(wanting, key=lambda each: each.first_seen):
                now = shelf.drifts.get(drift.id)
                if now is not None and _wants_pull(now, following, voice):
                    await self._ensure(following, source, now, seen.get(now.object), forge, voice)
        except HoldfastError as error:
            following.forge_moved = hinted
            told = words.cut(f"Pull requests wait: {error}")
            voice.event("PullRequestFailed", told, warning=True)

    async def _follow(
        self,
        following: Following,
        kept: KeptPull,
        forge: Forge | None,
        voice: Voice,
        *,
        hinted: bool,
    ) -> None:
        """Learn what became of one pull request, and close it when its drift is gone."""
        shelf = following.shelf
        drift = shelf.drifts.get(kept.drift)
        wanted = drift is not None and drift.remediation is Remediation.PULL_REQUEST
        if drift is not None and drift.until is not None and drift.until <= voice.now:
            drift = await self._overdue(following, drift, voice)
        if wanted and not hinted and voice.now - kept.checked_at < POLL:
            return
        pull = await forge.find(kept.branch) if forge else None
        if pull is None or pull.number != kept.number:
            if forge is not None or not wanted:
                shelf.put_pull(kept, done=True)
            return
        kept = replace(kept, checked_at=voice.now, head=pull.head or kept.head)
        if pull.state is PullState.OPEN and not wanted:
            await self._close(following, kept, forge, voice)
        elif pull.state is PullState.OPEN:
            shelf.put_pull(kept)
            if pull.mergeable is False and drift is not None:
                told = "It conflicts with its base now: rebase or close it."
                shelf.put_drift(replace(drift, note=told))
        elif pull.state is PullState.MERGED:
            await self._merged(following, kept, drift, voice)
        else:
            self._closed(following, kept, pull, drift, voice)

    async def _overdue(self, following: Following, drift: ObjectDrift, voice: Voice) -> ObjectDrift:
        """Nobody decided in time: say so, once."""
        told = "Its pull request is open for longer than it should be."
        late = replace(drift, note=told, until=None)
        following.shelf.put_drift(late)
        following.shelf.note("pull-overdue", told, subject=drift.id)
        voice.event("PullRequestOverdue", f"{drift.url}: {told}", warning=True)
        await voice.notice(
            message.drift_expired(
                voice.about(late), ended=voice.now, follows="it waits for a reviewer", reason=told
            )
        )
        return late

    async def _close(
        self, following: Following, kept: KeptPull, forge: Forge | None, voice: Voice
    ) -> None:
        repository = await self._sources.repository(following.application)
        if forge is not None:
            told = f"Drift {kept.drift} is gone, so there is nothing left to decide."
            await forge.close(kept.number, comment=told)
        with suppress(HumanCommits):  # their work stays
            await repository.delete(kept.branch)
        following.shelf.put_pull(kept, done=True)
        following.shelf.note("pull-closed", f"{kept.url} was closed.", subject=kept.drift)
        voice.event("PullRequestClosed", f"{kept.url}: its drift is gone.")

    async def _merged(
        self, following: Following, kept: KeptPull, drift: ObjectDrift | None, voice: Voice
    ) -> None:
        shelf = following.shelf
        shelf.put_pull(kept, done=True)
        shelf.note("pull-merged", f"{kept.url} was merged.", subject=kept.drift)
        voice.event("PullRequestMerged", f"{kept.url} was merged.")
        following.follower.hasten()
        if drift is not None:
            shelf.put_drift(replace(drift, note="Its pull request was merged."))
            await voice.notice(
                message.drift_codified(voice.about(drift), pull=kept.url, merged=True)
            )

    def _closed(
        self,
        following: Following,
        kept: KeptPull,
        pull: Pull,
        drift: ObjectDrift | None,
        voice: Voice,
    ) -> None:
        """A person said no: the same drift is not proposed again."""
        by = f" by {pull.closed_by}" if pull.closed_by else ""
        told = f"{kept.url} was closed{by}."
        following.shelf.put_pull(kept, done=True)
        following.shelf.note("pull-rejected", told, subject=kept.drift, actor=pull.closed_by or "?")
        voice.event("DriftRejected", told)
        if drift is not None:
            state = DriftState.REJECTED if drift.digest == kept.digest else DriftState.DETECTED
            following.shelf.put_drift(
                replace(drift, state=state, note=told, decided_by=pull.closed_by, until=None)
            )

    async def _ensure(
        self,
        following: Following,
        source: Source,
        drift: ObjectDrift,
        seen: Seen | None,
        forge: Forge | None,
        voice: Voice,
    ) -> None:
        """Have a pull request that proposes the drift as it is now."""
        shelf = following.shelf
        branch = text.branch_of(drift)
        kept = shelf.pulls.get(branch)
        if kept is not None and kept.drift != drift.id:
            shelf.put_drift(replace(drift, note=f"It waits for {kept.url}, on the same object."))
            return
        if kept is not None and (kept.digest == drift.digest or kept.stopped):
            return
        if seen is None or seen.standing not in DIFFERS:
            return  # one that could not be read looks as if it were deleted
        if source.commit is None or source.stale:
            return  # it is looked at again when there is something to base it on
        if kept is None and await self._adopted(following, drift, branch, forge, voice):
            return
        spec = following.application.spec.pull_requests or PullsSpec()
        if kept is None and (told := _too_many(following, spec, voice.now)):
            shelf.put_drift(replace(drift, note=told))
            return
        try:
            files, notes = await self._files(following, drift, seen, voice.now)
        except ValidationError as error:
            told = words.cut(str(error))
            shelf.put_drift(replace(drift, state=DriftState.PARKED, note=told))
            if told != drift.note:
                voice.event("PullRequestFailed", told, warning=True, object=drift.object)
            return
        repository = await self._sources.repository(following.application)
        push = Push(
            branch=branch, base=source.commit.sha, files=files, at=drift.first_seen,
            message=text.commit_message(drift),
        )  # fmt: skip
        title, body = text.title_of(drift), text.body_of(drift, notes=notes)
        try:
            head = await repository.push(push)
        except HumanCommits:
            await self._stop(following, drift, branch, kept, forge, body, voice)
            return
        pull = await _opened(following, drift, forge, branch, title, body, spec)
        self._keep(following, drift, branch, head, pull, kept, voice)
        if kept is None:
            told = f"{pull.url if pull else branch} proposes to {drift.pull} {drift.object}."
            shelf.note("pull-opened", told, subject=drift.id)
            voice.event("PullRequestOpened", told, object=drift.object)
            await voice.notice(
                message.drift_codified(voice.about(drift), pull=pull.url if pull else branch)
            )

    async def _adopted(
        self,
        following: Following,
        drift: ObjectDrift,
        branch: str,
        forge: Forge | None,
        voice: Voice,
    ) -> bool:
        """Take up a pull request about exactly this that was decided before we knew of it.

        The answer to its opening was lost, so nothing of it is in the ledger.
        """
        found = await forge.find(branch) if forge else None
        if found is None or found.state is PullState.OPEN:
            return False
        if found.number == following.shelf.ended.get(branch):
            return False
        if text.marker_of(drift) not in found.body:
            return False
        self._keep(following, drift, branch, found.head, found, None, voice)
        return True

    async def _files(
        self, following: Following, drift: ObjectDrift, seen: Seen, now: datetime
    ) -> tuple[Mapping[str, bytes | None], tuple[str, ...]]:
        if drift.pull is PullKind.REVERT:
            return decisions.files(drift, expires=now + _deadline(following)), ()
        codified = await self._codify(following, drift, seen)
        return codified.files, tuple(codified.notes)

    def _keep(
        self,
        following: Following,
        drift: ObjectDrift,
        branch: str,
        head: str,
        pull: Pull | None,
        kept: KeptPull | None,
        voice: Voice,
    ) -> None:
        url = pull.url if pull else ""
        following.shelf.put_pull(
            KeptPull(
                branch=branch, drift=drift.id, digest=drift.digest,
                number=pull.number if pull else 0, url=url, head=head,
                opened_at=kept.opened_at if kept else voice.now, checked_at=voice.now,
            )
        )  # fmt: skip
        until = (kept.opened_at if kept else voice.now) + _deadline(following)
        following.shelf.put_drift(
            replace(
                drift, state=DriftState.PULL_REQUEST, url=url, until=until,
                note="Tolerated while its pull request is open.",
            )
        )  # fmt: skip

    async def _stop(
        self,
        following: Following,
        drift: ObjectDrift,
        branch: str,
        kept: KeptPull | None,
        forge: Forge | None,
        body: str,
        voice: Voice,
    ) -> None:
        """A person works on the branch: say there what changed, and leave it to them."""
        told = "A person pushed to its branch, so it is not written any more."
        pull = await forge.find(branch) if forge else None
        if pull is not None and pull.state is not PullState.OPEN:
            pull = None  # nobody reads there any more
        if pull is not None and forge is not None:
            await forge.comment(pull.number, f"The drift moved on:\n\n{body}")
        if kept is None and pull is not None:
            kept = KeptPull(
                branch=branch, drift=drift.id, digest=drift.digest, number=pull.number,
                url=pull.url, head=pull.head, opened_at=voice.now, checked_at=voice.now,
            )  # fmt: skip
        if kept is not None:
            following.shelf.put_pull(replace(kept, digest=drift.digest, stopped=told))
        if drift.note == told:
            return  # it was said before
        following.shelf.put_drift(replace(drift, state=DriftState.PULL_REQUEST, note=told))
        following.shelf.note("pull-left-alone", told, subject=drift.id)
        voice.event("PullRequestLeftAlone", f"{branch}: {told}")


async def _opened(
    following: Following,
    drift: ObjectDrift,
    forge: Forge | None,
    branch: str,
    title: str,
    body: str,
    spec: PullsSpec,
) -> Pull | None:
    """Open the pull request, or bring the open one up to date. None where there is no forge."""
    if forge is None:
        return None
    base = spec.base or following.application.spec.source.revision or "main"
    labels = text.labels_of(drift, spec.labels or ())
    pull = await forge.open(
        NewPull(
            branch=branch, base=base, title=title, body=body, labels=labels,
            draft=bool(spec.draft),
        )
    )  # fmt: skip
    if (pull.title, pull.body) != (title, body):
        pull = await forge.update(pull.number, title=title, body=body)
    return pull


def _wants_pull(drift: ObjectDrift, following: Following, voice: Voice) -> bool:
    return (
        drift.remediation is Remediation.PULL_REQUEST
        and drift.state not in _SETTLED
        and following.hold_of(drift.object, voice.now) is None
    )


def _too_many(following: Following, spec: PullsSpec, now: datetime) -> str:
    """Why no further pull request is opened now; empty when one may be."""
    opened = [pull.opened_at for pull in following.shelf.pulls.values()]
    if len(opened) >= (spec.most_open or MOST_OPEN):
        return f"It waits: {len(opened)} pull requests of this application are open."
    lately = [at for at in opened if now - at < HOUR]
    if len(lately) >= (spec.most_hourly or MOST_HOURLY):
        return f"It waits: {len(lately)} pull requests were opened within the hour."
    return ""


def _deadline(following: Following) -> timedelta:
    spec = following.application.spec.pull_requests
    seconds = parse_duration(spec.deadline) if spec and spec.deadline else None
    return timedelta(seconds=seconds) if seconds else DEADLINE
