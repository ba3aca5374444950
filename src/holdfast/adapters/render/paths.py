"""The one way from a written path to a file of an export.

Paths come from Applications and from kustomizations, which anybody who may commit can write.
They are resolved as text first, then opened one directory at a time without following links, so
nothing outside the root can be reached, also not by a link that appears in between.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from holdfast.adapters.render.limits import MAX_BYTES, MAX_FILE_BYTES, MAX_FILES, MIB
from holdfast.core.errors import Problem, ValidationError
from holdfast.core.redact import quoted

Parts: TypeAlias = tuple[str, ...]

_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TOO_LONG = 1024


class Found(Enum):
    """What stands at a path."""

    FILE = "file"
    DIRECTORY = "directory"


def refused(where: str, reason: str, fix: str) -> ValidationError:
    """Build the refusal of one thing in a repository."""
    problem = Problem(field=where, reason=reason, fix=fix)
    return ValidationError("The repository's files were refused.", problems=[problem])


def resolve(path: str, *, beneath: Parts = (), where: str) -> Parts:
    """Turn a written path into names beneath the root, without a look at the disk.

    `beneath` is the directory that it is written in; `where` says so in a refusal.
    """
    shown = quoted(path)
    if _UNPRINTABLE.search(path) or len(path) > _TOO_LONG:
        raise refused(where, f"the path {shown} has control characters or is too long.", "Fix it.")
    if path.startswith(("/", "~")):
        raise refused(where, f"the path {shown} is absolute.", "Write it from where it stands.")
    if "\\" in path or _ENCODED.search(path):
        raise refused(
            where, f"the path {shown} has a backslash or an encoded character.", "Use plain names."
        )
    names = list(beneath)
    for name in path.split("/"):
        if name in ("", "."):
            continue
        if name == "..":
            if not names:
                raise refused(
                    where, f"the path {shown} leads out of the repository.", "Stay within it."
                )
            names.pop()
            continue
        if name.lower() == ".git" or name.lower() == "git~1":
            raise refused(where, f"the path {shown} leads into .git.", "Name another directory.")
        names.append(name)
    return tuple(names)


def text_of(parts: Parts) -> str:
    """Write a resolved path from the root."""
    return "/".join(parts)


class Files:
    """The files beneath one root, read within the limits. Close it when done."""

    def __init__(self, root: Path, left_out: Mapping[str, str] | None = None) -> None:
        """`left_out` names what the commit has and the root has not, with the reason."""
        self._left_out = dict(left_out or {})
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._files = 0
        self._bytes = 0

    def __enter__(self) -> Files:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._root)

    def find(self, parts: Parts) -> Found | None:
        """Say what is at a path; None when nothing is. Refuses links and special files."""
        try:
            fd = self._open(parts, _FILE)
        except FileNotFoundError:
            return None
        try:
            return self._kind(fd, parts)
        finally:
            os.close(fd)

    def read(self, parts: Parts) -> bytes:
        """Return what a regular file holds. Raises FileNotFoundError when nothing is there."""
        fd = self._open(parts, _FILE)
        with os.fdopen(fd, "rb") as file:
            if self._kind(file.fileno(), parts) is not Found.FILE:
                raise refused(text_of(parts), "it is a directory.", "Name a file.")
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise refused(
                text_of(parts), f"it is over {MAX_FILE_BYTES // MIB} MiB.", "Split the file."
            )
        self._files += 1
        self._bytes += len(data)
        if self._files > MAX_FILES or self._bytes > MAX_BYTES:
            raise refused(
                text_of(parts),
                f"with it there are over {MAX_FILES:,} files or {MAX_BYTES // MIB} MiB.",
                "Point the Application at a smaller directory.",
            )
        return data

    def names(self, parts: Parts) -> Sequence[tuple[str, Found]]:
        """List a directory, sorted, without hidden entries. Refuses links and special files.

        Raises FileNotFoundError when there is no such directory.
        """
        self._check_below(parts)
        fd = self._open(parts, _DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                found = sorted(
                    (entry.name, entry.stat(follow_symlinks=False).st_mode)
                    for entry in entries
                    if not entry.name.startswith(".")
                )
        finally:
            os.close(fd)
        if len(found) > MAX_FILES:
            raise refused(
                text_of(parts) or ".", f"it has over {MAX_FILES:,} entries.", "Split the directory."
            )
        return [(name, _kind_of(mode, (*parts, name))) for name, mode in found]

    def _check_below(self, parts: Parts) -> None:
        """Refuse a directory of which something was left out, for it would declare less."""
        for path in self._left_out:
            names = tuple(path.split("/"))
            rest = names[len(parts) :]
            if names[: len(parts)] == parts and not any(name.startswith(".") for name in rest):
                raise self._absent(path)

    def _absent(self, path: str) -> ValidationError:
        reason = self._left_out[path]
        fix = "Commit a regular file in its place, or move it out of the path."
        return refused(ascii(path)[1:-1], f"it {reason}.", fix)

    def _kind(self, fd: int, parts: Parts) -> Found:
        return _kind_of(os.fstat(fd).st_mode, parts)

    def _open(self, parts: Parts, flags: int) -> int:
        """Open what the names lead to, each looked up in the directory before it."""
        if any(_UNPRINTABLE.search(name) for name in parts):
            raise refused(
                ascii(text_of(parts))[1:-1][:200], "its name is not printable UTF-8.", "Rename it."
            )
        for at in range(len(parts)):
            if text_of(parts[: at + 1]) in self._left_out:
                raise self._absent(text_of(parts[: at + 1]))
        fd = os.dup(self._root)
        try:
            for at, name in enumerate(parts, 1):
                last = at == len(parts)
                inner = self._open_one(fd, name, flags if last else _DIRECTORY, parts[:at])
                os.close(fd)
                fd = inner
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _open_one(self, fd: int, name: str, flags: int, parts: Parts) -> int:
        try:
            return os.open(name, flags, dir_fd=fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.ENAMETOOLONG):
                raise refused(
                    text_of(parts), f"it cannot be opened: {error.strerror}.", "Fix it."
                ) from None
        try:
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
        except OSError:
            raise FileNotFoundError(text_of(parts)) from None
        if _kind_of(mode, parts) is Found.FILE:  # a file where a directory was asked for
            raise FileNotFoundError(text_of(parts))
        raise refused(text_of(parts), "it changed while it was read.", "Render it again.")


def _kind_of(mode: int, parts: Parts) -> Found:
    if stat.S_ISREG(mode):
        return Found.FILE
    if stat.S_ISDIR(mode):
        return Found.DIRECTORY
    what = "a link" if stat.S_ISLNK(mode) else "neither a file nor a directory"
    raise refused(
        ascii(text_of(parts))[1:-1],
        f"it is {what}, and only regular files are read.",
        "Replace it by a regular file, or move it out of the path.",
    )
