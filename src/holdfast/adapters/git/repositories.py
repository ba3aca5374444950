"""Every repository of one process: one folder on disk, one copy for each address."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.adapters.git.address import Address
from holdfast.adapters.git.bare import bytes_in
from holdfast.adapters.git.command import Git
from holdfast.adapters.git.copy import Copy
from holdfast.adapters.git.files import remove
from holdfast.adapters.git.limits import LIMITS, Limits
from holdfast.adapters.git.repository import GitRepository
from holdfast.core.errors import ConfigurationError
from holdfast.reconcile.gitops.ports import NO_CREDENTIAL, Credential

DISK = 10 << 30
"""Bytes for all copies together, unless told otherwise."""


class Repositories:
    """Opens repositories, and keeps their copies below one folder, which it has for itself."""

    def __init__(
        self,
        root: Path,
        *,
        limits: Limits = LIMITS,
        disk: int = DISK,
        git: str = "git",
        ssh: str = "ssh",
    ) -> None:
        """Take the folder. Raises ConfigurationError when it cannot be used, or another process
        uses it."""
        self._root = root.absolute()
        self._limits = limits
        self._disk = disk
        self._git = Git(git)
        self._ssh = ssh
        self._copies: dict[str, Copy] = {}
        """By folder name; those used last stand last."""
        self._lock = _locked(self._root)
        self._making_room = asyncio.Lock()
        self._home = self._root / "home"
        _clear(self._root)
        self._home.mkdir(mode=0o700)

    def open(
        self,
        address: Address,
        credential: Credential = NO_CREDENTIAL,
        *,
        pinned: tuple[str, ...] = (),
    ) -> GitRepository:
        """Return a repository. Asks nobody yet. Equal addresses share one copy; each call uses
        the credential that its own repository was opened with. `pinned` are the network addresses
        that its host has been found at: by http no other one is asked."""
        name = _folder_name(address)
        copy = self._copies.pop(name, None)
        if copy is None:
            copy = Copy(
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

    async def _make_room(self, used: Copy) -> None:
        """Remove the copies that were used least lately while all together are too large."""
        self._copies[used.folder.name] = self._copies.pop(used.folder.name, used)
        async with self._making_room:
            sizes = await asyncio.to_thread(_sizes, self._root)
            strangers = [name for name in sizes if name not in self._copies]
            for name in (*strangers, *self._copies):
                if sum(sizes.values()) <= self._disk:
                    return
                copy = self._copies.get(name)
                if copy is None:
                    await asyncio.to_thread(remove, self._root / name)
                elif copy is used or copy.in_use:
                    continue
                else:
                    await copy.forget()
                sizes.pop(name, None)


def _folder_name(address: Address) -> str:
    """Readable, and different for every address."""
    parts = (address.scheme, address.host, str(address.port), address.user, address.path)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    last = address.path.rpartition("/")[2].removesuffix(".git")
    plain = "".join(char for char in last if char.isascii() and (char.isalnum() or char in "-_"))
    return f"repo-{plain[:40]}-{digest}"


def _sizes(root: Path) -> dict[str, int]:
    return {path.name: bytes_in(path) for path in root.glob("repo-*")}


def _locked(root: Path) -> int:
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"Repositories cannot be kept in {root}: {error.strerror}.",
            todo="Choose a directory that this user may write.",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise ConfigurationError(
            f"Another process keeps its repositories in {root}.",
            todo="Choose another directory for this one, or stop the other process.",
        ) from error
    return descriptor


def _clear(root: Path) -> None:
    """Remove what a process that was killed left: keys, exports, and copies half made."""
    for path in (root / "home", *root.glob("gone-*")):
        remove(path)
    for folder in root.glob("repo-*"):
        remove(folder / "exports")
        current = (folder / "current").resolve().name
        left: Iterable[Path] = (*folder.glob("copy-*"), *folder.glob("link-*"))
        for path in left:
            if path.is_symlink():
                path.unlink()
            elif path.name != current:
                remove(path)
