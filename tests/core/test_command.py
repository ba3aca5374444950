"""A command line is compared as a command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import command_pairs

from holdfast.core.command import canonical_command, shell_syntax, split_command


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("vllm serve m --a b", "vllm serve m --a=b"),
        ("vllm serve m --a 1 --b 2", "vllm serve m --b 2 --a 1"),
        ("vllm serve m --a 1", "vllm --a 1 serve m"),
        ("x --a 'b c'", 'x  --a="b c"'),
        ("x --trust-remote-code m", "x m --trust-remote-code"),
        ("x --enable-prefix-caching m", "x m --enable-prefix-caching"),
        ("x --temp -1", "x --temp=-1"),
        ("x -p 8000", "x -p=8000"),
        ("x --a ''", "x --a="),
        ("x \\\n  --a b", "x --a b"),
    ],
)
def test_another_spelling_is_the_same_command(left: str, right: str) -> None:
    assert canonical_command(left) == canonical_command(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("a b", "b a"),
        ("x --a 1 --a 2", "x --a 2 --a 1"),
        ("x --a 1", "x --a 2"),
        ("x --a", "x --a true"),
        ("x --a 1", "x --a 1 --a 1"),
        ("x -- --a", "x --a"),
        ("x --verbose", "x --quiet"),
        ("x 'a b'", "x a b"),
    ],
)
def test_a_different_command_is_different(left: str, right: str) -> None:
    assert canonical_command(left) != canonical_command(right)


@given(command_pairs())
def test_equivalent_spellings_have_one_form(pair: tuple[str, str]) -> None:
    assert canonical_command(pair[0]) == canonical_command(pair[1])


@given(st.text())
def test_any_text_has_a_form(text: str) -> None:
    assert isinstance(canonical_command(text), dict)


def test_a_line_with_an_open_quote_is_kept_as_it_stands() -> None:
    assert canonical_command("x 'a") == {"0": "x 'a"}
    with pytest.raises(ValueError):
        split_command("x 'a")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a | b", "|"),
        ("a && b", "&&"),
        ("a > log", ">"),
        ("a $(cat key)", "$(cat"),
        ("a ${PORT} --x=a|b", None),
        ("sh -c 'a | b'", None),
    ],
)
def test_shell_syntax_is_found(line: str, found: str | None) -> None:
    assert shell_syntax(split_command(line)) == found
