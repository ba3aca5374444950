"""Shows what a sync would do, and what became of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.application_diff import not_newest
from holdfast.apps.cli.views.application_drifts import value
from holdfast.apps.cli.views.applications import named
from holdfast.apps.cli.views.forms import masked
from holdfast.apps.cli.views.text import columns, count, one_line
from holdfast.core.ink import Ink
from holdfast.core.plan import Action
from holdfast.wire.gitops_http_v1 import SyncedForm, SyncPlanForm
from holdfast.wire.gitops_v1 import ApplicationDriftForm

_MARKS = {Action.CREATE: "+", Action.UPDATE: "~", Action.DELETE: "-"}
_INKS = {Action.CREATE: Ink.CREATE, Action.UPDATE: Ink.CHANGE, Action.DELETE: Ink.REMOVE}


def show_sync_plan(
    screen: Screen, plan: SyncPlanForm, drifts: Sequence[ApplicationDriftForm]
) -> None:
    """Write what a sync would do, and which drift it would put back besides."""
    if plan.stale:
        screen.warn(not_newest(plan.commit, plan.stale))
    match screen.output:
        case "table":
            for step in plan.steps:
                mark = screen.paint(_MARKS.get(step.action, "="), _INKS.get(step.action, Ink.PLAIN))
                screen.line(f"{mark} {one_line(named(step.object))}  {one_line(step.reason)}")
                rows = [[each.path, value(each.live), "→", value(each.desired)]
                        for each in step.fields if each.path]  # fmt: skip
                for line in columns(["", "", "", ""], rows)[1:]:
                    screen.line(f"    {line}")
            for drift in drifts:
                mark = screen.paint("~", Ink.CHANGE)
                screen.line(f"{mark} {one_line(named(drift.object))}  puts back {drift.id}")
            counts = Counter(step.action for step in plan.steps)
            also = f", {count(len(drifts), 'drift')} to put back" if drifts else ""
            screen.line(
                f"Plan: {counts[Action.CREATE]} to create, {counts[Action.UPDATE]} to update, "
                f"{counts[Action.DELETE]} to delete, from {plan.commit[:7]}{also}."
                if plan.steps or drifts
                else f"Nothing to apply: {plan.application} is as {plan.commit[:7]} declares, "
                "except for what is on hold or waits for somebody."
            )
            if not plan.prune:
                screen.line("What is no longer declared would stay; --prune deletes it.")
        case "name":
            for step in plan.steps:
                screen.line(named(step.object))
        case _:
            screen.document("SyncPlan", {**masked(plan), "drifts": [each.id for each in drifts]})


def show_synced(screen: Screen, outcome: SyncedForm) -> None:
    """Write what became of a sync."""
    found = outcome.application
    match screen.output:
        case "table":
            for told in outcome.told:
                screen.line(one_line(told))
            if not outcome.told and outcome.done:
                screen.line("There was nothing to apply.")
            for each in outcome.refused:
                screen.line(
                    screen.paint(
                        f"Refused: {one_line(named(each.object))}: {one_line(each.message)}",
                        Ink.REMOVE,
                    )
                )
            if not outcome.done:
                screen.line(f"Requested. {found.id} is not there yet; the controller carries on.")
            screen.line(f"{found.id} is {found.sync} and {found.health}. {one_line(found.message)}")
        case "name":
            screen.line(found.id)
        case _:
            screen.document("SyncResult", _body(outcome))


def _body(outcome: SyncedForm) -> Mapping[str, object]:
    return {
        "done": outcome.done,
        "told": outcome.told,
        "refused": [
            {"object": named(each.object), "message": each.message} for each in outcome.refused
        ],
        "application": masked(outcome.application),
    }
