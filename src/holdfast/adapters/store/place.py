"""Finds the one name of a store's file, and watches that the open files are still there.

SQLite keeps its log beside the file under the file's name, and so do we with the lock: under a
second name there would be a second log and a second lock, and writes that nobody finds again.
The same goes for a database that is moved, replaced or deleted under a running server.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.adapters.store.errors import unwritable
from holdfast.core.errors import StoreUnavailable


def real_path(path: Path) -> Path:
    """Follow symbolic links, as SQLite does, so that all files lie beside the real one."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a link that leads to itself
        raise unwritable(path.absolute(), str(error)) from error


def check_names(path: Path) -> None:
    """Refuse a file that has another name, a hard link, through which it could be opened too."""
    try:
        names = path.stat().st_nlink
    except OSError:
        return  # not there yet, or told when it is opened
    if names > 1:
        raise StoreUnavailable(
            f"{path} has {names} names (hard links). A second name has a log and a lock of its "
            "own, so writes could be lost.",
            todo=f"Find the others (find / -inum {path.stat().st_ino}), keep the one beside which "
            f"its -wal file lies and remove the rest. A copy is made by holdfast backup.",
        )


class Place:
    """The files as they were when they were first seen."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._file_id = _identity(path)
        self._log_id: tuple[int, int] | None = None

    def problem(self) -> StoreUnavailable | None:
        """Say what has become of the files; None when they are where they were."""
        log = _identity(self._log)
        if _identity(self._path) != self._file_id:
            return self._lost(self._path)
        # SQLite makes the log at the first write and keeps it for as long as we have it open.
        if self._log_id is not None and log != self._log_id:
            return self._lost(self._log)
        self._log_id = log
        return None

    def _lost(self, file: Path) -> StoreUnavailable:
        return StoreUnavailable(
            f"{file} was removed or replaced while it was open.",
            todo="Put the file back if it was moved, then restart Holdfast: no write is accepted "
            "until then.",
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
