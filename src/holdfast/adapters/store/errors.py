"""Says what is wrong with the store in words that a person can act on.

The one place where SQLite's exceptions become ours; every module of this package raises
through here.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from holdfast.core.errors import OUTCOME_UNKNOWN, StoreBusy, StoreFull, StoreUnavailable


def store_error(error: apsw.Error, path: Path, *, writing: bool = False) -> StoreUnavailable:
    """Turn an exception of SQLite's into one of ours."""
    if is_full(error):
        return StoreFull(
            f"There is no space left for {path}.",
            hint="Free some space; nothing has to be restarted.",
        )
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy(
            f"Another process has been writing to {path} for too long.",
            hint="Try again; if it stays so, find the process that has the file open.",
        )
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.FormatError):
        return damaged_store(path, str(error))
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError | apsw.CantOpenError):
        return unwritable_store(path, str(error))
    if isinstance(error, apsw.IOError):
        return broken_disk_error(path, str(error), writing=writing)
    return StoreUnavailable(f"SQLite could not use {path}: {error}.", hint="Please report this.")


def is_full(error: apsw.Error) -> bool:
    """True when the cause is missing space, which passes."""
    if isinstance(error, apsw.FullError):
        return True
    # SQLite reports a full disk as an I/O error when it was the shared index that could not
    # grow.
    return isinstance(error, apsw.IOError) and (
        getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    )


def is_fatal(error: apsw.Error) -> bool:
    """True when the disk failed: what it has said since cannot be relied on.

    A failed sync may drop what it was to keep, and the next one then reports success.
    """
    return isinstance(error, apsw.IOError) and not is_full(error)


def is_shared(error: apsw.Error) -> bool:
    """True when the failure is the file's, and not of the one work that met it."""
    return isinstance(
        error, apsw.FullError | apsw.IOError | apsw.BusyError | apsw.NoMemError | apsw.ReadOnlyError
    )


def damaged_store(path: Path, what: str) -> StoreUnavailable:
    """The file cannot be trusted."""
    return StoreUnavailable(
        f"{path} is damaged or not a Holdfast database ({what}).",
        hint=f"Stop everything that uses it, move {path.name}, {path.name}-wal and "
        f"{path.name}-shm aside and put a backup in their place (holdfast doctor checks a file).",
    )


def unwritable_store(path: Path, what: str) -> StoreUnavailable:
    """The file or its directory cannot be written."""
    return StoreUnavailable(
        f"{path} cannot be opened for writing ({what}).",
        hint=f"Make the file and its directory {path.parent} writable for this user, "
        "or choose another file.",
    )


def broken_disk_error(path: Path, what: str, *, writing: bool) -> StoreUnavailable:
    """The disk gave an error, so what it says it has kept cannot be relied on."""
    return StoreUnavailable(
        f"The disk failed under {path} ({what}).",
        changed=OUTCOME_UNKNOWN.replace("The request was sent", "The write was begun")
        if writing
        else "Nothing was changed.",
        hint="Check the disk, then restart Holdfast: no write is accepted until then.",
    )


def closed_store(path: Path) -> StoreUnavailable:
    """The store was closed by its owner."""
    return StoreUnavailable(f"{path} was closed.", hint="Open it again.")
