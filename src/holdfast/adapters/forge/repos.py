"""The paths below `/repos/OWNER/NAME` that Gitea took over from GitHub, and what they take."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from holdfast.adapters.forge.line import Line


class User(msgspec.Struct):
    """A person or a robot."""

    login: str = ""


class Comment(msgspec.Struct):
    """Something that was said."""

    body: str | None = None


class ReposDialect:
    """The part of a dialect that both speak."""

    def __init__(self, line: Line, *, owner: str, repository: str) -> None:
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
