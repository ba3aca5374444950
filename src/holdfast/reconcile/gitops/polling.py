"""Asks repositories beside the passes, so that no pass waits for a host that hangs.

An application is woken when its repository has answered, or has failed to; until then its passes
go by what was rendered last. An address that gives no answer is asked for all its applications by
one of them, less and less often, and all are woken when it answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.core.errors import HoldfastError, SourceUnavailable
from holdfast.core.gitops.application import AppId
from holdfast.core.gitops.inventory import Followed
from holdfast.core.quantity import shown_seconds
from holdfast.reconcile.gitops.follow import NOTHING_YET, Asked, Follower
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.ports import Clock

FIRST, LONGEST = 15.0, 120.0
"""Seconds between two questions to an address that gives no answer."""
RECALL = 2.0
"""Seconds after a start that a repository has to answer before what was applied last counts."""
_JITTER = 0.2
_ROUNDS = 3


@dataclass(slots=True)
class _Outage:
    """An address that gives no answer."""

    error: HoldfastError
    retry_at: float
    failures: int = 1
    prober: AppId | None = None
    """The application that asks for all of them now."""
    waiting: set[AppId] = field(default_factory=set)


class SourcePoller:
    """Asks the repositories of all applications of one controller."""

    def __init__(
        self,
        followed: Mapping[AppId, Following],
        clock: Clock,
        chance: Callable[[], float],
        *,
        wake: Callable[[AppId], None],
        failed: Callable[[AppId], None],
        within: float,
    ) -> None:
        """`wake` hears of every answer, and `failed` of every defect, while it is handled. No
        question takes longer than `within` seconds."""
        self._followed = followed
        self._clock = clock
        self._chance = chance
        self._wake = wake
        self._failed = failed
        self._within = within
        self._tasks: dict[Follower, asyncio.Task[None]] = {}
        self._outages: dict[str, _Outage] = {}

    async def poll(self, following: Following) -> None:
        """Have the repository asked if it is time to. Does not wait for the answer."""
        self.start(following)

    def start(self, following: Following) -> None:
        """Have the repository asked if it is time to."""
        follower, id = following.follower, following.application.id
        if not follower.due:
            return
        down = None
        outage = self._outages.get(_url(following))
        if outage is not None and not follower.awaited:
            now = self._clock.monotonic()
            if outage.prober is not None or now < outage.retry_at:
                down = outage.error
                if id in outage.waiting and follower.last is not NOTHING_YET:
                    follower.postpone(max(outage.retry_at, now + FIRST))  # it was told already
                    return
            else:
                outage.prober = id
        follower.asking = True
        task = asyncio.ensure_future(self._ask(following, follower, down))
        self._tasks[follower] = task
        task.add_done_callback(lambda _: self._tasks.pop(follower, None))

    def forget(self, following: Following) -> None:
        """End what is under way for an application that is no more."""
        if (task := self._tasks.get(following.follower)) is not None:
            task.cancel()

    async def aclose(self) -> None:
        """End everything that is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(
        self, following: Following, follower: Follower, down: HoldfastError | None
    ) -> None:
        id, url = following.application.id, _url(following)
        try:
            asked = await self._answer(following, follower, down)
            if asked is not None:
                self._settle(id, url, follower, asked, known=down is not None)
        finally:
            follower.asking = False
            outage = self._outages.get(url)
            if outage is not None and outage.prober == id:
                outage.prober = None  # ended in the middle: the next one asks
            self._wake(id)

    async def _answer(
        self, following: Following, follower: Follower, down: HoldfastError | None
    ) -> Asked | None:
        """Ask, and have the application go by the answer."""
        for _ in range(_ROUNDS):
            application, followed = following.application, following.shelf.followed
            asked = await self._fetch(following, follower, followed, down)
            async with following.lock:
                # How a commit stands to what was applied is only known for what was applied then.
                if following.shelf.followed == followed:
                    follower.take(application, asked)
                    return asked
        follower.resume(self._clock.monotonic())
        return None

    async def _fetch(
        self,
        following: Following,
        follower: Follower,
        followed: Followed | None,
        down: HoldfastError | None,
    ) -> Asked:
        started = self._clock.monotonic()
        recalling: asyncio.Task[None] | None = None
        if follower.last is NOTHING_YET and followed is not None and down is None:
            recalling = asyncio.ensure_future(self._recall(following, follower, followed))
        try:
            async with asyncio.timeout(self._within):
                return await follower.ask(following.application, followed, down=down)
        except TimeoutError:
            told = f"The repository was not read and rendered within {shown_seconds(self._within)}."
            error: HoldfastError = SourceUnavailable(told, todo="It is tried again later.")
        except Exception:  # a poisonous repository must not stop the others, nor its own heals
            self._failed(following.application.id)
            told = "The repository was not read, because of a defect in Holdfast."
            error = SourceUnavailable(told, todo="See fetch-failed in the log, and report it.")
        finally:
            if recalling is not None:
                recalling.cancel()
                await asyncio.gather(recalling, return_exceptions=True)
        source = replace(follower.last, stale=error.happened)
        return Asked(started=started, since=started, source=source, error=error)

    async def _recall(self, following: Following, follower: Follower, followed: Followed) -> None:
        """Go by what was applied last when the repository does not answer soon after a start."""
        await self._clock.sleep(RECALL)
        with contextlib.suppress(HoldfastError):  # then nothing is known, as before
            source = await follower.recall(following.application, followed)
            async with following.lock:
                if follower.last is NOTHING_YET and following.shelf.followed == followed:
                    follower.last = source
            self._wake(following.application.id)

    def _settle(
        self, id: AppId, url: str, follower: Follower, asked: Asked, *, known: bool
    ) -> None:
        """Draw the consequences of an answer for every application of its address."""
        outage = self._outages.get(url)
        if known:
            if outage is None:  # it answered meanwhile
                follower.resume(asked.started)
                return
            outage.waiting.add(id)
            follower.postpone(max(outage.retry_at, self._clock.monotonic() + FIRST))
            return
        if not asked.unreachable:
            self._outages.pop(url, None)
            for other in outage.waiting - {id} if outage else ():
                if (each := self._followed.get(other)) is not None and _url(each) == url:
                    each.follower.resume(asked.started)
                    self._wake(other)
            return
        now = self._clock.monotonic()
        assert asked.error is not None  # noqa: S101  # it was unreachable
        if outage is None:
            outage = _Outage(error=asked.error, retry_at=now + self._pause(1))
            self._outages[url] = outage
        elif asked.started >= outage.retry_at:  # who asks in between makes nobody wait longer
            outage.failures += 1
            outage.error = asked.error
            outage.retry_at = now + self._pause(outage.failures)
        outage.waiting.add(id)
        for other in outage.waiting:
            if (each := self._followed.get(other)) is not None and _url(each) == url:
                each.follower.postpone(outage.retry_at)

    def _pause(self, failures: int) -> float:
        pause = min(FIRST * 2.0 ** min(failures - 1, 10), LONGEST)
        return pause * (1 + _JITTER * (self._chance() - 0.5))


def _url(following: Following) -> str:
    return following.application.spec.source.url
