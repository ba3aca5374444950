"""Imports point inward: apps → adapters → reconcile → core, with wire just outside core.

The table below is the architecture. Every import in the source is read against it, also those
inside functions and those for the type checker alone.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "holdfast"

INNER = {"version", "core", "wire", "reconcile"}
APP = INNER | {"adapters", "apps/sdk"}
ALLOWED: dict[str, set[str]] = {
    # The root: what users import.
    "": APP,
    "operator": APP,
    "testing": APP,
    "version": set(),
    "core": set(),
    "wire": {"version", "core"},
    "reconcile": {"version", "core", "wire"},
    "adapters": INNER,
    "adapters/clock": INNER,
    "adapters/engines": INNER | {"adapters/outbound"},
    "adapters/forge": INNER | {"adapters/clock", "adapters/outbound"},
    "adapters/git": INNER | {"adapters/clock"},
    "adapters/http": INNER | {"adapters/clock"},
    "adapters/hub": INNER,
    "adapters/hub_heads": INNER | {"adapters/hub", "adapters/outbound"},
    "adapters/kubernetes": INNER | {"adapters/clock", "adapters/outbound"},
    "adapters/log_stream": INNER,
    "adapters/memory": INNER | {"adapters/clock"},
    "adapters/notify": INNER | {"adapters/clock", "adapters/outbound"},
    "adapters/openid": INNER | {"adapters/outbound"},
    "adapters/outbound": INNER,
    "adapters/postgres": INNER | {"adapters/clock", "adapters/sql_ledger"},
    "adapters/prometheus": INNER | {"adapters/outbound"},
    "adapters/render": INNER | {"adapters/clock"},
    "adapters/runner": INNER | {"adapters/clock", "adapters/engines", "adapters/outbound"},
    "adapters/sql_ledger": INNER,
    "adapters/store": INNER | {"adapters/clock", "adapters/sql_ledger"},
    # The operator's manifests, as data.
    "install": {"version", "core", "wire"},
    "apps": set(),
    "apps/sdk": INNER | {"adapters"},
    "apps/server": APP,
    # What both controllers run on: queue, workers, lease, probes.
    "apps/runtime": APP,
    "apps/operator": APP | {"apps/runtime"},
    # Answers over HTTP with the control plane's own server.
    "apps/gitops": APP | {"apps/server", "apps/runtime"},
    "apps/cli": APP | {"install"},
}
"""Layer to the layers it may import, besides itself. `adapters` stands for all of them."""

LATE: dict[str, set[str]] = {"apps/cli": {"apps/server", "apps/operator", "apps/gitops"}}
"""Only inside functions and for types: the command line works without what the server needs."""

OUTSIDE: dict[str, set[str]] = {
    "core": {"cronsim"},
    "reconcile": set(),
    "wire": {"msgspec", "yaml"},
}
"""Other people's packages, where not every one may be imported."""

NOT_LOADED = {
    "starlette", "uvicorn", "uvloop", "httptools", "aiohttp", "prometheus_client", "click",
    "httpx2", "apsw", "yaml",
}  # fmt: skip
"""What `import holdfast` leaves alone: parts of other apps, and what is loaded at first use."""


@dataclass(frozen=True)
class Import:
    """One imported module, and where it stands."""

    file: Path
    line: int
    module: str
    late: bool

    def __str__(self) -> str:
        return f"{self.file.relative_to(SOURCE.parent)}:{self.line} imports {self.module}"


def files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def layer_of(parts: tuple[str, ...]) -> str:
    """`("adapters", "store", "rows")` lies in `adapters/store`; unknown folders raise."""
    for depth in (2, 1):
        name = "/".join(parts[:depth])
        if len(parts) >= depth and name in ALLOWED:
            if name in ("adapters", "apps") and len(parts) > depth:
                raise LookupError(f"{'/'.join(parts)} is in no layer of the table")
            return name
    if not parts:
        return ""
    raise LookupError(f"{'/'.join(parts)} is in no layer of the table")


def layer_of_file(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return layer_of(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of_module(module: str) -> str:
    """The layer of `holdfast.core.plan`, also when its last part is a name in a module."""
    parts = tuple(module.split(".")[1:])
    while parts and not is_module(parts):
        parts = parts[:-1]
    return layer_of(parts)


def is_module(parts: tuple[str, ...]) -> bool:
    path = SOURCE.joinpath(*parts)
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(file: Path) -> Iterator[Import]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    late = {id(inner) for node in ast.walk(tree) if is_late(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: {node.lineno}: imports are written in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(file=file, line=node.lineno, module=name, late=id(node) in late)


def is_late(node: ast.AST) -> bool:
    """True for what is not carried out when the module is imported."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def may_import(layer: str, other: str, *, late: bool) -> bool:
    allowed = ALLOWED[layer] | {layer} | (LATE.get(layer, set()) if late else set())
    return other in allowed or ("adapters" in allowed and other.startswith("adapters/"))


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_point_inward(file: Path) -> None:
    layer = layer_of_file(file)
    for each in imports(file):
        if each.module.split(".")[0] == "holdfast":
            assert may_import(layer, layer_of_module(each.module), late=each.late), str(each)


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(SOURCE)))
def test_the_inner_layers_import_no_strangers(file: Path) -> None:
    layer = layer_of_file(file)
    if layer not in OUTSIDE:
        return
    for each in imports(file):
        package = each.module.split(".")[0]
        known = package == "holdfast" or package in sys.stdlib_module_names
        assert known or package in OUTSIDE[layer], str(each)


def test_a_folder_that_is_not_in_the_table_is_refused() -> None:
    for parts in (("plugins",), ("adapters", "ftp"), ("apps", "web", "main")):
        with pytest.raises(LookupError):
            layer_of(parts)


def test_the_rules_refuse_what_they_should() -> None:
    for layer, other in (
        ("core", "wire"),
        ("core", "reconcile"),
        ("wire", "reconcile"),
        ("reconcile", "adapters/store"),
        ("adapters/http", "adapters/store"),
        ("adapters/store", "apps/sdk"),
        ("apps/sdk", "apps/cli"),
        ("apps/server", "apps/cli"),
        ("apps/cli", "apps/server"),
    ):
        assert not may_import(layer, other, late=False)
    assert may_import("apps/cli", "apps/server", late=True)
    assert may_import("apps/server", "adapters/store", late=False)


def test_import_holdfast_loads_the_sdk_alone() -> None:
    code = f"import sys, holdfast; print(*sorted({NOT_LOADED!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
