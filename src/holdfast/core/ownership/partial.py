"""What a heal writes when some declared fields are to stay as they are.

Leaving a field out of an apply deletes it when nobody else owns it. So a field is left out only
where we own nothing of it any more; where we do, it is written with the value it has. Never with
null, which would write its default. The keeper asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.core.normalize import Rules
from holdfast.core.ownership.delegated import FieldClass
from holdfast.core.ownership.objects import at, is_item, raw_at, rules_for, stored_secret
from holdfast.core.ownership.owned import Entry, Ownership, read_ownership, touches
from holdfast.core.ownership.signals import Declaration, Signal
from holdfast.core.ownership.verdict import Verdict
from holdfast.core.tree import Fields, Path, Tree, same

REPLICAS: Path = ("spec", "replicas")


def to_write(
    declared: Declaration, live: Fields, verdict: Verdict, leave: Iterable[Path] = ()
) -> Fields:
    """Return the declared item, without what is delegated, ignored by a rule, or left alone."""
    added = {found.change.path for found in verdict.findings if found.signal is Signal.ADDED}
    # What others added beside ours is not in the item anyway.
    alone = {*leave, *_not_ours(verdict)} - added
    if not alone:
        return declared.item
    api_version = str(declared.item.get("apiVersion") or live.get("apiVersion") or "")
    kind = str(declared.item.get("kind") or live.get("kind") or "")
    ownership = read_ownership(at(live, ("metadata", "managedFields")))
    rules = rules_for(kind, api_version, ownership)
    entries = [entry for entry in ownership.entries if entry.api_version == api_version]
    ours = ownership.ours(declared.managers, api_version) or frozenset()
    item = stored_secret(declared.item) if kind == "Secret" else declared.item
    ours = frozenset(("data", *path[1:]) if path[0] == "stringData" else path for path in ours)
    for path in sorted({_unit(path, entries) for path in alone}):
        value = raw_at(live, path, rules) if touches(ours, path) else None
        if path == REPLICAS and value is not None and at(item, path) is None:
            continue  # handed over under a manager of its own instead
        changed = _put(item, path, value, rules)
        item = changed if isinstance(changed, dict) else item
    return item


def drops_replicas(item: Fields, declared: Declaration, live: Fields) -> bool:
    """True when an apply of the item would let the number of replicas fall to its default."""
    if at(item, REPLICAS) is not None or at(live, REPLICAS) is None:
        return False
    ownership = read_ownership(at(live, ("metadata", "managedFields")))
    return _only_ours(ownership, declared)


def _not_ours(verdict: Verdict) -> set[Path]:
    """Fields of others that differ."""
    return {
        found.change.path
        for found in verdict.findings
        if found.field_class in (FieldClass.DELEGATED, FieldClass.IGNORED)
    }


def _only_ours(ownership: Ownership, declared: Declaration) -> bool:
    owners = [entry for entry in ownership.entries if entry.owns(REPLICAS)]
    return bool(owners) and all(
        entry.operation == "Apply" and entry.manager in declared.managers for entry in owners
    )


def _unit(path: Path, entries: list[Entry]) -> Path:
    """The whole value that a field is written with: a selector has one owner for all its keys."""
    for length in range(1, len(path)):
        if path[length - 1].startswith("["):
            continue
        if any(path[:length] in entry.paths for entry in entries):
            return path[:length]
    return path


def _put(tree: Tree, path: Path, value: Tree, rules: Rules, name: str = "") -> Tree:
    """Copy a tree with another value at a path; None leaves it out, and what it emptied."""
    if not path:
        return value
    head, rest = path[0], path[1:]
    if head.startswith("["):
        items = list(tree) if isinstance(tree, list) else []
        for index, item in enumerate(items):
            if is_item(item, head, name, rules):
                found = _put(item, rest, value, rules)
                items[index : index + 1] = [] if found is None else [found]
                return items or None
        if value is not None and not rest:
            items.append(value)
        return items or None
    fields = dict(tree) if isinstance(tree, dict) else {}
    found = _put(fields.get(head), rest, value, rules, head)
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
    return less if isinstance(less, dict) and not same(less, item) else None


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
