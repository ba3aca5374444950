"""Recognises, in a fraction of the time of a verdict, an object that is as declared.

Nearly every object that a watch reports is, and only its status has changed. Its declared values
are compared as they are written, and who owns what is compared as a whole with what a full
verdict found to be in order before. It says yes or nothing: any doubt is left to the verdict.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field
from hashlib import blake2b

from holdfast.core.normalize import Rules
from holdfast.core.ownership.fits import Tests, Unsuited, fits, prepare
from holdfast.core.ownership.objects import (
    BOOKKEEPING,
    SERVER_METADATA,
    addition,
    at,
    canonical_object,
    is_default,
    is_zero,
    leaves,
    raw_at,
    rules_for,
)
from holdfast.core.ownership.owned import covers, read_ownership
from holdfast.core.ownership.signals import Declaration
from holdfast.core.tree import Fields, Path

_SHAPES = 4096
_RECORDS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """A field that nobody declared and somebody owns: it must be absent, or a default."""

    path: Path
    ours: bool


@dataclass(slots=True, kw_only=True)
class _Shape:
    """What declarations of the same fields share: the records of owners that are in order."""

    desired: Fields
    zeros: frozenset[Path]
    records: dict[bytes, tuple[_Watched, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One declaration, made ready to be compared."""

    rules: Rules
    tests: Tests
    shape: _Shape


_shapes: dict[object, _Shape] = {}


def recognized(declared: Declaration, live: Fields) -> bool:
    """True when the object is as declared beyond doubt. False says nothing."""
    form = declared.form[0] if declared.form else _formed(declared, live)
    metadata = live.get("metadata")
    if form is None or type(metadata) is not dict:
        return False
    if declared.uid is not None and metadata.get("uid") != declared.uid:
        return False
    record = _record(metadata.get("managedFields"))
    watched = form.shape.records.get(record) if record else None
    if watched is None or not fits(live, form.tests):
        return False
    return all(_unchanged(live, each, form.rules) for each in watched)


def learn(declared: Declaration, live: Fields) -> None:
    """Take in the owners of an object in which a full verdict found nothing at all."""
    managed = at(live, ("metadata", "managedFields"))
    ownership = read_ownership(managed)
    api_version, kind = _named(declared, live)
    record = _record(managed)
    form = declared.form[0] if declared.form else None
    if form is not None and form.rules != rules_for(kind, api_version, ownership):
        declared.form.clear()  # the owners of a custom resource tell more of its lists by now
        form = _formed(declared, live)
    if form is None or record is None:
        return
    ours = ownership.ours(declared.managers, api_version) or frozenset()
    if not all(covers(ours, path) for path in form.shape.zeros):
        return
    watched: dict[Path, _Watched] = {}
    for entry in ownership.entries:
        if entry.api_version != api_version:
            continue
        for path in entry.paths:
            root = addition(form.shape.desired, path)
            if root is not None and not _never_compared(root):
                mine = covers(ours, root) or (root in watched and watched[root].ours)
                watched[root] = _Watched(path=root, ours=mine)
    if len(form.shape.records) >= _RECORDS:
        form.shape.records.pop(next(iter(form.shape.records)), None)
    form.shape.records[record] = tuple(watched.values())


def _named(declared: Declaration, live: Fields) -> tuple[str, str]:
    item = declared.item
    version, kind = item.get("apiVersion"), item.get("kind")
    return str(version or live.get("apiVersion") or ""), str(kind or live.get("kind") or "")


def _formed(declared: Declaration, live: Fields) -> Form | None:
    api_version, kind = _named(declared, live)
    ownership = read_ownership(at(live, ("metadata", "managedFields")))
    rules = rules_for(kind, api_version, ownership)
    named: Fields = {"apiVersion": api_version, "kind": kind}
    desired = canonical_object(declared.item | named, rules, key=b"")
    outline = frozenset(
        (path, type(value).__name__ if value in ([], {}) else "", is_zero(value))
        for path in leaves(desired)
        for value in (at(desired, path),)
    )
    keyed = tuple(sorted(rules.keyed.items()))
    key = (
        api_version, kind, declared.managers, declared.expected, declared.applied, outline, keyed,
    )  # fmt: skip
    try:
        tests = prepare(declared.item | named, rules)
    except Unsuited:
        declared.form[:] = [None]
        return None
    shape = _shapes.get(key)
    if shape is None:
        if len(_shapes) >= _SHAPES:
            _shapes.pop(next(iter(_shapes)), None)
        zeros = frozenset(path for path, empty, zero in outline if zero and not empty)
        shape = _shapes[key] = _Shape(desired=desired, zeros=zeros)
    form = Form(rules=rules, tests=tests, shape=shape)
    declared.form[:] = [form]
    return form


def _record(managed: object) -> bytes | None:
    """A mark of who owns what, leaving out when: that changes with every status."""
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
    return root[:2] == ("metadata", "annotations") and root[-1] in BOOKKEEPING


def _unchanged(live: Fields, watched: _Watched, rules: Rules) -> bool:
    value = raw_at(live, watched.path, rules)
    if value is None:
        return True
    if watched.ours or (isinstance(value, dict | list) and value):
        return False
    if not rules.quantities.isdisjoint(watched.path[-2:]):
        return False
    return is_default(watched.path, value)
