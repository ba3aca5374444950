"""Replaces itself by a program that the kernel kills when its parent dies, also by `kill -9`.

A script rather than a hook between fork and exec, which is unsafe in a process with threads.
Run by tests/support/control_plane.py as `python die_with_parent.py PARENT-PID PROGRAM ARGUMENT...`.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    if sys.platform == "linux":  # elsewhere the parent's own clean-up has to do
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent died first")
    # S606 asks about shells: this is the program our own caller named.
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606
