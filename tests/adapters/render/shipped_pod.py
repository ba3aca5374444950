"""Starts a program as the pods of an installation start theirs, as far as one machine can.

Run as a script: the user to become, or -; a directory that stays writable; then the program. It
does what `holdfast.install.deployments` asks of a container runtime: another user, no
capabilities, none to be gained, a read-only root, and the calls that runtimes' default filter
refuses.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 22, 24, 38
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_CALLS = {
    # unshare, setns, mount, umount2, io_uring_setup; then clone and clone3
    "x86_64": ((272, 308, 165, 166, 425), 56, 435),
    "aarch64": ((97, 268, 40, 39, 425), 220, 435),
}


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def main(arguments: list[str]) -> None:
    """Confine this process and become the program."""
    user, writable, *program = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    if os.getuid() == 0:
        _make_root_read_only(libc, writable)
        for capability in range(64):
            if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
                break
    if user != "-":
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    _done(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _refuse_what_runtimes_refuse(libc)
    os.execv(program[0], program)  # noqa: S606  # the test's own program


def _make_root_read_only(libc: ctypes.CDLL, writable: str) -> None:
    _done(libc.unshare(_CLONE_NEWNS))
    _done(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None))
    _done(libc.mount(writable.encode(), writable.encode(), None, _MS_BIND, None))
    _done(libc.mount(b"none", b"/", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY, None))


def _refuse_what_runtimes_refuse(libc: ctypes.CDLL) -> None:
    refused, clone, clone3 = _CALLS[os.uname().machine]
    lines = [(0x20, 0, 0, 0)]
    for call in refused:
        lines += [(0x15, 0, 1, call), (0x06, 0, 0, 0x00050000 | errno.EPERM)]
    lines += [(0x15, 0, 1, clone3), (0x06, 0, 0, 0x00050000 | errno.ENOSYS)]
    lines += [
        (0x15, 0, 3, clone),
        (0x20, 0, 0, 16),  # its flags
        (0x45, 0, 1, _CLONE_NEWUSER),
        (0x06, 0, 0, 0x00050000 | errno.EPERM),
        (0x06, 0, 0, 0x7FFF0000),
    ]
    text = b"".join(struct.pack("HBBI", *line) for line in lines)
    held = ctypes.create_string_buffer(text, len(text))
    given = _Filter(len(lines), ctypes.addressof(held))
    _done(libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(given), 0, 0))


def _done(status: int) -> None:
    if status:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main(sys.argv[1:])
