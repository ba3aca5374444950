"""Where each value of a YAML file stands in its text, to the character.

The parser is the reader's own, so both mean the same by a value. `yaml_edit` cuts and inserts by
these positions; what a value is, it asks the reader.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from holdfast.wire.nodes import plain_scalar

if TYPE_CHECKING:
    import yaml

_PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*(?:\s+(?:#[^\r\n]*\s+)*)?)+")
_ANCHOR = re.compile(r"&[^\s,\[\]{}]+")
KEEP_INDICATOR = re.compile(r"[|>]\d?\+")


class NodeKind(StrEnum):
    """What a piece of text is."""

    SCALAR = "scalar"
    MAPPING = "mapping"
    LIST = "list"
    ALIAS = "alias"


@dataclass(slots=True, kw_only=True)
class NodeSpan:
    """One value: from the first character of its content to the last."""

    shape: NodeKind
    start: int
    """Where its anchor or tag begins, or else its content."""
    content: int
    end: int = 0
    """After its last character; of a block, after that of the last thing in it."""
    flow: bool = False
    """In braces or brackets: not laid out by indentation."""
    style: str = ""
    """Of a scalar: empty when plain, otherwise `'`, `"`, `|` or `>`."""
    anchor: str = ""
    pairs: list[tuple[NodeSpan, str, NodeSpan]] = field(default_factory=list)
    """Key, its text as the reader gives it, value. Without what `<<` brings in."""
    merges: list[NodeSpan] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Of everything written in a mapping or list, in order, `<<` included."""
    items: list[NodeSpan] = field(default_factory=list)
    dashes: list[int] = field(default_factory=list)
    """Of a block list: where the dash of each item stands."""

    def pair(self, name: str) -> tuple[NodeSpan, NodeSpan] | None:
        """Return the key and the value of a field that is written here."""
        return next(((key, value) for key, text, value in self.pairs if text == name), None)

    def within(self) -> Iterator[NodeSpan]:
        """Yield this piece and everything in it."""
        yield self
        for inner in [*self.merges, *(value for _, _, value in self.pairs), *self.items]:
            yield from inner.within()


@dataclass(slots=True, kw_only=True)
class DocumentSpan:
    """One document of a file: its directives and markers, and what stands between them."""

    start: int
    end: int
    """After its end marker, or where the next document begins."""
    root: NodeSpan
    empty: bool
    explicit: bool
    """True when it begins with a marker."""


def document_spans(text: str) -> list[DocumentSpan]:
    """Find the documents of a text that the reader accepted; empty ones are left out."""
    import yaml

    loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # Any: either parser
    dashes = [
        token.start_mark.index
        for token in yaml.scan(text, Loader=loader)
        if isinstance(token, yaml.BlockEntryToken)
    ]
    found = _SpanFinder(text, yaml.parse(text, Loader=loader), dashes).parts()
    return [part for part in found if not part.empty]


class _SpanFinder:
    def __init__(self, text: str, events: Iterator[yaml.Event], dashes: list[int]) -> None:
        self._text = text
        self._events = events
        self._dashes = dashes

    def parts(self) -> list[DocumentSpan]:
        import yaml

        parts: list[DocumentSpan] = []
        ended_by_marker = False
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                first = next(self._events)
                empty = _is_null(first)
                root = self._piece(first)
                ended = next(self._events)
                ended_by_marker = bool(getattr(ended, "explicit", False))
                start = _start(event) if event.explicit else root.start
                parts.append(
                    DocumentSpan(
                        start=start,
                        end=_end(ended),
                        root=root,
                        empty=empty,
                        explicit=bool(event.explicit),
                    )
                )
        if parts and not ended_by_marker:
            parts[-1].end = len(self._text)
        return parts

    def _piece(self, event: yaml.Event) -> NodeSpan:
        import yaml

        start = _start(event)
        if isinstance(event, yaml.AliasEvent):
            return NodeSpan(shape=NodeKind.ALIAS, start=start, content=start, end=_end(event))
        assert isinstance(event, yaml.NodeEvent)  # noqa: S101  # the parser's grammar
        marked = event.anchor is not None or getattr(event, "tag", None) is not None
        content = self._after_properties(start) if marked else start
        anchor = event.anchor or ""
        if isinstance(event, yaml.ScalarEvent):
            end = _end(event)
            style = event.style or ""
            if style in "|>" and style:
                end = self._end_of_block(content, end)
            return NodeSpan(
                shape=NodeKind.SCALAR,
                start=start,
                content=min(content, end),
                end=end,
                style=style,
                anchor=anchor,
            )
        flow = bool(getattr(event, "flow_style", False))
        shape = NodeKind.LIST if isinstance(event, yaml.SequenceStartEvent) else NodeKind.MAPPING
        piece = NodeSpan(shape=shape, start=start, content=content, flow=flow, anchor=anchor)
        fill = self._fill_list if shape is NodeKind.LIST else self._fill_mapping
        ended = fill(piece)
        if flow:
            piece.end = _end(ended)
        return piece

    def _fill_list(self, piece: NodeSpan) -> yaml.Event:
        import yaml

        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            item = self._piece(event)
            piece.items.append(item)
            piece.spans.append((item.start, item.end))
            piece.end = item.end
            if not piece.flow:
                piece.dashes.append(self._dashes[bisect_left(self._dashes, item.start) - 1])
        if piece.dashes:
            piece.content = piece.dashes[0]
        return event

    def _fill_mapping(self, piece: NodeSpan) -> yaml.Event:
        import yaml

        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._piece(event)
            value = self._piece(next(self._events))
            piece.end = max(key.end, value.end)
            piece.spans.append((key.start, piece.end))
            if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
                piece.merges.append(value)
            else:
                piece.pairs.append((key, _key_text(event), value))
        return event

    def _after_properties(self, start: int) -> int:
        found = _PROPERTIES.match(self._text, start)
        return found.end() if found else start

    def _end_of_block(self, start: int, end: int) -> int:
        """Where the last line of a block scalar ends: blank lines after it are not part of it,
        unless it keeps them."""
        body = self._text[start:end]
        if KEEP_INDICATOR.match(body):
            return start + len(re.sub(r"\r?\n\Z", "", body))
        return start + len(re.sub(r"(?:\r?\n[ \t]*)+\Z", "", body))


def _key_text(event: yaml.Event) -> str:
    """Return a key as the reader does. An alias as a key is not looked up: it has no text here."""
    import yaml

    if not isinstance(event, yaml.ScalarEvent):
        return ""
    if event.tag is None and not event.implicit[0]:
        return str(event.value)
    value = plain_scalar(event.value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_null(event: yaml.Event) -> bool:
    import yaml

    if not isinstance(event, yaml.ScalarEvent) or (event.tag is None and not event.implicit[0]):
        return False
    return plain_scalar(event.value) is None


def own_anchor(text: str, piece: NodeSpan) -> str:
    """Return the anchor of a piece as it is written, to be kept when its tag is not."""
    found = _ANCHOR.search(text, piece.start, piece.content)
    return f"{found.group()} " if found else ""


def column(text: str, at: int) -> int:
    """Say how far from the start of its line a character stands."""
    return at - line_start(text, at)


def line_start(text: str, at: int) -> int:
    """Return where the line of a character begins."""
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Return where the line of a character ends, before its line break."""
    end = text.find("\n", at)
    if end < 0:
        return len(text)
    return end - 1 if end > at and text[end - 1] == "\r" else end


def _start(event: yaml.Event) -> int:
    mark = event.start_mark
    assert mark is not None  # noqa: S101  # the parser gives marks
    return int(mark.index)


def _end(event: yaml.Event) -> int:
    mark = event.end_mark
    assert mark is not None  # noqa: S101  # the parser gives marks
    return int(mark.index)
