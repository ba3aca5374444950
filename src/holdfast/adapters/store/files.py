"""The files of a store: their one name, the lock, the watermark, and how they are opened.

SQLite keeps its log beside the file under the file's name, and so do we with the lock: under a
second name there would be a second log and a second lock, and lost writes. A server holds the lock
alone; embedded clients share it. The watermark remembers how far the file had come, so that an
older copy is noticed; it is written after a commit and may lag, so a crash raises no false alarm.
Nothing is changed before every check has passed: who holds the file, whether it is ours, whether
this code is new enough for it, whether it is as new as it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import apsw
import msgspec

from holdfast.adapters.store import rows, schema
from holdfast.adapters.store.errors import damaged_store, store_error, unwritable_store
from holdfast.core.errors import ConfigurationError, StoreHeld, StoreUnavailable


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
        return  # not there yet, or reported when it is opened
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
    """Where the watermark of a store is kept."""
    return path.with_name(path.name + ".serial")


def read_watermark(path: Path) -> Watermark | None:
    """Read what was last seen; None when nothing usable was kept."""
    try:
        return msgspec.json.decode(watermark_path(path).read_bytes(), type=Watermark)
    except (OSError, msgspec.DecodeError):
        return None


def write_watermark(path: Path, watermark: Watermark) -> None:
    """Note what was seen. Failing to is harmless, so it is not reported."""
    file = watermark_path(path)
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        draft.write_bytes(msgspec.json.encode(watermark))
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
        hint = (
            "Stop it first, or choose another file."
            if self._mode is OpenMode.SERVER
            else f"Talk to the server instead: set HOLDFAST_URL={url or 'to its address'}."
        )
        return StoreHeld(f"{self._store} is held by a server: {who}{where}.", hint=hint, url=url)


def _lock_path(store: Path) -> Path:
    return store.with_name(store.name + ".lock")


def _read_holder(file: int) -> LockHolder:
    try:
        return msgspec.json.decode(os.pread(file, 4096, 0), type=LockHolder)
    except msgspec.DecodeError:  # it has the lock and is about to write who it is
        return LockHolder(pid=0, host="this host")


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
    can come and go while other processes use the file, so a suspicion is checked again.
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
            if (
                seen
                and found
                and accept_rollback
                and (found.lineage != seen.lineage or found.serial < seen.serial)
            ):
                writer.execute(
                    "UPDATE meta SET lineage = lower(hex(randomblob(16))), epoch = epoch + 1"
                )
                writer.execute("DELETE FROM sessions")  # one may have been ended since
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
