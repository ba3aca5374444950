"""Prints figures about how the code reads: size, imports, names, and how far a heal travels.

python tools/figures.py              # of this tree
python tools/figures.py ../before    # of another one, to compare
python tools/figures.py --list       # what was counted, too

The walks are traced in a process of their own, by tools/walks.py with the other tree's code.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
CORE_RECONCILE_APPS = ("core", "reconcile", "apps", "doors")
"""`doors` is what `apps` were called once."""

VERBS_IN_ED = frozenset(
    "bleed breed embed exceed feed heed imbed need proceed reed seed shed shred speed succeed "
    "wed weed".split()
)
"""Verbs whose plain form ends as a participle does."""
IRREGULAR_PARTICIPLES = frozenset(
    "been begun bent bitten borne bought bound broken brought built caught chosen done drawn "
    "driven eaten fallen felt forbidden forgiven forgotten fought found frozen given gone got "
    "gotten grown heard held hidden hung kept known laid lain led left lent lost made meant met "
    "overtaken paid rebuilt redone rewritten risen said seen sent shaken shown sold sought spent "
    "stolen stood struck stuck swept sworn taken taught thought thrown told torn undone "
    "understood withdrawn woken won worn written".split()
)
"""Those that are no imperative as well; `put`, `set`, `read`, `cut`, `run` and `split` are."""


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def package(self) -> str:
        if self.path.name == "__init__.py":
            return self.name
        return self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Figure:
    """One line of the report, and what was counted."""

    name: str
    value: str
    counted: tuple[str, ...] = ()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Verbatim)
    parser.add_argument("root", nargs="?", type=Path, default=TOOLS.parent)
    parser.add_argument("--list", action="store_true", help="show what was counted")
    parser.add_argument("--no-walks", action="store_true", help="trace nothing")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    for figure in figures(root):
        print(f"{figure.name:<66} {figure.value:>14}")
        for each in figure.counted if arguments.list else ():
            print(f"    {each}")
    if not arguments.no_walks:
        sys.stdout.flush()
        more = ["--list"] if arguments.list else []
        subprocess.run([sys.executable, TOOLS / "walks.py", str(root), *more], check=True)


class _Verbatim(argparse.RawDescriptionHelpFormatter):
    pass


def figures(root: Path) -> Iterator[Figure]:
    """Give every figure that can be read from the text of a tree."""
    modules = read_modules(root / "src")
    lines = sum(module.lines for module in modules.values())
    yield Figure("lines of src", f"{lines:,}")
    yield Figure("modules of src", str(len(modules)))
    imports = sum(map(import_lines, modules.values()))
    yield Figure("import lines, share of all lines", f"{imports / lines:.2%}")
    lone = modules_with_one_importer(modules)
    own = sum(modules[name].lines for name in lone)
    yield Figure(
        "modules with one importer, in their own package",
        f"{len(lone)} ({own:,})",
        tuple(f"{name} <- {importer}" for name, importer in lone.items()),
    )
    everywhere = repeated_classes(modules.values())
    yield _repeated("public class names used more than once", everywhere)
    inner = [each for each in modules.values() if _layer(each) in CORE_RECONCILE_APPS]
    yield _repeated("the same within core, reconcile and apps", repeated_classes(inner))
    participles = list(participle_coroutines(modules.values()))
    yield Figure("async functions named by a participle", str(len(participles)), tuple(participles))
    skips = [f"{each.name} {count}" for each in modules.values() if (count := fmt_skips(each))]
    yield Figure("`# fmt: skip` in src", str(sum(map(fmt_skips, modules.values()))), tuple(skips))
    tests = read_modules(root / "tests")
    support = [each for each in tests.values() if "support" in each.path.relative_to(root).parts]
    yield Figure("lines of tests/support", f"{sum(each.lines for each in support):,}")
    helpers = [each for each in tests.values() if not each.path.name.startswith("test_")]
    yield Figure("lines of tests outside of test files", f"{sum(h.lines for h in helpers):,}")


def read_modules(folder: Path) -> dict[str, Module]:
    """Give every module below a folder, by its dotted name."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        found[name] = Module(name, path)
    return found


def import_lines(module: Module) -> int:
    """Count the lines of import statements, wherever they stand."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def imported_modules(module: Module, modules: Mapping[str, Module]) -> set[str]:
    """Name the modules of the tree that this one imports, also inside functions."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # a relative import: one dot is the own package
                parts = module.package.split(".")
                above = parts[: len(parts) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                found.add(name if name in modules else base)
    return found & modules.keys() - {module.name}


def modules_with_one_importer(modules: Mapping[str, Module]) -> dict[str, str]:
    """Give the modules that only one other imports, from the same package, with that one.

    Packages are left out, and so is what a package's `__init__` offers to others.
    """
    importers = defaultdict(set)
    for module in modules.values():
        for name in imported_modules(module, modules):
            importers[name].add(module.name)
    found = {}
    for name, module in modules.items():
        if module.path.name == "__init__.py" or len(importers[name]) != 1:
            continue
        (importer,) = importers[name]
        if modules[importer].package == module.package and importer != module.package:
            found[name] = importer
    return found


def repeated_classes(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Give the public class names that several modules define, with those modules."""
    homes = defaultdict(list)
    for module in modules:
        classes = {node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)}
        for name in classes:
            if not name.startswith("_"):
                homes[name].append(module.name)
    return {name: where for name, where in sorted(homes.items()) if len(where) > 1}


def participle_coroutines(modules: Iterable[Module]) -> Iterator[str]:
    """Name the async functions whose name does not say what they do, but what was done."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.AsyncFunctionDef) and is_participle(first_word(node.name)):
                yield f"{module.name}:{node.lineno} {node.name}"


def first_word(name: str) -> str:
    return name.lstrip("_").partition("_")[0].lower()


def is_participle(word: str) -> bool:
    """True for `listed` and `told`; not for `feed`, nor for `put`, which is a verb as well."""
    regular = word.endswith("ed") and len(word) > 3 and word not in VERBS_IN_ED
    return regular or word in IRREGULAR_PARTICIPLES


def fmt_skips(module: Module) -> int:
    return module.text.count("# fmt: skip")


def _layer(module: Module) -> str:
    return module.name.partition(".")[2].partition(".")[0]


def _repeated(name: str, classes: Mapping[str, list[str]]) -> Figure:
    several = sum(map(len, classes.values()))
    shown = tuple(f"{each}: {', '.join(where)}" for each, where in classes.items())
    return Figure(name, f"{len(classes)} ({several})", shown)


if __name__ == "__main__":
    main()
