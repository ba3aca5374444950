"""What it means that Git should declare a live value: which fields, which values, in which form.

Pure parts of codify. The verdict compares canonical forms, which nobody would write into a file;
here they become what people write, spelled as the server spells it. `reconcile/gitops/codify.py`
finds the file and makes the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.core.align import align
from holdfast.core.diff import same_value
from holdfast.core.errors import ValidationError
from holdfast.core.normalize import Rules, item_segment
from holdfast.core.object_ref import ObjectRef
from holdfast.core.ownership.canonical import (
    BOOKKEEPING_ANNOTATIONS,
    PRESENCE_FIELDS,
    is_default,
    is_item,
    raw_value_at,
    rules_for,
)
from holdfast.core.ownership.managed_fields import read_ownership, touches
from holdfast.core.ownership.signals import FieldDrift, Signal
from holdfast.core.redact import redact_tree
from holdfast.core.tree import Fields, Path, Tree, show_path


class CannotCodify(ValidationError):
    """The live value cannot be declared by an edit of ours; the reasons say what was tried."""


class SecretInClear(CannotCodify):
    """The live value is a secret, and the file would hold it in clear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLines:
    """Which lines of a file an edit touches, counted from 1."""

    file: str
    added: tuple[int, ...]
    """In the file as it is afterwards."""
    removed: tuple[int, ...]
    """In the file as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodifyResult:
    """The edit that makes a repository declare what is live."""

    files: Mapping[str, bytes | None]
    """Path from the root to the new content; None deletes."""
    before: Mapping[str, bytes | None] = field(default_factory=dict)
    """The same files as they are; None for one that is new."""
    lines: tuple[FileLines, ...]
    layer: str
    """The files that were chosen, for people."""
    notes: tuple[str, ...] = ()
    """What a reviewer should know, in sentences."""
    repointed: tuple[ObjectRef, ...] = ()
    """Other objects that change with it: they refer to it by a name with a hash of its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldEdit:
    """One field of an object as it should be declared."""

    path: Path
    value: Tree
    removed: bool = False
    """It should not be declared any more; `value` says nothing then."""


def field_edits(
    field_drifts: Sequence[FieldDrift],
    *,
    declared: Fields,
    live: Fields,
    rules: Rules,
    sealed: bool = False,
) -> tuple[FieldEdit, ...]:
    """Return what to declare so that each finding is none any more. `sealed`: in encrypted form.

    Raises SecretInClear when a value looks like a credential, or stands under a name for one.
    """
    found: list[FieldEdit] = []
    for finding in field_drifts:
        change = finding.change
        if not change.path or same_value(change.desired, change.live):
            continue
        raw = raw_value_at(live, change.path, rules)
        if change.live is None or raw is None:
            found.append(FieldEdit(path=change.path, value=None, removed=True))
            continue
        # What pods run is not in the object, so there is no spelling of it there.
        value = (
            change.live if finding.signal is Signal.RUNNING else _server_spelling(change.live, raw)
        )
        if finding.signal is Signal.ADDED:
            value = without_defaults(change.path, value)
        found.append(FieldEdit(path=change.path, value=value))
    found = _without_empty_parents(found, declared, live, rules)
    if not sealed:
        _check_no_secret(found, live, rules)
    return tuple(found)


def counted_path(tree: Tree, path: Path, rules: Rules) -> tuple[str | int, ...]:
    """Write a path that names list items by key as one that counts them, in a given tree.

    An item that is not there gets the index behind the last one.
    """
    found: list[str | int] = []
    name = ""
    for segment in path:
        if segment.startswith("[") and (tree is None or isinstance(tree, list)):
            items = tree or []
            at = (i for i, item in enumerate(items) if is_item(item, segment, name, rules))
            index = next(at, len(items))
            found.append(index)
            tree = items[index] if index < len(items) else None
        else:
            found.append(segment)
            tree = tree.get(segment) if isinstance(tree, dict) else None
        name = segment
    return tuple(found)


def merge_patch_for(edit: FieldEdit, whole: Fields, rules: Rules) -> Tree:
    """Return the least part of an object that says a wish, as a strategic merge patch would."""
    return _merge_patch_part(edit, edit.path, whole, rules, "")


def merge_patch(tree: Tree, part: Tree, rules: Rules, name: str = "") -> Tree:
    """Put a part of an object into another, list items matched by their key."""
    if isinstance(tree, dict) and isinstance(part, dict):
        inner = {key: merge_patch(tree.get(key), value, rules, key) for key, value in part.items()}
        return {**tree, **inner}
    if isinstance(tree, list) and isinstance(part, list):
        items = list(tree)
        for item in part:
            at = (i for i, old in enumerate(items) if _same_item(old, item, name, rules))
            index = next(at, None)
            if index is None:
                items.append(item)
            else:
                items[index] = merge_patch(items[index], item, rules)
        return items if rules.keyed.get(name) else part
    return part


def manifest_of(live: Fields) -> Fields:
    """Return an object as its owner would have written it: nothing that the server filled in.

    What some writer claims by `managedFields` counts, apart from what controllers report.
    """
    api_version, kind = str(live.get("apiVersion")), str(live.get("kind"))
    metadata = live.get("metadata")
    source = metadata if isinstance(metadata, dict) else {}
    ownership = read_ownership(source.get("managedFields"))
    claimed = frozenset[Path]().union(
        *(entry.paths for entry in ownership.entries if not entry.subresource)
    )
    rules = rules_for(kind, api_version, ownership)
    named: Fields = {key: source[key] for key in ("name", "namespace") if source.get(key)}
    for key in ("labels", "annotations"):
        pairs = source.get(key)
        kept = (
            {name: text for name, text in pairs.items() if _is_user_key(name)}
            if isinstance(pairs, dict)
            else {}
        )
        if kept:
            named[key] = kept
    body: Fields = {
        name: _claimed_part((name,), value, claimed, rules)
        for name, value in live.items()
        if name not in ("apiVersion", "kind", "metadata", "status")
        and (not claimed or touches(claimed, (name,)))
    }
    tidy = {
        name: without_defaults((name,), value)
        for name, value in body.items()
        if not is_default((name,), value)
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": named, **tidy}


def without_defaults(path: Path, value: Tree) -> Tree:
    """Leave out of an addition what the API server filled in."""
    if isinstance(value, dict):
        return {
            name: without_defaults((*path, name), item)
            for name, item in value.items()
            if name in PRESENCE_FIELDS or not is_default((*path, name), item)
        }
    if isinstance(value, list):
        return [without_defaults((*path, "[]"), item) for item in value]
    return value


def touched_lines(file: str, before: bytes | None, after: bytes | None) -> FileLines:
    """Compare two versions of a file line by line."""
    old, new = (before or b"").splitlines(), (after or b"").splitlines()
    added: list[int] = []
    removed: list[int] = []
    for tag, i1, i2, j1, j2 in align(old, new):
        if tag != "equal":
            removed.extend(range(i1 + 1, i2 + 1))
            added.extend(range(j1 + 1, j2 + 1))
    return FileLines(file=file, added=tuple(added), removed=tuple(removed))


def _server_spelling(form: Tree, raw: Tree) -> Tree:
    """Give a canonical value the server's spelling, without what was left out of the former."""
    if isinstance(form, dict) and isinstance(raw, dict):
        return {
            name: _server_spelling(form[name], item) for name, item in raw.items() if name in form
        }
    if isinstance(form, dict) and isinstance(raw, list) and len(form) == len(raw):
        return [
            _server_spelling(inner, item) for inner, item in zip(form.values(), raw, strict=True)
        ]
    if isinstance(form, list) and isinstance(raw, list) and len(form) == len(raw):
        return [_server_spelling(inner, item) for inner, item in zip(form, raw, strict=True)]
    return raw


def _without_empty_parents(
    found: list[FieldEdit], declared: Fields, live: Fields, rules: Rules
) -> list[FieldEdit]:
    """Where everything in a mapping or list goes and the live side has none, it goes itself."""
    while True:
        gone = [edit for edit in found if edit.removed and len(edit.path) > 1]
        for edit in gone:
            around = edit.path[:-1]
            held = raw_value_at(declared, around, rules)
            inside = sum(other.path[:-1] == around for other in gone)
            empty = raw_value_at(live, around, rules) in (None, {}, [])
            if empty and isinstance(held, dict | list) and inside == len(held):
                kept = [other for other in found if other.path[: len(around)] != around]
                found = [*kept, FieldEdit(path=around, value=None, removed=True)]
                break
        else:
            return found


def _check_no_secret(found: Sequence[FieldEdit], live: Fields, rules: Rules) -> None:
    masked = redact_tree(live)
    for edit in found:
        if edit.removed:
            continue
        plain = raw_value_at(live, edit.path, rules)
        if not same_value(raw_value_at(masked, edit.path, rules), plain):
            raise _credential(f"The live value of {show_path(edit.path)}")


def refuse_credentials(item: Fields, name: str) -> None:
    """Raise SecretInClear when something in an object looks like a credential."""
    if not same_value(redact_tree(item), item):
        raise _credential(f"Something in {name}")


def _credential(what: str) -> SecretInClear:
    return SecretInClear(
        f"{what} looks like a credential, which Git would hold in clear.",
        hint="Keep it in an encrypted Secret and refer to that, or put the declared value back.",
    )


def _merge_patch_part(edit: FieldEdit, rest: Path, whole: Tree, rules: Rules, name: str) -> Tree:
    if not rest:
        return None if edit.removed else edit.value
    segment = rest[0]
    if segment.startswith("[") and isinstance(whole, list | None):
        items = whole or []
        found = next((item for item in items if is_item(item, segment, name, rules)), None)
        source = edit.value if found is None and len(rest) == 1 else found
        keys = _key_fields(source, segment)
        if len(rest) == 1:
            inner: Tree = {"$patch": "delete"} if edit.removed else edit.value
        else:
            inner = _merge_patch_part(edit, rest[1:], found, rules, segment)
        return [{**keys, **(inner if isinstance(inner, dict) else {})}]
    below = whole.get(segment) if isinstance(whole, dict) else None
    return {segment: _merge_patch_part(edit, rest[1:], below, rules, segment)}


def _key_fields(item: Tree, segment: str) -> Fields:
    names = [part.partition("=")[0] for part in segment[1:-1].split(",")]
    fields = item if isinstance(item, dict) else {}
    return {name: fields[name] for name in names if name in fields}


def _same_item(old: Tree, item: Tree, name: str, rules: Rules) -> bool:
    for key in rules.keyed.get(name, ()):
        segment = item_segment(item, key)
        if segment is not None:
            return item_segment(old, key) == segment
    return same_value(old, item)


def _claimed_part(path: Path, value: Tree, claimed: frozenset[Path], rules: Rules) -> Tree:
    if not claimed:
        return value
    if isinstance(value, dict):
        return {
            name: _claimed_part((*path, name), item, claimed, rules)
            for name, item in value.items()
            if touches(claimed, (*path, name))
        }
    keys = rules.keyed.get(path[-1], ()) if isinstance(value, list) else ()
    for key in keys:
        segments = [item_segment(item, key) for item in value] if isinstance(value, list) else []
        if segments and all(segments) and isinstance(value, list):
            return [
                _claimed_part((*path, segment), item, claimed, rules)
                for segment, item in zip(segments, value, strict=True)
                if segment and touches(claimed, (*path, segment))
            ]
    return value


def _is_user_key(name: str) -> bool:
    return name not in BOOKKEEPING_ANNOTATIONS and not name.startswith("holdfast.dev/")
