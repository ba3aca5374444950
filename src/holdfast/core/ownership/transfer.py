"""Moves fields from one owner to another, by rewriting `managedFields`.

An apply removes only what its manager owned before, so what others added has to become ours
first; so has whatever makes the server refuse a heal. The keeper writes the result back, guarded
by the version that it was computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from holdfast.core.ownership.delegated import SCALED, FieldClass
from holdfast.core.ownership.objects import at, canonical_object, is_default, rules_for
from holdfast.core.ownership.owned import (
    MERGED,
    UNTRACKED,
    Entry,
    fields_of,
    read_ownership,
    segment_of,
    touches,
)
from holdfast.core.ownership.signals import Declaration, Signal
from holdfast.core.ownership.verdict import Verdict
from holdfast.core.tree import Fields, Path, Tree, plain

_UNKNOWN = (UNTRACKED, MERGED)


def take_additions(declared: Declaration, live: Fields, verdict: Verdict) -> list[Tree] | None:
    """Give us what others added and the verdict calls drift; None when there is no such thing."""
    added = {found.change.path for found in verdict.drifted if found.signal is Signal.ADDED}
    return _taken(declared, live, verdict, added) if added else None


def take_obstacles(declared: Declaration, live: Fields, verdict: Verdict) -> list[Tree] | None:
    """Give us everything undeclared beside the fields that moved, by those who moved them.

    For a heal that the server refuses because old and new do not go together: a port under two
    numbers, a volume of two kinds, a strategy with the parameters of another.
    """
    return _taken(declared, live, verdict, {found.change.path for found in verdict.drifted})


def is_owned_by_unknown(live: Fields) -> bool:
    """True when the server named an owner for what was written while it kept no record."""
    entries = read_ownership(at(live, ("metadata", "managedFields"))).entries
    return any(entry.manager == UNTRACKED for entry in entries)


def take_back(declared: Declaration, live: Fields) -> list[Tree] | None:
    """Let the server forget that unknown writers own what we own.

    After the record was wiped, the first apply leaves all fields with an owner of that name
    beside us, and nothing that we stop declaring would ever go. Inside our list items the
    defaults go along, or an item would stay behind as a shell.
    """
    api_version, kind = _named(declared, live)
    ownership = read_ownership(at(live, ("metadata", "managedFields")))
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
        value = at(tree, path)
        return value is None or is_default(path, value)

    def unknown(entry: Entry) -> bool:
        return entry.manager in _UNKNOWN and entry.api_version == api_version

    return _moved(declared, live, chosen=unknown, wanted=shared, into_ours=False)


def _taken(
    declared: Declaration, live: Fields, verdict: Verdict, moved: set[Path]
) -> list[Tree] | None:
    api_version, kind = _named(declared, live)
    ownership = read_ownership(at(live, ("metadata", "managedFields")))
    rules = rules_for(kind, api_version, ownership)
    desired = canonical_object(declared.item | {"kind": kind}, rules, key=b"")
    kept = frozenset(
        found.change.path
        for found in verdict.findings
        if found.signal is Signal.ADDED and found.field_class is not FieldClass.OWNED
    )

    def chosen(entry: Entry) -> bool:
        return entry.api_version == api_version and any(
            touches(entry.paths, path) for path in moved
        )

    # What was added lies in its parent, and the parent was added too where it is not declared:
    # left behind, the shell of a volume source would block the heal.
    roots = {_undeclared(desired, path) or path for path in moved} | {
        path[:-1] for path in moved if _undeclared(desired, path) is None and len(path) > 1
    }

    def wanted(path: Path) -> bool:
        if _undeclared(desired, path) is None or _inside(path, kept):
            return False
        if path in SCALED:
            return False  # a number that others choose; without an owner it would fall to one
        return _inside(path, roots)

    return _moved(declared, live, chosen=chosen, wanted=wanted, into_ours=True)


def _moved(
    declared: Declaration,
    live: Fields,
    *,
    chosen: Callable[[Entry], bool],
    wanted: Callable[[Path], bool],
    into_ours: bool,
) -> list[Tree] | None:
    """Rewrite the record; None when nothing moves."""
    managed = at(live, ("metadata", "managedFields"))
    api_version, _ = _named(declared, live)
    result: list[Tree] = []
    ours: Fields | None = None
    gathered: Fields = {}
    for raw in managed if isinstance(managed, list) else []:
        entries = read_ownership([raw]).entries
        if not isinstance(raw, dict) or not entries:
            continue
        [entry] = entries
        fields = plain(fields_of(raw))
        assert isinstance(fields, dict)  # noqa: S101  # a mapping stays a mapping
        if entry.operation == "Apply" and entry.manager in declared.managers:
            if entry.api_version == api_version and not entry.subresource:
                ours = fields
        elif chosen(entry):
            fields, taken = _split(fields, wanted, ())
            _merge(gathered, taken)
            if not fields:
                continue
        result.append({**raw, "fieldsV1": fields})
    if not gathered or (into_ours and ours is None):
        return None
    if into_ours and ours is not None:
        _merge(ours, gathered)
    return result


def _split(
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
            stay, go = _split(inner, wanted, path)
            kept.update({key: stay} if stay else {})
            taken.update({key: go} if go else {})
        else:
            (taken if wanted(path) else kept)[key] = inner
    if "." in fields:
        # A node goes with the last of its fields; one that parts stays where it was.
        (kept if kept else taken)["."] = {}
    return kept, taken


def _merge(into: Fields, more: Mapping[str, Tree]) -> None:
    for key, inner in more.items():
        present = into.setdefault(key, {})
        if isinstance(present, dict) and isinstance(inner, dict):
            _merge(present, inner)


def _undeclared(desired: Fields, path: Path) -> Path | None:
    """The outermost part of a path that is not declared; None when all of it is."""
    tree: Tree = desired
    for length, segment in enumerate(path, 1):
        if not isinstance(tree, dict):
            return None
        if segment not in tree:
            return path[:length]
        tree = tree[segment]
    return None


def _inside(path: Path, roots: Iterable[Path]) -> bool:
    return any(path[: len(root)] == root for root in roots)


def _named(declared: Declaration, live: Fields) -> tuple[str, str]:
    item = live | declared.item
    return str(item.get("apiVersion") or ""), str(item.get("kind") or "")
