"""Puts the running operator together, and takes it apart in order.

Copies first, then the lease, then work. A signal ends it: looks under way finish, the lease is
given back, events in line are written. Losing the lease ends the process at once, as another may
act already. The command line calls `run`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import uvloop

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.cached_client import CachedKubeClient
from holdfast.adapters.kubernetes.connection import KubeConnection
from holdfast.adapters.kubernetes.events import EventRecorder
from holdfast.adapters.kubernetes.informer import Informer
from holdfast.adapters.kubernetes.kubeconfig import ClusterConfig, load_config
from holdfast.adapters.kubernetes.lease import LeaderElection, find_lease_namespace
from holdfast.adapters.prometheus import PrometheusSource
from holdfast.apps.operator import logs, probes
from holdfast.apps.operator.controller import OperatorController
from holdfast.apps.operator.logs import log
from holdfast.apps.operator.metrics import OperatorMetrics
from holdfast.apps.operator.settings import OperatorSettings
from holdfast.apps.operator.status_writer import DeferredStatusWriter
from holdfast.apps.operator.watches import (
    AUTOSCALERS,
    INFERENCE_SERVICES,
    ROUTES,
    autoscalers_in,
    make_informers,
)
from holdfast.core.errors import HoldfastError, TargetUnavailable
from holdfast.core.quantity import format_seconds
from holdfast.reconcile.kube import KubeClient
from holdfast.reconcile.ports import MetricSource
from holdfast.reconcile.service.observe import OPERATOR_MANAGER
from holdfast.reconcile.service.reconciler import DirectStatusWriter, ServiceReconciler
from holdfast.reconcile.service.status import ROUTINE_REASONS
from holdfast.version import __version__

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FLUSH_TIMEOUT = 2.0
REPORTER = "holdfast.dev/operator"


def run(settings: OperatorSettings) -> int:
    """Run until a signal comes; returns the exit code. Raises our errors when it cannot work."""
    logs.configure(settings.log_format)
    gc.set_threshold(20_000, 20, 50)  # objects of the API are many, short-lived and free of cycles
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(Operator(settings).run())


class Operator:
    """One operator process."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._metrics = OperatorMetrics()
        self._identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_" + (
            secrets.token_hex(4)
        )
        self._stop = asyncio.Event()
        self._informers: tuple[Informer, ...] = ()
        self._tasks: list[asyncio.Future[Any]] = []  # Any: what they return does not matter

    async def run(self) -> int:
        """Run until a signal comes; returns the exit code."""
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, self._stop.set)
        config = load_config(self._settings.context, clock=self._clock)
        async with AsyncExitStack() as stack:
            apis = [KubeApi(self._connection(config), manager=OPERATOR_MANAGER) for _ in range(3)]
            for api in apis:
                stack.push_async_callback(api.aclose)
            stack.push_async_callback(self._end_tasks)
            return await self._run(stack, config, apis)

    async def _run(
        self, stack: AsyncExitStack, config: ClusterConfig, apis: Sequence[KubeApi]
    ) -> int:
        work, lease, telling = apis
        settings = self._settings
        self._informers = tuple(make_informers(work, settings))
        recorder = EventRecorder(
            telling.create, clock=self._clock, reporter=REPORTER, instance=self._identity,
            count=lambda outcome: self._metrics.events.labels(outcome).inc(),
            busy=lambda: not controller.queue.idle, routine=ROUTINE_REASONS,
        )  # fmt: skip
        work.may_write = lambda: False
        client = CachedKubeClient(work, self._informers)
        statuses = DeferredStatusWriter(
            DirectStatusWriter(client), clock=self._clock, busy=lambda: not controller.queue.idle,
            again=lambda key, seconds: controller.queue.add_after(key, seconds),
        )  # fmt: skip
        source = PrometheusSource(settings.prometheus) if settings.prometheus else None
        if source is not None:
            stack.push_async_callback(source.aclose)
        controller = self._controller(client, recorder, statuses, source)

        async def act() -> None:
            """Look at services for as long as we may; the last word is said before we leave."""
            await controller.run()
            await statuses.flush()

        for informer in self._informers:
            self._start(informer.run())
        self._start(recorder.run())
        self._start(statuses.run())
        self._start(probes.measure_lag(self._metrics))
        url = await stack.enter_async_context(
            probes.serve_probes(
                settings.metrics_address,
                metrics=self._metrics,
                alive=self._alive,
                ready=self._ready,
            )
        )
        log.info("started", extra={"version": __version__, "identity": self._identity,
                                   "cluster": config.server, "metrics": url})  # fmt: skip
        if not await self._unless_stopped(self._synced()):
            return 0
        log.info("synced", extra={"objects": sum(map(len, self._informers))})
        gc.freeze()  # what was loaded stays; the collector need not look at it again
        election = await self._election(lease, config)
        work.may_write = lambda: election.leads
        await self._lead(election, controller, act)
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_TIMEOUT):
                await recorder.flush()
        log.info("stopped")
        return 1 if settings.once and controller.failed else 0

    def _controller(
        self,
        client: KubeClient,
        recorder: EventRecorder,
        statuses: DeferredStatusWriter,
        source: MetricSource | None,
    ) -> OperatorController:
        settings = self._settings
        controller = OperatorController(
            services=self._following(INFERENCE_SERVICES.kind),
            client=client,
            reconciler=ServiceReconciler(
                client,
                clock=self._clock,
                key=secrets.token_bytes(32),
                gateway=settings.gateway,
                metrics=source,
                journal=statuses,
                autoscalers=autoscalers_in(self._following(AUTOSCALERS.kind)),
            ),
            recorder=recorder,
            clock=self._clock,
            chance=random.random,
            metrics=self._metrics,
            settings=settings,
            latest=statuses.latest,
        )
        for informer in self._informers:
            kind = informer.scope.resource.kind
            if kind == INFERENCE_SERVICES.kind:
                informer.add_handler(controller.on_service)
                informer.add_handler(self._metrics.watch_drift)
            elif kind == AUTOSCALERS.kind:
                informer.add_handler(controller.on_autoscaler)
            else:
                informer.add_handler(controller.on_child)
        for kind in {each.scope.resource.kind for each in self._informers}:
            followed = self._following(kind)
            self._metrics.watch_objects(kind, followed)
        return controller

    def _following(self, kind: str) -> tuple[Informer, ...]:
        return tuple(each for each in self._informers if each.scope.resource.kind == kind)

    def _connection(self, config: ClusterConfig) -> KubeConnection:
        agent = f"holdfast-operator/{__version__}"
        return KubeConnection(config, clock=self._clock, user_agent=agent)

    async def _election(self, api: KubeApi, config: ClusterConfig) -> LeaderElection:
        settings = self._settings
        place = await find_lease_namespace(
            api, config, name=settings.lease_name, chosen=settings.lease_namespace
        )
        return LeaderElection(
            api,
            namespace=place,
            name=settings.lease_name,
            identity=self._identity,
            timing=settings.lease_timing,
        )

    async def _lead(
        self,
        election: LeaderElection,
        controller: OperatorController,
        act: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Act when it is our turn. One look does not wait for a turn that may never come."""
        settings = self._settings
        gauge = self._metrics.leader.labels(settings.lease_name)
        gauge.set_function(lambda: float(election.leads))
        if settings.elect:
            log.info("waiting-for-lease", extra={"lease": settings.lease_name})
            await self._until_stopped(lambda: election.run(act, wait=not settings.once), controller)
        else:
            await self._until_stopped(lambda: election.run_without(act), controller)

    async def _until_stopped(
        self, work: Callable[[], Coroutine[Any, Any, None]], controller: OperatorController
    ) -> None:
        """Run the work to its end; a signal lets it end in order. A part that ends ends all."""
        task = self._start(work())
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            while not task.done():
                await asyncio.wait({stop, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
                self._check_parts(task)
                if stop.done() and not task.done():
                    log.info("stopping")
                    if not controller.working:
                        return  # still waiting for its turn
                    controller.stop()
                    await asyncio.wait({task})
            task.result()
        finally:
            stop.cancel()

    def _check_parts(self, main: asyncio.Future[Any]) -> None:
        for task in self._tasks:
            if task.done() and task is not main:
                task.result()
                raise RuntimeError("a part of the operator ended")

    async def _synced(self) -> None:
        """Wait until every copy is whole. A kind that may be missing is not waited for."""
        try:
            async with asyncio.timeout(self._settings.sync_within):
                while not self._ready():
                    await self._clock.sleep(0.02)
        except TimeoutError:
            late = [each for each in self._informers if not self._settled(each)]
            reasons = [each.error for each in late if each.error is not None]
            names = ", ".join(sorted({each.scope.resource.plural for each in late}))
            raise TargetUnavailable(
                f"{names} could not be listed in {format_seconds(self._settings.sync_within)}. "
                + (reasons[0].happened if reasons else "No answer came."),
                hint="Check that the CRDs are installed (holdfast install) and what the operator "
                "may read.",
            ) from None

    def _settled(self, informer: Informer) -> bool:
        if informer.has_synced:
            return True
        # Routes may be missing from a cluster, and without a gateway nothing depends on them.
        spare = informer.error is not None and self._settings.gateway is None
        return informer.scope.resource == ROUTES and (spare or not informer.served)

    def _ready(self) -> bool:
        return bool(self._informers) and all(map(self._settled, self._informers))

    def _alive(self) -> bool:
        return not any(task.done() for task in self._tasks)

    async def _unless_stopped(self, work: Awaitable[None]) -> bool:
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if task.done():
            task.result()
            return True
        task.cancel()
        return False

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        return task

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exception) and not isinstance(ended, HoldfastError):
                log.error("part-failed", extra={"error": type(ended).__name__})
