"""Gitea's dialect, which is Forgejo's too.

Its lists cannot be filtered by branch; a draft is marked in its title; a label has to exist before
it is used; and `mergeable` is false also while Gitea still looks for conflicts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from holdfast.adapters.forge.github import ForgeComment, ForgeUser, GitHubStyleDialect
from holdfast.adapters.forge.pull_requests import PullDetails, fit_title, safe_url
from holdfast.adapters.forge.transport import ForgeTransport
from holdfast.core.errors import NotFound
from holdfast.reconcile.gitops.ports import NewPullRequest, PullRequest, PullRequestState
from holdfast.reconcile.ports import Clock

DRAFT_PREFIX = "WIP: "
LABEL_COLOR = "#5319e7"
MERGEABLE_POLLS = 4
POLL_INTERVAL = 0.5
"""Seconds between asking whether there are conflicts: a check takes less than one."""
_DRAFT_MARK = re.compile(r"(?i)^(?:WIP:|\[WIP\])\s*")


class _Label(msgspec.Struct):
    id: int
    name: str


class _Branch(msgspec.Struct):
    label: str = ""
    """The branch's name, also when it is gone and `ref` has become another."""
    sha: str = ""
    repo_id: int = 0


class _Pull(msgspec.Struct):
    number: int
    html_url: str
    state: str
    head: _Branch
    base: _Branch
    title: str = ""
    body: str | None = None
    labels: list[_Label] | None = None
    draft: bool = False
    merged: bool = False
    mergeable: bool | None = None
    merged_by: ForgeUser | None = None


class _Event(msgspec.Struct):
    type: str = ""
    user: ForgeUser | None = None


class GiteaDialect(GitHubStyleDialect):
    """One repository on Gitea or Forgejo."""

    name = "gitea"

    def __init__(
        self, transport: ForgeTransport, *, owner: str, repository: str, clock: Clock
    ) -> None:
        super().__init__(transport, owner=owner, repository=repository)
        self._clock = clock

    async def list_pull_requests(self, branch: str, *, is_open: bool) -> Sequence[PullDetails]:
        """Return those from a branch of this repository."""
        pages = self._transport.list_pages(
            self._pulls, list[_Pull], query={"state": "open" if is_open else "closed"}, size="limit"
        )
        return [
            _pull_details(pull, mergeable=True if pull.mergeable else None)
            async for pull in pages
            if pull.head.repo_id == pull.base.repo_id and pull.head.label == branch
        ]

    async def get_pull_request(self, number: int) -> PullDetails:
        """Return one, with who closed it, and asked until it is known whether it conflicts."""
        pull = await self._get(number)
        for _ in range(MERGEABLE_POLLS - 1):
            if pull.state != "open" or pull.draft or pull.mergeable:
                break
            await self._clock.sleep(POLL_INTERVAL)
            pull = await self._get(number)
        # A draft is never mergeable, whether it has conflicts or not.
        details = _pull_details(pull, mergeable=None if pull.draft else pull.mergeable)
        if details.pull.state is PullRequestState.CLOSED:
            closer = await self._find_closer(number)
            return replace(details, pull=replace(details.pull, closed_by=closer))
        return details

    async def create_pull_request(self, new: NewPullRequest) -> int:
        """Open one, and return its number."""
        body = {
            "head": new.branch,
            "base": new.base,
            "title": fit_title(new.title, DRAFT_PREFIX if new.draft else ""),
            "body": new.body,
        }
        return (await self._transport.request("POST", self._pulls, _Pull, body=body)).number

    async def list_comments(self, number: int) -> Sequence[str]:
        """Return the comments under it: this list has no pages."""
        await self._get(number)  # for a number that does not exist, Gitea's list says 500
        path = self._issue(number, "comments")
        comments = await self._transport.request("GET", path, list[ForgeComment])
        return [each.body or "" for each in comments]

    async def add_labels(self, number: int, names: Sequence[str]) -> None:
        """Add labels, creating those that are missing."""
        path = f"{self._path}/labels"
        pages = self._transport.list_pages(path, list[_Label], size="limit")
        ids = {label.name: label.id async for label in pages}
        for name in names:
            if name not in ids:
                body = {"name": name, "color": LABEL_COLOR}
                ids[name] = (await self._transport.request("POST", path, _Label, body=body)).id
        await self._transport.send(
            "POST", self._issue(number, "labels"), body={"labels": [ids[name] for name in names]}
        )

    async def _get(self, number: int) -> _Pull:
        return await self._transport.request("GET", f"{self._pulls}/{number}", _Pull)

    async def _find_closer(self, number: int) -> str:
        path = self._issue(number, "timeline")
        closer = ""
        try:
            async for event in self._transport.list_pages(path, list[_Event], size="limit"):
                if event.type == "close" and event.user is not None:
                    closer = event.user.login
        except NotFound:  # an older forge has no such list
            return ""
        return closer


def _pull_details(pull: _Pull, *, mergeable: bool | None) -> PullDetails:
    state = PullRequestState.OPEN if pull.state == "open" else PullRequestState.CLOSED
    if pull.merged:
        state = PullRequestState.MERGED
    mark = _DRAFT_MARK.match(pull.title) if pull.draft else None
    return PullDetails(
        pull=PullRequest(
            number=pull.number,
            url=safe_url(pull.html_url),
            state=state,
            branch=pull.head.label,
            base=pull.base.label,
            title=pull.title[mark.end() :] if mark else pull.title,
            body=pull.body or "",
            head=pull.head.sha,
            mergeable=mergeable if state is PullRequestState.OPEN else None,
            closed_by=pull.merged_by.login if pull.merged_by else "",
        ),
        labels=frozenset(each.name for each in pull.labels or ()),
        draft_prefix=mark.group() if mark else "",
    )
