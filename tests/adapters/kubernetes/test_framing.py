"""Lines come out whole, however the stream was cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.kubernetes.watch import LineFramer, LineTooLong


@given(
    lines=st.lists(st.text("ab{}", min_size=1, max_size=20).map(str.encode), max_size=8),
    cuts=st.lists(st.integers(min_value=1, max_value=9), min_size=1, max_size=5),
)
def test_lines_come_out_whole_at_any_cut(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    framer, got, at, turn = LineFramer(), [], 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        got += framer.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert got == lines
    assert framer.partial == 0


def test_a_line_of_many_megabytes_passes() -> None:
    framer, long = LineFramer(), b"x" * 5_000_000
    assert framer.feed(long) == []
    assert framer.feed(b"\nrest") == [long]
    assert framer.partial == 4


def test_a_stream_without_lines_is_refused_at_the_limit() -> None:
    framer = LineFramer(limit=10)
    framer.feed(b"12345678")
    with pytest.raises(LineTooLong):
        framer.feed(b"90abc")
