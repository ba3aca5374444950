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
    PlainRenderer,
    config_ref,
    route,
)

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.memory.kube import MemoryKube
from holdfast.adapters.memory.ledger_store import MemoryLedgerStore
from holdfast.apps.gitops.applications import (
    ApplicationStatusWriter,
    ObservedApplication,
    OnApplication,
)
from holdfast.apps.gitops.controller import GitopsController
from holdfast.apps.gitops.metrics import GitopsMetrics, MeteredLedger
from holdfast.apps.gitops.settings import GitopsSettings
from holdfast.apps.gitops.watches import WatchedKind
from holdfast.apps.server.metrics import ServerMetrics as ServerMetrics
from holdfast.core.errors import InvalidSpec, Problem
from holdfast.core.gitops.application import (
    Application,
    ApplicationId,
    ApplicationSpec,
    ApplicationStatus,
    DriftSpec,
    Remediation,
    SourceSpec,
    SyncSpec,
)
from holdfast.core.gitops.codify import CodifyResult
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.notification import Notice
from holdfast.core.gitops.objects import ObservedObject
from holdfast.reconcile.gitops.application_context import ApplicationContext
from holdfast.reconcile.gitops.ports import Forge
from holdfast.reconcile.gitops.reporting import ApplicationEvent

HEAL = DriftSpec(routes=(route(Remediation.SELF_HEAL),))


class GivenApplications:
    """Applications that a test puts there; their statuses are kept beside them."""

    stored = True

    def __init__(self) -> None:
        self.held: dict[ApplicationId, ObservedApplication] = {}
        self._heard: list[OnApplication] = []

    def get(self, id: ApplicationId) -> ObservedApplication | None:
        return self.held.get(id)

    def ids(self) -> list[ApplicationId]:
        return list(self.held)

    def listen(self, heard: OnApplication) -> None:
        self._heard.append(heard)

    async def ready(self, within: float) -> None:
        pass

    async def run(self) -> None:
        await asyncio.Event().wait()

    def put(self, application: Application) -> None:
        self.held[application.id] = ObservedApplication(
            id=application.id, uid=application.uid, application=application, status={}
        )
        self._tell(application.id)

    def spoil(self, id: ApplicationId) -> None:
        """Give an application a spec that is wrong."""
        wrong = InvalidSpec(problems=[Problem(field="source", reason="it is wrong.", fix="Mend.")])
        self.held[id] = replace(self.held[id], application=None, error=wrong, generation=2)
        self._tell(id)

    def remove(self, id: ApplicationId) -> None:
        del self.held[id]
        self._tell(id)

    def _tell(self, id: ApplicationId) -> None:
        for heard in self._heard:
            heard(id)


class KeptStatuses(ApplicationStatusWriter):
    """Statuses that are written down instead of written."""

    def __init__(self, applications: GivenApplications) -> None:
        self.said: dict[ApplicationId, ApplicationStatus] = {}
        self._applications = applications

    async def report(self, found: ObservedApplication, status: ApplicationStatus) -> bool:
        news = self.said.get(found.id) != status
        self.said[found.id] = status
        return news


class Machine:
    """One controller and its surroundings."""

    def __init__(
        self,
        book: MemoryLedgerStore | None = None,
        kube: MemoryKube | None = None,
        *,
        drain_within: float = 20.0,
    ) -> None:
        self.clock = SystemClock()
        self.kube = kube or MemoryKube(clock=self.clock)
        self.memory = book or MemoryLedgerStore(self.clock)
        self.metrics = GitopsMetrics(ServerMetrics())
        self.ledger_store = MeteredLedger(self.memory, self.metrics, lambda application: "gitea")
        self.applications = GivenApplications()
        self.repositories: dict[ApplicationId, MemoryRepository] = {}
        self.contexts: dict[ApplicationId, ApplicationContext] = {}
        self.statuses = KeptStatuses(self.applications)
        self.notes: list[ApplicationEvent] = []
        self.prepared: list[ApplicationId] = []
        self.needed: Collection[WatchedKind] = ()
        self.hub: Forge | None = None
        self.codified = 0
        """How often a file was edited for a pull request."""
        self.looks: list[object] = []
        """What each look was at: None for everything."""
        self.controller = GitopsController(
            client=self.kube,
            applications=self.applications,
            sources=self,
            contexts=self.contexts,
            ledger_store=self.ledger_store,
            key=KEY,
            send=_untold,
            retain=self._retain,
            statuses=self.statuses,
            listener=self,
            clock=self.clock,
            chance=lambda: 0.5,
            metrics=self.metrics,
            settings=GitopsSettings(db=Path("unused.db"), drain_within=drain_within),
            codify=self._codify,
        )
        self._note_looks()
        self.applications.listen(self.controller.on_application)

    # The port `Sources`, with a repository for each application.

    async def repository(self, application: Application) -> MemoryRepository:
        return self.repositories[application.id]

    async def renders(self, application: Application) -> PlainRenderer:
        return PlainRenderer()

    async def decryptor(self, application: Application) -> None:
        return None

    async def forge(self, application: Application) -> Forge | None:
        return self.hub

    # What else hears of applications.

    async def prepare(self, application: Application) -> None:
        self.prepared.append(application.id)

    async def forget(self, id: ApplicationId) -> None:
        pass

    def tell(
        self,
        found: ObservedApplication,
        following: ApplicationContext | None,
        note: ApplicationEvent,
    ) -> None:
        self.notes.append(note)

    def _retain(self, needed: Collection[WatchedKind]) -> None:
        self.needed = needed

    def _note_looks(self) -> None:
        reconciler = self.controller.reconciler
        inner = reconciler.reconcile

        async def noted(
            context: ApplicationContext, *, only: Collection[object] | None = None
        ) -> object:
            self.looks.append(None if only is None else set(only))
            return await inner(context, only=only)  # type: ignore[arg-type]  # what we were given

        reconciler.reconcile = noted  # type: ignore[method-assign,assignment]  # to see what is asked

    async def _codify(
        self, following: ApplicationContext, drift: ObjectDrift, seen: ObservedObject
    ) -> CodifyResult:
        self.codified += 1
        return CodifyResult(files={"a.yaml": b""}, lines=(), layer="file", notes=())

    def declare(
        self,
        name: str,
        files: dict[str, str],
        *,
        drift: DriftSpec | None = HEAL,
        url: str = "",
        prune: bool = False,
    ) -> ApplicationId:
        """Put an application and its repository there."""
        id = ApplicationId(namespace="team", name=name)
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

    def status(self, id: ApplicationId) -> ApplicationStatus:
        return self.statuses.said.get(id) or ApplicationStatus()

    async def reaches(self, id: ApplicationId, sync: str) -> None:
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
            await eventually(lambda: self.controller.workers.running or task.done(), "it to work")
            yield
        finally:
            self.controller.workers.stop()
            await task


async def _untold(application: Application, notice: Notice) -> None:
    pass
