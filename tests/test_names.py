"""Names: one public class of a name, verbs for what acts, and the words of the glossary."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import figures

from holdfast.apps.cli.main import SECTIONS

ROOT = Path(__file__).resolve().parent.parent
MODULES = figures.read_modules(ROOT / "src")
RETIRED = frozenset(
    "ailments around board boards book cage counting course desk door doors family following "
    "front glance hands hindrance inquiry keeper lane looked looking means park parked patience "
    "picture probed rarely recognised reply seen settling shelf standing surroundings surveyor "
    "telling their theirs todo told verdict voice weigh wish witness".split()
)
"""Words that only we knew. The glossary has what to say instead."""
TOO_SHORT = frozenset(
    "Answer Case Entry Finding Form Found Line Machine Mark Move Part Parts Place Record "
    "Walk".split()
)
"""Several classes were called so at a time; each says now whose it is: `DriftEntry`."""
OUR_WORDS = frozenset(
    "absent adapter apply approve blocked cache channel choice codify cost declare delegated "
    "desired digest disruption drift fact fight fingerprint flap forge form guard head heal "
    "history hold hub identity inbox inventory issuer journal ledger live notice observe "
    "observed orphan outcome owned pass person pin plan policy prunable prune reconcile "
    "remediation render revert review route session situation slug source stale step suspend "
    "sync target tolerated unknown wake window workload writer".split()
)
"""Plain words that mean something of their own here, so that a reader has to look them up."""


def words_of(name: str) -> list[str]:
    """`open_pull_request` and `OpenPullRequest` are the same three words."""
    return re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())


def definitions() -> Iterator[tuple[str, str]]:
    """Give where each module, class and function stands, with its name."""
    for module in MODULES.values():
        yield module.name, module.name.rpartition(".")[2]
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{module.name}:{node.lineno}", node.name


def test_a_public_class_of_core_reconcile_and_apps_has_a_name_of_its_own() -> None:
    inner = [
        module
        for module in MODULES.values()
        if module.name.split(".")[1:2] in (["core"], ["reconcile"], ["apps"])
    ]
    assert figures.repeated_classes(inner) == {}


def test_no_coroutine_is_named_by_a_participle() -> None:
    """What acts is named by what it does: `fetch`, not `fetched`."""
    assert list(figures.participle_coroutines(MODULES.values())) == []


@pytest.mark.parametrize(
    ("name", "participle"),
    [
        ("listed", True),
        ("_told_once", True),
        ("feed", False),
        ("embed_texts", False),
        ("put", False),
        ("wait_synced", False),
        ("is_closed", False),
    ],
)
def test_what_counts_as_a_participle(name: str, participle: bool) -> None:
    assert figures.is_participle(figures.first_word(name)) is participle


def test_no_definition_is_named_by_a_retired_word() -> None:
    named = [f"{where} {name}" for where, name in definitions() if RETIRED & set(words_of(name))]
    assert named == []


def test_no_definition_has_a_name_that_several_things_had() -> None:
    assert [f"{where} {name}" for where, name in definitions() if name in TOO_SHORT] == []


def glossary_terms() -> list[str]:
    page = (ROOT / "docs" / "glossary.md").read_text()
    return re.findall(r"^\| ([^|]+) \|", page, flags=re.MULTILINE)


def test_the_glossary_has_every_word_with_a_meaning_of_its_own() -> None:
    assert OUR_WORDS - set(glossary_terms()) == set()


def test_the_glossary_has_no_retired_word() -> None:
    assert [term for term in glossary_terms() if RETIRED & set(words_of(term))] == []


def test_each_package_says_what_its_modules_are() -> None:
    """In its docstring, by name; a verb of the command line is the module of that verb's name."""
    verbs = {module for section in SECTIONS.values() for module, _ in section.values()}
    unnamed = []
    for package in sorted((ROOT / "src" / "holdfast").rglob("__init__.py")):
        if package.parent.name == "holdfast":
            continue  # the public names alone
        docstring = ast.get_docstring(ast.parse(package.read_text())) or ""
        named = set(re.findall(r"`([a-z_0-9]+)(?:\.py)?`", docstring)) | {"__init__"}
        if package.parent.name == "cli":
            named |= verbs
        unnamed += [
            f"{package.parent.relative_to(ROOT)}: {module.stem}"
            for module in package.parent.glob("*.py")
            if module.stem not in named
        ]
    assert unnamed == []


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_the_modules_that_a_page_names_exist(page: str) -> None:
    named = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_0-9]+\.py)?)`", (ROOT / page).read_text())
    homes = (ROOT, ROOT / "src" / "holdfast")
    assert [name for name in named if not any((home / name).exists() for home in homes)] == []
