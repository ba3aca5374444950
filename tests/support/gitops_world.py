"""One application on a small cluster, for stories about a pass: Git is a mapping of files.

The cluster and the ledger are the in-memory ones, which the contract suites hold to the real
ones. Commits are numbered; a pull request is what was pushed.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
import weakref
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from tests.support.operator_world import ManualClock

from holdfast.adapters.memory.kube import MemoryKube
from holdfast.adapters.memory.ledger_store import MemoryLedgerStore
from holdfast.core.errors import NotFound
from holdfast.core.gitops.application import (
    Application,
    ApplicationId,
    ApplicationSpec,
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
from holdfast.reconcile.gitops.application_state import open_state
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
from holdfast.reconcile.gitops.reporting import ApplicationResult
from holdfast.reconcile.gitops.review import ReviewService
from holdfast.reconcile.gitops.source_poller import SourcePoller
from holdfast.reconcile.kube import KubeClient
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
    """One repository and one forge for everybody."""

    repo: MemoryRepository
    plain: PlainRenderer
    hub: MemoryForge | None

    async def repository(self, application: Application) -> MemoryRepository:
        return self.repo

    async def renders(self, application: Application) -> PlainRenderer:
        return self.plain

    async def decryptor(self, application: Application) -> Decryptor | None:
        return None

    async def forge(self, application: Application) -> Forge | None:
        return self.hub


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


class GitopsWorld:
    """One application and everything around it. Commit, edit, look."""

    def __init__(
        self,
        *routes: RouteSpec,
        sync: SyncSpec | None = None,
        drift: DriftSpec | None = None,
        client: KubeClient | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.kube = MemoryKube(clock=self.clock)
        self.ledger_store = MemoryLedgerStore(self.clock)
        self.git = MemoryRepository()
        self.forge = MemoryForge()
        self.renderer = PlainRenderer()
        self.notices: list[Notice] = []
        self.client = client or self.kube
        self.application = Application(
            id=APP,
            uid="app-uid",
            generation=1,
            spec=ApplicationSpec(
                project="ml-platform",
                source=SourceSpec(url="https://git.example.com/acme/deploy.git"),
                namespace=NAMESPACE,
                sync=sync or SyncSpec(automatic=True),
                drift=replace(drift or DriftSpec(), routes=routes or None),
            ),
        )
        self.context: ApplicationContext | None = None
        self.last_result: ApplicationResult | None = None

    async def start(self) -> ApplicationContext:
        """Begin as a controller does that knows nothing but the ledger."""
        sources = MemorySources(self.git, self.renderer, self.forge)
        self.reconciler = build_reconciler(
            self.client, sources, self.clock, key=KEY, send=self.tell, codify=self.codify
        )
        self.observer = self.reconciler.components.observer
        self.syncer = self.reconciler.components.sync
        self.context = ApplicationContext(
            application=self.application,
            state=await open_state(self.ledger_store, self.application.id, self.clock),
            poller=SourcePoller(sources, self.clock, lambda: 0.5),
        )
        return self.context

    async def tell(self, application: Application, notice: Notice) -> None:
        if notice.id not in {known.id for known in self.notices}:
            self.notices.append(notice)

    def review(self) -> ReviewService:
        """Where people decide about this application."""
        assert self.context is not None
        return ReviewService(
            {self.application.id: self.context}, self.observer, self.syncer, self.clock,
            wake=lambda application: None, send=self.tell,
        )  # fmt: skip

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
