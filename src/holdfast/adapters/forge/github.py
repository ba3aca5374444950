"""GitHub's way of speaking, that of Enterprise Server included.

A list tells less than the pull request itself; who closed one is told by its issue; and drafts
are refused where the plan has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from holdfast.adapters.forge.pull_requests import PullDetails, safe_url
from holdfast.adapters.forge.transport import ForgeTransport
from holdfast.core.errors import ValidationError
from holdfast.reconcile.gitops.ports import NewPullRequest, PullRequest, PullRequestState


class ForgeUser(msgspec.Struct):
    """A person or a robot."""

    login: str = ""


class ForgeComment(msgspec.Struct):
    """Something that was said."""

    body: str | None = None


class GitHubStyleDialect:
    """The part of a dialect that both speak."""

    def __init__(self, line: ForgeTransport, *, owner: str, repository: str) -> None:
        self._line = line
        self._path = f"/repos/{quote(owner, safe='')}/{quote(repository, safe='')}"

    async def edit(self, number: int, *, title: str, body: str) -> None:
        """Change title and body."""
        new = {"title": title, "body": body}
        await self._line.tell("PATCH", f"{self._path}/pulls/{number}", body=new)

    async def shut(self, number: int) -> None:
        """Close it."""
        await self._line.tell("PATCH", f"{self._path}/pulls/{number}", body={"state": "closed"})

    async def say(self, number: int, text: str) -> None:
        """Add a comment."""
        await self._line.tell("POST", self._comments(number), body={"body": text})

    def spelled(self, text: str) -> str:
        """Return the text: neither carries out anything that it reads."""
        return text

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._line.aclose()

    def _comments(self, number: int) -> str:
        return f"{self._path}/issues/{number}/comments"


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
    merged_by: ForgeUser | None = None


class _Issue(msgspec.Struct):
    closed_by: ForgeUser | None = None


class GitHubDialect(GitHubStyleDialect):
    """One repository on GitHub."""

    name = "github"

    def __init__(self, line: ForgeTransport, *, owner: str, repository: str) -> None:
        super().__init__(line, owner=owner, repository=repository)
        self._owner = owner

    async def listed(self, branch: str, *, opened: bool) -> Sequence[PullDetails]:
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
                found.append(_pull_details(each))
        return sorted(found, key=lambda seen: seen.pull.number, reverse=True)

    async def whole(self, number: int) -> PullDetails:
        """Return one, with who closed it."""
        seen = _pull_details(await self._line.ask("GET", f"{self._path}/pulls/{number}", _Pull))
        if seen.pull.state is PullRequestState.CLOSED:
            issue = await self._line.ask("GET", f"{self._path}/issues/{number}", _Issue)
            return seen.closed_by(issue.closed_by.login if issue.closed_by else "")
        return seen

    async def create(self, new: NewPullRequest) -> int:
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
        found = self._line.pages(self._comments(number), list[ForgeComment])
        return [each.body or "" async for each in found]

    async def label(self, number: int, names: Sequence[str]) -> None:
        """Add labels; GitHub makes those that are missing."""
        path = f"{self._path}/issues/{number}/labels"
        await self._line.tell("POST", path, body={"labels": list(names)})


def _pull_details(got: _Pull) -> PullDetails:
    state = PullRequestState.OPEN if got.state == "open" else PullRequestState.CLOSED
    if got.merged_at:
        state = PullRequestState.MERGED
    return PullDetails(
        pull=PullRequest(
            number=got.number,
            url=safe_url(got.html_url),
            state=state,
            branch=got.head.ref,
            base=got.base.ref,
            title=got.title,
            body=got.body or "",
            head=got.head.sha,
            mergeable=got.mergeable if state is PullRequestState.OPEN else None,
            closed_by=got.merged_by.login if got.merged_by else "",
        ),
        labels=frozenset(each.name for each in got.labels or ()),
    )
