"""What a user installs: its name, everywhere the same."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from holdfast.apps.cli.doctor import EXTRAS
from holdfast.core.errors import DISTRIBUTION, install_extra

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ANOTHERS = re.compile(
    r"holdfast\[[a-z]"  # an extra of another project
    r"|(?:pip3?|pipx|uv(?: tool| pip)?) (?:install|add)[^\n`]*[ '\"]holdfast(?![\w./-])"
    r"|uvx holdfast\b"
)
"""`holdfast` on PyPI is not us: nobody may be told to install it."""


def texts() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    found = (ROOT / each for each in listed.stdout.splitlines() if not each.startswith("tests/"))
    return [each for each in found if each.is_file()]


def test_the_distribution_has_one_name() -> None:
    assert PROJECT["name"] == DISTRIBUTION == "holdfast-ml"
    assert install_extra("server") == "pip install 'holdfast-ml[server]'"


def test_nobody_is_told_to_install_another_project() -> None:
    for text in ("pip install 'holdfast[server]'", "pip install holdfast", "uv add holdfast"):
        assert ANOTHERS.search(text), text
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in texts()
        for found in ANOTHERS.finditer(path.read_text(errors="replace"))
    ]
    assert wrong == []


def test_the_doctor_looks_at_every_extra() -> None:
    assert [each.name for each in EXTRAS] == list(PROJECT["optional-dependencies"])
