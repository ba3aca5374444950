"""Laws of plain nested values."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.tree import Tree, digest, identical

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-2, max_value=2),
    st.sampled_from((-1.0, 0.0, 0.5, 1.0)),
    st.sampled_from(("", "a", "1", "true")),
)
TREES: st.SearchStrategy[Tree] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(one=TREES, other=TREES)
def test_trees_are_the_same_exactly_when_their_digests_are(one: Tree, other: Tree) -> None:
    assert identical(one, other) is (digest(one) == digest(other))


@given(tree=TREES)
def test_a_tree_is_the_same_as_its_copy(tree: Tree) -> None:
    assert identical(tree, json.loads(json.dumps(tree)))


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), (0, False), (None, False)])
def test_values_that_python_takes_for_equal_are_not_the_same(one: Tree, other: Tree) -> None:
    assert not identical({"a": [one]}, {"a": [other]})
