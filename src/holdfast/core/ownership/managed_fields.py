"""Who owns which field of a Kubernetes object, read from its `managedFields`.

The API server keeps one entry for each writer, with the fields it wrote last. An entry is a
claim of a tool, not proof of a person, and a removed field has no owner at all. Read to
compare an object, and to move fields from one owner to another.
"""

from __future__ import annotations

import json
import marshal
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from sys import intern

from holdfast.core.live import Writer
from holdfast.core.redact import redact
from holdfast.core.tree import Fields, Path, Tree

MERGED_MANAGER = "ancient-changes"
"""The name under which the API server merges the oldest entries: anyone's."""
UNTRACKED_MANAGER = "before-first-apply"
"""The name it gives to fields whose writers it did not record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedFieldsEntry:
    """What one manager owns by one kind of write.

    `at` is whole seconds and missing for writes to `scale`; it does not move when another
    writer takes a field away, so it must not be used to order events.
    """

    manager: str
    operation: str
    """`Apply` or `Update`."""
    subresource: str | None
    api_version: str
    at: datetime | None
    paths: frozenset[Path]
    """Fields and list items, without the mappings that merely hold them."""

    @property
    def writer(self) -> Writer:
        """Say who wrote it, as it may be shown: a name is whatever the writer gave."""
        return Writer(
            manager=redact(self.manager),
            operation=self.operation.lower(),
            subresource=self.subresource,
            at=self.at,
        )

    def owns(self, path: Path) -> bool:
        """True when the entry has this field, or a whole value that contains it."""
        return covers(self.paths, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """All entries of one object."""

    entries: tuple[ManagedFieldsEntry, ...]

    @property
    def wiped(self) -> bool:
        """True when there is no entry: from then on the API server tracks no update."""
        return not self.entries

    def ours(self, managers: frozenset[str], api_version: str) -> frozenset[Path] | None:
        """Return what we own by apply; None when no entry is ours.

        An update under our name is somebody else's: we only ever apply. The server converts our
        entry to the version of our last apply, so another version cannot be compared.
        """
        found = [
            entry.paths
            for entry in self.entries
            if is_ours(entry, managers) and entry.api_version == api_version
        ]
        return frozenset[Path]().union(*found) if found else None

    def foreign(self, managers: frozenset[str], api_version: str) -> tuple[ManagedFieldsEntry, ...]:
        """Return the entries of other writers, in the version whose paths are comparable."""
        return tuple(
            entry
            for entry in self.entries
            if not is_ours(entry, managers) and entry.api_version == api_version
        )

    def owners(self, path: Path, api_version: str) -> tuple[ManagedFieldsEntry, ...]:
        """Return every entry that has the field, the last known write first."""
        found = [
            entry for entry in self.entries if entry.api_version == api_version and entry.owns(path)
        ]
        return tuple(sorted(found, key=_recency, reverse=True))


def read_ownership(managed: object) -> Ownership:
    """Read `metadata.managedFields`, leaving out what cannot be read.

    An entry that owns nothing is kept out: a wiped object has one empty entry.
    """
    raw = managed if isinstance(managed, list) else []
    entries = (_read_entry(item) for item in raw if isinstance(item, Mapping))
    return Ownership(entries=tuple(entry for entry in entries if entry.paths))


def ownership_of(live: Fields) -> Ownership:
    """Read who owns what of an object."""
    metadata = live.get("metadata")
    return read_ownership(metadata.get("managedFields") if isinstance(metadata, dict) else None)


def is_ours(entry: ManagedFieldsEntry, managers: frozenset[str]) -> bool:
    """True for what one of our managers applied."""
    return entry.operation == "Apply" and entry.manager in managers


def covers(paths: frozenset[Path], path: Path) -> bool:
    """True when a set has this field, or a whole value that contains it.

    The fields of a list item are owned one by one, the key among them; an item of which nothing
    but itself is owned is a whole value, as in a list of references.
    """
    if path in paths:
        return True
    for length in range(len(path) - 1, 0, -1):
        around = path[:length]
        if around in paths:
            if not around[-1].startswith("["):
                return True
            return not any(len(found) > length and found[:length] == around for found in paths)
    return False


def touches(paths: frozenset[Path], path: Path) -> bool:
    """True when a set has this field, something inside it, or a whole value around it."""
    depth = len(path)
    return covers(paths, path) or any(found[:depth] == path for found in paths)


def keyed_lists(ownership: Ownership) -> dict[str, str]:
    """Return the lists that the API server matches by key, and the fields of that key.

    This is the schema as far as the object shows it, and so holds for custom resources too. A
    part of a key that an applied item did not send stands there as its default: `port=443`.
    """
    found: dict[str, dict[str, str]] = {}
    for entry in ownership.entries:
        for path in entry.paths:
            for end, (name, segment) in enumerate(pairwise(path), 2):
                if not segment.startswith("[") or "=" not in segment:
                    continue
                parts = found.setdefault(name, {})
                for part in _KEY_SEPARATOR.split(segment[1:-1]):
                    field, _, value = part.partition("=")
                    parts.setdefault(field, "")
                    if end == len(path) and _is_key_default(entry, path, field):
                        parts[field] = value
    return {
        name: ",".join(f"{field}={value}" if value else field for field, value in parts.items())
        for name, parts in found.items()
    }


_KEY_SEPARATOR = re.compile(r",(?=\w+=)")
"""What parts the fields of a key; a comma may also stand in one of their values."""


def _is_key_default(entry: ManagedFieldsEntry, item: Path, field: str) -> bool:
    """True for a part of the key of an applied item that was not sent with its other fields."""
    if entry.operation != "Apply" or (*item, field) in entry.paths:
        return False
    return any(len(path) > len(item) and path[: len(item)] == item for path in entry.paths)


def fields_v1_of(raw: Mapping[str, object]) -> Mapping[str, object]:
    """Return the FieldsV1 of one entry, which a cache may keep as text to save memory."""
    fields = raw.get("fieldsV1")
    if isinstance(fields, str):
        try:
            fields = json.loads(fields)
        except ValueError:
            fields = None
    return fields if isinstance(fields, Mapping) else {}


def _read_entry(raw: Mapping[str, object]) -> ManagedFieldsEntry:
    return ManagedFieldsEntry(
        manager=intern(str(raw.get("manager") or "unknown")),
        operation=intern(str(raw.get("operation") or "Update")),
        subresource=str(raw["subresource"]) if raw.get("subresource") else None,
        api_version=intern(str(raw.get("apiVersion") or "")),
        at=_parse_time(raw.get("time")),
        paths=_entry_paths(raw),
    )


def _entry_paths(raw: Mapping[str, object]) -> frozenset[Path]:
    """Read the paths of one entry; those of many objects are alike, so each is read once."""
    fields = raw.get("fieldsV1")
    try:
        # In this version the bytes depend on nothing but the values.
        key = fields if isinstance(fields, str) else marshal.dumps(fields, 2)  # type: ignore[arg-type]  # anything else raises
    except ValueError:
        return frozenset(_paths(fields_v1_of(raw), ()))
    found = _cached_paths.get(key)
    if found is None:
        if len(_cached_paths) >= _MAX_CACHED_PATHS:
            _cached_paths.pop(next(iter(_cached_paths)), None)
        found = _cached_paths[key] = frozenset(_paths(fields_v1_of(raw), ()))
    return found


_MAX_CACHED_PATHS = 2048
_cached_paths: dict[str | bytes, frozenset[Path]] = {}


def _paths(fields: Mapping[str, object], path: Path) -> Iterator[Path]:
    for key, inner in fields.items():
        if key == ".":
            # Of a mapping this says only that it exists, which its fields say as well.
            if path and (path[-1].startswith("[") or len(fields) == 1):
                yield path
            continue
        segment = segment_of(key)
        if segment is None:
            continue
        here = (*path, segment)
        if isinstance(inner, Mapping) and inner:
            yield from _paths(inner, here)
        else:
            yield here


@lru_cache(maxsize=4096)
def segment_of(key: str) -> str | None:
    """Write one key of FieldsV1 as a path segment. Interned: objects of a kind share them."""
    kind, _, rest = key.partition(":")
    match kind:
        case "f":
            return intern(rest)
        case "i":
            return intern(f"[{rest}]")
        case "k" | "v":
            try:
                value: Tree = json.loads(rest)
            except ValueError:
                return None
            if isinstance(value, dict):
                names = ",".join(f"{name}={_text(item)}" for name, item in sorted(value.items()))
                return intern(f"[{names}]")
            return intern(f"[{_text(value)}]")
    return None


def _text(value: Tree) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _parse_time(value: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(value).replace("Z", "+00:00")) if value else None
    except ValueError:
        return None


def _recency(entry: ManagedFieldsEntry) -> tuple[bool, float]:
    return (entry.at is not None, entry.at.timestamp() if entry.at else 0.0)
