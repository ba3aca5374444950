"""Watches that the open files are still the ones at their paths.

A database that is moved, replaced or deleted under a running server would go on taking writes
that nobody could ever find again.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import StoreUnavailable


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
