"""Every defect of the register in tests/seeded_bugs can be put back, and is then caught."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
REGISTER = ROOT / "tests" / "seeded_bugs"
FAILED = 1
"""What pytest ends with when tests ran and some failed; 2 to 5 mean that they did not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    file: Path
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededBug:
    name: str
    item: int
    bug: str
    caught_by: tuple[str, ...]
    edits: tuple[Edit, ...]


def read_bug(path: Path) -> SeededBug:
    entry = tomllib.loads(path.read_text())
    edits = tuple(
        Edit(file=Path(edit["file"]), before=edit["before"], after=edit["after"])
        for edit in entry["edit"]
    )
    return SeededBug(
        name=path.stem,
        item=entry["item"],
        bug=entry["bug"],
        caught_by=tuple(entry["caught_by"]),
        edits=edits,
    )


BUGS = [read_bug(path) for path in sorted(REGISTER.glob("*.toml"))]
each_bug = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)


@each_bug
def test_the_edit_of_a_seeded_bug_fits_the_code(bug: SeededBug) -> None:
    assert bug.bug
    assert bug.edits
    for edit in bug.edits:
        assert (ROOT / edit.file).read_text().count(edit.before) == 1, edit.file
        assert edit.before != edit.after


@each_bug
def test_the_tests_that_catch_a_seeded_bug_exist(bug: SeededBug) -> None:
    assert bug.caught_by
    for test in bug.caught_by:
        path, _, name = test.partition("::")
        function = name.partition("[")[0].rpartition("::")[2]
        defined = rf"^\s*(async )?def {re.escape(function)}\("
        assert re.search(defined, (ROOT / path).read_text(), flags=re.MULTILINE), test


@pytest.mark.long
@each_bug
def test_a_seeded_bug_is_caught(bug: SeededBug, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    _copy_tracked_files(tree)
    for edit in bug.edits:
        path = tree / edit.file
        path.write_text(path.read_text().replace(edit.before, edit.after))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "--timeout", "600", *bug.caught_by],
        cwd=tree,
        # Before the installed package, which is the tree without the bug.
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == FAILED, ran.stdout[-4000:] + ran.stderr[-2000:]


def _copy_tracked_files(to: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
