"""GitLab's way of speaking, of merge requests.

A draft is told by its title, and a line that begins with a slash is a command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from holdfast.adapters.forge.pull_requests import PullDetails, escape_commands, fit_title, safe_url
from holdfast.adapters.forge.transport import ForgeTransport
from holdfast.reconcile.gitops.ports import NewPullRequest, PullRequest, PullRequestState

DRAFT_PREFIX = "Draft: "
_DRAFT_MARK = re.compile(r"(?i)^(?:draft:|\[draft\]|\(draft\))\s*")
_STATES = {
    "opened": PullRequestState.OPEN,
    "locked": PullRequestState.OPEN,  # for the moments in which it is being merged
    "merged": PullRequestState.MERGED,
    "closed": PullRequestState.CLOSED,
}
_UNCHECKED = frozenset({"", "unchecked", "checking", "preparing", "approvals_syncing"})
_CONFLICTING = frozenset({"conflict", "need_rebase", "broken_status"})


class _User(msgspec.Struct):
    username: str = ""


class _MergeRequest(msgspec.Struct):
    iid: int
    web_url: str
    state: str
    source_branch: str
    target_branch: str
    title: str = ""
    description: str | None = None
    sha: str | None = None
    draft: bool = False
    labels: list[str] | None = None
    source_project_id: int | None = None
    target_project_id: int | None = None
    has_conflicts: bool | None = None
    detailed_merge_status: str | None = None
    closed_by: _User | None = None
    merged_by: _User | None = None
    merge_user: _User | None = None


class _Note(msgspec.Struct):
    body: str | None = None
    system: bool = False


class GitLabDialect:
    """One project on GitLab."""

    name = "gitlab"

    def __init__(self, line: ForgeTransport, *, project: str) -> None:
        self._line = line
        self._path = f"/projects/{quote(project, safe='')}/merge_requests"

    async def listed(self, branch: str, *, opened: bool) -> Sequence[PullDetails]:
        """Return those from a branch of this project, newest first."""
        query = {
            "state": "opened" if opened else "all",
            "order_by": "created_at",
            "sort": "desc",
            "source_branch": branch,
        }
        found = []
        async for each in self._line.pages(self._path, list[_MergeRequest], query=query):
            seen = _pull_details(each)
            own = each.source_project_id == each.target_project_id
            right = opened is (seen.pull.state is PullRequestState.OPEN)
            if own and right and each.source_branch == branch:
                found.append(seen)
        return sorted(found, key=lambda seen: seen.pull.number, reverse=True)

    async def whole(self, number: int) -> PullDetails:
        """Return one with everything that GitLab tells of it."""
        return _pull_details(await self._line.ask("GET", f"{self._path}/{number}", _MergeRequest))

    async def create(self, new: NewPullRequest) -> int:
        """Open one, and return its number."""
        body = {
            "source_branch": new.branch,
            "target_branch": new.base,
            "title": fit_title(new.title, DRAFT_PREFIX if new.draft else ""),
            "description": new.body,
        }
        return (await self._line.ask("POST", self._path, _MergeRequest, body=body)).iid

    async def edit(self, number: int, *, title: str, body: str) -> None:
        """Change title and body."""
        new = {"title": title, "description": body}
        await self._line.tell("PUT", f"{self._path}/{number}", body=new)

    async def shut(self, number: int) -> None:
        """Close it."""
        await self._line.tell("PUT", f"{self._path}/{number}", body={"state_event": "close"})

    async def comments(self, number: int) -> Sequence[str]:
        """Return what people and tools said under it."""
        notes = self._line.pages(f"{self._path}/{number}/notes", list[_Note])
        return [each.body or "" async for each in notes if not each.system]

    async def say(self, number: int, text: str) -> None:
        """Add a comment."""
        await self._line.tell("POST", f"{self._path}/{number}/notes", body={"body": text})

    async def label(self, number: int, names: Sequence[str]) -> None:
        """Add labels; GitLab makes those that are missing."""
        body = {"add_labels": ",".join(names)}
        await self._line.tell("PUT", f"{self._path}/{number}", body=body)

    def spelled(self, text: str) -> str:
        """Return a text without commands in it."""
        return escape_commands(text)

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._line.aclose()


def _pull_details(got: _MergeRequest) -> PullDetails:
    state = _STATES.get(got.state, PullRequestState.OPEN)
    mark = _DRAFT_MARK.match(got.title) if got.draft else None
    by = got.closed_by if state is PullRequestState.CLOSED else got.merge_user or got.merged_by
    return PullDetails(
        pull=PullRequest(
            number=got.iid,
            url=safe_url(got.web_url),
            state=state,
            branch=got.source_branch,
            base=got.target_branch,
            title=got.title[mark.end() :] if mark else got.title,
            body=got.description or "",
            head=got.sha or "",
            mergeable=_mergeable(got) if state is PullRequestState.OPEN else None,
            closed_by=by.username if by and state is not PullRequestState.OPEN else "",
        ),
        labels=frozenset(got.labels or ()),
        prefix=mark.group() if mark else "",
    )


def _mergeable(got: _MergeRequest) -> bool | None:
    """Say whether it can be merged as far as its content goes; approvals are another matter."""
    status = got.detailed_merge_status or ""
    if got.has_conflicts or status in _CONFLICTING:
        return False
    return None if status in _UNCHECKED else True
