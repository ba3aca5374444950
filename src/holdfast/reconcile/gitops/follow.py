"""Keeps the declaration of one application up to date with its repository.

Whatever goes wrong with the source, what was declared before still counts: a repository that is
unreachable, rewritten or set back is stale, never empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from holdfast.core.errors import NOTHING_CHANGED, HoldfastError
from holdfast.core.gitops.application import Application
from holdfast.core.gitops.guard import Parked, park_commit
from holdfast.core.gitops.inventory import Followed
from holdfast.core.gitops.source import Ancestry, Commit, Rendered, Renderer
from holdfast.core.quantity import parse_duration
from holdfast.reconcile.gitops.ports import Decryptor, Forge, Renders, Repository
from holdfast.reconcile.ports import Clock

INTERVAL = 60.0
LONGEST = 900.0
"""Seconds between two questions to a repository that keeps failing."""
JITTER = 0.2
"""Of an interval: by so much applications are spread, and so old an answer may be that one
application has from another's question."""


class Sources(Protocol):
    """Opens what an application names, with the credentials that its Secrets hold now."""

    async def repository(self, application: Application) -> Repository:
        """Return its repository. Raises ConfigurationError when a credential is missing."""

    async def renders(self, application: Application) -> Renders:
        """Return a renderer that can open what the application may decrypt."""

    async def decryptor(self, application: Application) -> Decryptor | None:
        """Return what edits its encrypted files, where it has any keys."""

    async def forge(self, application: Application) -> Forge | None:
        """Return where its pull requests go; None for a repository without a forge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is declared now, as far as is known."""

    rendered: Rendered | None
    """What is followed: the newest commit, or the last good one."""
    commit: Commit | None
    """The newest commit that was fetched."""
    fetched_at: datetime | None
    stale: str = ""
    """Why the newest commit is not followed, or not known."""
    parked: Parked | None = None
    """Set when a person has to agree to the newest commit first."""

    @property
    def ancestry(self) -> Ancestry:
        """How the newest commit stands to what was applied."""
        return self.commit.ancestry if self.commit else Ancestry.FIRST


NOTHING_YET = Source(rendered=None, commit=None, fetched_at=None)


class Follower:
    """Follows one application's source. Keeps what it saw last."""

    def __init__(self, sources: Sources, clock: Clock, chance: Callable[[], float]) -> None:
        self._sources = sources
        self._clock = clock
        self._chance = chance
        self._due = self._since = clock.monotonic()
        self._failures = 0
        self._failing: datetime | None = None
        """Since when every question was in vain."""
        self.last = NOTHING_YET

    def hasten(self, within: float = 0.0) -> None:
        """Ask the repository at the next look, or the one after some seconds: a webhook or a
        person hinted at it. What the repository said before the hint will not do."""
        self._since = self._clock.monotonic() + within
        self._due = min(self._due, self._since)

    @property
    def wait(self) -> float:
        """Seconds until the repository is to be asked again."""
        return max(0.0, self._due - self._clock.monotonic())

    def overdue(self, application: Application) -> datetime | None:
        """When the repository should be read at the latest, or since when it cannot be.

        None before it was asked for the first time.
        """
        at = self.last.fetched_at
        latest = timedelta(seconds=_interval(application) * (1 + JITTER / 2))
        times = [self._failing, at + latest if at else None]
        return min((each for each in times if each is not None), default=None)

    async def follow(self, application: Application, followed: Followed | None) -> Source:
        """Return what is declared now; asks the repository when it is time to."""
        if self.last is not NOTHING_YET and self.wait > 0:
            return self.last
        try:
            self.last = await self._fetched(application, followed)
        except HoldfastError as error:
            self._failures += 1
            self._failing = self._failing or self._clock.now()
            self.last = await self._fallen_back(application, followed, error)
        else:
            self._failures, self._failing = 0, None
        interval = _interval(application)
        self._due = self._clock.monotonic() + self._pause(interval)
        self._since = self._due - JITTER * interval
        return self.last

    async def _fetched(self, application: Application, followed: Followed | None) -> Source:
        spec = application.spec.source
        repository = await self._sources.repository(application)
        known = followed.commit if followed else None
        age = max(0.0, self._clock.monotonic() - self._since)
        commit = await repository.fetch(spec.revision or "main", known=known, age=age)
        now = self._clock.now()
        parked = park_commit(commit.ancestry, commit.sha)
        if parked is not None and followed is not None and followed.accepted != commit.sha:
            rendered = await self._rendered(application, followed.commit)
            return Source(
                rendered=rendered, commit=commit, fetched_at=now, stale=parked.told, parked=parked
            )
        rendered = await self._rendered(application, commit.sha)
        return Source(rendered=rendered, commit=commit, fetched_at=now)

    async def _fallen_back(
        self, application: Application, followed: Followed | None, error: HoldfastError
    ) -> Source:
        """Keep to what was declared before."""
        last = self.last
        rendered = last.rendered
        if rendered is None and followed is not None:
            try:
                rendered = await self._rendered(application, followed.commit)
            except HoldfastError:
                rendered = None  # then what is declared is unknown, and nothing is done
        told = str(error).replace(f" {NOTHING_CHANGED}", "")  # which is so of every look
        return Source(rendered=rendered, commit=last.commit, fetched_at=last.fetched_at, stale=told)

    async def _rendered(self, application: Application, commit: str) -> Rendered:
        spec = application.spec.source
        repository = await self._sources.repository(application)
        renders = await self._sources.renders(application)
        async with repository.export(commit) as export:
            return await renders.render(
                export, spec.path or ".", renderer=spec.renderer or Renderer.AUTO,
                namespace=application.namespace,
            )  # fmt: skip

    def _pause(self, interval: float) -> float:
        pause = interval
        if self._failures:
            # One lost answer must not cost an application that asks once a day a whole day.
            pause = min(interval * 2.0 ** min(self._failures, 20), LONGEST)
        return pause * (1 + JITTER * (self._chance() - 0.5))


def _interval(application: Application) -> float:
    spec = application.spec.source
    return (parse_duration(spec.interval) if spec.interval else None) or INTERVAL
