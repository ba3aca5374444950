"""Opens a store's files in the one right order, and refuses those that cannot be trusted.

Nothing is changed before every refusal has had its say: who holds the file, whether it is
ours, whether this code is new enough for it, whether it is as new as it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

from holdfast.adapters.store import schema, witness
from holdfast.adapters.store.connection import (
    SMALL,
    check_length,
    check_pages,
    open_reader,
    open_writer,
    settle,
)
from holdfast.adapters.store.errors import damaged, translated, unwritable
from holdfast.adapters.store.lock import Lock, Mode
from holdfast.adapters.store.place import check_names
from holdfast.adapters.store.witness import Witness


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An open store: the caller closes what is in it."""

    lock: Lock | None
    writer: apsw.Connection
    reader: apsw.Connection
    seen: Witness
    epoch: int


def open_files(
    path: Path,
    *,
    mode: Mode,
    accept_rollback: bool,
    vfs: str | None,
    migrations: Sequence[Sequence[str]],
) -> Opened:
    """Open, check and bring up to date."""
    with contextlib.ExitStack() as undo:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(path, str(error)) from error
        lock = None if mode is Mode.ADMIN else Lock(path, mode)
        if lock:
            undo.callback(lock.release)
        check_names(path)
        # Read before the file is: others may commit meanwhile, and then note it here.
        seen = witness.recall(path)
        if not accept_rollback and not path.exists():
            witness.check(path, seen, None)
        writer = open_writer(path, vfs=vfs)
        undo.callback(writer.close)
        try:
            check_length(writer, path)
            schema.identify(writer, path, migrations)
            found = _witness(writer, path)
            if not accept_rollback:
                witness.check(path, seen, found)
            if mode is Mode.SERVER and found and path.stat().st_size <= SMALL:
                problems = check_pages(writer)
                if problems:
                    raise damaged(path, problems[0])
            settle(writer)
            if schema.migrate(writer, migrations):
                # From here on the file describes itself, even if its log were removed. Where
                # others have it open already, one of them does this sooner or later.
                with contextlib.suppress(apsw.BusyError):
                    writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            if accept_rollback and _moved(seen, found):
                writer.execute(
                    "UPDATE meta SET lineage = lower(hex(randomblob(16))), epoch = epoch + 1"
                )
            reader = open_reader(path, vfs=vfs)
            undo.callback(reader.close)
            now = _witness(writer, path)
            epoch = int(writer.execute("SELECT epoch FROM meta").get)
        except apsw.Error as error:
            raise translated(error, path) from error
        if now is None:
            raise damaged(path, "it has lost its lineage")
        if now != seen:
            witness.keep(path, now)
        undo.pop_all()
        return Opened(lock=lock, writer=writer, reader=reader, seen=now, epoch=epoch)


def _witness(connection: apsw.Connection, path: Path) -> Witness | None:
    """Read which database this is and how far it has come; None for one that is still empty."""
    if schema.version_of(connection) == 0:
        return None
    row = connection.execute("SELECT lineage, serial FROM meta").fetchone()
    if row is None:
        raise damaged(path, "it has lost its lineage")
    return Witness(lineage=str(row[0]), serial=int(row[1]))


def _moved(seen: Witness | None, found: Witness | None) -> bool:
    return bool(seen and found and (found.lineage != seen.lineage or found.serial < seen.serial))
