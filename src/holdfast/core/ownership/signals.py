"""The four signals by which an object shows that it is not as declared.

Each is blind to something: values to additions, ownership to reordering, others' ownership to
removals, a dry run to what admission rewrites. `object_diff` joins them.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING

from holdfast.core.cost import Cost
from holdfast.core.diff import Change, same_value
from holdfast.core.drift import Cause, DriftKind, cause_of
from holdfast.core.live import Writer
from holdfast.core.normalize import Rules
from holdfast.core.ownership.canonical import (
    addition_root,
    canonical_object,
    compare_objects,
    is_custom,
    is_default,
    is_derived,
    is_stored_form,
    is_zero,
    leaf_paths,
    object_kind,
    rules_for,
    value_at,
)
from holdfast.core.ownership.delegated import REPLICA_SEED_MANAGER, FieldClass
from holdfast.core.ownership.managed_fields import (
    MERGED_MANAGER,
    UNTRACKED_MANAGER,
    ManagedFieldsEntry,
    covers,
    is_ours,
    ownership_of,
    read_ownership,
    touches,
)
from holdfast.core.tree import Fields, Path, Tree, digest, plain_tree

if TYPE_CHECKING:
    from holdfast.core.ownership.fast_path import PreparedDeclaration

APPLIED_PATH: Path = ("metadata", "annotations", "holdfast.dev/applied")
"""Holds the digest of the declaration that was applied last."""


class Signal(StrEnum):
    """What showed a difference."""

    VALUE = "value"
    LOST = "lost"
    """We no longer own it, although its value is right."""
    KEPT = "kept"
    """We own it, and no longer declare it."""
    ADDED = "added"
    DRY_RUN = "dry-run"
    RUNNING = "running"
    """Its pods run something else than the object says: no apply can end that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedRecord:
    """What we wrote down of our last apply, where a writer to the object cannot reach it.

    With it, what stands on the object itself is a claim: neither the name of our field manager
    nor a digest in an annotation makes a difference a change that was declared.
    """

    digest: str
    """Of the declaration that was applied; empty when none is known to have been."""
    values: str | None = None
    """`record_values` of the answer to that apply; empty when they were not written down. None when
    the caller keeps none: then the digest alone shows whether something was declared anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What we declare of one object, and what we own when all is well."""

    item: Fields
    digest: str
    """Stands in the item's own annotation too, where `declare` made it."""
    managers: frozenset[str]
    """The field managers we apply this item under; not the one that only seeds replicas."""
    expected: frozenset[Path] | None = None
    """Our entry in the answer to an apply or dry run; None has it estimated from the fields."""
    uid: str | None = None
    """The object we applied to. Another uid is another object of the same name."""
    applied: bool = True
    """False before our first apply, when owning nothing is no alarm."""
    previous: Fields | None = None
    """The item that was applied last, where the caller still has it: it shows which fields were
    declared anew even where others have written since."""
    record: AppliedRecord | None = None
    """What was applied last, by our own record; None where the caller keeps no record at all."""
    prepared: list[PreparedDeclaration | None] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    """What the fast path needs; made when it is first needed."""


def declare(item: Fields, manager: str, *, revision: str | None = None) -> Declaration:
    """Make a manifest a declaration: it then carries its own digest.

    The live object says by it whether a difference is drift, or a change that was declared since.
    A `revision` takes the place of the digest where that would reveal too much, as of a Secret.
    """
    revision = revision or digest(item)
    if not is_custom(str(item.get("apiVersion") or "")):
        item = {name: _drop_nulls(value) for name, value in item.items() if value is not None}
    metadata = item["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101  # every object has them
    annotations = metadata.get("annotations")
    notes = {**(annotations if isinstance(annotations, dict) else {}), APPLIED_PATH[-1]: revision}
    sealed: Fields = {**item, "metadata": {**metadata, "annotations": notes}}
    return Declaration(item=sealed, digest=revision, managers=frozenset({manager}))


def _drop_nulls(value: Tree) -> Tree:
    """Leave out nulls: in a manifest of a built-in kind they mean "not said".

    In an apply they would mean "the default, and mine", and in the key of a list item another
    item than the one the server makes of it, so that the next apply is refused.
    """
    if isinstance(value, dict):
        return {name: _drop_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_drop_nulls(inner) for inner in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDrift:
    """One field that differs, whose it is, and why we think so.

    `writer` is a tool's claim. It is None for a removal, which leaves no trace.
    """

    change: Change
    kind: DriftKind
    signal: Signal
    field_class: FieldClass
    evidence: str
    writer: Writer | None = None
    cause: Cause = Cause.UNKNOWN
    rule: str | None = None
    """The ignore rule that hid it."""
    confirmed: bool = True
    """False when only a dry run can tell."""
    pending: bool = False
    """Still ours and untouched by others: it differs because it was declared anew."""
    cost: Cost | None = field(default=None, compare=False)
    """What it costs to make it as declared; None where nobody asked, or nobody can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectComparison:
    """One object and its declaration, in the form in which they can be compared."""

    api_version: str
    kind: str
    raw: Fields
    rules: Rules
    desired: Fields
    live: Fields
    dry_run: Fields | None
    foreign: tuple[ManagedFieldsEntry, ...]
    ours: frozenset[Path]
    expected: frozenset[Path] | None
    wiped: bool
    comparable: bool
    """True when our entry is there, in the version we declare."""
    renewed: bool
    """The declaration is not the one that was applied last: by our own record, or, without one,
    by the annotation on the object as long as nobody else wrote it."""
    previous: Fields | None
    record: AppliedRecord | None
    known: Mapping[bytes, bytes]
    """The values of the record, as far as there are any."""
    key: bytes = field(repr=False)

    @classmethod
    def open(
        cls, declared: Declaration, live: Fields, *, key: bytes, dry_run: Fields | None
    ) -> ObjectComparison:
        api_version = str(declared.item.get("apiVersion") or live.get("apiVersion") or "")
        kind = object_kind(declared.item) or object_kind(live)
        named: Fields = {"apiVersion": api_version, "kind": kind}
        ownership = ownership_of(live)
        rules = rules_for(kind, api_version, ownership)
        ours = ownership.ours(declared.managers, api_version)
        present = any(is_ours(entry, declared.managers) for entry in ownership.entries)
        foreign = ownership.foreign(declared.managers, api_version)
        record = declared.record
        if record is not None:
            renewed = record.digest != declared.digest
        else:
            applied = value_at(live, APPLIED_PATH)
            overwritten = any(entry.owns(APPLIED_PATH) for entry in foreign)
            renewed = applied is not None and applied != declared.digest and not overwritten
        return cls(
            api_version=api_version,
            kind=kind,
            raw=live | named,
            rules=rules,
            desired=canonical_object(declared.item | named, rules, key=key),
            live=canonical_object(live | named, rules, key=key),
            dry_run=None if dry_run is None else canonical_object(dry_run | named, rules, key=key),
            foreign=foreign,
            ours=frozenset(_stored_path(path, kind) for path in ours or ()),
            expected=None
            if declared.expected is None
            else frozenset(_stored_path(path, kind) for path in declared.expected),
            wiped=declared.applied and not present,
            comparable=ours is not None,
            renewed=renewed,
            previous=None
            if declared.previous is None
            else canonical_object(declared.previous | named, rules, key=key),
            record=record,
            known=_read_values(record.values or "") if record and renewed else {},
            key=key,
        )

    def values(self) -> Iterator[FieldDrift]:
        """Declared fields whose live value differs."""
        seen: set[Path] = set()
        for found in compare_objects(desired=self.desired, live=self.live, rules=self.rules):
            change = self._whole_item(found)
            if change.path in seen or self._dropped(found):
                continue
            if is_stored_form(found, self.api_version, self.kind, self.rules):
                continue
            seen.add(change.path)
            writer = self.writer(change.path)
            cause, evidence, confirmed = self._explained(change, writer)
            drift = self.finding(
                change, Signal.VALUE, evidence, writer=writer, cause=cause, confirmed=confirmed
            )
            untouched = writer is None or writer.manager == REPLICA_SEED_MANAGER
            pending = self.renewed and untouched and cause is not Cause.ADMISSION
            pending = pending and self._may_be_new(change.path)
            if pending and self.as_recorded(change.path) is False:
                yield replace(drift, evidence=f"{evidence}; {self._not_as_recorded}")
                continue
            yield replace(drift, pending=pending)

    def lost(self) -> Iterator[FieldDrift]:
        """What we should own and do not, although the value is as declared."""
        if not self.comparable:
            return
        should = self.expected
        if should is None:
            should = frozenset(
                path for path in leaf_paths(self.desired) if self._owned_if_sent(path)
            )
        for path in sorted(should):
            if touches(self.ours, path):
                continue
            value = value_at(self.desired, path)
            writer = self.writer(path)
            evidence = f"we no longer own it; {_describe_writer(writer)}"
            yield self.settled(Change(path=path, desired=value, live=value), Signal.LOST, evidence)

    def kept(self) -> Iterator[FieldDrift]:
        """What we still own and no longer declare: the next apply removes it."""
        seen: set[Path] = set()
        for path in sorted(self.ours if self.expected is None else self.ours - self.expected):
            root = addition_root(self.desired, path)
            if root is None or root in seen:
                continue
            seen.add(root)
            value = value_at(self.live, root)
            if value is None:
                continue
            evidence = "it was applied before, and is no longer declared"
            ours = self.record is None or (self.renewed and self._applied_before(root))
            if not ours:
                evidence = "it is under our name, and by our record we never applied it"
            kept = self.settled(Change(path=root, desired=None, live=value), Signal.KEPT, evidence)
            yield replace(kept, pending=ours)

    def additions(self) -> Iterator[FieldDrift]:
        """What other writers put beside ours, which an apply would leave in place."""
        seen: set[Path] = set()
        for entry in self.foreign:
            for path in sorted(entry.paths):
                root = addition_root(self.desired, path)
                if root is None or root in seen or covers(self.ours, root):
                    continue
                seen.add(root)
                value = value_at(self.live, root)
                if value is None or is_default(root, value) or is_derived(root, value, self.live):
                    continue
                yield self.finding(
                    Change(path=root, desired=None, live=value),
                    Signal.ADDED,
                    f"not declared; {_describe_writer(entry.writer)}",
                    writer=entry.writer,
                    cause=cause_of(entry.writer),
                )

    def unforeseen(self) -> Iterator[FieldDrift]:
        """What a dry run would change and nothing else showed."""
        if self.dry_run is None:
            return
        for found in compare_objects(desired=self.dry_run, live=self.live, rules=self.rules):
            writer = self.writer(found.path)
            evidence = f"an apply would change it; {_describe_writer(writer)}"
            drift = self.finding(
                found, Signal.DRY_RUN, evidence, writer=writer, cause=cause_of(writer)
            )
            # Fields that the server derives follow from what was declared anew.
            yield replace(drift, pending=self.renewed and writer is None)

    def settled(self, change: Change, signal: Signal, evidence: str) -> FieldDrift:
        """A finding about ownership alone, which a dry run confirms or clears."""
        writer = self.writer(change.path) if signal is Signal.LOST else None
        found = self.finding(
            change, signal, evidence, writer=writer, cause=cause_of(writer), confirmed=False
        )
        if self.dry_run is None:
            return found
        wanted = value_at(self.dry_run, change.path)
        if same_value(wanted, value_at(self.live, change.path)):
            clear = f"{evidence}; an apply would leave the value as it is"
            return replace(found, field_class=FieldClass.OBSERVED, evidence=clear, confirmed=True)
        return replace(
            found,
            change=replace(change, desired=wanted, live=value_at(self.live, change.path)),
            confirmed=True,
        )

    def finding(
        self,
        change: Change,
        signal: Signal,
        evidence: str,
        *,
        writer: Writer | None,
        cause: Cause,
        confirmed: bool = True,
    ) -> FieldDrift:
        return FieldDrift(
            change=change,
            kind=_drift_kind(change.path, self.kind),
            signal=signal,
            field_class=FieldClass.OWNED,
            evidence=evidence,
            writer=writer,
            cause=cause,
            confirmed=confirmed,
        )

    def declared_anew(self, found: FieldDrift) -> bool:
        """True when the declaration of a field is known to have changed since its last apply."""
        return found.pending or (self.previous is not None and self._may_be_new(found.change.path))

    def _may_be_new(self, path: Path) -> bool:
        """False when a field is known to be declared as it was before."""
        before = self.previous
        return before is None or not same_value(
            value_at(before, path), value_at(self.desired, path)
        )

    def as_recorded(self, path: Path) -> bool | None:
        """Say whether a field still has the value that our record of the last apply has for it.

        None for one that the record does not know, such as one that was never declared before.
        """
        if self.record is None or self.record.values is None:
            return True
        if not self.known:
            return self.previous is not None and same_value(
                value_at(self.previous, path), value_at(self.live, path)
            )
        live = self._recordable
        for length in range(len(path), 0, -1):
            name = _path_fingerprint(path[:length], self.key)
            if name in self.known:
                return self.known[name] == _value_fingerprint(
                    value_at(live, path[:length]), self.key
                )
        below = {*_leaf_paths_at(live, path), *_leaf_paths_at(self.desired, path)}
        known = [each for each in below if _path_fingerprint(each, self.key) in self.known]
        if not known:
            return None
        return all(
            self.known[_path_fingerprint(each, self.key)]
            == _value_fingerprint(value_at(live, each), self.key)
            for each in known
        )

    def _applied_before(self, path: Path) -> bool:
        """True when our record knows a field that we own and no longer declare."""
        if self.record is not None and self.record.values is None:
            return True
        return bool(self.as_recorded(path))

    @property
    def _recordable(self) -> Fields:
        """The live object in the form that records are made from."""
        if not is_custom(self.api_version):
            return self.live
        return canonical_object(self.raw, _record_rules(self.kind, self.api_version), key=self.key)

    @property
    def _not_as_recorded(self) -> str:
        if not self.known:
            return "an older version wrote down no values, so whether Git moved is unknown"
        return "by our record it had another value when it was applied, so it was changed since"

    def writer(self, path: Path) -> Writer | None:
        """The other writer who holds a field or part of it, where there is one."""
        found = [entry for entry in self.foreign if touches(entry.paths, path)]
        found.sort(key=lambda entry: (entry.at is not None, entry.at and entry.at.timestamp()))
        return found[-1].writer if found else None

    def _explained(self, change: Change, writer: Writer | None) -> tuple[Cause, str, bool]:
        if writer is not None:
            return cause_of(writer), _describe_writer(writer), True
        if self.wiped:
            return Cause.UNKNOWN, "the record of who owns what was wiped", True
        if self.dry_run is not None and same_value(
            value_at(self.dry_run, change.path), change.live
        ):
            evidence = "nobody else owns it and a dry run gives the same: the server rewrites it"
            return Cause.ADMISSION, evidence, True
        if touches(self.ours, change.path):
            evidence = (
                "we own it with another value: it was declared anew, or the server rewrote it"
            )
            if self.record is not None and not self.renewed:
                evidence = "it is under our name with a value that by our record we never applied"
            return Cause.UNKNOWN, evidence, self.dry_run is not None
        if change.live is None:
            return Cause.UNKNOWN, "removed; a removal leaves no trace of its writer", True
        return Cause.UNKNOWN, "nobody owns it", True

    def _dropped(self, change: Change) -> bool:
        """True when the server did not store a zero that we sent: it is still listed as ours.

        Had somebody removed it, it would not be.
        """
        if change.live is not None or change.desired == {} or not is_zero(change.desired):
            return False
        return not self.comparable or covers(self.ours, change.path)

    def _whole_item(self, change: Change) -> Change:
        """Report a missing list item once, not once for each of its fields."""
        if change.live is None:
            for length in range(1, len(change.path)):
                path = change.path[:length]
                if path[-1].startswith("[") and value_at(self.live, path) is None:
                    return Change(path=path, desired=value_at(self.desired, path), live=None)
        return change

    def _owned_if_sent(self, path: Path) -> bool:
        if path[0] in ("apiVersion", "kind") or path[:2] in _NAME_PATHS:
            return False
        return value_at(self.desired, path) not in ({}, [])


def record_values(
    declared: Declaration,
    live: Fields,
    *,
    key: bytes,
    left: Collection[Path] = (),
    before: str = "",
) -> str:
    """Write down which values the declared fields of an object have, as keyed digests.

    `live` is the server's answer to an apply, or an object that was found to be as declared.
    Fields in `left` were not written: of them stays what the record had `before`.
    """
    api_version = str(declared.item.get("apiVersion") or live.get("apiVersion") or "")
    kind = object_kind(declared.item) or object_kind(live)
    named: Fields = {"apiVersion": api_version, "kind": kind}
    rules = _record_rules(kind, api_version)
    desired = canonical_object(declared.item | named, rules, key=key)
    stored = canonical_object(live | named, rules, key=key)
    known = _read_values(before) if left else {}
    written = frozenset(leaf_paths(desired))
    recorded: dict[bytes, bytes] = {}
    for path in written.union(leaf_paths(stored) if left else ()):
        name = _path_fingerprint(path, key)
        if any(path[: len(each)] == each or each[: len(path)] == path for each in left):
            if name in known:
                recorded[name] = known[name]
        elif path in written:
            recorded[name] = _value_fingerprint(value_at(stored, path), key)
    packed = b"".join(name + recorded[name] for name in sorted(recorded))
    return _VALUES_PREFIX + base64.b64encode(packed).decode()


_VALUES_PREFIX = "1:"
"""How written values begin. Another number where the form that is compared becomes another."""
_FINGERPRINT_BYTES = 6
"""Bytes for a path and for a value: enough to tell the fields of one object apart."""


def has_readable_values(values: str | None) -> bool:
    """True when a record has values that this version can read."""
    return bool(values) and str(values).startswith(_VALUES_PREFIX)


def _read_values(values: str) -> dict[bytes, bytes]:
    if not values.startswith(_VALUES_PREFIX):
        return {}
    try:
        packed = base64.b64decode(values.removeprefix(_VALUES_PREFIX), validate=True)
    except binascii.Error:
        return {}
    size = 2 * _FINGERPRINT_BYTES
    return {
        packed[start : start + _FINGERPRINT_BYTES]: packed[
            start + _FINGERPRINT_BYTES : start + size
        ]
        for start in range(0, len(packed) - size + 1, size)
    }


def _path_fingerprint(path: Path, key: bytes) -> bytes:
    return blake2b("\0".join(path).encode(), key=key[:64], digest_size=_FINGERPRINT_BYTES).digest()


def _value_fingerprint(value: Tree, key: bytes) -> bytes:
    text = json.dumps(plain_tree(value), sort_keys=True, separators=(",", ":"))
    return blake2b(
        text.encode(), key=key[:64], digest_size=_FINGERPRINT_BYTES, person=b"value"
    ).digest()


def _record_rules(kind: str, api_version: str) -> Rules:
    """The rules of a kind, without what its owners at the time tell about its lists."""
    return rules_for(kind, api_version, read_ownership(None))


def _leaf_paths_at(tree: Fields, path: Path) -> Iterator[Path]:
    found = value_at(tree, path)
    if isinstance(found, dict):
        yield from leaf_paths(found, path)


_NAME_PATHS = (("metadata", "name"), ("metadata", "namespace"), ("metadata", "generateName"))


def _drift_kind(path: Path, kind: str) -> DriftKind:
    if kind == "Secret" and path[:1] == ("data",):
        return DriftKind.SECRET
    return DriftKind.IMAGE if path[-1] == "image" else DriftKind.CONFIGURATION


def _stored_path(path: Path, kind: str) -> Path:
    """Where the server keeps a field; `stringData` of a Secret is never stored as such."""
    return ("data", *path[1:]) if kind == "Secret" and path[:1] == ("stringData",) else path


def _describe_writer(writer: Writer | None) -> str:
    """Say who wrote a field, and when, as far as the API server knows."""
    if writer is None:
        return "nobody else owns it"
    if writer.manager in (MERGED_MANAGER, UNTRACKED_MANAGER):
        return f"the API server keeps it under {writer.manager}, so its writer is unknown"
    how = f"{writer.operation}, {writer.subresource}" if writer.subresource else writer.operation
    when = f" at {writer.at:%Y-%m-%dT%H:%M:%SZ}" if writer.at else " at an unknown time"
    return f"{writer.manager} ({how}) wrote it{when}"
