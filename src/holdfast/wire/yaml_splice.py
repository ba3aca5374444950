"""The cuts and insertions by which a YAML text comes one step nearer to what it should say.

Values are written in the layout of what surrounds them, and quoted wherever some reader of YAML
could take them for something else than text. No result is trusted: `yaml_edit` reads it again.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from holdfast.core.align import align
from holdfast.core.tree import Tree
from holdfast.wire.nodes import UNPRINTABLE, reads_as_text
from holdfast.wire.yaml_spans import NodeKind, NodeSpan, column, line_end, line_start, own_anchor

if TYPE_CHECKING:
    from yaml.resolver import Resolver

_TEXT = "tag:yaml.org,2002:str"
_FIRST = re.compile(r"[^\W\d]|[0-9_./$(+~]|-(?=[^\s-])|--(?=[^\s-])")
_AMBIGUOUS = re.compile(r":(?:\s|\Z)|\s#|[\t\r\n]")
_IN_FLOW = re.compile(r"[,\[\]{}:?#]")
_BLOCK = re.compile(r"\S[^\r]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a file is laid out, as far as what is added has to follow it."""

    step: int = 2
    """Columns between a mapping and the one inside it."""
    dash: int = 2
    """Columns between a key and the dashes of its list."""
    quoted: bool = False
    """Keys and text in double quotes throughout, as in JSON."""


def scalar_text(value: Tree, *, style: str = "", flow: bool = False, quoted: bool = False) -> str:
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
            f"{scalar_text(name, flow=True, quoted=quoted)}: {flow_text(item, quoted=quoted)}"
            for name, item in value.items()
        )
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow_text(item, quoted=quoted) for item in value) + "]"
    return scalar_text(value, flow=True, quoted=quoted)


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


def entry_lines(name: str, value: Tree, indent: int, manner: Layout) -> list[str]:
    """Write a field of a mapping at a column."""
    first = " " * indent + scalar_text(name, quoted=manner.quoted) + ":"
    tail, lines = value_lines(value, indent, manner)
    return [f"{first} {tail}" if tail else first, *lines]


def item_lines(value: Tree, indent: int, manner: Layout, *, gap: int = 2) -> list[str]:
    """Write an item of a list whose dashes stand at a column."""
    tail, lines = after_dash(value, indent, manner, gap=gap)
    return [" " * indent + "-" + " " * (gap - 1) + tail, *lines]


def after_dash(value: Tree, indent: int, manner: Layout, *, gap: int) -> tuple[str, list[str]]:
    """Write an item: what follows its dash on the same line, and below it."""
    if isinstance(value, dict | list) and value:
        first, *lines = block_lines(value, indent + gap, manner)
        return first.lstrip(), lines
    return value_lines(value, indent, manner)


def value_lines(value: Tree, indent: int, manner: Layout) -> tuple[str, list[str]]:
    """Write a value behind a key or dash at a column: what follows on its line, and below it."""
    if isinstance(value, dict) and value:
        return "", block_lines(value, indent + manner.step, manner)
    if isinstance(value, list) and value:
        return "", block_lines(value, indent + manner.dash, manner)
    header = block_header(value) if isinstance(value, str) else None
    if header is not None and isinstance(value, str):
        return header, block_body(value, indent + manner.step)
    return scalar_text(value, quoted=manner.quoted), []


def block_lines(value: Tree, indent: int, manner: Layout) -> list[str]:
    """Write a mapping or list that is not empty, laid out from a column."""
    if isinstance(value, dict):
        return [
            line for name, item in value.items() for line in entry_lines(name, item, indent, manner)
        ]
    assert isinstance(value, list)  # noqa: S101  # the callers ask
    return [line for item in value for line in item_lines(item, indent, manner)]


@cache
def _resolver() -> Resolver:
    from yaml.resolver import Resolver

    return Resolver()


_HEADER = re.compile(r"[|>][-+0-9]*")


class CannotSplice(Exception):
    """The change has no place in this text; the text of the exception says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSlot:
    """Where a value stands: behind a key or a dash, or alone as a document."""

    after: int
    """Behind the colon or the dash."""
    indent: int
    """The column of the key or dash; -1 for a whole document."""
    flow: bool = False
    """Somewhere inside braces or brackets."""
    item: bool = False
    bare: bool = False
    """A key in braces that has no colon yet."""


def key_slot(text: str, mapping: NodeSpan, key: NodeSpan, *, flow: bool) -> ValueSlot:
    """Return where the value of a key stands."""
    colon = re.compile(r"\s*:").match(text, key.end)
    indent = column(text, mapping.content)
    if colon is None:
        if not flow:
            raise CannotSplice("a key is written in a way that is not edited")
        return ValueSlot(after=key.end, indent=indent, flow=True, bare=True)
    return ValueSlot(after=colon.end(), indent=indent, flow=flow)


def item_slot(text: str, items: NodeSpan, index: int, *, flow: bool) -> ValueSlot:
    """Return where an item of a list stands."""
    if flow:
        return ValueSlot(after=items.items[index].start, indent=0, flow=True)
    dash = items.dashes[index]
    return ValueSlot(after=dash + 1, indent=column(text, dash), item=True)


def layout_of(text: str, root: NodeSpan) -> Layout:
    """Find out how a document is laid out."""
    steps: Counter[int] = Counter()
    dashes: Counter[int] = Counter()
    for piece in root.within():
        if piece.shape is not NodeKind.MAPPING or piece.flow:
            continue
        here = column(text, piece.content)
        for _, _, value in piece.pairs:
            away = column(text, value.content) - here
            if value.flow or line_start(text, value.content) == line_start(text, piece.content):
                continue
            if value.shape is NodeKind.MAPPING and away > 0:
                steps[away] += 1
            elif value.shape is NodeKind.LIST and value.dashes:
                dashes[away] += 1
    keys = [key.style for piece in root.within() for key, _, _ in piece.pairs]
    return Layout(
        step=steps.most_common(1)[0][0] if steps else 2,
        dash=dashes.most_common(1)[0][0] if dashes else 2,
        quoted=root.flow and bool(keys) and set(keys) == {'"'},
    )


def replace_value(
    text: str, piece: NodeSpan, slot: ValueSlot, old: Tree, new: Tree, manner: Layout
) -> str:
    """Put another value in the place of one."""
    anchor = own_anchor(text, piece)
    inline = piece.shape in (NodeKind.SCALAR, NodeKind.ALIAS) or piece.flow
    inline = inline and piece.style not in ("|", ">")
    if slot.flow:
        written = anchor + _one_line(piece, new, manner, flow=True)
        return text[: piece.start] + _lead(text, piece, slot) + written + text[piece.end :]
    tail, lines = _block_text(text, piece, slot, old, new, manner)
    if inline and not lines:
        return text[: piece.start] + _lead(text, piece, slot) + anchor + tail + text[piece.end :]
    if slot.indent < 0:
        body = lines if not tail else [tail, *lines]
        return text[: piece.start] + _line_break(text, piece.start).join(body) + text[piece.end :]
    kept, stop = _comment_and_end(text, piece, slot, inline=inline)
    between = " " if anchor or tail else ""
    if slot.item and line_start(text, piece.start) == line_start(text, slot.after):
        between = text[slot.after : piece.start] or " "
    head = text[: slot.after] + (between + anchor + tail).rstrip() + kept
    eol = _line_break(text, slot.after)
    return head + "".join(eol + line for line in lines) + text[stop:]


def insert_key(text: str, mapping: NodeSpan, name: str, value: Tree, manner: Layout) -> str:
    """Add a field at the end of a mapping."""
    if mapping.flow:
        key = scalar_text(name, flow=True, quoted=manner.quoted)
        entry = f"{key}: {flow_text(value, quoted=manner.quoted)}"
        return _insert_flow(text, mapping, len(mapping.spans), entry)
    lines = entry_lines(name, value, column(text, mapping.content), manner)
    at = line_end(text, mapping.end)
    eol = _line_break(text, mapping.end)
    return text[:at] + "".join(eol + line for line in lines) + text[at:]


def insert_item(text: str, items: NodeSpan, index: int, value: Tree, manner: Layout) -> str:
    """Add an item to a list that has one already, before the one that has the index now."""
    if items.flow:
        return _insert_flow(text, items, index, flow_text(value, quoted=manner.quoted))
    beside = max(index - 1, 0)
    dash = items.dashes[beside]
    lines = item_lines(value, column(text, dash), manner, gap=_dash_gap(text, items, beside))
    eol = _line_break(text, dash)
    if index:
        at = line_end(text, items.items[beside].end)
        return text[:at] + "".join(eol + line for line in lines) + text[at:]
    before = text[line_start(text, dash) : dash]
    written = eol.join(lines).lstrip(" ") + eol + " " * len(before)
    return text[:dash] + written + text[dash:]


def remove_entry(text: str, parent: NodeSpan, index: int, start: int) -> str:
    """Take an entry out of a mapping or list that has others. `start`: of its key or dash."""
    end = parent.spans[index][1]
    last = index + 1 == len(parent.spans)
    if parent.flow:
        if last:
            return text[: parent.spans[index - 1][1]] + text[end:]
        return text[:start] + text[parent.spans[index + 1][0] :]
    stop = line_end(text, end)
    if text[line_start(text, start) : start].strip(" "):
        # It begins on the line of a dash, which the next entry takes over.
        following = parent.dashes[index + 1] if parent.dashes else parent.spans[index + 1][0]
        if not text[stop:following].strip():
            stop = following
        return text[:start] + text[stop:]
    stop = _with_line_break(text, stop)
    own = column(text, start)
    while comment := re.compile(r"( *)#[^\n]*(?:\n|\Z)").match(text, stop):
        # A comment that is indented deeper belongs to what goes.
        if len(comment[1]) <= own:
            break
        stop = comment.end()
    return text[: line_start(text, start)] + text[stop:]


def _block_text(
    text: str, piece: NodeSpan, slot: ValueSlot, old: Tree, new: Tree, manner: Layout
) -> tuple[str, list[str]]:
    if piece.style in ("|", ">") and isinstance(new, str):
        header = block_header(new if "\n" in new else f"{new}\n")
        if header is not None:
            return _literal_block(text, piece, slot, old, new, header, manner)
    if not isinstance(new, dict | list) and not (isinstance(new, str) and block_header(new)):
        return _one_line(piece, new, manner, flow=False), []
    if slot.item:
        return after_dash(new, slot.indent, manner, gap=2)
    if slot.indent < 0:
        tail, lines = value_lines(new, -manner.step, manner)
        return tail, lines
    return value_lines(new, slot.indent, manner)


def _literal_block(
    text: str, piece: NodeSpan, slot: ValueSlot, old: Tree, new: str, header: str, manner: Layout
) -> tuple[str, list[str]]:
    """Write a block scalar anew, with its lines as they are written wherever they stay."""
    if not new.endswith("\n"):
        header = "|-"
    raw = text[piece.content : piece.end].replace("\r\n", "\n").split("\n")[1:]
    found = next((line for line in raw if line.strip()), "")
    indent = len(found) - len(found.lstrip(" ")) or max(slot.indent, 0) + manner.step
    lines = block_body(new, indent)
    if piece.style == ">" and "\n" not in new.rstrip("\n"):
        return header.replace("|", ">"), lines
    before = block_body(old, indent) if isinstance(old, str) else []
    if piece.style == "|" and len(before) >= len(raw):
        for same, start, _, to, _ in _equal_runs(before, lines):
            for offset in range(same):
                if start + offset < len(raw):
                    lines[to + offset] = raw[start + offset]
    return header, lines


def _equal_runs(before: list[str], after: list[str]) -> list[tuple[int, int, int, int, int]]:
    found = align(before, after)
    return [(i2 - i1, i1, i2, j1, j2) for tag, i1, i2, j1, j2 in found if tag == "equal"]


def _one_line(piece: NodeSpan, new: Tree, manner: Layout, *, flow: bool) -> str:
    if isinstance(new, dict | list):
        return flow_text(new, quoted=manner.quoted)
    style = piece.style if piece.shape is NodeKind.SCALAR else ""
    return scalar_text(new, style=style, flow=flow, quoted=manner.quoted)


def _lead(text: str, piece: NodeSpan, slot: ValueSlot) -> str:
    """What has to stand between a key and a value where there was no value."""
    if slot.bare:
        return ": "
    at_start = piece.start == 0 or text[piece.start - 1].isspace()
    return "" if at_start or piece.start != piece.end else " "


def _comment_and_end(
    text: str, piece: NodeSpan, slot: ValueSlot, *, inline: bool
) -> tuple[str, int]:
    """Return the comment that stays behind a key or dash, and where the old value stops."""
    if inline:
        stop = line_end(text, piece.end)
        return text[piece.end : stop].rstrip(), stop
    if piece.shape is NodeKind.SCALAR:
        header = _HEADER.match(text, piece.content)
        begins = header.end() if header else piece.content
        return text[begins : line_end(text, begins)].rstrip(), piece.end
    stop = line_end(text, piece.end)
    if line_start(text, piece.start) == line_start(text, slot.after):
        return "", stop
    return text[slot.after : line_end(text, slot.after)].rstrip(), stop


def _insert_flow(text: str, parent: NodeSpan, index: int, entry: str) -> str:
    if not parent.spans:
        return text[: parent.content + 1] + entry + text[parent.content + 1 :]
    beside = parent.spans[min(index, len(parent.spans) - 1)]
    lead = text[line_start(text, beside[0]) : beside[0]]
    between = "," + _line_break(text, beside[0]) + lead if lead and not lead.strip() else ", "
    if index < len(parent.spans):
        return text[: beside[0]] + entry + between + text[beside[0] :]
    return text[: beside[1]] + between + entry + text[beside[1] :]


def _dash_gap(text: str, items: NodeSpan, index: int) -> int:
    """Columns from a dash to what is behind it."""
    dash, item = items.dashes[index], items.items[index]
    beside = item.end > item.start and not text[dash + 1 : item.start].strip(" ")
    return item.start - dash if beside else 2


def _line_break(text: str, at: int) -> str:
    """Return the line break of the line that a character is in, or of the one before."""
    end = text.find("\n", at)
    if end < 0:
        end = text.rfind("\n", 0, at)
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def _with_line_break(text: str, at: int) -> int:
    found = re.compile(r"\r?\n").match(text, at)
    return found.end() if found else at
