"""Drives the real command, on the embedded target in a directory of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.apps.cli.gitops_application import serve as serve  # a fixture

from holdfast.apps.cli.main import cli

CHAT = """\
name: support-bot
model: llama-3.1-8b
backend: vllm
command: vllm serve llama-3.1-8b --max-model-len 8192
replicas: 2
env:
  LOG_LEVEL: info
"""
EMBED = """\
name: embed
model: bge-m3
backend: llamacpp
"""


@dataclass(frozen=True)
class Run:
    """What a command did."""

    code: int
    out: str
    err: str
    screen: str
    """Both, as a terminal would show them, with ages made equal."""


Holdfast = Callable[..., Run]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, with nothing set."""
    import os

    for name in list(os.environ):
        if name.startswith(("HOLDFAST_", "INFERENCEKEY_", "XDG_", "CLICOLOR")):
            monkeypatch.delenv(name)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USER", "maria")
    monkeypatch.setenv("LOGNAME", "maria")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path


@pytest.fixture
def holdfast(home: Path) -> Holdfast:
    """Run a command line and return what it did."""

    def run(*args: str, stdin: str | bytes | None = None) -> Run:
        result = CliRunner().invoke(cli, list(args), input=stdin, prog_name="holdfast")
        screen = result.output.replace(str(home), "HOME")
        screen = re.sub(r"\b\d+s(?= |$)", "0s", screen, flags=re.M)
        return Run(result.exit_code, result.stdout, result.stderr, screen)

    return run


@pytest.fixture
def chat() -> Path:
    """A spec."""
    path = Path("chat.yaml")
    path.write_text(CHAT)
    return path
