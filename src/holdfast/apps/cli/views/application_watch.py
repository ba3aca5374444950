"""Draws the live table of applications, with the last lines of the journal under it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.text import columns, count, left, width
from holdfast.core.ink import Ink
from holdfast.wire.gitops_http_v1 import FollowedForm, JournalEntryForm

_HEADS = ["NAME", "SYNC", "HEALTH", "REVISION", "DRIFT", "WAITING", "PAUSED", "MESSAGE"]
_INKS = (Ink.REMOVE, Ink.CHANGE, Ink.PLAIN)
"""The worst first."""
_AROUND = 5
"""Lines besides those of applications and of the journal."""


def draw(
    screen: Screen,
    found: Sequence[FollowedForm],
    recent: Sequence[JournalEntryForm],
    *,
    place: str,
    silent_since: datetime | None,
    now: datetime,
) -> None:
    """Draw the screen anew, each line cut to the terminal."""
    screen.clear()
    title = f"{place} · {now.astimezone():%H:%M:%S} · Ctrl-C to leave"
    screen.line(screen.paint(_cut(title), Ink.FAINT))
    if silent_since is not None:
        told = (
            f"No answer since {silent_since.astimezone():%H:%M:%S}; this is the last known state."
        )
        screen.line(screen.paint(_cut(told), Ink.REMOVE))
    shown = _fitting(found, shutil.get_terminal_size().lines - len(recent) - _AROUND)
    if shown:
        head, *lines = columns(_HEADS, [_row(each, now) for each in shown])
        screen.line(_cut(head))
        for each, line in zip(shown, lines, strict=True):
            screen.line(screen.paint(_cut(line), _ink(each)))
    if not found or len(shown) < len(found):
        more = f"{len(found) - len(shown)} more are not shown."
        screen.line(more if found else "No applications.")
    if recent:
        screen.line()
    rows = [
        [f"{each.at.astimezone():%H:%M:%S}", each.application, each.action, each.summary]
        for each in recent
    ]
    for line in columns([""] * 4, rows)[1:]:
        screen.line(screen.paint(_cut(line), Ink.FAINT))


def _fitting(found: Sequence[FollowedForm], room: int) -> Sequence[FollowedForm]:
    """Where not all of them fit, those that need to be seen come first."""
    if len(found) <= room:
        return found
    return sorted(found, key=lambda each: _INKS.index(_ink(each)))[: max(1, room)]


def _row(each: FollowedForm, now: datetime) -> list[str]:
    sync = "suspended" if each.suspended else each.sync
    stale = each.source.stale
    return [
        each.id, f"{sync} (stale)" if stale else sync, each.health.value, each.revision[:7],
        str(each.drifted), str(each.awaiting), _paused(each, now), stale or each.message,
    ]  # fmt: skip


def _paused(each: FollowedForm, now: datetime) -> str:
    """How long the whole application is on hold, or else how many objects of it."""
    whole = [hold.until for hold in each.holds if hold.object is None]
    if whole:
        return f"{left(max(whole), now)} left"
    if each.holds:
        last = max(hold.until for hold in each.holds)
        return f"{count(len(each.holds), 'object')}, {left(last, now)} left"
    return ""


def _ink(each: FollowedForm) -> Ink:
    if each.health == "degraded" or each.source.stale or each.sync == "unknown":
        return Ink.REMOVE
    return Ink.CHANGE if each.sync in ("drifted", "ahead") or each.awaiting else Ink.PLAIN


def _cut(text: str) -> str:
    """Keep a line from wrapping: a table that is redrawn must not scroll."""
    room = shutil.get_terminal_size().columns
    if width(text) <= room:
        return text
    while width(text) > room - 1:
        text = text[:-1]
    return f"{text}…"
