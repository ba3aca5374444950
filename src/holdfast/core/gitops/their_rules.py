"""Ignore rules of Argo CD and Flux, read off their own objects.

Who runs Holdfast beside one of them has said once which differences are none, and need not say it
again. The survey reads these objects where they are; each rule is named after the place it came
from, and holds for the objects of that application alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from holdfast.core.errors import ConfigurationError
from holdfast.core.gitops.ignore import Rules, pointer_problem
from holdfast.core.gitops.jq_path import pattern_of_jq
from holdfast.core.gitops.owner import owned_by
from holdfast.core.objects import ObjectRef, ref_of
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.redact import quoted
from holdfast.core.tree import Fields, Tree

_About = tuple[str, ...]
"""Patterns for the kind, the name and the namespace of the objects that a rule is about."""
_PLAIN = re.compile(r"[A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TheirRules:
    """The rules of one application of another tool."""

    source: ObjectRef
    found: Rules

    def concern(self, item: Fields) -> bool:
        """True for a live object that belongs to that application."""
        owner = owned_by(item)
        if owner is None:
            return False
        namespace, name = owner
        return name == self.source.name and namespace in ("", self.source.namespace)


def their_rules(item: Fields) -> TheirRules | None:
    """Read the rules of an Application, a HelmRelease or a Kustomization.

    None for any other object.
    """
    ref = ref_of(item)
    reads = _READERS.get((ref.group, ref.kind))
    if reads is None:
        return None
    rules: list[IgnoreRule] = []
    wrong: list[str] = []
    for entry in reads(item):
        if isinstance(entry, IgnoreRule):
            rules.append(entry)
        else:
            wrong.append(entry)
    return TheirRules(source=ref, found=Rules(rules=tuple(rules), not_understood=tuple(wrong)))


def _argo(item: Fields) -> Iterator[IgnoreRule | str]:
    for number, entry in _entries(_at(item, "spec", "ignoreDifferences")):
        place = f"argo-cd {ref_of(item)} ignoreDifferences[{number}]"
        names = ("kind", "name", "namespace")
        about = tuple(str(entry.get(name) or "*") for name in names)
        for pointer in _texts(entry.get("jsonPointers")):
            yield _pointed(place, pointer, about)
        for manager in _texts(entry.get("managedFieldsManagers")):
            yield _made(place, about, manager=manager)
        for expression in _texts(entry.get("jqPathExpressions")):
            found = pattern_of_jq(expression)
            if found is None:
                yield f"{place}: {quoted(expression)} is more than a plain path."
            elif found.startswith("/"):
                yield _pointed(place, found, about)
            else:
                yield _made(place, about, glob=found)


def _flux_helm(item: Fields) -> Iterator[IgnoreRule | str]:
    yield from _flux(item, "driftDetection.ignore", _at(item, "spec", "driftDetection", "ignore"))


def _flux_kustomize(item: Fields) -> Iterator[IgnoreRule | str]:
    yield from _flux(item, "ignore", _at(item, "spec", "ignore"))


def _flux(item: Fields, field: str, value: Tree) -> Iterator[IgnoreRule | str]:
    for number, entry in _entries(value):
        place = f"flux {ref_of(item)} {field}[{number}]"
        target = entry.get("target")
        chosen = target if isinstance(target, dict) else {}
        about = tuple(_plain(chosen.get(name)) for name in ("kind", "name", "namespace"))
        if "" in about or chosen.get("labelSelector") or chosen.get("annotationSelector"):
            yield f"{place}: its target is more than plain names."
            continue
        for pointer in _texts(entry.get("paths")):
            yield _pointed(place, pointer, about)


_READERS: dict[tuple[str, str], Callable[[Fields], Iterator[IgnoreRule | str]]] = {
    ("argoproj.io", "Application"): _argo,
    ("helm.toolkit.fluxcd.io", "HelmRelease"): _flux_helm,
    ("kustomize.toolkit.fluxcd.io", "Kustomization"): _flux_kustomize,
}


def _pointed(place: str, pointer: str, about: _About) -> IgnoreRule | str:
    problem = pointer_problem(pointer, kind=about[0], images=True)
    return f"{place}: {quoted(pointer)}: {problem}" if problem else _made(
        place, about, pointer=pointer
    )  # fmt: skip


def _made(
    place: str,
    about: _About,
    *,
    pointer: str | None = None,
    glob: str | None = None,
    manager: str | None = None,
) -> IgnoreRule | str:
    kind, object_name, namespace = about
    try:
        return IgnoreRule(
            name=place,
            owner=place,
            pointer=pointer,
            glob=glob,
            manager=manager,
            kind=kind,
            object_name=object_name,
            namespace=namespace,
        )
    except ConfigurationError:
        return f"{place}: it would hide a whole object."


def _plain(value: Tree) -> str:
    """An expression that must match whole, as a pattern with a star; "" when it is more."""
    text = str(value or ".*").removeprefix("^").removesuffix("$")
    stem = text.removesuffix(".*")
    if stem and not _PLAIN.fullmatch(stem):
        return ""
    return f"{stem}*" if text.endswith(".*") else stem


def _at(tree: Tree, *path: str) -> Tree:
    for part in path:
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def _entries(value: Tree) -> Iterator[tuple[int, Fields]]:
    for number, entry in enumerate(value if isinstance(value, list) else ()):
        if isinstance(entry, dict):
            yield number, entry


def _texts(value: Tree) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
