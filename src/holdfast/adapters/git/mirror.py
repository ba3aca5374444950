"""What a remote said lately about its refs.

A hundred applications of one repository that are hinted at a commit need one answer, not a
hundred: hosts count questions. An answer is only ever shared with the same credential.
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

Refs = Mapping[str, str]


@dataclass(slots=True, eq=False)
class _CachedRefs:
    credential: GitCredential
    names: tuple[str, ...]
    asked: float
    refs: asyncio.Task[Refs]
    waiting: int = 0


class RefCache:
    """The answers of one remote, those under way included."""

    def __init__(self) -> None:
        self._kept: list[_CachedRefs] = []

    async def get(
        self,
        credential: GitCredential,
        names: tuple[str, ...],
        # Any, as asyncio's own tasks have it.
        ask: Callable[[], Coroutine[Any, Any, Refs]],
        *,
        age: float,
    ) -> Refs:
        """Return an answer to a question of the last `age` seconds, or ask now.

        A failure is an answer too.
        """
        now = time.monotonic()
        for kept in self._kept:
            if kept.names == names and kept.credential == credential:
                if now - kept.asked < age:
                    return await self._wait(kept)
                self._kept.remove(kept)
                break
        refs = asyncio.create_task(ask())
        # Whoever waits is told of a failure; that nobody does any more is no news.
        refs.add_done_callback(lambda done: done.cancelled() or done.exception())
        answer = _CachedRefs(credential, names, now, refs)
        self._kept = [*self._kept[1 - _MAX_CACHED :], answer]
        return await self._wait(answer)

    async def _wait(self, answer: _CachedRefs) -> Refs:
        answer.waiting += 1
        try:
            return await asyncio.shield(answer.refs)
        except asyncio.CancelledError:
            if answer.waiting == 1 and answer in self._kept:  # nobody else wants to know
                self._kept.remove(answer)
                answer.refs.cancel()
                await asyncio.wait([answer.refs])
            raise
        finally:
            answer.waiting -= 1

    async def aclose(self) -> None:
        """End what is under way."""
        tasks = [kept.refs for kept in self._kept if not kept.refs.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


_REPAIRABLE = frozenset({GitErrorKind.DAMAGED, GitErrorKind.TOO_MUCH})
"""A copy that grew too large may hold what nobody asks for any more."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _RunningFetch:
    """A fetch that is under way, which others with the same credential may wait for."""

    bare: BareRepository
    source: str
    credential: GitCredential
    task: asyncio.Task[str]


class Mirror:
    """One remote repository's folder: its bare copy, and its exports."""

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
        self.answers = RefCache()
        self.grown = True
        """Something arrived since this was last set to False."""
        self._users = 0
        self._mending = asyncio.Lock()
        self._bare: BareRepository | None = None
        self._arrivals: list[_RunningFetch] = []
        current = folder / "current"
        if current.is_dir():
            self._bare = self._bare_at(current.resolve())

    @property
    def in_use(self) -> bool:
        """True while anything is done with it."""
        return bool(self._users or self._arrivals) or self.exports.in_use

    async def sound(self, work: Callable[[BareRepository], Awaitable[T]]) -> T:
        """Do work on the copy; when that turns out damaged, once more on a new one.

        So the work must fetch what it needs, where it is not there. Raises what it raises.
        """
        self._users += 1
        try:
            bare = self._bare
            if bare is not None:
                try:
                    return await work(bare)
                except GitError as failed:
                    if failed.trouble not in _REPAIRABLE:
                        raise
            async with self._mending:
                if self._bare is None or self._bare is bare:
                    return await self._on_a_new_one(work)
            return await work(self._bare)  # another caller has mended it
        finally:
            self._users -= 1

    async def arrival(
        self,
        bare: BareRepository,
        source: str,
        credential: GitCredential,
        fetch: Callable[[], Awaitable[str]],
    ) -> str:
        """Fetch something, or wait for the same fetch if it is under way."""
        for each in self._arrivals:
            if each.bare is bare and each.source == source and each.credential == credential:
                return await asyncio.shield(each.task)
        self.grown = True
        task = asyncio.ensure_future(_run_fetch(fetch))
        arrival = _RunningFetch(bare, source, credential, task)
        self._arrivals.append(arrival)
        task.add_done_callback(lambda _: self._arrivals.remove(arrival))
        # A failure is told to whoever still waits; it is no news that nobody did.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def forget(self) -> None:
        """Remove everything from disk. It is fetched anew when it is needed again."""
        # In one step, as far as others see it: the folder may be in use again at once.
        self._bare = None
        self.exports.forget()
        gone = self.folder.with_name(f"gone-{secrets.token_hex(8)}")
        with suppress(FileNotFoundError):
            self.folder.rename(gone)
        await asyncio.to_thread(remove_tree, gone)

    async def aclose(self) -> None:
        """End what is under way."""
        await self.answers.aclose()
        tasks = [each.task for each in self._arrivals]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _on_a_new_one(self, work: Callable[[BareRepository], Awaitable[T]]) -> T:
        old = self._bare
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._bare_at(self.folder / f"copy-{secrets.token_hex(8)}")
        try:
            await new.init()
            done = await work(new)
            link = self.folder / f"link-{secrets.token_hex(8)}"
            link.symlink_to(new.path.name)
            link.replace(self.folder / "current")
        except BaseException:
            await asyncio.to_thread(remove_tree, new.path)
            raise
        self._bare = new
        if old is not None:
            await asyncio.to_thread(remove_tree, old.path)
        return done

    def _bare_at(self, path: Path) -> BareRepository:
        return BareRepository(path, git=self.git, home=self.home, limits=self.limits)


async def _run_fetch(work: Callable[[], Awaitable[str]]) -> str:
    return await work()
