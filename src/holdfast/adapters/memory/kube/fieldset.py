"""Sets of fields, and what a server does with them: compare, merge, remove, write down.

A path is a tuple of the keys that `managedFields` has: `f:spec`, `k:{"name":"app"}`, `v:"x"`.
The rules are those of the structured merge of Kubernetes, for the schemas in `kinds`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from holdfast.adapters.memory.kube.kinds import Object, Schema

FieldPath: TypeAlias = tuple[str, ...]
FieldSet: TypeAlias = frozenset[FieldPath]
# Any, here and below: parts of objects.
_Parts: TypeAlias = dict[str, tuple[Any, str]]
_MISSING = object()
_BOOKKEEPING = frozenset({
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
    "managedFields", "selfLink",
})  # fmt: skip
"""Metadata that nobody owns."""


@dataclass(slots=True)
class Comparison:
    """What is different in a new value. Fields that hold others are among them."""

    added: set[FieldPath] = field(default_factory=set)
    modified: set[FieldPath] = field(default_factory=set)
    removed: set[FieldPath] = field(default_factory=set)


def clone(value: Any) -> Any:
    """Copy a tree."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def fields_of(item: Object, schema: Schema) -> FieldSet:
    """Return every field that an object has; `ownable` says which of them can be owned."""
    found: set[FieldPath] = set()

    def walk(value: Any, name: str, path: FieldPath, free: bool) -> None:
        parts = _parts(value, name, schema)
        if parts is None:
            found.add(path)
            return
        free = free or name in schema.free
        for key, (inner, inner_name) in parts.items():
            here = (*path, key)
            walk(inner, inner_name, here, free)
            if isinstance(value, list) or inner in (None, {}) or free:
                found.add(here)

    walk(item, "", (), False)
    return frozenset(found)


def ownable(paths: Iterable[FieldPath]) -> FieldSet:
    """Leave out what nobody owns: the root, kind and version, and the server's bookkeeping."""
    return frozenset(
        path
        for path in paths
        if path
        and path[0] not in ("f:apiVersion", "f:kind")
        and path != ("f:metadata",)
        and not (path[0] == "f:metadata" and path[1].removeprefix("f:") in _BOOKKEEPING)
    )


def compare(old: Object, new: Object, schema: Schema) -> Comparison:
    """Say what a write changes. The order of a list with keys is no change."""
    found = Comparison()

    def walk(before: Any, after: Any, name: str, path: FieldPath) -> None:
        left, right = _parts(before, name, schema), _parts(after, name, schema)
        if left or right:
            left, right = left or {}, right or {}
            for key in {**left, **right}:
                was, name_was = left.get(key, (_MISSING, ""))
                now, name_now = right.get(key, (_MISSING, ""))
                walk(was, now, name_now or name_was, (*path, key))
        if before is _MISSING:
            found.added.add(path)
        elif after is _MISSING:
            found.removed.add(path)
        elif not left and not right and before != after:
            found.modified.add(path)

    walk(old, new, "", ())
    return Comparison(
        added=set(ownable(found.added)),
        modified=set(ownable(found.modified)),
        removed=set(ownable(found.removed)),
    )


def merge(live: Any, config: Any, schema: Schema, name: str = "") -> Any:
    """Lay an applied object over the live one."""
    left, right = _parts(live, name, schema), _parts(config, name, schema)
    if left is None or right is None:
        return clone(config)
    if isinstance(config, dict):
        merged = clone({key: value for key, value in live.items() if key not in config})
        for key, value in config.items():
            merged[key] = merge(live[key], value, schema, key) if key in live else clone(value)
        return merged
    return [
        merge(left[key][0], right[key][0], schema, f"{name}[]")
        if key in left and key in right
        else clone((right.get(key) or left[key])[0])
        for key in _order(list(left), list(right))
    ]


def remove(value: Any, fields: FieldSet, schema: Schema, name: str = "") -> Any:
    """Take fields out of a value; None when nothing is left of it."""
    inside: dict[str, set[FieldPath]] = {}
    for path in fields:
        inside.setdefault(path[0], set()).add(path[1:])
    parts = _parts(value, name, schema) or {}
    kept: list[tuple[str, Any]] = []
    for key, (inner, inner_name) in parts.items():
        paths = inside.get(key, set())
        if () in paths:
            continue
        below = frozenset(path for path in paths if path)
        if below and _parts(inner, inner_name, schema) is not None:
            inner = remove(inner, below, schema, inner_name)
        kept.append((key, inner))
    if not kept:
        return None
    if isinstance(value, dict):
        return {key.removeprefix("f:"): inner for key, inner in kept}
    return [inner for _, inner in kept]


def with_holders(fields: FieldSet) -> FieldSet:
    """Add the named fields that hold those of a set."""
    return fields | {
        path[:length]
        for path in fields
        for length in range(1, len(path))
        if path[length - 1].startswith("f:")
    }


def to_v1(fields: FieldSet) -> Object:
    """Write a set as `fieldsV1`."""
    written: Object = {}
    for path in sorted(fields, key=len, reverse=True):  # what is inside comes first
        here = written
        for key in path:
            here = here.setdefault(key, {})
        if here:
            here["."] = {}
    return written


def from_v1(written: Object) -> FieldSet:
    """Read `fieldsV1`."""

    def walk(node: Object, path: FieldPath) -> Iterator[FieldPath]:
        for key, inner in node.items():
            if key == ".":
                yield path
            elif inner:
                yield from walk(inner, (*path, key))
            else:
                yield (*path, key)

    return frozenset(walk(written, ()))


def show(path: FieldPath) -> str:
    """Write a path as the server does in conflicts: `.spec.ports[port=80,protocol="TCP"]`."""
    text = ""
    for key in path:
        mark, _, rest = key.partition(":")
        if mark == "f":
            text += f".{rest}"
        elif mark == "v":
            text += f"[={rest}]"
        else:
            pairs = sorted(json.loads(rest).items())
            text += "[" + ",".join(f"{name}={_json(value)}" for name, value in pairs) + "]"
    return text


def _parts(value: Any, name: str, schema: Schema) -> _Parts | None:
    """Divide a value into its fields, each with the name its own rules go by; None for a leaf."""
    if name in schema.whole:
        return None
    if isinstance(value, dict):
        return {f"f:{key}": (item, key) for key, item in value.items()}
    if isinstance(value, list):
        if name in schema.sets:
            return {f"v:{_json(item)}": (item, "") for item in value}
        keys = schema.keyed.get(name)
        if keys is not None:
            return {_key(item, keys): (item, f"{name}[]") for item in value}
    return None


def _key(item: Object, keys: tuple[str, ...]) -> str:
    given = {key: item.get(key, "TCP" if key == "protocol" else None) for key in keys}
    return f"k:{_json(given)}"


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _order(live: list[str], config: list[str]) -> list[str]:
    """Order the items of a merged list: as applied, the others where they were between them."""
    merged: list[str] = []
    shared = [key for key in config if key in live]
    left, right = 0, 0
    while left < len(live) or right < len(config):
        if left < len(live) and right < len(config):
            if live[left] == config[right]:
                merged.append(live[left])
                left, right, shared = left + 1, right + 1, shared[1:]
                continue
            if live[left] in config and shared and shared[0] != live[left]:
                left += 1
                continue
        if left < len(live):
            if live[left] not in config:
                merged.append(live[left])
                left += 1
                continue
            if live[left] in merged:
                left += 1
        if right < len(config):
            merged.append(config[right])
            if shared and shared[0] == config[right]:
                shared = shared[1:]
            right += 1
    return merged
