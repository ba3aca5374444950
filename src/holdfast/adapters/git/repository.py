"""One remote repository for one credential: the port `Repository` over the git program."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.git.bare import Bare
from holdfast.adapters.git.commits import Standing, check, made, standing
from holdfast.adapters.git.copy import Copy
from holdfast.adapters.git.environment import Environment, online
from holdfast.adapters.git.files import write_files
from holdfast.adapters.git.revision import (
    Revision,
    checked_branch,
    checked_commit,
    parse_revision,
)
from holdfast.adapters.git.trouble import GitFailed, Trouble, unavailable
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    Conflict,
    HoldfastError,
    PermissionDenied,
)
from holdfast.core.gitops.pull_text import PREFIX
from holdfast.core.gitops.source import Ancestry, Commit
from holdfast.core.redact import quoted
from holdfast.reconcile.gitops.ports import Credential, Export, HumanCommits, Push

_UNDECIDED = frozenset(
    {Trouble.LATE, Trouble.CONNECTION, Trouble.SERVER, Trouble.OTHER, Trouble.DAMAGED}
)
"""After these a push may have arrived all the same."""


@dataclass(frozen=True, slots=True)
class _Tip:
    """What to fetch, and the commit it is at, where the remote has said so."""

    source: str
    commit: str


class GitRepository:
    """One remote repository. Shares its copy with every other credential for the same address."""

    def __init__(
        self,
        copy: Copy,
        credential: Credential,
        *,
        ssh: str,
        make_room: Callable[[Copy], Awaitable[None]],
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
            checked_commit(known)
        with self._told(f"revision {quoted(revision)}"):
            tip = await self._ask(asked, age)
            found = await self._copy.sound(lambda bare: self._read(bare, tip, known))
        if self._copy.grown:
            self._copy.grown = False
            await self._make_room(self._copy)
        return found

    @asynccontextmanager
    async def export(self, commit: str) -> AsyncIterator[Export]:
        """See the port. A commit that is not here is asked for, by its id."""
        checked_commit(commit)

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
        name = checked_branch(branch)
        with self._told(f"branch {quoted(branch)}"):
            return (await self._listed(name)).get(name)

    async def push(self, push: Push) -> str:
        """See the port. Also raises ValidationError for what no commit can be made of, and
        PermissionDenied when the remote declines the branch."""
        name = checked_branch(push.branch)
        checked_commit(push.base)
        check(push)
        with self._told(f"branch {quoted(push.branch)}"):
            return await self._copy.sound(lambda bare: self._push(bare, name, push))

    async def delete(self, branch: str) -> bool:
        """See the port. Also raises PermissionDenied when the remote declines."""
        name = checked_branch(branch)
        with self._told(f"branch {quoted(branch)}"):
            return await self._copy.sound(lambda bare: self._delete(bare, name))

    async def _ask(self, asked: Revision, age: float) -> _Tip:
        peeled = [f"{name}^{{}}" for name in asked.names]
        # Of a commit only: may we read this repository at all?
        names = ("HEAD",) if asked.commit else (*asked.names, *peeled)
        there = await self._copy.answers.get(
            self._credential, names, lambda: self._listed(*names), age=age
        )
        if asked.commit:
            return _Tip(asked.commit, asked.commit)
        found = [name for name in asked.names if name in there]
        if not found:
            raise GitFailed(Trouble.NO_REVISION)
        if len(found) > 1:
            raise GitFailed(
                Trouble.NO_REVISION,
                "it is a branch and a tag; write refs/heads/… or refs/tags/… to say which",
            )
        return _Tip(found[0], there.get(f"{found[0]}^{{}}", there[found[0]]))

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
            raise GitFailed(Trouble.OTHER, "its commits have ids of another kind than SHA-1")
        return found

    async def _arrived(self, bare: Bare, tip: _Tip) -> str:
        """Return the commit of a tip, which is then here."""
        if await bare.has(tip.commit):
            return tip.commit

        async def fetch() -> str:
            with self._online() as environment:
                return await bare.fetch(self._address, environment, tip.source)

        return await self._copy.arrival(bare, tip.source, self._credential, fetch)

    async def _read(self, bare: Bare, tip: _Tip, known: str | None) -> Commit:
        commit = await self._arrived(bare, tip)
        at, author, subject = await bare.describe(commit)
        ancestry = Ancestry.FIRST
        if known is not None:
            ancestry = await self._ancestry(bare, commit, known)
        return Commit(sha=commit, at=at, author=author, subject=subject, ancestry=ancestry)

    async def _ancestry(self, bare: Bare, commit: str, known: str) -> Ancestry:
        if commit == known:
            return Ancestry.SAME
        if not bare.remembers(commit, known) and not await bare.holds(known):
            try:
                await self._arrived(bare, _Tip(known, known))
            except GitFailed as failed:
                if failed.trouble is not Trouble.NO_REVISION:
                    raise
                # Not in the history of what is there now, and the remote has lost it: the most
                # careful word for a past that nobody can look up.
                return Ancestry.UNRELATED
        return await bare.ancestry(commit, known)

    async def _write(self, bare: Bare, commit: str, folder: Path) -> Mapping[str, str]:
        await self._arrived(bare, _Tip(commit, commit))
        return await write_files(bare, commit, folder)

    async def _push(self, bare: Bare, name: str, push: Push) -> str:
        await self._arrived(bare, _Tip(push.base, push.base))
        commit = await made(bare, push)
        there = (await self._listed(name)).get(name, "")
        if there == commit:
            return commit
        if there and not await self._taken_in(bare, push.base, _Tip(name, there)):
            before = await self._ours(bare, name, there)
            wanted = await standing(bare, commit)
            if (before.tree, before.parents) == (wanted.tree, wanted.parents):
                return there
        await self._send(bare, name, expected=there, commit=commit)
        return commit

    async def _delete(self, bare: Bare, name: str) -> bool:
        there = (await self._listed(name)).get(name)
        if there is None:
            return False
        await self._ours(bare, name, there)
        await self._send(bare, name, expected=there, commit="")
        return True

    async def _taken_in(self, bare: Bare, base: str, tip: _Tip) -> bool:
        """True when all of a branch of ours is in the base already: nobody's work can be lost."""
        if not tip.source.startswith(f"refs/heads/{PREFIX}"):
            return False
        if await self._arrived(bare, tip) != tip.commit:
            raise self._moved(tip.source)
        return await bare.ancestry(base, tip.commit) in (Ancestry.SAME, Ancestry.AHEAD)

    async def _ours(self, bare: Bare, name: str, there: str) -> Standing:
        """Look at what a branch has, and raise unless it is one commit of ours."""
        arrived = await self._arrived(bare, _Tip(name, there))
        if arrived != there:
            raise self._moved(name)
        found = await standing(bare, there)
        if not found.ours or len(found.parents) != 1:
            raise HumanCommits(
                f"Branch {name} of {self._address} has commit {there[:12]}, which Holdfast did "
                "not make.",
                todo="Merge or delete the branch; Holdfast does not write it any more.",
            )
        return found

    async def _send(self, bare: Bare, name: str, *, expected: str, commit: str) -> None:
        try:
            async with bare.writing:
                with self._online() as environment:
                    await bare.send(
                        self._address, environment, branch=name, expected=expected, commit=commit
                    )
        except GitFailed as failed:
            if failed.trouble in _UNDECIDED and await self._sent(name, commit):
                return
            raise self._unsent(failed, name) from failed

    async def _sent(self, name: str, commit: str) -> bool:
        """Find out whether a push that failed has arrived; False when that is unknown too."""
        try:
            return (await self._listed(name)).get(name, "") == commit
        except GitFailed:
            return False

    def _unsent(self, failed: GitFailed, name: str) -> HoldfastError:
        match failed.trouble:
            case Trouble.MOVED_MEANWHILE:
                return self._moved(name)
            case Trouble.DECLINED | Trouble.FORBIDDEN:
                return PermissionDenied(
                    f"{self._address} declined the branch {name}. Git said: {failed.said[:300]}.",
                    reason="branch_declined",
                    todo="Let the credential write branches that begin with holdfast/.",
                )
            case _:
                undecided = failed.trouble in _UNDECIDED
                return unavailable(
                    failed,
                    self._address,
                    f"branch {name}",
                    changed=OUTCOME_UNKNOWN if undecided else NOTHING_CHANGED,
                )

    def _moved(self, name: str) -> Conflict:
        return Conflict(
            f"Branch {name} of {self._address} moved while it was written.",
            todo="It is looked at again in the next round.",
        )

    @contextmanager
    def _online(self) -> Iterator[Environment]:
        with online(
            self._copy.home, self._address, self._credential, ssh=self._ssh, pinned=self._pinned
        ) as environment:
            yield environment

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except GitFailed as failed:
            raise unavailable(failed, self._address, what) from failed
        except OSError as error:  # of our own files, beside those that Git writes
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            trouble = Trouble.NO_SPACE if full else Trouble.OTHER
            said = os.strerror(error.errno or 0)
            raise unavailable(GitFailed(trouble, said), self._address, what) from error
