"""Runs one program within limits and without a network. Started as a script of its own.

Limits belong to a process, and setting them between fork and exec of a process with threads is
not safe; so `program.py` starts this small script, which limits itself and becomes the program.
It imports nothing of Holdfast, and stays in its own process group.

Two layers keep the program from the network. A system call filter refuses to make any socket:
it needs no privilege, so it holds in the shipped pod, which has none. Where the kernel lets us,
the program is also in an empty network of its own. When neither can be had the program is not
started, unless whoever called us said that it may run without.

Arguments: seconds of CPU, bytes of memory, bytes per written file, open files, `confined` or
`open` for a machine that has no such layers, then the program.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys

NOT_CONFINED = 94
"""The exit status when the network could not be taken away, so nothing was started."""
CONFINED = "confined"
OPEN = "open"

_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_AT_NUMBER, _AT_ARCHITECTURE = 0, 4
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_REFUSE = 0x00050000 | 13  # EACCES, which programs put into words
_NO_SUCH_CALL = 0x00050000 | 38  # ENOSYS, as on a kernel without it
_X32 = 0x40000000

_MACHINES = {
    # machine: (what the kernel calls it, number of `socket`)
    "x86_64": (0xC000003E, 41),
    "aarch64": (0xC00000B7, 198),
}
_IO_URING_SETUP = 425
"""It makes sockets without the call for them."""
_PIDFD_GETFD = 438
"""It takes a socket that another process has open."""


def main(arguments: list[str]) -> None:
    """Limit this process and become the program."""
    seconds, memory, written, files = (int(text) for text in arguments[:4])
    if not drop_network() and arguments[4] != OPEN:
        sys.exit(NOT_CONFINED)
    for limit, value in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, written),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, memory),
    ):
        _set_limit(limit, value)
    os.execv(arguments[5], arguments[5:])  # noqa: S606  # a fixed program, no shell


def drop_network() -> bool:
    """Take the network away from this process and what it starts; False when that failed."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    own = not libc.unshare(_CLONE_NEWNET) or not libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    return _refuse_sockets(libc) or own


def _set_limit(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(limit, (value, value))


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def _refuse_sockets(libc: ctypes.CDLL) -> bool:
    """Have the kernel refuse every call that makes or takes a socket, for good."""
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        return False
    text = b"".join(struct.pack("HBBI", *line) for line in _filter_program(*machine))
    held = ctypes.create_string_buffer(text, len(text))
    given = _Filter(len(text) // 8, ctypes.addressof(held))
    done: int = libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(given), 0, 0)
    return done == 0


def _filter_program(architecture: int, socket: int) -> list[tuple[int, int, int, int]]:
    """Return the filter. A jump skips so many lines: the first number where it holds."""
    return [
        (_LOAD, 0, 0, _AT_ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),  # another set of numbers, in which these mean something else
        (_LOAD, 0, 0, _AT_NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
        (_EQUAL, 0, 1, socket),
        (_RETURN, 0, 0, _REFUSE),
        (_EQUAL, 0, 1, _IO_URING_SETUP),
        (_RETURN, 0, 0, _NO_SUCH_CALL),
        (_EQUAL, 0, 1, _PIDFD_GETFD),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
