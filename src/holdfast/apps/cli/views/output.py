"""Writes what is no table: lists in other formats, forms for programs, values and their diffs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.text import format_markdown_table, one_line
from holdfast.core.redact import redact_tree
from holdfast.core.show import MAX_VALUE_WIDTH, line_count, readable_value, shorten_middle
from holdfast.core.text_style import TextStyle
from holdfast.core.tree import Fields, Tree


def show_list(
    screen: Screen,
    kind: str,
    *,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    names: Iterable[str],
    bodies: Iterable[Mapping[str, object]],
) -> None:
    """Write a list as asked. What the format does not need is not made."""
    match screen.output:
        case "markdown":
            for line in format_markdown_table(heads, rows):
                screen.line(line)
        case "name":
            for name in names:
                screen.line(one_line(name))
        case "jsonl":
            screen.records(kind, [*bodies])
        case _:
            screen.document(kind, {"items": [*bodies]})


def masked_json(form: object) -> Fields:
    """Write a form, with credentials masked."""
    import msgspec

    tree = redact_tree(msgspec.to_builtins(form))
    assert isinstance(tree, dict)  # noqa: S101  # a form is a mapping
    return tree


def format_value(value: Tree, path: str = "") -> str:
    """Write a value that is set, so that it fits in a line, with credentials masked.

    A text stands as it is and the rest as JSON; an amount is written as people do, a long value
    is cut, and one of several lines is counted: `text_diff` shows those.
    """
    masked = readable_value(re.split(r"[./]", path), redact_tree(value))
    lines = line_count(masked)
    if lines > 1:
        return f"({lines} lines)"
    text = masked if isinstance(masked, str) else json.dumps(masked, ensure_ascii=False)
    return shorten_middle(text, MAX_VALUE_WIDTH)


def show_unified_diff(screen: Screen, title: str, lines: Sequence[str]) -> None:
    """Write a unified diff under a title; nothing when there is none."""
    if not lines:
        return
    screen.line()
    screen.line(f"{one_line(title)}:")
    for line in lines:
        ink = {"-": TextStyle.REMOVE, "+": TextStyle.CREATE, "@": TextStyle.FAINT}.get(
            line[:1], TextStyle.PLAIN
        )
        screen.line(f"  {screen.paint(line, ink)}")


def evidence_lines(told: Iterable[tuple[str, str]]) -> list[str]:
    """Say how each field's writer is known; fields with the same evidence share a line."""
    fields: dict[str, list[str]] = {}
    for path, evidence in told:
        if evidence:
            fields.setdefault(one_line(evidence), []).append(one_line(path))
    return [f"Evidence for {', '.join(paths)}: {text}" for text, paths in fields.items()]
