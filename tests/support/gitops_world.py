"""Applications on a small cluster: Git is a mapping of files, a pull request is what was pushed.

`GitopsWorld` makes passes over one application when a test says so, with a clock that the test
moves. `ControllerWorld` runs the controller over several, in real time. Both are wired by
`build_reconciler`. Cluster and ledger are the in-memory ones unless others are given, and the
contract suites hold those to the real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
import tempfile
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from tests.adapters.kubernetes.harness import eventually
from tests.support.memory_ledger import MemoryLedgerStore
from tests.support.operator_world import ManualClock

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.memory.kube import MemoryKube
from holdfast.apps.gitops.applications import (
    ApplicationStatusWriter,
    ObservedApplication,
    OnApplication,
)
from holdfast.apps.gitops.controller import GitopsController
from holdfast.apps.gitops.metrics import GitopsMetrics
from holdfast.apps.gitops.settings import GitopsSettings
from holdfast.apps.gitops.watches import WatchedKind
from holdfast.apps.server.gitops_events import ApplicationEvents
from holdfast.apps.server.live_events import EventHub
from holdfast.apps.server.metrics import ServerMetrics
from holdfast.core.errors import InvalidSpec, NotFound, Problem
from holdfast.core.gitops.application import (
    Application,
    ApplicationId,
    ApplicationSpec,
    ApplicationStatus,
    DriftSpec,
    MatchSpec,
    PullRequestKind,
    Remediation,
    RouteSpec,
    SourceSpec,
    SyncSpec,
)
from holdfast.core.gitops.codify import CodifyResult
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.notification import Notice
from holdfast.core.gitops.objects import ObservedObject
from holdfast.core.gitops.source import (
    Ancestry,
    Commit,
    DeclaredObject,
    Origin,
    RenderedSource,
    Renderer,
)
from holdfast.core.object_ref import ObjectRef, ref_of
from holdfast.core.tree import Fields, digest
from holdfast.reconcile.gitops.application_context import ApplicationContext, SyncRequest
from holdfast.reconcile.gitops.application_state import StateCommit, open_state
from holdfast.reconcile.gitops.build import build_reconciler
from holdfast.reconcile.gitops.ports import (
    BranchPush,
    Decryptor,
    Forge,
    HumanCommits,
    NewPullRequest,
    PullRequest,
    PullRequestState,
    SourceExport,
    SourceUnavailable,
)
from holdfast.reconcile.gitops.reporting import ApplicationEvent, ApplicationResult
from holdfast.reconcile.gitops.review import ReviewService
from holdfast.reconcile.gitops.source_poller import SourcePoller
from holdfast.reconcile.kube import KubeClient
from holdfast.reconcile.ports import Clock
from holdfast.wire.yaml import read_documents

KEY = b"k" * 32
NAMESPACE = "chat"
APP = ApplicationId(namespace="team", name="shop")


@dataclass
class MemoryRepository:
    """Commits as mappings of files, in one line of history unless told otherwise."""

    commits: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    head_sha: str = ""
    ancestry: Ancestry | None = None
    down: str = ""
    """Why the remote does not answer."""
    branches: dict[str, BranchPush] = field(default_factory=dict)
    human: set[str] = field(default_factory=set)
    """Branches that a person pushed to."""
    scratch: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="gitops-world-")))

    def __post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self.scratch, ignore_errors=True)

    def commit(self, files: Mapping[str, str]) -> str:
        """Make a new head."""
        return self.commit_bytes({name: text.encode() for name, text in files.items()})

    def commit_bytes(self, files: Mapping[str, bytes]) -> str:
        count = str(len(self.commits)).encode()
        content = count + repr(sorted(files.items())).encode()
        self.head_sha = hashlib.sha256(content).hexdigest()[:40]
        self.commits[self.head_sha] = dict(files)
        return self.head_sha

    @property
    def files(self) -> dict[str, str]:
        return {name: data.decode() for name, data in self.commits[self.head_sha].items()}

    async def fetch(self, revision: str, *, known: str | None, age: float = 0.0) -> Commit:
        if self.down:
            error = SourceUnavailable(self.down)
            error.unreachable = True
            raise error
        ancestry = Ancestry.FIRST if known is None else Ancestry.AHEAD
        if known == self.head_sha:
            ancestry = Ancestry.SAME
        elif self.ancestry is not None:
            ancestry = self.ancestry
        at = datetime.fromisoformat("2026-11-16T11:00:00+00:00")
        return Commit(sha=self.head_sha, at=at, author="maria", subject="change", ancestry=ancestry)

    @contextlib.asynccontextmanager
    async def export(self, commit: str) -> AsyncIterator[SourceExport]:
        root = self.scratch / commit
        if not root.exists():
            for name, data in self.commits[commit].items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            root.mkdir(parents=True, exist_ok=True)
        yield SourceExport(commit=commit, root=root)

    async def head(self, branch: str) -> str | None:
        return digest(branch) if branch in self.branches else None

    async def push(self, push: BranchPush) -> str:
        if push.branch in self.human:
            raise HumanCommits(f"{push.branch} has commits of others.")
        self.branches[push.branch] = push
        return digest([push.branch, push.base, sorted(map(str, push.files))])

    async def delete(self, branch: str) -> bool:
        if branch in self.human:
            raise HumanCommits(f"{branch} has commits of others.")
        return self.branches.pop(branch, None) is not None

    def merge(self, branch: str) -> str:
        """Take a branch into the head."""
        files = dict(self.commits[self.head_sha])
        for name, data in self.branches[branch].files.items():
            if data is None:
                files.pop(name, None)
            else:
                files[name] = data
        return self.commit_bytes(files)


class MemoryForge:
    """Pull requests in a dictionary."""

    name = "gitea"

    def __init__(self) -> None:
        self.pulls: dict[int, PullRequest] = {}
        self.comments: dict[int, list[str]] = {}

    async def find(self, branch: str) -> PullRequest | None:
        found = [pull for pull in self.pulls.values() if pull.branch == branch]
        found.sort(key=lambda pull: (pull.state is PullRequestState.OPEN, pull.number))
        return found[-1] if found else None

    async def get(self, number: int) -> PullRequest:
        if number not in self.pulls:
            raise NotFound(f"There is no pull request {number}.")
        return self.pulls[number]

    async def past(self, branch: str) -> Sequence[PullRequest]:
        found = [pull for pull in self.pulls.values() if pull.branch == branch]
        return [pull for pull in reversed(found) if pull.state is not PullRequestState.OPEN]

    async def open(self, new: NewPullRequest) -> PullRequest:
        known = await self.find(new.branch)
        if known is not None and known.state is PullRequestState.OPEN:
            return known
        number = len(self.pulls) + 1
        pull = PullRequest(
            number=number,
            url=f"https://git.example.com/pulls/{number}",
            state=PullRequestState.OPEN,
            branch=new.branch,
            base=new.base,
            title=new.title,
            body=new.body,
            mergeable=True,
        )
        self.pulls[number] = pull
        return pull

    async def update(self, number: int, *, title: str, body: str) -> PullRequest:
        self.pulls[number] = replace(self.pulls[number], title=title, body=body)
        return self.pulls[number]

    async def comment(self, number: int, body: str) -> None:
        self.comments.setdefault(number, []).append(body)

    async def close(self, number: int, *, comment: str = "") -> PullRequest:
        if self.pulls[number].state is PullRequestState.OPEN:
            if comment:
                await self.comment(number, comment)
            self.pulls[number] = replace(self.pulls[number], state=PullRequestState.CLOSED)
        return self.pulls[number]

    async def aclose(self) -> None:
        pass


class PlainRenderer:
    """Reads every YAML file of an export. The real renderers have suites of their own."""

    def __init__(self) -> None:
        self.refused: Exception | None = None
        self._made: dict[str, RenderedSource] = {}

    async def render(
        self, export: SourceExport, path: str, *, renderer: Renderer, namespace: str
    ) -> RenderedSource:
        if self.refused is not None:
            raise self.refused
        if export.commit in self._made:
            return self._made[export.commit]
        objects = []
        for file in sorted(export.root.rglob("*.yaml")):
            name = str(file.relative_to(export.root))
            if name.startswith("."):
                continue
            for place, document in enumerate(read_documents(file.read_bytes(), source=name)):
                assert isinstance(document.value, dict)
                item = document.value
                item["metadata"].setdefault("namespace", namespace)  # type: ignore[union-attr]
                objects.append(
                    DeclaredObject(
                        ref=ref_of(item),
                        item=item,
                        origin=Origin(file=name, document=place, lines=document.lines),
                    )
                )
        made = RenderedSource(
            commit=export.commit, objects=tuple(objects), digest=digest([o.item for o in objects])
        )
        self._made[export.commit] = made
        return made

    def trail(self, export: SourceExport, path: str, *, renderer: Renderer) -> None:
        """Files stand for themselves here."""


@dataclass
class MemorySources:
    """The repositories, the renderer and the forge of a world, as they are when asked for."""

    world: GitopsWorld

    async def repository(self, application: Application) -> MemoryRepository:
        return self.world.repository_of(application.id)

    async def renders(self, application: Application) -> PlainRenderer:
        return self.world.renderer

    async def decryptor(self, application: Application) -> Decryptor | None:
        return None

    async def forge(self, application: Application) -> Forge | None:
        return self.world.forge


def configmap(name: str, **data: str) -> str:
    """A small object to declare."""
    lines = "".join(f"  {key}: {value!r}\n" for key, value in data.items())
    head = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n"
    return f"{head}data:\n{lines}" if lines else head


def config_ref(name: str, namespace: str = NAMESPACE) -> ObjectRef:
    return ObjectRef(api_version="v1", kind="ConfigMap", namespace=namespace, name=name)


def route(
    remediation: Remediation,
    *,
    name: str = "",
    match: MatchSpec | None = None,
    pull: PullRequestKind | None = None,
) -> RouteSpec:
    return RouteSpec(
        name=name or remediation.value, match=match, remediation=remediation, pull=pull
    )


def application(
    id: ApplicationId,
    *,
    drift: DriftSpec | None,
    sync: SyncSpec | None = None,
    url: str = "https://git.example.com/acme/deploy.git",
) -> Application:
    """An Application that applies what is new by itself, unless `sync` says otherwise."""
    return Application(
        id=id,
        uid=f"uid-{id.name}",
        generation=1,
        spec=ApplicationSpec(
            project="ml-platform",
            source=SourceSpec(url=url),
            namespace=NAMESPACE,
            sync=sync or SyncSpec(automatic=True),
            drift=drift,
        ),
    )


class GitopsWorld:
    """One application and everything around it. Commit, edit, reconcile."""

    def __init__(
        self,
        *routes: RouteSpec,
        sync: SyncSpec | None = None,
        drift: DriftSpec | None = None,
        client: KubeClient | None = None,
        clock: Clock | None = None,
        kube: MemoryKube | None = None,
        ledger_store: MemoryLedgerStore | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.kube = kube or MemoryKube(clock=self.clock)
        self.ledger_store = ledger_store or MemoryLedgerStore(self.clock)
        self.git = MemoryRepository()
        self.forge: MemoryForge | None = MemoryForge()
        self.renderer = PlainRenderer()
        self.sources = MemorySources(self)
        self.notices: list[Notice] = []
        self.base_url = ""
        self.live_events: ApplicationEvents | None = None
        """The live stream of a server, where one is."""
        self.client = client or self.kube
        handling = replace(drift or DriftSpec(), routes=routes or None)
        self.application = application(APP, drift=handling, sync=sync)
        self.context: ApplicationContext | None = None
        self.last_result: ApplicationResult | None = None

    def repository_of(self, id: ApplicationId) -> MemoryRepository:
        return self.git

    async def start(self) -> ApplicationContext:
        """Begin as a controller does that knows nothing but the ledger."""
        self.reconciler = build_reconciler(
            self.client,
            self.sources,
            self.clock,
            key=KEY,
            send=self.send,
            codify=self.codify,
            base_url=self.base_url,
        )
        self.observer = self.reconciler.components.observer
        self.syncer = self.reconciler.components.sync
        self.context = ApplicationContext(
            application=self.application,
            state=await open_state(
                self.ledger_store, self.application.id, self.clock, self._on_commit
            ),
            poller=SourcePoller(self.sources, self.clock, lambda: 0.5),
        )
        return self.context

    def _on_commit(self, commit: StateCommit) -> None:
        if self.live_events is not None:
            self.live_events.on_commit(commit)

    async def send(self, application: Application, notice: Notice) -> None:
        if notice.id not in {known.id for known in self.notices}:
            self.notices.append(notice)

    def review(
        self,
        contexts: dict[ApplicationId, ApplicationContext] | None = None,
        wake: Callable[[ApplicationId], None] = lambda id: None,
    ) -> ReviewService:
        """Where people decide about this application, or about several."""
        if contexts is None:
            assert self.context is not None
            contexts = {self.application.id: self.context}
        return ReviewService(
            contexts,
            self.observer,
            self.syncer,
            self.clock,
            wake=wake,
            send=self.send,
            codify=self.codify,
            base_url=self.base_url,
        )

    async def codify(
        self, context: ApplicationContext, drift: ObjectDrift, seen: ObservedObject
    ) -> CodifyResult:
        """Stands in for the editor of files: the whole object as it is."""
        assert seen.declared is not None
        data = str(seen.live).encode()
        return CodifyResult(
            files={seen.declared.origin.file: data}, lines=(), layer="file", notes=()
        )

    async def reconcile(self, only: Collection[ObjectRef] | None = None) -> ApplicationResult:
        """Make one pass."""
        context = self.context or await self.start()
        context.application = self.application
        self.last_result = await self.reconciler.reconcile(context, only=only)
        if self.last_result.status is not None:
            if self.live_events is not None:
                self.live_events.on_status(
                    self.application, self.last_result.status, self.clock.now()
                )
            self.application = replace(self.application, status=self.last_result.status)
        return self.last_result

    async def fetch_and_reconcile(self) -> ApplicationResult:
        """Make one pass that asks the repository first."""
        context = self.context or await self.start()
        context.poller.hasten()
        return await self.reconcile()

    async def sync(self, **more: bool) -> ApplicationResult:
        """Make one pass that a person asked for."""
        context = self.context or await self.start()
        context.request = SyncRequest(actor="maria", **more)
        return await self.reconcile()

    def edit(self, name: str, value: str = "9", manager: str = "kubectl-edit") -> Fields:
        """Change a ConfigMap past Git."""
        change = {"x": value}
        return self.kube.edit(
            config_ref(name), lambda item: item["data"].update(change), manager=manager
        )

    def pass_time(self, seconds: float) -> None:
        self.clock.time += timedelta(seconds=seconds)

    async def live(self, name: str) -> Fields | None:
        return await self.kube.get(config_ref(name))

    async def data(self, name: str) -> object:
        live = await self.live(name)
        return live.get("data") if live else None

    @property
    def drifts(self) -> list[ObjectDrift]:
        assert self.context is not None
        return sorted(self.context.state.drifts.values(), key=lambda each: str(each.object))


HEAL = DriftSpec(routes=(route(Remediation.SELF_HEAL),))


class MemoryApplications(ApplicationStatusWriter):
    """Applications that a test puts there, and what was written of their status."""

    stored = True

    def __init__(self) -> None:
        self.observed: dict[ApplicationId, ObservedApplication] = {}
        self.statuses: dict[ApplicationId, ApplicationStatus] = {}
        self._listeners: list[OnApplication] = []

    def get(self, id: ApplicationId) -> ObservedApplication | None:
        return self.observed.get(id)

    def ids(self) -> list[ApplicationId]:
        return list(self.observed)

    def listen(self, heard: OnApplication) -> None:
        self._listeners.append(heard)

    async def report(self, found: ObservedApplication, status: ApplicationStatus) -> bool:
        changed = self.statuses.get(found.id) != status
        self.statuses[found.id] = status
        return changed

    def application_of(self, id: ApplicationId) -> Application:
        """An Application as it was put last."""
        known = self.observed[id].application
        assert known is not None
        return known

    def put(self, application: Application) -> None:
        self.observed[application.id] = ObservedApplication(
            id=application.id, uid=application.uid, application=application, status={}
        )
        self._notify(application.id)

    def spoil(self, id: ApplicationId) -> None:
        """Give an application a spec that is wrong."""
        wrong = InvalidSpec(problems=[Problem(field="source", reason="it is wrong.", fix="Mend.")])
        self.observed[id] = replace(self.observed[id], application=None, error=wrong, generation=2)
        self._notify(id)

    def remove(self, id: ApplicationId) -> None:
        del self.observed[id]
        self._notify(id)

    def _notify(self, id: ApplicationId) -> None:
        for heard in self._listeners:
            heard(id)


class ControllerWorld(GitopsWorld):
    """Several applications and the controller over them; it runs while the block does."""

    def __init__(
        self,
        ledger_store: MemoryLedgerStore | None = None,
        kube: MemoryKube | None = None,
        *,
        drain_within: float = 20.0,
    ) -> None:
        super().__init__(clock=SystemClock(), kube=kube, ledger_store=ledger_store)
        self.forge = None
        self.metrics = GitopsMetrics(ServerMetrics(), lambda id: "gitea")
        self.applications = MemoryApplications()
        self.repositories: dict[ApplicationId, MemoryRepository] = {}
        self.contexts: dict[ApplicationId, ApplicationContext] = {}
        self.events: list[ApplicationEvent] = []
        self.needed: Collection[WatchedKind] = ()
        self.codified = 0
        """How often a file was edited for a pull request."""
        self.observed: list[object] = []
        """What each pass observed: None for everything."""
        self.live_events = ApplicationEvents(EventHub())
        self.controller = GitopsController(
            client=self.kube,
            applications=self.applications,
            sources=self.sources,
            contexts=self.contexts,
            ledger_store=self.ledger_store,
            key=KEY,
            send=self.send,
            retain=self._retain,
            statuses=self.applications,
            listener=self,
            clock=self.clock,
            chance=lambda: 0.5,
            metrics=self.metrics,
            settings=GitopsSettings(db=Path("unused.db"), drain_within=drain_within),
            codify=self.codify,
            events=self.live_events,
        )
        self._record_passes()
        self.applications.listen(self.controller.on_application)

    def repository_of(self, id: ApplicationId) -> MemoryRepository:
        return self.repositories[id]

    # What else hears of applications.

    async def prepare(self, application: Application) -> None:
        pass

    async def forget(self, id: ApplicationId) -> None:
        pass

    def tell(
        self,
        found: ObservedApplication,
        context: ApplicationContext | None,
        note: ApplicationEvent,
    ) -> None:
        self.events.append(note)

    def _retain(self, needed: Collection[WatchedKind]) -> None:
        self.needed = needed

    def _record_passes(self) -> None:
        reconciler = self.controller.reconciler
        inner = reconciler.reconcile

        async def reconcile(
            context: ApplicationContext, *, only: Collection[ObjectRef] | None = None
        ) -> ApplicationResult:
            self.observed.append(None if only is None else set(only))
            return await inner(context, only=only)

        reconciler.reconcile = reconcile  # type: ignore[method-assign]  # to see what is asked

    async def codify(
        self, context: ApplicationContext, drift: ObjectDrift, seen: ObservedObject
    ) -> CodifyResult:
        self.codified += 1
        return await super().codify(context, drift, seen)

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
            application(
                id,
                drift=drift,
                sync=SyncSpec(automatic=True, prune=prune or None),
                url=url or f"https://git.example.com/acme/{name}.git",
            )
        )
        return id

    def status(self, id: ApplicationId) -> ApplicationStatus:
        return self.applications.statuses.get(id) or ApplicationStatus()

    async def wait_sync(self, id: ApplicationId, sync: str) -> None:
        await eventually(lambda: self.status(id).sync == sync, f"{id} to be {sync}")

    async def wait_event(self, reason: str) -> None:
        await eventually(lambda: reason in {each.reason for each in self.events}, reason)

    async def wait_idle(self) -> None:
        await eventually(lambda: self.controller.queue.idle, "an empty queue")

    async def edit_and_notify(self, name: str, value: str) -> None:
        """Change a ConfigMap, and let the controller hear of it as an informer would."""
        old = await self.live(name)
        self.controller.on_object(old, self.edit(name, value))

    async def __aenter__(self) -> Self:
        self._running = asyncio.ensure_future(self.controller.run())
        await eventually(
            lambda: self.controller.workers.running or self._running.done(), "it to work"
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.controller.workers.stop()
        await self._running
