"""The suite in the background of a script, where a shell has Control-C ignored."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.support.processes import ROOT

TRIED = (
    "tests/apps/cli/test_terminal.py::test_an_interrupt_leaves_no_traceback",
    "tests/apps/sdk/test_background.py::test_an_interrupt_ends_the_wait_and_the_program_cleanly",
)


def test_tests_of_control_c_pass_where_it_is_ignored() -> None:
    """`nohup make test &`: what a test starts would inherit it, and could not be interrupted."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:xdist", *TRIED],
            cwd=ROOT, capture_output=True, text=True, timeout=110,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, handler)
    assert run.returncode == 0, run.stdout
    assert "2 passed" in run.stdout or ".." in run.stdout
