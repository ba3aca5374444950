"""Runs the GitOps controller, and takes it apart in order.

One process: the control plane's HTTP server over the store, and the controller beside it in the
same loop. A signal ends it: passes under way finish, notices and events in line go out, the lease
is given back, requests end, the store is closed. Losing the lease ends the process at once, as
another may act already. The command line calls `run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from typing import Any

from holdfast.adapters.kubernetes.lease import LeaderElection, find_lease_namespace
from holdfast.adapters.render.program import can_confine
from holdfast.apps.gitops.settings import DAY, GitopsSettings
from holdfast.apps.gitops.wiring import GitopsComponents, build_components
from holdfast.apps.server import logs
from holdfast.apps.server.config import ServerConfig
from holdfast.apps.server.main import Server
from holdfast.apps.server.services import Services
from holdfast.core.errors import HoldfastError
from holdfast.version import __version__

_FLUSH_SECONDS = 2.0
_FIRST_PRUNE_DELAY = 60.0
_STANDBY = "Another controller leads; this one waits for its turn."
_STARTING = "Applications are being read."


def run_gitops(settings: GitopsSettings) -> None:
    """Run until a signal comes. Raises our errors when it cannot work or lost its lease."""
    logs.configure(form=settings.log_format, level=settings.log_level)
    # What Secrets say is in its memory, and in that of its children: a crash leaves no file of it.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.set_threshold(20_000, 20, 50)  # objects of the API are many, short-lived and free of cycles
    config = ServerConfig(
        db=settings.db,
        host=settings.host,
        port=settings.port,
        run=False,
        accept_rollback=settings.accept_rollback,
        log_format=settings.log_format,
        log_level=settings.log_level,
        on_ready=settings.on_ready,
    )
    Server(config, beside=GitopsCompanion(settings).beside).run()


async def _log_confinement(settings: GitopsSettings) -> None:
    """Say aloud when programs that read strangers' files keep the network, or cannot be run."""
    if await can_confine():
        return
    if settings.unconfined:
        logs.event(
            "renderer-unconfined",
            level=logging.WARNING,
            why="kustomize and sops run with this process's network, as "
            "--allow-unconfined-renderer says; whoever may commit may reach what it reaches",
        )
        return
    logs.event(
        "renderer-refused",
        level=logging.ERROR,
        why="the network cannot be taken away from a process here, so neither kustomize nor sops "
        "is started; run on Linux with system call filters, or see --allow-unconfined-renderer",
    )


class GitopsCompanion:
    """One controller, for as long as its server runs."""

    def __init__(self, settings: GitopsSettings) -> None:
        self._settings = settings
        self._identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_" + (
            secrets.token_hex(4)
        )
        self._tasks: list[asyncio.Future[Any]] = []  # Any: what they return does not matter

    @contextlib.asynccontextmanager
    async def beside(self, services: Services, end: Callable[[], None]) -> AsyncIterator[None]:
        """Run beside a server; see `apps.server.main.Beside`."""
        async with contextlib.AsyncExitStack() as stack:
            machine = await build_components(stack, services, self._settings, self._identity)
            services.waiting = _STARTING
            stack.push_async_callback(self._end_tasks)
            main = asyncio.ensure_future(self._run(machine, services))

            def ended(task: asyncio.Future[None]) -> None:
                if not services.closing.is_set():
                    end()

            main.add_done_callback(ended)
            try:
                yield
            finally:
                services.closing.set()
                await asyncio.wait({main})
            main.result()

    async def _run(self, machine: GitopsComponents, services: Services) -> None:
        applications, settings = machine.applications, self._settings
        logs.event(
            "started", version=__version__, identity=self._identity, cluster=machine.config.server
        )
        await _log_confinement(settings)
        self._start(applications.run())
        if not await self._wait_for_applications(machine, services):
            return
        logs.event("synced", applications=len(applications.ids()))
        leading = machine.metrics.leader.labels(settings.lease_name)
        election = LeaderElection(
            machine.lease,
            namespace=await find_lease_namespace(
                machine.lease,
                machine.config,
                name=settings.lease_name,
                chosen=settings.lease_namespace,
            ),
            name=settings.lease_name,
            identity=self._identity,
            timing=settings.lease_timing,
        )
        leading.set_function(lambda: float(election.leads))
        machine.work.may_write = lambda: election.leads
        services.waiting = _STANDBY
        if settings.elect:
            logs.event("waiting-for-lease", lease=settings.lease_name)
        lead = election.run if settings.elect else election.run_without
        elected = asyncio.ensure_future(lead(lambda: self._lead(machine, services)))
        closing = asyncio.ensure_future(services.closing.wait())
        await asyncio.wait({elected, closing}, return_when=asyncio.FIRST_COMPLETED)
        closing.cancel()
        if services.waiting:
            elected.cancel()  # still waiting for its turn
        with contextlib.suppress(asyncio.CancelledError):
            await elected

    async def _wait_for_applications(self, machine: GitopsComponents, services: Services) -> bool:
        """Wait until all Applications are known; False when the server stops before that."""
        task = asyncio.ensure_future(machine.applications.ready(self._settings.sync_within))
        closing = asyncio.ensure_future(services.closing.wait())
        await asyncio.wait({task, closing}, return_when=asyncio.FIRST_COMPLETED)
        closing.cancel()
        if not task.done():
            task.cancel()
            return False
        task.result()
        return True

    async def _lead(self, machine: GitopsComponents, services: Services) -> None:
        """Work for as long as we may; the last word is said before we leave."""
        notifier, recorder = machine.channels.notifier, machine.recorder
        for part in (machine.watching.run(), notifier.run(), recorder.run()):
            self._start(part)
        self._start(self._prune(machine, services))
        services.waiting = _STARTING
        try:
            await self._until_closing(machine, services)
            with contextlib.suppress(TimeoutError, HoldfastError):
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await recorder.flush()
                    await notifier.flush(_FLUSH_SECONDS)
        finally:
            # Also when the lease is lost: nothing may be done from here on.
            await self._end_tasks()

    async def _until_closing(self, machine: GitopsComponents, services: Services) -> None:
        """Make passes until the server is told to stop. A part that ends ends all."""

        def began() -> None:
            services.waiting = ""

        task = self._start(machine.controller.run(began))
        closing = asyncio.ensure_future(services.closing.wait())
        try:
            while not task.done():
                await asyncio.wait({closing, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
                for part in self._tasks:
                    if part.done() and part is not task:
                        part.result()
                        raise RuntimeError("a part of the controller ended")
                if closing.done() and not task.done():
                    machine.controller.stop()
                    await asyncio.wait({task})
            task.result()
        finally:
            closing.cancel()

    async def _prune(self, machine: GitopsComponents, services: Services) -> None:
        """Remove what is older than it has to be kept, once a day."""
        clock = services.clock
        await clock.sleep(_FIRST_PRUNE_DELAY)
        while True:
            try:
                before = clock.now() - timedelta(seconds=self._settings.keep)
                logs.event("pruned", rows=await machine.book.prune(before))
            except HoldfastError as error:
                logs.event("not-pruned", level=logging.WARNING, code=error.code, why=error.happened)
            await clock.sleep(DAY)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        return task

    async def _end_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception) and not isinstance(ended, HoldfastError):
                logs.event("part-failed", level=logging.ERROR, error=type(ended).__name__)
