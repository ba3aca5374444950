"""The documentation says what the code does: links resolve, names exist, examples run."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import holdfast
from holdfast.core.workload import NESTED_TYPES, SPEC_FIELDS, Analysis

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
REFERENCE = ROOT / "docs" / "reference"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    local = [target for target in targets if "://" not in target]
    missing = [target for target in local if not (page.parent / target).exists()]
    assert missing == []


def test_pages_made_from_the_code_are_up_to_date() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "reference.py", "--check"], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr


def test_every_field_of_a_workload_is_in_the_reference() -> None:
    page = (REFERENCE / "fields.md").read_text()
    nested = [part.name for kind in (*NESTED_TYPES.values(), Analysis) for part in fields(kind)]
    assert [name for name in (*SPEC_FIELDS, *nested) if f"`{name}`" not in page] == []


def test_every_setting_is_in_the_reference() -> None:
    page = (REFERENCE / "settings.md").read_text()
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    internal = {"HOLDFAST_REPLICA", "HOLDFAST_COMPLETE"}
    read = set(re.findall(r"\"((?:HOLDFAST|INFERENCEKEY)_[A-Z_]+[A-Z])\"", source)) - internal
    assert {name for name in read if name not in page} == set()
    assert "HOLDFAST_URL" in read


def test_the_python_page_names_only_what_exists() -> None:
    page = (REFERENCE / "python.md").read_text()
    client = holdfast.ManagementClient
    for name in re.findall(r"^\| `(\w+)\(", page, flags=re.MULTILINE):
        assert hasattr(client, name), name


def test_the_testing_page_shows_tests_that_pass(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "how-to" / "testing.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    program = tmp_path / "example.py"
    program.write_text("\n".join(blocks))
    found = runpy.run_path(str(program))
    tests = [value for name, value in found.items() if name.startswith("test_")]
    for test in tests:
        test()
    assert len(tests) >= 2


AWAIT_SERVER = "until curl -sf http://127.0.0.1:8400/healthz > /dev/null; do sleep 0.1; done"


def typed(page: str, replaced: dict[str, str], cwd: Path) -> str:
    """Type the commands of a page, in order, in one shell; every one must succeed."""
    text = (ROOT / "docs" / page).read_text()
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
    script = "set -euo pipefail\n" + "\n".join(blocks)
    for old, new in replaced.items():
        assert old in script, old
        script = script.replace(old, new)
    script = f'export PATH="{Path(sys.executable).parent}:$PATH"\n{script}'
    port = subprocess.run(
        [sys.executable, "-c", "import socket; s=socket.socket(); s.bind(('127.0.0.1', 0)); "
         "print(s.getsockname()[1])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    # Who types is slower than a server that starts; a script is not.
    script = re.sub(r"^(holdfast serve .*&)$", rf"\1\n{AWAIT_SERVER}", script, flags=re.MULTILINE)
    script = script.replace("8400", port)
    script = "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n" + script
    played = subprocess.run(
        ["bash", "-c", script], cwd=cwd, capture_output=True, text=True, timeout=100
    )
    assert played.returncode == 0, played.stdout[-2000:] + played.stderr[-3000:]
    return played.stdout


def test_the_tutorial_runs_from_top_to_bottom(tmp_path: Path) -> None:
    places = {"/tmp/holdfast-tutorial": str(tmp_path)}
    said = typed("tutorial.md", places, ROOT)
    assert "configuration" in said
    assert "ops-laptop" in said
    assert "resource" in said, "the process that was killed"


def test_the_page_about_serving_runs_as_typed(tmp_path: Path) -> None:
    """Its first block runs in a terminal of its own."""
    places = {
        "/var/lib/holdfast": str(tmp_path),
        'holdfast serve --db "$DB"': 'holdfast serve --port 8400 --db "$DB" > log 2>&1 &',
    }
    said = typed("how-to/serve.md", places, tmp_path)
    assert "ik_live_" in said
    assert "is revoked" in said
