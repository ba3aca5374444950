"""Shows applications: one row each, or one of them with whatever is not as it should be."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.forms import masked, show_list
from holdfast.apps.cli.views.text import age, columns, count, left, one_line, stamp
from holdfast.core.ink import Ink
from holdfast.wire.gitops_http_v1 import (
    FollowedForm,
    HoldForm,
    ObjectStandingForm,
    WaitingPlanForm,
)
from holdfast.wire.gitops_v1 import ObjectForm, object_from_json

_HEADS = ["NAME", "SYNC", "HEALTH", "REVISION", "DRIFT", "AHEAD", "HELD", "FETCHED", "MESSAGE"]
_WIDE = ["NEWEST", "OBJECTS", "TOLERATED", "ORPHANS", "WAITING", "SOURCE"]
_LONGEST = 90
"""Characters of a message in a table; one application shows all of it."""
_INKS = {"drifted": Ink.CHANGE, "ahead": Ink.CHANGE, "unknown": Ink.REMOVE}


def show_applications(screen: Screen, found: Sequence[FollowedForm], *, now: datetime) -> None:
    """Write a list of applications as asked."""
    match screen.output:
        case "table" | "wide":
            _table(screen, found, now)
        case _:
            show_list(
                screen,
                "ApplicationList",
                heads=_HEADS,
                rows=(_row(each, now) for each in found),
                names=(each.id for each in found),
                bodies=(masked(each) for each in found),
            )


def show_application(
    screen: Screen,
    found: FollowedForm,
    objects: Sequence[ObjectStandingForm],
    *,
    now: datetime,
) -> None:
    """Write one application: its source, the objects to look at, its holds, the plans that wait.

    With `wide`, every object and each field that is tolerated.
    """
    match screen.output:
        case "table" | "wide" | "markdown":
            _head(screen, found, now)
            _objects(screen, found, objects, now)
            for hold in found.holds:
                show_hold(screen, hold, now=now)
            for plan in found.plans:
                _waiting(screen, plan, now)
        case "name":
            screen.line(found.id)
        case _:
            screen.document(
                "Application", {**masked(found), "objects": [masked(each) for each in objects]}
            )


def show_hold(screen: Screen, hold: HoldForm, *, now: datetime) -> None:
    """Write one hold on a line."""
    what = named(hold.object) if hold.object else f"all of {hold.application}"
    ends = "reverted" if hold.end == "revert" else "proposed to Git by a pull request"
    annotation = " with an annotation" if hold.from_annotation else ""
    screen.line(
        f"On hold: {one_line(what)} for {left(hold.until, now)} more, by {one_line(hold.by)}"
        f"{annotation}: {one_line(hold.reason)}"
    )
    screen.line(f"  What changes under it is {ends} at its end, {stamp(hold.until)}.")


def named(form: ObjectForm) -> str:
    """Name an object for people."""
    return str(object_from_json(form))


def addressed(form: ObjectForm) -> str:
    """Name an object for the next command."""
    return "/".join(part for part in (form.kind, form.namespace, form.name) if part)


def _table(screen: Screen, found: Sequence[FollowedForm], now: datetime) -> None:
    if not found:
        screen.line("No applications in this project.")
        return
    wide = screen.output == "wide"
    rows = [_row(each, now) + (_more(each) if wide else []) for each in found]
    head, *lines = columns([*_HEADS, *(_WIDE if wide else [])], rows)
    screen.line(head)
    for each, line in zip(found, lines, strict=True):
        bad = each.health == "degraded" or each.source.stale
        ink = Ink.REMOVE if bad else _INKS.get(each.sync, Ink.PLAIN)
        screen.line(screen.paint(line, ink))
    parts = [count(len(found), "application")]
    for word in ("synced", "drifted", "ahead", "unknown"):
        if number := sum(each.sync == word for each in found):
            parts.append(f"{number} {word}")
    if stale := sum(bool(each.source.stale) for each in found):
        parts.append(f"{stale} with a stale source")
    if waiting := sum(each.awaiting for each in found):
        parts.append(f"{waiting} waiting for a person")
    screen.line(" · ".join(parts))


def _row(each: FollowedForm, now: datetime) -> list[str]:
    stale = each.source.stale
    return [
        each.id, f"{each.sync} (stale)" if stale else each.sync, each.health.value,
        each.revision[:7], str(each.drifted), str(each.ahead), str(each.held),
        f"{age(each.source.fetched_at, now)} ago" if each.source.fetched_at else "never",
        # What sort of trouble it is stands in the first sentence; the second says what.
        _short(stale.partition(". ")[2] or stale or each.message),
    ]  # fmt: skip


def _more(each: FollowedForm) -> list[str]:
    source = each.source
    where = f"{source.url} {source.revision} {source.path}".rstrip()
    return [
        source.commit[:7], str(each.objects), str(each.tolerated), str(each.orphans),
        str(each.awaiting), where,
    ]  # fmt: skip


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _head(screen: Screen, found: FollowedForm, now: datetime) -> None:
    source = found.source
    state = f"{found.sync}, {found.health}"
    suspended = ", suspended" if found.suspended else ""
    screen.line(screen.paint(f"{found.id}  {state}{suspended}", _INKS.get(found.sync, Ink.PLAIN)))
    stale = " ".join(source.stale.split())
    if found.message and not stale.startswith(found.message[:200]):  # it is told below then
        screen.line(f"  {one_line(found.message)}")
    path = f" {source.path}" if source.path else ""
    screen.line(f"  Source   {one_line(source.url)} {one_line(source.revision)}{one_line(path)}")
    if source.commit:
        subject = f' "{one_line(source.subject)}" by {one_line(source.author)},'
        fetched = age(source.fetched_at, now)
        screen.line(f"  Newest   {source.commit[:7]}{subject} fetched {fetched} ago")
    screen.line(f"  Applied  {found.revision[:7] or 'nothing yet, as a whole'}")
    if source.stale:
        screen.line(screen.paint(f"  Stale    {one_line(stale)}", Ink.REMOVE))
        follows = "Until it can be read, nothing is done."
        if found.objects:
            follows = "What was declared before still counts; nothing is pruned."
        screen.line(f"           {follows}")
    screen.line()


def _objects(
    screen: Screen, found: FollowedForm, objects: Sequence[ObjectStandingForm], now: datetime
) -> None:
    wide = screen.output == "wide"
    shown = [
        each
        for each in objects
        if wide or each.standing != "in-sync" or each.health in ("degraded", "missing")
    ]
    rows = [
        [named(each.object), each.standing.value, each.health.value, each.drift,
         f"{left(each.held_until, now)} more" if each.held_until else "",
         f"applied by {each.owner}, only observed" if each.owner else each.message]
        for each in shown
    ]  # fmt: skip
    if rows:
        heads = ["OBJECT", "STANDING", "HEALTH", "DRIFT", "ON HOLD", "MESSAGE"]
        head, *lines = columns(heads, rows)
        screen.line(head)
        for each, line in zip(shown, lines, strict=True):
            screen.line(line)
            for field in each.tolerated if wide else ():
                screen.line(f"  = {one_line(field.path)}  tolerated: {one_line(field.rule)}")
    if not objects:
        screen.line(
            "None of its objects is known yet." if found.looked_at else "It was not looked at yet."
        )
        return
    apart = sum(each.standing != "in-sync" for each in objects)
    tolerated = f" · {count(found.tolerated, 'tolerated field')}" if found.tolerated else ""
    screen.line(f"{apart} of {count(len(objects), 'object')} not as declared{tolerated}")


def _waiting(screen: Screen, plan: WaitingPlanForm, now: datetime) -> None:
    state = "waits for a person"
    if plan.rejected_by:
        state = f"rejected by {plan.rejected_by}"
    elif plan.approved_by:
        state = f"approved by {plan.approved_by}"
    screen.line(f"! {plan.id} {one_line(state)}, made {age(plan.made_at, now)} ago")
    screen.line(f"  {one_line(plan.told)}")
    for step in plan.steps[:10]:
        screen.line(f"    {one_line(step)}")
    if len(plan.steps) > 10:
        screen.line(f"    and {len(plan.steps) - 10} more")
