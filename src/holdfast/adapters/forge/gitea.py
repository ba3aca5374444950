"""Gitea's way of speaking, which is Forgejo's too.

Its lists cannot be asked for a branch; a draft is told by its title; a label is made before it is
used; and `mergeable` is false also while Gitea still looks for conflicts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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

    def __init__(self, line: ForgeTransport, *, owner: str, repository: str, clock: Clock) -> None:
        super().__init__(line, owner=owner, repository=repository)
        self._clock = clock

    async def listed(self, branch: str, *, opened: bool) -> Sequence[PullDetails]:
        """Return those from a branch of this repository, newest first."""
        query = {"state": "open" if opened else "closed"}
        found = []
        async for each in self._line.pages(
            f"{self._path}/pulls", list[_Pull], query=query, size="limit"
        ):
            if each.head.repo_id == each.base.repo_id and each.head.label == branch:
                found.append(_pull_details(each, mergeable=True if each.mergeable else None))
        return sorted(found, key=lambda seen: seen.pull.number, reverse=True)

    async def whole(self, number: int) -> PullDetails:
        """Return one, with who closed it, and asked until it is known whether it conflicts."""
        for left in reversed(range(MERGEABLE_POLLS)):
            got = await self._get(number)
            checked = got.state != "open" or got.draft or got.mergeable
            if checked or not left:
                break
            await self._clock.sleep(POLL_INTERVAL)
        # Of a draft nothing is told: it is not mergeable for being one.
        seen = _pull_details(got, mergeable=None if got.draft else got.mergeable)
        if seen.pull.state is PullRequestState.CLOSED:
            return seen.closed_by(await self._closer(number))
        return seen

    async def create(self, new: NewPullRequest) -> int:
        """Open one, and return its number."""
        body = {
            "head": new.branch,
            "base": new.base,
            "title": fit_title(new.title, DRAFT_PREFIX if new.draft else ""),
            "body": new.body,
        }
        return (await self._line.ask("POST", f"{self._path}/pulls", _Pull, body=body)).number

    async def comments(self, number: int) -> Sequence[str]:
        """Return what was said under it: this list comes whole."""
        await self._get(number)  # of a number that is not there, Gitea's list says 500
        found = await self._line.ask("GET", self._comments(number), list[ForgeComment])
        return [each.body or "" for each in found]

    async def label(self, number: int, names: Sequence[str]) -> None:
        """Add labels, making those that are missing."""
        path = f"{self._path}/labels"
        known = {
            each.name: each.id async for each in self._line.pages(path, list[_Label], size="limit")
        }
        for name in names:
            if name not in known:
                body = {"name": name, "color": LABEL_COLOR}
                known[name] = (await self._line.ask("POST", path, _Label, body=body)).id
        ids = {"labels": [known[name] for name in names]}
        await self._line.tell("POST", f"{self._path}/issues/{number}/labels", body=ids)

    async def _get(self, number: int) -> _Pull:
        return await self._line.ask("GET", f"{self._path}/pulls/{number}", _Pull)

    async def _closer(self, number: int) -> str:
        path = f"{self._path}/issues/{number}/timeline"
        closer = ""
        try:
            async for event in self._line.pages(path, list[_Event], size="limit"):
                if event.type == "close" and event.user is not None:
                    closer = event.user.login
        except NotFound:  # an older forge has no such list
            return ""
        return closer


def _pull_details(got: _Pull, *, mergeable: bool | None) -> PullDetails:
    state = PullRequestState.OPEN if got.state == "open" else PullRequestState.CLOSED
    if got.merged:
        state = PullRequestState.MERGED
    mark = _DRAFT_MARK.match(got.title) if got.draft else None
    return PullDetails(
        pull=PullRequest(
            number=got.number,
            url=safe_url(got.html_url),
            state=state,
            branch=got.head.label,
            base=got.base.label,
            title=got.title[mark.end() :] if mark else got.title,
            body=got.body or "",
            head=got.head.sha,
            mergeable=mergeable if state is PullRequestState.OPEN else None,
            closed_by=got.merged_by.login if got.merged_by else "",
        ),
        labels=frozenset(each.name for each in got.labels or ()),
        prefix=mark.group() if mark else "",
    )
