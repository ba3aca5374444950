"""One process and all that it starts: spawn, adopt, notice its end, stop it for real.

Backends leave workers behind when only the parent is killed, so everything here is done to
the process group first and then to whatever still carries the marker.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from holdfast.adapters.runner.identity import kill_marked, scan, start_ticks
from holdfast.reconcile.ports import Clock

_LOOK = 0.1
"""How often to look whether a group has ended, once its leader has."""
_DEFAULT = [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP]
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
                *((os.POSIX_SPAWN_CLOSE, handle) for handle in _inheritable()),
            ],
            setsid=True,
            setsigdef=_DEFAULT,
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
        while clock.monotonic() < deadline and await asyncio.to_thread(_carried, self._marker):
            await clock.sleep(_LOOK)
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
        while not self._gone():  # noqa: ASYNC110  # no event tells us: that is why we look
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


def _inheritable() -> list[int]:
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


async def stop_marked(marker: str, *, grace: float, clock: Clock) -> None:
    """Stop processes that we know by their marker alone: strays of an earlier server."""
    deadline = clock.monotonic() + grace
    await asyncio.to_thread(kill_marked, marker, signal.SIGTERM)
    while clock.monotonic() < deadline and await asyncio.to_thread(_carried, marker):
        await clock.sleep(_LOOK)
    await _kill_all(marker, clock)


async def _kill_all(marker: str, clock: Clock) -> None:
    # A killed process can be held in the kernel for a while, by a GPU driver or a disk.
    pause = _LOOK
    while await asyncio.to_thread(kill_marked, marker, signal.SIGKILL):
        await clock.sleep(pause)
        pause = min(1.0, pause * 1.5)


def _carried(marker: str) -> bool:
    return any(found.marker == marker for found in scan(marker))


def exit_text(code: int | None) -> str:
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
