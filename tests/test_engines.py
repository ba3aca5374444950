"""Inference engines are named in one module, `core/backends.py`.

Whatever differs from one to another is in its row there, so that a new engine is a change of that
file. Read from the syntax tree: comments and docstrings may name an engine as an example.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.backends import BACKENDS, Backend

SOURCE = Path(__file__).parent.parent / "src" / "holdfast"
TABLE = SOURCE / "core" / "backends.py"
EXCEPTIONS = {
    "adapters/hub.py": "the name of the tool that merges parts of a GGUF file",
    "apps/cli/import_spec.py": "examples in the help, of a Deployment's name",
    "testing.py": "the example that the builder makes",
}
"""Modules that name an engine all the same, each with why."""
FIELD = re.compile(r"vllm_?version", re.IGNORECASE)
"""A field of both declarations, stored and sent under this name."""
NAMES = {
    *(re.sub(r"[^a-z]", "", name.lower()) for name in Backend),
    *(re.sub(r"[^a-z]", "", each.title.lower()) for each in BACKENDS.values()),
    "llama",
}


def names_engine(text: str) -> bool:
    plain = re.sub(r"[^a-z]", "", FIELD.sub("", text).lower())
    return any(name in plain for name in NAMES)


def docstrings(tree: ast.AST) -> set[int]:
    """Texts that stand for themselves, below a definition or a name."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def words(source: str) -> Iterator[tuple[int, str]]:
    """Each name and each text of a module, with its line."""
    tree = ast.parse(source)
    left_out = docstrings(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in left_out:
                yield node.lineno, text
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text):
                yield node.lineno, text
            case ast.FunctionDef(name=text) | ast.AsyncFunctionDef(name=text):
                yield node.lineno, text
            case ast.ClassDef(name=text):
                yield node.lineno, text
            case ast.keyword(arg=str(text)):
                yield node.value.lineno, text
            case _:
                pass


def engines_named(source: str) -> list[str]:
    return [f"line {line}: {text[:80]}" for line, text in words(source) if names_engine(text)]


def modules() -> list[str]:
    files = sorted(path for path in SOURCE.rglob("*.py") if path != TABLE)
    return [str(path.relative_to(SOURCE)) for path in files]


def test_no_module_but_the_table_names_an_engine() -> None:
    named = {name: engines_named((SOURCE / name).read_text()) for name in modules()}
    found = {name: each for name, each in named.items() if each}
    assert {name: each for name, each in found.items() if name not in EXCEPTIONS} == {}
    assert found.keys() == EXCEPTIONS.keys(), "an exception that is not needed any more"


@pytest.mark.parametrize(
    "source",
    [
        "if backend == Backend.OLLAMA: pass",
        "if backend == 'vllm': pass",
        "def _read_llama_props(): pass",
        "text = 'for llama.cpp like this'",
        "call(of_sglang=1)",
    ],
)
def test_each_way_to_name_one_is_found(source: str) -> None:
    assert engines_named(source)


def test_a_docstring_and_the_declared_field_name_none() -> None:
    assert engines_named('"""As vLLM does."""\nx = spec.vllm_version, "self.vllmVersion"') == []


def test_every_row_has_a_title_and_reads_what_it_asks() -> None:
    assert all(each.title for each in BACKENDS.values())
    for each in BACKENDS.values():
        assert all(query.paths and query.tells for query in each.queries)
