"""Writes the files of one commit into a folder, straight from Git's objects.

There is no checkout, so nothing that a commit carries is acted upon: no filters, attributes,
hooks, links or submodules. Sizes are read before contents, and each content is checked against
its id while it is written.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.git.bare import Bare
from holdfast.adapters.git.limits import Limits
from holdfast.adapters.git.trouble import GitFailed, Trouble
from holdfast.core.errors import ValidationError
from holdfast.core.redact import quoted

_LISTING = 32 << 20
"""Bytes that the list of files may take; about 300,000 names of usual length."""
_LONGEST_NAME, _LONGEST_PATH = 255, 2048
_TODO = "Keep what is declared in a repository of its own, or raise the limit."


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file of a commit."""

    path: str
    id: str
    size: int


async def write_files(bare: Bare, commit: str, folder: Path) -> Mapping[str, str]:
    """Write every regular file, and return the others by path with the reason they are left out.

    Raises ValidationError when the commit is over the limits, GitFailed when it cannot be read.
    """
    entries, left_out = await _listed(bare, commit)
    _check(entries, bare.limits)
    await asyncio.to_thread(_empty, folder)
    writer = _Writer(folder, entries)
    wanted = "".join(f"{entry.id}\n" for entry in entries).encode()
    try:
        await bare.read("cat-file", "--batch", "--buffer", given=wanted, take=writer.take)
        writer.finish()
    finally:
        writer.close()
    return left_out


async def _listed(bare: Bare, commit: str) -> tuple[list[Entry], dict[str, str]]:
    try:
        _, out = await bare.ask("ls-tree", "-r", "-z", "-l", "--full-tree", commit, limit=_LISTING)
    except GitFailed as failed:
        if failed.trouble is not Trouble.TOO_MUCH:
            raise
        raise _over(f"Its list of files is longer than {_LISTING >> 20} MiB") from failed
    return await asyncio.to_thread(_parsed, out)


def _parsed(out: bytes) -> tuple[list[Entry], dict[str, str]]:
    """Read a list of files: those to be written, and those to be left out."""
    entries: list[Entry] = []
    left_out: dict[str, str] = {}
    for record in out.split(b"\0")[:-1]:
        about, _, name = record.partition(b"\t")
        mode, kind, oid, size = about.decode().split()
        path, reason = _path(name)
        if mode == "120000":
            reason = "is a link, which is never followed"
        elif mode == "160000" or kind != "blob":
            reason = "is a submodule, which is not fetched"
        if reason:
            left_out[path] = reason
        else:
            entries.append(Entry(path=path, id=oid, size=int(size)))
    return entries, left_out


def _path(name: bytes) -> tuple[str, str]:
    """Return a path as text, and why it cannot be written, if so."""
    try:
        path = name.decode()
    except UnicodeDecodeError:
        return name.decode("utf-8", "backslashreplace"), "has a name that is not UTF-8"
    steps = path.split("/")
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        return path, "has control characters in its name"
    if any(step in ("", ".", "..") or _is_git(step) for step in steps):
        return path, "has a name that Git reserves"
    if len(name) > _LONGEST_PATH or any(len(step.encode()) > _LONGEST_NAME for step in steps):
        return path, "has a name that is too long"
    return path, ""


def _is_git(step: str) -> bool:
    """True for `.git` as any file system may spell it."""
    plain = "".join(char for char in step if char.isprintable()).lower().rstrip(". ")
    return plain in (".git", "git~1")


def _check(entries: Sequence[Entry], limits: Limits) -> None:
    if len(entries) > limits.files:
        raise _over(f"It has {len(entries)} files, and {limits.files} are allowed")
    largest = max(entries, key=lambda entry: entry.size, default=None)
    if largest is not None and largest.size > limits.file_bytes:
        raise _over(
            f"Its file {quoted(largest.path, 200)} has {largest.size} bytes, and "
            f"{limits.file_bytes} are allowed"
        )
    total = sum(entry.size for entry in entries)
    if total > limits.total_bytes:
        raise _over(f"Its files have {total} bytes together, and {limits.total_bytes} are allowed")


def _over(what: str) -> ValidationError:
    return ValidationError(f"The commit is over the limits. {what}.", todo=_TODO)


class _Writer:
    """Reads what `cat-file --batch` writes: a line about each object, then the object."""

    def __init__(self, folder: Path, entries: Sequence[Entry]) -> None:
        self._folder = folder
        self._entries = iter(entries)
        self._entry: Entry | None = None
        """The present file; None before the line about it."""
        self._left = 0
        """Bytes of it to come."""
        self._file = -1
        self._hash = hashlib.sha1(usedforsecurity=False)
        self._made = {""}
        self._pending = b""

    def take(self, chunk: bytes) -> None:
        """Read one piece, as far as it goes."""
        data = self._pending + chunk
        at = 0
        try:
            while (after := self._step(data, at)) > at:
                at = after
        except OSError as error:
            raise _unwritable(error, self._entry) from error
        finally:
            self._pending = data[at:]

    def finish(self) -> None:
        """Check that everything came."""
        if self._pending or self._entry is not None or next(self._entries, None) is not None:
            raise GitFailed(Trouble.DAMAGED, "a file is cut short")

    def close(self) -> None:
        """Let go of a file that was not finished."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _step(self, data: bytes, at: int) -> int:
        """Read a line, a part of a file, or the end of one; return where the next begins."""
        if self._entry is None:
            end = data.find(b"\n", at)
            if end < 0:
                return at
            self._begin(data[at:end])
            return end + 1
        if self._left:
            part = memoryview(data)[at : at + self._left]
            self._hash.update(part)
            self._left -= len(part)
            at += len(part)
            while part:
                part = part[os.write(self._file, part) :]
            return at
        if at == len(data):
            return at
        self.close()
        if self._hash.hexdigest() != self._entry.id:
            raise GitFailed(Trouble.DAMAGED, "a file is not what its id says: hash mismatch")
        self._entry = None
        return at + 1  # a line ends each object

    def _begin(self, line: bytes) -> None:
        entry = next(self._entries, None)
        said = line.decode("ascii", "replace")
        if entry is None or said != f"{entry.id} blob {entry.size}":
            raise GitFailed(Trouble.DAMAGED, f"missing blob: {said[:80]}")
        self._entry, self._left = entry, entry.size
        self._hash = hashlib.sha1(b"blob %d\0" % entry.size, usedforsecurity=False)
        parent, _, _ = entry.path.rpartition("/")
        if parent not in self._made:
            (self._folder / parent).mkdir(parents=True, exist_ok=True)
            self._made.add(parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file = os.open(self._folder / entry.path, flags, 0o444)


def _unwritable(error: OSError, entry: Entry | None) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return GitFailed(Trouble.NO_SPACE, os.strerror(error.errno))
    path = quoted(entry.path, 200) if entry else "a file"
    if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
        return ValidationError(
            f"The commit has two files that this machine cannot tell apart, one of them {path}.",
            todo="Give them names that differ in more than their case.",
        )
    return GitFailed(Trouble.OTHER, f"{path} cannot be written: {os.strerror(error.errno or 0)}")


def _empty(folder: Path) -> None:
    """Remove what a damaged copy gave, before it was found to be damaged."""
    if any(folder.iterdir()):
        remove(folder)
        folder.mkdir()


def seal(folder: Path) -> None:
    """Make every folder read-only; the files were written so."""
    for path, _, _ in os.walk(folder, topdown=False):
        Path(path).chmod(0o555)


def remove(folder: Path) -> None:
    """Remove a folder, sealed or not. What cannot be removed now is removed at the next start."""
    for path, _, names in os.walk(folder):
        try:
            Path(path).chmod(stat.S_IRWXU)
            for name in names:
                (Path(path) / name).unlink(missing_ok=True)
        except OSError:
            continue
    for path, folders, _ in os.walk(folder, topdown=False):
        for each in (*(Path(path) / name for name in folders), Path(path)):
            try:
                each.rmdir()
            except NotADirectoryError:
                each.unlink(missing_ok=True)  # a link to a folder, which is not followed
            except OSError:
                continue
