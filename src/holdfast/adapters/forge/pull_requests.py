"""What may be written on a forge: lengths, drafts and equality of text. Pure."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from holdfast.core.errors import (
    ApiError,
    Conflict,
    NotFound,
    PermissionDenied,
    TargetUnavailable,
    ValidationError,
)
from holdfast.reconcile.gitops.ports import NewPullRequest, PullRequest, PullRequestState

MAX_BODY = 65_536
"""GitHub's limit, in characters. The others allow more, and nobody reads more."""
MAX_TITLE = 120
"""All take 255, but Gitea counts most characters beyond ASCII twice and cuts by itself."""
TRUNCATION_NOTE = "\n\n_This text was too long for a pull request and ends here._\n"
_HIDDEN_MARKER = re.compile(r"<!--[^\n]*?-->")
_SLASH_COMMAND = re.compile(r"(?m)^(\s*)/(?=[A-Za-z])")


def fit_body(text: str) -> str:
    """Shorten a body to what every forge takes, with a note, keeping its hidden markers.

    What a later pass finds a pull request by must not be what is cut off.
    """
    if len(text) <= MAX_BODY:
        return text
    kept = text[:MAX_BODY]
    markers = [each for each in _HIDDEN_MARKER.findall(text[-4096:]) if each not in kept]
    end = TRUNCATION_NOTE + "".join(f"\n{each}" for each in markers)
    cut = text[: MAX_BODY - len(end)]
    whole_lines = cut.rpartition("\n")[0] or cut
    return whole_lines + end


def fit_title(text: str, prefix: str = "") -> str:
    """Make a title one line, not too long, with a forge's mark of a draft before it."""
    line = " ".join(text.split())
    return prefix + (line if len(line) <= MAX_TITLE else line[: MAX_TITLE - 1] + "…")


def is_same_text(ours: str, theirs: str) -> bool:
    """True when a forge shows our text, whatever it made of its line ends."""
    return _normalize_text(ours) == _normalize_text(theirs)


def escape_commands(text: str) -> str:
    """Take the effect from lines that GitLab would carry out, such as `/merge`.

    Text of ours quotes what others wrote into the cluster.
    """
    return _SLASH_COMMAND.sub(r"\1\\/", text)


def safe_url(url: str) -> str:
    """Return an address that is safe to link to; empty for any other."""
    return url if url.startswith(("https://", "http://")) else ""


def _normalize_text(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


_LOG = logging.getLogger("holdfast.forge")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullDetails:
    """A pull request with what only its own forge needs to know of it."""

    pull: PullRequest
    """Its title is without the mark of a draft."""
    labels: frozenset[str]
    prefix: str = ""
    """The mark of a draft that stands before the title, where drafts are marked so."""

    def closed_by(self, name: str) -> PullDetails:
        """Return the same, with who closed it."""
        return replace(self, pull=replace(self.pull, closed_by=name))


class ForgeDialect(Protocol):
    """What differs from forge to forge. Errors are those of the `Forge` port."""

    name: str

    async def listed(self, branch: str, *, opened: bool) -> Sequence[PullDetails]:
        """Return those from a branch of this repository, newest first: the open or the others."""

    async def whole(self, number: int) -> PullDetails:
        """Return one with everything that the forge tells of it."""

    async def create(self, new: NewPullRequest) -> int:
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


class PullRequestClient:
    """The `Forge` port over one dialect."""

    def __init__(self, dialect: ForgeDialect) -> None:
        self._dialect = dialect
        self.name = dialect.name

    async def find(self, branch: str) -> PullRequest | None:
        """Return the newest from a branch, open ones first; see the port."""
        for opened in (True, False):
            if found := await self._dialect.listed(branch, opened=opened):
                return await self.get(found[0].pull.number)
        return None

    async def get(self, number: int) -> PullRequest:
        """Return one by its number; see the port."""
        return (await self._dialect.whole(number)).pull

    async def past(self, branch: str) -> Sequence[PullRequest]:
        """Return what is over; see the port."""
        return [seen.pull for seen in await self._dialect.listed(branch, opened=False)]

    async def open(self, new: NewPullRequest) -> PullRequest:
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

    async def update(self, number: int, *, title: str, body: str) -> PullRequest:
        """Change title and body; see the port."""
        seen = await self._dialect.whole(number)
        wanted = fit_title(title, seen.prefix)
        text = self._fitted(body)
        if is_same_text(wanted, seen.prefix + seen.pull.title) and is_same_text(
            text, seen.pull.body
        ):
            return seen.pull
        await self._dialect.edit(number, title=wanted, body=text)
        return await self.get(number)

    async def comment(self, number: int, body: str) -> None:
        """Say something once; see the port."""
        text = self._fitted(body)
        if not any(is_same_text(text, each) for each in await self._dialect.comments(number)):
            await self._dialect.say(number, text)

    async def close(self, number: int, *, comment: str = "") -> PullRequest:
        """Close it without merging; see the port."""
        seen = await self._dialect.whole(number)
        if seen.pull.state is not PullRequestState.OPEN:
            return seen.pull
        if comment:
            await self.comment(number, comment)
        try:
            await self._dialect.shut(number)
        except (Conflict, ValidationError, ApiError, TargetUnavailable):
            # Merged or closed a moment ago, by another or by us; Gitea answers 500 then.
            seen = await self._dialect.whole(number)
            if seen.pull.state is PullRequestState.OPEN:
                raise
            return seen.pull
        return await self.get(number)

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._dialect.aclose()

    async def _opened(self, new: NewPullRequest) -> PullDetails | None:
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
