"""The one reader of YAML and JSON, and the one writer of YAML.

Whatever is declared in a file passes here once; what comes out is compared, hashed, shown and
applied. Input may be hostile: everything is bounded before it is walked, and whatever two
parsers could read differently is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.errors import Problem, ValidationError
from holdfast.core.tree import Leaf, Tree
from holdfast.wire.json_text import JsonReader
from holdfast.wire.nodes import UNPRINTABLE, Composer, Node, Refused, lines_of, tree_of
from holdfast.wire.scalars import leading_zero, plain_scalar, reads_as_text

if TYPE_CHECKING:
    import yaml

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
        text = _text(data)
        nodes = JsonReader(text, composer).documents() if json else _yaml(text, composer, octal)
    except Refused as refused:
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
        value, Dumper=_dumper(), sort_keys=False, allow_unicode=True, default_flow_style=False,
        width=100,
    )  # fmt: skip


def _text(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise Refused(1, f"it is over {MAX_BYTES // 2**20} MiB.", "Split the file.")
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise Refused(1, "it starts with a byte order mark.", "Save it as UTF-8 without one.")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Refused(line, "it is not UTF-8.", "Save the file as UTF-8.") from None
    found = UNPRINTABLE.search(text)
    if found:
        Composer().checked_text(found.group(), text.count("\n", 0, found.start()) + 1)
    return text


def _yaml(text: str, composer: Composer, octal: bool) -> list[Node]:
    import yaml

    loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # Any: either parser
    try:
        return _Reader(yaml.parse(text, Loader=loader), composer, octal).documents()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or "it is not YAML"
        line = mark.line + 1 if mark else 1
        raise Refused(line, f"{ascii(reason)[1:-1][:200]}.", "Fix the YAML.") from None


class _Reader:
    """Builds nodes from parser events, so that limits hold before anything is built."""

    def __init__(self, events: Iterator[yaml.Event], composer: Composer, octal: bool) -> None:
        self._events = events
        self._octal = octal
        self._composer = composer
        self._anchors: dict[str, Node | None] = {}

    def documents(self) -> list[Node]:
        """Return the root of each document."""
        import yaml

        found = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if event.tags:
                    raise Refused(_line(event), "it has a %TAG directive.", "Remove it.")
                self._anchors = {}
                found.append(self._node(next(self._events), 1))
                self._composer.document_ended(_line(event))
        return found

    def _node(self, event: yaml.Event, depth: int) -> Node:
        import yaml

        line = _line(event)
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

    def _mapping(self, depth: int) -> dict[str, Node]:
        import yaml

        pairs: dict[str, Node] = {}
        merged: dict[str, Node] | None = None
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = _line(event)
            if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
                if merged is not None:
                    raise Refused(line, "key '<<' is given twice.", "Give it a list instead.")
                merged = _merged(self._node(next(self._events), depth + 1), line)
                clash = next((key for key in merged if key in pairs), None)
                if clash is not None:
                    raise Refused(
                        line,
                        f"it brings key {clash[:60]!a} in after it was set on line "
                        f"{pairs[clash].line}, and parsers disagree on which one counts.",
                        "Put << first.",
                    )
                continue
            key = self._key(event)
            self._composer.check_new_key(pairs, key, line)
            value = self._node(next(self._events), depth + 1)
            pairs[key] = _at(value, line)
        return {**(merged or {}), **pairs}

    def _key(self, event: yaml.Event) -> str:
        import yaml

        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            key = self._alias(event, 1).value
        elif isinstance(event, yaml.ScalarEvent):
            key = self._scalar(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = Node(line=line, value=key)
        else:
            raise Refused(line, "a key is a list or a mapping.", "Use text as the key.")
        if isinstance(key, bool):
            return "true" if key else "false"
        if isinstance(key, str | int):
            return str(key)
        raise Refused(line, "a key is neither text nor a whole number.", "Quote the key.")

    def _alias(self, event: yaml.AliasEvent, depth: int) -> Node:
        line = _line(event)
        name = ascii(str(event.anchor)[:60])
        if event.anchor not in self._anchors:
            raise Refused(line, f"there is no anchor {name} before it.", "Define it first.")
        node = self._anchors[event.anchor]
        if node is None:
            raise Refused(line, f"anchor {name} contains itself.", "Write the value out.")
        return self._composer.aliased(node, line, depth)

    def _scalar(self, event: yaml.ScalarEvent) -> Leaf:
        line = _line(event)
        text = self._composer.checked_text(event.value, line)
        tag = event.tag
        if (tag is None and not event.implicit[0]) or tag in ("!", f"{_CORE}str"):
            return text
        if tag is not None:
            _check_tag(tag, "", line)
        try:
            value = plain_scalar(text)
            zero = None if self._octal else leading_zero(text)
        except ValueError as error:
            raise Refused(line, f"{error}.", "Quote it if it is text.") from None
        if zero is not None:
            decimal = int(text.replace("_", ""))
            raise Refused(
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
                raise Refused(line, f"it is tagged !!{kind} and is not one.", "Remove the tag.")
        return value


def _check_tag(tag: str | None, kind: str, line: int) -> None:
    known = {f"{_CORE}{kind}"} if kind else {f"{_CORE}{name}" for name in _KINDS}
    if tag is not None and tag != "!" and tag not in known:
        shown = ascii(tag.replace(_CORE, "!!")[:60])
        raise Refused(line, f"tag {shown} is not allowed here.", "Remove the tag.")


def _merged(node: Node, line: int) -> dict[str, Node]:
    """Join what `<<` brings in; of two mappings in a list the earlier counts."""
    parts = node.items if node.items is not None else [node]
    pairs: dict[str, Node] = {}
    for part in parts:
        if part.pairs is None:
            raise Refused(line, "'<<' takes mappings only.", "Refer to a mapping.")
        pairs = {**part.pairs, **pairs}
    return pairs


def _at(node: Node, line: int) -> Node:
    """Let a field stand where its key does, without moving an anchor's own node."""
    return Node(
        line=line, value=node.value, pairs=node.pairs, items=node.items, size=node.size,
        height=node.height,
    )  # fmt: skip


def _line(event: yaml.Event) -> int:
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
