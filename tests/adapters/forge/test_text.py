"""What text becomes before it is written on a forge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.forge.gitlab import escape_commands
from holdfast.adapters.forge.pull_requests import (
    MAX_BODY,
    MAX_TITLE,
    fit_body,
    fit_title,
    is_same_text,
    safe_url,
)


def test_a_body_that_fits_is_left_alone() -> None:
    body = "x" * MAX_BODY
    assert fit_body(body) == body


@given(st.integers(min_value=1, max_value=300), st.booleans())
def test_a_shortened_body_fits_and_is_shortened_once(over: int, lines: bool) -> None:
    body = ("a line\n" if lines else "x") * MAX_BODY + "y" * over
    short = fit_body(body)
    assert len(short) <= MAX_BODY
    assert fit_body(short) == short
    assert "too long" in short


def test_a_marker_that_is_not_cut_off_is_not_doubled() -> None:
    marker = "<!-- holdfast:drift=drf-1 -->"
    short = fit_body(marker + "\n" + "x\n" * MAX_BODY)
    assert short.count(marker) == 1


@given(st.text(max_size=400))
def test_a_title_is_one_line_that_fits(text: str) -> None:
    title = fit_title(text)
    assert len(title) <= MAX_TITLE
    assert "\n" not in title
    assert fit_title(title) == title


@pytest.mark.parametrize(
    ("ours", "theirs", "equal"),
    [
        ("a\nb", "a\r\nb\r\n", True),
        ("a  \nb\n\n", "a\nb", True),
        ("a\n\nb", "a\nb", False),
        ("", "\n", True),
        ("a", "b", False),
    ],
)
def test_line_ends_are_no_difference(ours: str, theirs: str, equal: bool) -> None:
    assert is_same_text(ours, theirs) is equal


@given(st.text(alphabet="/ab \n\t\\"))
def test_no_line_begins_with_a_command(text: str) -> None:
    quiet = escape_commands(text)
    assert not any(
        line.strip()[:1] == "/" and line.strip()[1:2].isalpha() for line in quiet.splitlines()
    )
    assert escape_commands(quiet) == quiet


def test_only_the_web_is_linked_to() -> None:
    assert safe_url("https://git.x.org/a/b/pulls/1").startswith("https://")
    assert safe_url("javascript:alert(1)") == ""
