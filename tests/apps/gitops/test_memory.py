"""What the controller holds in memory stays there, also when it crashes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="needs /proc")
def test_a_crash_of_the_controller_or_a_child_leaves_no_image_of_its_memory(
    tmp_path: Path,
) -> None:
    """In a process of its own: a limit that was lowered cannot be raised again."""
    script = """
        import pathlib, subprocess, sys
        from holdfast.apps.gitops import main
        from holdfast.apps.gitops.settings import GitopsSettings

        class Server:
            def __init__(self, *given, **more):
                pass

            def run(self):
                subprocess.run(["grep", "core file size", "/proc/self/limits"], check=True)

        main.Server = Server
        main.run_gitops(GitopsSettings(db=pathlib.Path(sys.argv[1])))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "gitops.db")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split()[4:6] == ["0", "0"]
