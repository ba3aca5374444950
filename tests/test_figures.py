"""The tool that measures how the code reads still reaches all that it measures."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support.processes import ROOT


def test_the_three_walks_are_traced() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "walks.py", ROOT],
        cwd=ROOT, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    walks = re.findall(r"^walk: (\S+).*?\s(\d+) \(\d+\), \d+$", done.stdout, flags=re.MULTILINE)
    assert [name for name, _ in walks] == ["ensure,", "operator", "GitOps"]
    assert all(int(modules) > 20 for _, modules in walks)
