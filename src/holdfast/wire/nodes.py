"""The tree between text and values: what was read, on which line, and how large it would be.

Both readers build it through `Composer`, which holds the limits. A node may be shared by aliases,
so its full size is counted before anything walks it. Plain scalars are read as `kubectl` reads
them, so that what is reviewed is what is applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.core.tree import Fields, Leaf, Tree

MIN_INT = -(2**63)
MAX_INT = 2**63 - 1
_NAMED_VALUES: dict[str, Leaf] = {
    **dict.fromkeys("y Y yes Yes YES true True TRUE on On ON".split(), True),
    **dict.fromkeys("n N no No NO false False FALSE off Off OFF".split(), False),
    **dict.fromkeys(["", "~", "null", "Null", "NULL"], None),
}
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)"
    r"|(?P<dec>0|[1-9][0-9]*))"
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]*[0-9]")
_BASES = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}
_MAX_DIGITS = 66
"""Digits of the longest 64-bit number, written in binary. Longer is refused before it is read."""


def plain_scalar(text: str) -> Leaf:
    """Give a plain (unquoted) scalar its value.

    Raises ValueError, saying why, for numbers that have no exact or finite value here.
    """
    if text in _NAMED_VALUES:
        return _NAMED_VALUES[text]
    if text[0] not in "+-.0123456789":
        return text
    if _NOT_FINITE.fullmatch(text):
        raise ValueError("it is not a finite number")
    digits = text if text[0] == "." else text.replace("_", "")
    found = _INTEGER.fullmatch(digits)
    if found:
        return _parse_integer(found)
    if _FLOAT.fullmatch(digits):
        if len(digits) > 400:
            raise ValueError("the number is too long")
        number = float(digits)
        # Beyond the range of a float, Kubernetes leaves the text as it is: 12e3456 may be a
        # commit.
        return text if number in (float("inf"), float("-inf")) else tidy_number(number)
    return text


def read_leading_zero(text: str) -> int | None:
    """Return what a number such as `010`, which parsers read as 8 or as 10, is read as here."""
    if not _LEADING_ZERO.fullmatch(text):
        return None
    value = plain_scalar(text)
    return value if isinstance(value, int) else None


def reads_as_text(text: str) -> bool:
    """True when the text, written plain, would be read back as this text."""
    try:
        return plain_scalar(text) is text
    except ValueError:
        return False


def tidy_number(number: float) -> int | float:
    """Give equal numbers one form: `1e3` is 1000, and minus zero is zero."""
    if number.is_integer() and abs(number) < 2**53:
        return int(number)
    return number


def bounded_integer(digits: str, base: int = 10) -> int:
    """Read an integer of at most 64 bits. Raises ValueError for a larger one."""
    if len(digits) <= _MAX_DIGITS:
        value = int(digits, base)
        if MIN_INT <= value <= MAX_INT:
            return value
    raise ValueError("the number does not fit in 64 bits")


def _parse_integer(found: re.Match[str]) -> int:
    name = next(name for name in _BASES if found[name] is not None)
    digits = found[name].lstrip("0") or "0"
    return bounded_integer(f"{found['sign']}{digits}", _BASES[name])


MAX_DEPTH = 64
MAX_NODES = 100_000
"""Values in one file, aliases counted as often as they are used."""
MAX_DOCUMENTS = 10_000
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff\ufeff\ufffe\uffff]"
)
"""Characters that make a reviewer see something else than the parser reads."""


class DocumentRefused(Exception):
    """Something in the text cannot be taken: on which line, why, and how to mend it."""

    def __init__(self, line: int, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason
        self.fix = fix


@dataclass(slots=True)
class DocumentNode:
    """One value as it was read: a mapping, a sequence, or a leaf."""

    line: int
    value: Leaf = None
    pairs: dict[str, DocumentNode] | None = None
    items: list[DocumentNode] | None = None
    size: int = 1
    """Nodes below and including this one, once aliases are written out."""
    height: int = 1

    def children(self) -> Iterator[DocumentNode]:
        """Yield what lies directly below."""
        yield from (self.pairs or {}).values()
        yield from self.items or ()


@dataclass(slots=True)
class Composer:
    """Counts and checks what the readers build, and stops them at the limits."""

    nodes: int = 0
    documents: int = field(default=0)

    def started(self, line: int, depth: int) -> DocumentNode:
        """Begin a node at a depth of nesting."""
        if depth > MAX_DEPTH:
            raise DocumentRefused(line, f"it is nested over {MAX_DEPTH} deep.", "Flatten it.")
        self._count(1, line)
        return DocumentNode(line=line)

    def ended(self, node: DocumentNode) -> DocumentNode:
        """Finish a node: its size and height are known now."""
        for child in node.children():
            node.size += child.size
            node.height = max(node.height, child.height + 1)
        return node

    def aliased(self, node: DocumentNode, line: int, depth: int) -> DocumentNode:
        """Use a node once more, as if it were written out here."""
        if depth + node.height - 1 > MAX_DEPTH:
            raise DocumentRefused(line, f"it is nested over {MAX_DEPTH} deep.", "Flatten it.")
        self._count(node.size, line)
        return node

    def document_ended(self, line: int) -> None:
        """Count a document."""
        self.documents += 1
        if self.documents > MAX_DOCUMENTS:
            raise DocumentRefused(
                line, f"there are over {MAX_DOCUMENTS} documents.", "Split the file."
            )

    def check_new_key(self, pairs: dict[str, DocumentNode], key: str, line: int) -> None:
        """Refuse a key that the mapping has already: parsers disagree on which one counts."""
        if key in pairs:
            first = pairs[key].line
            raise DocumentRefused(
                line, f"key {key[:60]!a} is given twice, first on line {first}.", "Keep one."
            )

    def checked_text(self, text: str, line: int) -> str:
        """Refuse control characters, however they were written."""
        found = UNPRINTABLE.search(text)
        if found:
            raise DocumentRefused(
                line,
                f"it has the control character U+{ord(found.group()):04X}.",
                "Remove it; only tab and new line are allowed.",
            )
        return text

    def _count(self, nodes: int, line: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise DocumentRefused(
                line,
                f"there are over {MAX_NODES} values once its aliases are written out.",
                "Split the file, or use fewer aliases.",
            )


def tree_of(node: DocumentNode) -> Tree:
    """Write a node out as plain values; nothing in the result is shared."""
    if node.pairs is not None:
        tree: Fields = {key: tree_of(child) for key, child in node.pairs.items()}
        return tree
    if node.items is not None:
        return [tree_of(child) for child in node.items]
    return node.value


def lines_of(node: DocumentNode) -> dict[str, int]:
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
