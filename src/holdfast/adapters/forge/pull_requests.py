"""Pull requests as the `Forge` port has them: what is the same on every forge.

Nothing is remembered. A response that was lost is made up for by looking first, so every call may
be repeated.
"""

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
_LOG = logging.getLogger("holdfast.forge")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullDetails:
    """A pull request with what only its own forge needs to know of it."""

    pull: PullRequest
    """Its title is without the prefix of a draft."""
    labels: frozenset[str]
    draft_prefix: str = ""
    """What stands before the title of a draft, where drafts are marked so."""


class ForgeDialect(Protocol):
    """What differs from forge to forge. Errors are those of the `Forge` port."""

    name: str

    async def list_pull_requests(self, branch: str, *, is_open: bool) -> Sequence[PullDetails]:
        """Return those from a branch of this repository, either the open or the other ones."""

    async def get_pull_request(self, number: int) -> PullDetails:
        """Return one with everything that the forge says about it."""

    async def create_pull_request(self, new: NewPullRequest) -> int:
        """Open one, and return its number. Raises Conflict or ValidationError when one is open."""

    async def edit_pull_request(self, number: int, *, title: str, body: str) -> None:
        """Change title and body."""

    async def close_pull_request(self, number: int) -> None:
        """Close it."""

    async def list_comments(self, number: int) -> Sequence[str]:
        """Return the comments under it."""

    async def add_comment(self, number: int, text: str) -> None:
        """Add a comment."""

    async def add_labels(self, number: int, names: Sequence[str]) -> None:
        """Add labels, creating those that are missing."""

    def escape_text(self, text: str) -> str:
        """Return a text as it has to be written so that it is only text."""

    async def aclose(self) -> None:
        """Close the connections."""


class PullRequestClient:
    """The `Forge` port over one dialect."""

    def __init__(self, dialect: ForgeDialect) -> None:
        self._dialect = dialect
        self.name = dialect.name

    async def find(self, branch: str) -> PullRequest | None:
        """Return the newest from a branch, open ones first; see the port."""
        for is_open in (True, False):
            if found := await self._list(branch, is_open=is_open):
                return await self.get(found[0].pull.number)
        return None

    async def get(self, number: int) -> PullRequest:
        """Return one by its number; see the port."""
        return (await self._dialect.get_pull_request(number)).pull

    async def past(self, branch: str) -> Sequence[PullRequest]:
        """Return what is over; see the port."""
        return [each.pull for each in await self._list(branch, is_open=False)]

    async def open(self, new: NewPullRequest) -> PullRequest:
        """Open one, or return the open one; see the port."""
        details = await self._find_open(new)
        if details is None:
            title, body = fit_title(new.title), self._fit_body(new.body)
            try:
                number = await self._dialect.create_pull_request(
                    replace(new, title=title, body=body)
                )
            except (Conflict, ValidationError):
                details = await self._find_open(new)  # another was faster, or we were before
                if details is None:
                    raise
            else:
                details = await self._find_open(new) or await self._dialect.get_pull_request(number)
        # Those that a person took off again stay off: it had at least one of them then.
        if new.labels and not details.labels & set(new.labels):
            await self._add_labels(details.pull.number, new.labels)
        return details.pull

    async def update(self, number: int, *, title: str, body: str) -> PullRequest:
        """Change title and body; see the port."""
        details = await self._dialect.get_pull_request(number)
        prefix, pull = details.draft_prefix, details.pull
        title, body = fit_title(title, prefix), self._fit_body(body)
        if is_same_text(title, prefix + pull.title) and is_same_text(body, pull.body):
            return pull
        await self._dialect.edit_pull_request(number, title=title, body=body)
        return await self.get(number)

    async def comment(self, number: int, body: str) -> None:
        """Add a comment once; see the port."""
        text = self._fit_body(body)
        comments = await self._dialect.list_comments(number)
        if not any(is_same_text(text, each) for each in comments):
            await self._dialect.add_comment(number, text)

    async def close(self, number: int, *, comment: str = "") -> PullRequest:
        """Close it without merging; see the port."""
        pull = await self.get(number)
        if pull.state is not PullRequestState.OPEN:
            return pull
        if comment:
            await self.comment(number, comment)
        try:
            await self._dialect.close_pull_request(number)
        except (Conflict, ValidationError, ApiError, TargetUnavailable):
            # Merged or closed a moment ago, by another or by us; Gitea answers 500 then.
            pull = await self.get(number)
            if pull.state is PullRequestState.OPEN:
                raise
            return pull
        return await self.get(number)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._dialect.aclose()

    async def _list(self, branch: str, *, is_open: bool) -> Sequence[PullDetails]:
        """Return the pull requests of a branch, newest first."""
        found = await self._dialect.list_pull_requests(branch, is_open=is_open)
        return sorted(found, key=lambda each: each.pull.number, reverse=True)

    async def _find_open(self, new: NewPullRequest) -> PullDetails | None:
        """Return the open one of a branch, the one to the same base where there are more.

        Gitea lets two callers open one each at the same moment: the first stays, and whoever
        sees the others closes them.
        """
        found = await self._list(new.branch, is_open=True)
        same_base = [each for each in found if each.pull.base == new.base]
        for each in same_base[:-1]:
            await self.close(each.pull.number)
        first = (same_base or found)[-1:]
        return await self._dialect.get_pull_request(first[0].pull.number) if first else None

    async def _add_labels(self, number: int, names: Sequence[str]) -> None:
        """Add labels where that is allowed: a pull request without them is still one."""
        try:
            await self._dialect.add_labels(number, names)
        except (PermissionDenied, NotFound, ValidationError, Conflict) as error:
            _LOG.warning(
                "pull-request-without-labels",
                extra={"forge": self.name, "number": number, "reason": str(error)},
            )

    def _fit_body(self, body: str) -> str:
        return fit_body(self._dialect.escape_text(body))


def fit_body(text: str) -> str:
    """Shorten a body to what every forge takes, with a note, keeping its hidden markers.

    What a later pass finds a pull request by must not be what is cut off.
    """
    if len(text) <= MAX_BODY:
        return text
    markers = [each for each in _HIDDEN_MARKER.findall(text[-4096:]) if each not in text[:MAX_BODY]]
    end = TRUNCATION_NOTE + "".join(f"\n{each}" for each in markers)
    cut = text[: MAX_BODY - len(end)]
    return (cut.rpartition("\n")[0] or cut) + end


def fit_title(text: str, prefix: str = "") -> str:
    """Make a title one line, not too long, with a forge's prefix of a draft before it."""
    line = " ".join(text.split())
    return prefix + (line if len(line) <= MAX_TITLE else line[: MAX_TITLE - 1] + "…")


def is_same_text(ours: str, theirs: str) -> bool:
    """True when a forge shows our text, whatever it made of its line ends."""

    def normalize(text: str) -> list[str]:
        return [line.rstrip() for line in text.strip().splitlines()]

    return normalize(ours) == normalize(theirs)


def safe_url(url: str) -> str:
    """Return a URL that is safe to link to; empty for any other."""
    return url if url.startswith(("https://", "http://")) else ""
