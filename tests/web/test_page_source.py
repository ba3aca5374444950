"""The page as files: what is vendored is what it says, types hold, and it stays small."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from bench.page import CLIENT, FIRST_SCREENS, SCRIPT_BUDGET, STYLE_BUDGET, module_graph, packed_size
from tests.support.browser import npm_file, skip_without_browser

from holdfast.apps.server.page_scripts import strip_comments
from holdfast.core.cost import Cost, CostKind, DeviceNeed, describe_cost
from holdfast.wire.decode import reshape
from holdfast.wire.gitops_v1 import encode_record
from holdfast.wire.plan_v1 import CostForm

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"


def require_node() -> str:
    """Return Node's program. Where there is none the tests are skipped, in CI they fail."""
    found = shutil.which("node")
    if found is None:
        skip_without_browser("Node is not installed: apt-get install nodejs npm.")
    return str(found)


def test_the_vendored_file_is_the_one_that_is_described() -> None:
    said = json.loads((WEB / "vendor" / "vendored.json").read_text())
    body = (WEB / "vendor" / said["file"]).read_bytes()
    assert hashlib.sha256(body).hexdigest() == said["sha256"]
    licences = (WEB / "vendor" / "LICENSES.txt").read_text()
    for name in ("preact", "htm", "@preact/signals"):
        assert f"=== {name} {said['packages'][name]['version']}\n" in licences


def test_only_one_file_is_vendored() -> None:
    assert sorted(path.name for path in (WEB / "vendor").iterdir()) == [
        "LICENSES.txt", "entry.js", "preact.d.ts", "preact.js", "vendored.json",
    ]  # fmt: skip


def test_the_page_stays_within_its_budget() -> None:
    first = module_graph(*FIRST_SCREENS)
    assert packed_size(first) <= SCRIPT_BUDGET
    assert packed_size([WEB / "style.css"]) <= STYLE_BUDGET


def test_no_script_of_the_page_makes_markup_or_code_from_text() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|"
        r"dangerouslySetInnerHTML|createContextualFragment|javascript:"
    )
    found = [path.name for path in WEB.glob("*.js") if forbidden.search(path.read_text())]
    assert found == []


def test_the_page_names_no_other_origin() -> None:
    texts = [path for path in WEB.iterdir() if path.suffix in (".js", ".css", ".html")]
    named = {
        address
        for path in texts
        for address in re.findall(r"https?://[^\s\"'`)]+", path.read_text())
    }
    assert named == set()


def test_every_word_of_a_key_is_in_the_guide() -> None:
    said = (WEB / "palette.js").read_text()
    guide = (ROOT / "docs" / "how-to" / "dashboard.md").read_text()
    keys = re.findall(r'^  \["([^"]+)", "', said, flags=re.MULTILINE)
    assert len(keys) > 20
    missing = [key for key in keys if not all(f"`{part}`" in guide for part in [key])]
    assert missing == []


def test_types_hold_under_the_strict_checker() -> None:
    node = require_node()
    checker = npm_file("typescript/bin/tsc")
    done = subprocess.run(
        [node, checker, "-p", WEB / "jsconfig.json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    options = json.loads((WEB / "jsconfig.json").read_text())["compilerOptions"]
    assert options["strict"] and options["checkJs"]


def emitted(files: list[tuple[str, str]], folder: Path) -> dict[str, str]:
    """Return what the compiler reads in scripts, written its own way and without comments."""
    folder.mkdir()
    for name, text in files:
        (folder / name).write_text(text)
    options = "--allowJs --removeComments --noResolve --noCheck --target ESNext --module ESNext"
    command = [require_node(), npm_file("typescript/bin/tsc"), "--ignoreConfig", *options.split()]
    names = [name for name, _ in files]
    subprocess.run([*command, "--outDir", "out", *names], cwd=folder, check=True, timeout=60)
    return {name: (folder / "out" / name).read_text() for name in names}


def test_a_script_says_the_same_without_its_comments(tmp_path: Path) -> None:
    sources = [
        (f"{folder.name}-{path.name}", path.read_text())
        for folder in (WEB, CLIENT)
        for path in folder.glob("*.js")
    ]
    stripped = [(name, strip_comments(text)) for name, text in sources]
    assert all(before != after for (_, before), (_, after) in zip(sources, stripped, strict=True))
    written = emitted(sources, tmp_path / "written")
    assert emitted(stripped, tmp_path / "stripped") == written
    assert len(written) > 20 and "export" in written["src-http.js"]


COSTS = [
    None,
    Cost(kind=CostKind.NONE),
    Cost(kind=CostKind.ROLLING, pods=2, cold_start=95.0),
    Cost(kind=CostKind.ROLLING, pods=1, added=2),
    Cost(kind=CostKind.GAP, pods=1, cold_start=5400.0),
    Cost(kind=CostKind.GAP, added=-1),
    Cost(kind=CostKind.NONE, added=-3),
    Cost(kind=CostKind.NONE, added=1),
    Cost(
        kind=CostKind.RECREATE,
        pods=1,
        devices=(DeviceNeed(resource="nvidia.com/gpu", needed=1, free=0),),
        blocked=True,
        cold_start=12.0,
    ),
    Cost(
        kind=CostKind.ROLLING,
        pods=3,
        devices=(DeviceNeed(resource="nvidia.com/gpu", needed=2),),
    ),
    Cost(
        kind=CostKind.NONE,
        added=-2,
        devices=(DeviceNeed(resource="nvidia.com/gpu", needed=0, added=-2),),
    ),
    Cost(kind=CostKind.GAP, pods=5, several=True, partial=True),
    Cost(kind=CostKind.RECREATE, pods=5, several=True),
    Cost(kind=CostKind.GAP, several=True),
    Cost(kind=CostKind.GAP, added=1, several=True),
    Cost(kind=CostKind.GAP, added=-1, several=True),
]


@pytest.mark.parametrize("unit", ["pod", "replica"])
def test_a_cost_is_said_as_the_command_line_says_it(unit: str) -> None:
    node = require_node()
    forms = [encode_record(reshape(CostForm, cost)) if cost else None for cost in COSTS]
    program = (
        f"import {{ costWords }} from {json.dumps((WEB / 'words.js').as_uri())};"
        f"const costs = {json.dumps(forms)};"
        f"const said = costs.map((cost) => costWords(cost ?? undefined, {json.dumps(unit)}));"
        "console.log(JSON.stringify(said));"
    )
    done = subprocess.run(
        [node, "--input-type=module", "-e", program], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [describe_cost(cost, unit) for cost in COSTS]
