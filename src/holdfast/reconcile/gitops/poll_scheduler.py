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
from holdfast.core.gitops.application import ApplicationId
from holdfast.core.gitops.records import AppliedRevision
from holdfast.core.gitops.source import StaleReason, StaleSource
from holdfast.core.quantity import format_seconds
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.source_poller import NO_SOURCE_YET, PollResult, SourcePoller
from holdfast.reconcile.ports import Clock

FIRST_RETRY, MAX_RETRY = 15.0, 120.0
"""Seconds between two questions to an address that gives no answer."""
RECALL_AFTER = 2.0
"""Seconds after a start that a repository has to answer before what was applied last counts."""
_JITTER = 0.2
_MAX_ROUNDS = 3


@dataclass(slots=True)
class _Outage:
    """An address that gives no answer."""

    error: HoldfastError
    retry_at: float
    failures: int = 1
    prober: ApplicationId | None = None
    """The application that asks for all of them now."""
    waiting: set[ApplicationId] = field(default_factory=set)


class PollScheduler:
    """Asks the repositories of all applications of one controller."""

    def __init__(
        self,
        contexts: Mapping[ApplicationId, ApplicationContext],
        clock: Clock,
        random: Callable[[], float],
        *,
        wake: Callable[[ApplicationId], None],
        on_failure: Callable[[ApplicationId], None],
        timeout: float,
    ) -> None:
        """`wake` hears of every answer, and `on_failure` of every defect, while it is handled. No
        question takes longer than `timeout` seconds."""
        self._contexts = contexts
        self._clock = clock
        self._random = random
        self._wake = wake
        self._on_failure = on_failure
        self._timeout = timeout
        self._tasks: dict[SourcePoller, asyncio.Task[None]] = {}
        self._outages: dict[str, _Outage] = {}

    async def poll(self, context: ApplicationContext) -> None:
        """Have the repository asked if it is time to. Does not wait for the answer."""
        self.start(context)

    def start(self, context: ApplicationContext) -> None:
        """Have the repository asked if it is time to."""
        poller, id = context.poller, context.application.id
        if not poller.due:
            return
        down = None
        outage = self._outages.get(_url(context))
        if outage is not None and not poller.awaited:
            now = self._clock.monotonic()
            if outage.prober is not None or now < outage.retry_at:
                down = outage.error
                if id in outage.waiting and poller.last is not NO_SOURCE_YET:
                    poller.postpone(max(outage.retry_at, now + FIRST_RETRY))  # it was told already
                    return
            else:
                outage.prober = id
        poller.asking = True
        task = asyncio.ensure_future(self._ask(context, poller, down))
        self._tasks[poller] = task
        task.add_done_callback(lambda _: self._tasks.pop(poller, None))

    def forget(self, context: ApplicationContext) -> None:
        """End what is under way for an application that is no more."""
        if (task := self._tasks.get(context.poller)) is not None:
            task.cancel()

    async def aclose(self) -> None:
        """End everything that is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(
        self, context: ApplicationContext, poller: SourcePoller, down: HoldfastError | None
    ) -> None:
        id, url = context.application.id, _url(context)
        try:
            asked = await self._answer(context, poller, down)
            if asked is not None:
                self._settle(id, url, poller, asked, known=down is not None)
        finally:
            poller.asking = False
            outage = self._outages.get(url)
            if outage is not None and outage.prober == id:
                outage.prober = None  # ended in the middle: the next one asks
            self._wake(id)

    async def _answer(
        self, context: ApplicationContext, poller: SourcePoller, down: HoldfastError | None
    ) -> PollResult | None:
        """Ask, and have the application go by the answer."""
        for _ in range(_MAX_ROUNDS):
            application, revision = context.application, context.state.revision
            asked = await self._fetch(context, poller, revision, down)
            async with context.lock:
                # How a commit stands to what was applied is only known for what was applied then.
                if context.state.revision == revision:
                    poller.take(application, asked)
                    return asked
        poller.resume(self._clock.monotonic())
        return None

    async def _fetch(
        self,
        context: ApplicationContext,
        poller: SourcePoller,
        revision: AppliedRevision | None,
        down: HoldfastError | None,
    ) -> PollResult:
        started = self._clock.monotonic()
        recalling: asyncio.Task[None] | None = None
        if poller.last is NO_SOURCE_YET and revision is not None and down is None:
            recalling = asyncio.ensure_future(self._recall(context, poller, revision))
        try:
            async with asyncio.timeout(self._timeout):
                return await poller.ask(context.application, revision, down=down)
        except TimeoutError:
            message = (
                f"The repository was not read and rendered within {format_seconds(self._timeout)}."
            )
            error: HoldfastError = SourceUnavailable(message, hint="It is tried again later.")
        except Exception:  # a poisonous repository must not stop the others, nor its own heals
            self._on_failure(context.application.id)
            message = "The repository was not read, because of a defect in Holdfast."
            error = SourceUnavailable(message, hint="See fetch-failed in the log, and report it.")
        finally:
            if recalling is not None:
                recalling.cancel()
                await asyncio.gather(recalling, return_exceptions=True)
        stale = StaleSource(reason=StaleReason.UNAVAILABLE, detail=error.happened)
        source = replace(poller.last, stale=stale)
        return PollResult(started=started, since=started, source=source, error=error)

    async def _recall(
        self, context: ApplicationContext, poller: SourcePoller, revision: AppliedRevision
    ) -> None:
        """Go by what was applied last when the repository does not answer soon after a start."""
        await self._clock.sleep(RECALL_AFTER)
        with contextlib.suppress(HoldfastError):  # then nothing is known, as before
            source = await poller.recall(context.application, revision)
            async with context.lock:
                if poller.last is NO_SOURCE_YET and context.state.revision == revision:
                    poller.last = source
            self._wake(context.application.id)

    def _settle(
        self, id: ApplicationId, url: str, poller: SourcePoller, asked: PollResult, *, known: bool
    ) -> None:
        """Draw the consequences of an answer for every application of its address."""
        outage = self._outages.get(url)
        if known:
            if outage is None:  # it answered meanwhile
                poller.resume(asked.started)
                return
            outage.waiting.add(id)
            poller.postpone(max(outage.retry_at, self._clock.monotonic() + FIRST_RETRY))
            return
        if not asked.unreachable:
            self._outages.pop(url, None)
            for other in outage.waiting - {id} if outage else ():
                if (each := self._contexts.get(other)) is not None and _url(each) == url:
                    each.poller.resume(asked.started)
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
            if (each := self._contexts.get(other)) is not None and _url(each) == url:
                each.poller.postpone(outage.retry_at)

    def _pause(self, failures: int) -> float:
        pause = min(FIRST_RETRY * 2.0 ** min(failures - 1, 10), MAX_RETRY)
        return pause * (1 + _JITTER * (self._random() - 0.5))


def _url(context: ApplicationContext) -> str:
    return context.application.spec.source.url
