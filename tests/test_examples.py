"""Every example runs, as its reader would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
HOLDFAST = Path(sys.executable).with_name("holdfast")


def played(tmp_path: Path, *command: str | Path) -> str:
    """Run with nothing configured, and return what was printed."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOLDFAST_", "INFERENCEKEY_"))
    }
    environment |= {"HOME": str(tmp_path), "HOLDFAST_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_deploy_script_creates_and_then_finds_nothing_to_do(tmp_path: Path) -> None:
    first = played(tmp_path, sys.executable, EXAMPLES / "deploy.py")
    assert "support-bot was created" in first
    assert "No changes." in first
    assert "support-bot was unchanged" in played(tmp_path, sys.executable, EXAMPLES / "deploy.py")


def test_the_async_script_plans_and_then_creates(tmp_path: Path) -> None:
    shown = played(tmp_path, sys.executable, EXAMPLES / "deploy_async.py")
    assert "Plan: 2 to create" in shown
    assert shown.count("was created") == 2


@pytest.mark.parametrize("path", ["specs", "specs/workloads.py"])
def test_the_example_specs_can_be_planned(tmp_path: Path, path: str) -> None:
    assert "Plan: 1 to create" in played(tmp_path, HOLDFAST, "plan", "-f", EXAMPLES / path)


def test_the_quickstart_tells_the_whole_story(tmp_path: Path) -> None:
    shown = played(tmp_path, sys.executable, EXAMPLES / "quickstart.py")
    for part in ("was created", "by curl (ops-laptop)", "raised DriftError", "0 lost", "stopped"):
        assert part in shown, shown


def test_the_quickstart_does_without_the_llama_wheel(tmp_path: Path) -> None:
    program = (
        "import runpy, sys; sys.modules['xllamacpp'] = None; "
        f"runpy.run_path({str(EXAMPLES / 'quickstart.py')!r}, run_name='__main__')"
    )
    shown = played(tmp_path, sys.executable, "-c", program)
    assert "echo: hello" in shown
    assert "0 lost" in shown
