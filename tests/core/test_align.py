"""Two sequences are aligned truly, closely where that is cheap, and in linear time."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.align import align

LINES = st.lists(st.sampled_from("abcdefgh"), max_size=40)


@given(LINES, LINES)
def test_what_it_says_makes_one_of_the_other(old: list[str], new: list[str]) -> None:
    made: list[str] = []
    done = to = 0
    for tag, first, last, start, end in align(old, new):
        assert (first, start) == (done, to), "the parts follow each other"
        assert (tag == "equal") == (old[first:last] == new[start:end])
        assert (tag == "delete") == (start == end)
        assert (tag == "insert") == (first == last)
        made += old[first:last] if tag == "equal" else new[start:end]
        done, to = last, end
    assert made == new
    assert (done, to) == (len(old), len(new))


@given(LINES, st.lists(st.integers(), max_size=3), LINES)
def test_what_is_put_in_the_middle_is_all_that_changes(
    head: list[str], inner: list[int], tail: list[str]
) -> None:
    old: list[str | int] = [*head, "here", *tail]
    new: list[str | int] = [*head, *inner, *tail]
    changed = [each for each in align(old, new) if each[0] != "equal"]
    assert sum(last - first for _, first, last, _, _ in changed) == 1
    assert sum(end - start for _, _, _, start, end in changed) == len(inner)


def test_lines_that_repeat_take_no_longer_than_others() -> None:
    lines = ["aaaaaa", "bbbbbb"] * 4_000
    other = ["z", *lines[5:4_000], "y", *lines[4_000:-7], "q"]
    began = time.monotonic()
    assert align(lines, other)
    assert time.monotonic() - began < 3, "it takes hundredths, and difflib a quarter of a minute"
