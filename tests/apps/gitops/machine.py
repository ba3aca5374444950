"""A controller over clusters, ledgers and repositories in memory, in real time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.adapters.kubernetes.harness import eventually
from tests.support.gitops_world import (
    KEY,
    NAMESPACE,
    MemoryRepository,
    PlainRenders,
    config_ref,
    route,
)

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.memory.gitops_book import MemoryBook
from holdfast.adapters.memory.kube import MemoryKube
from holdfast.apps.gitops.applications import Found, Heard
from holdfast.apps.gitops.controller import Controller
from holdfast.apps.gitops.counting import CountingBook
from holdfast.apps.gitops.metrics import Metrics
from holdfast.apps.gitops.settings import Settings
from holdfast.apps.gitops.statuses import Statuses
from holdfast.apps.gitops.watching import Place
from holdfast.apps.server.metrics import Metrics as ServerMetrics
from holdfast.core.errors import InvalidSpec, Problem
from holdfast.core.gitops.application import (
    AppId,
    Application,
    ApplicationSpec,
    ApplicationStatus,
    DriftSpec,
    Remediation,
    SourceSpec,
    SyncSpec,
)
from holdfast.core.gitops.codify import Codified
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.notice import Notice
from holdfast.core.gitops.standing import Seen
from holdfast.reconcile.gitops.apply import Applier
from holdfast.reconcile.gitops.follow import Follower
from holdfast.reconcile.gitops.following import Following
from holdfast.reconcile.gitops.heal import Healer
from holdfast.reconcile.gitops.ledger import CONTROLLER
from holdfast.reconcile.gitops.looking import Looking
from holdfast.reconcile.gitops.orphans import Orphans
from holdfast.reconcile.gitops.ports import Forge
from holdfast.reconcile.gitops.pulls import Aside, Pulls
from holdfast.reconcile.gitops.reconciler import Claim, Parts, Poll, Reconciler
from holdfast.reconcile.gitops.result import Note
from holdfast.reconcile.gitops.survey import Surveyor, nothing_around, pods_listed_by
from holdfast.reconcile.gitops.sync import Sync
from holdfast.reconcile.gitops.theirs import Theirs
from holdfast.reconcile.keeper import Keeper

HEAL = DriftSpec(routes=(route(Remediation.SELF_HEAL),))


class GivenApplications:
    """Applications that a test puts there; their statuses are kept beside them."""

    stored = True

    def __init__(self) -> None:
        self.held: dict[AppId, Found] = {}
        self._heard: list[Heard] = []

    def get(self, id: AppId) -> Found | None:
        return self.held.get(id)

    def ids(self) -> list[AppId]:
        return list(self.held)

    def listen(self, heard: Heard) -> None:
        self._heard.append(heard)

    async def ready(self, within: float) -> None:
        pass

    async def run(self) -> None:
        await asyncio.Event().wait()

    def put(self, application: Application) -> None:
        self.held[application.id] = Found(
            id=application.id, uid=application.uid, application=application, status={}
        )
        self._tell(application.id)

    def spoil(self, id: AppId) -> None:
        """Give an application a spec that is wrong."""
        wrong = InvalidSpec(problems=[Problem(field="source", reason="it is wrong.", fix="Mend.")])
        self.held[id] = replace(self.held[id], application=None, error=wrong, generation=2)
        self._tell(id)

    def remove(self, id: AppId) -> None:
        del self.held[id]
        self._tell(id)

    def _tell(self, id: AppId) -> None:
        for heard in self._heard:
            heard(id)


class KeptStatuses(Statuses):
    """Statuses that are written down instead of written."""

    def __init__(self, applications: GivenApplications) -> None:
        self.said: dict[AppId, ApplicationStatus] = {}
        self._applications = applications

    async def report(self, found: Found, status: ApplicationStatus) -> bool:
        news = self.said.get(found.id) != status
        self.said[found.id] = status
        return news


class Machine:
    """One controller and its surroundings."""

    def __init__(
        self,
        book: MemoryBook | None = None,
        kube: MemoryKube | None = None,
        *,
        drain_within: float = 20.0,
    ) -> None:
        self.clock = SystemClock()
        self.kube = kube or MemoryKube(clock=self.clock)
        self.memory = book or MemoryBook(self.clock)
        self.metrics = Metrics(ServerMetrics())
        self.book = CountingBook(self.memory, self.metrics, lambda application: "gitea")
        self.applications = GivenApplications()
        self.repositories: dict[AppId, MemoryRepository] = {}
        self.followed: dict[AppId, Following] = {}
        self.statuses = KeptStatuses(self.applications)
        self.notes: list[Note] = []
        self.prepared: list[AppId] = []
        self.needed: Collection[Place] = ()
        self.hub: Forge | None = None
        self.codified = 0
        """How often a file was edited for a pull request."""
        self.looks: list[object] = []
        """What each look was at: None for everything."""
        self.controller = Controller(
            applications=self.applications,
            followed=self.followed,
            book=self.book,
            reconciler=self._reconciler,
            follower=lambda: Follower(self, self.clock, lambda: 0.5),
            retain=self._retain,
            statuses=self.statuses,
            around=self,
            clock=self.clock,
            chance=lambda: 0.5,
            metrics=self.metrics,
            settings=Settings(db=Path("unused.db"), drain_within=drain_within),
        )
        self.applications.listen(self.controller.on_application)

    # The port `Sources`, with a repository for each application.

    async def repository(self, application: Application) -> MemoryRepository:
        return self.repositories[application.id]

    async def renders(self, application: Application) -> PlainRenders:
        return PlainRenders()

    async def decryptor(self, application: Application) -> None:
        return None

    async def forge(self, application: Application) -> Forge | None:
        return self.hub

    # What else hears of applications.

    async def prepare(self, application: Application) -> None:
        self.prepared.append(application.id)

    async def forget(self, id: AppId) -> None:
        pass

    def tell(self, found: Found, following: Following | None, note: Note) -> None:
        self.notes.append(note)

    def _retain(self, needed: Collection[Place]) -> None:
        self.needed = needed

    def _reconciler(self, claim: Claim, poll: Poll, aside: Aside) -> Reconciler:
        keeper = Keeper(self.kube, manager=CONTROLLER, key=KEY, clock=self.clock)
        surveyor = Surveyor(
            self.kube,
            keeper,
            around=nothing_around,
            pods=pods_listed_by(self.kube),
            theirs=Theirs(self.kube, self.clock),
            key=KEY,
        )
        looking = Looking(surveyor, Orphans(self.kube), self.clock)
        applier = Applier(self.kube, keeper, self.clock)
        made = Reconciler(
            Parts(
                looking=looking,
                healer=Healer(looking, applier, self.clock),
                sync=Sync(looking, applier, self.clock),
                pulls=Pulls(self, self._codify, aside),
                clock=self.clock,
                tell=_untold,
                key=KEY,
                claim=claim,
                poll=poll,
            )
        )
        inner = made.reconcile

        async def noted(following: Following, *, only: Collection[object] | None = None) -> object:
            self.looks.append(None if only is None else set(only))
            return await inner(following, only=only)  # type: ignore[arg-type]  # what we were given

        made.reconcile = noted  # type: ignore[method-assign,assignment]  # to see what is asked
        return made

    async def _codify(self, following: Following, drift: ObjectDrift, seen: Seen) -> Codified:
        self.codified += 1
        return Codified(files={"a.yaml": b""}, lines=(), layer="file", notes=())

    def declare(
        self,
        name: str,
        files: dict[str, str],
        *,
        drift: DriftSpec | None = HEAL,
        url: str = "",
        prune: bool = False,
    ) -> AppId:
        """Put an application and its repository there."""
        id = AppId(namespace="team", name=name)
        self.repositories[id] = MemoryRepository()
        self.repositories[id].commit(files)
        self.applications.put(
            Application(
                id=id,
                uid=f"uid-{name}",
                generation=1,
                spec=ApplicationSpec(
                    project="ml-platform",
                    source=SourceSpec(url=url or f"https://git.example.com/acme/{name}.git"),
                    namespace=NAMESPACE,
                    sync=SyncSpec(automatic=True, prune=prune or None),
                    drift=drift,
                ),
            )
        )
        return id

    def status(self, id: AppId) -> ApplicationStatus:
        return self.statuses.said.get(id) or ApplicationStatus()

    async def reaches(self, id: AppId, sync: str) -> None:
        await eventually(lambda: self.status(id).sync == sync, f"{id} to be {sync}")

    async def settled(self) -> None:
        """Wait until nothing is left to look at now."""
        await eventually(lambda: self.controller.queue.idle, "an empty queue")

    async def edit(self, name: str, value: str) -> None:
        """Change a ConfigMap, and let the controller hear of it as an informer would."""
        ref = config_ref(name)
        old = await self.kube.get(ref)
        new = self.kube.edit(ref, lambda item: item["data"].update(x=value))
        self.controller.on_object(old, new)

    async def value(self, name: str) -> object:
        live = await self.kube.get(config_ref(name))
        data = live.get("data") if live else None
        return data.get("x") if isinstance(data, dict) else None

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Run the controller until the block ends, and stop it in order."""
        task = asyncio.ensure_future(self.controller.run())
        try:
            await eventually(lambda: self.controller.working or task.done(), "it to work")
            yield
        finally:
            self.controller.stop()
            await task


async def _untold(application: Application, notice: Notice) -> None:
    pass
