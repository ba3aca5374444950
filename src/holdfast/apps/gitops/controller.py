"""Makes passes over applications: a queue of names, a few workers, one pass at a time for each.

Whoever hears of something only puts names in line, and says which objects are to be looked at.
A pass looks at those; everything is looked at after a start, for a new commit or spec, and every
few minutes. One application that fails backs off alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from holdfast.adapters.kubernetes.objects import Object
from holdfast.adapters.kubernetes.queue import WorkQueue
from holdfast.apps.gitops.applications import (
    ApplicationCatalog,
    ApplicationStatusWriter,
    ObservedApplication,
    effective_spec,
)
from holdfast.apps.gitops.metrics import GitopsMetrics
from holdfast.apps.gitops.object_index import (
    ObjectClaims,
    ObjectIndex,
    VersionlessRef,
    affected_objects,
    versionless_ref,
)
from holdfast.apps.gitops.settings import GitopsSettings
from holdfast.apps.gitops.watches import WatchedKind
from holdfast.apps.runtime.workers import PassResult, Workers
from holdfast.apps.server import logs
from holdfast.apps.server.gitops_events import ApplicationEvents
from holdfast.core.gitops.application import Application, ApplicationId
from holdfast.core.gitops.facts import ObjectMoved
from holdfast.core.gitops.objects import DuplicateDeclaration
from holdfast.core.gitops.source import RenderedSource
from holdfast.core.object_ref import ObjectRef
from holdfast.core.tree import Tree
from holdfast.reconcile.gitops.application_context import ApplicationContext, OtherClaim
from holdfast.reconcile.gitops.application_state import (
    OPEN,
    ApplicationState,
    StateCommit,
    open_state,
    retire_application,
)
from holdfast.reconcile.gitops.application_status import RECONCILE_REQUESTED
from holdfast.reconcile.gitops.build import build_reconciler
from holdfast.reconcile.gitops.heal import IsStillAllowed
from holdfast.reconcile.gitops.object_observer import AutoscalersOf, PodsOf, no_autoscalers
from holdfast.reconcile.gitops.poll_scheduler import PollScheduler
from holdfast.reconcile.gitops.ports import LedgerStore, RecordKind
from holdfast.reconcile.gitops.pull_requests import Codify
from holdfast.reconcile.gitops.reporting import ApplicationEvent, ApplicationResult, SendNotice
from holdfast.reconcile.gitops.source_poller import NO_SOURCE_YET, SourcePoller, Sources
from holdfast.reconcile.kube import KubeClient
from holdfast.reconcile.ports import Clock
from holdfast.wire.forge_webhooks import same_repository
from holdfast.wire.gitops_v1 import parse_app_id

HINT_RETRIES = (5.0, 15.0, 30.0)
"""Seconds after which a repository is asked again whose webhook came before its commit."""


@dataclass(slots=True)
class PassSchedule:
    """One application's."""

    due_at: datetime
    """When it is to be looked at. Stays behind while nothing comes of it, so that this shows."""
    touched: set[ObjectRef] = field(default_factory=set)
    full: bool = True
    """True when everything is to be looked at."""
    next_full: float = 0.0
    failed: bool = False
    """True when a pass ended in the middle: memory may be ahead of the ledger."""
    finished_commit: str = ""
    """The commit whose end was looked for already."""
    handled_request: str = ""
    """The last request by annotation that was followed."""
    _tries: int = -1
    """How often a hint was followed in vain; -1 when there is none."""
    _hinted: str = ""
    """The commit that was known when the hint came."""

    def hint(self, follower: SourcePoller) -> None:
        """A forge says that the repository moved."""
        self._tries, self._hinted = 0, _known_commit(follower)
        follower.hasten()

    def retry_hint(self, follower: SourcePoller) -> float | None:
        """Have a repository asked again whose hint came before its commit could be seen.

        Returns the seconds until then.
        """
        if self._tries < 0:
            return None
        if _known_commit(follower) != self._hinted or self._tries >= len(HINT_RETRIES):
            self._tries = -1
            return None
        pause = HINT_RETRIES[self._tries]
        self._tries += 1
        follower.hasten(within=pause)
        return pause

    def is_full_due(self, now: float) -> bool:
        """True when everything is to be looked at."""
        return self.full or now >= self.next_full

    def take(self, now: float, *, awaiting: bool = False) -> tuple[set[ObjectRef], bool]:
        """Return what this pass looks at, and whether that is everything.

        While a look at Git is awaited, the look at everything waits for its answer.
        """
        full = self.is_full_due(now) and not awaiting
        touched, self.touched = self.touched, set()
        if full:
            self.full = False
        return touched, full


def _known_commit(follower: SourcePoller) -> str:
    commit = follower.last.commit
    return commit.sha if commit else ""


DEBOUNCE_SECONDS = 0.25
"""Seconds in which the reports of one rollout are taken together."""
FIRST_BACKOFF, MAX_BACKOFF = 0.5, 300.0
"""Seconds between two passes over an application that keeps failing."""
RESYNC_JITTER = 0.2
MIN_WAIT, SUSPENDED_WAIT = 0.5, 30.0
"""Seconds between two passes that nobody asked for."""


class ApplicationListener(Protocol):
    """What else has to hear of applications."""

    async def prepare(self, application: Application) -> None:
        """An application is new or has another spec."""

    async def forget(self, id: ApplicationId) -> None:
        """An application is no more."""

    def tell(
        self,
        found: ObservedApplication,
        context: ApplicationContext | None,
        note: ApplicationEvent,
    ) -> None:
        """Something happened to an application."""


class GitopsController:
    """Runs passes from when it is elected until it is stopped."""

    def __init__(
        self,
        *,
        client: KubeClient,
        applications: ApplicationCatalog,
        sources: Sources,
        contexts: dict[ApplicationId, ApplicationContext],
        ledger_store: LedgerStore,
        key: bytes,
        send: SendNotice,
        retain: Callable[[Collection[WatchedKind]], None],
        statuses: ApplicationStatusWriter,
        listener: ApplicationListener,
        clock: Clock,
        chance: Callable[[], float],
        metrics: GitopsMetrics,
        settings: GitopsSettings,
        autoscalers: AutoscalersOf = no_autoscalers,
        pods: PodsOf | None = None,
        codify: Codify | None = None,
        still_allowed: IsStillAllowed = lambda decided_by: True,
        events: ApplicationEvents | None = None,
        base_url: str = "",
    ) -> None:
        """`contexts` is filled here and read by others; `retain` hears which kinds are needed."""
        self._applications = applications
        self._contexts = contexts
        self._ledger_store = ledger_store
        self._poller = PollScheduler(
            contexts,
            clock,
            chance,
            wake=self._on_source_response,
            on_failure=self._on_source_failure,
            timeout=settings.reconcile_within,
        )
        self.queue: WorkQueue[ApplicationId] = WorkQueue(
            clock=clock, chance=chance, first=FIRST_BACKOFF, longest=MAX_BACKOFF, meter=metrics
        )
        metrics.watch_depth(lambda: float(len(self.queue)))
        self.workers = Workers(
            self.queue,
            self._reconcile,
            settings=settings,
            clock=clock,
            metrics=metrics,
            log=logs.event,
            subject=self._log_fields,
            on_failure=self._expect_full_pass,
        )
        self.reconciler = build_reconciler(
            client,
            sources,
            clock,
            key=key,
            send=send,
            cluster=settings.cluster,
            base_url=base_url,
            autoscalers=autoscalers,
            pods=pods,
            codify=codify,
            claim=self._claim_objects,
            poll=self._poller.poll,
            yield_worker=self.workers.stand_in,
            still_allowed=still_allowed,
            annotation_holds=settings.annotation_holds,
            measure=metrics.plan_duration.time,
        )
        self._sources = sources
        self._rendering = asyncio.Semaphore(settings.workers)
        """How many may render at once."""
        self._retain = retain
        self._statuses = statuses
        self._listener = listener
        self._clock = clock
        self._chance = chance
        self._metrics = metrics
        self._settings = settings
        self._events = events
        self._claims = ObjectClaims()
        self._declared: dict[ApplicationId, tuple[RenderedSource, frozenset[VersionlessRef]]] = {}
        """What each application declares, by the rendering that it was read from."""
        self._awaited: dict[ApplicationId, set[ApplicationId]] = {}
        """Applications whose repository is to be read, and those that wait for it to prune."""
        self._index = ObjectIndex()
        self._schedules: dict[ApplicationId, PassSchedule] = {}
        self._invalid: dict[ApplicationId, tuple[str, int]] = {}
        self._started = False
        """True once every application is known."""

    # What others tell. It only puts names in line.

    def on_application(self, id: ApplicationId) -> None:
        """An Application is new, changed or gone."""
        if self._started:
            self._schedule_of(id).full = True
            self.queue.add(id)

    def on_object(self, old: Object | None, new: Object | None) -> None:
        """An object of the cluster changed."""
        for each in affected_objects(old, new):
            for id, ref in self._index.concerned(each):
                self._schedule_of(id).touched.add(ref)
                if each.soon:
                    self.queue.add_after(id, DEBOUNCE_SECONDS)
                else:
                    self.queue.add(id)

    def on_kind_availability(self, watched: WatchedKind) -> None:
        """A kind is known again, or is not any more."""
        for id in list(self._index.needing(watched)):
            self._schedule_of(id).full = True
            self.queue.add(id)

    def wake(self, id: ApplicationId) -> None:
        """Somebody decided something: what they decided about is looked at, and all else."""
        self._schedule_of(id).full = True
        self.queue.add(id)

    def hint(self, id: ApplicationId) -> None:
        """A forge says that a repository moved."""
        context = self._contexts.get(id)
        if context is None:
            return
        context.forge_moved = True
        self._schedule_of(id).hint(context.poller)
        self.queue.add(id)

    def due_times(self) -> Mapping[ApplicationId, datetime]:
        """When which application is to be looked at next; what is past is late."""
        return {id: each.due_at for id, each in self._schedules.items()}

    async def run(self, began: Callable[[], None] = lambda: None) -> None:
        """Make passes until stopped; calls back once every application is known."""
        for id in self._applications.ids():
            self._schedule_of(id)
            if (found := self._applications.get(id)) and found.application:
                context = await self._load_context(found.application)
                self._claims.seed(id, context.state.inventory)
        self._started = True
        for id in (*self._applications.ids(), *await self._find_deserted()):
            self.queue.add(id, urgent=False)
        began()
        logs.event("working", workers=self._settings.workers, applications=len(self._contexts))
        try:
            await self.workers.run(before_drain=self._poller.aclose)
        finally:
            await self._poller.aclose()

    async def _find_deserted(self) -> set[ApplicationId]:
        """Name the applications that were taken away while nobody was looking.

        Only where the ledger is ours alone: others' applications stand in a shared one too.
        """
        if not self._applications.stored or self._settings.ledger is not None:
            return set()
        found: set[ApplicationId] = set()
        for kind in (RecordKind.INVENTORY, RecordKind.DRIFT, RecordKind.HOLD):
            records = await self._ledger_store.records(kind, state=OPEN)
            found |= {parse_app_id(record.application) for record in records}
        namespaces = self._settings.namespaces
        return {
            id
            for id in found - {*self._applications.ids()}
            if id.namespace and (not namespaces or id.namespace in namespaces)
        }

    def _expect_full_pass(self, id: ApplicationId, result: PassResult) -> None:
        """A pass ended in the middle: the next one reads and looks at everything again."""
        schedule = self._schedule_of(id)
        schedule.full = schedule.failed = True

    async def _reconcile(self, id: ApplicationId) -> PassResult:
        found = self._applications.get(id)
        if found is None:
            await self._tear_down(id)
            return PassResult.SUCCESS
        if found.application is None:
            await self._reject_invalid(found)
            return PassResult.SUCCESS
        self._invalid.pop(id, None)
        context = await self._load_context(found.application)
        schedule = self._schedule_of(id)
        if schedule.failed:
            async with context.lock:
                await context.state.read()
            schedule.failed = False
        requested = found.application.annotations.get(RECONCILE_REQUESTED, "")
        if requested != schedule.handled_request:
            schedule.handled_request, schedule.full = requested, True
            context.poller.hasten()
        if not found.application.spec.suspend and self._must_wait_for_source(context, schedule):
            return PassResult.SUCCESS
        awaiting = context.poller.asking and context.poller.awaited
        touched, full = schedule.take(self._clock.monotonic(), awaiting=awaiting)
        if full and found.application.spec.notify:
            await self._listener.prepare(found.application)  # its Secrets may be others by now
        result = await self.reconciler.reconcile(context, only=None if full else touched)
        if full:
            spread = 1 + RESYNC_JITTER * (self._chance() - 0.5)
            schedule.next_full = self._clock.monotonic() + self._settings.resync * spread
        await self._finish_pass(found, context, result, schedule)
        return PassResult.SUCCESS

    def _must_wait_for_source(self, context: ApplicationContext, schedule: PassSchedule) -> bool:
        """Have the repository asked when it is time to. True when nothing else is to be done: the
        pass comes with the answer. What was touched never waits for that."""
        self._poller.start(context)
        follower = context.poller
        if not follower.asking or follower.last is NO_SOURCE_YET:
            return follower.last is NO_SOURCE_YET
        now, moment = self._clock.now(), self._clock.monotonic()
        if (
            schedule.touched
            or context.due(now)
            or (schedule.is_full_due(moment) and not follower.awaited)
        ):
            return False
        waits = [max(schedule.next_full - moment, MIN_WAIT), context.next_due(now)]
        wait = min(each for each in waits if each is not None)
        if wait <= 0:
            return False
        self.queue.add_after(context.application.id, max(wait, MIN_WAIT))
        return True

    def _on_source_response(self, id: ApplicationId) -> None:
        """A repository has answered, or has failed to."""
        context = self._contexts.get(id)
        if context is not None:
            self.queue.add(id, urgent=context.looked_at is not None)

    def _on_source_failure(self, id: ApplicationId) -> None:
        logs.event("fetch-failed", level=logging.ERROR, exc=True, **self._log_fields(id))

    async def _finish_pass(
        self,
        found: ObservedApplication,
        context: ApplicationContext,
        result: ApplicationResult,
        schedule: PassSchedule,
    ) -> None:
        """Report what a pass found, and see to it that the next one comes in time."""
        id = found.id
        if self._events is not None:
            self._events.on_status(context.application, result.status, self._clock.now())
        context.application = replace(context.application, status=result.status)
        wanted = context.desired
        self._update_index(context, wanted.rendered if wanted else None)
        for event in result.events:
            self._listener.tell(found, context, event)
        waits = [result.requeue_after, schedule.next_full - self._clock.monotonic()]
        if (hinted := schedule.retry_hint(context.poller)) is not None:
            waits.append(hinted)
        status = result.status
        if status.sync == "synced" and status.fetched not in (
            status.revision,
            schedule.finished_commit,
        ):
            # What was left of a commit is there now: only a look at everything takes note of it.
            schedule.full, schedule.finished_commit = True, status.fetched or ""
            waits.append(MIN_WAIT)
        await self._statuses.report(found, status)
        follower = context.poller
        if follower.wait > 0 and not follower.asking and not follower.last.stale:
            self._wake_waiting(id)
        self.queue.forget(id)
        wait = max(min(waits), SUSPENDED_WAIT if context.application.spec.suspend else MIN_WAIT)
        schedule.due_at = self._clock.now() + timedelta(seconds=wait)
        self.queue.add_after(id, wait)

    async def _load_context(self, application: Application) -> ApplicationContext:
        """Return what is held of an application, with its newest spec."""
        id = application.id
        context = self._contexts.get(id)
        if context is None:
            context = ApplicationContext(
                application=application,
                state=await self._open_state(id),
                poller=self._make_poller(),
                newest=lambda: effective_spec(self._applications.get(id)),
                other_claim=lambda ref: self._find_rival(id, ref),
            )
            self._contexts[id] = context
            await self._listener.prepare(application)
            return context
        before = context.application
        if application.uid != before.uid:
            context.application = application
            context.poller.hasten()
        elif before.spec != application.spec:
            if before.spec.source != application.spec.source:
                self._poller.forget(context)
                context.poller = self._make_poller()  # another source is another story
            await self._listener.prepare(application)
        context.application = replace(application, status=before.status or application.status)
        return context

    async def _open_state(self, id: ApplicationId) -> ApplicationState:
        return await open_state(self._ledger_store, id, self._clock, self._on_commit)

    def _on_commit(self, commit: StateCommit) -> None:
        self._metrics.count_commit(commit)
        if self._events is not None:
            self._events.on_commit(commit)

    def _make_poller(self) -> SourcePoller:
        return SourcePoller(self._sources, self._clock, self._chance, rendering=self._rendering)

    async def _reject_invalid(self, found: ObservedApplication) -> None:
        """Leave an Application alone whose spec is wrong, and say so once."""
        identity = (found.uid, found.generation)
        if self._invalid.get(found.id) == identity:
            return
        logs.event(
            "invalid",
            level=logging.WARNING,
            application=str(found.id),
            project=self._project(found.id),
            why=str(found.error),
        )
        for note in await self._statuses.refuse(found, self._clock.now()):
            self._listener.tell(found, self._contexts.get(found.id), note)
        self._invalid[found.id] = identity
        self.queue.forget(found.id)

    async def _tear_down(self, id: ApplicationId) -> None:
        """Close the record of an Application that is no more. What it applied stays."""
        context = self._contexts.get(id)
        if context is not None:
            self._poller.forget(context)
            async with context.lock:
                await context.state.read()
                await retire_application(context.state, self._clock.now())
        else:
            await retire_application(await self._open_state(id), self._clock.now())
        project = self._project(id)
        if context is not None and self._events is not None:
            self._events.on_status(context.application, None, self._clock.now())
        self._contexts.pop(id, None)
        self._invalid.pop(id, None)
        self._schedules.pop(id, None)
        self._declared.pop(id, None)
        self._claims.release(id)
        self._index.drop(id)
        self._retain(self._index.needed_kinds)
        await self._listener.forget(id)
        self.queue.forget(id)
        logs.event("left", application=str(id), project=project)
        self._wake_refused()
        self._wake_waiting(id)

    def _claim_objects(
        self, context: ApplicationContext, rendered: RenderedSource
    ) -> DuplicateDeclaration | None:
        """Take what an application declares; nothing when another has some of it."""
        id, state = context.application.id, context.state
        if self._claims.stands(id, rendered, state.members):
            self._update_index(context, rendered)
            return None
        declared = {each.ref for each in rendered.objects}
        if (duplicate := self._claims.claim(id, declared)) is not None:
            return duplicate
        # Before anything is looked at, so that what happens from now on is heard.
        self._update_index(context, rendered)
        for ref in list(state.inventory):
            if ref not in declared and self._claims.owner(ref) not in (None, id):
                state.drop_applied(ref)
                state.record(ObjectMoved(about=ref, owner=str(self._claims.owner(ref))))
        if context.desired is None or context.desired.rendered is not rendered:
            self._wake_refused()
            for other in self._index.sharing(id):
                self.wake(other)  # it had an object that is ours now, and should know
        self._claims.settle(id, rendered, state.members)
        return None

    def _find_rival(self, id: ApplicationId, ref: ObjectRef) -> OtherClaim | None:
        """Say which other application declares an object, or may: one that was not read since.

        One commit may move an object from a path to another. So all who read the same repository
        are asked to read it first; of others, what they declared when they were read last counts.
        """
        mine, name = self._contexts[id], versionless_ref(ref)
        here = mine.application.spec.source.url
        unknown: OtherClaim | None = None
        for other, context in self._contexts.items():
            if other == id:
                continue
            follower = context.poller
            rendered = follower.last.rendered
            if rendered is not None and name in self._declared_refs(other, rendered):
                message = f"{other} declares it now, so it is handed over and not deleted."
                return OtherClaim(message=message, declares=True)
            url = context.application.spec.source.url
            shared = url == here or same_repository(url, here)
            read = follower.current_at >= mine.poller.moved_at and not follower.last.stale
            if read if shared else follower.last is not NO_SOURCE_YET:
                continue
            if not self._awaited.setdefault(other, set()) & {id}:
                self._awaited[other].add(id)
                follower.hasten()
                self.queue.add(other)
            why = "is suspended" if context.application.spec.suspend else "was not read since"
            message = f"It is not deleted yet: {other} {why} and may declare it."
            unknown = OtherClaim(message=message, declares=False)
        return unknown

    def _declared_refs(
        self, id: ApplicationId, rendered: RenderedSource
    ) -> frozenset[VersionlessRef]:
        known = self._declared.get(id)
        if known is None or known[0] is not rendered:
            names = frozenset(versionless_ref(each.ref) for each in rendered.objects)
            known = self._declared[id] = (rendered, names)
        return known[1]

    def _wake_waiting(self, id: ApplicationId) -> None:
        """An application was read, or is gone: who waits for that to prune may look again."""
        for other in self._awaited.pop(id, ()):
            if other in self._contexts:
                self.wake(other)

    def _update_index(self, context: ApplicationContext, rendered: RenderedSource | None) -> None:
        if self._index.update(context, rendered):
            self._retain(self._index.needed_kinds)

    def _wake_refused(self) -> None:
        for id, context in self._contexts.items():
            if context.refused:
                self.queue.add_after(id, DEBOUNCE_SECONDS)

    def _schedule_of(self, id: ApplicationId) -> PassSchedule:
        return self._schedules.setdefault(id, PassSchedule(due_at=self._clock.now()))

    def _log_fields(self, id: ApplicationId) -> dict[str, Tree]:
        return {"application": str(id), "project": self._project(id)}

    def _project(self, id: ApplicationId) -> str:
        """Whose an application is, as far as is known; for the log."""
        of = self._contexts.get(id) or self._applications.get(id)
        return of.application.spec.project if of and of.application else ""
