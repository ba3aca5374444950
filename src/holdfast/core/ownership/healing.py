"""What a heal writes, and which fields have to change their owner first.

Leaving a field out of an apply deletes it when nobody else owns it, so a field that is to stay is
left out only where we own nothing of it; otherwise it is written with the value it has. An apply
removes only what its manager owned before, so what others added becomes ours first, by rewriting
`managedFields`. Called by the resource manager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from holdfast.core.normalize import Rules
from holdfast.core.ownership.canonical import (
    canonical_object,
    is_default,
    is_item,
    raw_value_at,
    rules_for,
    secret_as_stored,
    value_at,
)
from holdfast.core.ownership.delegated import SCALED_PATHS, FieldClass
from holdfast.core.ownership.managed_fields import (
    MERGED_MANAGER,
    UNTRACKED_MANAGER,
    ManagedFieldsEntry,
    Ownership,
    fields_v1_of,
    ownership_of,
    read_ownership,
    segment_of,
    touches,
)
from holdfast.core.ownership.object_diff import ObjectDiff
from holdfast.core.ownership.signals import Declaration, Signal
from holdfast.core.tree import Fields, Path, Tree, identical, plain_tree

REPLICAS_PATH: Path = ("spec", "replicas")


def item_to_apply(
    declared: Declaration, live: Fields, diff: ObjectDiff, leave: Iterable[Path] = ()
) -> Fields:
    """Return the declared item, without what is delegated, ignored by a rule, or left alone."""
    added = {found.change.path for found in diff.field_drifts if found.signal is Signal.ADDED}
    # What others added beside ours is not in the item anyway.
    alone = {*leave, *_left_to_others(diff)} - added
    if not alone:
        return declared.item
    api_version = str(declared.item.get("apiVersion") or live.get("apiVersion") or "")
    kind = str(declared.item.get("kind") or live.get("kind") or "")
    ownership = ownership_of(live)
    rules = rules_for(kind, api_version, ownership)
    entries = [entry for entry in ownership.entries if entry.api_version == api_version]
    ours = ownership.ours(declared.managers, api_version) or frozenset()
    item = secret_as_stored(declared.item) if kind == "Secret" else declared.item
    ours = frozenset(("data", *path[1:]) if path[0] == "stringData" else path for path in ours)
    for path in sorted({_atomic_path(path, entries) for path in alone}):
        value = raw_value_at(live, path, rules) if touches(ours, path) else None
        if path == REPLICAS_PATH and value is not None and value_at(item, path) is None:
            continue  # handed over under a manager of its own instead
        changed = _with_value_at(item, path, value, rules)
        item = changed if isinstance(changed, dict) else item
    return item


def drops_replicas(item: Fields, declared: Declaration, live: Fields) -> bool:
    """True when an apply of the item would let the number of replicas fall to its default."""
    if value_at(item, REPLICAS_PATH) is not None or value_at(live, REPLICAS_PATH) is None:
        return False
    ownership = ownership_of(live)
    return _replicas_only_ours(ownership, declared)


def _left_to_others(diff: ObjectDiff) -> set[Path]:
    """Fields of others that differ."""
    return {
        found.change.path
        for found in diff.field_drifts
        if found.field_class in (FieldClass.DELEGATED, FieldClass.IGNORED)
    }


def _replicas_only_ours(ownership: Ownership, declared: Declaration) -> bool:
    owners = [entry for entry in ownership.entries if entry.owns(REPLICAS_PATH)]
    return bool(owners) and all(
        entry.operation == "Apply" and entry.manager in declared.managers for entry in owners
    )


def _atomic_path(path: Path, entries: list[ManagedFieldsEntry]) -> Path:
    """The whole value that a field is written with: a selector has one owner for all its keys."""
    for length in range(1, len(path)):
        if path[length - 1].startswith("["):
            continue
        if any(path[:length] in entry.paths for entry in entries):
            return path[:length]
    return path


def _with_value_at(tree: Tree, path: Path, value: Tree, rules: Rules, name: str = "") -> Tree:
    """Copy a tree with another value at a path; None leaves it out, and what it emptied."""
    if not path:
        return value
    head, rest = path[0], path[1:]
    if head.startswith("["):
        items = list(tree) if isinstance(tree, list) else []
        for index, item in enumerate(items):
            if is_item(item, head, name, rules):
                found = _with_value_at(item, rest, value, rules)
                items[index : index + 1] = [] if found is None else [found]
                return items or None
        if value is not None and not rest:
            items.append(value)
        return items or None
    fields = dict(tree) if isinstance(tree, dict) else {}
    found = _with_value_at(fields.get(head), rest, value, rules, head)
    if found is None:
        fields.pop(head, None)
    else:
        fields[head] = found
    return fields or None


def without_nulls(item: Fields, refused: Collection[str]) -> Fields | None:
    """Return an object without the nulls at some fields; None when it has none there.

    Fields are named as API servers name them: `spec.items[0].value`.
    """
    less = _without_nulls(item, "", frozenset(refused))
    return less if isinstance(less, dict) and not identical(less, item) else None


def _without_nulls(tree: Tree, place: str, refused: frozenset[str]) -> Tree:
    if isinstance(tree, dict):
        return {
            name: _without_nulls(value, f"{place}.{name}", refused)
            for name, value in tree.items()
            if value is not None or f"{place}.{name}".removeprefix(".") not in refused
        }
    if isinstance(tree, list):
        return [
            _without_nulls(value, f"{place}[{index}]", refused) for index, value in enumerate(tree)
        ]
    return tree


_UNKNOWN_MANAGERS = (UNTRACKED_MANAGER, MERGED_MANAGER)


def take_over_additions(declared: Declaration, live: Fields, diff: ObjectDiff) -> list[Tree] | None:
    """Give us what others added and the diff calls drift; None when there is no such thing."""
    added = {found.change.path for found in diff.drifted if found.signal is Signal.ADDED}
    return _take_beside(declared, live, diff, added) if added else None


def take_over_obstacles(declared: Declaration, live: Fields, diff: ObjectDiff) -> list[Tree] | None:
    """Give us everything undeclared beside the fields that moved, by those who moved them.

    For a heal that the server refuses because old and new do not go together: a port under two
    numbers, a volume of two kinds, a strategy with the parameters of another.
    """
    return _take_beside(declared, live, diff, {found.change.path for found in diff.drifted})


def is_owned_by_unknown(live: Fields) -> bool:
    """True when the server named an owner for what was written while it kept no record."""
    entries = ownership_of(live).entries
    return any(entry.manager == UNTRACKED_MANAGER for entry in entries)


def release_unknown_owners(declared: Declaration, live: Fields) -> list[Tree] | None:
    """Let the server forget that unknown writers own what we own.

    After the record was wiped, the first apply leaves all fields with an owner of that name
    beside us, and nothing that we stop declaring would ever go. Inside our list items the
    defaults go along, or an item would stay behind as a shell.
    """
    api_version, kind = _object_type(declared, live)
    ownership = ownership_of(live)
    ours = ownership.ours(declared.managers, api_version) or frozenset()
    rules = rules_for(kind, api_version, ownership)
    tree = canonical_object(live | {"kind": kind}, rules, key=b"")
    items = frozenset(path for path in ours if path[-1].startswith("["))

    def shared(path: Path) -> bool:
        if touches(ours, path):
            return True
        ends = [end for end in range(1, len(path) + 1) if path[end - 1].startswith("[")]
        if not ends or path[: ends[-1]] not in items:
            return False
        value = value_at(tree, path)
        return value is None or is_default(path, value)

    def unknown(entry: ManagedFieldsEntry) -> bool:
        return entry.manager in _UNKNOWN_MANAGERS and entry.api_version == api_version

    return _move_fields(declared, live, chosen=unknown, wanted=shared, into_ours=False)


def _take_beside(
    declared: Declaration, live: Fields, diff: ObjectDiff, moved: set[Path]
) -> list[Tree] | None:
    api_version, kind = _object_type(declared, live)
    ownership = ownership_of(live)
    rules = rules_for(kind, api_version, ownership)
    desired = canonical_object(declared.item | {"kind": kind}, rules, key=b"")
    kept = frozenset(
        found.change.path
        for found in diff.field_drifts
        if found.signal is Signal.ADDED and found.field_class is not FieldClass.OWNED
    )

    def chosen(entry: ManagedFieldsEntry) -> bool:
        return entry.api_version == api_version and any(
            touches(entry.paths, path) for path in moved
        )

    # What was added lies in its parent, and the parent was added too where it is not declared:
    # left behind, the shell of a volume source would block the heal.
    roots = {_undeclared_root(desired, path) or path for path in moved} | {
        path[:-1] for path in moved if _undeclared_root(desired, path) is None and len(path) > 1
    }

    def wanted(path: Path) -> bool:
        if _undeclared_root(desired, path) is None or _is_inside(path, kept):
            return False
        if path in SCALED_PATHS:
            return False  # a number that others choose; without an owner it would fall to one
        return _is_inside(path, roots)

    return _move_fields(declared, live, chosen=chosen, wanted=wanted, into_ours=True)


def _move_fields(
    declared: Declaration,
    live: Fields,
    *,
    chosen: Callable[[ManagedFieldsEntry], bool],
    wanted: Callable[[Path], bool],
    into_ours: bool,
) -> list[Tree] | None:
    """Rewrite the record; None when nothing moves."""
    managed = value_at(live, ("metadata", "managedFields"))
    api_version, _ = _object_type(declared, live)
    result: list[Tree] = []
    ours: Fields | None = None
    gathered: Fields = {}
    for raw in managed if isinstance(managed, list) else []:
        entries = read_ownership([raw]).entries
        if not isinstance(raw, dict) or not entries:
            continue
        [entry] = entries
        fields = plain_tree(fields_v1_of(raw))
        assert isinstance(fields, dict)  # noqa: S101  # a mapping stays a mapping
        if entry.operation == "Apply" and entry.manager in declared.managers:
            if entry.api_version == api_version and not entry.subresource:
                ours = fields
        elif chosen(entry):
            fields, taken = _split_fields(fields, wanted, ())
            _merge_fields(gathered, taken)
            if not fields:
                continue
        result.append({**raw, "fieldsV1": fields})
    if not gathered or (into_ours and ours is None):
        return None
    if into_ours and ours is not None:
        _merge_fields(ours, gathered)
    return result


def _split_fields(
    fields: Mapping[str, Tree], wanted: Callable[[Path], bool], here: Path
) -> tuple[Fields, Fields]:
    """Part one entry's fields into those that stay and those that go."""
    kept: Fields = {}
    taken: Fields = {}
    for key, inner in fields.items():
        segment = segment_of(key) if key != "." else None
        if segment is None:
            continue
        path = (*here, segment)
        if isinstance(inner, dict) and inner.keys() - {"."}:
            stay, go = _split_fields(inner, wanted, path)
            kept.update({key: stay} if stay else {})
            taken.update({key: go} if go else {})
        else:
            (taken if wanted(path) else kept)[key] = inner
    if "." in fields:
        # A node goes with the last of its fields; one that parts stays where it was.
        (kept if kept else taken)["."] = {}
    return kept, taken


def _merge_fields(into: Fields, more: Mapping[str, Tree]) -> None:
    for key, inner in more.items():
        present = into.setdefault(key, {})
        if isinstance(present, dict) and isinstance(inner, dict):
            _merge_fields(present, inner)


def _undeclared_root(desired: Fields, path: Path) -> Path | None:
    """The outermost part of a path that is not declared; None when all of it is."""
    tree: Tree = desired
    for length, segment in enumerate(path, 1):
        if not isinstance(tree, dict):
            return None
        if segment not in tree:
            return path[:length]
        tree = tree[segment]
    return None


def _is_inside(path: Path, roots: Iterable[Path]) -> bool:
    return any(path[: len(root)] == root for root in roots)


def _object_type(declared: Declaration, live: Fields) -> tuple[str, str]:
    item = live | declared.item
    return str(item.get("apiVersion") or ""), str(item.get("kind") or "")
