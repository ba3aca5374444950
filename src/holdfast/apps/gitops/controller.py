"""Makes passes over applications: a queue of names, a few workers, one pass at a time for each.

Whoever hears of something only puts names in line, and says which objects are to be looked at.
A pass looks at those; everything is looked at after a start, for a new commit or spec, and every
few minutes. One application that fails backs off alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from holdfast.adapters.kubernetes.objects import Object
from holdfast.adapters.kubernetes.queue import ShutDown, WorkQueue
from holdfast.apps.gitops.applications import Applications, Found, spec_of
from holdfast.apps.gitops.claims import Claims
from holdfast.apps.gitops.due import Due
from holdfast.apps.gitops.index import Index
from holdfast.apps.gitops.mapping import Name, moved, name_of
from holdfast.apps.gitops.metrics import Metrics
from holdfast.apps.gitops.settings import Settings
from holdfast.apps.gitops.statuses import Statuses
from holdfast.apps.gitops.watching import Place
from holdfast.apps.server import logs
from holdfast.core.errors import Conflict, HoldfastError, TargetUnavailable
from holdfast.core.gitops.application import AppId, Application
from holdfast.core.gitops.source import Rendered
from holdfast.core.objects import ObjectRef
from holdfast.core.quantity import shown_seconds
from holdfast.reconcile.gitops.follow import NOTHING_YET, Follower
from holdfast.reconcile.gitops.following import Following, Rival
from holdfast.reconcile.gitops.leave import leave
from holdfast.reconcile.gitops.ledger import OPEN, open_shelf
from holdfast.reconcile.gitops.polling import SourcePoller
from holdfast.reconcile.gitops.ports import Book, RecordKind
from holdfast.reconcile.gitops.pulls import Aside
from holdfast.reconcile.gitops.reconciler import Claim, Poll, Reconciler
from holdfast.reconcile.gitops.report import RECONCILE_REQUESTED
from holdfast.reconcile.gitops.result import Note, Result
from holdfast.reconcile.ports import Clock
from holdfast.wire.forge_webhooks import same_repository
from holdfast.wire.gitops_v1 import app_id

SETTLING = 0.25
"""Seconds in which the reports of one rollout are taken together."""
FIRST, LONGEST = 0.5, 300.0
"""Seconds between two passes over an application that keeps failing."""
JITTER = 0.2
LEAST, SUSPENDED = 0.5, 30.0
"""Seconds between two passes that nobody asked for."""


class Around(Protocol):
    """What else has to hear of applications."""

    async def prepare(self, application: Application) -> None:
        """An application is new or has another spec."""

    async def forget(self, id: AppId) -> None:
        """An application is no more."""

    def tell(self, found: Found, following: Following | None, note: Note) -> None:
        """Something happened to an application."""


class Controller:
    """Runs passes from when it is elected until it is stopped."""

    def __init__(
        self,
        *,
        applications: Applications,
        followed: dict[AppId, Following],
        book: Book,
        reconciler: Callable[[Claim, Poll, Aside], Reconciler],
        follower: Callable[[], Follower],
        retain: Callable[[Collection[Place]], None],
        statuses: Statuses,
        around: Around,
        clock: Clock,
        chance: Callable[[], float],
        metrics: Metrics,
        settings: Settings,
    ) -> None:
        """`reconciler` and `follower` make them; `followed` is filled here and read by others.
        `retain` hears what has to be followed."""
        self._applications = applications
        self._followed = followed
        self._book = book
        self._poller = SourcePoller(
            followed, clock, chance, wake=self._answered, failed=self._unread,
            within=settings.reconcile_within,
        )  # fmt: skip
        self._reconciler = reconciler(self._claim, self._poller.poll, self._aside)
        self._new_follower = follower
        self._retain = retain
        self._statuses = statuses
        self._around = around
        self._clock = clock
        self._chance = chance
        self._metrics = metrics
        self._settings = settings
        self._claims = Claims()
        self._declared: dict[AppId, tuple[Rendered, frozenset[Name]]] = {}
        """What each application declares, by the rendering that it was read from."""
        self._awaited: dict[AppId, set[AppId]] = {}
        """Applications whose repository is to be read, and those that wait for it to prune."""
        self._index = Index()
        self._due: dict[AppId, Due] = {}
        self._invalid: dict[AppId, tuple[str, int]] = {}
        self.queue: WorkQueue[AppId] = WorkQueue(
            clock=clock, chance=chance, first=FIRST, longest=LONGEST, meter=metrics
        )
        metrics.watch_depth(lambda: float(len(self.queue)))
        self._workers: set[asyncio.Task[None]] = set()
        self._spare = 0
        """How many workers are to end, because the one they stood in for is back."""
        self._stop = asyncio.Event()
        self._broken: asyncio.Future[None] | None = None
        self.working = False
        """True from the moment it may act."""

    # What others tell. It only puts names in line.

    def on_application(self, id: AppId) -> None:
        """An Application is new, changed or gone."""
        if self.working:
            self._of(id).whole = True
            self.queue.add(id)

    def on_object(self, old: Object | None, new: Object | None) -> None:
        """An object of the cluster changed."""
        for each in moved(old, new):
            for id, ref in self._index.concerned(each):
                self._of(id).touched.add(ref)
                if each.soon:
                    self.queue.add_after(id, SETTLING)
                else:
                    self.queue.add(id)

    def on_turn(self, place: Place) -> None:
        """A kind is known again, or is not any more."""
        for id in list(self._index.needing(place)):
            self._of(id).whole = True
            self.queue.add(id)

    def wake(self, id: AppId) -> None:
        """Somebody decided something: what they decided about is looked at, and all else."""
        self._of(id).whole = True
        self.queue.add(id)

    def hint(self, id: AppId) -> None:
        """A forge says that a repository moved."""
        following = self._followed.get(id)
        if following is None:
            return
        following.forge_moved = True
        self._of(id).hint(following.follower)
        self.queue.add(id)

    def due(self) -> Mapping[AppId, datetime]:
        """When which application is to be looked at next; what is past is late."""
        return {id: each.at for id, each in self._due.items()}

    def stop(self) -> None:
        """End after the passes under way."""
        self._stop.set()

    async def run(self, began: Callable[[], None] = lambda: None) -> None:
        """Make passes until stopped; calls back once every application is known."""
        for id in self._applications.ids():
            self._of(id)
            if (found := self._applications.get(id)) and found.application:
                following = await self._follow(found.application)
                self._claims.seed(id, following.shelf.inventory)
        self.working = True
        for id in (*self._applications.ids(), *await self._deserted()):
            self.queue.add(id, urgent=False)
        began()
        logs.event("working", workers=self._settings.workers, applications=len(self._followed))
        self._broken = asyncio.get_running_loop().create_future()
        for _ in range(self._settings.workers):
            self._add_worker()
        stop: asyncio.Future[Any] = asyncio.ensure_future(self._stop.wait())  # Any: always True
        try:
            await asyncio.wait({self._broken, stop}, return_when=asyncio.FIRST_COMPLETED)
            if self._broken.done():
                self._broken.result()
            await self._poller.aclose()
            self.queue.shutdown()
            async with asyncio.timeout(self._settings.drain_within):
                await self.queue.drained()
        except TimeoutError:
            logs.event("drain-cut-short", after=self._settings.drain_within)
        finally:
            tasks = [*self._workers, stop]
            for task in tasks:
                task.cancel()
            await self._poller.aclose()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _deserted(self) -> set[AppId]:
        """Name the applications that were taken away while nobody was looking.

        Only where the ledger is ours alone: others' applications stand in a shared one too.
        """
        if not self._applications.stored or self._settings.ledger is not None:
            return set()
        found: set[AppId] = set()
        for kind in (RecordKind.INVENTORY, RecordKind.DRIFT, RecordKind.HOLD):
            records = await self._book.records(kind, state=OPEN)
            found |= {app_id(record.application) for record in records}
        namespaces = self._settings.namespaces
        return {
            id for id in found - {*self._applications.ids()}
            if id.namespace and (not namespaces or id.namespace in namespaces)
        }  # fmt: skip

    def _add_worker(self) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            self._workers.discard(task)
            broken, error = self._broken, None if task.cancelled() else task.exception()
            if error is not None and broken is not None and not broken.done():
                broken.set_exception(error)

        worker = asyncio.ensure_future(self._work())
        self._workers.add(worker)
        worker.add_done_callback(ended)

    @contextlib.asynccontextmanager
    async def _aside(self) -> AsyncIterator[None]:
        """Have another worker stand in for one whose pass waits for somebody outside."""
        self._add_worker()
        try:
            yield
        finally:
            self._spare += 1

    async def _work(self) -> None:
        while True:
            if self._spare:
                self._spare -= 1
                return
            try:
                id = await self.queue.get()
            except ShutDown:
                return
            try:
                if not self._stop.is_set():
                    await self._look(id)
            finally:
                self.queue.done(id)

    async def _look(self, id: AppId) -> None:
        began = self._clock.monotonic()
        result = "error"
        try:
            async with asyncio.timeout(self._settings.reconcile_within):
                await self._reconcile(id)
            result = "success"
        except Conflict as error:
            # Another writer was first, which is no error: look again, at what it wrote.
            result = "conflict"
            self._again(id, error.code, error.happened)
        except TargetUnavailable as error:
            self._again(id, error.code, error.happened, asked=error.retry_after)
        except HoldfastError as error:
            self._again(id, error.code, error.happened)
        except TimeoutError:
            within = self._settings.reconcile_within
            self._again(id, "timeout", f"It took more than {shown_seconds(within)}.")
        except Exception:  # a poisonous application must not stop the others
            logs.event(
                "pass-failed", level=logging.ERROR, exc=True, application=str(id),
                project=self._project(id),
            )  # fmt: skip
            self._again(id, "bug", "See pass-failed.")
        finally:
            self._metrics.looked(result, self._clock.monotonic() - began)

    def _again(self, id: AppId, code: str, why: str, *, asked: float | None = None) -> None:
        due = self._of(id)
        due.whole = due.broken = True
        wait = self.queue.add_rate_limited(id) if asked is None else asked
        if asked is not None:
            self.queue.add_after(id, asked)
        logs.event(
            "not-reconciled", level=logging.WARNING, application=str(id),
            project=self._project(id), code=code, why=why, again_in=wait,
        )  # fmt: skip

    async def _reconcile(self, id: AppId) -> None:
        found = self._applications.get(id)
        if found is None:
            await self._leave(id)
            return
        if found.application is None:
            await self._refuse(found)
            return
        self._invalid.pop(id, None)
        following = await self._follow(found.application)
        due = self._of(id)
        if due.broken:
            async with following.lock:
                await following.shelf.read()
            due.broken = False
        requested = found.application.annotations.get(RECONCILE_REQUESTED, "")
        if requested != due.asked:
            due.asked, due.whole = requested, True
            following.follower.hasten()
        if not found.application.spec.suspend and self._waits(following, due):
            return
        awaiting = following.follower.asking and following.follower.awaited
        touched, whole = due.take(self._clock.monotonic(), awaiting=awaiting)
        if whole and found.application.spec.notify:
            await self._around.prepare(found.application)  # its Secrets may be others by now
        result = await self._reconciler.reconcile(following, only=None if whole else touched)
        if whole:
            spread = 1 + JITTER * (self._chance() - 0.5)
            due.next_whole = self._clock.monotonic() + self._settings.resync * spread
        await self._after(found, following, result, due)

    def _waits(self, following: Following, due: Due) -> bool:
        """Have the repository asked when it is time to. True when nothing else is to be done: the
        pass comes with the answer. What was touched never waits for that."""
        self._poller.start(following)
        follower = following.follower
        if not follower.asking or follower.last is NOTHING_YET:
            return follower.last is NOTHING_YET
        now, moment = self._clock.now(), self._clock.monotonic()
        if due.touched or following.due(now) or (due.whole_at(moment) and not follower.awaited):
            return False
        waits = [max(due.next_whole - moment, LEAST), following.next_due(now)]
        wait = min(each for each in waits if each is not None)
        if wait <= 0:
            return False
        self.queue.add_after(following.application.id, max(wait, LEAST))
        return True

    def _answered(self, id: AppId) -> None:
        """A repository has answered, or has failed to."""
        following = self._followed.get(id)
        if following is not None:
            self.queue.add(id, urgent=following.looked_at is not None)

    def _unread(self, id: AppId) -> None:
        logs.event(
            "fetch-failed", level=logging.ERROR, exc=True, application=str(id),
            project=self._project(id),
        )  # fmt: skip

    async def _after(self, found: Found, following: Following, result: Result, due: Due) -> None:
        """Report what a pass found, and see to it that the next one comes in time."""
        id = found.id
        following.application = replace(following.application, status=result.status)
        wanted = following.wanted
        self._take(following, wanted.rendered if wanted else None)
        for note in result.notes:
            self._around.tell(found, following, note)
        waits = [result.requeue_after, due.next_whole - self._clock.monotonic()]
        if (hinted := due.follow_hint(following.follower)) is not None:
            waits.append(hinted)
        status = result.status
        if status.sync == "synced" and status.fetched not in (status.revision, due.finished):
            # What was left of a commit is there now: only a look at everything takes note of it.
            due.whole, due.finished = True, status.fetched or ""
            waits.append(LEAST)
        await self._statuses.report(found, status)
        follower = following.follower
        if follower.wait > 0 and not follower.asking and not follower.last.stale:
            self._wake_waiting(id)
        self.queue.forget(id)
        wait = max(min(waits), SUSPENDED if following.application.spec.suspend else LEAST)
        due.at = self._clock.now() + timedelta(seconds=wait)
        self.queue.add_after(id, wait)

    async def _follow(self, application: Application) -> Following:
        """Return what is held of an application, with its newest spec."""
        id = application.id
        following = self._followed.get(id)
        if following is None:
            shelf = await open_shelf(self._book, id, self._clock)
            following = Following(
                application=application, shelf=shelf, follower=self._new_follower(),
                newest=lambda: spec_of(self._applications.get(id)),
                rival=lambda ref: self._rival(id, ref),
            )  # fmt: skip
            self._followed[id] = following
            await self._around.prepare(application)
            return following
        before = following.application
        if application.uid != before.uid:
            following.application = application
            following.follower.hasten()
        elif before.spec != application.spec:
            if before.spec.source != application.spec.source:
                self._poller.forget(following)
                following.follower = self._new_follower()  # another source is another story
            await self._around.prepare(application)
        following.application = replace(application, status=before.status or application.status)
        return following

    async def _refuse(self, found: Found) -> None:
        """Leave an Application alone whose spec is wrong, and say so once."""
        identity = (found.uid, found.generation)
        if self._invalid.get(found.id) == identity:
            return
        logs.event(
            "invalid", level=logging.WARNING, application=str(found.id),
            project=self._project(found.id), why=str(found.error),
        )  # fmt: skip
        for note in await self._statuses.refuse(found, self._clock.now()):
            self._around.tell(found, self._followed.get(found.id), note)
        self._invalid[found.id] = identity
        self.queue.forget(found.id)

    async def _leave(self, id: AppId) -> None:
        """Close the record of an Application that is no more. What it applied stays."""
        following = self._followed.get(id)
        shelf = following.shelf if following else await open_shelf(self._book, id, self._clock)
        if following is not None:
            self._poller.forget(following)
            async with following.lock:
                await shelf.read()
                await leave(shelf, self._clock.now())
        else:
            await leave(shelf, self._clock.now())
        project = self._project(id)
        self._followed.pop(id, None)
        self._invalid.pop(id, None)
        self._due.pop(id, None)
        self._declared.pop(id, None)
        self._claims.release(id)
        self._index.drop(id)
        self._retain(self._index.places)
        await self._around.forget(id)
        self.queue.forget(id)
        logs.event("left", application=str(id), project=project)
        self._wake_refused()
        self._wake_waiting(id)

    def _claim(self, following: Following, rendered: Rendered) -> str:
        """Take what an application declares; says why not when another has it."""
        id, shelf = following.application.id, following.shelf
        if self._claims.stands(id, rendered, shelf.members):
            self._take(following, rendered)
            return ""
        declared = {each.ref for each in rendered.objects}
        taken = self._claims.claim(id, declared)
        if taken is not None:
            ref, owner = taken
            return (
                f"{ref} is declared by {owner} too, which owns it: remove it from one of the two."
            )
        # Before anything is looked at, so that what happens from now on is heard.
        self._take(following, rendered)
        for ref in list(shelf.inventory):
            if ref not in declared and self._claims.owner(ref) not in (None, id):
                shelf.drop_applied(ref)
                shelf.note("moved", f"{ref} belongs to {self._claims.owner(ref)} now.")
        if following.wanted is None or following.wanted.rendered is not rendered:
            self._wake_refused()
            for other in self._index.sharing(id):
                self.wake(other)  # it had an object that is ours now, and should know
        self._claims.settle(id, rendered, shelf.members)
        return ""

    def _rival(self, id: AppId, ref: ObjectRef) -> Rival | None:
        """Say which other application declares an object, or may: one that was not read since.

        One commit may move an object from a path to another. So all who read the same repository
        are asked to read it first; of others, what they declared when they were read last counts.
        """
        mine, name = self._followed[id], name_of(ref)
        here = mine.application.spec.source.url
        unknown: Rival | None = None
        for other, following in self._followed.items():
            if other == id:
                continue
            follower = following.follower
            rendered = follower.last.rendered
            if rendered is not None and name in self._names(other, rendered):
                told = f"{other} declares it now, so it is handed over and not deleted."
                return Rival(told=told, declares=True)
            url = following.application.spec.source.url
            shared = url == here or same_repository(url, here)
            read = follower.current_at >= mine.follower.moved_at and not follower.last.stale
            if read if shared else follower.last is not NOTHING_YET:
                continue
            if not self._awaited.setdefault(other, set()) & {id}:
                self._awaited[other].add(id)
                follower.hasten()
                self.queue.add(other)
            why = "is suspended" if following.application.spec.suspend else "was not read since"
            told = f"It is not deleted yet: {other} {why} and may declare it."
            unknown = Rival(told=told, declares=False)
        return unknown

    def _names(self, id: AppId, rendered: Rendered) -> frozenset[Name]:
        known = self._declared.get(id)
        if known is None or known[0] is not rendered:
            names = frozenset(name_of(each.ref) for each in rendered.objects)
            known = self._declared[id] = (rendered, names)
        return known[1]

    def _wake_waiting(self, id: AppId) -> None:
        """An application was read, or is gone: who waits for that to prune may look again."""
        for other in self._awaited.pop(id, ()):
            if other in self._followed:
                self.wake(other)

    def _take(self, following: Following, rendered: Rendered | None) -> None:
        if self._index.take(following, rendered):
            self._retain(self._index.places)

    def _wake_refused(self) -> None:
        for id, following in self._followed.items():
            if following.refused:
                self.queue.add_after(id, SETTLING)

    def _of(self, id: AppId) -> Due:
        return self._due.setdefault(id, Due(at=self._clock.now()))

    def _project(self, id: AppId) -> str:
        """Whose an application is, as far as is known; for the log."""
        of = self._followed.get(id) or self._applications.get(id)
        return of.application.spec.project if of and of.application else ""
