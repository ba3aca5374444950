"""Shows applications: one row each, or one of them with whatever is not as it should be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.output import masked_json, show_list
from holdfast.apps.cli.views.text import (
    age,
    count,
    display_width,
    format_table,
    format_time,
    one_line,
    time_left,
)
from holdfast.core.object_ref import ObjectRef
from holdfast.core.text_style import TextStyle
from holdfast.wire.decode import reshape
from holdfast.wire.gitops_http_v1 import (
    FollowedForm,
    HoldForm,
    JournalEntryForm,
    ObjectStatusForm,
    WaitingPlanForm,
)
from holdfast.wire.gitops_v1 import ObjectForm

_HEADS = ["NAME", "SYNC", "HEALTH", "REVISION", "DRIFT", "AHEAD", "HELD", "FETCHED", "MESSAGE"]
_WIDE_HEADS = ["NEWEST", "OBJECTS", "TOLERATED", "ORPHANS", "WAITING", "SOURCE"]
_MAX_MESSAGE = 90
"""Characters of a message in a table; one application shows all of it."""
_SYNC_STYLES = {"drifted": TextStyle.CHANGE, "ahead": TextStyle.CHANGE, "unknown": TextStyle.REMOVE}


def show_applications(
    screen: Screen, applications: Sequence[FollowedForm], *, now: datetime
) -> None:
    """Write a list of applications as asked."""
    show_list(
        screen,
        "ApplicationList",
        applications,
        lines=_table(screen, applications, now),
        heads=_HEADS,
        row=lambda each: _row(each, now),
        name=lambda each: each.id,
        body=masked_json,
    )


def show_application(
    screen: Screen,
    found: FollowedForm,
    objects: Sequence[ObjectStatusForm],
    *,
    now: datetime,
) -> None:
    """Write one application: its source, the objects that differ, its holds, the plans that wait.

    With `wide`, every object and each field that is tolerated.
    """
    match screen.output:
        case "table" | "wide" | "markdown":
            _show_header(screen, found, now)
            _show_objects(screen, found, objects, now)
            for hold in found.holds:
                screen.lines(hold_lines(hold, now=now))
            for plan in found.plans:
                _show_plan(screen, plan, now)
        case "name":
            screen.line(found.id)
        case _:
            screen.document(
                "Application",
                {**masked_json(found), "objects": [masked_json(each) for each in objects]},
            )


def hold_lines(hold: HoldForm, *, now: datetime) -> Iterator[str]:
    """Say what is on hold, for how long, and what follows."""
    what = object_name(hold.object) if hold.object else f"all of {hold.application}"
    ends = "reverted" if hold.end == "revert" else "proposed to Git by a pull request"
    annotation = " with an annotation" if hold.from_annotation else ""
    by = f"{one_line(hold.by)}{annotation}: {one_line(hold.reason)}"
    yield f"On hold: {one_line(what)} for {time_left(hold.until, now)} more, by {by}"
    yield f"  What changes under it is {ends} at its end, {format_time(hold.until)}."


def object_name(form: ObjectForm) -> str:
    """Name an object for people."""
    return str(reshape(ObjectRef, form))


def object_address(form: ObjectForm) -> str:
    """Name an object for the next command."""
    return "/".join(part for part in (form.kind, form.namespace, form.name) if part)


def _table(screen: Screen, applications: Sequence[FollowedForm], now: datetime) -> Iterator[str]:
    if not applications:
        yield "No applications in this project."
        return
    wide = screen.output == "wide"
    rows = [_row(each, now) + (_wide_cells(each) if wide else []) for each in applications]
    head, *lines = format_table([*_HEADS, *(_WIDE_HEADS if wide else [])], rows)
    yield head
    for each, line in zip(applications, lines, strict=True):
        bad = each.health == "degraded" or each.source.stale
        sync_style = _SYNC_STYLES.get(each.sync, TextStyle.PLAIN)
        yield screen.paint(line, TextStyle.REMOVE if bad else sync_style)
    parts = [count(len(applications), "application")]
    for status in ("synced", "drifted", "ahead", "unknown"):
        if number := sum(each.sync == status for each in applications):
            parts.append(f"{number} {status}")
    if stale := sum(bool(each.source.stale) for each in applications):
        parts.append(f"{stale} with a stale source")
    if waiting := sum(each.awaiting for each in applications):
        parts.append(f"{waiting} waiting for a person")
    yield " · ".join(parts)


def _row(each: FollowedForm, now: datetime) -> list[str]:
    stale = each.source.stale
    return [
        each.id,
        f"{each.sync} (stale)" if stale else each.sync,
        each.health.value,
        each.revision[:7],
        *map(str, (each.drifted, each.ahead, each.held)),
        f"{age(each.source.fetched_at, now)} ago" if each.source.fetched_at else "never",
        # The first sentence is the error's summary; the second says what happened.
        _shorten(stale.partition(". ")[2] or stale or each.message),
    ]


def _wide_cells(each: FollowedForm) -> list[str]:
    source = each.source
    numbers = map(str, (each.objects, each.tolerated, each.orphans, each.awaiting))
    return [source.commit[:7], *numbers, f"{source.url} {source.revision} {source.path}".rstrip()]


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_MESSAGE else f"{text[: _MAX_MESSAGE - 1]}…"


def _show_header(screen: Screen, found: FollowedForm, now: datetime) -> None:
    source = found.source
    suspended = ", suspended" if found.suspended else ""
    title = f"{found.id}  {found.sync}, {found.health}{suspended}"
    screen.line(screen.paint(title, _SYNC_STYLES.get(found.sync, TextStyle.PLAIN)))
    stale = " ".join(source.stale.split())
    if found.message and not stale.startswith(found.message[:200]):  # shown below then
        screen.line(f"  {one_line(found.message)}")
    path = f" {source.path}" if source.path else ""
    screen.line(f"  Source   {one_line(source.url)} {one_line(source.revision)}{one_line(path)}")
    if source.commit:
        subject = f' "{one_line(source.subject)}" by {one_line(source.author)},'
        fetched = age(source.fetched_at, now)
        screen.line(f"  Newest   {source.commit[:7]}{subject} fetched {fetched} ago")
    screen.line(f"  Applied  {found.revision[:7] or 'nothing yet, as a whole'}")
    if source.stale:
        screen.line(screen.paint(f"  Stale    {one_line(stale)}", TextStyle.REMOVE))
        follows = "Until it can be read, nothing is done."
        if found.objects:
            follows = "What was declared before still counts; nothing is pruned."
        screen.line(f"           {follows}")
    screen.line()


def _show_objects(
    screen: Screen, found: FollowedForm, objects: Sequence[ObjectStatusForm], now: datetime
) -> None:
    wide = screen.output == "wide"
    listed = [
        each
        for each in objects
        if wide or each.standing != "in-sync" or each.health in ("degraded", "missing")
    ]
    rows = [
        [
            object_name(each.object),
            each.standing.value,
            each.health.value,
            each.drift,
            f"{time_left(each.held_until, now)} more" if each.held_until else "",
            f"applied by {each.owner}, only observed" if each.owner else each.message,
        ]
        for each in listed
    ]
    if rows:
        heads = ["OBJECT", "STANDING", "HEALTH", "DRIFT", "ON HOLD", "MESSAGE"]
        head, *lines = format_table(heads, rows)
        screen.line(head)
        for each, line in zip(listed, lines, strict=True):
            screen.line(line)
            for field in each.tolerated if wide else ():
                screen.line(f"  = {one_line(field.path)}  tolerated: {one_line(field.rule)}")
    if not objects:
        screen.line(
            "None of its objects is known yet." if found.looked_at else "It was not observed yet."
        )
        return
    out_of_sync = sum(each.standing != "in-sync" for each in objects)
    tolerated = f" · {count(found.tolerated, 'tolerated field')}" if found.tolerated else ""
    screen.line(f"{out_of_sync} of {count(len(objects), 'object')} not as declared{tolerated}")


def _show_plan(screen: Screen, plan: WaitingPlanForm, now: datetime) -> None:
    state = "waits for a person"
    if plan.rejected_by:
        state = f"rejected by {plan.rejected_by}"
    elif plan.approved_by:
        state = f"approved by {plan.approved_by}"
    screen.line(f"! {plan.id} {one_line(state)}, made {age(plan.made_at, now)} ago")
    screen.line(f"  {one_line(plan.told)}")
    screen.lines(f"    {one_line(step)}" for step in plan.steps[:10])
    if len(plan.steps) > 10:
        screen.line(f"    and {len(plan.steps) - 10} more")


_LIVE_HEADS = ["NAME", "SYNC", "HEALTH", "REVISION", "DRIFT", "WAITING", "PAUSED", "MESSAGE"]
_STYLES_BY_URGENCY = (TextStyle.REMOVE, TextStyle.CHANGE, TextStyle.PLAIN)
"""The worst first."""
_FRAME_LINES = 5
"""Lines besides those of applications and of the journal."""


def draw_applications(
    screen: Screen,
    found: Sequence[FollowedForm],
    recent: Sequence[JournalEntryForm],
    *,
    connected_to: str,
    silent_since: datetime | None,
    now: datetime,
) -> None:
    """Draw the screen anew, each line cut to the terminal."""
    screen.clear()
    title = f"{connected_to} · {now.astimezone():%H:%M:%S} · Ctrl-C to leave"
    screen.line(screen.paint(_fit_terminal(title), TextStyle.FAINT))
    if silent_since is not None:
        since = f"{silent_since.astimezone():%H:%M:%S}"
        text = f"No answer since {since}; this is the last known state."
        screen.line(screen.paint(_fit_terminal(text), TextStyle.REMOVE))
    import shutil  # slow to load, for what it is

    shown = _most_urgent(found, shutil.get_terminal_size().lines - len(recent) - _FRAME_LINES)
    if shown:
        head, *lines = format_table(_LIVE_HEADS, [_live_row(each, now) for each in shown])
        screen.line(_fit_terminal(head))
        for each, line in zip(shown, lines, strict=True):
            screen.line(screen.paint(_fit_terminal(line), _style_of(each)))
    if not found or len(shown) < len(found):
        more = f"{len(found) - len(shown)} more are not shown."
        screen.line(more if found else "No applications.")
    if recent:
        screen.line()
    rows = [
        [f"{each.at.astimezone():%H:%M:%S}", each.application, each.action, each.summary]
        for each in recent
    ]
    for line in format_table([""] * 4, rows)[1:]:
        screen.line(screen.paint(_fit_terminal(line), TextStyle.FAINT))


def _most_urgent(found: Sequence[FollowedForm], room: int) -> Sequence[FollowedForm]:
    """Where not all of them fit, the most urgent come first."""
    if len(found) <= room:
        return found
    return sorted(found, key=lambda each: _STYLES_BY_URGENCY.index(_style_of(each)))[: max(1, room)]


def _live_row(each: FollowedForm, now: datetime) -> list[str]:
    sync = "suspended" if each.suspended else each.sync
    stale = each.source.stale
    return [
        each.id,
        f"{sync} (stale)" if stale else sync,
        each.health.value,
        each.revision[:7],
        str(each.drifted),
        str(each.awaiting),
        _describe_holds(each, now),
        stale or each.message,
    ]


def _describe_holds(each: FollowedForm, now: datetime) -> str:
    """How long the whole application is on hold, or else how many objects of it."""
    whole = [hold.until for hold in each.holds if hold.object is None]
    if whole:
        return f"{time_left(max(whole), now)} left"
    if each.holds:
        last = max(hold.until for hold in each.holds)
        return f"{count(len(each.holds), 'object')}, {time_left(last, now)} left"
    return ""


def _style_of(each: FollowedForm) -> TextStyle:
    if each.health == "degraded" or each.source.stale or each.sync == "unknown":
        return TextStyle.REMOVE
    waits = each.sync in ("drifted", "ahead") or each.awaiting
    return TextStyle.CHANGE if waits else TextStyle.PLAIN


def _fit_terminal(text: str) -> str:
    """Keep a line from wrapping: a table that is redrawn must not scroll."""
    import shutil

    room = shutil.get_terminal_size().columns
    if display_width(text) <= room:
        return text
    while display_width(text) > room - 1:
        text = text[:-1]
    return f"{text}…"
