"""Changes values in somebody's YAML file and leaves every other byte as it is.

The file is somebody's work: comments, order, quotes and line ends stay. Positions come from the
reader's own parser, text is cut and inserted there, and the whole file is then read again: unless
it says exactly what it was meant to say, the edit is refused. Codify is the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from holdfast.core.align import align
from holdfast.core.diff import same_value
from holdfast.core.errors import ValidationError
from holdfast.core.tree import Tree, digest
from holdfast.wire.yaml import read_documents
from holdfast.wire.yaml_spans import DocumentSpan, NodeKind, NodeSpan, document_spans
from holdfast.wire.yaml_splice import (
    CannotSplice,
    Layout,
    ValueSlot,
    insert_item,
    insert_key,
    item_slot,
    key_slot,
    layout_of,
    remove_entry,
    replace_value,
)

YamlPath: TypeAlias = tuple[str | int, ...]
_BOM = b"\xef\xbb\xbf"
_MAX_STEPS = 1000
_MAX_BYTES_READ = 16 << 20
"""That are read for one edit: the file is read anew for each of its steps."""


class RemovedType(Enum):
    """The type of `REMOVED`."""

    REMOVED = "removed"


REMOVED: Final = RemovedType.REMOVED
"""In the place of a value: the key or item is to go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One value of a document as it should be.

    Mappings on the way that are not there are made. An index one past the end appends.
    """

    path: YamlPath
    value: Tree | RemovedType
    insert: bool = False
    """Put it before the item that has the index now, not in its place."""


def apply_edits(
    text: bytes, edits: Sequence[Edit], *, document: int, source: str = "file"
) -> bytes:
    """Return the file with the edits made to one of its documents, empty ones not counted.

    What an anchor shares is written out where it would otherwise change for others. Raises
    ValidationError when the file cannot be read, a path leads nowhere, or the result would not
    say exactly what was asked for.
    """
    bom, body = (_BOM, text[len(_BOM) :]) if text.startswith(_BOM) else (b"", text)
    wanted = _read_trees(body, source)
    if document >= len(wanted):
        raise _edit_refused(source, f"it has no document {document}")
    for each in edits:
        wanted[document] = apply_edit(wanted[document], each, source=source)
    if b"\r" in body.replace(b"\r\n", b""):
        raise _edit_refused(source, "it has carriage returns that end no line")
    try:
        return bom + _edit_until_equal(body, wanted, document, source)
    except ValidationError:
        if body.endswith(b"\n"):
            raise
        # A block of text at the very end needs the line break that the file does not have.
        eol = b"\r\n" if b"\r\n" in body else b"\n"
        return bom + _edit_until_equal(body + eol, wanted, document, source)


def remove_document(text: bytes, *, document: int, source: str = "file") -> bytes:
    """Return the file without one of its documents, empty ones not counted.

    Comments above the first one stay: they may be about the file. Raises ValidationError as
    `edit` does.
    """
    wanted = _read_trees(text.removeprefix(_BOM), source)
    if document >= len(wanted):
        raise _edit_refused(source, f"it has no document {document}")
    del wanted[document]
    bom, body = (_BOM, text[len(_BOM) :]) if text.startswith(_BOM) else (b"", text)
    whole = body.decode()
    part = document_spans(whole)[document]
    rest = whole[part.end :]
    left = whole[: part.start] + rest.removeprefix("\r").removeprefix("\n")
    result = left.encode()
    _check_result(result, wanted, source)
    return bom + result


def apply_edit(tree: Tree, each: Edit, *, source: str = "file") -> Tree:
    """Return a tree with one edit made. Shares nothing that it changes with the given one."""
    if not each.path:
        if isinstance(each.value, RemovedType):
            raise _edit_refused(source, "a whole document is not removed by an edit")
        return each.value
    first, rest = each.path[0], each.path[1:]
    inner = Edit(path=rest, value=each.value, insert=each.insert)
    if isinstance(first, int):
        return _apply_to_list(tree, first, inner, source)
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise _edit_refused(source, f"what holds {first!a} is not a mapping")
    if not rest and isinstance(each.value, RemovedType):
        if first not in tree:
            raise _edit_refused(source, f"there is no {first!a} to remove")
        return {name: value for name, value in tree.items() if name != first}
    return {**tree, first: apply_edit(tree.get(first), inner, source=source)}


def _apply_to_list(tree: Tree, index: int, inner: Edit, source: str) -> Tree:
    items = [] if tree is None else tree
    if not isinstance(items, list) or not 0 <= index <= len(items):
        raise _edit_refused(source, f"there is no item {index}")
    if not inner.path and isinstance(inner.value, RemovedType):
        if index == len(items):
            raise _edit_refused(source, f"there is no item {index}")
        return [*items[:index], *items[index + 1 :]]
    grows = index == len(items) or (inner.insert and not inner.path)
    value = apply_edit(None if grows else items[index], inner, source=source)
    return [*items[:index], value, *items[index if grows else index + 1 :]]


def _edit_until_equal(body: bytes, wanted: list[Tree], document: int, source: str) -> bytes:
    """Make one cut or insertion after the other until the document is as wanted."""
    text, found = body.decode(), _read_trees(body, source)
    steps = min(_MAX_STEPS, max(2, _MAX_BYTES_READ // max(len(body), 1)))
    for _ in range(steps):
        tree = found[document]
        if same_value(tree, wanted[document]):
            break
        part = document_spans(text)[document]
        step = _EditStep(text, layout_of(text, part.root))
        nearer = step.toward(part, tree, wanted[document], source)
        if nearer == text:
            raise _edit_refused(source, "it is laid out in a way that cannot be edited")
        try:
            text, found = nearer, _read_trees(nearer.encode(), source)
        except ValidationError as error:
            why = "the edit would leave something that cannot be read"
            raise _edit_refused(source, f"{why}: {error.problems[0].reason.rstrip('.')}") from None
        if len(found) != len(wanted):
            raise _edit_refused(source, "the edit would change more than it should")
    else:
        if not same_value(found[document], wanted[document]):
            raise _edit_refused(
                source, f"that takes more than {steps} changes, too many for its size"
            )
    result = text.encode()
    _check_result(result, wanted, source)
    return result


class _EditStep:
    """Finds the first difference between what a text says and what it should say, and mends it."""

    def __init__(self, text: str, manner: Layout) -> None:
        self._text = text
        self._manner = manner

    def toward(self, part: DocumentSpan, old: Tree, new: Tree, source: str) -> str:
        slot = ValueSlot(after=part.root.start, indent=-1, flow=part.root.flow)
        try:
            return self._value(part.root, slot, old, new)
        except CannotSplice as error:
            raise _edit_refused(source, str(error)) from None

    def _value(self, piece: NodeSpan, slot: ValueSlot, old: Tree, new: Tree) -> str:
        flow = slot.flow or piece.flow
        if piece.shape is NodeKind.MAPPING and isinstance(old, dict) and isinstance(new, dict):
            stays = any(name in new for name in old)
            if new and piece.spans and (stays or not flow):
                return self._mapping(piece, old, new, flow=flow)
        if piece.shape is NodeKind.LIST and isinstance(old, list) and isinstance(new, list):  # noqa: SIM102  # alike
            if new and piece.items:
                return self._list(piece, old, new, flow=flow)
        return replace_value(self._text, piece, slot, old, new, self._manner)

    def _mapping(
        self, piece: NodeSpan, old: dict[str, Tree], new: dict[str, Tree], *, flow: bool
    ) -> str:
        for key, name, value in piece.pairs:
            if name in new and name in old and not same_value(old[name], new[name]):
                inner = key_slot(self._text, piece, key, flow=flow)
                return self._value(value, inner, old[name], new[name])
        for name, wanted in new.items():
            # What `<<` brings in is overridden here, where nobody else sees it.
            if name not in old or (not same_value(old[name], wanted) and piece.pair(name) is None):
                return insert_key(self._text, piece, name, wanted, self._manner)
        gone = next(name for name in old if name not in new)
        found = piece.pair(gone)
        if found is None:
            raise CannotSplice("a key is brought in by an alias, so it cannot be removed here")
        index = next(i for i, span in enumerate(piece.spans) if span[0] == found[0].start)
        return remove_entry(self._text, piece, index, found[0].start)

    def _list(self, piece: NodeSpan, old: list[Tree], new: list[Tree], *, flow: bool) -> str:
        for tag, first, last, to, to_last in _align_items(old, new):
            if tag == "insert":
                return insert_item(self._text, piece, first, new[to], self._manner)
            if tag == "delete" or (tag == "replace" and last - first > to_last - to):
                start = piece.items[first].start if piece.flow else piece.dashes[first]
                return remove_entry(self._text, piece, first, start)
            for index, wanted in zip(range(first, last), range(to, to_last), strict=False):
                if not same_value(old[index], new[wanted]):
                    inner = item_slot(self._text, piece, index, flow=flow)
                    return self._value(piece.items[index], inner, old[index], new[wanted])
        raise CannotSplice("a list differs in a way that cannot be edited")


def _align_items(old: list[Tree], new: list[Tree]) -> Sequence[tuple[str, int, int, int, int]]:
    """Say which items stay, come and go: by place where that changes fewer of them."""
    before, after = [_item_identity(item) for item in old], [_item_identity(item) for item in new]
    found = align(before, after)
    moved = sum(
        last - first + to_last - to
        for tag, first, last, to, to_last in found
        if tag in ("insert", "delete")
    )
    if len(old) == len(new):
        in_place = sum(one != other for one, other in zip(before, after, strict=True))
        if moved and in_place <= moved:
            return [("replace", 0, len(old), 0, len(new))]
    return found


def _item_identity(item: Tree) -> str:
    """What makes an item of a list the same item with other values."""
    if isinstance(item, dict) and isinstance(item.get("name"), str):
        return f"name {item['name']}"
    return digest(item)


def _check_result(result: bytes, wanted: list[Tree], source: str) -> None:
    found = _read_trees(result, source)
    if len(found) != len(wanted) or not all(map(same_value, found, wanted)):
        raise _edit_refused(source, "the edit would change more than it should")


def _read_trees(text: bytes, source: str) -> list[Tree]:
    return [document.value for document in read_documents(text, source=source)]


def _edit_refused(source: str, why: str) -> ValidationError:
    return ValidationError(
        f"{source} cannot be edited: {why}.", hint="Make the change in the file by hand."
    )
