"""Runs one program within limits and without a network. Started as a script of its own.

Limits belong to a process, and setting them between fork and exec of a process with threads is
not safe; so `program.py` starts this small script, which limits itself and becomes the program.
It imports nothing of Holdfast, and stays in its own process group.

Arguments: seconds of CPU, bytes of memory, bytes per written file, open files, then the program.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000


def main(arguments: list[str]) -> None:
    """Limit this process and become the program."""
    seconds, memory, written, files = (int(text) for text in arguments[:4])
    _leave_the_network()
    for limit, value in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, written),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, memory),
    ):
        _limit(limit, value)
    os.execv(arguments[4], arguments[4:])  # noqa: S606  # a fixed program, no shell


def _limit(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(limit, (value, value))


def _leave_the_network() -> None:
    """Enter a network of our own with nothing in it, where the kernel permits that.

    Where it does not, nothing that was checked before names anything remote.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.unshare(_CLONE_NEWNET):
        libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


if __name__ == "__main__":
    main(sys.argv[1:])
