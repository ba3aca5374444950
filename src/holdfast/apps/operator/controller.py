"""Looks at each service that may have moved: a queue of keys, a few workers, one look at a time.

Informers call the handlers, which only put keys in line. A look reads everything anew, so what
exactly happened does not matter. One service that fails backs off alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from holdfast.adapters.kubernetes.events import EventRecorder, EventSubject
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.objects import Object, ObjectKey, object_key, uid_of, version_of
from holdfast.adapters.kubernetes.queue import QueueShutDown, WorkQueue
from holdfast.apps.operator.logs import log
from holdfast.apps.operator.metrics import OperatorMetrics
from holdfast.apps.operator.settings import OperatorSettings
from holdfast.apps.operator.watches import (
    child_changed,
    service_changed,
    service_of_child,
    service_scaled_by,
    status_changed,
)
from holdfast.core.errors import HoldfastError, InvalidSpec, TargetUnavailable
from holdfast.core.object_ref import ObjectRef
from holdfast.core.quantity import format_seconds
from holdfast.core.service.spec import API_VERSION, KIND, InferenceService, InferenceServiceSpec
from holdfast.core.tree import Fields
from holdfast.reconcile.kube import KubeClient, KubeConflict
from holdfast.reconcile.ports import Clock
from holdfast.reconcile.service.observe import OPERATOR_MANAGER
from holdfast.reconcile.service.status import (
    Note,
    ServiceResult,
    events_of_transition,
    make_refused_status,
)
from holdfast.wire.inference_service_v1alpha1 import (
    service_from_json,
    status_from_json,
    status_to_json,
)


async def report_refusal(
    client: KubeClient, item: Object, error: InvalidSpec, now: datetime
) -> tuple[InferenceService, ServiceResult]:
    """Write the refusal unless it is there already. What runs, goes on running."""
    key = object_key(item)
    service = InferenceService(
        name=key.name,
        namespace=key.namespace,
        uid=uid_of(item),
        resource_version=version_of(item),
        generation=item["metadata"].get("generation", 0),
        spec=InferenceServiceSpec(model_ref="unreadable"),
        status=status_from_json(item.get("status")),
    )
    status = make_refused_status(service, error, now)
    if status != service.status:
        document: Fields = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": service.uid},
            "status": status_to_json(status),
        }
        await client.apply(document, manager=OPERATOR_MANAGER, force=True, subresource="status")
    return service, ServiceResult(
        status=status, notes=tuple(events_of_transition(service.status, status))
    )


DEBOUNCE = 0.1
"""Seconds in which the reports of one rollout are taken together."""
MAX_BACKOFF = 60.0
"""Seconds between two looks at a service that keeps failing. A refusal too: a policy of the
cluster's own may go at any time, and no event tells."""


class ReconcilesServices(Protocol):
    """One pass over a service; `holdfast.reconcile.service` has the real one."""

    async def reconcile(self, service: InferenceService) -> ServiceResult:
        """Make its children as declared and say how it does."""

    def take_notes(self, service: InferenceService) -> Sequence[Note]:
        """Give what a pass that failed has to say, once."""


class OperatorController:
    """Runs looks from when it is elected until it is stopped."""

    def __init__(
        self,
        *,
        services: tuple[Informer, ...],
        client: KubeClient,
        reconciler: ReconcilesServices,
        recorder: EventRecorder,
        clock: Clock,
        chance: Callable[[], float],
        metrics: OperatorMetrics,
        settings: OperatorSettings,
        latest: Callable[[InferenceService], InferenceService],
    ) -> None:
        self._services = services
        self._client = client
        self._reconciler = reconciler
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._latest = latest
        """Gives a service the status that it is about to have."""
        self.queue: WorkQueue[ObjectKey] = WorkQueue(
            clock=clock, chance=chance, longest=MAX_BACKOFF, meter=metrics
        )
        self._refused: dict[ObjectKey, tuple[str, int]] = {}
        """Services whose spec cannot be served: not looked at again until it is another."""
        self._stop = asyncio.Event()
        self._stopping = False
        self.working = False
        """True from the moment it may act."""
        self.failed = 0
        """Looks that ended with an error."""
        metrics.watch_depth(lambda: float(len(self.queue)))

    # Handlers of informers. They run for every event, so they only put keys in line.

    def on_service(self, old: Object | None, new: Object | None) -> None:
        """Take note of a service: new, gone, or another spec. A new status is our own doing."""
        if old is None or new is None or service_changed(old, new):
            item = new or old
            if item is not None:
                self.queue.add(object_key(item), urgent=self._began)

    def on_child(self, old: Object | None, new: Object | None) -> None:
        """Take note of a child, for the service it belongs to and for the one it did."""
        if old is not None and new is not None and not child_changed(old, new):
            if status_changed(old, new) and (owner := service_of_child(new)) is not None:
                # Statuses come in bursts, and nothing has to be put back because of one.
                self._add_owner(*owner, gone=False, after=DEBOUNCE)
            return
        for item in (old, new):
            owner = service_of_child(item) if item is not None else None
            if owner is not None:
                self._add_owner(*owner, gone=new is None)

    def on_autoscaler(self, old: Object | None, new: Object | None) -> None:
        """Take note of an autoscaler: a child of ours, or one that targets a child of ours."""
        self.on_child(old, new)
        if old is not None and new is not None and not child_changed(old, new):
            return
        for item in (old, new):
            key = service_scaled_by(item) if item is not None else None
            if key is not None:
                self._add_owner(key, "", gone=new is None)

    def _add_owner(self, key: ObjectKey, uid: str, *, gone: bool, after: float = 0.0) -> None:
        known = self._uid(key)
        # What belonged to a predecessor matters when it goes: its name is free then.
        if known is None or (uid and uid != known and not gone):
            return
        if after:
            self.queue.add_after(key, after)
        else:
            self.queue.add(key, urgent=self._began)

    @property
    def _began(self) -> bool:
        """False while the first lists come in: all that is no hurry."""
        return all(informer.has_synced for informer in self._services)

    def _uid(self, key: ObjectKey) -> str | None:
        for informer in self._services:
            if (uid := informer.uid(key)) is not None:
                return uid
        return None

    # The work.

    def stop(self) -> None:
        """End after the looks under way; what waits in line is left to the next leader."""
        self._stop.set()

    async def run(self) -> None:
        """Look until stopped, or with `once` until there is nothing left to look at."""
        self.working = True
        workers = [asyncio.ensure_future(self._work()) for _ in range(self._settings.workers)]
        others: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._stop.wait())]
        if self._settings.once:
            others.append(asyncio.ensure_future(self._until_idle()))
        else:
            others.append(asyncio.ensure_future(self._resync()))
        log.info("working", extra={"workers": len(workers), "services": self._count()})
        try:
            done, _ = await asyncio.wait({*workers, *others}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            self._stopping = True
            self.queue.shutdown()
            async with asyncio.timeout(self._settings.drain_within):
                await self.queue.wait_drained()
        except TimeoutError:
            log.warning("drain-cut-short", extra={"after": self._settings.drain_within})
        finally:
            for task in (*workers, *others):
                task.cancel()
            await asyncio.gather(*workers, *others, return_exceptions=True)

    def _count(self) -> int:
        return sum(len(informer) for informer in self._services)

    async def _until_idle(self) -> None:
        while not self.queue.idle or self.queue.later:
            await self._clock.sleep(0.05)

    async def _resync(self) -> None:
        """Look at every service once in a while, evenly spread, so that nothing is ever missed."""
        while True:
            keys = [key for informer in self._services for key in informer.names()]
            pause = self._settings.resync / max(len(keys), 1)
            if not keys:
                await self._clock.sleep(pause)
            for key in keys:
                await self._clock.sleep(pause)
                self.queue.add(key, urgent=False)

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueShutDown:
                return
            try:
                if not self._stopping:
                    await self._look(key)
            finally:
                self.queue.done(key)

    async def _look(self, key: ObjectKey) -> None:
        began = self._clock.monotonic()
        result = "error"
        self._metrics.active.inc()
        try:
            async with asyncio.timeout(self._settings.reconcile_within):
                result = await self._reconcile(key)
        except KubeConflict as conflict:
            # Another writer was first, which is no error: look again, at what it wrote.
            wait = self.queue.add_rate_limited(key)
            result = "requeue"
            log.debug("conflict", extra={"service": str(key), "why": conflict.happened,
                                         "wait": wait})  # fmt: skip
        except TargetUnavailable as error:
            self._failed(key, error.code, error.happened, asked=error.retry_after)
        except HoldfastError as error:
            self._failed(key, error.code, error.happened)
        except TimeoutError:
            within = self._settings.reconcile_within
            self._failed(key, "timeout", f"It took more than {format_seconds(within)}.")
        except Exception:  # a poisonous object must not stop the others
            log.exception("look-failed", extra={"service": str(key)})
            self._failed(key, "bug", "See look-failed.")
        finally:
            self._metrics.active.dec()
            self._metrics.looked(result, self._clock.monotonic() - began)

    def _failed(self, key: ObjectKey, code: str, why: str, *, asked: float | None = None) -> None:
        self.failed += 1
        wait: float | None = None
        if not self._settings.once:
            wait = self.queue.add_rate_limited(key) if asked is None else asked
            if asked is not None:
                self.queue.add_after(key, asked)
        log.warning("not-reconciled", extra={"service": str(key), "code": code, "why": why,
                                             "again_in": wait})  # fmt: skip

    async def _reconcile(self, key: ObjectKey) -> str:
        item = next(filter(None, (each.get(key.name, key.namespace) for each in self._services)),
                    None)  # fmt: skip
        if item is None:
            self.queue.forget(key)
            self._refused.pop(key, None)
            return "success"
        metadata = item["metadata"]
        identity = (metadata.get("uid", ""), metadata.get("generation", 0))
        if self._refused.get(key) == identity:
            return "success"
        try:
            service = service_from_json(item, checked=False, lenient=True)  # each pass validates
        except InvalidSpec as error:
            service, result = await report_refusal(self._client, item, error, self._clock.now())
            self._refused[key] = identity
        else:
            self._refused.pop(key, None)
            try:
                result = await self._reconciler.reconcile(self._latest(service))
            except HoldfastError:
                # What was done, and what stands in the way, is not kept for better days.
                self._tell(service, self._reconciler.take_notes(service))
                raise
        self.queue.forget(key)
        self._tell(service, result.notes)
        if result.requeue_after is None or self._settings.once:
            return "success"
        self.queue.add_after(key, result.requeue_after)
        return "requeue_after"

    def _tell(self, service: InferenceService, notes: Sequence[Note]) -> None:
        for note in notes:
            self._recorder.record(_regarding(service), note)
            self._count_note(service, note)
            log.info("transition", extra={
                "service": f"{service.namespace}/{service.name}", "reason": note.reason,
                "message_text": note.message, "warning": note.warning,
            })  # fmt: skip

    def _count_note(self, service: InferenceService, note: Note) -> None:
        self._metrics.notes.labels(note.reason).inc()
        if note.reason in ("DriftDetected", "DriftLeft", "DriftHealed", "AlteredByAdmission"):
            self._metrics.detected.labels(service.namespace).inc()
        if note.reason == "DriftHealed":
            self._metrics.resolved.labels(service.namespace, "self_heal").inc()


def _regarding(service: InferenceService) -> EventSubject:
    ref = ObjectRef(
        api_version=API_VERSION, kind=KIND, namespace=service.namespace, name=service.name
    )
    return EventSubject(ref=ref, uid=service.uid, version=service.resource_version)
