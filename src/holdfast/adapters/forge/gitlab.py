"""GitLab's dialect, of merge requests.

A draft is marked in its title, and a line that begins with a slash is a command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from holdfast.adapters.forge.pull_requests import PullDetails, fit_title, safe_url
from holdfast.adapters.forge.transport import ForgeTransport
from holdfast.reconcile.gitops.ports import NewPullRequest, PullRequest, PullRequestState

DRAFT_PREFIX = "Draft: "
_DRAFT_MARK = re.compile(r"(?i)^(?:draft:|\[draft\]|\(draft\))\s*")
_SLASH_COMMAND = re.compile(r"(?m)^(\s*)/(?=[A-Za-z])")
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

    def __init__(self, transport: ForgeTransport, *, project: str) -> None:
        self._transport = transport
        self._path = f"/projects/{quote(project, safe='')}/merge_requests"

    async def list_pull_requests(self, branch: str, *, is_open: bool) -> Sequence[PullDetails]:
        """Return those from a branch of this project."""
        query = {
            "state": "opened" if is_open else "all",
            "order_by": "created_at",
            "sort": "desc",
            "source_branch": branch,
        }
        return [
            details
            async for each in self._transport.list_pages(
                self._path, list[_MergeRequest], query=query
            )
            if each.source_project_id == each.target_project_id
            and each.source_branch == branch
            and (details := _pull_details(each))
            and is_open is (details.pull.state is PullRequestState.OPEN)
        ]

    async def get_pull_request(self, number: int) -> PullDetails:
        """Return one with everything that GitLab says about it."""
        path = f"{self._path}/{number}"
        return _pull_details(await self._transport.request("GET", path, _MergeRequest))

    async def create_pull_request(self, new: NewPullRequest) -> int:
        """Open one, and return its number."""
        body = {
            "source_branch": new.branch,
            "target_branch": new.base,
            "title": fit_title(new.title, DRAFT_PREFIX if new.draft else ""),
            "description": new.body,
        }
        return (await self._transport.request("POST", self._path, _MergeRequest, body=body)).iid

    async def edit_pull_request(self, number: int, *, title: str, body: str) -> None:
        """Change title and body."""
        await self._change(number, {"title": title, "description": body})

    async def close_pull_request(self, number: int) -> None:
        """Close it."""
        await self._change(number, {"state_event": "close"})

    async def list_comments(self, number: int) -> Sequence[str]:
        """Return the comments of people and tools under it."""
        notes = self._transport.list_pages(f"{self._path}/{number}/notes", list[_Note])
        return [each.body or "" async for each in notes if not each.system]

    async def add_comment(self, number: int, text: str) -> None:
        """Add a comment."""
        await self._transport.send("POST", f"{self._path}/{number}/notes", body={"body": text})

    async def add_labels(self, number: int, names: Sequence[str]) -> None:
        """Add labels; GitLab creates those that are missing."""
        await self._change(number, {"add_labels": ",".join(names)})

    def escape_text(self, text: str) -> str:
        """Return a text without commands in it."""
        return escape_commands(text)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def _change(self, number: int, body: dict[str, str]) -> None:
        await self._transport.send("PUT", f"{self._path}/{number}", body=body)


def escape_commands(text: str) -> str:
    """Take the effect from lines that GitLab would carry out, such as `/merge`.

    Our text quotes what others wrote into the cluster.
    """
    return _SLASH_COMMAND.sub(r"\1\\/", text)


def _pull_details(merge: _MergeRequest) -> PullDetails:
    state = _STATES.get(merge.state, PullRequestState.OPEN)
    mark = _DRAFT_MARK.match(merge.title) if merge.draft else None
    merged_by = merge.merge_user or merge.merged_by
    closer = merge.closed_by if state is PullRequestState.CLOSED else merged_by
    return PullDetails(
        pull=PullRequest(
            number=merge.iid,
            url=safe_url(merge.web_url),
            state=state,
            branch=merge.source_branch,
            base=merge.target_branch,
            title=merge.title[mark.end() :] if mark else merge.title,
            body=merge.description or "",
            head=merge.sha or "",
            mergeable=_mergeable(merge) if state is PullRequestState.OPEN else None,
            closed_by=closer.username if closer and state is not PullRequestState.OPEN else "",
        ),
        labels=frozenset(merge.labels or ()),
        draft_prefix=mark.group() if mark else "",
    )


def _mergeable(merge: _MergeRequest) -> bool | None:
    """Say whether it can be merged as far as its content goes; approvals are another matter."""
    status = merge.detailed_merge_status or ""
    if merge.has_conflicts or status in _CONFLICTING:
        return False
    return None if status in _UNCHECKED else True
