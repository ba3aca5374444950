"""`make demo-gitops`, as its reader sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cluster import Cluster
from tests.support.gitea import Gitea

DEMO = Path(__file__).resolve().parents[2] / "examples" / "gitops_demo.py"


def test_the_demo_tells_the_whole_story_and_leaves_nothing_behind(
    cluster: Cluster, gitea: Gitea, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a cluster and a forge of its own; the fixtures only say that the programs are here."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run(
        [sys.executable, str(DEMO)], env=os.environ, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for part in (
        "On the forge: pull request #1",
        '+  MAX_TOKENS: "2048"    # what a reply may cost',
        "awaiting-approval",
        "Approved by maria",
        "2 replicas again",
        "codified",
        "0 open",
    ):
        assert part in done.stdout, done.stdout
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("holdfast-demo-*"))
