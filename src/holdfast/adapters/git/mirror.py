"""The local mirror of one remote repository, which repairs itself.

A mirror that a killed process left locked, or that a disk has damaged, is never worked on: a new
one is made beside it and takes its place in one step, once it has what was asked for. While the
remote does not answer, the old one stays.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holdfast.adapters.git.address import RepositoryAddress
from holdfast.adapters.git.bare import BareRepository, GitLimits
from holdfast.adapters.git.command import GitError, GitErrorKind, GitProgram
from holdfast.adapters.git.export import ExportPool, remove_tree
from holdfast.reconcile.gitops.ports import GitCredential

_MAX_CACHED = 64
_REPAIRABLE = frozenset({GitErrorKind.CORRUPT, GitErrorKind.TOO_LARGE})
"""A mirror that grew too large may hold what nobody asks for any more."""

Refs = Mapping[str, str]
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _CachedRefs:
    credential: GitCredential
    names: tuple[str, ...]
    listed_at: float
    refs: asyncio.Task[Refs]
    waiting: int = 0


class RefCache:
    """The refs that one remote listed lately, also those that are still being listed.

    A hundred applications of one repository that a webhook tells of a commit need one list, not a
    hundred: hosts limit requests. A list is only ever shared with the same credential.
    """

    def __init__(self) -> None:
        self._cached: list[_CachedRefs] = []

    async def get(
        self,
        credential: GitCredential,
        names: tuple[str, ...],
        # Any, as asyncio's own tasks have it.
        list_refs: Callable[[], Coroutine[Any, Any, Refs]],
        *,
        age: float,
    ) -> Refs:
        """Return refs that were listed in the last `age` seconds, or list them now.

        A failure is shared like a list.
        """
        now = time.monotonic()
        for cached in self._cached:
            if cached.names == names and cached.credential == credential:
                if now - cached.listed_at < age:
                    return await self._wait(cached)
                self._cached.remove(cached)
                break
        cached = _CachedRefs(credential, names, now, _start(list_refs()))
        self._cached = [*self._cached[1 - _MAX_CACHED :], cached]
        return await self._wait(cached)

    async def _wait(self, cached: _CachedRefs) -> Refs:
        cached.waiting += 1
        try:
            return await asyncio.shield(cached.refs)
        except asyncio.CancelledError:
            if cached.waiting == 1 and cached in self._cached:  # nobody else waits for it
                self._cached.remove(cached)
                await _cancel([cached.refs])
            raise
        finally:
            cached.waiting -= 1

    async def aclose(self) -> None:
        """Cancel what is being listed."""
        await _cancel([cached.refs for cached in self._cached if not cached.refs.done()])


@dataclass(frozen=True, slots=True)
class _RunningFetch:
    """A fetch that others with the same credential may wait for."""

    bare: BareRepository
    source: str
    credential: GitCredential
    task: asyncio.Task[str]


class Mirror:
    """One remote repository's directory: its bare copy, and its exports."""

    def __init__(
        self,
        folder: Path,
        address: RepositoryAddress,
        *,
        git: GitProgram,
        home: Path,
        limits: GitLimits,
    ) -> None:
        self.folder = folder
        self.address = address
        self.git = git
        self.home = home
        self.limits = limits
        self.exports = ExportPool(folder / "exports", idle=limits.idle_exports)
        self.ref_cache = RefCache()
        self.has_grown = True
        """Something was fetched since this was last set to False."""
        self._users = 0
        self._repair_lock = asyncio.Lock()
        self._bare: BareRepository | None = None
        self._fetches: list[_RunningFetch] = []
        current = folder / "current"
        if current.is_dir():
            self._bare = self._open_bare(current.resolve())

    @property
    def in_use(self) -> bool:
        """True while anybody works with it."""
        return bool(self._users or self._fetches) or self.exports.in_use

    async def run_with_repair(self, work: Callable[[BareRepository], Awaitable[T]]) -> T:
        """Work on the bare copy; when that turns out to be damaged, once more on a new one.

        So the work must fetch what it needs, where it is missing. Raises what it raises.
        """
        self._users += 1
        try:
            bare = self._bare
            if bare is not None:
                try:
                    return await work(bare)
                except GitError as failed:
                    if failed.kind not in _REPAIRABLE:
                        raise
            async with self._repair_lock:
                if self._bare is None or self._bare is bare:
                    return await self._run_on_new_copy(work)
            return await work(self._bare)  # another caller has repaired it
        finally:
            self._users -= 1

    async def share_fetch(
        self,
        bare: BareRepository,
        source: str,
        credential: GitCredential,
        fetch: Callable[[], Coroutine[Any, Any, str]],
    ) -> str:
        """Fetch something, or wait for the same fetch if it is running."""
        for each in self._fetches:
            if each.bare is bare and each.source == source and each.credential == credential:
                return await asyncio.shield(each.task)
        self.has_grown = True
        running = _RunningFetch(bare, source, credential, _start(fetch()))
        self._fetches.append(running)
        running.task.add_done_callback(lambda _: self._fetches.remove(running))
        return await asyncio.shield(running.task)

    async def forget(self) -> None:
        """Remove everything from disk. It is fetched again when it is needed."""
        # In one step, as far as others see it: the directory may be in use again at once.
        self._bare = None
        self.exports.forget()
        removed = self.folder.with_name(f"gone-{secrets.token_hex(8)}")
        with suppress(FileNotFoundError):
            self.folder.rename(removed)
        await asyncio.to_thread(remove_tree, removed)

    async def aclose(self) -> None:
        """Cancel what is running."""
        await self.ref_cache.aclose()
        await _cancel([each.task for each in self._fetches])

    async def _run_on_new_copy(self, work: Callable[[BareRepository], Awaitable[T]]) -> T:
        old = self._bare
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._open_bare(self.folder / f"copy-{secrets.token_hex(8)}")
        try:
            await new.init()
            result = await work(new)
            link = self.folder / f"link-{secrets.token_hex(8)}"
            link.symlink_to(new.path.name)
            link.replace(self.folder / "current")
        except BaseException:
            await asyncio.to_thread(remove_tree, new.path)
            raise
        self._bare = new
        if old is not None:
            await asyncio.to_thread(remove_tree, old.path)
        return result

    def _open_bare(self, path: Path) -> BareRepository:
        return BareRepository(path, git=self.git, home=self.home, limits=self.limits)


def _start(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task whose failure is only raised to whoever waits for it."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
