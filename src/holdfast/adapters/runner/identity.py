"""Tells processes apart by more than their number, which the system gives out again.

A process is ours when its environment carries our marker, and the same one as before when
its start time is the recorded one. Reads /proc; where there is none, nothing is claimed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.runner.launch import MARKER

_PROC = Path("/proc")
_LISTENS = "0A"
"""The state of a listening socket in the tables of the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A running process that carries a marker."""

    pid: int
    marker: str
    leader: bool
    """It leads its session, as the process that we started does."""
    start: int


def boot_id() -> str:
    """Name this run of the machine; numbers of an earlier one mean nothing."""
    with suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return ""


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; None when it does not run."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def scan(prefix: str) -> list[Found]:
    """Find every running process whose marker starts so. Skips what we may not look into."""
    wanted = f"{MARKER}={prefix}".encode()
    found = []
    for pid in _pids():
        with suppress(OSError):
            environ = (_PROC / str(pid) / "environ").read_bytes()
            if wanted not in environ:
                continue
            for entry in environ.split(b"\0"):
                fields = _stat(pid) if entry.startswith(wanted) else None
                if fields is not None and fields[0] not in "ZX":
                    found.append(
                        Found(
                            pid=pid,
                            marker=entry.partition(b"=")[2].decode(errors="replace"),
                            leader=int(fields[3]) == pid,
                            start=int(fields[19]),
                        )
                    )
    return found


def kill_marked(marker: str, number: signal.Signals) -> int:
    """Signal every process that carries exactly this marker; return how many there were."""
    count = 0
    for process in scan(marker):
        if process.marker != marker:
            continue
        count += 1
        with suppress(OSError):
            # The handle pins the process, so that the number cannot change hands meanwhile.
            handle = os.pidfd_open(process.pid)
            try:
                if start_ticks(process.pid) == process.start:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)
    return count


def listening(marker: str) -> list[int]:
    """Return the TCP ports on which processes with exactly this marker listen."""
    ports: set[int] = set()
    for process in scan(marker):
        if process.marker != marker:
            continue
        folder = _PROC / str(process.pid)
        sockets = set()
        with suppress(OSError):
            for handle in os.listdir(folder / "fd"):
                with suppress(OSError):
                    sockets.add(os.readlink(folder / "fd" / handle))
        for table in ("tcp", "tcp6"):
            with suppress(OSError):
                for line in (folder / "net" / table).read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == _LISTENS and f"socket:[{fields[9]}]" in sockets:
                        ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)


def _pids() -> Iterator[int]:
    with suppress(OSError):
        for name in os.listdir(_PROC):
            if name.isdigit():
                yield int(name)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third on; the second may hold anything."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
