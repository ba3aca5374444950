"""Writes a result in the format asked for, and values so that they are safe and fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import click

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.text import format_markdown_table, one_line
from holdfast.core.redact import redact_tree
from holdfast.core.show import MAX_VALUE_WIDTH, line_count, readable_value, shorten_middle
from holdfast.core.text_style import TextStyle
from holdfast.core.tree import Fields, Tree

T = TypeVar("T")

_DIFF_STYLES = {"-": TextStyle.REMOVE, "+": TextStyle.CREATE, "@": TextStyle.FAINT}


def show_list(
    screen: Screen,
    kind: str,
    items: Sequence[T],
    *,
    lines: Iterable[str],
    body: Callable[[T], Mapping[str, object]],
    name: Callable[[T], str] = str,
    heads: Sequence[str] = (),
    row: Callable[[T], Sequence[str]] = lambda _: (),
) -> None:
    """Write a list as asked: `lines` for people, `heads` and `row` for a Markdown table."""
    match screen.output:
        case "table" | "wide":
            screen.lines(lines)
        case "markdown":
            screen.lines(format_markdown_table(heads, map(row, items)))
        case "name":
            screen.lines(one_line(name(each)) for each in items)
        case "jsonl":
            screen.records(kind, [body(each) for each in items])
        case _:
            screen.document(kind, {"items": [body(each) for each in items]})


def show_result(
    screen: Screen,
    kind: str,
    *,
    lines: Iterable[str],
    names: Iterable[str],
    body: Callable[[], Mapping[str, object]],
) -> None:
    """Write a result that is one document for programs."""
    match screen.output:
        case "name":
            screen.lines(map(one_line, names))
        case "json" | "yaml":
            screen.document(kind, body())
        case _:
            screen.lines(lines)


def show_documents(screen: Screen, documents: Iterable[Fields]) -> None:
    """Write documents as they are: YAML, or JSON one after the other."""
    from holdfast.wire.yaml import write_document

    if screen.output == "json":
        text = "".join(json.dumps(each, indent=2) + "\n" for each in documents)
    else:
        text = "---\n".join(map(write_document, documents))
    click.echo(text, nl=False)


def masked_json(form: object) -> Fields:
    """Return a wire form as JSON's own types, with credentials masked."""
    import msgspec

    tree = redact_tree(msgspec.to_builtins(form))
    assert isinstance(tree, dict)  # noqa: S101  # a form is a mapping
    return tree


def format_value(value: Tree, path: str = "") -> str:
    """Write a value that is set, so that it fits in a line, with credentials masked.

    Text is left as it is and the rest is JSON; an amount is written as people do, a long value
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
        screen.line(f"  {screen.paint(line, _DIFF_STYLES.get(line[:1], TextStyle.PLAIN))}")


def evidence_lines(found: Iterable[tuple[str, str]]) -> list[str]:
    """Say how each field's writer is known; fields with the same evidence share a line."""
    fields: dict[str, list[str]] = {}
    for path, evidence in found:
        if evidence:
            fields.setdefault(one_line(evidence), []).append(one_line(path))
    return [f"Evidence for {', '.join(paths)}: {text}" for text, paths in fields.items()]
