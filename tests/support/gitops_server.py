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

from tests.support.gitops_world import World
from tests.support.server import RunningServer, running_server

from holdfast.adapters.memory.gitops_book import MemoryBook
from holdfast.apps.server.services import HookAnswer, Services
from holdfast.core.errors import Conflict
from holdfast.core.gitops.application import AppId
from holdfast.reconcile.gitops.desk import Desk
from holdfast.reconcile.gitops.following import Following

PROJECT = "ml-platform"
T = TypeVar("T")


@dataclass(kw_only=True)
class Served:
    """A server with applications beside it."""

    server: RunningServer
    worlds: tuple[World, ...]
    loop: asyncio.AbstractEventLoop
    services: Services
    followed: dict[AppId, Following]
    """What the desk knows."""
    passes: bool = True
    """Whether a decision is followed by a pass."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return self.server.url

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def look(self, world: World | None = None) -> None:
        """Make one pass."""
        self.run((world or self.worlds[0]).look())

    def call(self, work: Callable[[], T]) -> T:
        """Do something that does not wait, in the server's loop."""

        async def later() -> T:
            return work()

        return self.run(later())

    def wake(self, world: World) -> None:
        if self.passes:
            task = self.loop.create_task(_woken(world))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)


async def _woken(world: World) -> None:
    with suppress(Conflict):  # the next pass reads the ledger anew
        await world.look()


def world_named(name: str, *, project: str = PROJECT, book: MemoryBook, world: World) -> World:
    """Make a world one of several on a server: its own name, a common ledger."""
    id = AppId(namespace="team", name=name)
    spec = replace(world.application.spec, project=project)
    world.application = replace(world.application, id=id, spec=spec)
    world.book = book
    return world


@contextmanager
def served(
    tmp_path: Path,
    *worlds: World,
    hook: Callable[..., Awaitable[HookAnswer]] | None = None,
    **config: Any,
) -> Iterator[Served]:
    """Serve these worlds until the block ends. They share the ledger of the first."""
    kept: list[Served] = []
    for world in worlds:
        world.book = worlds[0].book
        world.clock.time = datetime.now(UTC).replace(microsecond=0)

    @asynccontextmanager
    async def beside(services: Services, stop: Callable[[], None]) -> AsyncIterator[None]:
        followed: dict[AppId, Following] = {}
        for world in worlds:
            followed[world.application.id] = await world.start()
        first = worlds[0]
        by_id = {world.application.id: world for world in worlds}
        running = Served(
            server=RunningServer(url="", db=tmp_path), worlds=worlds,
            loop=asyncio.get_running_loop(), services=services, followed=followed,
        )  # fmt: skip
        services.book, services.hook = first.book, hook
        services.desk = Desk(
            followed, first.looking, first.syncing, first.clock,
            wake=lambda id: running.wake(by_id[id]), tell=first.tell,
        )  # fmt: skip
        kept.append(running)
        yield

    limits = {"failure_rate": 100_000.0, "recheck_time": 0.2, **config.pop("limits", {})}
    with running_server(tmp_path, run=False, beside=beside, limits=limits, **config) as server:
        running = kept[0]
        running.server = server
        yield running
