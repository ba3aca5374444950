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
import secrets
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from holdfast.adapters.git.bare import BareRepository, GitLimits
from holdfast.adapters.git.command import GitError, GitErrorKind
from holdfast.core.errors import ValidationError
from holdfast.core.redact import quote_text
from holdfast.reconcile.gitops.ports import SourceExport

_MAX_LISTING = 32 << 20
"""Bytes that the list of files may take; about 300,000 names of usual length."""
_MAX_NAME_LENGTH, _MAX_PATH_LENGTH = 255, 2048
_LIMIT_HINT = "Keep what is declared in a repository of its own, or raise the limit."


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """One file of a commit."""

    path: str
    id: str
    size: int


async def write_files(bare: BareRepository, commit: str, folder: Path) -> Mapping[str, str]:
    """Write every regular file, and return the others by path with the reason they are left out.

    Raises ValidationError when the commit is over the limits, GitFailed when it cannot be read.
    """
    entries, left_out = await _list_files(bare, commit)
    _check_limits(entries, bare.limits)
    await asyncio.to_thread(_clear_directory, folder)
    writer = _BlobWriter(folder, entries)
    ids = "".join(f"{entry.id}\n" for entry in entries).encode()
    try:
        await bare.stream("cat-file", "--batch", "--buffer", stdin=ids, on_chunk=writer.write)
        writer.finish()
    finally:
        writer.close()
    return left_out


async def _list_files(bare: BareRepository, commit: str) -> tuple[list[TreeEntry], dict[str, str]]:
    try:
        _, out = await bare.run(
            "ls-tree", "-r", "-z", "-l", "--full-tree", commit, limit=_MAX_LISTING
        )
    except GitError as failed:
        if failed.kind is not GitErrorKind.TOO_LARGE:
            raise
        raise _over_limit(f"Its list of files is longer than {_MAX_LISTING >> 20} MiB") from failed
    return await asyncio.to_thread(_parse_listing, out)


def _parse_listing(out: bytes) -> tuple[list[TreeEntry], dict[str, str]]:
    """Read a list of files: those to be written, and those to be left out."""
    entries: list[TreeEntry] = []
    left_out: dict[str, str] = {}
    for record in out.split(b"\0")[:-1]:
        about, _, name = record.partition(b"\t")
        mode, kind, oid, size = about.decode().split()
        path, reason = _check_path(name)
        if mode == "120000":
            reason = "is a link, which is never followed"
        elif mode == "160000" or kind != "blob":
            reason = "is a submodule, which is not fetched"
        if reason:
            left_out[path] = reason
        else:
            entries.append(TreeEntry(path=path, id=oid, size=int(size)))
    return entries, left_out


def _check_path(name: bytes) -> tuple[str, str]:
    """Return a path as text, and why it cannot be written, if so."""
    try:
        path = name.decode()
    except UnicodeDecodeError:
        return name.decode("utf-8", "backslashreplace"), "has a name that is not UTF-8"
    steps = path.split("/")
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        return path, "has control characters in its name"
    if any(step in ("", ".", "..") or _is_git_directory(step) for step in steps):
        return path, "has a name that Git reserves"
    if len(name) > _MAX_PATH_LENGTH or any(len(step.encode()) > _MAX_NAME_LENGTH for step in steps):
        return path, "has a name that is too long"
    return path, ""


def _is_git_directory(step: str) -> bool:
    """True for `.git` as any file system may spell it."""
    plain = "".join(char for char in step if char.isprintable()).lower().rstrip(". ")
    return plain in (".git", "git~1")


def _check_limits(entries: Sequence[TreeEntry], limits: GitLimits) -> None:
    if len(entries) > limits.files:
        raise _over_limit(f"It has {len(entries)} files, and {limits.files} are allowed")
    largest = max(entries, key=lambda entry: entry.size, default=None)
    if largest is not None and largest.size > limits.file_bytes:
        raise _over_limit(
            f"Its file {quote_text(largest.path, 200)} has {largest.size} bytes, and "
            f"{limits.file_bytes} are allowed"
        )
    total = sum(entry.size for entry in entries)
    if total > limits.total_bytes:
        raise _over_limit(
            f"Its files have {total} bytes together, and {limits.total_bytes} are allowed"
        )


def _over_limit(what: str) -> ValidationError:
    return ValidationError(f"The commit is over the limits. {what}.", hint=_LIMIT_HINT)


class _BlobWriter:
    """Reads what `cat-file --batch` writes: a line about each object, then the object."""

    def __init__(self, folder: Path, entries: Sequence[TreeEntry]) -> None:
        self._folder = folder
        self._entries = iter(entries)
        self._entry: TreeEntry | None = None
        """The present file; None before the line about it."""
        self._remaining = 0
        """Bytes of it to come."""
        self._file = -1
        self._hash = hashlib.sha1(usedforsecurity=False)
        self._directories = {""}
        self._pending = b""

    def write(self, chunk: bytes) -> None:
        """Read one chunk, as far as it goes."""
        data = self._pending + chunk
        at = 0
        try:
            while (after := self._step(data, at)) > at:
                at = after
        except OSError as error:
            raise _write_error(error, self._entry) from error
        finally:
            self._pending = data[at:]

    def finish(self) -> None:
        """Check that everything came."""
        if self._pending or self._entry is not None or next(self._entries, None) is not None:
            raise GitError(GitErrorKind.CORRUPT, "a file is cut short")

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
        if self._remaining:
            part = memoryview(data)[at : at + self._remaining]
            self._hash.update(part)
            self._remaining -= len(part)
            at += len(part)
            while part:
                part = part[os.write(self._file, part) :]
            return at
        if at == len(data):
            return at
        self.close()
        if self._hash.hexdigest() != self._entry.id:
            raise GitError(GitErrorKind.CORRUPT, "a file is not what its id says: hash mismatch")
        self._entry = None
        return at + 1  # a line ends each object

    def _begin(self, line: bytes) -> None:
        entry = next(self._entries, None)
        header = line.decode("ascii", "replace")
        if entry is None or header != f"{entry.id} blob {entry.size}":
            raise GitError(GitErrorKind.CORRUPT, f"missing blob: {header[:80]}")
        self._entry, self._remaining = entry, entry.size
        self._hash = hashlib.sha1(b"blob %d\0" % entry.size, usedforsecurity=False)
        parent, _, _ = entry.path.rpartition("/")
        if parent not in self._directories:
            (self._folder / parent).mkdir(parents=True, exist_ok=True)
            self._directories.add(parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file = os.open(self._folder / entry.path, flags, 0o444)


def _write_error(error: OSError, entry: TreeEntry | None) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return GitError(GitErrorKind.DISK_FULL, os.strerror(error.errno))
    path = quote_text(entry.path, 200) if entry else "a file"
    if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
        return ValidationError(
            f"The commit has two files that this machine cannot tell apart, one of them {path}.",
            hint="Give them names that differ in more than their case.",
        )
    return GitError(
        GitErrorKind.OTHER, f"{path} cannot be written: {os.strerror(error.errno or 0)}"
    )


def _clear_directory(folder: Path) -> None:
    """Remove what a damaged copy gave, before it was found to be damaged."""
    if any(folder.iterdir()):
        remove_tree(folder)
        folder.mkdir()


def make_read_only(folder: Path) -> None:
    """Make every folder read-only; the files were written so."""
    for path, _, _ in os.walk(folder, topdown=False):
        Path(path).chmod(0o555)


def remove_tree(folder: Path) -> None:
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


@dataclass(slots=True)
class _HeldExport:
    """One export and how many hold it."""

    holders: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    export: SourceExport | None = None


class ExportPool:
    """The exports of one repository, below one folder."""

    def __init__(self, folder: Path, *, idle: int) -> None:
        self._folder = folder
        self._idle = idle
        self._exports: dict[str, _HeldExport] = {}
        """Those used last stand last."""

    @property
    def in_use(self) -> bool:
        """True while anyone holds one."""
        return any(each.holders for each in self._exports.values())

    @asynccontextmanager
    async def hold(
        self, commit: str, write: Callable[[Path], Awaitable[Mapping[str, str]]]
    ) -> AsyncIterator[SourceExport]:
        """Hold an export; the first holder has it written, and the others wait for that."""
        entry = self._exports.pop(commit, None) or _HeldExport()
        self._exports[commit] = entry
        entry.holders += 1
        try:
            async with entry.lock:
                if entry.export is None or not entry.export.root.is_dir():
                    entry.export = await self._write_export(commit, write)
            yield entry.export
        finally:
            entry.holders -= 1
            await self._drop_unused()

    def forget(self) -> None:
        """Take every export that nobody holds as gone."""
        self._exports = {commit: entry for commit, entry in self._exports.items() if entry.holders}

    async def _write_export(
        self, commit: str, write: Callable[[Path], Awaitable[Mapping[str, str]]]
    ) -> SourceExport:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Each has a name of its own, so that an old one can go while a new one comes.
        name = f"{commit}-{secrets.token_hex(4)}"
        new = self._folder / f"new-{name}"
        new.mkdir()
        try:
            left_out = await write(new)
            await asyncio.to_thread(make_read_only, new)
            root = new.rename(self._folder / name)
        except BaseException:
            await asyncio.to_thread(remove_tree, new)
            raise
        return SourceExport(commit=commit, root=root, left_out=MappingProxyType(dict(left_out)))

    async def _drop_unused(self) -> None:
        unused = [commit for commit, entry in self._exports.items() if not entry.holders]
        empty = [commit for commit in unused if self._exports[commit].export is None]
        full = [commit for commit in unused if self._exports[commit].export is not None]
        old = full[: max(0, len(full) - self._idle)]
        gone = [self._exports.pop(commit).export for commit in (*empty, *old)]
        for export in gone:
            if export is not None:
                await asyncio.to_thread(remove_tree, export.root)
