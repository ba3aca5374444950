"""Shows applications: one row each, or one of them with whatever is not as it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from holdfast.core.ink import Ink
from holdfast.doors.cli.screen import Screen
from holdfast.doors.cli.views.text import age, columns, count, left, one_line
from holdfast.wire.gitops_http_v1 import (
    FollowedForm,
    HoldForm,
    ObjectStandingForm,
    WaitingPlanForm,
)
from holdfast.wire.gitops_v1 import ObjectForm, object_from_json

_HEADS = ["NAME", "SYNC", "HEALTH", "REVISION", "DRIFT", "AHEAD", "HELD", "AGE", "MESSAGE"]
_WIDE = ["FETCHED", "OBJECTS", "TOLERATED", "ORPHANS", "WAITING", "SOURCE"]
_INKS = {"drifted": Ink.CHANGE, "ahead": Ink.CHANGE, "unknown": Ink.REMOVE}


def show_applications(screen: Screen, found: Sequence[FollowedForm], *, now: datetime) -> None:
    """Write a list of applications as asked."""
    match screen.output:
        case "table" | "wide":
            _table(screen, found, now)
        case "markdown":
            screen.line("| " + " | ".join(_HEADS) + " |")
            screen.line("|" + "---|" * len(_HEADS))
            for each in found:
                cells = [one_line(cell).replace("|", "\\|") for cell in _row(each, now)]
                screen.line("| " + " | ".join(cells) + " |")
        case "name":
            for each in found:
                screen.line(each.id)
        case "jsonl":
            screen.records("ApplicationList", [body(each) for each in found])
        case _:
            screen.document("ApplicationList", {"items": [body(each) for each in found]})


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
                "Application", {**body(found), "objects": [object_body(each) for each in objects]}
            )


def show_hold(screen: Screen, hold: HoldForm, *, now: datetime) -> None:
    """Write one hold on a line."""
    what = named(hold.object) if hold.object else f"all of {hold.application}"
    ends = "reverted" if hold.end == "revert" else "proposed to Git by a pull request"
    annotation = ", by an annotation" if hold.from_annotation else ""
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


def body(found: FollowedForm) -> Mapping[str, object]:
    """Write an application for programs."""
    import msgspec

    tree: dict[str, object] = msgspec.to_builtins(found)
    return tree


def object_body(found: ObjectStandingForm) -> Mapping[str, object]:
    """Write an object for programs."""
    import msgspec

    tree: dict[str, object] = msgspec.to_builtins(found)
    return tree


def stamp(at: datetime) -> str:
    """Write a time."""
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


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
        age(each.source.fetched_at, now), _short(stale or each.message),
    ]  # fmt: skip


def _more(each: FollowedForm) -> list[str]:
    source = each.source
    where = f"{source.url} {source.revision} {source.path}".rstrip()
    return [
        source.commit[:7], str(each.objects), str(each.tolerated), str(each.orphans),
        str(each.awaiting), where,
    ]  # fmt: skip


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


def _head(screen: Screen, found: FollowedForm, now: datetime) -> None:
    source = found.source
    state = f"{found.sync}, {found.health}"
    suspended = ", suspended" if found.suspended else ""
    screen.line(screen.paint(f"{found.id}  {state}{suspended}", _INKS.get(found.sync, Ink.PLAIN)))
    if found.message:
        screen.line(f"  {one_line(found.message)}")
    path = f" {source.path}" if source.path else ""
    screen.line(f"  Source   {one_line(source.url)} {one_line(source.revision)}{one_line(path)}")
    if source.commit:
        subject = f' "{one_line(source.subject)}" by {one_line(source.author)},'
        fetched = age(source.fetched_at, now)
        screen.line(f"  Newest   {source.commit[:7]}{subject} fetched {fetched} ago")
    screen.line(f"  Applied  {found.revision[:7] or 'nothing yet, as a whole'}")
    if source.stale:
        screen.line(screen.paint(f"  Stale    {one_line(source.stale)}", Ink.REMOVE))
        screen.line("           What was declared before still counts; nothing is pruned.")
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
    apart = sum(each.standing != "in-sync" for each in objects)
    tolerated = f" · {count(found.tolerated, 'tolerated field')}" if found.tolerated else ""
    screen.line(f"{apart} of {count(len(objects), 'object')} not as declared{tolerated}")


def _waiting(screen: Screen, plan: WaitingPlanForm, now: datetime) -> None:
    state = f"approved by {plan.approved_by}" if plan.approved_by else "waits for a person"
    screen.line(f"! {plan.id} {one_line(state)}, since {age(plan.made_at, now)}")
    screen.line(f"  {one_line(plan.told)}")
    for step in plan.steps[:10]:
        screen.line(f"    {one_line(step)}")
    if len(plan.steps) > 10:
        screen.line(f"    and {len(plan.steps) - 10} more")
