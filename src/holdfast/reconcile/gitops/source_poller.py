"""Keeps the declaration of one application up to date with its repository.

Whatever goes wrong with the source, what was declared before still counts: a repository that is
unreachable, rewritten or set back is stale, never empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from holdfast.core.errors import (
    NOTHING_CHANGED,
    HoldfastError,
    SourceUnavailable,
    TargetUnavailable,
)
from holdfast.core.gitops.application import Application
from holdfast.core.gitops.guard import ApprovalRequirement, approval_for_commit
from holdfast.core.gitops.records import AppliedRevision
from holdfast.core.gitops.source import (
    Ancestry,
    Commit,
    RenderedSource,
    Renderer,
    StaleReason,
    StaleSource,
)
from holdfast.core.quantity import parse_duration
from holdfast.reconcile.gitops.ports import Decryptor, Forge, Repository, SourceRenderer
from holdfast.reconcile.ports import Clock

DEFAULT_INTERVAL = 60.0
MAX_INTERVAL = 900.0
"""Seconds between two questions to a repository that keeps failing."""
JITTER = 0.2
"""Of an interval: by so much applications are spread, and so old an answer may be that one
application has from another's question."""


class Sources(Protocol):
    """Opens what an application names, with the credentials that its Secrets hold now."""

    async def repository(self, application: Application) -> Repository:
        """Return its repository. Raises ConfigurationError when a credential is missing."""

    async def renders(self, application: Application) -> SourceRenderer:
        """Return a renderer that can open what the application may decrypt."""

    async def decryptor(self, application: Application) -> Decryptor | None:
        """Return what edits its encrypted files, where it has any keys."""

    async def forge(self, application: Application) -> Forge | None:
        """Return where its pull requests go; None for a repository without a forge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """What is declared now, as far as is known."""

    rendered: RenderedSource | None
    """What is followed: the newest commit, or the last good one."""
    commit: Commit | None
    """The newest commit that was fetched."""
    fetched_at: datetime | None
    stale: StaleSource | None = None
    requirement: ApprovalRequirement | None = None
    """Set when a person has to agree to the newest commit first."""

    @property
    def ancestry(self) -> Ancestry:
        """How the newest commit stands to what was applied."""
        return self.commit.ancestry if self.commit else Ancestry.FIRST


NO_SOURCE_YET = SourceState(rendered=None, commit=None, fetched_at=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResult:
    """What came of one question to a repository."""

    started: float
    """When it was asked, by the monotonic clock."""
    since: float
    """From when on, on the same clock, the answer may be: another application may have it from
    a question before."""
    source: SourceState
    error: HoldfastError | None = None

    @property
    def unreachable(self) -> bool:
        """True when the address itself gave no answer, so that nobody else would get one."""
        return isinstance(self.error, SourceUnavailable) and self.error.unreachable


class SourcePoller:
    """Follows one application's source. Keeps what it saw last.

    Whoever follows one application alone calls `follow`, which waits for the repository. A
    controller asks beside its passes (`poll_scheduler.py`): it calls `ask`, and `take` with the
    answer.
    """

    def __init__(
        self,
        sources: Sources,
        clock: Clock,
        random: Callable[[], float],
        *,
        rendering: asyncio.Semaphore | None = None,
    ) -> None:
        """`rendering` bounds how many render at once, where several share a machine."""
        self._sources = sources
        self._clock = clock
        self._random = random
        self._rendering = rendering
        self._due = self._since = clock.monotonic()
        self._hinted: float | None = None
        """When somebody wants it asked whom no earlier answer will do."""
        self._failures = 0
        self._failing: datetime | None = None
        """Since when every question was in vain."""
        self.last = NO_SOURCE_YET
        self.current_at = -math.inf
        """When what is known was surely the repository's newest, on the monotonic clock."""
        self.moved_at = math.inf
        """When another commit was followed for the first time, on the same clock."""
        self._taken = -math.inf
        """When the question was asked that `last` answers, on the same clock."""
        self.asking = False
        """True while the repository is asked beside the passes."""

    def hasten(self, within: float = 0.0) -> None:
        """Ask the repository at the next look, or the one after some seconds: a webhook or a
        person hinted at it. What the repository said before the hint will not do."""
        self._hinted = self._since = self._clock.monotonic() + within
        self._due = min(self._due, self._since)

    def postpone(self, until: float) -> None:
        """Ask at a set moment of the monotonic clock, unless somebody hinted at an earlier one."""
        self._due = until if self._hinted is None else min(until, self._hinted)

    def resume(self, since: float) -> None:
        """Ask at the next look; an answer that another application got after `since` will do."""
        self._due = self._clock.monotonic()
        if self._hinted is None:
            self._since = since

    @property
    def wait(self) -> float:
        """Seconds until the repository is to be asked again."""
        if self.asking:
            return MAX_INTERVAL  # whoever asks wakes us with the answer
        return max(0.0, self._due - self._clock.monotonic())

    @property
    def due(self) -> bool:
        """True when the repository is to be asked now."""
        return not self.asking and (self.last is NO_SOURCE_YET or self.wait <= 0)

    @property
    def awaited(self) -> bool:
        """True while somebody who hinted at the repository has no answer yet."""
        return self._hinted is not None and self._hinted <= self._clock.monotonic()

    def overdue(self, application: Application) -> datetime | None:
        """When the repository should be read at the latest, or since when it cannot be.

        None before it was asked for the first time.
        """
        at = self.last.fetched_at
        latest = timedelta(seconds=_interval_of(application) * (1 + JITTER / 2))
        times = [self._failing, at + latest if at else None]
        return min((each for each in times if each is not None), default=None)

    async def follow(
        self, application: Application, revision: AppliedRevision | None
    ) -> SourceState:
        """Return what is declared now; asks the repository when it is time to, and waits."""
        if self.last is NO_SOURCE_YET or self._due <= self._clock.monotonic():
            self.take(application, await self.ask(application, revision))
        return self.last

    async def ask(
        self,
        application: Application,
        revision: AppliedRevision | None,
        *,
        fresh: bool = False,
        down: HoldfastError | None = None,
    ) -> PollResult:
        """Ask the repository, and render what it declares. When it has to be `fresh`, no answer
        from before will do. `down` says that it is known not to answer: then it is not asked."""
        started = self._clock.monotonic()
        since = started if fresh else min(self._since, started)
        try:
            if down is not None:
                raise down
            source = await self._fetch(application, revision, age=started - since)
            return PollResult(started=started, since=since, source=source)
        except HoldfastError as error:
            source = await self._fall_back(application, revision, error)
            return PollResult(started=started, since=since, source=source, error=error)

    async def recall(self, application: Application, revision: AppliedRevision) -> SourceState:
        """Return what was applied last, for as long as the repository has not answered."""
        rendered = await self._render(application, revision.newest)
        stale = StaleSource(reason=StaleReason.UNANSWERED)
        return SourceState(rendered=rendered, commit=None, fetched_at=None, stale=stale)

    def take(self, application: Application, asked: PollResult) -> None:
        """Go by an answer from now on, and set the time of the next question.

        One to an earlier question than that of the last answer is nothing to go by.
        """
        if asked.started < self._taken:
            return
        self._taken = asked.started
        before, rendered = self.last.rendered, asked.source.rendered
        if rendered and (before is None or before.commit != rendered.commit):
            self.moved_at = self._clock.monotonic()
        if asked.error is None:
            self._failures, self._failing = 0, None
            self.current_at = asked.since
        else:
            self._failures += 1
            self._failing = self._failing or self._clock.now()
        self.last = asked.source
        if self._hinted is not None and self._hinted <= asked.started:
            self._hinted = None
        interval = _interval_of(application)
        self._due = self._clock.monotonic() + self._pause(interval)
        self._since = self._due - JITTER * interval
        if self._hinted is not None:  # it came after the question
            self._since = self._hinted
            self._due = min(self._due, self._hinted)

    async def _fetch(
        self, application: Application, revision: AppliedRevision | None, *, age: float
    ) -> SourceState:
        spec = application.spec.source
        repository = await self._sources.repository(application)
        known = revision.newest if revision else None
        commit = await repository.fetch(spec.revision or "main", known=known, age=age)
        if revision is not None:
            commit = replace(commit, ancestry=revision.ancestry(commit.sha, commit.ancestry))
        now = self._clock.now()
        requirement = approval_for_commit(commit.ancestry, commit.sha)
        if requirement is not None and revision is not None and revision.accepted != commit.sha:
            rendered = await self._render(application, revision.newest)
            return SourceState(
                rendered=rendered,
                commit=commit,
                fetched_at=now,
                stale=StaleSource(reason=StaleReason.UNACCEPTED, detail=requirement.message),
                requirement=requirement,
            )
        rendered = await self._render(application, commit.sha)
        return SourceState(rendered=rendered, commit=commit, fetched_at=now)

    async def _fall_back(
        self, application: Application, revision: AppliedRevision | None, error: HoldfastError
    ) -> SourceState:
        """Keep to what was declared before."""
        last = self.last
        rendered = last.rendered
        if rendered is None and revision is not None:
            try:
                rendered = await self._render(application, revision.newest)
            except HoldfastError:
                rendered = None  # then what is declared is unknown, and nothing is done
        passing = isinstance(error, TargetUnavailable)
        stale = StaleSource(
            reason=StaleReason.UNAVAILABLE if passing else StaleReason.INVALID,
            # That nothing was changed is so of every look.
            detail=str(error).replace(f" {NOTHING_CHANGED}", ""),
        )
        return SourceState(
            rendered=rendered, commit=last.commit, fetched_at=last.fetched_at, stale=stale
        )

    async def _render(self, application: Application, commit: str) -> RenderedSource:
        spec = application.spec.source
        repository = await self._sources.repository(application)
        renders = await self._sources.renders(application)
        async with (
            repository.export(commit) as export,
            self._rendering or contextlib.nullcontext(),
        ):
            return await renders.render(
                export,
                spec.path or ".",
                renderer=spec.renderer or Renderer.AUTO,
                namespace=application.namespace,
            )

    def _pause(self, interval: float) -> float:
        pause = interval
        if self._failures:
            # One lost answer must not cost an application that asks once a day a whole day.
            pause = min(interval * 2.0 ** min(self._failures, 20), MAX_INTERVAL)
        return pause * (1 + JITTER * (self._random() - 0.5))


def _interval_of(application: Application) -> float:
    spec = application.spec.source
    return (parse_duration(spec.interval) if spec.interval else None) or DEFAULT_INTERVAL
