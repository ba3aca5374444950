"""Exports of one repository: written once for each commit, shared, and removed when unused."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from holdfast.adapters.git.files import remove, seal
from holdfast.reconcile.gitops.ports import Export


@dataclass(slots=True)
class _Held:
    """One export and how many hold it."""

    holders: int = 0
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    export: Export | None = None


class Exports:
    """The exports of one repository, below one folder."""

    def __init__(self, folder: Path, *, idle: int) -> None:
        self._folder = folder
        self._idle = idle
        self._held: dict[str, _Held] = {}
        """Those used last stand last."""

    @property
    def in_use(self) -> bool:
        """True while anyone holds one."""
        return any(each.holders for each in self._held.values())

    @asynccontextmanager
    async def hold(
        self, commit: str, write: Callable[[Path], Awaitable[Mapping[str, str]]]
    ) -> AsyncIterator[Export]:
        """Hold an export; the first holder has it written, and the others wait for that."""
        held = self._held.pop(commit, None) or _Held()
        self._held[commit] = held
        held.holders += 1
        try:
            async with held.making:
                if held.export is None or not held.export.root.is_dir():
                    held.export = await self._made(commit, write)
            yield held.export
        finally:
            held.holders -= 1
            await self._drop_unused()

    def forget(self) -> None:
        """Take every export that nobody holds as gone."""
        self._held = {commit: held for commit, held in self._held.items() if held.holders}

    async def _made(
        self, commit: str, write: Callable[[Path], Awaitable[Mapping[str, str]]]
    ) -> Export:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Each has a name of its own, so that an old one can go while a new one comes.
        name = f"{commit}-{secrets.token_hex(4)}"
        new = self._folder / f"new-{name}"
        new.mkdir()
        try:
            left_out = await write(new)
            await asyncio.to_thread(seal, new)
            root = new.rename(self._folder / name)
        except BaseException:
            await asyncio.to_thread(remove, new)
            raise
        return Export(commit=commit, root=root, left_out=MappingProxyType(dict(left_out)))

    async def _drop_unused(self) -> None:
        unused = [commit for commit, held in self._held.items() if not held.holders]
        empty = [commit for commit in unused if self._held[commit].export is None]
        full = [commit for commit in unused if self._held[commit].export is not None]
        old = full[: max(0, len(full) - self._idle)]
        gone = [self._held.pop(commit).export for commit in (*empty, *old)]
        for export in gone:
            if export is not None:
                await asyncio.to_thread(remove, export.root)
