"""Remembers, beside the file, how far the file had come, so that an older copy is noticed.

Written only after a commit and without waiting for the disk: it may lag behind the file and
is never ahead of it, so a crash raises no false alarm.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from holdfast.core.errors import StoreUnavailable


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """The last state that was seen: which file, and how many commits it had."""

    lineage: str
    serial: int


def witness_path(path: Path) -> Path:
    """Where the witness of a store is kept."""
    return path.with_name(path.name + ".serial")


def recall(path: Path) -> Witness | None:
    """Read what was last seen; None when nothing usable was kept."""
    try:
        return msgspec.json.decode(witness_path(path).read_bytes(), type=Witness)
    except (OSError, msgspec.DecodeError):
        return None


def keep(path: Path, witness: Witness) -> None:
    """Note what was seen. Failing to is harmless, so it is not reported."""
    file = witness_path(path)
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        draft.write_bytes(msgspec.json.encode(witness))
        draft.replace(file)


def check(path: Path, seen: Witness | None, found: Witness | None) -> None:
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
        todo="Put the newer file back, or accept this one as it is: holdfast serve "
        f"--accept-rollback once, or delete {witness_path(path).name}.",
    )
