"""What an ignore rule leaves alone, and that it leaves alone nothing else."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.core.ownership.applied_objects import NOBODY, applied, fields_v1_of
from tests.support.manifests import corpus_items
from tests.support.ownership import KEY, NOW, declaration_of

from holdfast.core.errors import ConfigurationError
from holdfast.core.ownership.canonical import (
    canonical_object,
    leaf_paths,
    path_of_pointer,
    rules_for,
    value_at,
)
from holdfast.core.ownership.healing import item_to_apply
from holdfast.core.ownership.ignore import IgnoreRule
from holdfast.core.ownership.managed_fields import read_ownership
from holdfast.core.ownership.object_diff import diff_object
from holdfast.core.tree import Fields, Path, json_pointer, show_path

# Any, here and below: objects of the Kubernetes API as they come over the wire.
ITEMS: list[Any] = corpus_items()
EDITOR = "kubectl-edit"
Place = tuple[str | int, ...]


def canonical(item: Fields) -> Fields:
    kind, version = str(item["kind"]), str(item["apiVersion"])
    return canonical_object(item, rules_for(kind, version, NOBODY), key=KEY)


def places(tree: object, place: Place = ()) -> list[Place]:
    """Where every value of an object stands, below its top."""
    inner: list[tuple[str | int, object]] = []
    if isinstance(tree, dict):
        inner = list(tree.items())
    elif isinstance(tree, list):
        inner = list(enumerate(tree))
    found = [each for name, value in inner for each in places(value, (*place, name))]
    return found or ([place] if len(place) > 1 and tree is not None else [])


@st.composite
def edited(draw: st.DrawFn) -> tuple[Any, Any, list[Path]]:
    """A declared object, the live one after others changed some of its values, and which."""
    item = draw(st.sampled_from(ITEMS))
    live = applied(item)
    rules = rules_for(item["kind"], item["apiVersion"], NOBODY)
    all_leaves = [
        path for path in leaf_paths(canonical(item)) if path[0] not in ("apiVersion", "kind")
    ]
    candidates = [
        place for place in places(item) if place[0] != "stringData" and place[1:2] != ("name",)
    ]
    assume(candidates)
    moved: list[Path] = []
    for place in draw(st.lists(st.sampled_from(candidates), min_size=1, max_size=3, unique=True)):
        around: Any = live
        for step in place[:-1]:
            around = around[step]
        around[place[-1]] = "another"
        path = path_of_pointer(item, tuple(map(str, place)), rules)
        moved += [leaf for leaf in all_leaves if leaf == path[: len(leaf)]]
    ours, status = live["metadata"]["managedFields"]
    theirs = copy.deepcopy(ours) | {"manager": EDITOR, "operation": "Update"}
    taken = draw(st.sampled_from([moved, moved[:1], []]))
    ours["fieldsV1"] = fields_v1_of(path for path in all_leaves if path not in taken)
    theirs["fieldsV1"] = fields_v1_of(taken)
    live["metadata"]["managedFields"] = [ours, theirs, status]
    return item, live, moved


@st.composite
def ignoring(draw: st.DrawFn, item: Any, moved: list[Path]) -> IgnoreRule:
    """A rule about one of the values that moved, about any other, or about their writer."""
    named: dict[str, Any] = {"name": "rule", "owner": "us", "security": True}
    place = draw(st.sampled_from(places(item)))
    ways = ["pointer", "inner", "manager"] + (["glob", "wide"] if moved else [])
    path = show_path(draw(st.sampled_from(moved))) if moved else ""
    match draw(st.sampled_from(ways)):
        case "pointer":
            named["pointer"] = json_pointer(tuple(map(str, place)))
        case "inner":
            named["pointer"] = json_pointer(tuple(map(str, place[: max(2, len(place) - 1)])))
        case "glob":
            named["glob"] = path
        case "wide":
            named["glob"] = path.rpartition(".")[0] + ".*"
        case "manager":
            named["manager"] = "kubectl-*"
    try:
        return IgnoreRule(**named)
    except ConfigurationError:
        assume(False)
        raise


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_an_ignore_rule_alters_no_other_field_of_what_is_written(data: st.DataObject) -> None:
    item, live, moved = data.draw(edited())
    rule = data.draw(ignoring(item, moved))
    declared = declaration_of(item)
    diff = diff_object(
        fast_path=False, declared=declared, live=live, key=KEY, now=NOW, ignore=[rule]
    )
    written = item_to_apply(declared, live, diff)
    hidden = [path for _, path in diff.ignored_paths]
    entries = read_ownership(live["metadata"]["managedFields"]).entries
    alone = [
        path[:end]
        for path in hidden
        for end in range(1, len(path) + 1)
        if end == len(path) or any(path[:end] in entry.paths for entry in entries)
    ]
    before, after = canonical(item), canonical(written)
    for path in {*leaf_paths(before), *leaf_paths(after)}:
        if not any(_related(path, left) for left in alone):
            assert value_at(after, path) == value_at(before, path), (rule, path)
    assert hidden or written == item


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_is_ignored_and_still_ours_keeps_its_live_value(data: st.DataObject) -> None:
    """Leaving it out of an apply would delete it."""
    item, live, moved = data.draw(edited())
    rule = data.draw(ignoring(item, moved))
    declared = declaration_of(item)
    diff = diff_object(
        fast_path=False, declared=declared, live=live, key=KEY, now=NOW, ignore=[rule]
    )
    written, seen = canonical(item_to_apply(declared, live, diff)), canonical(live)
    ours = read_ownership(live["metadata"]["managedFields"]).ours(
        declared.managers, item["apiVersion"]
    )
    for _, path in diff.ignored_paths:
        if ours and path in ours:
            assert value_at(written, path) == value_at(seen, path), (rule, path)


def _related(one: Path, other: Path) -> bool:
    short = min(len(one), len(other))
    return one[:short] == other[:short]
