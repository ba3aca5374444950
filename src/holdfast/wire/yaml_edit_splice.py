"""The cuts and insertions by which a YAML text comes one step nearer to what it should say.

Each returns the new text. None is trusted: `yaml_edit` reads the result again.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from holdfast.core.align import align
from holdfast.core.tree import Tree
from holdfast.wire.yaml_edit_pieces import (
    Piece,
    Shape,
    column,
    line_end,
    line_start,
    own_anchor,
)
from holdfast.wire.yaml_edit_text import (
    Manner,
    behind_dash,
    block_body,
    block_header,
    entry_lines,
    flow_text,
    item_lines,
    scalar,
    value_lines,
)

_HEADER = re.compile(r"[|>][-+0-9]*")


class CannotSplice(Exception):
    """The change has no place in this text; the text of the exception says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
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


def key_slot(text: str, mapping: Piece, key: Piece, *, flow: bool) -> Slot:
    """Return where the value of a key stands."""
    colon = re.compile(r"\s*:").match(text, key.end)
    indent = column(text, mapping.content)
    if colon is None:
        if not flow:
            raise CannotSplice("a key is written in a way that is not edited")
        return Slot(after=key.end, indent=indent, flow=True, bare=True)
    return Slot(after=colon.end(), indent=indent, flow=flow)


def item_slot(text: str, items: Piece, index: int, *, flow: bool) -> Slot:
    """Return where an item of a list stands."""
    if flow:
        return Slot(after=items.items[index].start, indent=0, flow=True)
    dash = items.dashes[index]
    return Slot(after=dash + 1, indent=column(text, dash), item=True)


def manner_of(text: str, root: Piece) -> Manner:
    """Find out how a document is laid out."""
    steps: Counter[int] = Counter()
    dashes: Counter[int] = Counter()
    for piece in root.within():
        if piece.shape is not Shape.MAPPING or piece.flow:
            continue
        here = column(text, piece.content)
        for _, _, value in piece.pairs:
            away = column(text, value.content) - here
            if value.flow or line_start(text, value.content) == line_start(text, piece.content):
                continue
            if value.shape is Shape.MAPPING and away > 0:
                steps[away] += 1
            elif value.shape is Shape.LIST and value.dashes:
                dashes[away] += 1
    keys = [key.style for piece in root.within() for key, _, _ in piece.pairs]
    return Manner(
        step=steps.most_common(1)[0][0] if steps else 2,
        dash=dashes.most_common(1)[0][0] if dashes else 2,
        quoted=root.flow and bool(keys) and set(keys) == {'"'},
    )


def replace(text: str, piece: Piece, slot: Slot, old: Tree, new: Tree, manner: Manner) -> str:
    """Put another value in the place of one."""
    anchor = own_anchor(text, piece)
    inline = piece.shape in (Shape.SCALAR, Shape.ALIAS) or piece.flow
    inline = inline and piece.style not in ("|", ">")
    if slot.flow:
        written = anchor + _one_line(piece, new, manner, flow=True)
        return text[: piece.start] + _led(text, piece, slot) + written + text[piece.end :]
    tail, lines = _laid_out(text, piece, slot, old, new, manner)
    if inline and not lines:
        return text[: piece.start] + _led(text, piece, slot) + anchor + tail + text[piece.end :]
    if slot.indent < 0:
        body = lines if not tail else [tail, *lines]
        return text[: piece.start] + _eol(text, piece.start).join(body) + text[piece.end :]
    kept, stop = _kept(text, piece, slot, inline=inline)
    between = " " if anchor or tail else ""
    if slot.item and line_start(text, piece.start) == line_start(text, slot.after):
        between = text[slot.after : piece.start] or " "
    head = text[: slot.after] + (between + anchor + tail).rstrip() + kept
    eol = _eol(text, slot.after)
    return head + "".join(eol + line for line in lines) + text[stop:]


def insert_key(text: str, mapping: Piece, name: str, value: Tree, manner: Manner) -> str:
    """Add a field at the end of a mapping."""
    if mapping.flow:
        key = scalar(name, flow=True, quoted=manner.quoted)
        entry = f"{key}: {flow_text(value, quoted=manner.quoted)}"
        return _insert_flow(text, mapping, len(mapping.spans), entry)
    lines = entry_lines(name, value, column(text, mapping.content), manner)
    at = line_end(text, mapping.end)
    eol = _eol(text, mapping.end)
    return text[:at] + "".join(eol + line for line in lines) + text[at:]


def insert_item(text: str, items: Piece, index: int, value: Tree, manner: Manner) -> str:
    """Add an item to a list that has one already, before the one that has the index now."""
    if items.flow:
        return _insert_flow(text, items, index, flow_text(value, quoted=manner.quoted))
    beside = max(index - 1, 0)
    dash = items.dashes[beside]
    lines = item_lines(value, column(text, dash), manner, gap=_gap(text, items, beside))
    eol = _eol(text, dash)
    if index:
        at = line_end(text, items.items[beside].end)
        return text[:at] + "".join(eol + line for line in lines) + text[at:]
    before = text[line_start(text, dash) : dash]
    written = eol.join(lines).lstrip(" ") + eol + " " * len(before)
    return text[:dash] + written + text[dash:]


def remove(text: str, parent: Piece, index: int, start: int) -> str:
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


def _laid_out(
    text: str, piece: Piece, slot: Slot, old: Tree, new: Tree, manner: Manner
) -> tuple[str, list[str]]:
    if piece.style in ("|", ">") and isinstance(new, str):
        header = block_header(new if "\n" in new else f"{new}\n")
        if header is not None:
            return _block(text, piece, slot, old, new, header, manner)
    if not isinstance(new, dict | list) and not (isinstance(new, str) and block_header(new)):
        return _one_line(piece, new, manner, flow=False), []
    if slot.item:
        return behind_dash(new, slot.indent, manner, gap=2)
    if slot.indent < 0:
        tail, lines = value_lines(new, -manner.step, manner)
        return tail, lines
    return value_lines(new, slot.indent, manner)


def _block(
    text: str, piece: Piece, slot: Slot, old: Tree, new: str, header: str, manner: Manner
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
        for same, start, _, to, _ in _matches(before, lines):
            for offset in range(same):
                if start + offset < len(raw):
                    lines[to + offset] = raw[start + offset]
    return header, lines


def _matches(before: list[str], after: list[str]) -> list[tuple[int, int, int, int, int]]:
    found = align(before, after)
    return [(i2 - i1, i1, i2, j1, j2) for tag, i1, i2, j1, j2 in found if tag == "equal"]


def _one_line(piece: Piece, new: Tree, manner: Manner, *, flow: bool) -> str:
    if isinstance(new, dict | list):
        return flow_text(new, quoted=manner.quoted)
    style = piece.style if piece.shape is Shape.SCALAR else ""
    return scalar(new, style=style, flow=flow, quoted=manner.quoted)


def _led(text: str, piece: Piece, slot: Slot) -> str:
    """What has to stand between a key and a value where there was no value."""
    if slot.bare:
        return ": "
    at_start = piece.start == 0 or text[piece.start - 1].isspace()
    return "" if at_start or piece.start != piece.end else " "


def _kept(text: str, piece: Piece, slot: Slot, *, inline: bool) -> tuple[str, int]:
    """Return the comment that stays behind a key or dash, and where the old value stops."""
    if inline:
        stop = line_end(text, piece.end)
        return text[piece.end : stop].rstrip(), stop
    if piece.shape is Shape.SCALAR:
        header = _HEADER.match(text, piece.content)
        begins = header.end() if header else piece.content
        return text[begins : line_end(text, begins)].rstrip(), piece.end
    stop = line_end(text, piece.end)
    if line_start(text, piece.start) == line_start(text, slot.after):
        return "", stop
    return text[slot.after : line_end(text, slot.after)].rstrip(), stop


def _insert_flow(text: str, parent: Piece, index: int, entry: str) -> str:
    if not parent.spans:
        return text[: parent.content + 1] + entry + text[parent.content + 1 :]
    beside = parent.spans[min(index, len(parent.spans) - 1)]
    lead = text[line_start(text, beside[0]) : beside[0]]
    between = "," + _eol(text, beside[0]) + lead if lead and not lead.strip() else ", "
    if index < len(parent.spans):
        return text[: beside[0]] + entry + between + text[beside[0] :]
    return text[: beside[1]] + between + entry + text[beside[1] :]


def _gap(text: str, items: Piece, index: int) -> int:
    """Columns from a dash to what is behind it."""
    dash, item = items.dashes[index], items.items[index]
    beside = item.end > item.start and not text[dash + 1 : item.start].strip(" ")
    return item.start - dash if beside else 2


def _eol(text: str, at: int) -> str:
    """Return the line break of the line that a character is in, or of the one before."""
    end = text.find("\n", at)
    if end < 0:
        end = text.rfind("\n", 0, at)
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def _with_line_break(text: str, at: int) -> int:
    found = re.compile(r"\r?\n").match(text, at)
    return found.end() if found else at
