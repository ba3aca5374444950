"""Reconciles each service that may have changed: a queue of keys, a few workers.

Handlers of informers only put keys into the queue. A pass reads everything anew, so what exactly
happened does not matter. One service that fails backs off alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.adapters.kubernetes.events import EventRecorder, EventSubject
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.objects import Object, ObjectKey, object_key, uid_of, version_of
from holdfast.adapters.kubernetes.queue import WorkQueue
from holdfast.adapters.kubernetes.target_objects import PROJECT_LABEL
from holdfast.apps.operator import logs
from holdfast.apps.operator.metrics import OperatorMetrics
from holdfast.apps.operator.settings import OperatorSettings
from holdfast.apps.operator.watches import (
    child_changed,
    pod_restarted,
    service_changed,
    service_of_child,
    service_of_pod,
    service_scaled_by,
    status_changed,
)
from holdfast.apps.runtime.workers import PassResult, Workers
from holdfast.core.errors import HoldfastError, InvalidSpec
from holdfast.core.object_ref import ObjectRef
from holdfast.core.page_links import workload_link
from holdfast.core.service.facts import ServiceFact
from holdfast.core.service.spec import API_VERSION, KIND, InferenceService, InferenceServiceSpec
from holdfast.reconcile.ports import Clock
from holdfast.reconcile.service.messages import note_of
from holdfast.reconcile.service.monitors import ServiceMonitors
from holdfast.reconcile.service.status import ServiceResult
from holdfast.wire.inference_service_v1alpha1 import service_from_json, status_from_json

DEBOUNCE = 0.1
"""Seconds in which the reports of one rollout are taken together."""


class ReconcilesServices(Protocol):
    """One pass over a service; `holdfast.reconcile.service` has the real one."""

    async def reconcile(self, service: InferenceService) -> ServiceResult:
        """Make its children as declared and say how it does."""

    async def refuse(self, service: InferenceService, error: InvalidSpec) -> ServiceResult:
        """Say in its status that a service cannot be served. What runs, goes on running."""

    def take_facts(self, service: InferenceService) -> Sequence[ServiceFact]:
        """Give what a pass that failed has to say, once."""


class OperatorController:
    """Makes passes from when it is elected until it is stopped."""

    def __init__(
        self,
        *,
        services: tuple[Informer, ...],
        reconciler: ReconcilesServices,
        recorder: EventRecorder,
        queue: WorkQueue[ObjectKey],
        clock: Clock,
        metrics: OperatorMetrics,
        settings: OperatorSettings,
        monitors: ServiceMonitors,
        latest: Callable[[InferenceService], InferenceService],
    ) -> None:
        self._services = services
        self._reconciler = reconciler
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._monitors = monitors
        self._latest = latest
        """Gives a service the status that it is about to have."""
        self.queue = queue
        self._refused: dict[ObjectKey, tuple[str, int]] = {}
        """Services whose spec cannot be served, by uid and generation: left until it is another."""
        self.workers = Workers(
            queue,
            self._reconcile,
            settings=settings,
            clock=clock,
            metrics=metrics,
            log=logs.event,
            subject=lambda key: {"service": str(key)},
            on_failure=self._count_failure,
            conflict_level=logging.DEBUG,
            retry=not settings.once,
        )
        self.failed = 0
        """Passes that ended with an error."""

    # Handlers of informers. They run for every event, so they only put keys into the queue.

    def on_service(self, old: Object | None, new: Object | None) -> None:
        """Queue a service that is new, gone, or has another spec. A new status is our own."""
        if new is None and old is not None:
            gone = object_key(old)
            self._monitors.forget(gone.namespace, gone.name)
        item = new or old
        if item is not None and (old is None or new is None or service_changed(old, new)):
            self.queue.add(object_key(item), urgent=self._has_synced)

    def on_child(self, old: Object | None, new: Object | None) -> None:
        """Queue the service that a child belongs to, and the one that it did."""
        if old is not None and new is not None and not child_changed(old, new):
            if status_changed(old, new) and (owner := service_of_child(new)) is not None:
                # Statuses come in bursts, and nothing has to be healed because of one.
                self._add_owner(*owner, gone=False, after=DEBOUNCE)
            return
        for item in (old, new):
            owner = service_of_child(item) if item is not None else None
            if owner is not None:
                self._add_owner(*owner, gone=new is None)

    def on_pod(self, old: Object | None, new: Object | None) -> None:
        """Tell the monitors of a pod of a service. They ask for a pass where one is needed."""
        key = service_of_pod(new or old or {"metadata": {}})
        if key is not None:
            restarted = pod_restarted(old, new)
            self._monitors.pod_changed(key.namespace, key.name, old, new, restarted=restarted)

    def on_autoscaler(self, old: Object | None, new: Object | None) -> None:
        """Queue the service of an autoscaler: a child of ours, or one that targets a child."""
        self.on_child(old, new)
        if old is not None and new is not None and not child_changed(old, new):
            return
        for item in (old, new):
            key = service_scaled_by(item) if item is not None else None
            if key is not None:
                self._add_owner(key, "", gone=new is None)

    def _add_owner(self, key: ObjectKey, uid: str, *, gone: bool, after: float = 0.0) -> None:
        uids = (informer.uid(key) for informer in self._services)
        known = next((each for each in uids if each is not None), None)
        # What belonged to a predecessor matters when it goes: its name is free then.
        if known is None or (uid and uid != known and not gone):
            return
        if after:
            self.queue.add_after(key, after)
        else:
            self.queue.add(key, urgent=self._has_synced)

    @property
    def _has_synced(self) -> bool:
        """False while the first lists come in: nothing of that is urgent."""
        return all(informer.has_synced for informer in self._services)

    # The work.

    async def run(self) -> None:
        """Make passes until stopped, or with `once` until nothing is left to do."""
        services = sum(len(informer) for informer in self._services)
        logs.event("working", workers=self._settings.workers, services=services)
        await self.workers.run(self._until_idle() if self._settings.once else self._resync())

    async def _until_idle(self) -> None:
        while not self.queue.idle or self.queue.later:
            await self._clock.sleep(0.05)

    async def _resync(self) -> None:
        """Queue every service once in a while, evenly spread, so that nothing is ever missed."""
        while True:
            keys = [key for informer in self._services for key in informer.names()]
            pause = self._settings.resync / max(len(keys), 1)
            if not keys:
                await self._clock.sleep(pause)
            for key in keys:
                await self._clock.sleep(pause)
                self.queue.add(key, urgent=False)

    def _count_failure(self, key: ObjectKey, result: PassResult) -> None:
        self.failed += result is PassResult.ERROR

    async def _reconcile(self, key: ObjectKey) -> PassResult:
        with self._metrics.active.track_inprogress():
            items = (informer.get(key.name, key.namespace) for informer in self._services)
            item = next(filter(None, items), None)
            if item is None:
                self.queue.forget(key)
                self._refused.pop(key, None)
                return PassResult.SUCCESS
            identity = (uid_of(item), item["metadata"].get("generation", 0))
            if self._refused.get(key) == identity:
                return PassResult.SUCCESS
            try:
                service = service_from_json(item, checked=False, lenient=True)  # each pass checks
            except InvalidSpec as error:
                # The schema keeps such specs out: this one was stored before it was tightened.
                service = _unreadable_service(item)
                result = await self._reconciler.refuse(service, error)
                self._refused[key] = identity
            else:
                self._refused.pop(key, None)
                try:
                    result = await self._reconciler.reconcile(self._latest(service))
                except HoldfastError:
                    # What was done, and what stands in the way, is not kept for better days.
                    self._publish(service, self._reconciler.take_facts(service))
                    raise
            self.queue.forget(key)
            self._publish(service, result.facts)
            if result.requeue_after is None or self._settings.once:
                return PassResult.SUCCESS
            self.queue.add_after(key, result.requeue_after)
            return PassResult.REQUEUE_AFTER

    def _publish(self, service: InferenceService, facts: Sequence[ServiceFact]) -> None:
        """Tell facts: each is an Event, a figure and a line in the log."""
        ref = ObjectRef(
            api_version=API_VERSION, kind=KIND, namespace=service.namespace, name=service.name
        )
        subject = EventSubject(ref=ref, uid=service.uid, version=service.resource_version)
        project = service.labels.get(PROJECT_LABEL) or service.namespace
        link = workload_link(self._settings.page_url, project, service.name) or ""
        for fact in facts:
            note = note_of(fact)
            self._recorder.record(subject, note, link=link)
            self._metrics.count_fact(service.namespace, fact, note.reason)
            logs.event(
                "transition",
                service=f"{service.namespace}/{service.name}",
                reason=note.reason,
                message_text=note.message,
                warning=note.warning,
            )


def _unreadable_service(item: Object) -> InferenceService:
    """Make a service of what can be read of one whose spec cannot."""
    key = object_key(item)
    return InferenceService(
        name=key.name,
        namespace=key.namespace,
        uid=uid_of(item),
        resource_version=version_of(item),
        generation=item["metadata"].get("generation", 0),
        labels=item["metadata"].get("labels") or {},
        spec=InferenceServiceSpec(model_ref="unreadable"),
        status=status_from_json(item.get("status")),
    )
