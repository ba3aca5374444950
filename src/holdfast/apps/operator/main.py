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
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.kubeconfig import load_config
from holdfast.adapters.prometheus import PrometheusSource
from holdfast.apps.operator import logs
from holdfast.apps.operator.build import build_operator
from holdfast.apps.operator.controller import OperatorController
from holdfast.apps.operator.metrics import OperatorMetrics
from holdfast.apps.operator.settings import OperatorSettings
from holdfast.apps.operator.watches import (
    AUTOSCALERS,
    INFERENCE_SERVICES,
    OPTIONAL_KINDS,
    ROUTES,
    autoscalers_in,
    make_informers,
    make_pod_informers,
    pods_in,
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
from holdfast.reconcile.kube import KubeClient, ObjectRef
from holdfast.reconcile.service.observe import OPERATOR_MANAGER
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
        work.may_write = lambda: False
        client = CachedKubeClient(work, self._informers)
        engines, hub = EngineClient(address_rule=pod_address_problem), HubClient()
        stack.push_async_callback(engines.aclose)
        stack.push_async_callback(hub.aclose)
        operator = build_operator(
            client,
            settings=settings,
            services=self._informers_of(INFERENCE_SERVICES.kind),
            post_event=events.create,
            clock=clock,
            chance=random.random,
            key=secrets.token_bytes(32),
            metrics=metrics,
            instance=self._identity,
            autoscalers=autoscalers_in(self._informers_of(AUTOSCALERS.kind)),
            list_pods=pods_in(self._pods),
            engines=engines,
            hub=hub,
            metric_source=source,
            own_image=await find_own_image(work),
        )
        controller, recorder = operator.controller, operator.recorder
        self._watch(controller)
        for informer in (*self._informers, *self._pods):
            self._tasks.start(informer.run())
        self._tasks.start(recorder.run())
        self._tasks.start(operator.statuses.run())
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

        def end() -> bool:
            logs.event("stopping")
            controller.workers.stop()
            return controller.workers.running

        turn = lead(
            operator.work,
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

    def _watch(self, controller: OperatorController) -> None:
        for informer in self._pods:
            informer.add_handler(controller.on_pod)
        for informer in self._informers:
            kind = informer.scope.resource.kind
            if kind == INFERENCE_SERVICES.kind:
                informer.add_handler(controller.on_service)
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
