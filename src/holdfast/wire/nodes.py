"""The tree between text and values: what was read, where it stood, and how large it would be.

Both readers build it through `Composer`, which holds the limits. A node may be shared by
aliases, so its full size is counted before anything walks it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.core.tree import Fields, Leaf, Tree

MAX_DEPTH = 64
MAX_NODES = 100_000
"""Values in one file, aliases counted as often as they are used."""
MAX_DOCUMENTS = 10_000
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff\ufeff\ufffe\uffff]"
)
"""Characters that make a reviewer see something else than the parser reads."""


class Refused(Exception):
    """Something in the text cannot be taken: on which line, why, and how to mend it."""

    def __init__(self, line: int, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason
        self.fix = fix


@dataclass(slots=True)
class Node:
    """One value as it was read: a mapping, a sequence, or a leaf."""

    line: int
    value: Leaf = None
    pairs: dict[str, Node] | None = None
    items: list[Node] | None = None
    size: int = 1
    """Nodes below and including this one, once aliases are written out."""
    height: int = 1

    def children(self) -> Iterator[Node]:
        """Yield what lies directly below."""
        yield from (self.pairs or {}).values()
        yield from self.items or ()


@dataclass(slots=True)
class Composer:
    """Counts and checks what the readers build, and stops them at the limits."""

    nodes: int = 0
    documents: int = field(default=0)

    def started(self, line: int, depth: int) -> Node:
        """Begin a node at a depth of nesting."""
        if depth > MAX_DEPTH:
            raise Refused(line, f"it is nested over {MAX_DEPTH} deep.", "Flatten it.")
        self._count(1, line)
        return Node(line=line)

    def ended(self, node: Node) -> Node:
        """Finish a node: its size and height are known now."""
        for child in node.children():
            node.size += child.size
            node.height = max(node.height, child.height + 1)
        return node

    def aliased(self, node: Node, line: int, depth: int) -> Node:
        """Use a node once more, as if it were written out here."""
        if depth + node.height - 1 > MAX_DEPTH:
            raise Refused(line, f"it is nested over {MAX_DEPTH} deep.", "Flatten it.")
        self._count(node.size, line)
        return node

    def document_ended(self, line: int) -> None:
        """Count a document."""
        self.documents += 1
        if self.documents > MAX_DOCUMENTS:
            raise Refused(line, f"there are over {MAX_DOCUMENTS} documents.", "Split the file.")

    def check_new_key(self, pairs: dict[str, Node], key: str, line: int) -> None:
        """Refuse a key that the mapping has already: parsers disagree on which one counts."""
        if key in pairs:
            first = pairs[key].line
            raise Refused(
                line, f"key {key[:60]!a} is given twice, first on line {first}.", "Keep one."
            )

    def checked_text(self, text: str, line: int) -> str:
        """Refuse control characters, however they were written."""
        found = UNPRINTABLE.search(text)
        if found:
            raise Refused(
                line,
                f"it has the control character U+{ord(found.group()):04X}.",
                "Remove it; only tab and new line are allowed.",
            )
        return text

    def _count(self, nodes: int, line: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise Refused(
                line,
                f"there are over {MAX_NODES} values once its aliases are written out.",
                "Split the file, or use fewer aliases.",
            )


def tree_of(node: Node) -> Tree:
    """Write a node out as plain values; nothing in the result is shared."""
    if node.pairs is not None:
        tree: Fields = {key: tree_of(child) for key, child in node.pairs.items()}
        return tree
    if node.items is not None:
        return [tree_of(child) for child in node.items]
    return node.value


def lines_of(node: Node) -> dict[str, int]:
    """Say on which line each field stands, by JSON pointer; the root is the empty pointer."""
    lines: dict[str, int] = {}
    waiting = [("", node)]
    while waiting:
        where, each = waiting.pop()
        lines[where] = each.line
        for key, child in (each.pairs or {}).items():
            waiting.append((f"{where}/{key.replace('~', '~0').replace('/', '~1')}", child))
        waiting.extend((f"{where}/{place}", child) for place, child in enumerate(each.items or ()))
    return lines
