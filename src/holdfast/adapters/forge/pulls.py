"""Pull requests as the `Forge` port has them: what is the same on every forge.

Nothing here remembers anything. An answer that was lost is made up for by looking first, so
every call may be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from holdfast.adapters.forge.text import fit_body, fit_title, same
from holdfast.core.errors import (
    ApiError,
    Conflict,
    NotFound,
    PermissionDenied,
    TargetUnavailable,
    ValidationError,
)
from holdfast.reconcile.gitops.ports import NewPull, Pull, PullState

_LOG = logging.getLogger("holdfast.forge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A pull request with what only its own forge needs to know of it."""

    pull: Pull
    """Its title is without the mark of a draft."""
    labels: frozenset[str]
    prefix: str = ""
    """The mark of a draft that stands before the title, where drafts are marked so."""

    def closed_by(self, name: str) -> Seen:
        """Return the same, with who closed it."""
        return replace(self, pull=replace(self.pull, closed_by=name))


class Dialect(Protocol):
    """What differs from forge to forge. Errors are those of the `Forge` port."""

    name: str

    async def listed(self, branch: str, *, opened: bool) -> Sequence[Seen]:
        """Return those from a branch of this repository, newest first: the open or the others."""

    async def whole(self, number: int) -> Seen:
        """Return one with everything that the forge tells of it."""

    async def create(self, new: NewPull) -> int:
        """Open one, and return its number. Raises Conflict or ValidationError when one is open."""

    async def edit(self, number: int, *, title: str, body: str) -> None:
        """Change title and body."""

    async def shut(self, number: int) -> None:
        """Close it."""

    async def comments(self, number: int) -> Sequence[str]:
        """Return what was said under it."""

    async def say(self, number: int, text: str) -> None:
        """Add a comment."""

    async def label(self, number: int, names: Sequence[str]) -> None:
        """Add labels, making those that are missing."""

    def spelled(self, text: str) -> str:
        """Return a text as it has to be written so that it is only text."""

    async def aclose(self) -> None:
        """Let go of the connection."""


class PullRequests:
    """The `Forge` port over one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.name = dialect.name

    async def find(self, branch: str) -> Pull | None:
        """Return the newest from a branch, open ones first; see the port."""
        for opened in (True, False):
            if found := await self._dialect.listed(branch, opened=opened):
                return await self.get(found[0].pull.number)
        return None

    async def get(self, number: int) -> Pull:
        """Return one by its number; see the port."""
        return (await self._dialect.whole(number)).pull

    async def past(self, branch: str) -> Sequence[Pull]:
        """Return what is over; see the port."""
        return [seen.pull for seen in await self._dialect.listed(branch, opened=False)]

    async def open(self, new: NewPull) -> Pull:
        """Open one, or return the open one; see the port."""
        seen = await self._opened(new)
        if seen is None:
            try:
                number = await self._dialect.create(
                    replace(new, title=fit_title(new.title), body=self._fitted(new.body))
                )
            except (Conflict, ValidationError):
                seen = await self._opened(new)  # another was faster, or we were before
                if seen is None:
                    raise
            else:
                seen = await self._opened(new) or await self._dialect.whole(number)
        # Those that a person took off again stay off: it had at least one of them then.
        if new.labels and not seen.labels & set(new.labels):
            await self._label(seen.pull.number, new.labels)
        return seen.pull

    async def update(self, number: int, *, title: str, body: str) -> Pull:
        """Change title and body; see the port."""
        seen = await self._dialect.whole(number)
        wanted = fit_title(title, seen.prefix)
        text = self._fitted(body)
        if same(wanted, seen.prefix + seen.pull.title) and same(text, seen.pull.body):
            return seen.pull
        await self._dialect.edit(number, title=wanted, body=text)
        return await self.get(number)

    async def comment(self, number: int, body: str) -> None:
        """Say something once; see the port."""
        text = self._fitted(body)
        if not any(same(text, each) for each in await self._dialect.comments(number)):
            await self._dialect.say(number, text)

    async def close(self, number: int, *, comment: str = "") -> Pull:
        """Close it without merging; see the port."""
        seen = await self._dialect.whole(number)
        if seen.pull.state is not PullState.OPEN:
            return seen.pull
        if comment:
            await self.comment(number, comment)
        try:
            await self._dialect.shut(number)
        except (Conflict, ValidationError, ApiError, TargetUnavailable):
            # Merged or closed a moment ago, by another or by us; Gitea answers 500 then.
            seen = await self._dialect.whole(number)
            if seen.pull.state is PullState.OPEN:
                raise
            return seen.pull
        return await self.get(number)

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._dialect.aclose()

    async def _opened(self, new: NewPull) -> Seen | None:
        """Return the open one of a branch, the one to the same base where there are more.

        Gitea lets two callers open one each at the same moment: the first stands, and whoever
        sees the others closes them.
        """
        found = await self._dialect.listed(new.branch, opened=True)
        same_base = [seen for seen in found if seen.pull.base == new.base]
        for seen in same_base[:-1]:
            await self.close(seen.pull.number)
        first = (same_base or found)[-1:]
        return await self._dialect.whole(first[0].pull.number) if first else None

    async def _label(self, number: int, names: Sequence[str]) -> None:
        """Add labels where that is allowed: a pull request without them is still one."""
        try:
            await self._dialect.label(number, names)
        except (PermissionDenied, NotFound, ValidationError, Conflict) as error:
            _LOG.warning(
                "pull-request-without-labels",
                extra={"forge": self.name, "number": number, "reason": str(error)},
            )

    def _fitted(self, body: str) -> str:
        return fit_body(self._dialect.spelled(body))
