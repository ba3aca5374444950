"""A disk under SQLite that fails, fills up, or takes the process with it, at a chosen call.

Used by the store's fault tests. Calls that change the disk are numbered from 1: writes, syncs,
truncations and deletions of the database, its log and its journal.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import apsw

Hook = Callable[[str, int, bool], None]
"""Called as (kind, number, before): before each call and, when it succeeded, after it."""


class FaultyDisk(apsw.VFS):
    """The machine's own disk, with a hook around every call that changes it."""

    def __init__(self, name: str, hook: Hook | None = None) -> None:
        self.name = name
        self.calls = 0
        self.hook = hook
        super().__init__(name, "")

    def around(self, kind: str, call: Callable[[], None]) -> None:
        self.calls += 1
        number = self.calls
        if self.hook:
            self.hook(kind, number, True)
        call()
        if self.hook:
            self.hook(kind, number, False)

    def excepthook(self, kind: object, value: object, traceback: object) -> None:
        """Say nothing: the faults are on purpose."""

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self, name, flags)

    def xDelete(self, name: str, sync_directory: bool) -> None:  # noqa: N802
        self.around("delete", lambda: super(FaultyDisk, self).xDelete(name, sync_directory))


class _File(apsw.VFSFile):
    def __init__(
        self, disk: FaultyDisk, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._disk = disk
        super().__init__("", name, flags)  # type: ignore[arg-type]  # a URI name passes as it is

    def excepthook(self, kind: object, value: object, traceback: object) -> None:
        """Say nothing: the faults are on purpose."""

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.around("write", lambda: super(_File, self).xWrite(data, offset))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.around("sync", lambda: super(_File, self).xSync(flags))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._disk.around("truncate", lambda: super(_File, self).xTruncate(size))


def killer(number: int, *, before: bool) -> Hook:
    """Kill this process, as `kill -9` does, at one call."""

    def hook(_kind: str, call: int, is_before: bool) -> None:
        if call == number and is_before is before:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def disk_full() -> apsw.FullError:
    return apsw.FullError("no space left")


def sync_failure() -> Exception:
    error = apsw.IOError("sync failed")
    error.extendedresult = apsw.SQLITE_IOERR_FSYNC  # type: ignore[attr-defined]  # apsw reads it
    return error
