"""Writes a value into the middle of somebody's file, in the manner of what stands around it.

Whatever a reader of YAML could take for something else than text is quoted: Kubernetes reads
YAML 1.1 with rules of its own, other tools read 1.2, and a file is for all of them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from holdfast.core.tree import Tree
from holdfast.wire.nodes import UNPRINTABLE
from holdfast.wire.scalars import reads_as_text

if TYPE_CHECKING:
    from yaml.resolver import Resolver

_TEXT = "tag:yaml.org,2002:str"
_FIRST = re.compile(r"[^\W\d]|[0-9_./$(+~]|-(?=[^\s-])|--(?=[^\s-])")
_AMBIGUOUS = re.compile(r":(?:\s|\Z)|\s#|[\t\r\n]")
_IN_FLOW = re.compile(r"[,\[\]{}:?#]")
_BLOCK = re.compile(r"\S[^\r]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a file is laid out, as far as what is added has to follow it."""

    step: int = 2
    """Columns between a mapping and the one inside it."""
    dash: int = 2
    """Columns between a key and the dashes of its list."""
    quoted: bool = False
    """Keys and text in double quotes throughout, as in JSON."""


def scalar(value: Tree, *, style: str = "", flow: bool = False, quoted: bool = False) -> str:
    """Write a value on one line. Text keeps the quotes of what it takes the place of."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        return flow_text(value, quoted=quoted)
    if style == "'" and not re.search(r"[\r\n\t]", value) and not UNPRINTABLE.search(value):
        return "'" + value.replace("'", "''") + "'"
    if style == '"' or quoted or not is_plain(value, flow=flow):
        return json.dumps(value, ensure_ascii=False)
    return value


def flow_text(value: Tree, *, quoted: bool = False) -> str:
    """Write a value in braces and brackets, on one line."""
    if isinstance(value, dict):
        pairs = (
            f"{scalar(name, flow=True, quoted=quoted)}: {flow_text(item, quoted=quoted)}"
            for name, item in value.items()
        )
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow_text(item, quoted=quoted) for item in value) + "]"
    return scalar(value, flow=True, quoted=quoted)


def is_plain(text: str, *, flow: bool = False) -> bool:
    """True when every reader takes the text, unquoted, for that text."""
    if not text or not _FIRST.match(text) or text[-1].isspace() or _AMBIGUOUS.search(text):
        return False
    if UNPRINTABLE.search(text) or (flow and _IN_FLOW.search(text)):
        return False
    import yaml

    # The stubs leave this one method without types.
    resolved = _resolver().resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return reads_as_text(text) and resolved == _TEXT


def block_header(value: str) -> str | None:
    """Return how a literal block for a text begins; None for text that no block can hold."""
    if "\n" not in value or not _BLOCK.fullmatch(value) or UNPRINTABLE.search(value):
        return None
    lines = value.split("\n")
    if any(line and not line.strip() for line in lines):
        return None
    if not value.endswith("\n"):
        return "|-"
    return "|+" if value.endswith("\n\n") else "|"


def block_body(value: str, indent: int) -> list[str]:
    """Return the lines of a literal block."""
    body = value[:-1] if value.endswith("\n") else value
    return [" " * indent + line if line else "" for line in body.split("\n")]


def entry_lines(name: str, value: Tree, indent: int, manner: Manner) -> list[str]:
    """Write a field of a mapping at a column."""
    first = " " * indent + scalar(name, quoted=manner.quoted) + ":"
    tail, lines = value_lines(value, indent, manner)
    return [f"{first} {tail}" if tail else first, *lines]


def item_lines(value: Tree, indent: int, manner: Manner, *, gap: int = 2) -> list[str]:
    """Write an item of a list whose dashes stand at a column."""
    tail, lines = behind_dash(value, indent, manner, gap=gap)
    return [" " * indent + "-" + " " * (gap - 1) + tail, *lines]


def behind_dash(value: Tree, indent: int, manner: Manner, *, gap: int) -> tuple[str, list[str]]:
    """Write an item: what follows its dash on the same line, and below it."""
    if isinstance(value, dict | list) and value:
        first, *lines = block_lines(value, indent + gap, manner)
        return first.lstrip(), lines
    return value_lines(value, indent, manner)


def value_lines(value: Tree, indent: int, manner: Manner) -> tuple[str, list[str]]:
    """Write a value behind a key or dash at a column: what follows on its line, and below it."""
    if isinstance(value, dict) and value:
        return "", block_lines(value, indent + manner.step, manner)
    if isinstance(value, list) and value:
        return "", block_lines(value, indent + manner.dash, manner)
    header = block_header(value) if isinstance(value, str) else None
    if header is not None and isinstance(value, str):
        return header, block_body(value, indent + manner.step)
    return scalar(value, quoted=manner.quoted), []


def block_lines(value: Tree, indent: int, manner: Manner) -> list[str]:
    """Write a mapping or list that is not empty, laid out from a column."""
    if isinstance(value, dict):
        return [line for name, item in value.items()
                for line in entry_lines(name, item, indent, manner)]  # fmt: skip
    assert isinstance(value, list)  # noqa: S101  # the callers ask
    return [line for item in value for line in item_lines(item, indent, manner)]


@cache
def _resolver() -> Resolver:
    from yaml.resolver import Resolver

    return Resolver()
