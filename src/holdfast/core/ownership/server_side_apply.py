"""Field ownership as the API server keeps it in `managedFields`, and server-side apply.

A path is a tuple of the keys that `managedFields` has: `f:spec`, `k:{"name":"app"}`, `v:"x"`. The
rules are those of the structured merge of Kubernetes, for the schemas of the kinds that we know. An
apply owns what it sent and removes what it sent before and no longer does; an update owns what it
changed. For the memory cluster, and for clients that cannot ask a server to do it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]  # Any: the schemas of the kinds decide what is inside


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipSchema:
    """How values divide, by the names of their fields. A list that is not named is one value."""

    keyed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Lists whose items are distinguished by these fields. A missing `protocol` is TCP."""
    sets: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    """Mappings that are one value; `name[]` for the items of a keyed list."""
    free: frozenset[str] = frozenset()
    """Mappings with keys of the user's own that hold mappings."""


_METADATA = {"ownerReferences": ("uid",), "conditions": ("type",)}
_WHOLE = frozenset({"ownerReferences[]"})
_SETS = frozenset({"finalizers"})
POD_SCHEMA = OwnershipSchema(
    keyed={
        **_METADATA,
        "containers": ("name",),
        "initContainers": ("name",),
        "ephemeralContainers": ("name",),
        "volumes": ("name",),
        "env": ("name",),
        "ports": ("containerPort", "protocol"),
        "volumeMounts": ("mountPath",),
        "volumeDevices": ("devicePath",),
        "imagePullSecrets": ("name",),
        "hostAliases": ("ip",),
        "resourceClaims": ("name",),
        "claims": ("name",),
        "schedulingGates": ("name",),
        "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    },
    sets=_SETS,
    whole=_WHOLE
    | {
        "selector", "nodeSelector", "requiredDuringSchedulingIgnoredDuringExecution",
        "imagePullSecrets[]", "secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef",
        "secretRef",
    },
)  # fmt: skip
SERVICE_SCHEMA = OwnershipSchema(
    keyed={**_METADATA, "ports": ("port", "protocol")}, sets=_SETS, whole=_WHOLE | {"selector"}
)
PLAIN_SCHEMA = OwnershipSchema(
    keyed=_METADATA, sets=_SETS, whole=_WHOLE | {"selector", "regarding", "related"}
)
CUSTOM_SCHEMA = OwnershipSchema(
    keyed=_METADATA, sets=_SETS, whole=_WHOLE, free=frozenset({"secrets", "affinity"})
)


def schema_for(kind: str, *, custom: bool) -> OwnershipSchema:
    """Return how objects of a kind divide. What is not known to divide is one value."""
    if custom:
        return CUSTOM_SCHEMA
    if kind in ("DaemonSet", "Deployment", "Pod", "ReplicaSet", "StatefulSet"):
        return POD_SCHEMA
    return SERVICE_SCHEMA if kind == "Service" else PLAIN_SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOwner:
    """A field that another manager owns, as the API server names both."""

    path: str
    manager: str
    api_version: str = ""
    """Empty for a manager that applied."""
    subresource: str = ""


FieldPath: TypeAlias = tuple[str, ...]
FieldSet: TypeAlias = frozenset[FieldPath]
# Any, here and below: parts of objects.
_Parts: TypeAlias = dict[str, tuple[Any, str]]
_MISSING = object()
_UNOWNED_METADATA = frozenset({
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
    "managedFields", "selfLink",
})  # fmt: skip
"""Metadata that nobody owns."""


@dataclass(slots=True)
class OwnedFieldChanges:
    """What is different in a new value. Fields that hold others are among them."""

    added: set[FieldPath] = field(default_factory=set)
    modified: set[FieldPath] = field(default_factory=set)
    removed: set[FieldPath] = field(default_factory=set)


def clone(value: Any) -> Any:
    """Copy a tree."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def fields_of(item: Object, schema: OwnershipSchema) -> FieldSet:
    """Return every field that an object has; `ownable` says which of them can be owned."""
    return frozenset(field_values(item, schema))


def field_values(item: Object, schema: OwnershipSchema) -> dict[FieldPath, Any]:
    """Return every field that an object has with its value; None for what only holds others."""
    found: dict[FieldPath, Any] = {}

    def walk(value: Any, name: str, path: FieldPath, free: bool) -> None:
        parts = _parts(value, name, schema)
        if parts is None:
            found[path] = value
            return
        free = free or name in schema.free
        for key, (inner, inner_name) in parts.items():
            here = (*path, key)
            walk(inner, inner_name, here, free)
            if isinstance(value, list) or inner in (None, {}) or free:
                found.setdefault(here)

    walk(item, "", (), False)
    return found


def ownable_fields(paths: Iterable[FieldPath]) -> FieldSet:
    """Leave out what nobody owns: the root, kind and version, and the server's bookkeeping."""
    return frozenset(
        path
        for path in paths
        if path
        and path[0] not in ("f:apiVersion", "f:kind")
        and path != ("f:metadata",)
        and not (path[0] == "f:metadata" and path[1].removeprefix("f:") in _UNOWNED_METADATA)
    )


def compare_fields(old: Object, new: Object, schema: OwnershipSchema) -> OwnedFieldChanges:
    """Say what a write changes. The order of a list with keys is no change."""
    found = OwnedFieldChanges()

    def walk(before: Any, after: Any, name: str, path: FieldPath) -> None:
        left, right = _parts(before, name, schema), _parts(after, name, schema)
        if left or right:
            left, right = left or {}, right or {}
            for key in {**left, **right}:
                was, name_was = left.get(key, (_MISSING, ""))
                now, name_now = right.get(key, (_MISSING, ""))
                walk(was, now, name_now or name_was, (*path, key))
        if before is _MISSING:
            found.added.add(path)
        elif after is _MISSING:
            found.removed.add(path)
        elif not left and not right and before != after:
            found.modified.add(path)

    walk(old, new, "", ())
    return OwnedFieldChanges(
        added=set(ownable_fields(found.added)),
        modified=set(ownable_fields(found.modified)),
        removed=set(ownable_fields(found.removed)),
    )


def merge_fields(live: Any, config: Any, schema: OwnershipSchema, name: str = "") -> Any:
    """Lay an applied object over the live one."""
    left, right = _parts(live, name, schema), _parts(config, name, schema)
    if left is None or right is None:
        return clone(config)
    if isinstance(config, dict):
        merged = clone({key: value for key, value in live.items() if key not in config})
        for key, value in config.items():
            merged[key] = (
                merge_fields(live[key], value, schema, key) if key in live else clone(value)
            )
        return merged
    return [
        merge_fields(left[key][0], right[key][0], schema, f"{name}[]")
        if key in left and key in right
        else clone((right.get(key) or left[key])[0])
        for key in _merge_order(list(left), list(right))
    ]


def remove_fields(value: Any, fields: FieldSet, schema: OwnershipSchema, name: str = "") -> Any:
    """Take fields out of a value; None when nothing is left of it."""
    inside: dict[str, set[FieldPath]] = {}
    for path in fields:
        inside.setdefault(path[0], set()).add(path[1:])
    parts = _parts(value, name, schema) or {}
    kept: list[tuple[str, Any]] = []
    for key, (inner, inner_name) in parts.items():
        paths = inside.get(key, set())
        if () in paths:
            continue
        below = frozenset(path for path in paths if path)
        if below and _parts(inner, inner_name, schema) is not None:
            inner = remove_fields(inner, below, schema, inner_name)
        kept.append((key, inner))
    if not kept:
        return None
    if isinstance(value, dict):
        return {key.removeprefix("f:"): inner for key, inner in kept}
    return [inner for _, inner in kept]


def with_parents(fields: FieldSet) -> FieldSet:
    """Add the named fields that hold those of a set."""
    return fields | {
        path[:length]
        for path in fields
        for length in range(1, len(path))
        if path[length - 1].startswith("f:")
    }


def fields_to_v1(fields: FieldSet) -> Object:
    """Write a set as `fieldsV1`."""
    written: Object = {}
    for path in sorted(fields, key=len, reverse=True):  # what is inside comes first
        here = written
        for key in path:
            here = here.setdefault(key, {})
        if here:
            here["."] = {}
    return written


def fields_from_v1(written: Object) -> FieldSet:
    """Read `fieldsV1`."""

    def walk(node: Object, path: FieldPath) -> Iterator[FieldPath]:
        for key, inner in node.items():
            if key == ".":
                yield path
            elif inner:
                yield from walk(inner, (*path, key))
            else:
                yield (*path, key)

    return frozenset(walk(written, ()))


def show_field_path(path: FieldPath) -> str:
    """Write a path as the server does in conflicts: `.spec.ports[port=80,protocol="TCP"]`."""
    text = ""
    for key in path:
        tag, _, rest = key.partition(":")
        if tag == "f":
            text += f".{rest}"
        elif tag == "v":
            text += f"[={rest}]"
        else:
            pairs = sorted(json.loads(rest).items())
            text += "[" + ",".join(f"{name}={_compact_json(value)}" for name, value in pairs) + "]"
    return text


def _parts(value: Any, name: str, schema: OwnershipSchema) -> _Parts | None:
    """Divide a value into its fields, each with the name its own rules go by; None for a leaf."""
    if name in schema.whole:
        return None
    if isinstance(value, dict):
        return {f"f:{key}": (item, key) for key, item in value.items()}
    if isinstance(value, list):
        if name in schema.sets:
            return {f"v:{_compact_json(item)}": (item, "") for item in value}
        keys = schema.keyed.get(name)
        if keys is not None:
            return {_list_key(item, keys): (item, f"{name}[]") for item in value}
    return None


def _list_key(item: Object, keys: tuple[str, ...]) -> str:
    given = {key: item.get(key, "TCP" if key == "protocol" else None) for key in keys}
    return f"k:{_compact_json(given)}"


def _compact_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _merge_order(live: list[str], config: list[str]) -> list[str]:
    """Order the items of a merged list: as applied, the others where they were between them."""
    merged: list[str] = []
    shared = [key for key in config if key in live]
    left, right = 0, 0
    while left < len(live) or right < len(config):
        if left < len(live) and right < len(config):
            if live[left] == config[right]:
                merged.append(live[left])
                left, right, shared = left + 1, right + 1, shared[1:]
                continue
            if live[left] in config and shared and shared[0] != live[left]:
                left += 1
                continue
        if left < len(live):
            if live[left] not in config:
                merged.append(live[left])
                left += 1
                continue
            if live[left] in merged:
                left += 1
        if right < len(config):
            merged.append(config[right])
            if shared and shared[0] == config[right]:
                shared = shared[1:]
            right += 1
    return merged


APPLY, UPDATE = "Apply", "Update"
_BEFORE_FIRST_APPLY = "before-first-apply"
_ANCIENT_CHANGES = "ancient-changes"
_MAX_UPDATES = 10
_REPLICAS = ("f:spec", "f:replicas")
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldManager:
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
class StoredFieldsEntry:
    """What a writer owns. `time` is that of its last change, where there was one."""

    writer: FieldManager
    fields: FieldSet
    time: str | None = None


ManagedFields: TypeAlias = dict[tuple[str, ...], StoredFieldsEntry]


class FieldsOwned(Exception):
    """An apply without force would change what others own."""

    def __init__(self, owners: tuple[FieldOwner, ...]) -> None:
        super().__init__("owned by others")
        self.owners = owners


def read_managed_fields(managed: object) -> ManagedFields:
    """Read `metadata.managedFields`. An empty entry is none."""
    found: ManagedFields = {}
    for raw in managed if isinstance(managed, list) else ():
        if not raw.get("manager"):
            continue
        writer = FieldManager(
            manager=raw["manager"],
            operation=raw["operation"],
            api_version=raw["apiVersion"],
            subresource=raw.get("subresource", ""),
        )
        fields = fields_from_v1(raw.get("fieldsV1") or {})
        found[writer.key] = StoredFieldsEntry(writer=writer, fields=fields, time=raw.get("time"))
    return found


def write_managed_fields(entries: ManagedFields) -> list[Object]:
    """Write entries in the server's order: appliers first, then by time and name."""
    written = sorted(
        entries.values(),
        key=lambda entry: (entry.writer.operation, entry.time or "", *entry.writer.key),
    )
    return [_entry_to_json(entry) for entry in written]


def server_side_apply(
    live: Object,
    config: Object,
    entries: ManagedFields,
    writer: FieldManager,
    schema: OwnershipSchema,
    *,
    force: bool,
    now: str,
    hollow: Mapping[str, Any] = _NOTHING,
) -> tuple[Object, ManagedFields]:
    """Return the object that an apply makes of the live one, before defaults, and its owners.

    Raises Owned. The time of the entry moves only when a value does.
    """
    if not entries and live:
        first = FieldManager(
            manager=_BEFORE_FIRST_APPLY, operation=UPDATE, api_version=writer.api_version
        )
        entries = ownership_after_create(live, first, schema, now=now, hollow=hollow)
    last = entries.get(writer.key)
    fields = fields_of(config, schema)
    merged = merge_fields(live, config, schema)
    if last is not None:
        others = [entry.fields for key, entry in entries.items() if key != writer.key]
        merged = _prune(merged, last.fields, fields.union(*others), schema)
    entries = {
        **entries,
        writer.key: StoredFieldsEntry(writer=writer, fields=ownable_fields(fields)),
    }
    found = compare_fields(live, merged, schema)
    taken = found.added | found.modified
    conflicts = {
        key: entry.fields & taken
        for key, entry in entries.items()
        if key != writer.key and entry.fields & taken
    }
    if conflicts and not force:
        raise FieldsOwned(_conflicting_owners(entries, conflicts))
    entries = _without(entries, taken | found.removed, but=writer.key)
    time = now if merged != live else (last.time if last else None)
    if writer.key in entries:
        entries[writer.key] = replace(entries[writer.key], time=time)
    return merged, entries


def ownership_after_create(
    new: Object,
    writer: FieldManager,
    schema: OwnershipSchema,
    *,
    now: str,
    hollow: Mapping[str, Any] = _NOTHING,
) -> ManagedFields:
    """Return who owns what of an object that one plain write made: all but its status."""
    before = {**hollow, "status": new.get("status")}
    return ownership_after_update(before, {"status": None, **new}, {}, writer, schema, now=now)


def ownership_after_update(
    live: Object,
    new: Object,
    entries: ManagedFields,
    writer: FieldManager,
    schema: OwnershipSchema,
    *,
    now: str,
) -> ManagedFields:
    """Return who owns what after a plain write: the writer owns what it changed."""
    found = compare_fields(live, new, schema)
    taken = found.added | found.modified
    entries = _without(entries, taken | found.removed)
    if taken:
        before = entries.get(writer.key)
        fields = frozenset(taken | before.fields if before else taken)
        entries[writer.key] = StoredFieldsEntry(writer=writer, fields=fields, time=now)
    return _cap_updates(entries)


def ownership_after_scale(entries: ManagedFields, writer: FieldManager) -> ManagedFields:
    """Return who owns what after a write of another number to `scale`.

    Where nobody owns the number, the write is not tracked; where somebody does, the new owner
    has no time.
    """
    if not any(_REPLICAS in entry.fields for entry in entries.values()):
        return entries
    entries = _without(entries, {_REPLICAS})
    entries[writer.key] = StoredFieldsEntry(writer=writer, fields=frozenset({_REPLICAS}))
    return _cap_updates(entries)


def _prune(merged: Object, last: FieldSet, owned: FieldSet, schema: OwnershipSchema) -> Object:
    """Take out what the applier owned before, unless it or somebody else still owns it."""
    last = with_parents(last)
    everything = with_parents(fields_of(merged, schema))
    rest = remove_fields(merged, last, schema) or {}
    kept = with_parents(fields_of(rest, schema)) | with_parents(owned)
    rest = remove_fields(merged, everything - kept, schema) or {}
    dropped = everything - with_parents(fields_of(rest, schema))
    found: Object = remove_fields(merged, dropped & last, schema)
    return found


def _without(
    entries: ManagedFields, fields: set[tuple[str, ...]], but: tuple[str, ...] = ()
) -> ManagedFields:
    left = {
        key: entry if key == but else replace(entry, fields=entry.fields - fields)
        for key, entry in entries.items()
    }
    return {key: entry for key, entry in left.items() if entry.fields}


def _cap_updates(entries: ManagedFields) -> ManagedFields:
    """Join the oldest updates into one entry; those without a time are the oldest of all."""
    updates = [entry for entry in entries.values() if entry.writer.operation == UPDATE]
    many = len(updates) - _MAX_UPDATES
    if many <= 0:
        return entries
    old = sorted(updates, key=lambda entry: (entry.time or "", *entry.writer.key))[: many + 1]
    joined = StoredFieldsEntry(
        writer=FieldManager(
            manager=_ANCIENT_CHANGES, operation=UPDATE, api_version=updates[0].writer.api_version
        ),
        fields=frozenset[tuple[str, ...]]().union(*(entry.fields for entry in old)),
        time=old[-1].time,
    )
    gone = {entry.writer.key for entry in old}
    left = {key: entry for key, entry in entries.items() if key not in gone}
    return {**left, joined.writer.key: joined}


def _conflicting_owners(
    entries: ManagedFields, conflicts: dict[tuple[str, ...], FieldSet]
) -> tuple[FieldOwner, ...]:
    found = [
        FieldOwner(
            path=show_field_path(path),
            manager=writer.manager,
            api_version=writer.api_version if writer.operation == UPDATE else "",
            subresource=writer.subresource,
        )
        for writer, fields in ((entries[key].writer, fields) for key, fields in conflicts.items())
        for path in fields
    ]
    return tuple(sorted(found, key=lambda owner: (owner.manager, owner.path)))


def _entry_to_json(entry: StoredFieldsEntry) -> Object:
    writer = entry.writer
    written: Object = {
        "manager": writer.manager,
        "operation": writer.operation,
        "apiVersion": writer.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields_to_v1(entry.fields),
    }
    if entry.time is not None:
        written["time"] = entry.time
    if writer.subresource:
        written["subresource"] = writer.subresource
    return written


def without_times(managed: Sequence[Object]) -> list[Object]:
    """Leave the times out, which alone are no change."""
    return sorted(
        ({key: value for key, value in entry.items() if key != "time"} for entry in managed),
        key=lambda entry: (entry["manager"], entry["operation"], entry.get("subresource", "")),
    )
