"""The files of a store: their one name, the lock on them, and the watermark beside them.

SQLite keeps its log beside the file under the file's name, and so do we with the lock: under a
second name there would be a second log and a second lock, and lost writes. A server holds the lock
alone; embedded clients share it. The watermark remembers how far the file had come, so that an
older copy is noticed; it is written after a commit and may lag, so a crash raises no false alarm.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from enum import StrEnum
from pathlib import Path

import msgspec

from holdfast.adapters.store.errors import unwritable_store
from holdfast.core.errors import StoreHeld, StoreUnavailable


def real_path(path: Path) -> Path:
    """Follow symbolic links, as SQLite does, so that all files lie beside the real one."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a link that leads to itself
        raise unwritable_store(path.absolute(), str(error)) from error


def check_hard_links(path: Path) -> None:
    """Refuse a file that has another name, a hard link, through which it could be opened too."""
    try:
        names = path.stat().st_nlink
    except OSError:
        return  # not there yet, or told when it is opened
    if names > 1:
        raise StoreUnavailable(
            f"{path} has {names} names (hard links). A second name has a log and a lock of its "
            "own, so writes could be lost.",
            hint=f"Find the others (find / -inum {path.stat().st_ino}), keep the one beside which "
            f"its -wal file lies and remove the rest. A copy is made by holdfast backup.",
        )


class FileWatch:
    """The files as they were when they were first seen."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._file_id = _file_identity(path)
        self._log_id: tuple[int, int] | None = None

    def problem(self) -> StoreUnavailable | None:
        """Say what has become of the files; None when they are where they were."""
        log = _file_identity(self._log)
        if _file_identity(self._path) != self._file_id:
            return self._lost(self._path)
        # SQLite makes the log at the first write and keeps it for as long as we have it open.
        if self._log_id is not None and log != self._log_id:
            return self._lost(self._log)
        self._log_id = log
        return None

    def _lost(self, file: Path) -> StoreUnavailable:
        return StoreUnavailable(
            f"{file} was removed or replaced while it was open.",
            hint="Put the file back if it was moved, then restart Holdfast: no write is accepted "
            "until then.",
        )


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Watermark(msgspec.Struct, frozen=True, kw_only=True):
    """The last state that was seen: which file, and how many commits it had."""

    lineage: str
    serial: int


def watermark_path(path: Path) -> Path:
    """Where the witness of a store is kept."""
    return path.with_name(path.name + ".serial")


def read_watermark(path: Path) -> Watermark | None:
    """Read what was last seen; None when nothing usable was kept."""
    try:
        return msgspec.json.decode(watermark_path(path).read_bytes(), type=Watermark)
    except (OSError, msgspec.DecodeError):
        return None


def write_watermark(path: Path, witness: Watermark) -> None:
    """Note what was seen. Failing to is harmless, so it is not reported."""
    file = watermark_path(path)
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        draft.write_bytes(msgspec.json.encode(witness))
        draft.replace(file)


def check_watermark(path: Path, seen: Watermark | None, found: Watermark | None) -> None:
    """Refuse a file that is older than, or other than, the one that was here before."""
    if seen is None:
        return
    if found is None:
        what = "is gone or empty, although it held data before"
    elif found.lineage != seen.lineage:
        what = "is another database than the one that was here before"
    elif found.serial < seen.serial:
        what = (
            f"is older than it was: it had {seen.serial} commits and now has {found.serial}, "
            f"as if a backup had been put back or {path.name}-wal had been removed"
        )
    else:
        return
    raise StoreUnavailable(
        f"{path} {what}.",
        hint="Put the newer file back, or accept this one as it is: holdfast serve "
        f"--accept-rollback once, or delete {watermark_path(path).name}.",
    )


LOCK_TIMEOUT = 2.0
"""How many seconds a starting server waits for embedded clients, most of which are brief."""


class OpenMode(StrEnum):
    """Who opens the file, and with whom it is shared."""

    SERVER = "server"
    """Alone, for as long as it runs."""
    CLIENT = "client"
    """Together with other embedded clients, never beside a server."""
    ADMIN = "admin"
    """Beside anyone, for projects and tokens."""


class LockHolder(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a server says of itself."""

    pid: int
    host: str
    url: str | None = None
    one_project: bool = False
    """It runs workloads, and those of one project alone."""


def lock_holder(store: Path) -> LockHolder | None:
    """Return the server that has a store open; None when there is none."""
    try:
        file = os.open(_lock_path(store), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(file)
    finally:
        os.close(file)
    return None


class StoreLock:
    """A lock that is held until `release`."""

    def __init__(self, path: Path, mode: OpenMode, *, timeout: float = LOCK_TIMEOUT) -> None:
        self._store = path
        self._path = _lock_path(path)
        self._mode = mode
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable_store(path, str(error)) from error
        try:
            self._acquire(time.monotonic() + timeout)
        except BaseException:
            os.close(self._file)
            raise

    def announce(self, url: str | None = None, *, one_project: bool = False) -> None:
        """Say who holds the lock, for those who are refused."""
        holder = LockHolder(
            pid=os.getpid(), host=socket.gethostname(), url=url, one_project=one_project
        )
        text = msgspec.json.encode(holder)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, text, 0)

    def release(self) -> None:
        """Let others in. Safe to call twice."""
        if self._file >= 0:
            if self._mode is OpenMode.SERVER:
                os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1

    def _acquire(self, deadline: float) -> None:
        if self._mode is OpenMode.CLIENT and not self._try(fcntl.LOCK_SH):
            raise self._held_by_server()
        if self._mode is OpenMode.SERVER:
            while not self._try(fcntl.LOCK_EX):
                if not self._try(fcntl.LOCK_SH):
                    raise self._held_by_server()
                fcntl.flock(self._file, fcntl.LOCK_UN)
                if time.monotonic() >= deadline:
                    raise StoreHeld(
                        f"{self._store} is in use by an embedded client, such as a notebook or "
                        "a holdfast command.",
                        hint="Close it, then start the server again.",
                    )
                time.sleep(0.02)
            self.announce()

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _held_by_server(self) -> StoreHeld:
        holder = _read_holder(self._file)
        who = f"process {holder.pid or 'unknown'} on {holder.host}"
        url = holder.url
        where = f", which answers at {url}" if url else ""
        todo = (
            "Stop it first, or choose another file."
            if self._mode is OpenMode.SERVER
            else f"Talk to the server instead: set HOLDFAST_URL={url or 'to its address'}."
        )
        return StoreHeld(f"{self._store} is held by a server: {who}{where}.", hint=todo, url=url)


def _lock_path(store: Path) -> Path:
    return store.with_name(store.name + ".lock")


def _read_holder(file: int) -> LockHolder:
    try:
        return msgspec.json.decode(os.pread(file, 4096, 0), type=LockHolder)
    except msgspec.DecodeError:  # it has the lock and is about to write who it is
        return LockHolder(pid=0, host="this host")
