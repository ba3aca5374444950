"""Applications behind the real server: worlds of `gitops_world` in the server's own loop.

    with served(tmp_path, shop) as running:
        running.pass_over(shop)
        httpx2.get(f"{running.url}/api/projects/ml-platform/gitops/applications", ...)

Every decision is followed by a pass, as the controller makes one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from tests.support.gitops_world import GitopsWorld
from tests.support.memory_ledger import MemoryLedgerStore
from tests.support.server import RunningServer, running_server

from holdfast.apps.server.gitops_events import ApplicationEvents
from holdfast.apps.server.live_events import EventHub
from holdfast.apps.server.services import Services, WebhookResponse
from holdfast.core.errors import Conflict
from holdfast.core.gitops.application import ApplicationId
from holdfast.reconcile.gitops.application_context import ApplicationContext

PROJECT = "ml-platform"
T = TypeVar("T")


@dataclass(kw_only=True)
class ServedApplications:
    """A server with applications beside it."""

    server: RunningServer
    worlds: tuple[GitopsWorld, ...]
    loop: asyncio.AbstractEventLoop
    services: Services
    followed: dict[ApplicationId, ApplicationContext]
    """What reviewers can decide about."""
    passes: bool = True
    """Whether a decision is followed by a pass."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return self.server.url

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def reconcile(self, world: GitopsWorld | None = None) -> None:
        """Make one pass."""
        self.run((world or self.worlds[0]).reconcile())

    def call(self, work: Callable[[], T]) -> T:
        """Do something that does not wait, in the server's loop."""

        async def later() -> T:
            return work()

        return self.run(later())

    def wake(self, world: GitopsWorld) -> None:
        if self.passes:
            task = self.loop.create_task(_reconcile_on_wake(world))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)


async def _reconcile_on_wake(world: GitopsWorld) -> None:
    with suppress(Conflict):  # the next pass reads the ledger anew
        await world.reconcile()


def rename_world(
    name: str, *, project: str = PROJECT, ledger: MemoryLedgerStore, world: GitopsWorld
) -> GitopsWorld:
    """Make a world one of several on a server: its own name, a common ledger."""
    id = ApplicationId(namespace="team", name=name)
    spec = replace(world.application.spec, project=project)
    world.application = replace(world.application, id=id, spec=spec)
    world.ledger_store = ledger
    return world


@contextmanager
def serve_applications(
    tmp_path: Path,
    *worlds: GitopsWorld,
    hook: Callable[..., Awaitable[WebhookResponse]] | None = None,
    **config: Any,
) -> Iterator[ServedApplications]:
    """Serve these worlds until the block ends. They share the ledger of the first."""
    kept: list[ServedApplications] = []
    for world in worlds:
        world.ledger_store = worlds[0].ledger_store
        world.clock.time = datetime.now(UTC).replace(microsecond=0)

    @asynccontextmanager
    async def companion(services: Services, stop: Callable[[], None]) -> AsyncIterator[None]:
        followed: dict[ApplicationId, ApplicationContext] = {}
        services.application_events = ApplicationEvents(EventHub(base_url=services.config.base_url))
        for world in worlds:
            world.live_events = services.application_events
            followed[world.application.id] = await world.start()
        first = worlds[0]
        by_id = {world.application.id: world for world in worlds}
        running = ServedApplications(
            server=RunningServer(url="", db=tmp_path),
            worlds=worlds,
            loop=asyncio.get_running_loop(),
            services=services,
            followed=followed,
        )
        services.ledger_store, services.webhook_handler = first.ledger_store, hook
        services.review_service = first.review(followed, lambda id: running.wake(by_id[id]))
        kept.append(running)
        yield

    limits = {
        "failure_rate": 100_000.0,
        "sign_in_rate": 100_000.0,
        "recheck_time": 0.2,
        **config.pop("limits", {}),
    }
    with running_server(
        tmp_path, run=False, companion=companion, limits=limits, **config
    ) as server:
        running = kept[0]
        running.server = server
        yield running
