"""Reads the plain paths among jq expressions, which is what most people write.

`.spec.replicas`, `.spec.containers[0].image`, `.metadata.annotations["a/b"]`, all items of a list
and the one item of a name. Nothing is evaluated: what is more than a path is not understood, so
that no rule can run for ever.
"""

from __future__ import annotations

import re

from holdfast.core.tree import pointer

_LONGEST = 500
_PART = re.compile(
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


_NAMES = ("name", "text", "quoted")


def pattern_of_jq(expression: str) -> str | None:
    """Write a plain path as a JSON pointer, or as a path with stars; None for anything else."""
    text = expression.strip()
    if not text.startswith(".") or text.endswith("|") or len(text) > _LONGEST:
        return None
    names: list[str] = []
    shown = ""
    counted = starred = False
    place = 0
    while place < len(text):
        found = _PART.match(text, place)
        if found is None or found.end() == place:
            return None
        place = found.end()
        name = next((found[part] for part in _NAMES if found[part] is not None), None)
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
    return pointer(tuple(names))
