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

from tests.support.service_world import StoryClock

from holdfast.adapters.memory.gitops_book import MemoryBook
from holdfast.adapters.memory.kube import MemoryKube
from holdfast.core.errors import NotFound
from holdfast.core.gitops.application import (
    AppId,
    Application,
    ApplicationSpec,
    DriftSpec,
    MatchSpec,
    PullKind,
    Remediation,
    RouteSpec,
    SourceSpec,
    SyncSpec,
)
from holdfast.core.gitops.codify import Codified
from holdfast.core.gitops.drift import ObjectDrift
from holdfast.core.gitops.notice import Notice
from holdfast.core.gitops.source import (
    Ancestry,
    Commit,
    Declared,
    Origin,
    Rendered,
    Renderer,
)
from holdfast.core.gitops.standing import Seen
from holdfast.core.objects import ObjectRef, ref_of
from holdfast.core.tree import Fields, digest
from holdfast.reconcile.gitops.apply import Applier
from holdfast.reconcile.gitops.desk import Desk
from holdfast.reconcile.gitops.follow import Follower
from holdfast.reconcile.gitops.following import Following, SyncRequest
from holdfast.reconcile.gitops.heal import Healer
from holdfast.reconcile.gitops.ledger import CONTROLLER, open_shelf
from holdfast.reconcile.gitops.looking import Looking
from holdfast.reconcile.gitops.orphans import Orphans
from holdfast.reconcile.gitops.ports import (
    Decryptor,
    Export,
    Forge,
    HumanCommits,
    NewPull,
    Pull,
    PullState,
    Push,
    SourceUnavailable,
)
from holdfast.reconcile.gitops.pulls import Pulls
from holdfast.reconcile.gitops.reconciler import Parts, Reconciler
from holdfast.reconcile.gitops.result import Result
from holdfast.reconcile.gitops.survey import Surveyor, nothing_around, pods_listed_by
from holdfast.reconcile.gitops.sync import Sync
from holdfast.reconcile.gitops.theirs import Theirs
from holdfast.reconcile.keeper import Keeper
from holdfast.reconcile.kube import KubeClient
from holdfast.wire.yaml import read_documents

KEY = b"k" * 32
NAMESPACE = "chat"
APP = AppId(namespace="team", name="shop")


@dataclass
class MemoryRepository:
    """Commits as mappings of files, in one line of history unless told otherwise."""

    commits: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    head_sha: str = ""
    ancestry: Ancestry | None = None
    down: str = ""
    """Why the remote does not answer."""
    branches: dict[str, Push] = field(default_factory=dict)
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
    async def export(self, commit: str) -> AsyncIterator[Export]:
        root = self.scratch / commit
        if not root.exists():
            for name, data in self.commits[commit].items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            root.mkdir(parents=True, exist_ok=True)
        yield Export(commit=commit, root=root)

    async def head(self, branch: str) -> str | None:
        return digest(branch) if branch in self.branches else None

    async def push(self, push: Push) -> str:
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
        self.pulls: dict[int, Pull] = {}
        self.comments: dict[int, list[str]] = {}

    async def find(self, branch: str) -> Pull | None:
        found = [pull for pull in self.pulls.values() if pull.branch == branch]
        found.sort(key=lambda pull: (pull.state is PullState.OPEN, pull.number))
        return found[-1] if found else None

    async def get(self, number: int) -> Pull:
        if number not in self.pulls:
            raise NotFound(f"There is no pull request {number}.")
        return self.pulls[number]

    async def past(self, branch: str) -> Sequence[Pull]:
        found = [pull for pull in self.pulls.values() if pull.branch == branch]
        return [pull for pull in reversed(found) if pull.state is not PullState.OPEN]

    async def open(self, new: NewPull) -> Pull:
        known = await self.find(new.branch)
        if known is not None and known.state is PullState.OPEN:
            return known
        number = len(self.pulls) + 1
        pull = Pull(
            number=number, url=f"https://git.example.com/pulls/{number}", state=PullState.OPEN,
            branch=new.branch, base=new.base, title=new.title, body=new.body, mergeable=True,
        )  # fmt: skip
        self.pulls[number] = pull
        return pull

    async def update(self, number: int, *, title: str, body: str) -> Pull:
        self.pulls[number] = replace(self.pulls[number], title=title, body=body)
        return self.pulls[number]

    async def comment(self, number: int, body: str) -> None:
        self.comments.setdefault(number, []).append(body)

    async def close(self, number: int, *, comment: str = "") -> Pull:
        if self.pulls[number].state is PullState.OPEN:
            if comment:
                await self.comment(number, comment)
            self.pulls[number] = replace(self.pulls[number], state=PullState.CLOSED)
        return self.pulls[number]

    async def aclose(self) -> None:
        pass


class PlainRenders:
    """Reads every YAML file of an export. The real renderers have suites of their own."""

    def __init__(self) -> None:
        self.refused: Exception | None = None
        self._made: dict[str, Rendered] = {}

    async def render(
        self, export: Export, path: str, *, renderer: Renderer, namespace: str
    ) -> Rendered:
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
                    Declared(
                        ref=ref_of(item), item=item,
                        origin=Origin(file=name, document=place, lines=document.lines),
                    )
                )  # fmt: skip
        made = Rendered(
            commit=export.commit, objects=tuple(objects), digest=digest([o.item for o in objects])
        )
        self._made[export.commit] = made
        return made

    def trail(self, export: Export, path: str, *, renderer: Renderer) -> None:
        """Files stand for themselves here."""


@dataclass
class MemorySources:
    """One repository and one forge for everybody."""

    repo: MemoryRepository
    plain: PlainRenders
    hub: MemoryForge | None

    async def repository(self, application: Application) -> MemoryRepository:
        return self.repo

    async def renders(self, application: Application) -> PlainRenders:
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
    pull: PullKind | None = None,
) -> RouteSpec:
    return RouteSpec(
        name=name or remediation.value, match=match, remediation=remediation, pull=pull
    )


class World:
    """One application and everything around it. Commit, edit, look."""

    def __init__(
        self,
        *routes: RouteSpec,
        sync: SyncSpec | None = None,
        drift: DriftSpec | None = None,
        client: KubeClient | None = None,
    ) -> None:
        self.clock = StoryClock()
        self.kube = MemoryKube(clock=self.clock)
        self.book = MemoryBook(self.clock)
        self.git = MemoryRepository()
        self.forge = MemoryForge()
        self.renders = PlainRenders()
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
        self.following: Following | None = None
        self.last: Result | None = None

    async def start(self) -> Following:
        """Begin as a controller does that knows nothing but the ledger."""
        sources = MemorySources(self.git, self.renders, self.forge)
        keeper = Keeper(self.client, manager=CONTROLLER, key=KEY, clock=self.clock)
        surveyor = Surveyor(
            self.client,
            keeper,
            around=nothing_around,
            pods=pods_listed_by(self.client),
            theirs=Theirs(self.client, self.clock),
            key=KEY,
        )
        looking = Looking(surveyor, Orphans(self.client), self.clock)
        applier = Applier(self.client, keeper, self.clock)
        self.looking, self.syncing = looking, Sync(looking, applier, self.clock)
        self.reconciler = Reconciler(
            Parts(
                looking=looking, healer=Healer(looking, applier, self.clock),
                sync=self.syncing,
                pulls=Pulls(sources, self.codify), clock=self.clock, tell=self.tell, key=KEY,
            )
        )  # fmt: skip
        self.following = Following(
            application=self.application,
            shelf=await open_shelf(self.book, self.application.id, self.clock),
            follower=Follower(sources, self.clock, lambda: 0.5),
        )
        return self.following

    async def tell(self, application: Application, notice: Notice) -> None:
        if notice.id not in {known.id for known in self.notices}:
            self.notices.append(notice)

    def desk(self) -> Desk:
        """Where people decide about this application."""
        assert self.following is not None
        return Desk(
            {self.application.id: self.following}, self.looking, self.syncing, self.clock,
            wake=lambda application: None, tell=self.tell,
        )  # fmt: skip

    async def codify(self, following: Following, drift: ObjectDrift, seen: Seen) -> Codified:
        """Stands in for the editor of files: the whole object as it is."""
        assert seen.declared is not None
        data = str(seen.live).encode()
        return Codified(files={seen.declared.origin.file: data}, lines=(), layer="file", notes=())

    async def look(self, only: Collection[ObjectRef] | None = None) -> Result:
        """Make one pass."""
        following = self.following or await self.start()
        following.application = self.application
        self.last = await self.reconciler.reconcile(following, only=only)
        if self.last.status is not None:
            self.application = replace(self.application, status=self.last.status)
        return self.last

    async def fetch_and_look(self) -> Result:
        """Make one pass that asks the repository first."""
        following = self.following or await self.start()
        following.follower.hasten()
        return await self.look()

    async def sync(self, **more: bool) -> Result:
        """Make one pass that a person asked for."""
        following = self.following or await self.start()
        following.request = SyncRequest(actor="maria", **more)
        return await self.look()

    def pass_time(self, seconds: float) -> None:
        self.clock.time += timedelta(seconds=seconds)

    async def live(self, name: str) -> Fields | None:
        return await self.kube.get(config_ref(name))

    async def data(self, name: str) -> object:
        live = await self.live(name)
        return live.get("data") if live else None

    @property
    def drifts(self) -> list[ObjectDrift]:
        assert self.following is not None
        return sorted(self.following.shelf.drifts.values(), key=lambda each: str(each.object))
