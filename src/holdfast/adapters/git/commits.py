"""Makes commits of ours without a work tree, and tells them from those of people.

A commit depends on nothing but what it was asked for, so asking twice gives the same id.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from holdfast.adapters.git.bare import Bare
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.redact import quoted
from holdfast.reconcile.gitops.ports import Push

NAME, EMAIL = "Holdfast", "holdfast@users.noreply.holdfast.dev"
TRAILER = "Holdfast-Drift:"
_PUSHED = "refs/holdfast/push/"
_REGULAR = ("100644", "100755")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a commit stands on, and whose it is."""

    tree: str
    parents: tuple[str, ...]
    ours: bool
    """By its committer and its trailer. People who amend or rebase become the committer."""


async def standing(bare: Bare, commit: str) -> Standing:
    """Read a commit that is here."""
    _, raw = await bare.ask("cat-file", "commit", commit, limit=32 << 20)
    head, _, message = raw.decode("utf-8", "replace").partition("\n\n")
    lines = [line.partition(" ") for line in head.split("\n")]
    values = [(key, value) for key, _, value in lines if key]
    committer = next((value for key, value in values if key == "committer"), "")
    return Standing(
        tree=next((value for key, value in values if key == "tree"), ""),
        parents=tuple(value for key, value in values if key == "parent"),
        ours=f"<{EMAIL}>" in committer and _has_trailer(message),
    )


async def made(bare: Bare, push: Push) -> str:
    """Make the commit that a push asks for, in the copy alone, and return its id.

    Raises ValidationError for what is no regular file there, and when nothing would change.
    """
    modes = await _modes(bare, push)
    mark = f"{_PUSHED}{hashlib.sha256(push.branch.encode()).hexdigest()[:32]}"
    who = f"{NAME} <{EMAIL}> {int(push.at.timestamp())} +0000"
    message = push.message.encode()
    stream = bytearray(f"commit {mark}\nmark :1\nauthor {who}\ncommitter {who}\n".encode())
    stream += b"data %d\n%b\nfrom %b\n" % (len(message), message, push.base.encode())
    for path, content in sorted(push.files.items()):
        if content is None:
            stream += f"D {path}\n".encode()
        else:
            stream += f"M {modes.get(path, _REGULAR[0])} inline {path}\n".encode()
            stream += b"data %d\n%b\n" % (len(content), content)
    stream += b"get-mark :1\ndone\n"
    async with bare.writing:
        _, out = await bare.ask(
            "fast-import", "--quiet", "--force", "--done", "--date-format=raw", given=bytes(stream)
        )
    commit = out.decode().strip()
    if (await standing(bare, commit)).tree == (await standing(bare, push.base)).tree:
        raise ValidationError(
            f"The commit for branch {push.branch} would change nothing.",
            todo="Compare with the base once more; it may have the change already.",
        )
    return commit


async def _modes(bare: Bare, push: Push) -> dict[str, str]:
    """Return the modes of the files that are there; refuse what is no regular file."""
    steps = {path: path.split("/") for path in push.files}
    above = {"/".join(each[:end]) for each in steps.values() for end in range(1, len(each))}
    _, out = await bare.ask("ls-tree", "-z", "-t", push.base, "--", *sorted({*above, *steps}))
    modes = {}
    problems = []
    for record in out.split(b"\0")[:-1]:
        about, _, name = record.partition(b"\t")
        mode, path = about.split()[0].decode(), name.decode("utf-8", "replace")
        if path in steps and mode not in _REGULAR:
            problems.append(_problem(path, "is a folder, link or submodule there."))
        elif path in above and mode != "040000":
            problems.append(_problem(path, "is not a folder there."))
        modes[path] = mode
    if problems:
        raise ValidationError(problems=problems)
    return modes


def check(push: Push) -> None:
    """Refuse paths that no repository may have and a message without our trailer.

    Raises ValidationError, with everything that is wrong.
    """
    problems = []
    for path in push.files:
        steps = path.split("/")
        plain = path.isprintable() and not path.startswith('"') and "\\" not in path
        inside = all(step and step not in (".", "..") for step in steps)
        if not plain or not inside or any(step.lower().startswith(".git") for step in steps):
            problems.append(_problem(path, "is not a path that may be written."))
    if not push.files:
        problems.append(Problem(field="files", reason="there are none.", fix="Name at least one."))
    if not _has_trailer(push.message) or "\0" in push.message:
        problems.append(
            Problem(
                field="message",
                reason=f"has no line that begins with {TRAILER}",
                fix="It marks the commit as ours.",
            )
        )
    if problems:
        raise ValidationError(problems=problems)


def _problem(path: str, reason: str) -> Problem:
    return Problem(
        field=quoted(path, 200), reason=reason, fix="Choose a regular file below the root."
    )


def _has_trailer(message: str) -> bool:
    return any(line.startswith(TRAILER) for line in message.splitlines())
