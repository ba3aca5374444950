"""What may be asked of a repository: a branch, a tag, a commit, or its own default.

Git's own language for revisions reaches into files, reflogs and options (`HEAD:../x`, `@{-1}`,
`--upload-pack=…`). Here a revision is a name or a full commit id and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.core.errors import ConfigurationError
from holdfast.core.redact import quoted

HEADS, TAGS = "refs/heads/", "refs/tags/"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LONGEST = 200
_NEVER = frozenset("~^:?*[\\\x7f ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One checked revision: a commit id, or the names at the remote that it may stand for."""

    text: str
    commit: str = ""
    names: tuple[str, ...] = ()
    """More than one for a short name; when the remote has both, it is ambiguous."""


def parse_revision(text: str) -> Revision:
    """Read a revision. Raises ConfigurationError for what is none.

    `main` may be a branch or a tag, `refs/heads/main` and `refs/tags/main` say which, `HEAD` is
    the remote's default branch, and 40 hexadecimal digits are always a commit.
    """
    if _COMMIT.fullmatch(text):
        return Revision(text=text, commit=text)
    if text == "HEAD":
        return Revision(text=text, names=("HEAD",))
    short = text.removeprefix(HEADS).removeprefix(TAGS)
    if text.count("refs/") > 1 or short.startswith("refs/") or not is_ref_name(short):
        raise _refused(text, "is no branch, tag or full commit id")
    if short != text:
        return Revision(text=text, names=(text,))
    return Revision(text=text, names=(HEADS + text, TAGS + text))


def checked_branch(text: str) -> str:
    """Return the full name of a branch. Raises ConfigurationError for what is none."""
    if text.startswith("refs/") or text == "HEAD" or _COMMIT.fullmatch(text):
        raise _refused(text, "is no name for a branch of ours")
    if not is_ref_name(text):
        raise _refused(text, "is no name of a branch")
    return HEADS + text


def checked_commit(text: str) -> str:
    """Return a full commit id. Raises ConfigurationError for anything else."""
    if not _COMMIT.fullmatch(text):
        raise _refused(text, "is no full commit id")
    return text


def is_ref_name(text: str) -> bool:
    """True for what Git takes as a branch or tag name, less what could be read as an option."""
    if not text or len(text) > _LONGEST or text.startswith("-") or text == "@":
        return False
    if not text.isprintable() or _NEVER.intersection(text) or ".." in text or "@{" in text:
        return False
    return all(
        step and not step.startswith((".", "-")) and not step.endswith((".", ".lock"))
        for step in text.split("/")
    )


def _refused(text: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"The revision {quoted(text)} {what}.",
        todo="Write a branch, a tag, HEAD, or all 40 digits of a commit id.",
    )
