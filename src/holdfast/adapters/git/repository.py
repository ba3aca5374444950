"""Remote repositories over the git program: the port `Repository`, and the mirrors on disk."""

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
        GitErrorKind.TIMEOUT,
        GitErrorKind.UNREACHABLE,
        GitErrorKind.SERVER_ERROR,
        GitErrorKind.OTHER,
        GitErrorKind.CORRUPT,
    }
)
"""After these a push may have arrived all the same."""


@dataclass(frozen=True, slots=True)
class _RemoteRef:
    """What to fetch, and the commit it is at, where the remote has said so."""

    source: str
    commit: str


class GitRepository:
    """One remote repository. Shares its mirror with every other credential for the same address."""

    def __init__(
        self,
        mirror: Mirror,
        credential: GitCredential,
        *,
        ssh: str,
        make_room: Callable[[Mirror], Awaitable[None]],
        pinned: tuple[str, ...] = (),
    ) -> None:
        self._mirror = mirror
        self._credential = credential
        self._ssh = ssh
        self._make_room = make_room
        self._pinned = pinned
        self._address = mirror.address

    async def fetch(self, revision: str, *, known: str | None, age: float = 0.0) -> Commit:
        """See the port. The remote is asked also for a commit that is here already: what another
        credential fetched is not for everyone to know."""
        spec = parse_revision(revision)
        if known is not None:
            check_commit_id(known)
        with self._translate_errors(f"revision {quote_text(revision)}"):
            ref = await self._resolve_revision(spec, age)
            commit = await self._mirror.run_with_repair(
                lambda bare: self._read_commit(bare, ref, known)
            )
        if self._mirror.has_grown:
            self._mirror.has_grown = False
            await self._make_room(self._mirror)
        return commit

    @asynccontextmanager
    async def export(self, commit: str) -> AsyncIterator[SourceExport]:
        """See the port. A commit that is not here is asked for, by its id."""
        check_commit_id(commit)

        async def write(folder: Path) -> Mapping[str, str]:
            return await self._mirror.run_with_repair(
                lambda bare: self._write_export(bare, commit, folder)
            )

        with self._translate_errors(f"commit {commit}"):
            holding = self._mirror.exports.hold(commit, write)
            export = await holding.__aenter__()
        try:
            yield export
        finally:
            await holding.__aexit__(None, None, None)

    async def head(self, branch: str) -> str | None:
        """See the port."""
        name = branch_ref(branch)
        with self._translate_errors(f"branch {quote_text(branch)}"):
            return (await self._list_refs(name)).get(name)

    async def push(self, push: BranchPush) -> str:
        """See the port. Also raises ValidationError for what no commit can be made of, and
        PermissionDenied when the remote declines the branch."""
        name = branch_ref(push.branch)
        check_commit_id(push.base)
        check_push(push)
        with self._translate_errors(f"branch {quote_text(push.branch)}"):
            return await self._mirror.run_with_repair(lambda bare: self._push(bare, name, push))

    async def delete(self, branch: str) -> bool:
        """See the port. Also raises PermissionDenied when the remote declines."""
        name = branch_ref(branch)
        with self._translate_errors(f"branch {quote_text(branch)}"):
            return await self._mirror.run_with_repair(lambda bare: self._delete(bare, name))

    async def _resolve_revision(self, spec: RevisionSpec, age: float) -> _RemoteRef:
        peeled = [f"{name}^{{}}" for name in spec.names]
        # Of a commit only: may we read this repository at all?
        names = ("HEAD",) if spec.commit else (*spec.names, *peeled)
        current = await self._mirror.ref_cache.get(
            self._credential, names, lambda: self._list_refs(*names), age=age
        )
        if spec.commit:
            return _RemoteRef(spec.commit, spec.commit)
        found = [name for name in spec.names if name in current]
        if not found:
            raise GitError(GitErrorKind.NO_SUCH_REVISION)
        if len(found) > 1:
            raise GitError(
                GitErrorKind.NO_SUCH_REVISION,
                "it is a branch and a tag; write refs/heads/… or refs/tags/… to say which",
            )
        return _RemoteRef(found[0], current.get(f"{found[0]}^{{}}", current[found[0]]))

    async def _list_refs(self, *names: str) -> dict[str, str]:
        """Return where refs are at the remote now; those that are not there are missing."""
        with self._connect() as environment:
            _, out = await self._mirror.git.run(
                "ls-remote",
                "--quiet",
                "--",
                self._address.url,
                *names,
                environment=environment,
                deadline=self._mirror.limits.list_timeout,
            )
        lines = (line.partition("\t") for line in out.decode("utf-8", "replace").splitlines())
        # Git matches names from their end, so it may have answered with more.
        found = {name: at for at, _, name in lines if name in names}
        if any(len(at) != 40 for at in found.values()):
            raise GitError(GitErrorKind.OTHER, "its commits have ids of another kind than SHA-1")
        return found

    async def _ensure_commit(self, bare: BareRepository, ref: _RemoteRef) -> str:
        """Return the commit of a tip, which is then here."""
        if await bare.has_commit(ref.commit):
            return ref.commit

        async def fetch() -> str:
            with self._connect() as environment:
                return await bare.fetch(self._address, environment, ref.source)

        return await self._mirror.share_fetch(bare, ref.source, self._credential, fetch)

    async def _read_commit(
        self, bare: BareRepository, ref: _RemoteRef, known: str | None
    ) -> Commit:
        commit = await self._ensure_commit(bare, ref)
        at, author, subject = await bare.describe(commit)
        ancestry = Ancestry.FIRST
        if known is not None:
            ancestry = await self._compare(bare, commit, known)
        return Commit(sha=commit, at=at, author=author, subject=subject, ancestry=ancestry)

    async def _compare(self, bare: BareRepository, commit: str, known: str) -> Ancestry:
        if commit == known:
            return Ancestry.SAME
        if not bare.knows_ancestry(commit, known) and not await bare.has_object(known):
            try:
                await self._ensure_commit(bare, _RemoteRef(known, known))
            except GitError as failed:
                if failed.kind is not GitErrorKind.NO_SUCH_REVISION:
                    raise
                # Not in the history of what is there now, and the remote has lost it: the most
                # careful word for a past that nobody can look up.
                return Ancestry.UNRELATED
        return await bare.ancestry(commit, known)

    async def _write_export(
        self, bare: BareRepository, commit: str, folder: Path
    ) -> Mapping[str, str]:
        await self._ensure_commit(bare, _RemoteRef(commit, commit))
        return await write_files(bare, commit, folder)

    async def _push(self, bare: BareRepository, name: str, push: BranchPush) -> str:
        await self._ensure_commit(bare, _RemoteRef(push.base, push.base))
        commit = await create_commit(bare, push)
        current = (await self._list_refs(name)).get(name, "")
        if current == commit:
            return commit
        if current and not await self._is_merged(bare, push.base, _RemoteRef(name, current)):
            before = await self._check_own_branch(bare, name, current)
            desired = await read_commit(bare, commit)
            if (before.tree, before.parents) == (desired.tree, desired.parents):
                return current
        await self._push_ref(bare, name, expected=current, commit=commit)
        return commit

    async def _delete(self, bare: BareRepository, name: str) -> bool:
        current = (await self._list_refs(name)).get(name)
        if current is None:
            return False
        await self._check_own_branch(bare, name, current)
        await self._push_ref(bare, name, expected=current, commit="")
        return True

    async def _is_merged(self, bare: BareRepository, base: str, ref: _RemoteRef) -> bool:
        """True when all of a branch of ours is in the base already: nobody's work can be lost."""
        if not ref.source.startswith(f"refs/heads/{BRANCH_PREFIX}"):
            return False
        if await self._ensure_commit(bare, ref) != ref.commit:
            raise self._branch_moved(ref.source)
        return await bare.ancestry(base, ref.commit) in (Ancestry.SAME, Ancestry.AHEAD)

    async def _check_own_branch(self, bare: BareRepository, name: str, current: str) -> CommitInfo:
        """Look at what a branch has, and raise unless it is one commit of ours."""
        arrived = await self._ensure_commit(bare, _RemoteRef(name, current))
        if arrived != current:
            raise self._branch_moved(name)
        found = await read_commit(bare, current)
        if not found.ours or len(found.parents) != 1:
            raise HumanCommits(
                f"Branch {name} of {self._address} has commit {current[:12]}, which Holdfast did "
                "not make.",
                hint="Merge or delete the branch; Holdfast does not write it any more.",
            )
        return found

    async def _push_ref(
        self, bare: BareRepository, name: str, *, expected: str, commit: str
    ) -> None:
        try:
            async with bare.write_lock:
                with self._connect() as environment:
                    await bare.push(
                        self._address, environment, branch=name, expected=expected, commit=commit
                    )
        except GitError as failed:
            if failed.kind in _UNKNOWN_OUTCOME_ERRORS and await self._has_arrived(name, commit):
                return
            raise self._push_error(failed, name) from failed

    async def _has_arrived(self, name: str, commit: str) -> bool:
        """Find out whether a push that failed has arrived; False when that is unknown too."""
        try:
            return (await self._list_refs(name)).get(name, "") == commit
        except GitError:
            return False

    def _push_error(self, failed: GitError, name: str) -> HoldfastError:
        match failed.kind:
            case GitErrorKind.CONFLICT:
                return self._branch_moved(name)
            case GitErrorKind.DECLINED | GitErrorKind.FORBIDDEN:
                return PermissionDenied(
                    f"{self._address} declined the branch {name}. Git said: {failed.output[:300]}.",
                    reason="branch_declined",
                    hint="Let the credential write branches that begin with holdfast/.",
                )
            case _:
                unknown = failed.kind in _UNKNOWN_OUTCOME_ERRORS
                return source_unavailable(
                    failed,
                    self._address,
                    f"branch {name}",
                    changed=OUTCOME_UNKNOWN if unknown else NOTHING_CHANGED,
                )

    def _branch_moved(self, name: str) -> Conflict:
        return Conflict(
            f"Branch {name} of {self._address} moved while it was written.",
            hint="It is read again in the next pass.",
        )

    @contextmanager
    def _connect(self) -> Iterator[GitEnvironment]:
        with online_environment(
            self._mirror.home, self._address, self._credential, ssh=self._ssh, pinned=self._pinned
        ) as environment:
            yield environment

    @contextmanager
    def _translate_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except GitError as failed:
            raise source_unavailable(failed, self._address, what) from failed
        except OSError as error:  # of our own files, beside those that Git writes
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            kind = GitErrorKind.DISK_FULL if full else GitErrorKind.OTHER
            reason = os.strerror(error.errno or 0)
            raise source_unavailable(GitError(kind, reason), self._address, what) from error


MAX_DISK_BYTES = 10 << 30
"""Bytes for all copies together, unless configured otherwise."""


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
        self._mirrors: dict[str, Mirror] = {}
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
        mirror = self._mirrors.pop(name, None)
        if mirror is None:
            mirror = Mirror(
                self._root / name, address, git=self._git, home=self._home, limits=self._limits
            )
        self._mirrors[name] = mirror
        return GitRepository(
            mirror, credential, ssh=self._ssh, make_room=self._make_room, pinned=pinned
        )

    async def aclose(self) -> None:
        """End what is under way and give the folder back. Safe to call twice."""
        for mirror in self._mirrors.values():
            await mirror.aclose()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def _make_room(self, used: Mirror) -> None:
        """Remove the copies that were used least lately while all together are too large."""
        self._mirrors[used.folder.name] = self._mirrors.pop(used.folder.name, used)
        async with self._making_room:
            sizes = {
                path.name: await asyncio.to_thread(directory_size, path)
                for path in self._root.glob("repo-*")
            }
            unknown = [name for name in sizes if name not in self._mirrors]
            for name in (*unknown, *self._mirrors):
                if sum(sizes.values()) <= self._disk:
                    return
                mirror = self._mirrors.get(name)
                if mirror is None:
                    await asyncio.to_thread(remove_tree, self._root / name)
                elif mirror is used or mirror.in_use:
                    continue
                else:
                    await mirror.forget()
                sizes.pop(name, None)


def _folder_name(address: RepositoryAddress) -> str:
    """Readable, and different for every address."""
    parts = (address.scheme, address.host, str(address.port), address.user, address.path)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    last = address.path.rpartition("/")[2].removesuffix(".git")
    plain = "".join(char for char in last if char.isascii() and (char.isalnum() or char in "-_"))
    return f"repo-{plain[:40]}-{digest}"


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
