"""Kills a store at every call that changes the disk, and looks at what is left.

Run as a program of its own, because it forks: `python -m tests.adapters.store.crash_driver MODE DIR
FIRST LAST STRIDE`. Prints one JSON object: how many points were tried and what went wrong.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.adapters.store.faulty_disk import FaultyDisk, killer
from tests.adapters.store.store_script import (
    broken_invariants,
    count_in_ledger,
    dump,
    make_first_version,
    open_store,
    operations,
    write_concurrently,
    write_ledger,
)

import holdfast.adapters.store.store as store_module
from holdfast.adapters.store import OpenMode, Store
from holdfast.adapters.store.ledger_store import SqliteLedgerStore
from holdfast.adapters.store.schema import MIGRATIONS

CLIENTS = 8
BOOK_WRITES = 12
NEWER = (
    *MIGRATIONS,
    (
        "CREATE TABLE extra (key INTEGER PRIMARY KEY, slug TEXT NOT NULL) STRICT",
        "INSERT INTO extra (slug) SELECT slug FROM workloads",
        "CREATE INDEX extra_by_slug ON extra (slug)",
    ),
    (
        "ALTER TABLE extra ADD COLUMN note TEXT NOT NULL DEFAULT ''",
        "UPDATE extra SET note = 'seen'",
    ),
)
"""Two migrations that the code does not have yet."""

Life = Callable[[Path, str | None, Callable[[int], None]], None]


def sequence(path: Path, vfs: str | None, acknowledge: Callable[[int], None]) -> None:
    store = open_store(path, vfs)
    for _ in operations(store):
        acknowledge(0)
    store.close()


def hasty(path: Path, vfs: str | None, acknowledge: Callable[[int], None]) -> None:
    """Answer before the commit, as no store may: the driver has to notice."""
    store = open_store(path, vfs)
    for _ in operations(store):
        acknowledge(0)
        acknowledge(0)
    store.close()


def group(path: Path, vfs: str | None, acknowledge: Callable[[int], None]) -> None:
    with Store.open(path, mode=OpenMode.SERVER, vfs=vfs) as store:
        asyncio.run(write_concurrently(store, CLIENTS, acknowledge))


def ledger(path: Path, vfs: str | None, acknowledge: Callable[[int], None]) -> None:
    """Each write of the GitOps controller's ledger changes a record and adds two lines."""
    with open_store(path, vfs) as store:
        asyncio.run(write_ledger(SqliteLedgerStore(store), BOOK_WRITES, acknowledge))


def migration(path: Path, vfs: str | None, acknowledge: Callable[[int], None]) -> None:
    Store.open(path, vfs=vfs, migrations=NEWER).close()
    acknowledge(0)


LIVES: dict[str, Life] = {
    "sequence": sequence,
    "hasty": hasty,
    "group": group,
    "book": ledger,
    "migration": migration,
}


class CrashDriver:
    """Tries one kill point after another, each in a fresh directory and a child of its own."""

    def __init__(self, mode: str, home: Path) -> None:
        self.mode = mode
        self.home = home
        self.snapshots: list[object] = []
        self.old = home / "old.db"
        # A short log is folded often, so that checkpoints are among the points.
        store_module.CHECKPOINT_PAGES = 40
        if mode in ("sequence", "hasty"):
            path = home / "whole.db"
            store = open_store(path)
            self.snapshots.append(dump(path))
            for _ in operations(store):
                self.snapshots.append(dump(path))
            store.close()
        elif mode == "migration":
            make_first_version(self.old)
            self.snapshots.append(dump(self.old))

    def attempt(self, number: int, *, before: bool) -> tuple[bool, list[str]]:
        """Kill at one point; True when the life ended before that point was reached."""
        place = self.home / f"{number}-{before}"
        place.mkdir()
        path = place / "holdfast.db"
        if self.mode == "migration":
            shutil.copy(self.old, path)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            self._live(path, number, before, write)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            acknowledged = Counter(pipe.read())
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not killed and status != 0:
            return True, [f"the life ended with {status}"]
        found = self._verify(path, acknowledged)
        shutil.rmtree(place)
        return not killed, found

    def _live(self, path: Path, number: int, before: bool, pipe: int) -> None:
        code = 1
        try:
            disk = FaultyDisk("faulty", killer(number, before=before))
            LIVES[self.mode](path, disk.name, lambda who: os.write(pipe, bytes([who])) and None)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _verify(self, path: Path, acknowledged: Counter[int]) -> list[str]:
        if self.mode == "migration":
            return self._verify_migration(path)
        found = broken_invariants(path)
        if self.mode in ("sequence", "hasty"):
            done = acknowledged[0]
            # What was acknowledged is there; the operation under way is there or it is not.
            if dump(path) not in self.snapshots[done : done + 2]:
                found.append(f"the state is none of those after {done} operations")
            return found
        if self.mode == "book":
            with Store.open(path) as store:
                kept = asyncio.run(count_in_ledger(SqliteLedgerStore(store)))
            if kept not in ((done := acknowledged[0], 2 * done), (done + 1, 2 * done + 2)):
                found.append(f"after {done} answers the record and its lines are {kept}")
            return found
        with Store.open(path) as store:
            generations = {record.id.slug: record.generation for record in store.records("acme")}
        for client in range(CLIENTS):
            kept = generations.get(f"w{client}", 0)
            if kept not in (acknowledged[client], acknowledged[client] + 1):
                found.append(f"client {client} had {acknowledged[client]} answers, kept {kept}")
        return found

    def _verify_migration(self, path: Path) -> list[str]:
        with Store.open(path, migrations=NEWER) as store:
            found = store.check()
        kept = dump(path)
        if kept != self.snapshots[0]:
            found.append("the migration changed what was kept")
        return found


def main() -> None:
    mode, home, first, last, stride = sys.argv[1:]
    driver = CrashDriver(mode, Path(home))
    points, problems = 0, []
    for number in range(int(first), int(last) + 1, int(stride)):
        ended, found = driver.attempt(number, before=True)
        problems += [f"killed before call {number}: {each}" for each in found]
        points += not ended
        if ended:
            break
        if number % 5 == 0:
            _, found = driver.attempt(number, before=False)
            problems += [f"killed after call {number}: {each}" for each in found]
            points += 1
    print(json.dumps({"points": points, "ended": ended, "problems": problems[:20]}))


if __name__ == "__main__":
    main()
