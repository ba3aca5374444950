"""GitHub's way of speaking, that of Enterprise Server included.

A list tells less than the pull request itself; who closed one is told by its issue; and drafts
are refused where the plan has none.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.adapters.forge.line import Line
from holdfast.adapters.forge.pulls import Seen
from holdfast.adapters.forge.repos import Comment, ReposDialect, User
from holdfast.adapters.forge.text import web_address
from holdfast.core.errors import ValidationError
from holdfast.reconcile.gitops.ports import NewPull, Pull, PullState

ACCEPT = "application/vnd.github+json"
HEADERS = {"X-GitHub-Api-Version": "2022-11-28"}


class _Label(msgspec.Struct):
    name: str = ""


class _Repository(msgspec.Struct):
    id: int


class _Branch(msgspec.Struct):
    ref: str
    sha: str = ""
    repo: _Repository | None = None
    """None when the fork that it was in is gone."""


class _Pull(msgspec.Struct):
    number: int
    html_url: str
    state: str
    head: _Branch
    base: _Branch
    title: str = ""
    body: str | None = None
    labels: list[_Label] | None = None
    merged_at: str | None = None
    mergeable: bool | None = None
    merged_by: User | None = None


class _Issue(msgspec.Struct):
    closed_by: User | None = None


class GitHubDialect(ReposDialect):
    """One repository on GitHub."""

    name = "github"

    def __init__(self, line: Line, *, owner: str, repository: str) -> None:
        super().__init__(line, owner=owner, repository=repository)
        self._owner = owner

    async def listed(self, branch: str, *, opened: bool) -> Sequence[Seen]:
        """Return those from a branch of this repository, newest first."""
        query = {
            "state": "open" if opened else "closed",
            "sort": "created",
            "direction": "desc",
            "head": f"{self._owner}:{branch}",
        }
        found = []
        async for each in self._line.pages(f"{self._path}/pulls", list[_Pull], query=query):
            # A filter that GitHub does not understand is ignored, and forks share an owner.
            own = each.head.repo is not None and each.head.repo == each.base.repo
            if own and each.head.ref == branch:
                found.append(_seen(each))
        return sorted(found, key=lambda seen: seen.pull.number, reverse=True)

    async def whole(self, number: int) -> Seen:
        """Return one, with who closed it."""
        seen = _seen(await self._line.ask("GET", f"{self._path}/pulls/{number}", _Pull))
        if seen.pull.state is PullState.CLOSED:
            issue = await self._line.ask("GET", f"{self._path}/issues/{number}", _Issue)
            return seen.closed_by(issue.closed_by.login if issue.closed_by else "")
        return seen

    async def create(self, new: NewPull) -> int:
        """Open one, and return its number."""
        body = {
            "head": new.branch,
            "base": new.base,
            "title": new.title,
            "body": new.body,
            "draft": new.draft,
        }
        try:
            made = await self._line.ask("POST", f"{self._path}/pulls", _Pull, body=body)
        except ValidationError as refused:
            if not new.draft or "draft" not in str(refused).lower():
                raise
            body["draft"] = False
            made = await self._line.ask("POST", f"{self._path}/pulls", _Pull, body=body)
        return made.number

    async def comments(self, number: int) -> Sequence[str]:
        """Return what was said under it."""
        found = self._line.pages(self._comments(number), list[Comment])
        return [each.body or "" async for each in found]

    async def label(self, number: int, names: Sequence[str]) -> None:
        """Add labels; GitHub makes those that are missing."""
        path = f"{self._path}/issues/{number}/labels"
        await self._line.tell("POST", path, body={"labels": list(names)})


def _seen(got: _Pull) -> Seen:
    state = PullState.OPEN if got.state == "open" else PullState.CLOSED
    if got.merged_at:
        state = PullState.MERGED
    return Seen(
        pull=Pull(
            number=got.number,
            url=web_address(got.html_url),
            state=state,
            branch=got.head.ref,
            base=got.base.ref,
            title=got.title,
            body=got.body or "",
            head=got.head.sha,
            mergeable=got.mergeable if state is PullState.OPEN else None,
            closed_by=got.merged_by.login if got.merged_by else "",
        ),
        labels=frozenset(each.name for each in got.labels or ()),
    )
