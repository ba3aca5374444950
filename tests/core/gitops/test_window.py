"""Windows: when the controller may write by itself, over days on which the clocks are changed."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.gitops.application import WindowKind, WindowSpec
from holdfast.core.gitops.window import schedule_problem, window_state, zone_problem


def allow(schedule: str, duration: str, zone: str | None = None) -> WindowSpec:
    return WindowSpec(kind=WindowKind.ALLOW, schedule=schedule, duration=duration, time_zone=zone)


def deny(schedule: str, duration: str, zone: str | None = None) -> WindowSpec:
    return WindowSpec(kind=WindowKind.DENY, schedule=schedule, duration=duration, time_zone=zone)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NIGHTS = allow("0 22 * * 1-5", "4h")
OFFICE = deny("0 9 * * 1-5", "8h")
MADRID = "Europe/Madrid"


@pytest.mark.parametrize(
    ("windows", "now", "is_open", "until"),
    [
        ([], "2026-11-16T12:00", True, None),
        # Monday to Friday at 22:00, four hours: the last one ends on Saturday at 02:00.
        ([NIGHTS], "2026-11-16T21:59:59", False, "2026-11-16T22:00"),
        ([NIGHTS], "2026-11-16T22:00", True, "2026-11-17T02:00"),
        ([NIGHTS], "2026-11-17T01:59:59", True, "2026-11-17T02:00"),
        ([NIGHTS], "2026-11-17T02:00", False, "2026-11-17T22:00"),
        ([NIGHTS], "2026-11-21T01:00", True, "2026-11-21T02:00"),
        ([NIGHTS], "2026-11-21T12:00", False, "2026-11-23T22:00"),
        # With windows that deny alone, everything else is allowed.
        ([OFFICE], "2026-11-16T08:00", True, "2026-11-16T09:00"),
        ([OFFICE], "2026-11-16T10:00", False, "2026-11-16T17:00"),
        ([OFFICE], "2026-11-20T18:00", True, "2026-11-23T09:00"),
        # What denies beats what allows, whichever stands first.
        ([NIGHTS, deny("0 23 * * *", "1h")], "2026-11-16T22:30", True, "2026-11-16T23:00"),
        ([NIGHTS, deny("0 23 * * *", "1h")], "2026-11-16T23:30", False, "2026-11-17T00:00"),
        ([deny("0 23 * * *", "1h"), NIGHTS], "2026-11-17T00:30", True, "2026-11-17T02:00"),
        # Windows that follow each other, or overlap themselves, are one.
        ([allow("0 8 * * *", "2h"), allow("0 10 * * *", "2h")], "2026-11-16T09:00", True,
         "2026-11-16T12:00"),
        ([allow("*/30 8-9 * * *", "45m")], "2026-11-16T08:10", True, "2026-11-16T10:15"),
        ([allow("* * * * *", "2m")], "2026-11-16T08:10", True, None),
        ([deny("* * * * *", "2m")], "2026-11-16T08:10", False, None),
        # Long ones, over the end of a month.
        ([deny("0 0 20 12 *", "360h")], "2027-01-03T12:00", False, "2027-01-04T00:00"),
        ([allow("0 0 29 2 *", "24h")], "2026-11-16T12:00", False, "2028-02-29T00:00"),
        # By the clock of the zone: 22:00 in Madrid is 21:00 UTC in winter and 20:00 in summer.
        ([allow("0 22 * * *", "1h", MADRID)], "2026-11-16T21:30", True, "2026-11-16T22:00"),
        ([allow("0 22 * * *", "1h", MADRID)], "2026-07-16T20:30", True, "2026-07-16T21:00"),
        # The night the clocks go forward, at 01:00 UTC, has no 02:30: it begins at 03:00.
        ([allow("30 2 * * *", "1h", MADRID)], "2026-03-29T01:00", True, "2026-03-29T02:00"),
        ([allow("30 2 * * *", "1h", MADRID)], "2026-03-29T00:45", False, "2026-03-29T01:00"),
        # One that is on during the change is as long as ever.
        ([allow("0 1 * * *", "3h", MADRID)], "2026-03-29T02:59", True, "2026-03-29T03:00"),
        ([allow("0 1 * * *", "3h", MADRID)], "2026-10-25T01:59", True, "2026-10-25T02:00"),
        # The night they go back, at 01:00 UTC, has two 02:30: it begins once, at the first.
        ([allow("30 2 * * *", "30m", MADRID)], "2026-10-25T00:45", True, "2026-10-25T01:00"),
        ([allow("30 2 * * *", "30m", MADRID)], "2026-10-25T01:45", False, "2026-10-26T01:30"),
        ([allow("30 2 * * *", "1h", MADRID)], "2026-10-25T01:10", True, "2026-10-25T01:30"),
        # One that begins every hour begins in both.
        ([allow("15 * * * *", "10m", MADRID)], "2026-10-25T00:20", True, "2026-10-25T00:25"),
        ([allow("15 * * * *", "10m", MADRID)], "2026-10-25T01:20", True, "2026-10-25T01:25"),
    ],
)  # fmt: skip
def test_writing_is_allowed_when_the_windows_say_so(
    windows: list[WindowSpec], now: str, is_open: bool, until: str | None
) -> None:
    state = window_state(windows, at(now))
    assert (state.open, state.until) == (is_open, at(until) if until else None)
    assert state.why.endswith(".")


def test_the_reason_names_the_window_and_its_end() -> None:
    assert window_state([OFFICE], at("2026-11-16T10:00")).why == (
        "The window that begins at '0 9 * * 1-5' (UTC) for 8h forbids writing until "
        "2026-11-16 17:00 UTC."
    )


@pytest.mark.parametrize(
    ("schedule", "good"),
    [
        ("0 22 * * 1-5", True),
        ("*/15 8-18 * jan,feb mon#1", True),
        ("0 0 29 2 *", True),
        ("0 0 L * *", True),
        ("0 0 30 2 *", False),
        ("60 * * * *", False),
        ("0 0 * * 1L/2", False),
        ("0 0 * * x", False),
        ("0 0 *", False),
        ("@daily", False),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_no_schedule(schedule: str, good: bool) -> None:
    assert (schedule_problem(schedule) is None) is good


@pytest.mark.parametrize(
    ("zone", "good"),
    [
        ("UTC", True),
        (MADRID, True),
        ("America/Argentina/Ushuaia", True),
        ("Europe", False),
        ("Mars/Olympus", False),
        ("../etc/passwd", False),
        ("/etc/localtime", False),
    ],
)
def test_only_time_zones_are_time_zones(zone: str, good: bool) -> None:
    assert (zone_problem(zone) is None) is good


WINDOWS = st.lists(
    st.builds(
        WindowSpec,
        kind=st.sampled_from(WindowKind),
        schedule=st.sampled_from(
            ["0 22 * * 1-5", "30 2 * * *", "*/20 6-8 * * *", "0 0 1 * *", "0 12 * * 0", "5 * * * *"]
        ),
        duration=st.sampled_from(["10m", "1h", "8h", "49h"]),
        time_zone=st.sampled_from([None, MADRID, "America/New_York", "Asia/Kolkata"]),
    ),
    max_size=3,
)
MOMENTS = st.datetimes(
    min_value=datetime(2026, 3, 1),
    max_value=datetime(2026, 11, 30),
    timezones=st.just(UTC),
)


@settings(max_examples=60, deadline=None)
@given(windows=WINDOWS, now=MOMENTS)
def test_the_answer_holds_until_the_time_it_names_and_no_longer(
    windows: list[WindowSpec], now: datetime
) -> None:
    state = window_state(windows, now)
    if state.until is None:
        return
    assert state.until > now
    assert window_state(windows, state.until).open is not state.open
    just_before = state.until - timedelta(seconds=1)
    assert just_before < now or window_state(windows, just_before).open is state.open


@settings(max_examples=60, deadline=None)
@given(windows=WINDOWS, now=MOMENTS)
def test_a_window_more_that_denies_never_opens(windows: list[WindowSpec], now: datetime) -> None:
    if window_state([*windows, OFFICE], now).open:
        assert window_state(windows, now).open


def test_time_zones_are_known_where_the_system_has_none() -> None:
    """As in a slim image: the zones come with the extra `gitops`."""
    asks = "from holdfast.core.gitops.window import zone_problem as z; print(z('Europe/Madrid'))"
    nowhere = {**os.environ, "PYTHONTZPATH": ""}
    ran = subprocess.run(
        [sys.executable, "-c", asks], env=nowhere, capture_output=True, text=True, timeout=60
    )
    assert ran.stdout == "None\n", ran.stderr
