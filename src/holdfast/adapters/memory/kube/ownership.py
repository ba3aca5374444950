"""Who owns which field after a write, as the API server keeps it in `managedFields`.

Two kinds of writers: an apply owns what it sent and removes what it sent before and no longer
does; an update owns what it changed. Called by the store for every write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from holdfast.adapters.memory.kube.fieldset import (
    FieldSet,
    compare,
    fields_of,
    from_v1,
    merge,
    ownable,
    remove,
    show,
    to_v1,
    with_holders,
)
from holdfast.adapters.memory.kube.kinds import Kind, Object, Schema
from holdfast.reconcile.kube import FieldOwner

APPLY, UPDATE = "Apply", "Update"
_FIRST = "before-first-apply"
_OLDEST = "ancient-changes"
_MOST_UPDATES = 10
_REPLICAS = ("f:spec", "f:replicas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Who writes, and how."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two writes those of one owner: an applier may change its version."""
        version = "" if self.operation == APPLY else self.api_version
        return (self.manager, self.operation, self.subresource, version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a writer owns. `time` is that of its last change, where there was one."""

    writer: Writer
    fields: FieldSet
    time: str | None = None


Entries: TypeAlias = dict[tuple[str, ...], Entry]


class Owned(Exception):
    """An apply without force would change what others own."""

    def __init__(self, owners: tuple[FieldOwner, ...]) -> None:
        super().__init__("owned by others")
        self.owners = owners


def read(managed: object) -> Entries:
    """Read `metadata.managedFields`. An empty entry is none."""
    found: Entries = {}
    for raw in managed if isinstance(managed, list) else ():
        if not raw.get("manager"):
            continue
        writer = Writer(
            manager=raw["manager"],
            operation=raw["operation"],
            api_version=raw["apiVersion"],
            subresource=raw.get("subresource", ""),
        )
        fields = from_v1(raw.get("fieldsV1") or {})
        found[writer.key] = Entry(writer=writer, fields=fields, time=raw.get("time"))
    return found


def write(entries: Entries) -> list[Object]:
    """Write entries in the server's order: appliers first, then by time and name."""
    written = sorted(
        entries.values(),
        key=lambda entry: (entry.writer.operation, entry.time or "", *entry.writer.key),
    )
    return [_written(entry) for entry in written]


def apply(
    live: Object,
    config: Object,
    entries: Entries,
    writer: Writer,
    kind: Kind,
    *,
    force: bool,
    now: str,
) -> tuple[Object, Entries]:
    """Return the object that an apply makes of the live one, before defaults, and its owners.

    Raises Owned. The time of the entry moves only when a value does.
    """
    schema = kind.schema
    if not entries and live:
        first = Writer(manager=_FIRST, operation=UPDATE, api_version=writer.api_version)
        entries = create(live, first, kind, now=now)
    last = entries.get(writer.key)
    fields = fields_of(config, schema)
    merged = merge(live, config, schema)
    if last is not None:
        others = [entry.fields for key, entry in entries.items() if key != writer.key]
        merged = _pruned(merged, last.fields, fields.union(*others), schema)
    entries = {**entries, writer.key: Entry(writer=writer, fields=ownable(fields))}
    found = compare(live, merged, schema)
    taken = found.added | found.modified
    conflicts = {
        key: entry.fields & taken
        for key, entry in entries.items()
        if key != writer.key and entry.fields & taken
    }
    if conflicts and not force:
        raise Owned(_owners(entries, conflicts))
    entries = _without(entries, taken | found.removed, but=writer.key)
    time = now if merged != live else (last.time if last else None)
    if writer.key in entries:
        entries[writer.key] = replace(entries[writer.key], time=time)
    return merged, entries


def create(new: Object, writer: Writer, kind: Kind, *, now: str) -> Entries:
    """Return who owns what of an object that one plain write made: all but its status."""
    hollow = {**kind.hollow, "status": new.get("status")}
    return update(hollow, {"status": None, **new}, {}, writer, kind.schema, now=now)


def update(
    live: Object, new: Object, entries: Entries, writer: Writer, schema: Schema, *, now: str
) -> Entries:
    """Return who owns what after a plain write: the writer owns what it changed."""
    found = compare(live, new, schema)
    taken = found.added | found.modified
    entries = _without(entries, taken | found.removed)
    if taken:
        before = entries.get(writer.key)
        fields = frozenset(taken | before.fields if before else taken)
        entries[writer.key] = Entry(writer=writer, fields=fields, time=now)
    return _capped(entries)


def scale(entries: Entries, writer: Writer) -> Entries:
    """Return who owns what after a write of another number to `scale`.

    Where nobody owns the number, the write is not tracked; where somebody does, the new owner
    has no time.
    """
    if not any(_REPLICAS in entry.fields for entry in entries.values()):
        return entries
    entries = _without(entries, {_REPLICAS})
    entries[writer.key] = Entry(writer=writer, fields=frozenset({_REPLICAS}))
    return _capped(entries)


def _pruned(merged: Object, last: FieldSet, owned: FieldSet, schema: Schema) -> Object:
    """Take out what the applier owned before, unless it or somebody else still owns it."""
    last = with_holders(last)
    everything = with_holders(fields_of(merged, schema))
    rest = remove(merged, last, schema) or {}
    kept = with_holders(fields_of(rest, schema)) | with_holders(owned)
    rest = remove(merged, everything - kept, schema) or {}
    dropped = everything - with_holders(fields_of(rest, schema))
    found: Object = remove(merged, dropped & last, schema)
    return found


def _without(entries: Entries, fields: set[tuple[str, ...]], but: tuple[str, ...] = ()) -> Entries:
    left = {
        key: entry if key == but else replace(entry, fields=entry.fields - fields)
        for key, entry in entries.items()
    }
    return {key: entry for key, entry in left.items() if entry.fields}


def _capped(entries: Entries) -> Entries:
    """Join the oldest updates into one entry; those without a time are the oldest of all."""
    updates = [entry for entry in entries.values() if entry.writer.operation == UPDATE]
    many = len(updates) - _MOST_UPDATES
    if many <= 0:
        return entries
    old = sorted(updates, key=lambda entry: (entry.time or "", *entry.writer.key))[: many + 1]
    joined = Entry(
        writer=Writer(manager=_OLDEST, operation=UPDATE, api_version=updates[0].writer.api_version),
        fields=frozenset[tuple[str, ...]]().union(*(entry.fields for entry in old)),
        time=old[-1].time,
    )
    gone = {entry.writer.key for entry in old}
    left = {key: entry for key, entry in entries.items() if key not in gone}
    return {**left, joined.writer.key: joined}


def _owners(entries: Entries, conflicts: dict[tuple[str, ...], FieldSet]) -> tuple[FieldOwner, ...]:
    found = [
        FieldOwner(
            path=show(path),
            manager=writer.manager,
            api_version=writer.api_version if writer.operation == UPDATE else "",
            subresource=writer.subresource,
        )
        for writer, fields in ((entries[key].writer, fields) for key, fields in conflicts.items())
        for path in fields
    ]
    return tuple(sorted(found, key=lambda owner: (owner.manager, owner.path)))


def _written(entry: Entry) -> Object:
    writer = entry.writer
    written: Object = {
        "manager": writer.manager,
        "operation": writer.operation,
        "apiVersion": writer.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": to_v1(entry.fields),
    }
    if entry.time is not None:
        written["time"] = entry.time
    if writer.subresource:
        written["subresource"] = writer.subresource
    return written


def untimed(managed: Sequence[Object]) -> list[Object]:
    """Leave the times out, which alone are no change."""
    return sorted(
        ({key: value for key, value in entry.items() if key != "time"} for entry in managed),
        key=lambda entry: (entry["manager"], entry["operation"], entry.get("subresource", "")),
    )
