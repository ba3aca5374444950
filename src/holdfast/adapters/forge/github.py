"""GitHub's dialect, that of Enterprise Server included, and what Gitea took over from it.

A list says less than the pull request itself; who closed one is said by its issue; and drafts are
refused where the plan has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import quote

import msgspec

from holdfast.adapters.forge.pull_requests import PullDetails, safe_url
from holdfast.adapters.forge.transport import ForgeTransport
from holdfast.core.errors import ValidationError
from holdfast.reconcile.gitops.ports import NewPullRequest, PullRequest, PullRequestState

GITHUB_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}


class ForgeUser(msgspec.Struct):
    """A person or a robot."""

    login: str = ""


class ForgeComment(msgspec.Struct):
    """One comment."""

    body: str | None = None


class GitHubStyleDialect:
    """The paths below `/repos/OWNER/NAME` that Gitea took over from GitHub."""

    def __init__(self, transport: ForgeTransport, *, owner: str, repository: str) -> None:
        self._transport = transport
        self._path = f"/repos/{quote(owner, safe='')}/{quote(repository, safe='')}"
        self._pulls = f"{self._path}/pulls"

    async def edit_pull_request(self, number: int, *, title: str, body: str) -> None:
        """Change title and body."""
        changes = {"title": title, "body": body}
        await self._transport.send("PATCH", f"{self._pulls}/{number}", body=changes)

    async def close_pull_request(self, number: int) -> None:
        """Close it."""
        await self._transport.send("PATCH", f"{self._pulls}/{number}", body={"state": "closed"})

    async def add_comment(self, number: int, text: str) -> None:
        """Add a comment."""
        await self._transport.send("POST", self._issue(number, "comments"), body={"body": text})

    def escape_text(self, text: str) -> str:
        """Return the text: neither forge carries out anything that it reads."""
        return text

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    def _issue(self, number: int, part: str = "") -> str:
        return f"{self._path}/issues/{number}/{part}".rstrip("/")


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

    def __init__(self, transport: ForgeTransport, *, owner: str, repository: str) -> None:
        super().__init__(transport, owner=owner, repository=repository)
        self._owner = owner

    async def list_pull_requests(self, branch: str, *, is_open: bool) -> Sequence[PullDetails]:
        """Return those from a branch of this repository."""
        query = {
            "state": "open" if is_open else "closed",
            "sort": "created",
            "direction": "desc",
            "head": f"{self._owner}:{branch}",
        }
        # A filter that GitHub does not understand is ignored, and forks share an owner.
        return [
            _pull_details(pull)
            async for pull in self._transport.list_pages(self._pulls, list[_Pull], query=query)
            if pull.head.repo is not None
            and pull.head.repo == pull.base.repo
            and pull.head.ref == branch
        ]

    async def get_pull_request(self, number: int) -> PullDetails:
        """Return one, with who closed it."""
        pull = await self._transport.request("GET", f"{self._pulls}/{number}", _Pull)
        details = _pull_details(pull)
        if details.pull.state is PullRequestState.CLOSED:
            issue = await self._transport.request("GET", self._issue(number), _Issue)
            closer = issue.closed_by.login if issue.closed_by else ""
            return replace(details, pull=replace(details.pull, closed_by=closer))
        return details

    async def create_pull_request(self, new: NewPullRequest) -> int:
        """Open one, and return its number."""
        body = {
            "head": new.branch,
            "base": new.base,
            "title": new.title,
            "body": new.body,
            "draft": new.draft,
        }
        try:
            created = await self._transport.request("POST", self._pulls, _Pull, body=body)
        except ValidationError as refused:
            if not new.draft or "draft" not in str(refused).lower():
                raise
            body["draft"] = False
            created = await self._transport.request("POST", self._pulls, _Pull, body=body)
        return created.number

    async def list_comments(self, number: int) -> Sequence[str]:
        """Return the comments under it."""
        pages = self._transport.list_pages(self._issue(number, "comments"), list[ForgeComment])
        return [each.body or "" async for each in pages]

    async def add_labels(self, number: int, names: Sequence[str]) -> None:
        """Add labels; GitHub creates those that are missing."""
        body = {"labels": list(names)}
        await self._transport.send("POST", self._issue(number, "labels"), body=body)


def _pull_details(pull: _Pull) -> PullDetails:
    state = PullRequestState.OPEN if pull.state == "open" else PullRequestState.CLOSED
    if pull.merged_at:
        state = PullRequestState.MERGED
    return PullDetails(
        pull=PullRequest(
            number=pull.number,
            url=safe_url(pull.html_url),
            state=state,
            branch=pull.head.ref,
            base=pull.base.ref,
            title=pull.title,
            body=pull.body or "",
            head=pull.head.sha,
            mergeable=pull.mergeable if state is PullRequestState.OPEN else None,
            closed_by=pull.merged_by.login if pull.merged_by else "",
        ),
        labels=frozenset(each.name for each in pull.labels or ()),
    )
