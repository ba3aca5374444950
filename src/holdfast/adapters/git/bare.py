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
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from holdfast.adapters.git.address import Address
from holdfast.adapters.git.command import OUTPUT, Git
from holdfast.adapters.git.environment import Environment, offline
from holdfast.adapters.git.limits import Limits
from holdfast.adapters.git.trouble import GitFailed, Trouble
from holdfast.core.gitops.source import Ancestry
from holdfast.core.ink import clean

SEEN, TIPS = "refs/holdfast/seen/", "refs/holdfast/tip/"
_MANY_PACKS, _MANY_LOOSE = 40, 25
"""When to tidy up: packs in all, and loose objects in one of 256 folders."""
_TEXT = 200
_FACTS = 1_000
"""Commits that something is remembered of."""
K = TypeVar("K")
V = TypeVar("V")
_OURS = frozenset({Trouble.LATE, Trouble.TOO_MUCH, Trouble.NO_SPACE, Trouble.NO_PROGRAM})
"""Failures of a command without a remote that do not speak against the copy."""
_UNCLEAR = frozenset({Trouble.OTHER, Trouble.DAMAGED})


class Bare:
    """One bare repository. Reads may run at any time, writes wait for each other."""

    def __init__(self, path: Path, *, git: Git, home: Path, limits: Limits) -> None:
        self.path = path
        self.limits = limits
        self.writing = asyncio.Lock()
        self._git = git
        self._offline = offline(home).having(GIT_DIR=str(path))
        self._described: dict[str, tuple[datetime, str, str]] = {}
        self._standing: dict[tuple[str, str], Ancestry] = {}
        self._here: dict[str, bool] = {}
        """What was found out about commits, which does not change: many applications may follow
        one repository, and every question is a process."""

    async def init(self) -> None:
        """Make it, empty."""
        await self.ask("init", "--quiet", "--bare", "--template=", "--initial-branch=none")

    async def ask(
        self,
        *arguments: str,
        given: bytes | None = None,
        limit: int = OUTPUT,
        fine: Sequence[int] = (0,),
    ) -> tuple[int, bytes]:
        """Run a command that needs no remote; anything unexpected means that this is damaged."""
        try:
            return await self._git.run(
                *arguments,
                environment=self._offline,
                deadline=self.limits.work,
                given=given,
                limit=limit,
                fine=fine,
            )
        except GitFailed as failed:
            if failed.trouble in _OURS:
                raise
            raise GitFailed(Trouble.DAMAGED, failed.said) from failed

    async def read(self, *arguments: str, given: bytes, take: Callable[[bytes], None]) -> None:
        """Run a command that needs no remote, and have what it writes read in a thread."""
        try:
            await self._git.feed(
                *arguments,
                environment=self._offline,
                deadline=self.limits.work,
                given=given,
                take=take,
                apart=True,
            )
        except GitFailed as failed:
            if failed.trouble in _OURS:
                raise
            raise GitFailed(Trouble.DAMAGED, failed.said) from failed

    async def has(self, commit: str) -> bool:
        """True when a commit is here with everything that belongs to it."""
        if commit in self._here:
            return True
        name = f"{SEEN}{commit}^{{commit}}"
        status, _ = await self.ask("rev-parse", "--verify", "--quiet", name, fine=(0, 1))
        if status == 0:
            _remember(self._here, commit, True)
        return status == 0

    async def fetch(self, address: Address, environment: Environment, source: str) -> str:
        """Bring a ref or commit here from a remote, and return the commit that it is.

        Raises GitFailed; what was here before still is.
        """
        digest = hashlib.sha256(source.encode()).hexdigest()[:32]
        async with self.writing:
            await self._fetch(address, environment, f"+{source}:{TIPS}{digest}")
            name = f"{TIPS}{digest}^{{commit}}"
            status, out = await self.ask("rev-parse", "--verify", "--quiet", name, fine=(0, 1))
            if status:
                raise GitFailed(Trouble.NO_REVISION, "it is no commit")
            commit = out.decode().strip()
            await self.ask("update-ref", SEEN + commit, commit)
            _remember(self._here, commit, True)
            await self._tidy()
        return commit

    async def describe(self, commit: str) -> tuple[datetime, str, str]:
        """Return when a commit was made, and what it claims as its author and subject."""
        if commit in self._described:
            return self._described[commit]
        _, out = await self.ask(
            "log", "-1", "--no-show-signature", "--no-notes", "--format=%ct%x00%an%x00%s", commit,
            "--", limit=16 << 20,
        )  # fmt: skip
        seconds, author, subject = out.decode("utf-8", "replace").rstrip("\n").split("\0", 2)
        at = datetime.fromtimestamp(0, UTC)
        with suppress(ValueError, OverflowError, OSError):  # a commit may claim any time
            at = datetime.fromtimestamp(int(seconds), UTC)
        found = at, clean(author[:_TEXT]), clean(subject[:_TEXT])
        _remember(self._described, commit, found)
        return found

    async def ancestry(self, commit: str, known: str) -> Ancestry:
        """Say how a commit stands to another than itself; both must be here."""
        if (commit, known) not in self._standing:
            found = await self._ancestry(commit, known)
            _remember(self._standing, (commit, known), found)
        return self._standing[commit, known]

    def remembers(self, commit: str, known: str) -> bool:
        """True when it was found out before how two commits stand."""
        return (commit, known) in self._standing

    async def _ancestry(self, commit: str, known: str) -> Ancestry:
        if await self._descends(commit, known):
            return Ancestry.AHEAD
        if await self._descends(known, commit):
            return Ancestry.REWOUND
        status, _ = await self.ask("merge-base", known, commit, fine=(0, 1))
        return Ancestry.UNRELATED if status else Ancestry.DIVERGED

    async def holds(self, commit: str) -> bool:
        """True when a commit itself is here, by its own fetch or in another one's history."""
        _, out = await self.ask(
            "cat-file", "--batch-check", given=f"{commit}^{{commit}}\n".encode()
        )
        return out.startswith(f"{commit} commit ".encode())

    async def send(
        self, address: Address, environment: Environment, *, branch: str, expected: str, commit: str
    ) -> None:
        """Set a branch at a remote, if it still is where it was; an empty commit deletes it."""
        await self._git.run(
            "push", "--quiet", "--no-verify", f"--force-with-lease={branch}:{expected}", "--",
            address.url, f"{commit}:{branch}",
            environment=environment.having(GIT_DIR=str(self.path)),
            deadline=self.limits.fetch,
        )  # fmt: skip

    async def _descends(self, commit: str, older: str) -> bool:
        status, _ = await self.ask("merge-base", "--is-ancestor", older, commit, fine=(0, 1))
        return status == 0

    async def _fetch(self, address: Address, environment: Environment, refspec: str) -> None:
        running = asyncio.ensure_future(
            self._git.run(
                "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
                "--no-recurse-submodules", "--no-show-forced-updates", "--", address.url, refspec,
                environment=environment.having(GIT_DIR=str(self.path)),
                deadline=self.limits.fetch,
            )
        )  # fmt: skip
        try:
            done = False
            while not done:  # Git has no bound of its own for what it fetches
                done = bool((await asyncio.wait([running], timeout=0.25))[0])
                if await asyncio.to_thread(bytes_in, self.path) > self.limits.copy_bytes:
                    raise GitFailed(Trouble.TOO_MUCH, f"it passed {self.limits.copy_bytes} bytes")
            running.result()
        except GitFailed as failed:
            # The remote has just answered, so what it cannot be blamed for is ours.
            if failed.trouble in _UNCLEAR or str(self.path) in failed.said:
                raise GitFailed(Trouble.DAMAGED, failed.said) from failed
            raise
        finally:
            running.cancel()
            await asyncio.wait([running])
            if running.cancelled() or running.exception():
                await asyncio.to_thread(self._remove_scraps)

    def _remove_scraps(self) -> None:
        for scrap in (self.path / "objects").glob("*/tmp_*"):
            scrap.unlink(missing_ok=True)

    async def _tidy(self) -> None:
        objects = self.path / "objects"
        packs = len(list((objects / "pack").glob("*.pack")))
        loose = len(list((objects / "17").glob("*")))  # Git's own way of guessing
        if packs > _MANY_PACKS or loose > _MANY_LOOSE:
            with suppress(GitFailed):  # it is only slower without
                await self.ask("gc", "--quiet")


def _remember(facts: dict[K, V], name: K, found: V) -> None:
    if len(facts) >= _FACTS:
        facts.clear()
    facts[name] = found


def bytes_in(folder: Path) -> int:
    """Add up the sizes of all files below a folder, some of which may be going away."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total
