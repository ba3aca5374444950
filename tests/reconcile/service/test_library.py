"""The operator as a library: its names are there, and load no more than they need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import operator

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", operator.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(operator, name)


def test_a_name_that_is_not_there_is_said_so() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        operator.Nothing  # noqa: B018


def test_importing_it_needs_none_of_the_extras() -> None:
    code = (
        "import sys, holdfast.operator; print({'aiohttp', 'click', 'starlette'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"


def test_the_example_of_the_reference_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "inference-service.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
