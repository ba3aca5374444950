"""Decides who may have the file open, by locks on a file beside it.

A server holds the lock alone; embedded clients share it among themselves. The lock is the
operating system's, so it ends with its process however that ends. The text in the file only
says who holds it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from enum import StrEnum
from pathlib import Path

import msgspec

from holdfast.adapters.store.errors import unwritable
from holdfast.core.errors import StoreHeld

PATIENCE = 2.0
"""How many seconds a starting server waits for embedded clients, most of which are brief."""


class Mode(StrEnum):
    """Who opens the file, and with whom it is shared."""

    SERVER = "server"
    """Alone, for as long as it runs."""
    CLIENT = "client"
    """Together with other embedded clients, never beside a server."""
    ADMIN = "admin"
    """Beside anyone, for projects and tokens."""


class Holder(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a server says of itself."""

    pid: int
    host: str
    url: str | None = None
    one_project: bool = False
    """It runs workloads, and those of one project alone."""


def holder_of(store: Path) -> Holder | None:
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


class Lock:
    """A lock that is held until `release`."""

    def __init__(self, path: Path, mode: Mode, *, patience: float = PATIENCE) -> None:
        self._store = path
        self._path = _lock_path(path)
        self._mode = mode
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable(path, str(error)) from error
        try:
            self._acquire(time.monotonic() + patience)
        except BaseException:
            os.close(self._file)
            raise

    def announce(self, url: str | None = None, *, one_project: bool = False) -> None:
        """Say who holds the lock, for those who are refused."""
        holder = Holder(
            pid=os.getpid(), host=socket.gethostname(), url=url, one_project=one_project
        )
        text = msgspec.json.encode(holder)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, text, 0)

    def release(self) -> None:
        """Let others in. Safe to call twice."""
        if self._file >= 0:
            if self._mode is Mode.SERVER:
                os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1

    def _acquire(self, deadline: float) -> None:
        if self._mode is Mode.CLIENT and not self._try(fcntl.LOCK_SH):
            raise self._held_by_server()
        if self._mode is Mode.SERVER:
            while not self._try(fcntl.LOCK_EX):
                if not self._try(fcntl.LOCK_SH):
                    raise self._held_by_server()
                fcntl.flock(self._file, fcntl.LOCK_UN)
                if time.monotonic() >= deadline:
                    raise StoreHeld(
                        f"{self._store} is in use by an embedded client, such as a notebook or "
                        "a holdfast command.",
                        todo="Close it, then start the server again.",
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
        todo = (
            "Stop it first, or choose another file."
            if self._mode is Mode.SERVER
            else f"Talk to the server instead: set HOLDFAST_URL={url or 'to its address'}."
        )
        return StoreHeld(f"{self._store} is held by a server: {who}{where}.", todo=todo, url=url)


def _lock_path(store: Path) -> Path:
    return store.with_name(store.name + ".lock")


def _read_holder(file: int) -> Holder:
    try:
        return msgspec.json.decode(os.pread(file, 4096, 0), type=Holder)
    except msgspec.DecodeError:  # it has the lock and is about to write who it is
        return Holder(pid=0, host="this host")
