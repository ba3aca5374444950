"""The life of pull requests about drift: followed to their end, and closed by themselves.

What a person pushed is never written over, and what a person closed is not opened again for the
same drift. `opening.py` opens them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta

from holdfast.core.errors import HoldfastError, NotFound, TargetUnavailable
from holdfast.core.gitops import message
from holdfast.core.gitops.application import Remediation
from holdfast.core.gitops.drift import DriftState, ObjectDrift
from holdfast.core.gitops.inventory import KeptPull
from holdfast.core.gitops.pull_text import branch_of, is_about
from holdfast.core.gitops.standing import Seen
from holdfast.core.objects import ObjectRef
from holdfast.reconcile.gitops import decisions, words
from holdfast.reconcile.gitops.follow import Source, Sources
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.opening import Codifies, Opening
from holdfast.reconcile.gitops.ports import Forge, HumanCommits, Pull, PullState
from holdfast.reconcile.gitops.result import Voice

POLL = timedelta(seconds=60)
"""How often a forge is asked what became of a pull request, where no webhook tells."""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=15), timedelta(seconds=300)
"""Between two tries with a forge that gives no answer."""
_SETTLED = frozenset(
    {DriftState.REJECTED, DriftState.APPROVED, DriftState.HELD, DriftState.SNOOZED}
)
"""States in which nobody is to be asked by a pull request."""


Aside = Callable[[], AbstractAsyncContextManager[None]]
"""Lets others go on while a pass waits for somebody outside."""


class Pulls:
    """Sees to the pull requests of applications."""

    def __init__(self, sources: Sources, codify: Codifies, aside: Aside = nullcontext) -> None:
        """`aside` is held while a forge is talked to, which may take its time."""
        self._sources = sources
        self._codify = codify
        self._aside = aside

    async def see_to(
        self, following: Following, source: Source, seen: Mapping[ObjectRef, Seen], voice: Voice
    ) -> None:
        """Open, update, follow and close. A forge that fails delays nothing but this."""
        shelf = following.shelf
        wanting = [each for each in shelf.drifts.values() if _wants_pull(each, following, voice)]
        if not wanting and not shelf.pulls:
            return
        if following.forge_again is not None and voice.now < following.forge_again:
            following.postponed.update(drift.object for drift in wanting)
            return
        async with self._aside():
            await self._see_to(following, source, seen, voice, wanting)

    async def _see_to(
        self,
        following: Following,
        source: Source,
        seen: Mapping[ObjectRef, Seen],
        voice: Voice,
        wanting: Sequence[ObjectDrift],
    ) -> None:
        shelf = following.shelf
        hinted, following.forge_moved = following.forge_moved, False
        try:
            void = await decisions.take_up(following, source, self._sources, voice)
            forge = await self._sources.forge(following.application)
            for kept in list(shelf.pulls.values()):
                if kept.merged:
                    _let_go(following, kept, anew=kept.drift in void)
                else:
                    await self._follow(following, kept, forge, voice, hinted=hinted)
            opening = Opening(following, source, self._sources, self._codify, forge, voice)
            for drift in sorted(wanting, key=lambda each: each.first_seen):
                now = shelf.drifts.get(drift.id)
                if now is not None and _wants_pull(now, following, voice):
                    await opening.ensure(now, seen.get(now.object))
            following.forge_failures, following.forge_again = 0, None
        except HoldfastError as error:
            following.forge_moved = hinted
            following.postponed.update(drift.object for drift in wanting)
            if isinstance(error, TargetUnavailable):
                # Asked less and less, so that one that hangs does not hold up every pass.
                pause = FIRST_PAUSE * 2 ** min(following.forge_failures, 10)
                following.forge_failures += 1
                following.forge_again = voice.now + min(pause, LONGEST_PAUSE)
            told = words.cut(f"Pull requests wait: {error}")
            voice.event("PullRequestFailed", told, warning=True)
            for drift in wanting:  # who asked for it looks there
                now = shelf.drifts.get(drift.id)
                if now is not None and _wants_pull(now, following, voice) and not now.url:
                    shelf.put_drift(replace(now, note=told))

    async def _follow(
        self,
        following: Following,
        kept: KeptPull,
        forge: Forge | None,
        voice: Voice,
        *,
        hinted: bool,
    ) -> None:
        """Learn what became of one pull request, and close it when it has nothing to ask."""
        shelf = following.shelf
        drift = shelf.drifts.get(kept.drift)
        over = _over(kept, drift)
        if drift is not None and drift.until is not None and drift.until <= voice.now:
            drift = await self._overdue(following, drift, voice)
        if not over and not hinted and voice.now - kept.checked_at < POLL:
            return
        if forge is not None and not kept.number:
            if not over:
                return  # a claim, with which opening goes on
            kept = await _claimed(forge, kept)
        pull = await _known(forge, kept) if forge else None
        if pull is None or forge is None:
            if forge is not None or over:
                shelf.put_pull(kept, done=True)
            return
        kept = replace(kept, checked_at=voice.now, head=pull.head or kept.head)
        if pull.state is PullState.OPEN and over:
            await self._close(following, kept, forge, over, voice)
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
        self, following: Following, kept: KeptPull, forge: Forge, why: str, voice: Voice
    ) -> None:
        repository = await self._sources.repository(following.application)
        await forge.close(kept.number, comment=why)
        with suppress(HumanCommits):  # their work stays
            await repository.delete(kept.branch)
        following.shelf.put_pull(kept, done=True)
        following.shelf.note("pull-closed", f"{kept.url} was closed. {why}", subject=kept.drift)
        voice.event("PullRequestClosed", f"{kept.url}: {why}")

    async def _merged(
        self, following: Following, kept: KeptPull, drift: ObjectDrift | None, voice: Voice
    ) -> None:
        """Wait for Git, which may be followed later than the forge: it is not proposed again."""
        shelf = following.shelf
        shelf.put_pull(replace(kept, merged=True))
        shelf.note("pull-merged", f"{kept.url} was merged.", subject=kept.drift)
        voice.event("PullRequestMerged", f"{kept.url} was merged.")
        following.follower.hasten()
        if drift is not None:
            shelf.put_drift(replace(drift, note="Its pull request was merged.", until=None))
            await voice.notice(
                message.drift_codified(voice.about(drift), pull=kept.url, merged=True)
            )
        _let_go(following, kept)

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
        following.shelf.put_pull(replace(kept, stopped=told), done=True)
        following.shelf.note("pull-rejected", told, subject=kept.drift, actor=pull.closed_by or "?")
        voice.event("DriftRejected", told)
        if drift is not None:
            state = DriftState.REJECTED if drift.digest == kept.digest else DriftState.DETECTED
            following.shelf.put_drift(
                replace(drift, state=state, note=told, decided_by=pull.closed_by, until=None)
            )


async def _claimed(forge: Forge, kept: KeptPull) -> KeptPull:
    """Return a claim with what was opened for it, if anything was."""
    found = await forge.find(kept.branch)
    if found is None or not is_about(found.body, kept.drift):
        return kept
    return replace(kept, number=found.number, url=found.url, head=found.head)


async def _known(forge: Forge, kept: KeptPull) -> Pull | None:
    """Return a pull request as it is now; None when there is none any more.

    One that was opened beside it, by another controller at the same moment, is closed.
    """
    found = await forge.find(kept.branch)
    if found is None or found.number == kept.number:
        return found
    if not kept.number:
        return None
    try:
        pull = await forge.get(kept.number)
    except NotFound:
        return None
    if pull.branch != kept.branch:
        return None
    if found.state is PullState.OPEN and is_about(found.body, kept.drift):
        told = f"{kept.url} is about the same and was opened before, so that one counts."
        await forge.close(found.number, comment=told)
    return pull


def _over(kept: KeptPull, drift: ObjectDrift | None) -> str:
    """Why a pull request has nothing to ask any more; empty while it has."""
    if drift is None:
        return f"Drift {kept.drift} is gone, so there is nothing left to decide."
    if drift.remediation is not Remediation.PULL_REQUEST:
        return f"Drift {drift.id} is handled without a pull request now: {drift.remediation}."
    if branch_of(drift) != kept.branch:
        return f"Drift {drift.id} is to {drift.pull} by another pull request now."
    if drift.state is DriftState.REJECTED:
        return f"Drift {drift.id} was rejected: what is live stays, and Git as it is."
    return ""


def _let_go(following: Following, kept: KeptPull, *, anew: bool = False) -> None:
    """Put a merged one away once its drift is gone or is another, or is to be asked anew."""
    drift = following.shelf.drifts.get(kept.drift)
    if anew or drift is None or drift.digest != kept.digest or _over(kept, drift):
        following.shelf.put_pull(kept, done=True)


def _wants_pull(drift: ObjectDrift, following: Following, voice: Voice) -> bool:
    return (
        drift.remediation is Remediation.PULL_REQUEST
        and drift.state not in _SETTLED
        and following.hold_of(drift.object, voice.now) is None
    )
