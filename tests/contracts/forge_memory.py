"""What a forge keeps: branches, pull requests and comments, and what people do to them.

The memory behind tests/contracts/github_api.py and tests/contracts/gitlab_api.py.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

TOKEN = "forge-token-of-the-tests"
BOT = "holdfast-bot"
OWN, FORK = 4711, 4712
"""Numbers of the repository and of somebody's fork of it."""


class AlreadyOpen(Exception):
    """The branch has an open pull request to that base."""


@dataclass
class StoredPull:
    number: int
    branch: str
    base: str
    title: str
    body: str
    draft: bool = False
    state: str = "open"
    """`open`, `closed` or `merged`."""
    closed_by: str = ""
    head_repository: int | None = OWN
    conflicts: bool = False
    looked_at: int = 0
    """How often it was read; conflicts are looked for after the first time."""
    labels: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)


class ForgeMemory:
    """One repository."""

    def __init__(self, owner: str = "team", name: str = "fleet") -> None:
        self.owner = owner
        self.name = name
        self.token = TOKEN
        self.pulls: dict[int, StoredPull] = {}
        self.branches = {"main"}
        self.drafts = True
        """False for a plan without drafts."""

    def open(
        self, *, branch: str, base: str, title: str, body: str, draft: bool, fork: bool = False
    ) -> StoredPull:
        home = FORK if fork else OWN
        for each in self.pulls.values():
            same = (each.branch, each.base, each.head_repository) == (branch, base, home)
            if each.state == "open" and same:
                raise AlreadyOpen
        made = StoredPull(
            number=len(self.pulls) + 1,
            branch=branch,
            base=base,
            title=title,
            body=body,
            draft=draft,
            head_repository=home,
        )
        self.pulls[made.number] = made
        return made

    def listed(self, branch: str = "") -> list[StoredPull]:
        """Newest first."""
        found = [each for each in self.pulls.values() if not branch or each.branch == branch]
        return sorted(found, key=lambda each: each.number, reverse=True)

    def end(self, number: int, state: str, by: str) -> None:
        self.pulls[number].state = state
        self.pulls[number].closed_by = by


def commit_of(branch: str) -> str:
    return hashlib.sha1(branch.encode(), usedforsecurity=False).hexdigest()


def page_of(
    items: list[dict[str, object]], query: dict[str, str], url: str
) -> tuple[list[dict[str, object]], dict[str, str]]:
    """Cut one page out of a list, with the Link header that leads to the next."""
    page, size = int(query.get("page", "1")), min(int(query.get("per_page", "30")), 100)
    part = items[(page - 1) * size : page * size]
    more = len(items) > page * size
    return part, {"Link": f'<{url}?page={page + 1}&per_page={size}>; rel="next"'} if more else {}
