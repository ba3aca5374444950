"""Canonical forms and the changes between them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import fields, mappings, objects, trees

from holdfast.core.backends import Backend
from holdfast.core.diff import Change, diff, same_value
from holdfast.core.normalize import WORKLOAD_RULES, Rules, normalize, normalize_workload
from holdfast.core.tree import (
    Fields,
    Tree,
    digest,
    json_pointer,
    parse_pointer,
    plain_tree,
    show_path,
)

OBJECT_RULES = Rules(
    keyed={"containers": ("name",), "env": ("name",), "ports": ("port", "name")},
    quantities=frozenset({"limits"}),
    exclusive=frozenset({"data"}),
)


def changed(desired: Fields, live: Fields) -> list[tuple[str, Tree, Tree]]:
    changes = diff(
        desired=normalize_workload(desired), live=normalize_workload(live), rules=WORKLOAD_RULES
    )
    return [(show_path(each.path), each.desired, each.live) for each in changes]


def shuffled(value: Tree, source: random.Random) -> Tree:
    if isinstance(value, dict):
        keys = list(value)
        source.shuffle(keys)
        return {key: shuffled(value[key], source) for key in keys}
    if isinstance(value, list):
        return [shuffled(item, source) for item in value]
    return value


@given(st.one_of(fields(), mappings()))
def test_normalizing_twice_is_normalizing_once(tree: Fields) -> None:
    once = normalize_workload(tree)
    assert normalize_workload(once) == once


@given(objects())
def test_normalizing_an_object_twice_is_normalizing_it_once(tree: Fields) -> None:
    once = normalize(tree, OBJECT_RULES)
    assert normalize(once, OBJECT_RULES) == once


@given(st.one_of(fields(), mappings()))
def test_a_thing_does_not_differ_from_itself(tree: Fields) -> None:
    assert changed(tree, tree) == []


@given(objects())
def test_an_object_does_not_differ_from_itself(tree: Fields) -> None:
    form = normalize(tree, OBJECT_RULES)
    assert isinstance(form, dict)
    assert diff(desired=form, live=form, rules=OBJECT_RULES) == ()


@given(mappings(), mappings(), st.randoms(use_true_random=False))
def test_the_order_of_keys_changes_neither_the_changes_nor_their_order(
    desired: Fields, live: Fields, source: random.Random
) -> None:
    left, right = shuffled(desired, source), shuffled(live, source)
    assert isinstance(left, dict)
    assert isinstance(right, dict)
    assert changed(left, right) == changed(desired, live)


@given(fields(), fields())
def test_a_field_left_unset_is_never_drift(desired: Fields, live: Fields) -> None:
    paths = {path.split(".")[0] for path, _, _ in changed(desired, live)}
    assert paths <= set(normalize_workload(desired))


@given(fields())
def test_every_declared_field_is_missed_when_nothing_is_there(desired: Fields) -> None:
    paths = {path.split(".")[0] for path, _, _ in changed(desired, {})}
    form = normalize_workload(desired)
    empty = {name for name, value in form.items() if _is_empty(value)}
    assert paths == set(form) - empty


def _is_empty(value: Tree) -> bool:
    return isinstance(value, dict) and all(_is_empty(item) for item in value.values())


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (False, 0, False),
        ([1], [1.0], True),
        ([True], [1], False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": True}, {"a": 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ("1", 1, False),
        (None, None, True),
        (None, False, False),
        ("", None, False),
        ([], {}, False),
    ],
)
def test_equal_means_equal_in_value_and_in_kind(left: Tree, right: Tree, equal: bool) -> None:
    assert same_value(left, right) is equal
    assert same_value(right, left) is equal


@pytest.mark.parametrize(
    ("desired", "live"),
    [
        ({"replicas": 2},
         {"execution_policy": "fixed", "execution_policy_config": {"replicas": 2}}),
        ({"replicas": 1}, {"execution_policy": "fixed"}),
        ({"replicas": 1}, {"execution_policy": "fixed", "execution_policy_config": {}}),
        ({"execution_policy": "fixed", "execution_policy_config": {"replicas": 3}},
         {"replicas": 3}),
        ({"resources": {"memory": "1Gi"}}, {"resources": {"memory": "1024Mi", "cpu": "1"}}),
        ({"health": {"interval": "1m"}}, {"health": {"interval": 60}}),
        ({"health": {"interval": 0.5}}, {"health": {"interval": "500ms"}}),
        ({"cache": {"size": "50Gi"}}, {"cache": {"size": "51200Mi"}}),
        ({"rollout": {"drain_timeout": "90s"}}, {"rollout": {"drain_timeout": "1m30s"}}),
        ({"command": "a --x 1"}, {"command": "a --x=1"}),
        ({"canary": {"command": "a --x 1 --y"}}, {"canary": {"command": "a --y --x=1"}}),
        ({"config": {"a": 1.0, "b": None}}, {"config": {"a": 1}}),
        ({"env": {}}, {}),
        ({"config": {"a": {}}}, {"config": {"a": {}}}),
    ],
)  # fmt: skip
def test_another_spelling_is_no_drift(desired: Fields, live: Fields) -> None:
    assert changed(desired, live) == []


@pytest.mark.parametrize(
    ("desired", "live", "expected"),
    [
        ({"replicas": 2}, {"replicas": 3}, [("replicas", 2, 3)]),
        ({"replicas": 2}, {}, [("replicas", 2, None)]),
        ({"env": {"A": "1"}}, {"env": {"A": "1", "B": "2"}}, [("env.B", None, "2")]),
        ({"env": {}}, {"env": {"B": "2"}}, [("env.B", None, "2")]),
        ({"config": {"a": {"b": 1}}}, {"config": {"a": {"b": 1, "c": 2}}},
         [("config.a.c", None, 2)]),
        ({"resources": {"cpu": "1"}}, {"resources": {"cpu": "2", "gpu": 1}},
         [("resources.cpu", "1", "2")]),
        ({"command": "a --x 1"}, {"command": "a --x 2 --y"},
         [("command.--x", "1", "2"), ("command.--y", None, True)]),
        ({"command": "a"}, {}, [("command.0", "a", None)]),
        ({"args": ["a", "b"]}, {"args": ["b", "a"]}, [("args", ["a", "b"], ["b", "a"])]),
        ({"config": {"a": True}}, {"config": {"a": 1}}, [("config.a", True, 1)]),
        ({"config": {"a": {"b": 1}}}, {"config": {"a": 5}}, [("config.a", {"b": 1}, 5)]),
        # Keys of the user's own are text, whatever they are called.
        ({"env": {"timeout": "60s"}}, {"env": {"timeout": "1m"}}, [("env.timeout", "60s", "1m")]),
        ({"env": {"cpu": "1.0"}}, {"env": {"cpu": "1"}}, [("env.cpu", "1.0", "1")]),
        ({"config": {"x": {"command": "a --b 1"}}}, {"config": {"x": {"command": "a --b=1"}}},
         [("config.x.command", "a --b 1", "a --b=1")]),
    ],
)  # fmt: skip
def test_a_difference_is_named_by_its_field(
    desired: Fields, live: Fields, expected: list[tuple[str, Tree, Tree]]
) -> None:
    assert changed(desired, live) == expected


def test_items_of_a_keyed_list_are_matched_by_their_key() -> None:
    desired: Fields = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
    live: Fields = {
        "env": [{"name": "X", "value": "0"}, {"name": "B", "value": "3"},
                {"name": "A", "value": "1"}]
    }  # fmt: skip
    left, right = normalize(desired, OBJECT_RULES), normalize(live, OBJECT_RULES)
    assert isinstance(left, dict)
    assert isinstance(right, dict)
    (change,) = diff(desired=left, live=right, rules=OBJECT_RULES)
    assert change == Change(path=("env", "[name=B]", "value"), desired="2", live="3")
    assert show_path(change.path) == "env[name=B].value"


@pytest.mark.parametrize(
    "items",
    [
        [{"name": "A"}, {"name": "A"}],
        [{"name": "A"}, {"other": 1}],
        [{"name": "A"}, "text"],
        [{"name": None}],
    ],
)
def test_a_list_without_one_key_for_each_item_stays_a_list(items: list[Tree]) -> None:
    form = normalize({"env": items}, OBJECT_RULES)
    assert isinstance(form, dict)
    assert isinstance(form["env"], list)


def test_the_second_key_is_tried_when_the_first_does_not_fit() -> None:
    form = normalize({"ports": [{"name": "a"}, {"name": "b"}]}, OBJECT_RULES)
    assert form == {"ports": {"[name=a]": {"name": "a"}, "[name=b]": {"name": "b"}}}


@given(st.lists(st.text(), min_size=1).map(tuple))
def test_a_pointer_reads_back(path: tuple[str, ...]) -> None:
    assert parse_pointer(json_pointer(path)) == path


def test_the_empty_pointer_is_the_whole() -> None:
    assert parse_pointer("") == ()


@given(mappings(), st.randoms(use_true_random=False))
def test_a_digest_does_not_depend_on_the_order_of_keys(tree: Fields, source: random.Random) -> None:
    assert digest(tree) == digest(shuffled(tree, source))


@given(trees(), trees())
def test_different_values_have_different_digests(left: Tree, right: Tree) -> None:
    assert (digest(left) == digest(right)) == (repr(_sorted(left)) == repr(_sorted(right)))


def _sorted(value: Tree) -> Tree:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def test_plain_copies_and_refuses_what_has_no_plain_form() -> None:
    inner = [1, (2.5, None)]
    copied = plain_tree({"a": inner, Backend.VLLM: Backend.VLLM})
    inner.append(3)
    assert copied == {"a": [1, [2.5, None]], "vllm": "vllm"}
    assert isinstance(copied, dict)
    assert type(copied["vllm"]) is str
    with pytest.raises(TypeError):
        plain_tree({"a": object()})
