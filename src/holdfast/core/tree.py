"""Plain nested values, and the paths that address them.

Both sides of a comparison are trees, whether they came from a workload, a Kubernetes object
or a file, so that one diff serves every target.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

Leaf: TypeAlias = bool | int | float | str | None
if TYPE_CHECKING:
    Tree: TypeAlias = Leaf | list["Tree"] | dict[str, "Tree"]
else:
    Tree = Any  # whatever reads types at run time, as msgspec does, cannot read a recursive one
Fields: TypeAlias = dict[str, Tree]
Path: TypeAlias = tuple[str, ...]


def show_path(path: Path) -> str:
    """Write a path for people: `containers[name=main].env[name=A].value`."""
    text = ""
    for segment in path:
        if segment.startswith("["):
            text += segment
        else:
            text += f".{segment}" if text else segment
    return text


def json_pointer(path: Path) -> str:
    """Write a path as a JSON pointer (RFC 6901)."""
    return "".join("/" + segment.replace("~", "~0").replace("/", "~1") for segment in path)


def parse_pointer(text: str) -> Path:
    """Read a JSON pointer; the inverse of `pointer`."""
    if not text:
        return ()
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


def digest(value: object) -> str:
    """Return a stable digest of any JSON-shaped value, equal for equal values."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def identical(one: Tree, other: Tree) -> bool:
    """True for equal trees. Unlike for `==`, 1, 1.0 and true are three values. Quick where two
    trees have parts in common."""
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(identical(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(identical, one, other))
    return type(one) is type(other) and one == other


def plain_tree(value: object) -> Tree:
    """Copy mappings and sequences into plain dictionaries and lists."""
    if isinstance(value, Mapping):
        return {str(key): plain_tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_tree(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        # An enum that is also a string is written as its plain string.
        return str(value) if isinstance(value, str) and type(value) is not str else value
    raise TypeError(f"{type(value).__name__} has no plain form")
