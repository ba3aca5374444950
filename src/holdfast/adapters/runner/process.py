"""One process and all that it starts: spawn, adopt, notice its end, stop it for real.

Backends leave workers behind when only the parent is killed, so everything here is done to
the process group first and then to whatever still carries the marker.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.runner.launch import MARKER
from holdfast.reconcile.ports import Clock

_PROC = Path("/proc")
_LISTEN_STATE = "0A"
"""The state of a listening socket in the tables of the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedProcess:
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
    fields = _read_stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def find_marked_processes(prefix: str) -> list[MarkedProcess]:
    """Find every running process whose marker starts so. Skips what we may not look into."""
    marked = f"{MARKER}={prefix}".encode()
    found = []
    for pid in _list_pids():
        with suppress(OSError):
            environ = (_PROC / str(pid) / "environ").read_bytes()
            if marked not in environ:
                continue
            for entry in environ.split(b"\0"):
                fields = _read_stat(pid) if entry.startswith(marked) else None
                if fields is not None and fields[0] not in "ZX":
                    found.append(
                        MarkedProcess(
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
    for process in find_marked_processes(marker):
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


def listening_ports(marker: str) -> list[int]:
    """Return the TCP ports on which processes with exactly this marker listen."""
    ports: set[int] = set()
    for process in find_marked_processes(marker):
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
                    if fields[3] == _LISTEN_STATE and f"socket:[{fields[9]}]" in sockets:
                        ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)


def _list_pids() -> Iterator[int]:
    with suppress(OSError):
        for name in os.listdir(_PROC):
            if name.isdigit():
                yield int(name)


def _read_stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third on; the second may hold anything."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


_POLL_SECONDS = 0.1
"""How often to look whether a group has ended, once its leader has."""
_DEFAULT_SIGNALS = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP]
"""Python ignores the first two, and a shell the others for a server in the background of a script.
A child would inherit that, and a backend has the right to be ended by them."""


class Process:
    """A running backend. Create with `spawn` or `adopt`, within an event loop."""

    def __init__(self, pid: int, *, marker: str, child: bool, on_exit: Callable[[], None]) -> None:
        self.pid = pid
        self.start = start_ticks(pid) or 0
        self.exited = asyncio.Event()
        self.code: int | None = None
        """Exit code, or minus the signal's number; None while it runs and when unknown."""
        self._marker = marker
        self._child = child
        self._on_exit = on_exit
        self._reaped = not child
        self._handle: int | None = None
        self._poll: asyncio.Task[None] | None = None
        self._watch()

    @classmethod
    def spawn(
        cls,
        argv: list[str],
        env: Mapping[str, str],
        *,
        log: Path,
        marker: str,
        on_exit: Callable[[], None],
    ) -> Process:
        """Start a program in a session of its own, writing to the log by itself.

        The child holds the log and not a pipe to us, so it outlives a killed server.
        Raises OSError when the program cannot be executed.
        """
        appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        pid = os.posix_spawn(
            argv[0],
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), appending, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                *((os.POSIX_SPAWN_CLOSE, handle) for handle in _inheritable_descriptors()),
            ],
            setsid=True,
            setsigdef=_DEFAULT_SIGNALS,
            setsigmask=[],
        )
        return cls(pid, marker=marker, child=True, on_exit=on_exit)

    @classmethod
    def adopt(cls, pid: int, *, marker: str, on_exit: Callable[[], None]) -> Process:
        """Take over a process that an earlier server started."""
        return cls(pid, marker=marker, child=False, on_exit=on_exit)

    async def stop(self, *, grace: float, clock: Clock) -> None:
        """SIGTERM to the group, a deadline, SIGKILL to the group; return when none is left."""
        deadline = clock.monotonic() + grace
        self._signal_group(signal.SIGTERM)
        while not self.exited.is_set() and clock.monotonic() < deadline:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.exited.wait(), deadline - clock.monotonic())
        while clock.monotonic() < deadline and await asyncio.to_thread(
            _is_marker_alive, self._marker
        ):
            await clock.sleep(_POLL_SECONDS)
        await self.bury(clock=clock)

    async def bury(self, *, clock: Clock) -> None:
        """Kill whatever is left of it and reap it."""
        self._signal_group(signal.SIGKILL)
        await _kill_all(self._marker, clock)
        await self.exited.wait()
        self._reap()
        self.release()

    def release(self) -> None:
        """Stop watching, and leave the process as it is."""
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None

    def _signal_group(self, number: signal.Signals) -> None:
        # An unreaped child keeps its number; an adopted one may have lost it to a stranger.
        if self._reaped and (self.start == 0 or start_ticks(self.pid) != self.start):
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _watch(self) -> None:
        try:
            self._handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._ended()
        except (AttributeError, OSError):
            self._poll = asyncio.create_task(self._look())
        else:
            asyncio.get_running_loop().add_reader(self._handle, self._ended)

    async def _look(self) -> None:
        while not self._gone():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(1.0)
        self._poll = None
        self._ended()

    def _gone(self) -> bool:
        if not self._child:
            return start_ticks(self.pid) != self.start
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, options) is not None
        except ChildProcessError:
            return True

    def _ended(self) -> None:
        if self.exited.is_set():
            return
        self.release()
        if self._child:
            with suppress(ChildProcessError):  # somebody else in this program reaped it
                # Left unreaped until its group is dead: that keeps the group's number ours.
                info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if info is not None:
                    plain = info.si_code == os.CLD_EXITED
                    self.code = info.si_status if plain else -info.si_status
        self.exited.set()
        self._on_exit()

    def _reap(self) -> None:
        if not self._reaped:
            self._reaped = True
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)


def _inheritable_descriptors() -> list[int]:
    """Return what a child would get of ours by accident.

    A web server makes its listening socket inheritable; a backend that outlives the server
    would keep the port from the next one.
    """
    handles = []
    for name in os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"):
        with suppress(OSError, ValueError):
            if int(name) > 2 and os.get_inheritable(int(name)):
                handles.append(int(name))
    return handles


async def stop_marked_processes(marker: str, *, grace: float, clock: Clock) -> None:
    """Stop processes that we know by their marker alone: strays of an earlier server."""
    deadline = clock.monotonic() + grace
    await asyncio.to_thread(kill_marked, marker, signal.SIGTERM)
    while clock.monotonic() < deadline and await asyncio.to_thread(_is_marker_alive, marker):
        await clock.sleep(_POLL_SECONDS)
    await _kill_all(marker, clock)


async def _kill_all(marker: str, clock: Clock) -> None:
    # A killed process can be held in the kernel for a while, by a GPU driver or a disk.
    pause = _POLL_SECONDS
    while await asyncio.to_thread(kill_marked, marker, signal.SIGKILL):
        await clock.sleep(pause)
        pause = min(1.0, pause * 1.5)


def _is_marker_alive(marker: str) -> bool:
    return any(found.marker == marker for found in find_marked_processes(marker))


def describe_exit(code: int | None) -> str:
    """Say how a process ended."""
    if code is None:
        return "ended; its exit code is unknown, since an earlier server started it"
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}"
