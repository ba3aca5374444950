"""Shows what is about to be decided, and what was: the fields, the effect and the digest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.apps.cli.exits import Exit, exit_code_of
from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.application_drifts import show_drift_fields, writer_name
from holdfast.apps.cli.views.applications import object_name
from holdfast.apps.cli.views.output import masked_json
from holdfast.apps.cli.views.text import age, count, one_line
from holdfast.core.errors import HoldfastError
from holdfast.core.text_style import TextStyle
from holdfast.wire.gitops_http_v1 import WaitingPlanForm
from holdfast.wire.gitops_v1 import ApplicationDriftForm

_STEP_OUTCOMES = {"+": "created", "~": "updated", "-": "deleted"}
APPROVAL_NEEDED = "approval-needed"
"""The code of what waits for a person, for who reads it by program."""
_KINDS_WITH_ROLLOUT = ("Deployment", "StatefulSet", "DaemonSet")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOutcome:
    """What became of one decision among several: what was said of it, or why it was refused."""

    id: str
    told: str = ""
    form: ApplicationDriftForm | WaitingPlanForm | None = None
    error: HoldfastError | None = None
    waits: bool = False
    """It is recorded, and takes effect once another person decides the same."""

    @property
    def exit(self) -> Exit:
        """The exit code of this one alone."""
        if self.error is not None:
            return exit_code_of(self.error)
        return Exit.POLICY if self.waits else Exit.OK


def show_decisions(screen: Screen, decided: Sequence[DecisionOutcome], *, verb: str) -> None:
    """Write each decision on a line of its own."""
    match screen.output:
        case "table":
            for each in decided:
                error = each.error
                told = each.told if error is None else f"not {verb}: {error.happened} {error.hint}"
                mark, ink = ("x", TextStyle.REMOVE) if error else ("+", TextStyle.CREATE)
                if each.waits:
                    mark, ink = "~", TextStyle.CHANGE
                screen.line(f"{screen.paint(mark, ink)} {each.id}  {one_line(told).rstrip()}")
            failed = sum(each.error is not None for each in decided)
            waiting = sum(each.waits for each in decided)
            done = len(decided) - failed - waiting
            parts = [f"{done} of {len(decided)} {verb}"]
            if waiting:
                parts.append(f"{waiting} waiting for another person")
            if failed:
                parts.append(f"{failed} not")
            screen.line(f"{', '.join(parts)}.")
        case "name":
            for each in decided:
                if each.error is None:
                    screen.line(each.id)
        case _:
            items = [_decision_body(each, verb) for each in decided]
            screen.document("DecisionList", {"items": items})


def _decision_body(each: DecisionOutcome, verb: str) -> Mapping[str, object]:
    if each.error is None:
        body: dict[str, object] = {
            "id": each.id,
            "outcome": "waiting" if each.waits else verb,
            "exitCode": int(each.exit),
            "now": masked_json(each.form),
        }
        return body | {"code": APPROVAL_NEEDED, "happened": each.told} if each.waits else body
    return {
        "id": each.id,
        "outcome": "refused",
        "exitCode": int(each.exit),
        "code": each.error.code,
        "happened": each.error.happened,
        "next": each.error.hint,
    }


def show_approval(screen: Screen, drift: ApplicationDriftForm, *, now: datetime) -> None:
    """Write what an approval of a drift's plan would do."""
    kinds = " + ".join(drift.kinds)
    head = f"{drift.id}  {object_name(drift.object)}  {kinds} drift of {drift.application}"
    screen.line(screen.paint(one_line(head), TextStyle.CHANGE))
    where = f" ({drift.where} at {drift.commit[:7]})" if drift.where else f" at {drift.commit[:7]}"
    screen.line(f"Approving puts back what Git declares{one_line(where)}:")
    screen.line()
    show_drift_fields(screen, drift, last="BECOMES")
    screen.line()
    screen.line(f"Effect: {one_line(describe_effect(drift))}")
    asked = f"route {drift.route}" if drift.route else "no route matches it"
    if drift.requested_by:
        asked = f"asked for by {drift.requested_by}"
    writers = ", ".join(dict.fromkeys(writer_name(entry) for entry in drift.entries))
    screen.line(
        f"Changed by {one_line(writers)}, seen {age(drift.first_seen, now)} ago; {one_line(asked)}."
    )
    screen.line(f"Plan:   {drift.plan}")


def show_plan_approval(screen: Screen, plan: WaitingPlanForm, *, now: datetime) -> None:
    """Write what the approval of a parked plan would do."""
    head = f"{plan.id}  {plan.application}  made {age(plan.made_at, now)} ago"
    screen.line(screen.paint(one_line(head), TextStyle.CHANGE))
    screen.line(one_line(plan.told))
    for step in plan.steps:
        screen.line(f"  {one_line(step)}")
    marks = Counter(step[:1] for step in plan.steps)
    done = ", ".join(
        f"{marks[mark]} {word}" for mark, word in _STEP_OUTCOMES.items() if marks[mark]
    )
    what = f"{done}, as {plan.commit[:7]} declares" if done else f"{plan.commit[:7]} is followed"
    screen.line(f"Effect: {what}.")
    screen.line(f"Plan:   {plan.digest}")


def describe_effect(drift: ApplicationDriftForm) -> str:
    """Say what putting a drift back does to what runs."""
    name = object_name(drift.object)
    if any(not entry.path for entry in drift.entries):
        if not drift.uid:
            return f"{name} is created again."
        if not drift.where:
            return f"{name} is deleted, for Git does not declare it."
        return f"{name}, which somebody replaced, is set to what Git declares."
    fields = count(len(drift.entries), "field")
    template = any(entry.path.startswith("spec.template.") for entry in drift.entries)
    if drift.object.kind in _KINDS_WITH_ROLLOUT and template:
        return f"{fields} of {name} put back; its pods are replaced one after the other."
    return f"{fields} of {name} put back in place."


def show_drift_decision(screen: Screen, drift: ApplicationDriftForm, told: Sequence[str]) -> None:
    """Write what was decided."""
    match screen.output:
        case "table":
            for line in told:
                screen.line(one_line(line))
        case "name":
            screen.line(drift.id)
        case _:
            screen.document("Drift", masked_json(drift))


def show_plan_decision(screen: Screen, plan: WaitingPlanForm, told: str) -> None:
    """Write what was decided about a plan that a guard parked."""
    match screen.output:
        case "table":
            screen.line(told)
        case "name":
            screen.line(plan.id)
        case _:
            screen.document("WaitingPlan", masked_json(plan))
