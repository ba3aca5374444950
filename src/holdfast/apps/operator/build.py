"""Puts an operator together around one client: the one wiring, for the process and for tests.

What reaches outside comes from the caller: the client, informers, where Events go, and who asks
engines and hubs. Signals, leases and probes are the process's own, in `main.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.adapters.kubernetes.events import EventRecorder, PostEvent
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.objects import ObjectKey
from holdfast.adapters.kubernetes.queue import WorkQueue
from holdfast.apps.operator.controller import OperatorController, ReconcilesServices
from holdfast.apps.operator.metrics import OperatorMetrics
from holdfast.apps.operator.settings import OperatorSettings
from holdfast.apps.operator.status_writer import DeferredStatusWriter
from holdfast.core.service.facts import ROUTINE_EVENTS
from holdfast.reconcile.kube import KubeClient
from holdfast.reconcile.ports import Clock, EngineApi, MetricSource
from holdfast.reconcile.service.model_head import HubApi
from holdfast.reconcile.service.monitors import ServiceMonitors, build_monitors
from holdfast.reconcile.service.observe import FindAutoscalers
from holdfast.reconcile.service.reconciler import DirectStatusWriter, ServiceReconciler
from holdfast.reconcile.service.runtime import ListPods

REPORTER = "holdfast.dev/operator"
MAX_BACKOFF = 60.0
"""Seconds between two passes over a service that keeps failing. A refusal too: a policy of the
cluster's own may go at any time, and no event tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorComponents:
    """One operator. `recorder` and `statuses` have a `run` that goes on in the background."""

    controller: OperatorController
    monitors: ServiceMonitors
    recorder: EventRecorder
    statuses: DeferredStatusWriter

    async def work(self) -> None:
        """Make passes until the controller is stopped, and write what they have to say."""
        async with self.monitors.asking():
            await self.controller.run()
        await self.statuses.flush()


def build_operator(
    client: KubeClient,
    *,
    settings: OperatorSettings,
    services: tuple[Informer, ...],
    post_event: PostEvent,
    clock: Clock,
    chance: Callable[[], float],
    key: bytes,
    metrics: OperatorMetrics,
    instance: str,
    autoscalers: FindAutoscalers | None = None,
    list_pods: ListPods | None = None,
    engines: EngineApi | None = None,
    hub: HubApi | None = None,
    metric_source: MetricSource | None = None,
    own_image: str | None = None,
    reconciler: ReconcilesServices | None = None,
) -> OperatorComponents:
    """Return an operator that works on a cluster through `client`.

    `services` are the informers that it learns of InferenceServices from; `instance` names this
    process in its Events. Autoscalers and pods are listed each time unless given. Without
    `engines` no pod is asked what it serves, and without `hub` nobody asks about models; nor does
    an operator that looks at everything once, which would not be there for the answer.
    `own_image` is the image that this process runs from, where it is known.
    """
    queue: WorkQueue[ObjectKey] = WorkQueue(
        clock=clock, chance=chance, longest=MAX_BACKOFF, meter=metrics
    )
    metrics.watch_depth(lambda: float(len(queue)))
    recorder = EventRecorder(
        post_event,
        clock=clock,
        reporter=REPORTER,
        instance=instance,
        count=lambda outcome: metrics.events.labels(outcome).inc(),
        busy=lambda: not queue.idle,
        routine=ROUTINE_EVENTS,
    )
    statuses = DeferredStatusWriter(
        DirectStatusWriter(client),
        clock=clock,
        busy=lambda: not queue.idle,
        again=queue.add_after,
    )
    monitors = build_monitors(
        client,
        clock,
        lambda namespace, name: queue.add(ObjectKey(namespace=namespace, name=name)),
        chance=chance,
        engines=None if settings.once else engines,
        list_pods=list_pods,
        hub=hub if settings.model_heads and not settings.once else None,
        hubs=settings.model_hubs,
    )
    if reconciler is None:
        reconciler = ServiceReconciler(
            client,
            clock=clock,
            key=key,
            gateway=settings.gateway,
            metrics=metric_source,
            status_writer=statuses,
            autoscalers=autoscalers,
            monitors=monitors,
            downloader=settings.downloader_image or own_image,
            prometheus=settings.prometheus,
        )
    controller = OperatorController(
        services=services,
        reconciler=reconciler,
        recorder=recorder,
        queue=queue,
        clock=clock,
        metrics=metrics,
        settings=settings,
        monitors=monitors,
        latest=statuses.latest,
    )
    return OperatorComponents(
        controller=controller, monitors=monitors, recorder=recorder, statuses=statuses
    )
