"""Quantities and durations, the usual and the weird."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import DURATIONS, QUANTITIES

from holdfast.core.quantity import (
    canonical_quantity,
    format_seconds,
    parse_duration,
    parse_quantity,
    readable_quantity,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", "0.5"), ("0.5", "0.5"), (".5", "0.5"), ("5.", "5"), ("1", "1"), (1, "1"),
        (1.5, "1.5"), ("16Gi", "17179869184"), ("1k", "1000"), ("1e3", "1000"), ("1E3", "1000"),
        ("1E", "1000000000000000000"), ("100n", "0.0000001"), ("2u", "0.000002"), ("+2", "2"),
        ("-0", "0"), ("0Gi", "0"), ("-1", "-1"), (" 4 ", "4"), ("1.0", "1"), (1e22, "1" + "0" * 22),
        ("1234567890123456789012345678901", "1234567890123456789012345678901"),
    ],
)  # fmt: skip
def test_a_quantity_is_read_exactly(text: str | float, value: str) -> None:
    assert parse_quantity(text) == Decimal(value)
    assert canonical_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "Gi", "1 Gi", "1gi", "1KiB", "0x10", "1_000", "١", "inf", "nan", "1e1000", "--1",
     "1" * 41, 10**41, pytest.param(10**5000, id="5001 digits"), float("inf"), float("nan"), True,
     "1m30s", "\n", "1e"],
)  # fmt: skip
def test_what_is_no_quantity_is_none(text: str | float) -> None:
    assert parse_quantity(text) is None


def test_what_is_no_quantity_is_left_as_it_is() -> None:
    assert canonical_quantity("lots") == "lots"


@given(QUANTITIES)
def test_a_canonical_quantity_is_its_own_canonical_form(text: str) -> None:
    once = canonical_quantity(text)
    assert canonical_quantity(once) == once
    assert parse_quantity(once) == parse_quantity(text)


@given(st.one_of(st.text(), st.integers(), st.floats()))
def test_anything_may_be_asked(value: str | float) -> None:
    parse_quantity(value)
    parse_duration(value)
    assert isinstance(canonical_quantity(value), str)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10), ("1m30s", 90), ("500ms", 0.5), ("2.5", 2.5), ("2.5s", 2.5), ("1h", 3600),
        ("1h1m1s1ms", 3661.001), (7, 7), (0.25, 0.25), ("0s", 0), ("5m", 300), ("5ms", 0.005),
        (" 3s ", 3), ("1m0.1s", 60.1), ("1h0.7s", 3600.7),
    ],
)  # fmt: skip
def test_a_duration_is_read(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "-1s", "s", "1s1m", "1 s", "1ns", "10x", "٣s", True, -1, "1" * 41,
     pytest.param(10**400, id="401 digits"),     "1e3", "inf", "nan", "P1D"],
)  # fmt: skip
def test_what_is_no_duration_is_none(text: str | float) -> None:
    assert parse_duration(text) is None


@given(DURATIONS)
def test_every_drawn_duration_is_read(value: str | float) -> None:
    assert parse_duration(value)


def test_a_long_hostile_text_is_read_in_linear_time() -> None:
    for text in ("1" * 655_360, "1m" * 327_680, "1." * 327_680, "1e" * 327_680):
        assert parse_quantity(text) is None
        assert parse_duration(text) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("8589934592", "8Gi"), ("8Gi", "8Gi"), (8589934592, "8Gi"), ("1024", "1Ki"),
        ("1536Mi", "1536Mi"), ("5000000000", "5G"), ("8589934593", "8589934593"), ("0.5", "500m"),
        ("0.0005", "0.0005"), ("2", "2"), ("0", "0"), ("many", "many"), ("1000", "1000"),
    ],
)  # fmt: skip
def test_an_amount_is_shown_as_people_write_it(value: str | int, text: str) -> None:
    assert readable_quantity(value) == text


@given(QUANTITIES)
def test_an_amount_that_is_shown_is_the_same_amount(text: str) -> None:
    assert parse_quantity(readable_quantity(text)) == parse_quantity(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (14.9941, "15 s"), (900, "900 s"), (2_000_000.0, "2000000 s"), (2.5, "2.5 s"), (3.0, "3 s"),
        (0.7, "0.7 s"), (0.004, "0.004 s"), (9.96, "10 s"), (0, "0 s"),
    ],
)  # fmt: skip
def test_a_time_is_told_as_people_do(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
