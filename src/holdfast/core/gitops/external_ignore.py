"""Ignore rules of Argo CD and Flux, read from their own objects.

Whoever runs Holdfast beside one of them has declared once which differences to ignore, and need not
repeat it. Each rule is named after the place it came from, and applies to the objects of that
application only. Of jq expressions only plain paths are read; nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast.core.errors import ConfigurationError
from holdfast.core.gitops.ignore import ParsedIgnoreRules, pointer_problem
from holdfast.core.gitops.owners import owning_application
from holdfast.core.object_ref import ObjectRef, ref_of
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.redact import quote_text
from holdfast.core.tree import Fields, Tree, json_pointer

_MAX_EXPRESSION = 500
_JQ_PART = re.compile(
    r"""(?x)
      \.(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | \."(?P<text>[^"\\]*)"
    | \.?\["(?P<quoted>[^"\\]*)"\]
    | \.?\[(?P<index>\d{1,4})\]
    | \.?\[\]\s*\|\s*select\(
      \s*\.(?P<key>[A-Za-z]+)\s*==\s*"(?P<value>[^"\\*\[\]]*)"\s*\)\s*(?:\|\s*)?
    | (?P<all>\.?\[\])
    """
)


_JQ_NAME_GROUPS = ("name", "text", "quoted")


def pattern_of_jq(expression: str) -> str | None:
    """Write a plain path as a JSON pointer, or as a path with stars; None for anything else."""
    text = expression.strip()
    if not text.startswith(".") or text.endswith("|") or len(text) > _MAX_EXPRESSION:
        return None
    names: list[str] = []
    shown = ""
    counted = starred = False
    place = 0
    while place < len(text):
        found = _JQ_PART.match(text, place)
        if found is None or found.end() == place:
            return None
        place = found.end()
        name = next((found[part] for part in _JQ_NAME_GROUPS if found[part] is not None), None)
        if name is not None:
            if "*" in name or not name:
                return None
            names.append(name)
            shown += f".{name}" if shown else name
        elif found["index"] is not None:
            counted = True
            names.append(found["index"])
        elif found["key"] is not None:
            starred = True
            shown += f"[{found['key']}={found['value']}]"
        else:
            starred = True
            shown += "[*]"
    if starred:
        return None if counted else shown
    return json_pointer(tuple(names))


_PLAIN_PATTERN = re.compile(r"[A-Za-z0-9.-]+")


_REQUIREMENT = re.compile(
    r"""(?x) \s* (?:
        (?P<absent> ! \s*)? (?P<name> [\w./-]+)
        (?: \s* (?P<sign> ==? | !=) \s* (?P<value> [\w.-]*)
          | \s+ (?P<word> in | notin) \s* \( (?P<values> [^()]*) \)
        )?
    ) \s* """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RuleTarget:
    """Patterns for the objects that a rule is about."""

    group: str
    version: str = "*"
    kind: str
    name: str
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Requirement:
    """One part of a selector of labels or annotations."""

    name: str
    values: frozenset[str] | None = None
    """None asks only whether it is there."""
    negated: bool = False

    def holds(self, texts: Mapping[str, str]) -> bool:
        """Say if it holds, as API servers do: what is not there has none of the values."""
        found = texts.get(self.name)
        there = found is not None and (self.values is None or found in self.values)
        return there is not self.negated


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selection:
    """Which declared objects a rule is for, beyond their names."""

    labels: tuple[_Requirement, ...] = ()
    annotations: tuple[_Requirement, ...] = ()

    def chooses(self, declared: Fields) -> bool:
        """True when all of it holds for an object."""
        return all(
            each.holds(_string_pairs(_at(declared, "metadata", part)))
            for part, requirements in (("labels", self.labels), ("annotations", self.annotations))
            for each in requirements
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalIgnoreRules:
    """The rules of one application of another tool."""

    source: ObjectRef
    found: ParsedIgnoreRules
    selections: Mapping[str, _Selection] = field(default_factory=dict)
    """By the name of a rule: which objects its selectors choose, where it has any."""

    def rules_for(self, declared: Fields) -> tuple[IgnoreRule, ...]:
        """Return the rules whose selectors choose an object.

        Give the declared object: a label that was put on the live one alone hides nothing.
        """
        return tuple(
            rule
            for rule in self.found.rules
            if rule.name not in self.selections or self.selections[rule.name].chooses(declared)
        )

    def concern(self, item: Fields) -> bool:
        """True for a live object that belongs to that application."""
        owner = owning_application(item)
        if owner is None:
            return False
        namespace, name = owner
        return name == self.source.name and namespace in ("", self.source.namespace)


_RuleReading = IgnoreRule | str | tuple[str, _Selection]
"""A rule, a sentence about what is not understood, or which objects the rules of a name are for."""


def read_external_rules(item: Fields) -> ExternalIgnoreRules | None:
    """Read the rules of an Application, a HelmRelease or a Kustomization.

    None for any other object.
    """
    ref = ref_of(item)
    reads = _READERS.get((ref.group, ref.kind))
    if reads is None:
        return None
    rules: list[IgnoreRule] = []
    wrong: list[str] = []
    selections: dict[str, _Selection] = {}
    for entry in reads(item):
        if isinstance(entry, IgnoreRule):
            rules.append(entry)
        elif isinstance(entry, str):
            wrong.append(entry)
        else:
            selections[entry[0]] = entry[1]
    found = ParsedIgnoreRules(rules=tuple(rules), not_understood=tuple(wrong))
    return ExternalIgnoreRules(source=ref, found=found, selections=selections)


def _argo_rules(item: Fields) -> Iterator[_RuleReading]:
    for number, entry in _entries(_at(item, "spec", "ignoreDifferences")):
        place = f"argo-cd {ref_of(item)} ignoreDifferences[{number}]"
        about = _RuleTarget(
            group=str(entry.get("group") or ""),  # none is the core group, as Argo CD has it
            kind=str(entry.get("kind") or "*"),
            name=str(entry.get("name") or "*"),
            namespace=str(entry.get("namespace") or "*"),
        )
        if "{" in about.group + about.kind:
            yield f"{place}: its group or kind is more than a plain pattern."
            continue
        for pointer in _texts(entry.get("jsonPointers")):
            yield _pointer_rule(place, pointer, about)
        for manager in _texts(entry.get("managedFieldsManagers")):
            yield _make_rule(place, about, manager=manager)
        for expression in _texts(entry.get("jqPathExpressions")):
            found = pattern_of_jq(expression)
            if found is None:
                yield f"{place}: {quote_text(expression)} is more than a plain path."
            elif found.startswith("/"):
                yield _pointer_rule(place, found, about)
            else:
                yield _make_rule(place, about, glob=found)


def _flux_helm_rules(item: Fields) -> Iterator[_RuleReading]:
    yield from _flux_rules(
        item, "driftDetection.ignore", _at(item, "spec", "driftDetection", "ignore")
    )


def _flux_kustomize_rules(item: Fields) -> Iterator[_RuleReading]:
    yield from _flux_rules(item, "ignore", _at(item, "spec", "ignore"))


def _flux_rules(item: Fields, field: str, value: Tree) -> Iterator[_RuleReading]:
    for number, entry in _entries(value):
        place = f"flux {ref_of(item)} {field}[{number}]"
        target = entry.get("target")
        chosen = target if isinstance(target, dict) else {}
        names = ("group", "version", "kind", "name", "namespace")
        patterns = {name: _plain_pattern(chosen.get(name)) for name in names}
        labels = _requirements(chosen.get("labelSelector"))
        annotations = _requirements(chosen.get("annotationSelector"))
        if "" in patterns.values() or labels is None or annotations is None:
            yield f"{place}: its target is more than plain names and selectors."
            continue
        about = _RuleTarget(**patterns)
        if labels or annotations:
            yield place, _Selection(labels=labels, annotations=annotations)
        for pointer in _texts(entry.get("paths")):
            yield _pointer_rule(place, pointer, about)


_READERS: dict[tuple[str, str], Callable[[Fields], Iterator[_RuleReading]]] = {
    ("argoproj.io", "Application"): _argo_rules,
    ("helm.toolkit.fluxcd.io", "HelmRelease"): _flux_helm_rules,
    ("kustomize.toolkit.fluxcd.io", "Kustomization"): _flux_kustomize_rules,
}


def _pointer_rule(place: str, pointer: str, about: _RuleTarget) -> IgnoreRule | str:
    problem = pointer_problem(pointer, kind=about.kind, images=True)
    return (
        f"{place}: {quote_text(pointer)}: {problem}"
        if problem
        else _make_rule(place, about, pointer=pointer)
    )


def _make_rule(
    place: str,
    about: _RuleTarget,
    *,
    pointer: str | None = None,
    glob: str | None = None,
    manager: str | None = None,
) -> IgnoreRule | str:
    try:
        return IgnoreRule(
            name=place,
            owner=place,
            pointer=pointer,
            glob=glob,
            manager=manager,
            group=about.group,
            version=about.version,
            kind=about.kind,
            object_name=about.name,
            namespace=about.namespace,
        )
    except ConfigurationError:
        return f"{place}: it would hide a whole object."


def _requirements(value: Tree) -> tuple[_Requirement, ...] | None:
    """Read a selector as API servers write it: `a=b,c in (d,e),!f`; None when it is more."""
    text = value if isinstance(value, str) else ""
    found: list[_Requirement] = []
    at = 0
    while at < len(text):
        part = _REQUIREMENT.match(text, at)
        if part is None or (part.end() < len(text) and text[part.end()] != ","):
            return None
        at = part.end() + 1
        sign, word = part["sign"], part["word"]
        values = None
        if sign:
            values = frozenset({part["value"]})
        elif word:
            values = frozenset(each.strip() for each in part["values"].split(","))
        if part["absent"] and values is not None:
            return None
        negated = bool(part["absent"]) or sign == "!=" or word == "notin"
        found.append(_Requirement(name=part["name"], values=values, negated=negated))
    return tuple(found)


def _string_pairs(value: Tree) -> dict[str, str]:
    pairs = value.items() if isinstance(value, dict) else ()
    return {name: text for name, text in pairs if isinstance(text, str)}


def _plain_pattern(value: Tree) -> str:
    """An expression that must match whole, as a pattern with a star; "" when it is more."""
    text = str(value or ".*").removeprefix("^").removesuffix("$")
    stem = text.removesuffix(".*")
    if stem and not _PLAIN_PATTERN.fullmatch(stem):
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
