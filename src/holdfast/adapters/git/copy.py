"""The local copy of one remote repository, which mends itself.

A copy that a killed process left locked, or that a disk has damaged, is never worked on: a new
one is made beside it and takes its place in one step, once it has what was asked for. While the
remote does not answer, the old one stays.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from holdfast.adapters.git.address import Address
from holdfast.adapters.git.answers import Answers
from holdfast.adapters.git.bare import Bare
from holdfast.adapters.git.command import Git
from holdfast.adapters.git.exports import Exports
from holdfast.adapters.git.files import remove
from holdfast.adapters.git.limits import Limits
from holdfast.adapters.git.trouble import GitFailed, Trouble
from holdfast.reconcile.gitops.ports import Credential

_MENDABLE = frozenset({Trouble.DAMAGED, Trouble.TOO_MUCH})
"""A copy that grew too large may hold what nobody asks for any more."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A fetch that is under way, which others with the same credential may wait for."""

    bare: Bare
    source: str
    credential: Credential
    task: asyncio.Task[str]


class Copy:
    """One remote repository's folder: its bare copy, and its exports."""

    def __init__(
        self, folder: Path, address: Address, *, git: Git, home: Path, limits: Limits
    ) -> None:
        self.folder = folder
        self.address = address
        self.git = git
        self.home = home
        self.limits = limits
        self.exports = Exports(folder / "exports", idle=limits.idle_exports)
        self.answers = Answers()
        self.grown = True
        """Something arrived since this was last set to False."""
        self._users = 0
        self._mending = asyncio.Lock()
        self._bare: Bare | None = None
        self._arrivals: list[_Arrival] = []
        current = folder / "current"
        if current.is_dir():
            self._bare = self._bare_at(current.resolve())

    @property
    def in_use(self) -> bool:
        """True while anything is done with it."""
        return bool(self._users or self._arrivals) or self.exports.in_use

    async def sound(self, work: Callable[[Bare], Awaitable[T]]) -> T:
        """Do work on the copy; when that turns out damaged, once more on a new one.

        So the work must fetch what it needs, where it is not there. Raises what it raises.
        """
        self._users += 1
        try:
            bare = self._bare
            if bare is not None:
                try:
                    return await work(bare)
                except GitFailed as failed:
                    if failed.trouble not in _MENDABLE:
                        raise
            async with self._mending:
                if self._bare is None or self._bare is bare:
                    return await self._on_a_new_one(work)
            return await work(self._bare)  # another caller has mended it
        finally:
            self._users -= 1

    async def arrival(
        self,
        bare: Bare,
        source: str,
        credential: Credential,
        fetch: Callable[[], Awaitable[str]],
    ) -> str:
        """Fetch something, or wait for the same fetch if it is under way."""
        for each in self._arrivals:
            if each.bare is bare and each.source == source and each.credential == credential:
                return await asyncio.shield(each.task)
        self.grown = True
        task = asyncio.ensure_future(_awaited(fetch))
        arrival = _Arrival(bare, source, credential, task)
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
        await asyncio.to_thread(remove, gone)

    async def aclose(self) -> None:
        """End what is under way."""
        await self.answers.aclose()
        tasks = [each.task for each in self._arrivals]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _on_a_new_one(self, work: Callable[[Bare], Awaitable[T]]) -> T:
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
            await asyncio.to_thread(remove, new.path)
            raise
        self._bare = new
        if old is not None:
            await asyncio.to_thread(remove, old.path)
        return done

    def _bare_at(self, path: Path) -> Bare:
        return Bare(path, git=self.git, home=self.home, limits=self.limits)


async def _awaited(work: Callable[[], Awaitable[str]]) -> str:
    return await work()
