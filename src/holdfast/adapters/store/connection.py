"""Opens the SQLite file with the settings that durability rests on.

Every commit waits for the disk (`synchronous=FULL`), the file is never memory-mapped, and a
checkpoint is run by the writer and by nobody else.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import apsw

from holdfast.adapters.store.errors import damaged, translated, unwritable

BUSY_TIMEOUT_MS = 10_000
FULL = 2
"""SQLite's number for `synchronous=FULL`."""
SMALL = 16 * 2**20
"""A file up to this many bytes is checked in full when a server opens it."""


def open_writer(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """Open for writing, making an empty file when there is none. Changes no existing data.

    An existing file is never opened past SQLite: closing such a handle would drop the locks
    that other connections of this process hold on it.
    """
    try:
        # SQLite gives its side files the mode of the main one; hashes of tokens are inside.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, flags, 0o600))
    except OSError as error:
        raise unwritable(path, str(error)) from error
    for each, what in ((path, "it is read-only"), (path.parent, "its directory is read-only")):
        if not os.access(each, os.W_OK):
            raise unwritable(path, what)
    return _connect(path, vfs)


def open_reader(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """Open for reading beside a writer."""
    connection = _connect(path, vfs)
    connection.wal_autocheckpoint(0)
    connection.pragma("query_only", True)
    return connection


def settle(connection: apsw.Connection) -> None:
    """Turn the write-ahead log on and assert that commits wait for the disk."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            mode = connection.pragma("journal_mode", "wal")
            break
        except apsw.BusyError:  # SQLite does not wait by itself for this one statement
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.pragma("synchronous", "full")
    connection.pragma("foreign_keys", True)
    connection.pragma("journal_size_limit", 64 * 2**20)
    if mode != "wal" or connection.pragma("synchronous") != FULL:
        raise RuntimeError("SQLite refused the settings that durability rests on")


def check_length(connection: apsw.Connection, path: Path) -> None:
    """Refuse a file that is shorter than its own header says.

    Beside a write-ahead log the header may rightly be ahead, and SQLite mends it. That log
    can come and go while other processes use the file, so a suspicion is looked at again.
    """
    log = path.with_name(path.name + "-wal")
    for _ in range(5):
        pages, page = int(connection.pragma("page_count")), int(connection.pragma("page_size"))
        size = path.stat().st_size
        if _has_content(log) or (size >= pages * page and size % page == 0):
            return
        time.sleep(0.01)
    raise damaged(path, "it is shorter than its header says")


def check_pages(connection: apsw.Connection, *, limit: int = 10) -> list[str]:
    """Read the whole file and return what is wrong with it."""
    rows = connection.execute(f"PRAGMA integrity_check({int(limit)})").fetchall()
    return [str(text) for (text,) in rows if text != "ok"]


def _connect(path: Path, vfs: str | None) -> apsw.Connection:
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        connection.pragma("mmap_size", 0)
    except apsw.Error as error:
        raise translated(error, path) from error
    return connection


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
