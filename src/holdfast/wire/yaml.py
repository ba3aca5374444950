"""The one reader of YAML and JSON, and the one writer of YAML.

Whatever is declared in a file passes here once; what comes out is compared, hashed, shown and
applied. Input may be hostile: everything is bounded before it is walked, and whatever two
parsers could read differently is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.core.errors import Problem, ValidationError
from holdfast.core.tree import Leaf, Tree
from holdfast.wire.nodes import (
    UNPRINTABLE,
    Composer,
    DocumentNode,
    DocumentRefused,
    bounded_integer,
    lines_of,
    plain_scalar,
    read_leading_zero,
    reads_as_text,
    tidy_number,
    tree_of,
)

if TYPE_CHECKING:
    import yaml

_TOKEN = re.compile(
    r"""(?x)
    (?P<space>[ \t\r\n]+)
    | (?P<text>"(?:[^"\\\x00-\x1f]++|\\.)*+")
    | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)
    | (?P<word>true|false|null)\b
    | (?P<mark>[{}\[\],:])
    """
)
_LITERALS: dict[str, Leaf] = {"true": True, "false": False, "null": None}


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


class JsonReader:
    """Reads one JSON value, or several after each other as in JSON lines."""

    def __init__(self, text: str, composer: Composer) -> None:
        self._text = text
        self._composer = composer
        self._place = 0
        self._line = 1
        self._token = self._scan()

    def documents(self) -> list[DocumentNode]:
        """Return every value of the text."""
        found = []
        while self._token.kind != "end":
            found.append(self._value(1))
            self._composer.document_ended(self._token.line)
        return found

    def _value(self, depth: int) -> DocumentNode:
        token = self._take()
        node = self._composer.started(token.line, depth)
        match token.kind, token.text:
            case "mark", "{":
                self._mapping(node, depth)
            case "mark", "[":
                self._sequence(node, depth)
            case "text", text:
                node.value = self._string(text, token.line)
            case "number", text:
                node.value = _parse_number(text, token.line)
            case "word", text:
                node.value = _LITERALS[text]
            case _:
                raise self._unexpected(token)
        return self._composer.ended(node)

    def _mapping(self, node: DocumentNode, depth: int) -> None:
        pairs: dict[str, DocumentNode] = {}
        node.pairs = pairs
        if self._skip("}"):
            return
        while True:
            key = self._take()
            if key.kind != "text":
                raise self._unexpected(key)
            name = self._string(key.text, key.line)
            self._composer.check_new_key(pairs, name, key.line)
            self._expect(":")
            value = self._value(depth + 1)
            value.line = key.line
            pairs[name] = value
            if self._skip("}"):
                return
            self._expect(",")

    def _sequence(self, node: DocumentNode, depth: int) -> None:
        node.items = []
        if self._skip("]"):
            return
        while True:
            node.items.append(self._value(depth + 1))
            if self._skip("]"):
                return
            self._expect(",")

    def _string(self, text: str, line: int) -> str:
        try:
            value = json.loads(text) if "\\" in text else text[1:-1]
        except ValueError:
            raise DocumentRefused(
                line, "a text has an escape that JSON does not know.", ""
            ) from None
        return self._composer.checked_text(str(value), line)

    def _skip(self, mark: str) -> bool:
        if self._token.kind == "mark" and self._token.text == mark:
            self._take()
            return True
        return False

    def _expect(self, mark: str) -> None:
        token = self._take()
        if token.kind != "mark" or token.text != mark:
            raise self._unexpected(token)

    def _take(self) -> _Token:
        token = self._token
        if token.kind != "end":
            self._token = self._scan()
        return token

    def _scan(self) -> _Token:
        while self._place < len(self._text):
            found = _TOKEN.match(self._text, self._place)
            if not found:
                return _Token("unknown", self._text[self._place], self._line)
            self._place = found.end()
            if found.lastgroup != "space":
                return _Token(found.lastgroup or "", found.group(), self._line)
            self._line += found.group().count("\n")
        return _Token("end", "", self._line)

    def _unexpected(self, token: _Token) -> DocumentRefused:
        if token.kind == "end":
            return DocumentRefused(token.line, "the JSON ends too early.", "Complete it.")
        found = ascii(token.text[:1])
        return DocumentRefused(token.line, f"{found} is not valid JSON here.", "Fix the JSON.")


def _parse_number(text: str, line: int) -> int | float:
    try:
        if text.lstrip("-").isdigit():
            return bounded_integer(text)
        number = float(text) if len(text) <= 400 else float("inf")
    except ValueError as error:
        raise DocumentRefused(line, f"{error}.", "Quote it if it is a name.") from None
    if number in (float("inf"), float("-inf")):
        raise DocumentRefused(line, "it is not a finite number.", "Give a smaller one.")
    return tidy_number(number)


MAX_BYTES = 4 * 2**20
_CORE = "tag:yaml.org,2002:"
_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "null": (type(None),),
}
E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a file, and where its parts stand."""

    value: Tree
    source: str
    lines: Mapping[str, int]
    """JSON pointer to line, counted from 1. Fields that an alias brought in have the line of
    their definition."""

    @property
    def line(self) -> int:
        """The line on which the document's first field stands."""
        return self.lines[""]

    def where(self, pointer: str = "") -> str:
        """Say where a field stands; a field that is not there stands where its parent does."""
        while pointer not in self.lines:
            pointer = pointer.rpartition("/")[0]
        return f"{self.source}:{self.lines[pointer]}"


def read_documents(
    data: bytes, *, source: str, json: bool = False, octal: bool = True
) -> list[Document]:
    """Read every document of a file; empty ones are left out.

    A number such as `0755` is octal, as it is for Kubernetes; without `octal` it is refused, for
    a declaration has no field that is written so.

    Raises ValidationError with the file, the line, the reason and the fix.
    """
    composer = Composer()
    try:
        text = _decode_text(data)
        nodes = (
            JsonReader(text, composer).documents() if json else _parse_yaml(text, composer, octal)
        )
    except DocumentRefused as refused:
        problem = Problem(
            field=f"{source}:{refused.line}", reason=refused.reason, fix=refused.fix or "Fix it."
        )
        raise ValidationError(f"{source} cannot be read.", problems=[problem]) from None
    return [
        Document(value=tree_of(node), source=source, lines=lines_of(node))
        for node in nodes
        if node.pairs is not None or node.items is not None or node.value is not None
    ]


def write_document(value: Tree) -> str:
    """Write YAML that this reader, and Kubernetes, read back as the same value."""
    import yaml

    return yaml.dump(
        value,
        Dumper=_dumper(),
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=100,
    )


def _decode_text(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise DocumentRefused(1, f"it is over {MAX_BYTES // 2**20} MiB.", "Split the file.")
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise DocumentRefused(
            1, "it starts with a byte order mark.", "Save it as UTF-8 without one."
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentRefused(line, "it is not UTF-8.", "Save the file as UTF-8.") from None
    found = UNPRINTABLE.search(text)
    if found:
        Composer().checked_text(found.group(), text.count("\n", 0, found.start()) + 1)
    return text


def _parse_yaml(text: str, composer: Composer, octal: bool) -> list[DocumentNode]:
    import yaml

    loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # Any: either parser
    try:
        return _Reader(yaml.parse(text, Loader=loader), composer, octal).documents()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or "it is not YAML"
        line = mark.line + 1 if mark else 1
        raise DocumentRefused(line, f"{ascii(reason)[1:-1][:200]}.", "Fix the YAML.") from None


class _Reader:
    """Builds nodes from parser events, so that limits hold before anything is built."""

    def __init__(self, events: Iterator[yaml.Event], composer: Composer, octal: bool) -> None:
        self._events = events
        self._octal = octal
        self._composer = composer
        self._anchors: dict[str, DocumentNode | None] = {}

    def documents(self) -> list[DocumentNode]:
        """Return the root of each document."""
        import yaml

        found = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if event.tags:
                    raise DocumentRefused(_line_of(event), "it has a %TAG directive.", "Remove it.")
                self._anchors = {}
                found.append(self._node(next(self._events), 1))
                self._composer.document_ended(_line_of(event))
        return found

    def _node(self, event: yaml.Event, depth: int) -> DocumentNode:
        import yaml

        line = _line_of(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, depth)
        assert isinstance(event, yaml.NodeEvent)  # noqa: S101  # the parser's grammar
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        node = self._composer.started(line, depth)
        if isinstance(event, yaml.ScalarEvent):
            node.value = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            _check_tag(event.tag, "seq", line)
            node.items = []
            while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
                node.items.append(self._node(inner, depth + 1))
        else:
            assert isinstance(event, yaml.MappingStartEvent)  # noqa: S101  # the parser's grammar
            _check_tag(event.tag, "map", line)
            node.pairs = self._mapping(depth)
        self._composer.ended(node)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _mapping(self, depth: int) -> dict[str, DocumentNode]:
        import yaml

        pairs: dict[str, DocumentNode] = {}
        merged: dict[str, DocumentNode] | None = None
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = _line_of(event)
            if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
                if merged is not None:
                    raise DocumentRefused(
                        line, "key '<<' is given twice.", "Give it a list instead."
                    )
                merged = _merge_mappings(self._node(next(self._events), depth + 1), line)
                clash = next((key for key in merged if key in pairs), None)
                if clash is not None:
                    raise DocumentRefused(
                        line,
                        f"it brings key {clash[:60]!a} in after it was set on line "
                        f"{pairs[clash].line}, and parsers disagree on which one counts.",
                        "Put << first.",
                    )
                continue
            key = self._key(event)
            self._composer.check_new_key(pairs, key, line)
            value = self._node(next(self._events), depth + 1)
            pairs[key] = _node_at_line(value, line)
        return {**(merged or {}), **pairs}

    def _key(self, event: yaml.Event) -> str:
        import yaml

        line = _line_of(event)
        if isinstance(event, yaml.AliasEvent):
            key = self._alias(event, 1).value
        elif isinstance(event, yaml.ScalarEvent):
            key = self._scalar(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = DocumentNode(line=line, value=key)
        else:
            raise DocumentRefused(line, "a key is a list or a mapping.", "Use text as the key.")
        if isinstance(key, bool):
            return "true" if key else "false"
        if isinstance(key, str | int):
            return str(key)
        raise DocumentRefused(line, "a key is neither text nor a whole number.", "Quote the key.")

    def _alias(self, event: yaml.AliasEvent, depth: int) -> DocumentNode:
        line = _line_of(event)
        name = ascii(str(event.anchor)[:60])
        if event.anchor not in self._anchors:
            raise DocumentRefused(line, f"there is no anchor {name} before it.", "Define it first.")
        node = self._anchors[event.anchor]
        if node is None:
            raise DocumentRefused(line, f"anchor {name} contains itself.", "Write the value out.")
        return self._composer.aliased(node, line, depth)

    def _scalar(self, event: yaml.ScalarEvent) -> Leaf:
        line = _line_of(event)
        text = self._composer.checked_text(event.value, line)
        tag = event.tag
        if (tag is None and not event.implicit[0]) or tag in ("!", f"{_CORE}str"):
            return text
        if tag is not None:
            _check_tag(tag, "", line)
        try:
            value = plain_scalar(text)
            zero = None if self._octal else read_leading_zero(text)
        except ValueError as error:
            raise DocumentRefused(line, f"{error}.", "Quote it if it is text.") from None
        if zero is not None:
            decimal = int(text.replace("_", ""))
            raise DocumentRefused(
                line,
                f"some parsers read {text} as {zero}, others as {decimal}."
                if zero != decimal
                else f"{text} begins with a zero.",
                "Write the number without leading zeros, or quote it if it is text.",
            )
        if tag is not None:
            kind = tag.removeprefix(_CORE)
            fits = isinstance(value, _KINDS[kind]) and isinstance(value, bool) == (kind == "bool")
            if not fits:
                raise DocumentRefused(
                    line, f"it is tagged !!{kind} and is not one.", "Remove the tag."
                )
        return value


def _check_tag(tag: str | None, kind: str, line: int) -> None:
    known = {f"{_CORE}{kind}"} if kind else {f"{_CORE}{name}" for name in _KINDS}
    if tag is not None and tag != "!" and tag not in known:
        shown = ascii(tag.replace(_CORE, "!!")[:60])
        raise DocumentRefused(line, f"tag {shown} is not allowed here.", "Remove the tag.")


def _merge_mappings(node: DocumentNode, line: int) -> dict[str, DocumentNode]:
    """Join what `<<` brings in; of two mappings in a list the earlier counts."""
    parts = node.items if node.items is not None else [node]
    pairs: dict[str, DocumentNode] = {}
    for part in parts:
        if part.pairs is None:
            raise DocumentRefused(line, "'<<' takes mappings only.", "Refer to a mapping.")
        pairs = {**part.pairs, **pairs}
    return pairs


def _node_at_line(node: DocumentNode, line: int) -> DocumentNode:
    """Let a field stand where its key does, without moving an anchor's own node."""
    return DocumentNode(
        line=line,
        value=node.value,
        pairs=node.pairs,
        items=node.items,
        size=node.size,
        height=node.height,
    )


def _line_of(event: yaml.Event) -> int:
    mark = event.start_mark
    return mark.line + 1 if mark else 1


@cache
def _dumper() -> type[yaml.SafeDumper]:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        block = "\n" in value and not UNPRINTABLE.search(value)  # the emitter quotes what it must
        style = "|" if block else None if reads_as_text(value) else '"'
        return dumper.represent_scalar(f"{_CORE}str", value, style=style)

    Dumper.add_representer(str, text)
    return Dumper
