"""Recognises an object that is as declared in a fraction of the time of a full comparison.

Nearly every object that a watch reports is, and only its status has changed. Its declared values
are compared as they are written, and its owners with those that a full comparison found to be in
order before. The answer is yes or unknown: any doubt is left to the full comparison.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias

from holdfast.core.normalize import Rules, item_segment
from holdfast.core.ownership.canonical import (
    BOOKKEEPING_ANNOTATIONS,
    PRESENCE_FIELDS,
    SERVER_METADATA,
    addition_root,
    canonical_object,
    is_default,
    is_zero,
    leaf_paths,
    raw_value_at,
    rules_for,
    secret_as_stored,
    value_at,
)
from holdfast.core.ownership.managed_fields import covers, ownership_of, read_ownership
from holdfast.core.ownership.signals import Declaration
from holdfast.core.quantity import canonical_quantity
from holdfast.core.tree import Fields, Path, Tree

# Any: each test has its own form of what it compares with.
_Test: TypeAlias = Callable[[Tree, Any], bool]
FieldTests: TypeAlias = tuple[tuple[str, _Test | None, Any], ...]
"""What is asked of each field of a mapping. No test means plain equality, which suffices for
text."""


class NotPreparable(Exception):
    """The declaration has a form that only the full comparison can handle."""


def passes_tests(live: Fields, tests: FieldTests) -> bool:
    """True when every declared value stands there as it was written.

    A zero may be missing, as the server does not store most: whether it was dropped or removed,
    only its owner tells.
    """
    for name, test, wanted in tests:
        seen = live.get(name)
        if not (seen == wanted if test is None else test(seen, wanted)):
            return False
    return True


def prepare_tests(item: Fields, rules: Rules) -> FieldTests:
    """Make a declared item ready for many comparisons. Raises Unsuited."""
    if item.get("kind") == "Secret":
        item = secret_as_stored(item)
    kept = {name: value for name, value in item.items() if name not in _IDENTITY_FIELDS}
    metadata = kept.get("metadata")
    if isinstance(metadata, dict):
        metadata = {name: value for name, value in metadata.items() if name not in SERVER_METADATA}
        notes = metadata.get("annotations")
        if isinstance(notes, dict):
            metadata["annotations"] = {
                name: value for name, value in notes.items() if name not in BOOKKEEPING_ANNOTATIONS
            }
        kept["metadata"] = metadata
    return _mapping_tests(kept, _Position(rules=rules, exclusive=rules.exclusive))


_IDENTITY_FIELDS = ("apiVersion", "kind", "status")


def _mapping_tests(item: Fields, place: _Position) -> FieldTests:
    """Prepare one mapping, as `normalize` would read it."""
    return tuple(
        (name, *_value_test(value, place.below(name)))
        for name, value in item.items()
        if value is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """Where in an object a value stands, as far as that matters."""

    rules: Rules
    exclusive: frozenset[str]
    whole: bool = False
    """In a mapping that was declared as a whole: nothing may be missing or more."""
    listed: bool = False
    """In a list that is written as a whole: nothing may be missing."""
    name: str = ""
    parent: str = ""

    def below(self, name: str) -> _Position:
        return _Position(
            rules=_OPAQUE if name in self.rules.opaque else self.rules,
            exclusive=self.exclusive,
            whole=self.whole or name in self.exclusive,
            listed=self.listed,
            name=name,
            parent=self.name,
        )

    @property
    def counted(self) -> bool:
        quantities = self.rules.quantities
        return self.name in quantities or self.parent in quantities


_OPAQUE = Rules()


def _value_test(value: Tree, place: _Position) -> tuple[_Test | None, object]:
    if isinstance(value, dict):
        if not value and not place.whole:
            return (
                (_is_mapping, ())
                if place.name in PRESENCE_FIELDS
                else (_is_absent_or_mapping, None)
            )
        return _is_whole_mapping if place.whole else _is_mapping, _mapping_tests(value, place)
    if isinstance(value, list):
        if not value:
            return (_is_exactly, value) if place.whole else (_is_absent_or_empty, None)
        return _is_list, _item_tests(value, place)
    if place.counted:
        if isinstance(value, bool) or value is None or value == "":
            raise NotPreparable
        return _is_quantity, (value, canonical_quantity(value))
    if is_zero(value) and not place.whole and not place.listed:
        return _is_absent_or_exactly, value
    return (None, value) if isinstance(value, str) else (_is_exactly, value)


def _item_tests(items: list[Tree], place: _Position) -> tuple[tuple[_Test, object], ...]:
    keys = place.rules.keyed.get(place.name, ())
    more = _key_tests(items, keys)
    inner = replace(place, listed=place.listed or not keys, name="", parent="")
    made: list[tuple[_Test, object]] = []
    for item in items:
        if isinstance(item, dict):
            extra = tuple(test for test in more if test[0] not in item)
            made.append((_is_mapping, _mapping_tests(item, inner) + extra))
        elif item is None or isinstance(item, list) or place.counted:
            raise NotPreparable
        else:
            made.append((_is_exactly, item))
    return tuple(made)


def _key_tests(items: list[Tree], keys: tuple[str, ...]) -> FieldTests:
    """What a live item must not have, or may have only as its default, to have the same key."""
    made: dict[str, tuple[str, _Test, object]] = {}
    for key in keys:
        named = [item_segment(item, key) for item in items]
        parts = [part.partition("=") for part in key.split(",")]
        if None not in named:
            if len(set(named)) < len(named):
                raise NotPreparable
            for name, _, default in parts:
                made[name] = (name, _is_absent_or, default)
            return tuple(made.values())
        made[parts[0][0]] = (parts[0][0], _is_absent_or, None)
    if keys:
        raise NotPreparable
    return ()


def _is_exactly(seen: Tree, wanted: object) -> bool:
    return type(seen) is type(wanted) and seen == wanted


def _is_absent_or(seen: Tree, wanted: object) -> bool:
    return seen is None or seen == wanted


def _is_absent_or_exactly(seen: Tree, wanted: object) -> bool:
    return seen is None or (type(seen) is type(wanted) and seen == wanted)


def _is_absent_or_empty(seen: Tree, _: object) -> bool:
    return seen is None or seen == []


def _is_absent_or_mapping(seen: Tree, _: object) -> bool:
    return seen is None or type(seen) is dict


def _is_mapping(seen: Tree, wanted: FieldTests) -> bool:
    return type(seen) is dict and passes_tests(seen, wanted)


def _is_whole_mapping(seen: Tree, wanted: FieldTests) -> bool:
    # Each of them is there, so as many fields as tests means no other.
    return type(seen) is dict and len(seen) == len(wanted) and passes_tests(seen, wanted)


def _is_list(seen: Tree, wanted: tuple[tuple[_Test, Any], ...]) -> bool:  # Any: see _Test
    if type(seen) is not list or len(seen) != len(wanted):
        return False
    return all(test(item, asked) for item, (test, asked) in zip(seen, wanted, strict=True))


def _is_quantity(seen: Tree, wanted: tuple[Tree, str]) -> bool:
    value, amount = wanted
    if seen == value and type(seen) is type(value):
        return True
    return isinstance(seen, str) and _cached_quantity(seen) == amount


@lru_cache(maxsize=4096)
def _cached_quantity(text: str) -> str:
    return canonical_quantity(text)


_MAX_OUTLINES = 4096
_MAX_KNOWN_OWNERS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _UndeclaredField:
    """A field that nobody declared and somebody owns: it must be absent, or a default."""

    path: Path
    ours: bool


@dataclass(slots=True, kw_only=True)
class _Outline:
    """What declarations of the same fields share: the records of owners that are in order."""

    desired: Fields
    zeros: frozenset[Path]
    records: dict[bytes, tuple[_UndeclaredField, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDeclaration:
    """One declaration, made ready to be compared."""

    rules: Rules
    tests: FieldTests
    outline: _Outline


_outlines: dict[object, _Outline] = {}


def is_unchanged(declared: Declaration, live: Fields) -> bool:
    """True when the object is as declared beyond doubt. False says nothing."""
    prepared = declared.prepared[0] if declared.prepared else _prepare_declaration(declared, live)
    metadata = live.get("metadata")
    if prepared is None or type(metadata) is not dict:
        return False
    if declared.uid is not None and metadata.get("uid") != declared.uid:
        return False
    record = _owners_digest(metadata.get("managedFields"))
    watched = prepared.outline.records.get(record) if record else None
    if watched is None or not passes_tests(live, prepared.tests):
        return False
    return all(_is_absent_or_default(live, each, prepared.rules) for each in watched)


def remember_unchanged(declared: Declaration, live: Fields) -> None:
    """Take in the owners of an object in which a full comparison found no difference at all."""
    managed = value_at(live, ("metadata", "managedFields"))
    ownership = read_ownership(managed)
    api_version, kind = _object_type(declared, live)
    record = _owners_digest(managed)
    prepared = declared.prepared[0] if declared.prepared else None
    if prepared is not None and prepared.rules != rules_for(kind, api_version, ownership):
        declared.prepared.clear()  # the owners of a custom resource tell more of its lists by now
        prepared = _prepare_declaration(declared, live)
    if prepared is None or record is None:
        return
    ours = ownership.ours(declared.managers, api_version) or frozenset()
    if not all(covers(ours, path) for path in prepared.outline.zeros):
        return
    watched: dict[Path, _UndeclaredField] = {}
    for entry in ownership.entries:
        if entry.api_version != api_version:
            continue
        for path in entry.paths:
            root = addition_root(prepared.outline.desired, path)
            if root is not None and not _never_compared(root):
                mine = covers(ours, root) or (root in watched and watched[root].ours)
                watched[root] = _UndeclaredField(path=root, ours=mine)
    if len(prepared.outline.records) >= _MAX_KNOWN_OWNERS:
        prepared.outline.records.pop(next(iter(prepared.outline.records)), None)
    prepared.outline.records[record] = tuple(watched.values())


def _object_type(declared: Declaration, live: Fields) -> tuple[str, str]:
    item = declared.item
    version, kind = item.get("apiVersion"), item.get("kind")
    return str(version or live.get("apiVersion") or ""), str(kind or live.get("kind") or "")


def _prepare_declaration(declared: Declaration, live: Fields) -> PreparedDeclaration | None:
    api_version, kind = _object_type(declared, live)
    ownership = ownership_of(live)
    rules = rules_for(kind, api_version, ownership)
    named: Fields = {"apiVersion": api_version, "kind": kind}
    desired = canonical_object(declared.item | named, rules, key=b"")
    leaves = frozenset(
        (path, type(value).__name__ if value in ([], {}) else "", is_zero(value))
        for path in leaf_paths(desired)
        for value in (value_at(desired, path),)
    )
    under = (declared.managers, declared.expected, declared.applied)
    key = (api_version, kind, under, leaves, tuple(sorted(rules.keyed.items())))
    try:
        tests = prepare_tests(declared.item | named, rules)
    except NotPreparable:
        declared.prepared[:] = [None]
        return None
    outline = _outlines.get(key)
    if outline is None:
        if len(_outlines) >= _MAX_OUTLINES:
            _outlines.pop(next(iter(_outlines)), None)
        zeros = frozenset(path for path, empty, zero in leaves if zero and not empty)
        outline = _outlines[key] = _Outline(desired=desired, zeros=zeros)
    prepared = PreparedDeclaration(rules=rules, tests=tests, outline=outline)
    declared.prepared[:] = [prepared]
    return prepared


def _owners_digest(managed: object) -> bytes | None:
    """A digest of who owns what, without when: that changes with every status."""
    if type(managed) is not list:
        return None
    try:
        rows = [
            (
                entry.get("manager"),
                entry.get("operation"),
                entry.get("subresource"),
                entry.get("apiVersion"),
                entry.get("fieldsV1"),
            )
            for entry in managed
        ]
        # In this version the bytes depend on nothing but the values; no other form is as fast.
        return blake2b(marshal.dumps(rows, 2), digest_size=16).digest()
    except (AttributeError, ValueError):
        return None


def _never_compared(root: Path) -> bool:
    if root[0] == "status" or (root[0] == "metadata" and root[1:2] and root[1] in SERVER_METADATA):
        return True
    return root[:2] == ("metadata", "annotations") and root[-1] in BOOKKEEPING_ANNOTATIONS


def _is_absent_or_default(live: Fields, watched: _UndeclaredField, rules: Rules) -> bool:
    value = raw_value_at(live, watched.path, rules)
    if value is None:
        return True
    if watched.ours or (isinstance(value, dict | list) and value):
        return False
    if not rules.quantities.isdisjoint(watched.path[-2:]):
        return False
    return is_default(watched.path, value)
