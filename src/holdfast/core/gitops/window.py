"""Whether the controller may write by itself now, and until when.

Asked before each heal and each sync that nobody asked for. A window begins whenever its
schedule says so, by the clock of its time zone, and lasts its duration in real time: one that
begins before the clocks are changed is not an hour longer or shorter for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from holdfast.core.gitops.application import WindowKind, WindowSpec
from holdfast.core.quantity import parse_duration

_MAX_CLOCK_CHANGE = timedelta(hours=3)
"""More than any clock was ever set back: times of the schedule further off keep their order."""
_MAX_STEPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowState:
    """Whether writing is allowed at a time, and why."""

    open: bool
    until: datetime | None
    """When that changes; None when it does not, as far as can be seen."""
    why: str
    """A sentence."""


def window_state(windows: Sequence[WindowSpec], now: datetime) -> WindowState:
    """Say whether writing is allowed. Windows that deny beat those that allow.

    Without windows that allow, everything outside of those that deny is allowed.
    """
    if not windows:
        return WindowState(open=True, until=None, why="There are no windows.")
    now = now.astimezone(UTC)
    is_open, why = _is_open_at(windows, now)
    until = _next_change(windows, now, is_open=is_open)
    when = f" until {until:%Y-%m-%d %H:%M} UTC" if until else ""
    return WindowState(open=is_open, until=until, why=f"{why}{when}.")


def schedule_problem(schedule: str) -> str | None:
    """Say what is wrong with a schedule, or None."""
    try:
        # Every year begins on one of seven days and has a leap day or not: 50 years show all.
        begin = next(CronSim(schedule, datetime(2024, 1, 1, tzinfo=UTC)), None)
    except (CronSimError, AssertionError, TypeError):  # the last two for parts it cannot join
        return "it is not a schedule of five fields."
    return "it never begins." if begin is None else None


def zone_problem(name: str) -> str | None:
    """Say what is wrong with the name of a time zone, or None."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return "it is not a time zone that this machine knows."
    return None


def _is_open_at(windows: Sequence[WindowSpec], now: datetime) -> tuple[bool, str]:
    denied = [each for each in windows if each.kind is WindowKind.DENY and _is_active(each, now)]
    if denied:
        return False, f"{_describe_window(denied[0])} forbids writing"
    allowing = [each for each in windows if each.kind is WindowKind.ALLOW]
    if not allowing:
        return True, "No window forbids writing"
    for each in allowing:
        if _is_active(each, now):
            return True, f"{_describe_window(each)} allows writing"
    return False, "No window allows writing"


def _is_active(window: WindowSpec, now: datetime) -> bool:
    return _began_at(window, now) is not None


def _began_at(window: WindowSpec, now: datetime) -> datetime | None:
    """When the window that is on at a time began, the last time if it begins while it is on."""
    for begin in CronSim(
        window.schedule, (now + _MAX_CLOCK_CHANGE).astimezone(_zone(window)), reverse=True
    ):
        # In UTC, since within one zone Python compares what the clocks show.
        since = begin.astimezone(UTC)
        if since <= now:
            return since if now < since + _length(window) else None
    return None


def _next_start(window: WindowSpec, now: datetime) -> datetime | None:
    for begin in CronSim(window.schedule, now.astimezone(_zone(window))):
        if begin.astimezone(UTC) > now:
            return begin.astimezone(UTC)
    return None


def _next_change(windows: Sequence[WindowSpec], now: datetime, *, is_open: bool) -> datetime | None:
    """When the answer becomes another one: at the begin or end of some window."""
    for _ in range(_MAX_STEPS):
        edges: list[datetime] = []
        for each in windows:
            begun, begins = _began_at(each, now), _next_start(each, now)
            edges += [begun + _length(each)] if begun else []
            edges += [begins] if begins else []
        if not edges:
            return None
        now = min(edges)
        if _is_open_at(windows, now)[0] is not is_open:
            return now
    return None


def _zone(window: WindowSpec) -> ZoneInfo:
    return ZoneInfo(window.time_zone or "UTC")


def _length(window: WindowSpec) -> timedelta:
    return timedelta(seconds=parse_duration(window.duration) or 0)


def _describe_window(window: WindowSpec) -> str:
    zone = window.time_zone or "UTC"
    return f"The window that begins at '{window.schedule}' ({zone}) for {window.duration}"
