"""One remote repository, one folder of copies, and a way to play a story in them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from tests.support.git_host import BareRepository, GitHost

from holdfast.adapters.git.address import RepositoryAddress, parse_address
from holdfast.adapters.git.bare import GitLimits
from holdfast.adapters.git.repository import GitRepositories, GitRepository
from holdfast.core.redact import Secret
from holdfast.reconcile.gitops.ports import (
    NO_GIT_CREDENTIAL,
    BranchPush,
    GitCredential,
    SourceUnavailable,
)

T = TypeVar("T")
TOKEN = "t0ken-that-opens"
FAST = GitLimits(list_timeout=60, fetch_timeout=60)
BRANCH = "holdfast/codify/ml-chat"
AT = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
MESSAGE = "Codify replicas\n\nWithout anything else.\n\nHoldfast-Drift: drf-1\n"


class GitWorld:
    """Where a story plays."""

    def __init__(self, tmp: Path, origin: BareRepository, host: GitHost | None = None) -> None:
        self.tmp = tmp
        self.cache = tmp / "cache"
        self.origin = origin
        self._host = host
        self.limits = FAST
        self.options: dict[str, Any] = {}  # Any: what Repositories takes by name
        self.repositories: GitRepositories

    @property
    def host(self) -> GitHost:
        """The host, in a story that has one."""
        assert self._host is not None
        return self._host

    @property
    def address(self) -> RepositoryAddress:
        """Where the repository is, by HTTP when there is a host."""
        if self._host is None:
            return parse_address(str(self.origin.path), local=True)
        return parse_address(self._host.url(self.origin.path.name))

    def open(self, credential: GitCredential | None = None) -> GitRepository:
        """Open the repository, with a token that its host accepts unless told otherwise."""
        if credential is None:
            credential = GitCredential(token=Secret(TOKEN)) if self._host else NO_GIT_CREDENTIAL
        return self.repositories.open(self.address, credential)

    def play(self, story: Callable[[GitRepository], Coroutine[Any, Any, T]]) -> T:
        """Play a story with the repository, from taking the folder of copies to leaving it."""

        async def whole() -> T:
            self.repositories = GitRepositories(self.cache, limits=self.limits, **self.options)
            try:
                return await story(self.open())
            finally:
                await self.repositories.aclose()

        return asyncio.run(whole())

    def copies(self) -> list[Path]:
        """Name every bare copy on disk."""
        return sorted(self.cache.glob("repo-*/copy-*"))

    def copy(self) -> Path:
        """The copy that is in use."""
        (found,) = self.cache.glob("repo-*/current")
        return found.resolve()


async def expect_unavailable(work: Awaitable[object]) -> SourceUnavailable:
    """Return the error with which something could not be read."""
    try:
        await work
    except SourceUnavailable as error:
        return error
    raise AssertionError("it was expected to fail")


async def exported_files(repository: GitRepository, commit: str) -> dict[str, bytes]:
    """Return what an export of a commit holds."""
    async with repository.export(commit) as export:
        return await asyncio.to_thread(files_below, export.root)


def files_below(root: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def everything_below(root: Path) -> bytes:
    """Return the names and contents of all files below a folder, as they are on disk."""
    found = b""
    for path in root.rglob("*"):
        found += str(path).encode(errors="replace") + b"\n"
        with contextlib.suppress(OSError):
            found += path.read_bytes()
    return found


def make_push(
    base: str,
    files: Mapping[str, bytes | None] | None = None,
    *,
    branch: str = BRANCH,
    message: str = MESSAGE,
    at: datetime = AT,
) -> BranchPush:
    """Ask for one commit on a branch of ours."""
    files = {"a.yaml": b"a: 2\n"} if files is None else files
    return BranchPush(branch=branch, base=base, files=files, message=message, at=at)
