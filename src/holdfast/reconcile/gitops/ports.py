"""What the GitOps controller asks of repositories, renderers, forges, ledgers and channels.

The docstrings are the contract; `tests/contracts/` holds the adapters to them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from holdfast.core.errors import Conflict
from holdfast.core.errors import SourceUnavailable as SourceUnavailable
from holdfast.core.gitops.kustomize import LayerStack
from holdfast.core.gitops.notification import Notice
from holdfast.core.gitops.source import Commit, RenderedSource, Renderer
from holdfast.core.redact import Secret
from holdfast.core.tree import Fields


class HumanCommits(Conflict):
    """A branch of ours has commits of others, so it is not written any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitCredential:
    """How to reach a repository or forge. All parts are optional; none is ever printed."""

    token: Secret | None = None
    user: str = ""
    """Beside a token where the host wants one; `holdfast` otherwise."""
    ssh_key: Secret | None = None
    known_hosts: str = ""
    """Lines of a known_hosts file. Without the host's key in it, ssh is refused."""
    authority: str = ""
    """Certificates of an own authority, PEM."""


NO_GIT_CREDENTIAL = GitCredential()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceExport:
    """The files of one commit, read-only, for as long as the export is held."""

    commit: str
    root: Path
    left_out: Mapping[str, str] = field(default_factory=dict)
    """What the commit has and the export has not, by path from the root, with the reason as the
    end of a sentence: `is a link, which is never followed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPush:
    """One commit on a branch of ours."""

    branch: str
    base: str
    """The commit that it stands on."""
    files: Mapping[str, bytes | None]
    """Path from the root to the new content; None deletes."""
    message: str
    """With the trailers that mark it as ours."""
    at: datetime


class Repository(Protocol):
    """One remote repository and its local copy. Safe to use from several applications."""

    async def fetch(self, revision: str, *, known: str | None, age: float = 0.0) -> Commit:
        """Ask the remote for a branch, tag or commit, and say how it stands to a known commit.

        What the remote answered to another asker with the same credential, at most `age` seconds
        ago, will do.
        Raises SourceUnavailable when the remote does not answer, refuses, or has no such
        revision; ConfigurationError for a revision that is none. What was fetched before stays.
        """

    def export(self, commit: str) -> AbstractAsyncContextManager[SourceExport]:
        """Hold the files of a fetched commit. Concurrent holders share them.

        Only regular files; whatever else the commit has (links, submodules) is left out and
        raises ValidationError where a renderer asks for it. Raises SourceUnavailable when the
        commit is not here, ValidationError when it is over the limits.
        """

    async def head(self, branch: str) -> str | None:
        """Return the commit that a branch has at the remote now; None when there is no branch."""

    async def push(self, push: BranchPush) -> str:
        """Put one commit on a branch of ours at the remote, and return its id.

        An unchanged tree on the same base is not pushed again. What we pushed before is replaced;
        raises HumanCommits when the branch has a commit that is not ours, unless the base has it
        too, and Conflict when it moved while we pushed.
        """

    async def delete(self, branch: str) -> bool:
        """Delete a branch of ours. False when it was gone. Raises HumanCommits as `push` does."""


class Decryptor(Protocol):
    """Opens encrypted documents, in memory only."""

    async def decrypt(self, text: bytes, *, source: str, verify: bool = True) -> Fields:
        """Return a document in clear. Raises ValidationError, without its content, when not.

        `verify` checks the seal over the whole document, which only its original form passes.
        """

    async def set_value(self, text: bytes, path: Sequence[str | int], value: Secret) -> bytes:
        """Return an encrypted file with one value replaced, for the same recipients."""


class SourceRenderer(Protocol):
    """Turns exported files into objects, without network, shell or anything else of the host."""

    async def render(
        self, export: SourceExport, path: str, *, renderer: Renderer, namespace: str
    ) -> RenderedSource:
        """Return every object that a path declares; those without a namespace get the given one.

        Raises ValidationError, with file and line, for what cannot be read or is declared twice,
        and SourceUnavailable when the path is not there or a renderer fails or takes too long.
        No objects is an answer; what follows from it is decided elsewhere.
        """

    def trail(self, export: SourceExport, path: str, *, renderer: Renderer) -> LayerStack | None:
        """Return the layers that a path is made of; None where files stand for themselves."""


class PullRequestState(StrEnum):
    """What became of a pull request."""

    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """One pull request, as its forge knows it."""

    number: int
    url: str
    state: PullRequestState
    branch: str
    base: str
    title: str
    body: str
    head: str = ""
    """The commit of its branch, where the forge tells."""
    mergeable: bool | None = None
    """None while the forge does not know."""
    closed_by: str = ""
    """Who closed or merged it, where the forge tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPullRequest:
    """A pull request to be opened."""

    branch: str
    base: str
    title: str
    body: str
    labels: tuple[str, ...] = ()
    draft: bool = False


class Forge(Protocol):
    """Pull requests of one repository on GitHub, GitLab or Gitea.

    Every call raises TargetUnavailable when the outcome is unknown or it may be tried later
    (429, 5xx, time-out), AuthError or PermissionDenied when the credential does not do, and
    NotFound for a repository or number that is not there.
    """

    name: str
    """`github`, `gitlab` or `gitea`."""

    async def find(self, branch: str) -> PullRequest | None:
        """Return the newest pull request from a branch of this repository, open ones first."""

    async def get(self, number: int) -> PullRequest:
        """Return one by its number."""

    async def past(self, branch: str) -> Sequence[PullRequest]:
        """Return those from a branch of this repository that are merged or closed, newest first.

        Who closed them may be missing.
        """

    async def open(self, new: NewPullRequest) -> PullRequest:
        """Open a pull request, or return the open one that the branch has already."""

    async def update(self, number: int, *, title: str, body: str) -> PullRequest:
        """Change title and body. Does nothing when they are the same."""

    async def comment(self, number: int, body: str) -> None:
        """Say something under it, once: a comment with the same text is not repeated."""

    async def close(self, number: int, *, comment: str = "") -> PullRequest:
        """Close it without merging. A closed or merged one is returned as it is."""

    async def aclose(self) -> None:
        """Let go of the connection."""


class NotificationChannel(Protocol):
    """Somewhere notices go."""

    name: str

    async def send(self, notices: Sequence[Notice]) -> None:
        """Deliver one group of notices, at least once. Raises TargetUnavailable to be tried
        again, ConfigurationError when trying again cannot help."""


class RecordKind(StrEnum):
    """What the ledger keeps the present state of."""

    DRIFT = "drift"
    INVENTORY = "inventory"
    """What an application applied, one record for each object."""
    HOLD = "hold"
    PLAN = "plan"
    REVISION = "revision"
    """The last commit that an application fetched and applied."""
    PULL = "pull"
    NOTICE = "notice"
    """Told, or still to be told."""
    RULE = "rule"
    """An ignore rule that a person added for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """One thing whose state is kept, as JSON that was redacted before."""

    kind: RecordKind
    application: str
    """`namespace/name`; `/name` for one from a file."""
    key: str
    """Unique for its kind and application."""
    state: str
    """What it is selected by: `open` or `closed` for most kinds."""
    body: Fields
    version: int
    """Counts its writes, from 1."""
    changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMark:
    """How far the records of one kind and application have come, all told at one moment."""

    count: int
    turn: int
    """Of the last change that is still there; 0 where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerWrite:
    """A record to be written, if it still has the version that was seen."""

    kind: RecordKind
    application: str
    key: str
    seen: int
    """The version that was read; 0 for a record that was not there."""
    state: str = "open"
    body: Fields | None = None
    """None removes the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One line of the journal, which is only ever added to."""

    application: str
    subject: str
    """The key of the drift, hold or plan that it is about; empty for the application itself."""
    action: str
    """`detected`, `approved`, `applied`, `paused`, …"""
    actor: str
    """The token, tool or controller that did it."""
    summary: str
    detail: Fields
    at: datetime
    seq: int = 0
    """Given by the ledger, in the order of commits."""


class LedgerStore(Protocol):
    """The durable ledger of the GitOps controller. Several controllers may share one."""

    async def records(
        self,
        kind: RecordKind,
        *,
        application: str = "",
        key: str = "",
        state: str = "",
        limit: int = 0,
    ) -> Sequence[LedgerRecord]:
        """Return records, the last changed first. Empty conditions match all, as limit 0 does."""

    async def records_after(
        self, kind: RecordKind, *, application: str, after: str, limit: int
    ) -> Sequence[LedgerRecord]:
        """Return the next records of an application, to go through all of them in pages.

        They come by key, in the ledger's own order: one that is there all the while comes once,
        however often it changes meanwhile.
        """

    async def mark(self, kind: RecordKind, *, application: str) -> LedgerMark:
        """Say how many records of a kind an application has, and which was changed last.

        Who knows every record up to a turn, and finds this turn and as many of them, knows what
        is there: turns only grow, and a record takes a new one each time it is written.
        """

    async def records_since(
        self, kind: RecordKind, *, application: str, turn: int, limit: int
    ) -> Sequence[tuple[int, LedgerRecord]]:
        """Return the records that were changed after a turn, each with its own, the first first."""

    async def write(self, puts: Sequence[LedgerWrite], entries: Sequence[JournalEntry]) -> None:
        """Commit everything or nothing. Durable once it returns.

        Raises Conflict when a record does not have the version that was seen: nothing was
        written, read it anew. Raises TargetUnavailable when the outcome is unknown.
        """

    async def entries(
        self,
        *,
        application: str = "",
        subject: str = "",
        actions: Collection[str] = (),
        since: datetime | None = None,
        before: int = 0,
        limit: int = 100,
    ) -> Sequence[JournalEntry]:
        """Return lines of the journal, newest first; `before` is a seq to go on from.

        With `actions`, only lines of one of these.
        """

    async def prune(self, before: datetime) -> int:
        """Remove closed records and journal lines from before a time; says how many.

        Open records, and the lines about them, stay.
        """

    async def aclose(self) -> None:
        """Let go of the database."""
