"""Opens, checks and backs up the SQLite file of a store.

Nothing is changed before every check has passed: who holds the file, whether it is ours, whether
this code is new enough for it, whether it is as new as it was.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

from holdfast.adapters.store import rows, schema
from holdfast.adapters.store.errors import damaged_store, store_error, unwritable_store
from holdfast.adapters.store.files import (
    OpenMode,
    StoreLock,
    Watermark,
    check_hard_links,
    check_watermark,
    read_watermark,
    write_watermark,
)
from holdfast.core.errors import ConfigurationError

BUSY_TIMEOUT_MS = 10_000
_SYNCHRONOUS_FULL = 2
"""SQLite's number for `synchronous=FULL`."""
CHECKED_SIZE = 16 * 2**20
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
        raise unwritable_store(path, str(error)) from error
    for each, what in ((path, "it is read-only"), (path.parent, "its directory is read-only")):
        if not os.access(each, os.W_OK):
            raise unwritable_store(path, what)
    return _connect(path, vfs)


def open_reader(path: Path, *, vfs: str | None = None) -> apsw.Connection:
    """Open for reading beside a writer."""
    connection = _connect(path, vfs)
    connection.wal_autocheckpoint(0)
    connection.pragma("query_only", True)
    return connection


def configure_connection(connection: apsw.Connection) -> None:
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
    if mode != "wal" or connection.pragma("synchronous") != _SYNCHRONOUS_FULL:
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
    raise damaged_store(path, "it is shorter than its header says")


def find_damaged_pages(connection: apsw.Connection, *, limit: int = 10) -> list[str]:
    """Read the whole file and return what is wrong with it."""
    rows = connection.execute(f"PRAGMA integrity_check({int(limit)})").fetchall()
    return [str(text) for (text,) in rows if text != "ok"]


def _connect(path: Path, vfs: str | None) -> apsw.Connection:
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        connection.pragma("mmap_size", 0)
    except apsw.Error as error:
        raise store_error(error, path) from error
    return connection


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedStore:
    """An open store: the caller closes what is in it."""

    lock: StoreLock | None
    writer: apsw.Connection
    reader: apsw.Connection
    seen: Watermark
    epoch: int


def open_store_files(
    path: Path,
    *,
    mode: OpenMode,
    accept_rollback: bool,
    vfs: str | None,
    migrations: Sequence[Sequence[str]],
) -> OpenedStore:
    """Open, check and bring up to date."""
    with contextlib.ExitStack() as undo:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable_store(path, str(error)) from error
        lock = None if mode is OpenMode.ADMIN else StoreLock(path, mode)
        if lock:
            undo.callback(lock.release)
        check_hard_links(path)
        # Read before the file is: others may commit meanwhile, and then note it here.
        seen = read_watermark(path)
        if not accept_rollback and not path.exists():
            check_watermark(path, seen, None)
        writer = open_writer(path, vfs=vfs)
        undo.callback(writer.close)
        try:
            check_length(writer, path)
            schema.check_schema_version(writer, path, migrations)
            found = _watermark_of(writer, path)
            if not accept_rollback:
                check_watermark(path, seen, found)
            if mode is OpenMode.SERVER and found and path.stat().st_size <= CHECKED_SIZE:
                problems = find_damaged_pages(writer)
                if problems:
                    raise damaged_store(path, problems[0])
            configure_connection(writer)
            if schema.migrate_schema(writer, migrations):
                # From here on the file describes itself, even if its log were removed. Where
                # others have it open already, one of them does this sooner or later.
                with contextlib.suppress(apsw.BusyError):
                    writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            if accept_rollback and _went_back(seen, found):
                writer.execute(
                    "UPDATE meta SET lineage = lower(hex(randomblob(16))), epoch = epoch + 1"
                )
            reader = open_reader(path, vfs=vfs)
            undo.callback(reader.close)
            now = _watermark_of(writer, path)
            epoch = int(writer.execute("SELECT epoch FROM meta").get)
        except apsw.Error as error:
            raise store_error(error, path) from error
        if now is None:
            raise damaged_store(path, "it has lost its lineage")
        if now != seen:
            write_watermark(path, now)
        undo.pop_all()
        return OpenedStore(lock=lock, writer=writer, reader=reader, seen=now, epoch=epoch)


def _watermark_of(connection: apsw.Connection, path: Path) -> Watermark | None:
    """Read which database this is and how far it has come; None for one that is still empty."""
    if schema.schema_version(connection) == 0:
        return None
    row = connection.execute("SELECT lineage, serial FROM meta").fetchone()
    if row is None:
        raise damaged_store(path, "it has lost its lineage")
    return Watermark(lineage=str(row[0]), serial=int(row[1]))


def _went_back(seen: Watermark | None, found: Watermark | None) -> bool:
    return bool(seen and found and (found.lineage != seen.lineage or found.serial < seen.serial))


def find_problems(path: Path, *, vfs: str | None = None) -> list[str]:
    """Check every page, every reference and the seal of every row."""
    connection = open_reader(path, vfs=vfs)
    try:
        found = find_damaged_pages(connection)
        for table, *_ in connection.execute("PRAGMA foreign_key_check"):
            found.append(f"{table} refers to a row that is not there")
        for each in rows.TABLES:
            bad = 0
            for row in connection.execute(each.select):
                try:
                    rows.open_row(row)
                except apsw.CorruptError:
                    bad += 1
            if bad:
                found.append(f"{bad} rows of {each.name} do not match their checksum")
    except (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError) as error:
        return [str(error)]
    except apsw.Error as error:
        raise store_error(error, path) from error
    finally:
        connection.close()
    return found


def backup_store(path: Path, copy: Path, *, vfs: str | None = None) -> None:
    """Copy one committed state to a new file, durable when this returns."""
    if copy.exists():
        raise ConfigurationError(f"{copy} already exists.", hint="Name a new file.")
    draft = copy.with_name(f"{copy.name}.{os.getpid()}.part")
    try:
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _copy_database(path, draft, vfs)
        _sync_path(draft, os.O_RDWR)
        draft.rename(copy)
        _sync_path(copy.parent, os.O_RDONLY)
    except OSError as error:
        raise unwritable_store(copy, str(error)) from error
    except apsw.Error as error:
        raise store_error(error, copy) from error
    finally:
        for name in (draft.name, f"{draft.name}-wal", f"{draft.name}-shm"):
            with contextlib.suppress(OSError):
                draft.with_name(name).unlink()


def _copy_database(path: Path, draft: Path, vfs: str | None) -> None:
    source = open_reader(path, vfs=vfs)
    copy = apsw.Connection(str(draft), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with copy.backup("main", source, "main") as running:
            # In one step: the copy is one committed state, however much is written meanwhile.
            running.step(-1)
    finally:
        copy.close()
        source.close()


def _sync_path(path: Path, flags: int) -> None:
    file = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
