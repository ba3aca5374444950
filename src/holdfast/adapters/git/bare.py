"""One bare repository on disk, and what can be asked of it.

It has the whole history of what was fetched: whether a branch moved on, was set back or was
rewritten can only be told from history, and a commit that is here in full can be exported however
its remote fares. (A copy without old files would save space, but asks its remote for them at
the worst time.) A commit counts as here once a ref of ours names it, which Git writes only after
everything that belongs to it has arrived.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from holdfast.adapters.git.address import RepositoryAddress
from holdfast.adapters.git.command import MAX_OUTPUT, GitError, GitErrorKind, GitProgram
from holdfast.adapters.git.environment import GitEnvironment, offline_environment
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.gitops.source import Ancestry
from holdfast.core.redact import quote_text
from holdfast.core.text_style import escape_unprintable
from holdfast.reconcile.gitops.ports import BranchPush


@dataclass(frozen=True, slots=True, kw_only=True)
class GitLimits:
    """Bounds for each repository. What goes beyond fails with an error that names the bound."""

    list_timeout: float = 20.0
    """Seconds for the remote to say what its branches are at."""
    fetch_timeout: float = 60.0
    """Seconds for one fetch, and for one push."""
    local_timeout: float = 60.0
    """Seconds for anything that needs no remote."""
    mirror_bytes: int = 2 << 30
    """Size of one local copy, with its whole history."""
    files: int = 50_000
    """Files in one commit."""
    file_bytes: int = 32 << 20
    """Size of one file."""
    total_bytes: int = 1 << 30
    """Size of all files of one commit together."""
    idle_exports: int = 3
    """Exports of one repository that are kept though nobody holds them."""


DEFAULT_LIMITS = GitLimits()


FETCHED_REFS, TIP_REFS = "refs/holdfast/seen/", "refs/holdfast/tip/"
_MANY_PACKS, _MANY_LOOSE = 40, 25
"""When to tidy up: packs in all, and loose objects in one of 256 folders."""
_MAX_TEXT = 200
_MAX_FACTS = 1_000
"""Commits that something is remembered of."""
K = TypeVar("K")
V = TypeVar("V")
_LOCAL_ERRORS = frozenset(
    {GitErrorKind.TIMEOUT, GitErrorKind.TOO_LARGE, GitErrorKind.DISK_FULL, GitErrorKind.GIT_MISSING}
)
"""Failures of a command without a remote that do not speak against the copy."""
_AMBIGUOUS_ERRORS = frozenset({GitErrorKind.OTHER, GitErrorKind.CORRUPT})


class BareRepository:
    """One bare repository. Reads may run at any time, writes wait for each other."""

    def __init__(self, path: Path, *, git: GitProgram, home: Path, limits: GitLimits) -> None:
        self.path = path
        self.limits = limits
        self.write_lock = asyncio.Lock()
        self._git = git
        self._offline = offline_environment(home).with_variables(GIT_DIR=str(path))
        self._descriptions: dict[str, tuple[datetime, str, str]] = {}
        self._ancestries: dict[tuple[str, str], Ancestry] = {}
        self._complete: dict[str, bool] = {}
        """What was found out about commits, which does not change: many applications may follow
        one repository, and every question is a process."""

    async def init(self) -> None:
        """Make it, empty."""
        await self.run("init", "--quiet", "--bare", "--template=", "--initial-branch=none")

    async def run(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        limit: int = MAX_OUTPUT,
        ok_statuses: Sequence[int] = (0,),
    ) -> tuple[int, bytes]:
        """Run a command that needs no remote; anything unexpected means that this is damaged."""
        with _blame_copy():
            return await self._git.run(
                *arguments,
                environment=self._offline,
                deadline=self.limits.local_timeout,
                stdin=stdin,
                limit=limit,
                ok_statuses=ok_statuses,
            )

    async def stream(
        self, *arguments: str, stdin: bytes, on_chunk: Callable[[bytes], None]
    ) -> None:
        """Run a command that needs no remote, and have what it writes read in a thread."""
        with _blame_copy():
            await self._git.stream(
                *arguments,
                environment=self._offline,
                deadline=self.limits.local_timeout,
                stdin=stdin,
                on_chunk=on_chunk,
                in_thread=True,
            )

    async def has_commit(self, commit: str) -> bool:
        """True when a commit is here with everything that belongs to it."""
        if commit in self._complete:
            return True
        name = f"{FETCHED_REFS}{commit}^{{commit}}"
        status, _ = await self.run("rev-parse", "--verify", "--quiet", name, ok_statuses=(0, 1))
        if status == 0:
            _cache_fact(self._complete, commit, True)
        return status == 0

    async def fetch(
        self, address: RepositoryAddress, environment: GitEnvironment, source: str
    ) -> str:
        """Bring a ref or commit here from a remote, and return the commit that it is.

        Raises GitFailed; what was here before still is.
        """
        digest = hashlib.sha256(source.encode()).hexdigest()[:32]
        async with self.write_lock:
            await self._fetch(address, environment, f"+{source}:{TIP_REFS}{digest}")
            name = f"{TIP_REFS}{digest}^{{commit}}"
            status, out = await self.run(
                "rev-parse", "--verify", "--quiet", name, ok_statuses=(0, 1)
            )
            if status:
                raise GitError(GitErrorKind.NO_SUCH_REVISION, "it is no commit")
            commit = out.decode().strip()
            await self.run("update-ref", FETCHED_REFS + commit, commit)
            _cache_fact(self._complete, commit, True)
            await self._collect_garbage()
        return commit

    async def describe(self, commit: str) -> tuple[datetime, str, str]:
        """Return when a commit was made, and what it claims as its author and subject."""
        if commit in self._descriptions:
            return self._descriptions[commit]
        _, out = await self.run(
            "log",
            "-1",
            "--no-show-signature",
            "--no-notes",
            "--format=%ct%x00%an%x00%s",
            commit,
            "--",
            limit=16 << 20,
        )
        seconds, author, subject = out.decode("utf-8", "replace").rstrip("\n").split("\0", 2)
        at = datetime.fromtimestamp(0, UTC)
        with suppress(ValueError, OverflowError, OSError):  # a commit may claim any time
            at = datetime.fromtimestamp(int(seconds), UTC)
        found = at, escape_unprintable(author[:_MAX_TEXT]), escape_unprintable(subject[:_MAX_TEXT])
        _cache_fact(self._descriptions, commit, found)
        return found

    async def ancestry(self, commit: str, known: str) -> Ancestry:
        """Say how a commit stands to another than itself; both must be here."""
        if (commit, known) not in self._ancestries:
            found = await self._ancestry(commit, known)
            _cache_fact(self._ancestries, (commit, known), found)
        return self._ancestries[commit, known]

    def knows_ancestry(self, commit: str, known: str) -> bool:
        """True when it was found out before how two commits stand."""
        return (commit, known) in self._ancestries

    async def _ancestry(self, commit: str, known: str) -> Ancestry:
        if await self._is_descendant(commit, known):
            return Ancestry.AHEAD
        if await self._is_descendant(known, commit):
            return Ancestry.REWOUND
        status, _ = await self.run("merge-base", known, commit, ok_statuses=(0, 1))
        return Ancestry.UNRELATED if status else Ancestry.DIVERGED

    async def has_object(self, commit: str) -> bool:
        """True when a commit itself is here, by its own fetch or in another one's history."""
        _, out = await self.run(
            "cat-file", "--batch-check", stdin=f"{commit}^{{commit}}\n".encode()
        )
        return out.startswith(f"{commit} commit ".encode())

    async def push(
        self,
        address: RepositoryAddress,
        environment: GitEnvironment,
        *,
        branch: str,
        expected: str,
        commit: str,
    ) -> None:
        """Set a branch at a remote, if it still is where it was; an empty commit deletes it."""
        await self._git.run(
            "push",
            "--quiet",
            "--no-verify",
            f"--force-with-lease={branch}:{expected}",
            "--",
            address.url,
            f"{commit}:{branch}",
            environment=environment.with_variables(GIT_DIR=str(self.path)),
            deadline=self.limits.fetch_timeout,
        )

    async def _is_descendant(self, commit: str, older: str) -> bool:
        status, _ = await self.run("merge-base", "--is-ancestor", older, commit, ok_statuses=(0, 1))
        return status == 0

    async def _fetch(
        self, address: RepositoryAddress, environment: GitEnvironment, refspec: str
    ) -> None:
        running = asyncio.ensure_future(
            self._git.run(
                "fetch",
                "--quiet",
                "--no-tags",
                "--no-write-fetch-head",
                "--no-auto-maintenance",
                "--no-recurse-submodules",
                "--no-show-forced-updates",
                "--",
                address.url,
                refspec,
                environment=environment.with_variables(GIT_DIR=str(self.path)),
                deadline=self.limits.fetch_timeout,
            )
        )
        try:
            done = False
            while not done:  # Git has no bound of its own for what it fetches
                done = bool((await asyncio.wait([running], timeout=0.25))[0])
                if await asyncio.to_thread(directory_size, self.path) > self.limits.mirror_bytes:
                    raise GitError(
                        GitErrorKind.TOO_LARGE, f"it passed {self.limits.mirror_bytes} bytes"
                    )
            running.result()
        except GitError as failed:
            # The remote has just answered, so what it cannot be blamed for is ours.
            if failed.kind in _AMBIGUOUS_ERRORS or str(self.path) in failed.output:
                raise GitError(GitErrorKind.CORRUPT, failed.output) from failed
            raise
        finally:
            running.cancel()
            await asyncio.wait([running])
            if running.cancelled() or running.exception():
                await asyncio.to_thread(self._remove_partial_files)

    def _remove_partial_files(self) -> None:
        for partial in (self.path / "objects").glob("*/tmp_*"):
            partial.unlink(missing_ok=True)

    async def _collect_garbage(self) -> None:
        objects = self.path / "objects"
        packs = len(list((objects / "pack").glob("*.pack")))
        loose = len(list((objects / "17").glob("*")))  # Git's own way of guessing
        if packs > _MANY_PACKS or loose > _MANY_LOOSE:
            with suppress(GitError):  # it is only slower without
                await self.run("gc", "--quiet")


@contextmanager
def _blame_copy() -> Iterator[None]:
    """Take whatever fails without a remote, and unexpectedly, for a damaged copy."""
    try:
        yield
    except GitError as failed:
        if failed.kind in _LOCAL_ERRORS:
            raise
        raise GitError(GitErrorKind.CORRUPT, failed.output) from failed


def _cache_fact(facts: dict[K, V], name: K, found: V) -> None:
    if len(facts) >= _MAX_FACTS:
        facts.clear()
    facts[name] = found


def directory_size(folder: Path) -> int:
    """Add up the sizes of all files below a folder, some of which may be going away."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


COMMITTER_NAME, COMMITTER_EMAIL = "Holdfast", "holdfast@users.noreply.holdfast.dev"
COMMIT_TRAILER = "Holdfast-Drift:"
_REGULAR_MODES = ("100644", "100755")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """What a commit stands on, and whose it is."""

    tree: str
    parents: tuple[str, ...]
    ours: bool
    """By its committer and its trailer. People who amend or rebase become the committer."""


async def read_commit(bare: BareRepository, commit: str) -> CommitInfo:
    """Read a commit that is here."""
    _, raw = await bare.run("cat-file", "commit", commit, limit=32 << 20)
    head, _, message = raw.decode("utf-8", "replace").partition("\n\n")
    lines = [line.partition(" ") for line in head.split("\n")]
    values = [(key, value) for key, _, value in lines if key]
    committer = next((value for key, value in values if key == "committer"), "")
    return CommitInfo(
        tree=next((value for key, value in values if key == "tree"), ""),
        parents=tuple(value for key, value in values if key == "parent"),
        ours=f"<{COMMITTER_EMAIL}>" in committer and _has_trailer(message),
    )


async def create_commit(bare: BareRepository, push: BranchPush) -> str:
    """Make the commit that a push asks for, in the copy alone, and return its id.

    Raises ValidationError for what is no regular file there, and when nothing would change.
    """
    modes = await _file_modes(bare, push)
    mark = f"refs/holdfast/push/{hashlib.sha256(push.branch.encode()).hexdigest()[:32]}"
    who = f"{COMMITTER_NAME} <{COMMITTER_EMAIL}> {int(push.at.timestamp())} +0000"
    message = push.message.encode()
    stream = bytearray(f"commit {mark}\nmark :1\nauthor {who}\ncommitter {who}\n".encode())
    stream += b"data %d\n%b\nfrom %b\n" % (len(message), message, push.base.encode())
    for path, content in sorted(push.files.items()):
        if content is None:
            stream += f"D {path}\n".encode()
        else:
            stream += f"M {modes.get(path, _REGULAR_MODES[0])} inline {path}\n".encode()
            stream += b"data %d\n%b\n" % (len(content), content)
    stream += b"get-mark :1\ndone\n"
    async with bare.write_lock:
        _, out = await bare.run(
            "fast-import", "--quiet", "--force", "--done", "--date-format=raw", stdin=bytes(stream)
        )
    commit = out.decode().strip()
    if (await read_commit(bare, commit)).tree == (await read_commit(bare, push.base)).tree:
        raise ValidationError(
            f"The commit for branch {push.branch} would change nothing.",
            hint="Compare with the base once more; it may have the change already.",
        )
    return commit


async def _file_modes(bare: BareRepository, push: BranchPush) -> dict[str, str]:
    """Return the modes of the files that are there; refuse what is no regular file."""
    steps = {path: path.split("/") for path in push.files}
    above = {"/".join(each[:end]) for each in steps.values() for end in range(1, len(each))}
    _, out = await bare.run("ls-tree", "-z", "-t", push.base, "--", *sorted({*above, *steps}))
    modes = {}
    problems = []
    for record in out.split(b"\0")[:-1]:
        about, _, name = record.partition(b"\t")
        mode, path = about.split()[0].decode(), name.decode("utf-8", "replace")
        if path in steps and mode not in _REGULAR_MODES:
            problems.append(_path_problem(path, "is a folder, link or submodule there."))
        elif path in above and mode != "040000":
            problems.append(_path_problem(path, "is not a folder there."))
        modes[path] = mode
    if problems:
        raise ValidationError(problems=problems)
    return modes


def check_push(push: BranchPush) -> None:
    """Refuse paths that no repository may have and a message without our trailer.

    Raises ValidationError, with everything that is wrong.
    """
    problems = []
    for path in push.files:
        steps = path.split("/")
        plain = path.isprintable() and not path.startswith('"') and "\\" not in path
        inside = all(step and step not in (".", "..") for step in steps)
        if not plain or not inside or any(step.lower().startswith(".git") for step in steps):
            problems.append(_path_problem(path, "is not a path that may be written."))
    if not push.files:
        problems.append(Problem(field="files", reason="there are none.", fix="Name at least one."))
    if not _has_trailer(push.message) or "\0" in push.message:
        problems.append(
            Problem(
                field="message",
                reason=f"has no line that begins with {COMMIT_TRAILER}",
                fix="It marks the commit as ours.",
            )
        )
    if problems:
        raise ValidationError(problems=problems)


def _path_problem(path: str, reason: str) -> Problem:
    return Problem(
        field=quote_text(path, 200), reason=reason, fix="Choose a regular file below the root."
    )


def _has_trailer(message: str) -> bool:
    return any(line.startswith(COMMIT_TRAILER) for line in message.splitlines())
