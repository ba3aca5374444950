"""Globs over paths: what they match, and that no glob takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.glob import Glob


@pytest.mark.parametrize(
    ("glob", "path", "good"),
    [
        ("spec.replicas", "spec.replicas", True),
        ("spec.replicas", "spec.replicasMore", False),
        ("spec.template", "spec.template.metadata", True),
        ("spec.containers", "spec.containers[name=a].image", True),
        ("spec.*.image", "spec.a.image", True),
        ("spec.*.image", "spec.a.b.image", False),
        ("spec.**.image", "spec.a.b[name=c].image", True),
        ("spec.**.env[name=HTTP_*]", "spec.a.env[name=HTTP_PROXY].value", True),
        ("spec.**.env[name=HTTP_*]", "spec.a.env[name=PATH].value", False),
        ("spec.containers[*].image", "spec.containers[name=a].image", True),
        ("**", "anything.at[all]", True),
        ("***", "anything.at[all]", True),
        ("*", "spec", True),
        ("*", "spec.a", True),
        ("a*b*c", "aXbYc", True),
        ("a*b*c", "aXbY", False),
        ("", "", True),
        ("", "spec", False),
    ],
)
def test_a_glob_matches(glob: str, path: str, good: bool) -> None:
    assert Glob(glob).matches(path) is good


def expression(glob: str) -> str:
    """The same as a regular expression, which is clear and may be slow."""
    parts = ("[^.\\[\\]]*" if part == "*" else ".*" if part[:1] == "*" else re.escape(part)
             for part in re.split(r"(\*+)", glob))  # fmt: skip
    return "".join(parts) + r"(?=$|[.\[])"


@settings(max_examples=400)
@given(glob=st.text("ab.[]*", max_size=12), path=st.text("ab.[]", max_size=16))
def test_it_is_what_the_expression_says(glob: str, path: str) -> None:
    assert Glob(glob).matches(path) is (re.match(expression(glob), path) is not None)


@pytest.mark.parametrize("star", ["*a", "**a", "**.a", "*a**b"])
def test_many_stars_take_no_longer_than_few(star: str) -> None:
    """A backtracking matcher would not come to an end here before the test is stopped."""
    hostile = "a" * 2000 + ".a" * 2000
    assert not Glob(f"spec.{star * 100}!").matches(f"spec.{hostile}")
