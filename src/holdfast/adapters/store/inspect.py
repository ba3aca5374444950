"""Looks at a whole file, beside whoever uses it: the full check, and the online backup."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import apsw

from holdfast.adapters.store import rows
from holdfast.adapters.store.connection import check_pages, open_reader
from holdfast.adapters.store.errors import translated, unwritable
from holdfast.core.errors import ConfigurationError


def problems(path: Path, *, vfs: str | None = None) -> list[str]:
    """Check every page, every reference and the seal of every row."""
    connection = open_reader(path, vfs=vfs)
    try:
        found = check_pages(connection)
        for table, *_ in connection.execute("PRAGMA foreign_key_check"):
            found.append(f"{table} refers to a row that is not there")
        for each in rows.TABLES:
            bad = 0
            for row in connection.execute(each.select):
                try:
                    rows.opened(row)
                except apsw.CorruptError:
                    bad += 1
            if bad:
                found.append(f"{bad} rows of {each.name} do not match their checksum")
    except (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError) as error:
        return [str(error)]
    except apsw.Error as error:
        raise translated(error, path) from error
    finally:
        connection.close()
    return found


def backup(path: Path, copy: Path, *, vfs: str | None = None) -> None:
    """Copy one committed state to a new file, durable when this returns."""
    if copy.exists():
        raise ConfigurationError(f"{copy} already exists.", todo="Name a new file.")
    draft = copy.with_name(f"{copy.name}.{os.getpid()}.part")
    try:
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _copy(path, draft, vfs)
        _sync(draft, os.O_RDWR)
        draft.rename(copy)
        _sync(copy.parent, os.O_RDONLY)
    except OSError as error:
        raise unwritable(copy, str(error)) from error
    except apsw.Error as error:
        raise translated(error, copy) from error
    finally:
        for name in (draft.name, f"{draft.name}-wal", f"{draft.name}-shm"):
            with contextlib.suppress(OSError):
                draft.with_name(name).unlink()


def _copy(path: Path, draft: Path, vfs: str | None) -> None:
    source = open_reader(path, vfs=vfs)
    copy = apsw.Connection(str(draft), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with copy.backup("main", source, "main") as running:
            # In one step: the copy is one committed state, however much is written meanwhile.
            running.step(-1)
    finally:
        copy.close()
        source.close()


def _sync(path: Path, flags: int) -> None:
    file = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
