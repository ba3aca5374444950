"""Shows what is about to be decided, and what was: the fields, the effect and the digest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from holdfast.core.ink import Ink
from holdfast.doors.cli.screen import Screen
from holdfast.doors.cli.views.application_drifts import by, show_fields
from holdfast.doors.cli.views.applications import named
from holdfast.doors.cli.views.forms import masked
from holdfast.doors.cli.views.text import age, count, one_line
from holdfast.wire.gitops_http_v1 import WaitingPlanForm
from holdfast.wire.gitops_v1 import ApplicationDriftForm

_DONE = {"+": "created", "~": "updated", "-": "deleted"}
_RESTARTED = ("Deployment", "StatefulSet", "DaemonSet")


def show_approval(screen: Screen, drift: ApplicationDriftForm, *, now: datetime) -> None:
    """Write what an approval of a drift's plan would do."""
    kinds = " + ".join(drift.kinds)
    head = f"{drift.id}  {named(drift.object)}  {kinds} drift of {drift.application}"
    screen.line(screen.paint(one_line(head), Ink.CHANGE))
    where = f" ({drift.where} at {drift.commit[:7]})" if drift.where else f" at {drift.commit[:7]}"
    screen.line(f"Approving puts back what Git declares{one_line(where)}:")
    screen.line()
    show_fields(screen, drift.entries, last="BECOMES")
    screen.line()
    screen.line(f"Effect: {one_line(effect(drift))}")
    asked = f"route {drift.route}" if drift.route else "no route matches it"
    if drift.requested_by:
        asked = f"asked for by {drift.requested_by}"
    writers = ", ".join(dict.fromkeys(by(entry) for entry in drift.entries))
    screen.line(
        f"Changed by {one_line(writers)}, seen {age(drift.first_seen, now)} ago; {one_line(asked)}."
    )
    screen.line(f"Plan:   {drift.plan}")


def show_plan_approval(screen: Screen, plan: WaitingPlanForm, *, now: datetime) -> None:
    """Write what the approval of a parked plan would do."""
    head = f"{plan.id}  {plan.application}  made {age(plan.made_at, now)} ago"
    screen.line(screen.paint(one_line(head), Ink.CHANGE))
    screen.line(one_line(plan.told))
    for step in plan.steps:
        screen.line(f"  {one_line(step)}")
    marks = Counter(step[:1] for step in plan.steps)
    done = ", ".join(f"{marks[mark]} {word}" for mark, word in _DONE.items() if marks[mark])
    what = f"{done}, as {plan.commit[:7]} declares" if done else f"{plan.commit[:7]} is followed"
    screen.line(f"Effect: {what}.")
    screen.line(f"Plan:   {plan.digest}")


def effect(drift: ApplicationDriftForm) -> str:
    """Say what putting a drift back does to what runs."""
    name = named(drift.object)
    if any(not entry.path for entry in drift.entries):
        if not drift.uid:
            return f"{name} is created again."
        if not drift.where:
            return f"{name} is deleted, for Git does not declare it."
        return f"{name}, which somebody replaced, is set to what Git declares."
    fields = count(len(drift.entries), "field")
    template = any(entry.path.startswith("spec.template.") for entry in drift.entries)
    if drift.object.kind in _RESTARTED and template:
        return f"{fields} of {name} put back; its pods are replaced one after the other."
    return f"{fields} of {name} put back in place."


def show_decided(screen: Screen, drift: ApplicationDriftForm, told: Sequence[str]) -> None:
    """Write what was decided."""
    match screen.output:
        case "table":
            for line in told:
                screen.line(one_line(line))
        case "name":
            screen.line(drift.id)
        case _:
            screen.document("Drift", masked(drift))
