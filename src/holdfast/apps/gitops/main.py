"""Runs the GitOps controller, and takes it apart in order.

One process: the control plane's HTTP server over the store, and the controller beside it in the
same loop. A signal ends it: passes under way finish, notices and events in line go out, the lease
is given back, requests end, the store is closed. Losing the lease ends the process at once, as
another may act already. The command line calls `run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

from holdfast.adapters.render.program import can_confine
from holdfast.apps.gitops.settings import DAY, GitopsSettings
from holdfast.apps.gitops.wiring import GitopsComponents, build_components
from holdfast.apps.runtime.process import (
    BackgroundTasks,
    lead,
    process_identity,
    tune_garbage_collector,
    wait_unless_stopped,
)
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
    tune_garbage_collector()
    config = ServerConfig(
        db=settings.db,
        host=settings.host,
        port=settings.port,
        base_url=settings.base_url,
        cors_origins=settings.cors_origins,
        run=False,
        accept_rollback=settings.accept_rollback,
        people=settings.people,
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
        log_format=settings.log_format,
        log_level=settings.log_level,
        on_ready=settings.on_ready,
    )
    Server(config, companion=GitopsCompanion(settings).companion).run()


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
        self._identity = process_identity()
        self._tasks = BackgroundTasks(logs.event)

    @contextlib.asynccontextmanager
    async def companion(self, services: Services, end: Callable[[], None]) -> AsyncIterator[None]:
        """Run beside a server; see `apps.server.main.Beside`."""
        async with contextlib.AsyncExitStack() as stack:
            components = await build_components(stack, services, self._settings, self._identity)
            services.waiting = _STARTING
            stack.push_async_callback(self._tasks.cancel)
            main = asyncio.ensure_future(self._run(components, services))

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

    async def _run(self, components: GitopsComponents, services: Services) -> None:
        applications, settings = components.applications, self._settings
        logs.event(
            "started",
            version=__version__,
            identity=self._identity,
            cluster=components.config.server,
        )
        await _log_confinement(settings)
        self._tasks.start(applications.run())
        known = applications.ready(settings.sync_within)
        if not await wait_unless_stopped(known, services.closing):
            return
        logs.event("synced", applications=len(applications.ids()))
        services.waiting = _STANDBY
        turn = lead(
            lambda: self._work_as_leader(components, services),
            api=components.lease,
            config=components.config,
            settings=settings,
            identity=self._identity,
            guarded=components.work,
            gauge=components.metrics.leader,
            log=logs.event,
        )

        def end() -> bool:
            components.controller.workers.stop()
            return components.controller.workers.running

        await self._tasks.run(turn, stop=services.closing, end=end)

    async def _work_as_leader(self, components: GitopsComponents, services: Services) -> None:
        """Make passes for as long as we may; what is queued to be sent goes out before the end."""

        def began() -> None:
            services.waiting = ""

        notifier, recorder = components.channels.notifier, components.recorder
        for work in (components.watcher.run(), notifier.run(), recorder.run()):
            self._tasks.start(work)
        self._tasks.start(self._prune(components, services))
        services.waiting = _STARTING
        try:
            await components.controller.run(began)
            with contextlib.suppress(TimeoutError, HoldfastError):
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await recorder.flush()
                    await notifier.flush(_FLUSH_SECONDS)
        finally:
            # Also when the lease is lost: nothing may be done from here on.
            await self._tasks.cancel()

    async def _prune(self, components: GitopsComponents, services: Services) -> None:
        """Remove what is older than it has to be kept, once a day."""
        clock = services.clock
        await clock.sleep(_FIRST_PRUNE_DELAY)
        while True:
            try:
                before = clock.now() - timedelta(seconds=self._settings.keep)
                logs.event("pruned", rows=await components.ledger_store.prune(before))
            except HoldfastError as error:
                logs.event("not-pruned", level=logging.WARNING, code=error.code, why=error.happened)
            await clock.sleep(DAY)
