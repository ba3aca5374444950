"""One remote repository for one credential: the port `Repository` over the git program."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.git.address import (
    RepositoryAddress,
    RevisionSpec,
    branch_ref,
    check_commit_id,
    parse_revision,
)
from holdfast.adapters.git.bare import (
    DEFAULT_LIMITS,
    BareRepository,
    CommitInfo,
    GitLimits,
    check_push,
    create_commit,
    directory_size,
    read_commit,
)
from holdfast.adapters.git.command import GitError, GitErrorKind, GitProgram, source_unavailable
from holdfast.adapters.git.environment import GitEnvironment, online_environment
from holdfast.adapters.git.export import remove_tree, write_files
from holdfast.adapters.git.mirror import Mirror
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    ConfigurationError,
    Conflict,
    HoldfastError,
    PermissionDenied,
)
from holdfast.core.gitops.pull_request_text import BRANCH_PREFIX
from holdfast.core.gitops.source import Ancestry, Commit
from holdfast.core.redact import quote_text
from holdfast.reconcile.gitops.ports import (
    NO_GIT_CREDENTIAL,
    BranchPush,
    GitCredential,
    HumanCommits,
    SourceExport,
)

_UNKNOWN_OUTCOME_ERRORS = frozenset(
    {
        GitErrorKind.LATE,
        GitErrorKind.CONNECTION,
        GitErrorKind.SERVER,
        GitErrorKind.OTHER,
        GitErrorKind.DAMAGED,
    }
)
"""After these a push may have arrived all the same."""


@dataclass(frozen=True, slots=True)
class _RemoteRef:
    """What to fetch, and the commit it is at, where the remote has said so."""

    source: str
    commit: str


class GitRepository:
    """One remote repository. Shares its copy with every other credential for the same address."""

    def __init__(
        self,
        copy: Mirror,
        credential: GitCredential,
        *,
        ssh: str,
        make_room: Callable[[Mirror], Awaitable[None]],
        pinned: tuple[str, ...] = (),
    ) -> None:
        self._copy = copy
        self._credential = credential
        self._ssh = ssh
        self._make_room = make_room
        self._pinned = pinned
        self._address = copy.address

    async def fetch(self, revision: str, *, known: str | None, age: float = 0.0) -> Commit:
        """See the port. The remote is asked also for a commit that is here already: what another
        credential fetched is not for everyone to know."""
        asked = parse_revision(revision)
        if known is not None:
            check_commit_id(known)
        with self._told(f"revision {quote_text(revision)}"):
            tip = await self._ask(asked, age)
            found = await self._copy.sound(lambda bare: self._read(bare, tip, known))
        if self._copy.grown:
            self._copy.grown = False
            await self._make_room(self._copy)
        return found

    @asynccontextmanager
    async def export(self, commit: str) -> AsyncIterator[SourceExport]:
        """See the port. A commit that is not here is asked for, by its id."""
        check_commit_id(commit)

        async def write(folder: Path) -> Mapping[str, str]:
            return await self._copy.sound(lambda bare: self._write(bare, commit, folder))

        with self._told(f"commit {commit}"):
            holding = self._copy.exports.hold(commit, write)
            export = await holding.__aenter__()
        try:
            yield export
        finally:
            await holding.__aexit__(None, None, None)

    async def head(self, branch: str) -> str | None:
        """See the port."""
        name = branch_ref(branch)
        with self._told(f"branch {quote_text(branch)}"):
            return (await self._listed(name)).get(name)

    async def push(self, push: BranchPush) -> str:
        """See the port. Also raises ValidationError for what no commit can be made of, and
        PermissionDenied when the remote declines the branch."""
        name = branch_ref(push.branch)
        check_commit_id(push.base)
        check_push(push)
        with self._told(f"branch {quote_text(push.branch)}"):
            return await self._copy.sound(lambda bare: self._push(bare, name, push))

    async def delete(self, branch: str) -> bool:
        """See the port. Also raises PermissionDenied when the remote declines."""
        name = branch_ref(branch)
        with self._told(f"branch {quote_text(branch)}"):
            return await self._copy.sound(lambda bare: self._delete(bare, name))

    async def _ask(self, asked: RevisionSpec, age: float) -> _RemoteRef:
        peeled = [f"{name}^{{}}" for name in asked.names]
        # Of a commit only: may we read this repository at all?
        names = ("HEAD",) if asked.commit else (*asked.names, *peeled)
        there = await self._copy.answers.get(
            self._credential, names, lambda: self._listed(*names), age=age
        )
        if asked.commit:
            return _RemoteRef(asked.commit, asked.commit)
        found = [name for name in asked.names if name in there]
        if not found:
            raise GitError(GitErrorKind.NO_REVISION)
        if len(found) > 1:
            raise GitError(
                GitErrorKind.NO_REVISION,
                "it is a branch and a tag; write refs/heads/… or refs/tags/… to say which",
            )
        return _RemoteRef(found[0], there.get(f"{found[0]}^{{}}", there[found[0]]))

    async def _listed(self, *names: str) -> dict[str, str]:
        """Return where refs are at the remote now; those that are not there are missing."""
        with self._online() as environment:
            _, out = await self._copy.git.run(
                "ls-remote", "--quiet", "--", self._address.url, *names,
                environment=environment,
                deadline=self._copy.limits.ask,
            )  # fmt: skip
        lines = (line.partition("\t") for line in out.decode("utf-8", "replace").splitlines())
        # Git matches names from their end, so it may have answered with more.
        found = {name: at for at, _, name in lines if name in names}
        if any(len(at) != 40 for at in found.values()):
            raise GitError(GitErrorKind.OTHER, "its commits have ids of another kind than SHA-1")
        return found

    async def _arrived(self, bare: BareRepository, tip: _RemoteRef) -> str:
        """Return the commit of a tip, which is then here."""
        if await bare.has(tip.commit):
            return tip.commit

        async def fetch() -> str:
            with self._online() as environment:
                return await bare.fetch(self._address, environment, tip.source)

        return await self._copy.arrival(bare, tip.source, self._credential, fetch)

    async def _read(self, bare: BareRepository, tip: _RemoteRef, known: str | None) -> Commit:
        commit = await self._arrived(bare, tip)
        at, author, subject = await bare.describe(commit)
        ancestry = Ancestry.FIRST
        if known is not None:
            ancestry = await self._ancestry(bare, commit, known)
        return Commit(sha=commit, at=at, author=author, subject=subject, ancestry=ancestry)

    async def _ancestry(self, bare: BareRepository, commit: str, known: str) -> Ancestry:
        if commit == known:
            return Ancestry.SAME
        if not bare.remembers(commit, known) and not await bare.holds(known):
            try:
                await self._arrived(bare, _RemoteRef(known, known))
            except GitError as failed:
                if failed.trouble is not GitErrorKind.NO_REVISION:
                    raise
                # Not in the history of what is there now, and the remote has lost it: the most
                # careful word for a past that nobody can look up.
                return Ancestry.UNRELATED
        return await bare.ancestry(commit, known)

    async def _write(self, bare: BareRepository, commit: str, folder: Path) -> Mapping[str, str]:
        await self._arrived(bare, _RemoteRef(commit, commit))
        return await write_files(bare, commit, folder)

    async def _push(self, bare: BareRepository, name: str, push: BranchPush) -> str:
        await self._arrived(bare, _RemoteRef(push.base, push.base))
        commit = await create_commit(bare, push)
        there = (await self._listed(name)).get(name, "")
        if there == commit:
            return commit
        if there and not await self._taken_in(bare, push.base, _RemoteRef(name, there)):
            before = await self._ours(bare, name, there)
            wanted = await read_commit(bare, commit)
            if (before.tree, before.parents) == (wanted.tree, wanted.parents):
                return there
        await self._send(bare, name, expected=there, commit=commit)
        return commit

    async def _delete(self, bare: BareRepository, name: str) -> bool:
        there = (await self._listed(name)).get(name)
        if there is None:
            return False
        await self._ours(bare, name, there)
        await self._send(bare, name, expected=there, commit="")
        return True

    async def _taken_in(self, bare: BareRepository, base: str, tip: _RemoteRef) -> bool:
        """True when all of a branch of ours is in the base already: nobody's work can be lost."""
        if not tip.source.startswith(f"refs/heads/{BRANCH_PREFIX}"):
            return False
        if await self._arrived(bare, tip) != tip.commit:
            raise self._moved(tip.source)
        return await bare.ancestry(base, tip.commit) in (Ancestry.SAME, Ancestry.AHEAD)

    async def _ours(self, bare: BareRepository, name: str, there: str) -> CommitInfo:
        """Look at what a branch has, and raise unless it is one commit of ours."""
        arrived = await self._arrived(bare, _RemoteRef(name, there))
        if arrived != there:
            raise self._moved(name)
        found = await read_commit(bare, there)
        if not found.ours or len(found.parents) != 1:
            raise HumanCommits(
                f"Branch {name} of {self._address} has commit {there[:12]}, which Holdfast did "
                "not make.",
                hint="Merge or delete the branch; Holdfast does not write it any more.",
            )
        return found

    async def _send(self, bare: BareRepository, name: str, *, expected: str, commit: str) -> None:
        try:
            async with bare.writing:
                with self._online() as environment:
                    await bare.send(
                        self._address, environment, branch=name, expected=expected, commit=commit
                    )
        except GitError as failed:
            if failed.trouble in _UNKNOWN_OUTCOME_ERRORS and await self._sent(name, commit):
                return
            raise self._unsent(failed, name) from failed

    async def _sent(self, name: str, commit: str) -> bool:
        """Find out whether a push that failed has arrived; False when that is unknown too."""
        try:
            return (await self._listed(name)).get(name, "") == commit
        except GitError:
            return False

    def _unsent(self, failed: GitError, name: str) -> HoldfastError:
        match failed.trouble:
            case GitErrorKind.MOVED_MEANWHILE:
                return self._moved(name)
            case GitErrorKind.DECLINED | GitErrorKind.FORBIDDEN:
                return PermissionDenied(
                    f"{self._address} declined the branch {name}. Git said: {failed.said[:300]}.",
                    reason="branch_declined",
                    hint="Let the credential write branches that begin with holdfast/.",
                )
            case _:
                undecided = failed.trouble in _UNKNOWN_OUTCOME_ERRORS
                return source_unavailable(
                    failed,
                    self._address,
                    f"branch {name}",
                    changed=OUTCOME_UNKNOWN if undecided else NOTHING_CHANGED,
                )

    def _moved(self, name: str) -> Conflict:
        return Conflict(
            f"Branch {name} of {self._address} moved while it was written.",
            hint="It is looked at again in the next round.",
        )

    @contextmanager
    def _online(self) -> Iterator[GitEnvironment]:
        with online_environment(
            self._copy.home, self._address, self._credential, ssh=self._ssh, pinned=self._pinned
        ) as environment:
            yield environment

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except GitError as failed:
            raise source_unavailable(failed, self._address, what) from failed
        except OSError as error:  # of our own files, beside those that Git writes
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            trouble = GitErrorKind.NO_SPACE if full else GitErrorKind.OTHER
            said = os.strerror(error.errno or 0)
            raise source_unavailable(GitError(trouble, said), self._address, what) from error


MAX_DISK_BYTES = 10 << 30
"""Bytes for all copies together, unless told otherwise."""


class GitRepositories:
    """Opens repositories, and keeps their copies below one folder, which it has for itself."""

    def __init__(
        self,
        root: Path,
        *,
        limits: GitLimits = DEFAULT_LIMITS,
        disk: int = MAX_DISK_BYTES,
        git: str = "git",
        ssh: str = "ssh",
    ) -> None:
        """Take the folder. Raises ConfigurationError when it cannot be used, or another process
        uses it."""
        self._root = root.absolute()
        self._limits = limits
        self._disk = disk
        self._git = GitProgram(git)
        self._ssh = ssh
        self._copies: dict[str, Mirror] = {}
        """By folder name; those used last stand last."""
        self._lock = _lock_directory(self._root)
        self._making_room = asyncio.Lock()
        self._home = self._root / "home"
        _remove_leftovers(self._root)
        self._home.mkdir(mode=0o700)

    def open(
        self,
        address: RepositoryAddress,
        credential: GitCredential = NO_GIT_CREDENTIAL,
        *,
        pinned: tuple[str, ...] = (),
    ) -> GitRepository:
        """Return a repository. Asks nobody yet. Equal addresses share one copy; each call uses
        the credential that its own repository was opened with. `pinned` are the network addresses
        that its host has been found at: by http no other one is asked."""
        name = _folder_name(address)
        copy = self._copies.pop(name, None)
        if copy is None:
            copy = Mirror(
                self._root / name, address, git=self._git, home=self._home, limits=self._limits
            )
        self._copies[name] = copy
        return GitRepository(
            copy, credential, ssh=self._ssh, make_room=self._make_room, pinned=pinned
        )

    async def aclose(self) -> None:
        """End what is under way and give the folder back. Safe to call twice."""
        for copy in self._copies.values():
            await copy.aclose()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def _make_room(self, used: Mirror) -> None:
        """Remove the copies that were used least lately while all together are too large."""
        self._copies[used.folder.name] = self._copies.pop(used.folder.name, used)
        async with self._making_room:
            sizes = await asyncio.to_thread(_mirror_sizes, self._root)
            strangers = [name for name in sizes if name not in self._copies]
            for name in (*strangers, *self._copies):
                if sum(sizes.values()) <= self._disk:
                    return
                copy = self._copies.get(name)
                if copy is None:
                    await asyncio.to_thread(remove_tree, self._root / name)
                elif copy is used or copy.in_use:
                    continue
                else:
                    await copy.forget()
                sizes.pop(name, None)


def _folder_name(address: RepositoryAddress) -> str:
    """Readable, and different for every address."""
    parts = (address.scheme, address.host, str(address.port), address.user, address.path)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    last = address.path.rpartition("/")[2].removesuffix(".git")
    plain = "".join(char for char in last if char.isascii() and (char.isalnum() or char in "-_"))
    return f"repo-{plain[:40]}-{digest}"


def _mirror_sizes(root: Path) -> dict[str, int]:
    return {path.name: directory_size(path) for path in root.glob("repo-*")}


def _lock_directory(root: Path) -> int:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"Repositories cannot be kept in {root}: {error.strerror}.",
            hint="Choose a directory that this user may write.",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise ConfigurationError(
            f"Another process keeps its repositories in {root}.",
            hint="Choose another directory for this one, or stop the other process.",
        ) from error
    return descriptor


def _remove_leftovers(root: Path) -> None:
    """Remove what a process that was killed left: keys, exports, and copies half made."""
    for path in (root / "home", *root.glob("gone-*")):
        remove_tree(path)
    for folder in root.glob("repo-*"):
        remove_tree(folder / "exports")
        current = (folder / "current").resolve().name
        left: Iterable[Path] = (*folder.glob("copy-*"), *folder.glob("link-*"))
        for path in left:
            if path.is_symlink():
                path.unlink()
            elif path.name != current:
                remove_tree(path)
