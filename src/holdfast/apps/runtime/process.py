"""The life of a controller's process: what it is set to, its background tasks, its turn, its end.

Nothing is written before the lease is held, nor after it is lost: every write asks first.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client import Gauge

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.kubeconfig import ClusterConfig
from holdfast.adapters.kubernetes.lease import LeaderElection, LeaseTiming, find_lease_namespace
from holdfast.core.errors import HoldfastError
from holdfast.core.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """What may be chosen for both controllers."""

    context: str | None = None
    """Of the kubeconfig; None means its current one, or the pod's own cluster."""
    namespaces: tuple[str, ...] = ()
    """Which namespaces are reconciled; none means all of them."""
    workers: int = 1
    resync: float = 600.0
    """Seconds in which everything is looked at once, whether anything was heard of it or not."""
    elect: bool = True
    """False takes no lease, and still gives way to whoever holds it."""
    lease_name: str
    lease_namespace: str | None = None
    """None means the pod's namespace, and one fixed place where this is no pod."""
    lease_timing: LeaseTiming = field(default_factory=LeaseTiming)
    sync_within: float = 120.0
    reconcile_within: float = 60.0
    drain_within: float = 20.0
    log_format: str = "json"
    log_level: str = "info"


class LogEvent(Protocol):
    """Logs one event: a constant name, and what varies as fields."""

    def __call__(
        self, name: str, *, level: int = logging.INFO, exc: bool = False, **fields: Tree
    ) -> None:
        """Log it."""


def process_identity() -> str:
    """Name this process as nobody else is named, ever."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{secrets.token_hex(4)}"


def tune_garbage_collector() -> None:
    """Collect less often: objects of the API are many, short-lived and free of cycles."""
    gc.set_threshold(20_000, 20, 50)


async def wait_unless_stopped(work: Awaitable[None], stop: asyncio.Event) -> bool:
    """Wait for the work; False when the process is told to stop before it is done."""
    task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not task.done():
        task.cancel()
        return False
    task.result()
    return True


class BackgroundTasks:
    """What runs for as long as the process does. When one of them ends, so does the process."""

    def __init__(self, log: LogEvent) -> None:
        self._log = log
        self._tasks: list[asyncio.Future[Any]] = []  # Any: what they return does not matter
        self._ended = asyncio.Event()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start one."""
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        task.add_done_callback(lambda task: self._ended.set() if task in self._tasks else None)

    @property
    def alive(self) -> bool:
        """True while none of them has ended."""
        return not self._ended.is_set()

    async def run(
        self, work: Coroutine[Any, Any, None], *, stop: asyncio.Event, end: Callable[[], bool]
    ) -> None:
        """Run the work to its end, and raise when a background task ends before.

        When the process is told to stop, `end` asks the work to end in order. It says False when
        the work has not begun, so that it can be cancelled.
        """
        main = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(stop.wait())
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({main, stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not main.done() and stopping.done():
                if not end():
                    return
                await asyncio.wait({main, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not main.done():
                for task in self._tasks:
                    if task.done():
                        task.result()
                raise RuntimeError("a background task of the controller ended")
            main.result()
        finally:
            for task in (main, stopping, ended):
                task.cancel()
            await asyncio.gather(main, return_exceptions=True)

    async def cancel(self) -> None:
        """End all of them."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception) and not isinstance(result, HoldfastError):
                self._log("part-failed", level=logging.ERROR, error=type(result).__name__)


async def lead(
    work: Callable[[], Awaitable[None]],
    *,
    api: KubeApi,
    config: ClusterConfig,
    settings: ControllerSettings,
    identity: str,
    guarded: KubeApi,
    gauge: Gauge,
    log: LogEvent,
    wait: bool = True,
) -> None:
    """Do the work when it is our turn; `guarded` writes for as long as it is, and not longer.

    `api` is a connection of its own, so that no load delays a renewal. Without `wait`, raises
    LeaseHeld as soon as another is seen to renew the lease.
    """
    namespace = await find_lease_namespace(
        api, config, name=settings.lease_name, chosen=settings.lease_namespace
    )
    election = LeaderElection(
        api,
        namespace=namespace,
        name=settings.lease_name,
        identity=identity,
        timing=settings.lease_timing,
    )
    gauge.labels(settings.lease_name).set_function(lambda: float(election.leads))
    guarded.may_write = lambda: election.leads
    if settings.elect:
        log("waiting-for-lease", lease=settings.lease_name)
        await election.run(work, wait=wait)
    else:
        await election.run_without(work)
