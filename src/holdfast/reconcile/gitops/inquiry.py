"""Finds what a person asks about: applications, drifts and plans of their own project.

What belongs to another project is answered as what does not exist. The base of the desk.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from holdfast.core.errors import Ambiguous, HoldfastError, NotFound
from holdfast.core.gitops.application import AppId
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.inventory import KeptPlan
from holdfast.core.gitops.plan import SyncPlan
from holdfast.core.gitops.standing import Seen
from holdfast.core.quantity import shown_seconds
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.looking import Looking
from holdfast.reconcile.gitops.result import Tell
from holdfast.reconcile.gitops.sync import Sync
from holdfast.reconcile.ports import Clock

Wake = Callable[[AppId], None]
"""Asks for a pass over an application."""
READ_WITHIN = 20.0
"""Seconds in which a repository has to answer who asks for a diff."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What was found when an application was compared with Git."""

    seen: tuple[Seen, ...]
    commit: str
    stale: str = ""
    """Why that is not the newest commit for sure; empty when it is."""


class Inquiry:
    """Questions about the applications that one controller follows."""

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
        every = self.applications(project)
        found = [each for each in every if each.application.id.is_called(name)]
        if len(found) > 1:
            names = ", ".join(str(each.application.id) for each in found)
            raise Ambiguous(f"{name[:80]} may be {names}.", todo="Name it with its namespace.")
        if not found:
            known = [each.application.id.name for each in every]
            close = get_close_matches(name.rpartition(".")[2], known, n=1)
            hint = f"Did you mean {close[0]}? " if close else ""
            raise NotFound(
                f"There is no application {name[:80]!a} in project {project}.",
                todo=f"{hint}holdfast status lists them.",
            )
        return found[0]

    def follows(self, id: AppId) -> bool:
        """True for an application that is followed, of whichever project."""
        return id in self._followed

    def drift(self, project: str, id: str) -> tuple[Following, ObjectDrift]:
        """Return an open drift of a project."""
        for following in self.applications(project):
            if (drift := following.shelf.drifts.get(id)) is not None:
                return following, drift
        raise NotFound(
            f"There is no open drift {id[:40]!a} in project {project}.",
            todo="holdfast drift list shows the open ones, holdfast drift history all of them.",
        )

    def waiting_plan(self, project: str, id: str) -> tuple[Following, KeptPlan]:
        """Return a plan that waits for a person."""
        for following in self.applications(project):
            if (kept := following.shelf.plans.get(id)) is not None:
                return following, kept
        raise NotFound(
            f"There is no plan {id[:40]!a} that waits in project {project}.",
            todo="holdfast status -o wide shows which plans wait.",
        )

    async def look(self, following: Following) -> Comparison:
        """Compare all objects of an application with what Git declares now. Writes nothing."""
        async with self._at_newest(following) as stale:
            seen = await self._looking.at(following, None)
            return Comparison(seen=seen, commit=_commit(following), stale=stale)

    async def plan(self, following: Following, *, prune: bool) -> tuple[SyncPlan, str]:
        """Say what a sync would do now, and why Git could not be read now if so."""
        async with self._at_newest(following) as stale:
            seen = {each.ref: each for each in await self._looking.at(following, None)}
            return self._sync.plan(following, seen, prune=prune), stale

    @contextlib.asynccontextmanager
    async def _at_newest(self, following: Following) -> AsyncIterator[str]:
        """Have what Git declares now at hand for a question, and nothing of it kept.

        The next pass takes up what was read. Gives why the newest commit is not the one that is
        compared with; empty when it is.
        """
        stale = await self._read(following)  # without the lock, which passes need to heal
        async with following.lock:
            await following.shelf.refresh()
            rendered = following.follower.last.rendered
            before, glances = following.wanted, dict(following.glances)
            compared = following.compared
            if rendered is not None:
                following.wanted = self._looking.declared(following, rendered)
            self._known(following)
            try:
                yield stale
            finally:
                following.wanted, following.glances = before, glances
                following.compared = compared

    async def _read(self, following: Following) -> str:
        follower, application = following.follower, following.application
        followed = following.shelf.followed
        try:
            async with asyncio.timeout(READ_WITHIN):
                asked = await follower.ask(application, followed, fresh=True)
        except TimeoutError:
            return f"Its repository did not answer within {shown_seconds(READ_WITHIN)}."
        async with following.lock:
            if following.shelf.followed != followed or following.follower is not follower:
                return "It moved on while its repository was read; ask again."
            follower.take(application, asked)
        return " ".join(asked.source.stale.split())

    def _known(self, following: Following) -> None:
        if following.wanted is None:
            id, stale = following.application.id, " ".join(following.follower.last.stale.split())
            why = following.refused or stale or "Its repository was not read yet."
            raise NotFound(
                f"What {id} declares is not known. {why}",
                todo=f"holdfast status {id} shows when it is.",
            )

    async def _commit(self, following: Following) -> None:
        try:
            await following.shelf.commit()
        except HoldfastError:
            # What may not have been written is not shown as if it were: the ledger knows.
            with contextlib.suppress(HoldfastError):
                await following.shelf.read()
            raise


def _commit(following: Following) -> str:
    assert following.wanted is not None  # noqa: S101  # it was looked at
    return following.wanted.rendered.commit


def _in(following: Following, project: str) -> bool:
    return following.application.spec.project == project
