"""One repository on the test forge, and what people do in it: commit, review, merge, close."""

from __future__ import annotations

import base64
import itertools
import subprocess
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tests.support.gitea import Account, Gitea, GiteaSaid
from tests.support.processes import wait_until

_COUNT = itertools.count(1)
MERGE_TIMEOUT = 20.0


class GiteaRepository:
    """Made with a first commit on `main`, and an owner of its own."""

    def __init__(self, gitea: Gitea, owner: Account, name: str) -> None:
        self.gitea = gitea
        self.owner = owner
        self.name = name

    @classmethod
    def create(
        cls, gitea: Gitea, files: Mapping[str, str] | None = None, name: str = "fleet"
    ) -> GiteaRepository:
        """Make a private repository that holds these files."""
        owner = gitea.create_user(f"team-{next(_COUNT)}")
        options = {"name": name, "private": True, "auto_init": True, "default_branch": "main"}
        gitea.ask("POST", "/user/repos", options, by=owner)
        made = cls(gitea, owner, name)
        if files:
            made.commit(files, message="What runs")
        return made

    @property
    def full_name(self) -> str:
        return f"{self.owner.name}/{self.name}"

    @property
    def url(self) -> str:
        """Where to clone it from, with a token as the password."""
        return f"{self.gitea.url}/{self.full_name}.git"

    def add_member(self, name: str, permission: str = "write") -> Account:
        """Make another user who may write to it."""
        account = self.gitea.create_user(f"{name}-of-{self.owner.name}")
        self.ask("PUT", f"/collaborators/{account.name}", {"permission": permission})
        return account

    # Any: JSON as Gitea answers it, here and below.
    def ask(self, method: str, path: str, body: object = None, by: Account | None = None) -> Any:
        """Send one request about this repository, as its owner unless told."""
        return self.gitea.ask(method, f"/repos/{self.full_name}{path}", body, by=by or self.owner)

    def commit(
        self,
        files: Mapping[str, str | None],
        *,
        branch: str = "main",
        message: str = "A change",
        by: Account | None = None,
    ) -> str:
        """Put one commit on a branch, which is made from `main` where it is missing; give its id.

        None deletes a file.
        """
        new = branch != "main" and self.head(branch) is None
        known = self._blobs("main" if new else branch)
        changes = []
        for path, content in files.items():
            change = {"path": path, "operation": "update" if path in known else "create"}
            if path in known:
                change["sha"] = known[path]
            if content is None:
                change["operation"] = "delete"
            else:
                change["content"] = base64.b64encode(content.encode()).decode()
            changes.append(change)
        where = {"branch": "main", "new_branch": branch} if new else {"branch": branch}
        made = self.ask("POST", "/contents", {"files": changes, "message": message, **where}, by)
        return str(made["commit"]["sha"])

    def head(self, branch: str = "main") -> str | None:
        """Give the commit of a branch; None when there is no such branch."""
        try:
            return str(self.ask("GET", f"/branches/{quote(branch, safe='')}")["commit"]["id"])
        except GiteaSaid as said:
            if said.status == 404:
                return None
            raise

    def files(self, branch: str = "main") -> dict[str, str]:
        """Give every file of a branch, by its path."""
        return {
            path: base64.b64decode(self.ask("GET", f"/git/blobs/{sha}")["content"]).decode()
            for path, sha in self._blobs(branch).items()
        }

    def history(self, branch: str = "main") -> list[dict[str, Any]]:
        """Give the commits of a branch, newest first."""
        found: list[dict[str, Any]] = self.ask("GET", f"/commits?sha={quote(branch, safe='')}")
        return found

    def pulls(self, state: str = "all") -> list[dict[str, Any]]:
        """Give the pull requests, newest first."""
        found: list[dict[str, Any]] = self.ask("GET", f"/pulls?state={state}&limit=50")
        return found

    def pull(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/pulls/{number}")
        return found

    def open_pull(self, branch: str, title: str = "A change", by: Account | None = None) -> int:
        """Open a pull request to `main`; give its number."""
        new = {"head": branch, "base": "main", "title": title}
        return int(self.ask("POST", "/pulls", new, by)["number"])

    def merge(self, number: int, by: Account | None = None) -> None:
        """Merge a pull request, once Gitea has found out that it can be."""

        def merged() -> bool:
            try:
                self.ask("POST", f"/pulls/{number}/merge", {"Do": "merge"}, by)
            except GiteaSaid as said:
                if said.status == 405 and "try again later" in str(said):
                    return False
                raise
            return True

        wait_until(merged, MERGE_TIMEOUT, f"pull request {number} to be merged")

    def close(self, number: int, by: Account | None = None) -> None:
        """Close a pull request without merging it."""
        self.ask("PATCH", f"/pulls/{number}", {"state": "closed"}, by)

    def comment(self, number: int, text: str, by: Account | None = None) -> None:
        self.ask("POST", f"/issues/{number}/comments", {"body": text}, by)

    def comments(self, number: int) -> list[str]:
        """Give what was said under a pull request, in order."""
        return [each["body"] for each in self.ask("GET", f"/issues/{number}/comments")]

    def labels(self) -> list[str]:
        return [each["name"] for each in self.ask("GET", "/labels?limit=50")]

    def add_webhook(self, url: str, secret: str, events: tuple[str, ...] = ("push",)) -> int:
        """Have Gitea tell an address on loopback of what happens here."""
        hook = {
            "type": "gitea",
            "active": True,
            "events": list(events),
            "config": {"url": url, "content_type": "json", "secret": secret},
        }
        return int(self.ask("POST", "/hooks", hook)["id"])

    def clone(self, directory: str, branch: str = "main") -> None:
        """Clone it with git itself, as a person would."""
        address = self.url.replace("://", f"://{self.owner.name}:{self.owner.token}@")
        subprocess.run(
            ["git", "clone", "--quiet", "--branch", branch, "--", address, directory], check=True
        )

    def _blobs(self, branch: str) -> dict[str, str]:
        tree = self.ask("GET", f"/git/trees/{quote(branch, safe='')}?recursive=true&per_page=1000")
        return {each["path"]: each["sha"] for each in tree["tree"] if each["type"] == "blob"}
