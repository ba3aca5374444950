"""Writes what is no table: one list in every other format, and forms of the wire for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from holdfast.core.redact import redact_tree
from holdfast.core.tree import Fields
from holdfast.doors.cli.screen import Screen
from holdfast.doors.cli.views.text import markdown, one_line


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
            for line in markdown(heads, rows):
                screen.line(line)
        case "name":
            for name in names:
                screen.line(one_line(name))
        case "jsonl":
            screen.records(kind, [*bodies])
        case _:
            screen.document(kind, {"items": [*bodies]})


def masked(form: object) -> Fields:
    """Write a form, with credentials masked."""
    import msgspec

    tree = redact_tree(msgspec.to_builtins(form))
    assert isinstance(tree, dict)  # noqa: S101  # a form is a mapping
    return tree
