"""The short cut for objects that are as declared never says what the full comparison would not."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.ownership.applied_objects import applied
from tests.support.edits import DEPLOYMENT, EDITS, SECRET, Edit
from tests.support.ownership import KEY, NOW, corpus, declaration_of

from holdfast.core.ownership.fast_path import is_unchanged
from holdfast.core.ownership.object_diff import (
    ObjectDiff,
    ObjectState,
    diff_object,
)
from holdfast.core.ownership.signals import Declaration

REPLACEMENTS = ("other", "", 0, 1, True, False, 1.0, None, [], {}, ["x"], {"x": "y"}, "500m")


# Any, here and below: objects of the Kubernetes API as they come over the wire.
def captured(edit: Edit) -> dict[str, Any]:
    live: dict[str, Any] = json.loads(edit.file.read_text())["live"]
    return live


def places(tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from places(value, (*path, name))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from places(value, (*path, index))


def mutations(live: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every place of an object, with every value that might fool a comparison there."""
    for place in places(live):
        if place in (("metadata",), ("apiVersion",), ("kind",)):
            continue
        value = get(live, place)
        yield place, ...
        others = REPLACEMENTS if place[:2] != ("metadata", "managedFields") else ("other", {}, [])
        for other in others:
            yield place, other
        if isinstance(value, dict):
            for name in ("extra", "f:extra", "containerPort"):
                yield place, {**value, name: "x"}
            yield place, {**value, "protocol": "UDP"}
            yield place, {**value, "f:spec": {"f:extra": {}, "f:replicas": {}}}
        if isinstance(value, list):
            yield place, value[::-1]
            yield place, value[:-1]
            yield place, [*value, *value[-1:]]
        if isinstance(value, str) and value.isdigit():
            yield place, int(value)


def get(tree: Any, place: tuple[str | int, ...]) -> Any:
    for step in place:
        tree = tree[step]
    return tree


def mutated(live: dict[str, Any], place: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(live)
    around = get(changed, place[:-1])
    if value is ...:
        del around[place[-1]]
    else:
        around[place[-1]] = copy.deepcopy(value)
    return changed


def fully(declared: Declaration, live: dict[str, Any]) -> ObjectDiff:
    return diff_object(fast_path=False, declared=declared, live=live, key=KEY, now=NOW)


def quickly(declared: Declaration, live: dict[str, Any]) -> ObjectDiff:
    return diff_object(declared=declared, live=live, key=KEY, now=NOW)


def agree(declared: Declaration, live: dict[str, Any], place: object, value: object) -> None:
    expected = fully(declared, live)
    for _ in range(2 if expected.state is ObjectState.IN_SYNC else 1):  # the first may teach it
        assert quickly(declared, live) == expected, (place, value)


ODD: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "odd", "labels": {"selector": "x", "limits": "1000m"}},
    "spec": {
        "replicas": 1,
        "paused": False,
        "strategy": {},
        "selector": {"matchLabels": {"app": "odd"}, "matchExpressions": []},
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "app",
                        "env": [{"name": "EMPTY", "value": ""}],
                        "ports": [{"containerPort": 1}, {"containerPort": 1, "protocol": "UDP"}],
                        "resources": {"limits": {"cpu": 1, "nvidia.com/gpu": 0}},
                        "securityContext": {"privileged": False, "runAsUser": 0},
                        "command": ["a", "b"],
                    }
                ],
                "nodeSelector": {"a": "1"},
                "priority": None,
                "tolerations": [{"key": "", "tolerationSeconds": 0}],
                "volumes": [{"name": "v", "emptyDir": {}}],
            }
        },
    },
}
"""Zeros, ones, truths and empty values, which a careless comparison takes for each other."""


def test_no_single_change_of_an_odd_object_is_missed() -> None:
    declared = declaration_of(ODD)
    live = applied(ODD)
    assert quickly(declared, live).state is ObjectState.IN_SYNC
    assert is_unchanged(declared, live)
    for place, value in mutations(live):
        agree(declared, mutated(live, place, value), place, value)


@pytest.mark.parametrize(
    "edit",
    [edit for edit in EDITS if edit.name in ("nothing", "a selector of a service")],
    ids=lambda edit: edit.name,
)
def test_no_single_change_of_an_object_is_missed(edit: Edit) -> None:
    declared = declaration_of(edit.item)
    live = captured(edit)
    agree(declared, live, "as captured", None)
    for place, value in mutations(live):
        agree(declared, mutated(live, place, value), place, value)


OBJECTS = [(item, applied(item)) for item in [*corpus(), SECRET]]
OBJECTS += [(edit.item, captured(edit)) for edit in EDITS]
MUTATIONS = [(index, *each) for index, (_, live) in enumerate(OBJECTS) for each in mutations(live)]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=2))
def test_it_agrees_with_the_full_comparison_on_any_object(
    chosen: list[tuple[int, tuple[str | int, ...], Any]],
) -> None:
    index = chosen[0][0]
    item, live = OBJECTS[index]
    declared = declaration_of(item)
    agree(declared, live, "unchanged", None)
    for other, place, value in chosen:
        if other == index:
            try:
                live = mutated(live, place, value)
            except (KeyError, IndexError, TypeError):
                continue  # the first change took away where the second would be
    agree(declared, live, chosen, None)


@pytest.mark.parametrize("item", corpus(), ids=lambda item: f"{item['kind']}")
def test_every_kind_of_object_is_recognised_at_second_sight(item: dict[str, Any]) -> None:
    """A new version, another object of the same form, or an entry kept as text."""
    live = applied(item)
    declared = declaration_of(item)
    assert quickly(declared, live) == ObjectDiff(state=ObjectState.IN_SYNC), fully(declared, live)
    assert is_unchanged(declared, live)
    live["status"] = {"conditions": []}
    live["metadata"]["resourceVersion"] = "2"
    assert is_unchanged(declared, json.loads(json.dumps(live)))
    renamed = copy.deepcopy((item, live))
    for each in renamed:
        each["metadata"]["name"] = "another"
    assert is_unchanged(declaration_of(renamed[0]), renamed[1])
    for entry in live["metadata"]["managedFields"]:
        entry["fieldsV1"] = json.dumps(entry["fieldsV1"])
    assert quickly(declared, live).state is ObjectState.IN_SYNC
    assert is_unchanged(declared, live)


def test_an_edited_object_is_not_recognised() -> None:
    for edit in EDITS:
        declared = declaration_of(edit.item)
        for _ in range(2):
            found = quickly(declared, captured(edit))
        assert found == ObjectDiff(state=ObjectState.IN_SYNC) or not is_unchanged(
            declared, captured(edit)
        )


def test_another_object_of_the_same_name_is_not_recognised() -> None:
    live = captured(EDITS[0])
    mine = declaration_of(DEPLOYMENT, uid=live["metadata"]["uid"])
    assert quickly(mine, live).state is ObjectState.IN_SYNC
    live["metadata"]["uid"] = "another"
    assert quickly(mine, live).state is ObjectState.DRIFTED


def test_quantities_in_the_spelling_of_the_server_are_recognised() -> None:
    live = captured(EDITS[0])
    declared = declaration_of(DEPLOYMENT)  # says 0.5, which the server writes as 500m
    quickly(declared, live)
    assert is_unchanged(declared, live)
