"""The files of an export: the one way from a written path to what a file holds.

Paths come from Applications and from kustomizations, which anybody who may commit can write.
They are resolved as text first, then opened one directory at a time without following links, so
nothing outside the root can be reached, also not by a link that appears in between. A limit that
is reached is refused with an error that says so; nothing is ever cut short.
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

from holdfast.core.errors import Problem, ValidationError
from holdfast.core.redact import quote_text

MIB = 2**20
MAX_FILES = 10_000
"""Files that one path may read."""
MAX_FILE_BYTES = 4 * MIB
MAX_BYTES = 64 * MIB
"""All files of one path together."""
MAX_DEPTH = 32
"""Directories within directories, and layers on layers."""

PathParts: TypeAlias = tuple[str, ...]

_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_PERCENT_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_PATH_LENGTH = 1024


class PathKind(Enum):
    """What stands at a path."""

    FILE = "file"
    DIRECTORY = "directory"


def refusal(where: str, reason: str, fix: str) -> ValidationError:
    """Build the refusal of one thing in a repository."""
    problem = Problem(field=where, reason=reason, fix=fix)
    return ValidationError("The repository's files were refused.", problems=[problem])


def resolve_path(path: str, *, beneath: PathParts = (), where: str) -> PathParts:
    """Turn a written path into names beneath the root, without a look at the disk.

    `beneath` is the directory that it is written in; `where` says so in a refusal.
    """
    shown = quote_text(path)
    if _UNPRINTABLE.search(path) or len(path) > _MAX_PATH_LENGTH:
        raise refusal(where, f"the path {shown} has control characters or is too long.", "Fix it.")
    if path.startswith(("/", "~")):
        raise refusal(where, f"the path {shown} is absolute.", "Write it from where it stands.")
    if "\\" in path or _PERCENT_ENCODED.search(path):
        raise refusal(
            where, f"the path {shown} has a backslash or an encoded character.", "Use plain names."
        )
    names = list(beneath)
    for name in path.split("/"):
        if name in ("", "."):
            continue
        if name == "..":
            if not names:
                raise refusal(
                    where, f"the path {shown} leads out of the repository.", "Stay within it."
                )
            names.pop()
            continue
        if name.lower() == ".git" or name.lower() == "git~1":
            raise refusal(where, f"the path {shown} leads into .git.", "Name another directory.")
        names.append(name)
    return tuple(names)


def path_text(parts: PathParts) -> str:
    """Write a resolved path from the root."""
    return "/".join(parts)


class RepositoryFiles:
    """The files beneath one root, read within the limits. Close it when done."""

    def __init__(self, root: Path, left_out: Mapping[str, str] | None = None) -> None:
        """`left_out` names what the commit has and the root has not, with the reason."""
        self._left_out = dict(left_out or {})
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._files = 0
        self._bytes = 0

    def __enter__(self) -> RepositoryFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._root)

    def find(self, parts: PathParts) -> PathKind | None:
        """Say what is at a path; None when nothing is. Refuses links and special files."""
        try:
            fd = self._open(parts, _OPEN_FILE)
        except FileNotFoundError:
            return None
        try:
            return self._kind(fd, parts)
        finally:
            os.close(fd)

    def read(self, parts: PathParts) -> bytes:
        """Return what a regular file holds. Raises FileNotFoundError when nothing is there."""
        fd = self._open(parts, _OPEN_FILE)
        with os.fdopen(fd, "rb") as file:
            if self._kind(file.fileno(), parts) is not PathKind.FILE:
                raise refusal(path_text(parts), "it is a directory.", "Name a file.")
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise refusal(
                path_text(parts), f"it is over {MAX_FILE_BYTES // MIB} MiB.", "Split the file."
            )
        self._files += 1
        self._bytes += len(data)
        if self._files > MAX_FILES or self._bytes > MAX_BYTES:
            raise refusal(
                path_text(parts),
                f"with it there are over {MAX_FILES:,} files or {MAX_BYTES // MIB} MiB.",
                "Point the Application at a smaller directory.",
            )
        return data

    def names(self, parts: PathParts) -> Sequence[tuple[str, PathKind]]:
        """List a directory, sorted, without hidden entries. Refuses links and special files.

        Raises FileNotFoundError when there is no such directory.
        """
        self._check_below(parts)
        fd = self._open(parts, _OPEN_DIRECTORY)
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
            raise refusal(
                path_text(parts) or ".",
                f"it has over {MAX_FILES:,} entries.",
                "Split the directory.",
            )
        return [(name, _path_kind(mode, (*parts, name))) for name, mode in found]

    def _check_below(self, parts: PathParts) -> None:
        """Refuse a directory of which something was left out, for it would declare less."""
        for path in self._left_out:
            names = tuple(path.split("/"))
            rest = names[len(parts) :]
            if names[: len(parts)] == parts and not any(name.startswith(".") for name in rest):
                raise self._absent(path)

    def _absent(self, path: str) -> ValidationError:
        reason = self._left_out[path]
        fix = "Commit a regular file in its place, or move it out of the path."
        return refusal(ascii(path)[1:-1], f"it {reason}.", fix)

    def _kind(self, fd: int, parts: PathParts) -> PathKind:
        return _path_kind(os.fstat(fd).st_mode, parts)

    def _open(self, parts: PathParts, flags: int) -> int:
        """Open what the names lead to, each looked up in the directory before it."""
        if any(_UNPRINTABLE.search(name) for name in parts):
            raise refusal(
                ascii(path_text(parts))[1:-1][:200],
                "its name is not printable UTF-8.",
                "Rename it.",
            )
        for at in range(len(parts)):
            if path_text(parts[: at + 1]) in self._left_out:
                raise self._absent(path_text(parts[: at + 1]))
        fd = os.dup(self._root)
        try:
            for at, name in enumerate(parts, 1):
                last = at == len(parts)
                inner = self._open_one(fd, name, flags if last else _OPEN_DIRECTORY, parts[:at])
                os.close(fd)
                fd = inner
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _open_one(self, fd: int, name: str, flags: int, parts: PathParts) -> int:
        try:
            return os.open(name, flags, dir_fd=fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.ENAMETOOLONG):
                raise refusal(
                    path_text(parts), f"it cannot be opened: {error.strerror}.", "Fix it."
                ) from None
        try:
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
        except OSError:
            raise FileNotFoundError(path_text(parts)) from None
        if _path_kind(mode, parts) is PathKind.FILE:  # a file where a directory was asked for
            raise FileNotFoundError(path_text(parts))
        raise refusal(path_text(parts), "it changed while it was read.", "Render it again.")


def _path_kind(mode: int, parts: PathParts) -> PathKind:
    if stat.S_ISREG(mode):
        return PathKind.FILE
    if stat.S_ISDIR(mode):
        return PathKind.DIRECTORY
    what = "a link" if stat.S_ISLNK(mode) else "neither a file nor a directory"
    raise refusal(
        ascii(path_text(parts))[1:-1],
        f"it is {what}, and only regular files are read.",
        "Replace it by a regular file, or move it out of the path.",
    )
