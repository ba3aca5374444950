"""Ignore rules of an application: those of its spec, and those that an object itself carries.

What a rule hides is decided in one place, `core.ownership.ignore`; here it is only made, and
refused when it would hide too much. Whoever surveys an application calls `ignore_rules_of` once and
`annotated_rules` for each object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from holdfast.core.errors import ConfigurationError, Problem
from holdfast.core.gitops.application import IgnoreSpec
from holdfast.core.glob import compiled_glob
from holdfast.core.ledger import DriftEntry
from holdfast.core.object_ref import ObjectRef, ref_of
from holdfast.core.ownership.ignore import IgnoreRule, concerns_security
from holdfast.core.redact import quote_text
from holdfast.core.tree import Fields, Path, parse_pointer

FIELDS = "holdfast.dev/ignore-fields"
MANAGERS = "holdfast.dev/ignore-managers"
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])+){2,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedIgnoreRules:
    """Rules that were read, and what could not be."""

    rules: tuple[IgnoreRule, ...] = ()
    not_understood: tuple[str, ...] = ()
    """A sentence for each."""


NO_IGNORE_RULES = ParsedIgnoreRules()


def ignore_rules_of(specs: Iterable[IgnoreSpec]) -> tuple[IgnoreRule, ...]:
    """Make the rules of a spec that was validated."""
    return tuple(ignore_rule_of(spec) for spec in specs)


def ignore_rule_of(spec: IgnoreSpec) -> IgnoreRule:
    """Make one rule. Raises ConfigurationError when it would hide a whole object."""
    return IgnoreRule(
        name=spec.name,
        owner=spec.owner,
        pointer=spec.pointer,
        glob=spec.path,
        manager=spec.manager,
        kind=spec.kind or "*",
        object_name=spec.object_name or "*",
        namespace=spec.namespace or "*",
        expires=datetime.fromisoformat(spec.expires) if spec.expires else None,
        security=bool(spec.security),
        lands=bool(spec.lands),
        same_as=spec.same_as,
    )


def would_hide(rule: IgnoreRule, ref: ObjectRef, entry: DriftEntry) -> bool:
    """True when a rule with a path would hide a field of a drift that is open now."""
    parts = tuple(part for part in re.split(r"[.\[\]]+", entry.path) if part)
    if not parts or (concerns_security(parts, ref.kind) and not rule.security):
        return False
    patterns = (
        (ref.kind, rule.kind),
        (ref.name, rule.object_name),
        (ref.namespace, rule.namespace),
    )
    if not all(fnmatchcase(text, pattern) for text, pattern in patterns):
        return False
    if rule.manager is not None:
        writer = entry.writer.manager if entry.writer else ""
        if not writer or not fnmatchcase(writer, rule.manager):
            return False
    return rule.glob is None or compiled_glob(rule.glob).matches(entry.path)


def annotated_rules(item: Fields) -> ParsedIgnoreRules:
    """Read the rules that an object carries in its annotations.

    Give the declared object: an annotation that was put on the live one alone is a change that
    nobody declared, and must not be able to hide others.
    """
    metadata = item.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, dict) else None
    annotations = found if isinstance(found, dict) else {}
    if FIELDS not in annotations and MANAGERS not in annotations:
        return NO_IGNORE_RULES
    ref = ref_of(item)
    rules: list[IgnoreRule] = []
    wrong: list[str] = []
    for pointer in _split_list(annotations.get(FIELDS)):
        named = f"annotation {FIELDS} of {ref}"
        problem = pointer_problem(pointer, kind=ref.kind)
        if problem:
            wrong.append(f"{named}: {quote_text(pointer)}: {problem}")
        else:
            rules.append(_rule_about(ref, name=named, pointer=pointer))
    for manager in _split_list(annotations.get(MANAGERS)):
        named = f"annotation {MANAGERS} of {ref}"
        if manager.strip("*"):
            rules.append(_rule_about(ref, name=named, manager=manager))
        else:
            wrong.append(f"{named}: {quote_text(manager)}: it would hide the whole object.")
    return ParsedIgnoreRules(rules=tuple(rules), not_understood=tuple(wrong))


def _rule_about(
    ref: ObjectRef, *, name: str, pointer: str | None = None, manager: str | None = None
) -> IgnoreRule:
    return IgnoreRule(
        name=name,
        owner=str(ref),
        pointer=pointer,
        manager=manager,
        kind=ref.kind,
        object_name=ref.name,
        namespace=ref.namespace or "*",
    )


def ignore_problems(spec: IgnoreSpec, field: str) -> list[Problem]:
    """Say what is wrong with a rule whose single values are as they should be."""
    if spec.pointer is not None and spec.path is not None:
        return [Problem(field=field, reason="it has a pointer and a path.", fix="Keep one.")]
    kind, allowed = spec.kind or "*", bool(spec.security)
    if spec.pointer is not None:
        problem = pointer_problem(spec.pointer, kind=kind, security=allowed)
        if problem:
            return [Problem(field=f"{field}.pointer", reason=problem, fix=_NARROW_HINT)]
    if spec.path is not None:
        problem = _path_problem(spec.path, kind=kind, security=allowed)
        if problem:
            return [Problem(field=f"{field}.path", reason=problem, fix=_NARROW_HINT)]
    if spec.expires is not None:
        try:
            datetime.fromisoformat(spec.expires)
        except ValueError:
            fix = "Write it like 2026-11-20T18:00:00Z."
            return [Problem(field=f"{field}.expires", reason="it is not a time.", fix=fix)]
    try:
        ignore_rule_of(spec)
    except ConfigurationError as error:
        return [Problem(field=field, reason="it would hide a whole object.", fix=error.hint)]
    return []


_NARROW_HINT = (
    "Name a field below spec, data or metadata; for one of security or an image, say "
    "security: true too."
)


def pointer_problem(
    text: str, *, kind: str, security: bool = False, images: bool = False
) -> str | None:
    """Say why a JSON pointer is none of a field that may be hidden; None when it is.

    `images` allows an image, which otherwise takes a word about security too.
    """
    if not text.startswith("/"):
        return "it is not a JSON pointer."
    if text.count("/") < 2 or not text.strip("/"):
        return "it would hide a whole object."
    if not _POINTER.fullmatch(text):
        return "it is not a JSON pointer to a field."
    path = parse_pointer(text)
    if images and path[-1:] == ("image",):
        path = path[:-1]
    return _security_problem(path, kind=kind, allowed=security)


def _path_problem(text: str, *, kind: str, security: bool) -> str | None:
    path = tuple(part for part in re.split(r"[.\[\]]+", text) if part)
    return _security_problem(path, kind=kind, allowed=security)


def _security_problem(path: Path, *, kind: str, allowed: bool) -> str | None:
    if not allowed and concerns_security(path, kind):
        return "it would hide a field that concerns security."
    if not allowed and path[-1:] == ("image",):
        return "it would hide which image runs."
    return None


def _split_list(value: object) -> Sequence[str]:
    """The parts of an annotation, parted by commas or line ends."""
    text = value if isinstance(value, str) else ""
    return [part.strip() for part in re.split(r"[,\n]", text) if part.strip()]
