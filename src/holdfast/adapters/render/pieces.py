"""Documents on their way to become objects: read, taken out of lists, told from one another.

Both renderers give pieces; `objects.py` checks them and makes declared objects of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.core.errors import Problem
from holdfast.core.tree import Fields
from holdfast.wire.yaml import Document, read_documents


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One object as it was read, and where it stands."""

    value: Fields
    file: str
    """Empty when nobody can say."""
    document: int = 0
    lines: Mapping[str, int] = field(default_factory=dict)
    """JSON pointer into the value to its line."""
    elsewhere: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    encrypted: bool = False

    def where(self, pointer: str = "") -> str:
        """Say where a field stands, for people."""
        while pointer and pointer not in self.elsewhere and pointer not in self.lines:
            pointer = pointer.rpartition("/")[0]
        file, line = self.elsewhere.get(pointer) or (self.file, self.lines.get(pointer, 0))
        return f"{file}:{line}" if line else file or "the rendered objects"


def is_json(file: str) -> bool:
    """True for a file that is read as JSON."""
    return file.endswith(".json")


def pieces_in(data: bytes, file: str) -> list[Piece]:
    """Read every object of a file. Raises ValidationError with file and line."""
    documents = read_documents(data, source=file, json=is_json(file))
    return [piece for at, document in enumerate(documents) for piece in _pieces(document, at)]


def is_list(value: Fields) -> bool:
    """True for a `List`, or the list of one kind, that only holds other objects."""
    return str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list)


def beneath(mapping: Mapping[str, int], pointer: str) -> dict[str, int]:
    """Return the part of a map of pointers that lies at or below one, counted from there."""
    return {
        key.removeprefix(pointer): line
        for key, line in mapping.items()
        if key == pointer or key.startswith(f"{pointer}/")
    }


def _pieces(document: Document, at: int) -> Iterator[Piece]:
    value = document.value
    if not isinstance(value, dict):
        # Wrapped, so that the one place that refuses says where it stands.
        yield Piece(value={}, file=document.source, document=at, lines=document.lines)
        return
    whole = Piece(value=value, file=document.source, document=at, lines=document.lines)
    yield from expanded(whole)


def expanded(piece: Piece) -> Iterator[Piece]:
    """Take a list apart; anything else stays as it is."""
    if not is_list(piece.value):
        yield piece
        return
    items = piece.value["items"]
    assert isinstance(items, list)  # noqa: S101  # is_list
    for place, item in enumerate(items):
        inner = Piece(
            value=item if isinstance(item, dict) else {},
            file=piece.file,
            document=piece.document,
            lines=beneath(piece.lines, f"/items/{place}"),
            encrypted=piece.encrypted,
        )
        yield from expanded(inner)


@dataclass(slots=True)
class Problems:
    """Everything wrong with the objects of a path."""

    found: list[Problem] = field(default_factory=list)

    def add(self, where: str, reason: str, fix: str) -> None:
        """Note one problem."""
        self.found.append(Problem(field=where, reason=reason, fix=fix))

    def told(self, limit: int) -> Sequence[Problem]:
        """Return what is told of them."""
        return self.found[:limit]
