"""Where an Application's objects are declared, and what was found there.

Made by the adapters that fetch and render; everything after them reads these values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast.core.object_ref import ObjectRef
from holdfast.core.tree import Fields, Path, Tree, json_pointer


class Renderer(StrEnum):
    """How files become objects."""

    AUTO = "auto"
    """Kustomize where the path has a kustomization file, plain YAML elsewhere."""
    YAML = "yaml"
    KUSTOMIZE = "kustomize"


class Ancestry(StrEnum):
    """How a fetched commit stands to the one that was applied last."""

    FIRST = "first"
    SAME = "same"
    AHEAD = "ahead"
    """A descendant: the branch moved on as branches do."""
    REWOUND = "rewound"
    """An ancestor: the branch was set back."""
    DIVERGED = "diverged"
    """The branch was rewritten; both have a common ancestor."""
    UNRELATED = "unrelated"
    """Another repository has its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of a repository."""

    sha: str
    at: datetime
    author: str
    """A name without its address, as the commit claims it."""
    subject: str
    ancestry: Ancestry


class StaleReason(StrEnum):
    """Why the newest commit of a source is not followed, or not known."""

    UNANSWERED = "unanswered"
    """The repository has not answered since the controller started."""
    UNAVAILABLE = "unavailable"
    """It could not be read, which may pass by itself."""
    INVALID = "invalid"
    """What it says, or what is said about it, is wrong: somebody has to change that."""
    UNACCEPTED = "unaccepted"
    """Its history is strange, so a person has to agree to the newest commit first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleSource:
    """A source whose newest commit is not followed, or not known."""

    reason: StaleReason
    detail: str = ""
    """What the error or the guard says; empty where the reason alone says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a declared object stands in its repository."""

    file: str
    """From the root of the repository. Empty when a renderer made it of several."""
    document: int = 0
    """Which document of the file, from 0."""
    lines: Mapping[str, int]
    """JSON pointer of a field to its line in the file."""
    elsewhere: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """JSON pointer of a field that another file sets, as an overlay does, to that file and line."""

    def where(self, pointer: str) -> tuple[str, int]:
        """Return the file and line that set a field, or what is around it; line 0 if unknown."""
        while pointer and pointer not in self.elsewhere and pointer not in self.lines:
            pointer = pointer.rpartition("/")[0]
        return self.elsewhere.get(pointer) or (self.file, self.lines.get(pointer, 0))

    def line(self, pointer: str) -> int | None:
        """Return the line of a field, or of what is around it."""
        while pointer and pointer not in self.lines:
            pointer = pointer.rpartition("/")[0]
        return self.lines.get(pointer)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredObject:
    """One object as a repository declares it, ready to be applied."""

    ref: ObjectRef
    item: Fields = field(repr=False)
    """Holds the data of Secrets in clear once decrypted: never shown, logged or stored."""
    origin: Origin
    encrypted: bool = False
    """True when the source holds it encrypted, so its values must not be edited as text."""

    def where(self, path: Path = ()) -> str:
        """Say which file and line set a field, or what is around it; empty if unknown."""
        file, line = self.origin.where(json_pointer(_counted_path(self.item, path)))
        return f"{file}:{line}" if file and line else file


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedSource:
    """Everything that one path declares at one commit."""

    commit: str
    objects: tuple[DeclaredObject, ...]
    """In the order of the files. Each reference once."""
    digest: str
    """Equal for equal objects, wherever they were declared. Covers Secrets by their encrypted
    form or keyed mark, so that it can be shown."""


def _counted_path(item: Tree, path: Path) -> Path:
    """Write a path, which names list items by key, as one that counts them, as files do.

    It ends before an item that is not declared: what is around it is.
    """
    counted: list[str] = []
    for segment in path:
        if isinstance(item, list):
            found = _item_index(item, segment)
            if found is None:
                break
            counted.append(str(found))
            item = item[found]
        else:
            counted.append(segment)
            item = item.get(segment) if isinstance(item, dict) else None
    return tuple(counted)


def _item_index(items: list[Tree], segment: str) -> int | None:
    """Find the item that `[name=main]`, `[containerPort=80,protocol=TCP]` or `[2]` means.

    A part of the key that an item does not say is a default of the server's.
    """
    inner = segment.removeprefix("[").removesuffix("]")
    if inner.isdigit():
        return int(inner) if int(inner) < len(items) else None
    pairs = [part.partition("=")[::2] for part in inner.split(",")]
    if any("=" not in part for part in inner.split(",")):
        pairs = [inner.partition("=")[::2]]  # a value with a comma in it
    fitting = [
        (sum(name in item for name, _ in pairs), -index)
        for index, item in enumerate(items)
        if isinstance(item, dict)
        and pairs[0][0] in item
        and all(str(item[name]) == value for name, value in pairs if name in item)
    ]
    return -max(fitting)[1] if fitting else None
