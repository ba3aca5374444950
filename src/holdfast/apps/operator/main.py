"""Puts the running operator together, and takes it apart in order.

Informers first, then the lease, then work. A signal ends it: passes under way finish, the lease is
given back, queued events are written. Losing the lease ends the process at once, as another may
act already. The command line calls `run`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import secrets
import signal
from contextlib import AsyncExitStack, suppress

import uvloop

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.engines import EngineClient, pod_address_problem
from holdfast.adapters.hub_heads import HubClient
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.cached_client import CachedKubeClient
from holdfast.adapters.kubernetes.connection import KubeConnection
from holdfast.adapters.kubernetes.events import EventRecorder
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.kubeconfig import load_config
from holdfast.adapters.kubernetes.objects import Object, ObjectKey, object_key
from holdfast.adapters.prometheus import PrometheusSource
from holdfast.apps.operator import logs
from holdfast.apps.operator.controller import OperatorController, make_queue
from holdfast.apps.operator.metrics import OperatorMetrics
from holdfast.apps.operator.settings import OperatorSettings
from holdfast.apps.operator.status_writer import DeferredStatusWriter
from holdfast.apps.operator.watches import (
    AUTOSCALERS,
    INFERENCE_SERVICES,
    OPTIONAL_KINDS,
    ROUTES,
    autoscalers_in,
    make_informers,
    make_pod_informers,
    pod_restarted,
    pods_in,
    service_of_pod,
)
from holdfast.apps.runtime.probes import measure_loop_lag, serve_probes
from holdfast.apps.runtime.process import (
    BackgroundTasks,
    lead,
    process_identity,
    tune_garbage_collector,
    wait_unless_stopped,
)
from holdfast.core.errors import HoldfastError, TargetUnavailable
from holdfast.core.ownership.canonical import value_at
from holdfast.core.quantity import format_seconds
from holdfast.core.service.facts import ROUTINE_EVENTS
from holdfast.reconcile.kube import KubeClient, ObjectRef
from holdfast.reconcile.ports import MetricSource
from holdfast.reconcile.service.drains import EndedPods
from holdfast.reconcile.service.flaps import FlapLog
from holdfast.reconcile.service.model_head import ModelHeadMonitor
from holdfast.reconcile.service.observe import OPERATOR_MANAGER
from holdfast.reconcile.service.reconciler import DirectStatusWriter, ServiceReconciler
from holdfast.reconcile.service.runtime import RuntimeMonitor
from holdfast.version import __version__

_FLUSH_TIMEOUT = 2.0
REPORTER = "holdfast.dev/operator"


def run(settings: OperatorSettings) -> int:
    """Run until a signal comes; returns the exit code. Raises our errors when it cannot work."""
    logs.configure(settings.log_format, settings.log_level)
    tune_garbage_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(Operator(settings).run())


async def find_own_image(client: KubeClient) -> str | None:
    """Give the image that this process runs from; None outside a pod, or where nobody says."""
    name, namespace = os.environ.get("POD_NAME"), os.environ.get("POD_NAMESPACE")
    if not name or not namespace:
        return None
    try:
        pod = await client.get(
            ObjectRef(api_version="v1", kind="Pod", namespace=namespace, name=name)
        )
    except HoldfastError:
        return None
    containers = value_at(pod or {}, ("spec", "containers"))
    found = containers[0] if isinstance(containers, list) and containers else None
    image = found.get("image") if isinstance(found, dict) else None
    return image if isinstance(image, str) else None


class Operator:
    """One operator process."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._metrics = OperatorMetrics()
        self._identity = process_identity()
        self._stop = asyncio.Event()
        self._informers: tuple[Informer, ...] = ()
        self._pods: tuple[Informer, ...] = ()
        self._tasks = BackgroundTasks(logs.event)

    async def run(self) -> int:
        """Run until a signal comes; returns the exit code."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._stop.set)
        async with AsyncExitStack() as stack:
            return await self._run(stack)

    async def _run(self, stack: AsyncExitStack) -> int:
        settings, clock, metrics = self._settings, self._clock, self._metrics
        config = load_config(settings.context, clock=clock)
        agent = f"holdfast-operator/{__version__}"
        apis = [
            KubeApi(KubeConnection(config, clock=clock, user_agent=agent), manager=OPERATOR_MANAGER)
            for _ in range(3)
        ]
        for api in apis:
            stack.push_async_callback(api.aclose)
        work, lease, events = apis
        source = PrometheusSource(settings.prometheus) if settings.prometheus else None
        if source is not None:
            stack.push_async_callback(source.aclose)
        stack.push_async_callback(self._tasks.cancel)
        self._informers = tuple(make_informers(work, settings))
        self._pods = tuple(make_pod_informers(work, settings))
        queue = make_queue(clock, random.random, metrics)
        recorder = EventRecorder(
            events.create,
            clock=clock,
            reporter=REPORTER,
            instance=self._identity,
            count=lambda outcome: metrics.events.labels(outcome).inc(),
            busy=lambda: not queue.idle,
            routine=ROUTINE_EVENTS,
        )
        work.may_write = lambda: False
        client = CachedKubeClient(work, self._informers)
        engines = EngineClient(address_rule=pod_address_problem)
        stack.push_async_callback(engines.aclose)
        runtime = RuntimeMonitor(
            engines,
            client,
            clock=clock,
            again=lambda service: queue.add(
                ObjectKey(namespace=service.namespace, name=service.name), urgent=True
            ),
            list_pods=pods_in(self._pods),
        )
        flaps = FlapLog(
            clock,
            again=lambda namespace, name: queue.add(ObjectKey(namespace=namespace, name=name)),
        )
        ended = EndedPods(
            again=lambda namespace, name: queue.add(ObjectKey(namespace=namespace, name=name)),
        )
        hub = HubClient()
        stack.push_async_callback(hub.aclose)
        heads = ModelHeadMonitor(
            hub,
            hubs=settings.model_hubs,
            clock=clock,
            random=random.random,
            again=lambda service: queue.add(
                ObjectKey(namespace=service.namespace, name=service.name)
            ),
        )
        statuses = DeferredStatusWriter(
            DirectStatusWriter(client),
            clock=clock,
            busy=lambda: not queue.idle,
            again=queue.add_after,
        )
        controller = OperatorController(
            services=self._informers_of(INFERENCE_SERVICES.kind),
            reconciler=self._reconciler(
                client, statuses, source, runtime, flaps, ended, heads, await find_own_image(work)
            ),
            recorder=recorder,
            queue=queue,
            clock=clock,
            metrics=metrics,
            settings=settings,
            latest=statuses.latest,
        )
        self._watch(controller, runtime, flaps, ended, heads)
        for informer in (*self._informers, *self._pods):
            self._tasks.start(informer.run())
        self._tasks.start(recorder.run())
        self._tasks.start(statuses.run())
        self._tasks.start(measure_loop_lag(metrics.lag.observe))
        url = await stack.enter_async_context(
            serve_probes(
                settings.metrics_address,
                registry=metrics.registry,
                alive=lambda: self._tasks.alive,
                ready=self._is_ready,
            )
        )
        logs.event(
            "started",
            version=__version__,
            identity=self._identity,
            cluster=config.server,
            metrics=url,
        )
        if not await wait_unless_stopped(self._wait_for_sync(), self._stop):
            return 0
        logs.event("synced", objects=sum(map(len, self._informers)))
        gc.freeze()  # what was loaded stays; the collector need not look at it again

        async def work_as_leader() -> None:
            asking = [
                asyncio.create_task(runtime.run(), name="runtime monitor"),
                asyncio.create_task(heads.run(), name="model head monitor"),
            ]
            try:
                await controller.run()
            finally:
                for task in asking:
                    task.cancel()
                await asyncio.gather(*asking, return_exceptions=True)
            await statuses.flush()

        def end() -> bool:
            logs.event("stopping")
            controller.workers.stop()
            return controller.workers.running

        turn = lead(
            work_as_leader,
            api=lease,
            config=config,
            settings=settings,
            identity=self._identity,
            guarded=work,
            gauge=metrics.leader,
            log=logs.event,
            wait=not settings.once,  # one pass does not wait for a turn that may never come
        )
        await self._tasks.run(turn, stop=self._stop, end=end)
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_TIMEOUT):
                await recorder.flush()
        logs.event("stopped")
        return 1 if settings.once and controller.failed else 0

    def _reconciler(
        self,
        client: CachedKubeClient,
        statuses: DeferredStatusWriter,
        metrics: MetricSource | None,
        runtime: RuntimeMonitor,
        flaps: FlapLog,
        ended: EndedPods,
        heads: ModelHeadMonitor,
        own_image: str | None,
    ) -> ServiceReconciler:
        once = self._settings.once
        return ServiceReconciler(
            client,
            clock=self._clock,
            key=secrets.token_bytes(32),
            gateway=self._settings.gateway,
            metrics=metrics,
            status_writer=statuses,
            autoscalers=autoscalers_in(self._informers_of(AUTOSCALERS.kind)),
            runtime=None if once else runtime,
            flaps=flaps,
            ended_pods=ended,
            model_heads=heads if self._settings.model_heads and not once else None,
            downloader=self._settings.downloader_image or own_image,
            prometheus=self._settings.prometheus,
        )

    def _watch(
        self,
        controller: OperatorController,
        runtime: RuntimeMonitor,
        flaps: FlapLog,
        ended: EndedPods,
        heads: ModelHeadMonitor,
    ) -> None:
        def on_pod(old: Object | None, new: Object | None) -> None:
            key = service_of_pod(new or old or {"metadata": {}})
            if key is None:
                return
            flaps.pod_changed(key.namespace, key.name, old, new)
            ended.pod_changed(key.namespace, key.name, old, new)
            if pod_restarted(old, new):
                runtime.pod_changed(key.namespace, key.name)

        def on_service(old: Object | None, new: Object | None) -> None:
            if new is None and old is not None:
                key = object_key(old)
                runtime.forget(key.namespace, key.name)
                flaps.forget(key.namespace, key.name)
                ended.forget(key.namespace, key.name)
                heads.forget(key.namespace, key.name)

        for informer in self._pods:
            informer.add_handler(on_pod)
        for informer in self._informers:
            kind = informer.scope.resource.kind
            if kind == INFERENCE_SERVICES.kind:
                informer.add_handler(controller.on_service)
                informer.add_handler(on_service)
                informer.add_handler(self._metrics.watch_drift)
            elif kind == AUTOSCALERS.kind:
                informer.add_handler(controller.on_autoscaler)
            else:
                informer.add_handler(controller.on_child)
            self._metrics.watch_objects(kind, self._informers_of(kind))

    def _informers_of(self, kind: str) -> tuple[Informer, ...]:
        return tuple(each for each in self._informers if each.scope.resource.kind == kind)

    async def _wait_for_sync(self) -> None:
        """Wait until every kind is listed. A kind that may be missing is not waited for."""
        try:
            async with asyncio.timeout(self._settings.sync_within):
                while not self._is_ready():
                    await self._clock.sleep(0.02)
        except TimeoutError:
            late = [each for each in self._informers if not self._has_settled(each)]
            reasons = [each.error for each in late if each.error is not None]
            names = ", ".join(sorted({each.scope.resource.plural for each in late}))
            raise TargetUnavailable(
                f"{names} could not be listed in {format_seconds(self._settings.sync_within)}. "
                + (reasons[0].happened if reasons else "No answer came."),
                hint="Check that the CRDs are installed (holdfast install) and what the operator "
                "may read.",
            ) from None

    def _has_settled(self, informer: Informer) -> bool:
        if informer.has_synced:
            return True
        if informer.scope.resource in OPTIONAL_KINDS:
            return informer.error is not None or not informer.served
        # Routes may be missing from a cluster, and without a gateway nothing depends on them.
        spare = informer.error is not None and self._settings.gateway is None
        return informer.scope.resource == ROUTES and (spare or not informer.served)

    def _is_ready(self) -> bool:
        return bool(self._informers) and all(map(self._has_settled, self._informers))
