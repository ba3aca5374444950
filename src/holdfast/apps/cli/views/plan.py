"""Shows plans of workloads, and what became of each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.output import masked_json
from holdfast.apps.cli.views.text import count
from holdfast.core.live import Live
from holdfast.core.outcome import EndpointRef
from holdfast.core.plan import Action, Plan, Step
from holdfast.core.show import plan_markdown, plan_text, step_symbol
from holdfast.core.text_style import TextStyle
from holdfast.core.tree import Fields
from holdfast.wire.decode import reshape
from holdfast.wire.plan_v1 import CostForm, step_to_json


def show_plan(screen: Screen, plan: Plan, *, kind: str = "Plan") -> None:
    """Write a plan as asked."""
    match screen.output:
        case "table" | "wide":
            screen.line(plan_text(plan, paint=screen.paint, ascii_only=screen.ascii_only))
            if screen.output == "wide":
                screen.line(f"{plan.id}  {plan.digest}")
        case "markdown":
            screen.line(plan_markdown(plan))
        case "name":
            screen.lines(str(step.id) for step in plan.changes)
        case "jsonl":
            screen.records(kind, [step_body(step) for step in plan.steps])
        case _:
            screen.document(kind, plan_body(plan))


def plan_body(plan: Plan) -> Mapping[str, object]:
    """Write a plan for programs. Values are masked, so this is not what `--out` saves."""
    counts = {action.value: sum(step.action is action for step in plan.steps) for action in Action}
    cost = {"cost": masked_json(reshape(CostForm, plan.cost))} if plan and plan.cost else {}
    return {
        "id": plan.id,
        "digest": plan.digest,
        "changes": bool(plan),
        "summary": counts,
        **cost,
        "steps": [step_body(step) for step in plan.steps],
    }


def step_body(step: Step) -> Fields:
    """Write one step, with credentials masked."""
    return {"symbol": step_symbol(step, ascii_only=True), **masked_json(step_to_json(step))}


_OUTCOME_OF_ACTION = {
    Action.CREATE: "created",
    Action.UPDATE: "updated",
    Action.DELETE: "deleted",
    Action.NOTHING: "unchanged",
}
_OUTCOME_STYLES = {
    "created": TextStyle.CREATE,
    "updated": TextStyle.CHANGE,
    "deleted": TextStyle.REMOVE,
}
_OUTCOME_MARKS = {
    "created": "+",
    "updated": "~",
    "deleted": "-",
    "unchanged": "=",
    "left": "!",
    "planned": "?",
}

_SUMMARY_WORDS = {"left": "left as found"}
"""How an outcome is counted, where the word alone would not say it."""
MAX_NAMED = 3
"""Up to so many changed workloads are named in an error; more are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOutcome:
    """One step and what became of it."""

    step: Step
    outcome: str
    live: Live | None


def outcome_of_ref(ref: EndpointRef) -> WorkloadOutcome:
    """Take what `ensure` returned."""
    return WorkloadOutcome(step=ref.plan.steps[0], outcome=ref.outcome.value, live=ref.live)


def outcomes_of_plan(plan: Plan, lives: Sequence[Live | None]) -> list[WorkloadOutcome]:
    """Take what `apply` returned, step by step."""
    return [
        WorkloadOutcome(step=step, outcome=_OUTCOME_OF_ACTION[step.action], live=live)
        for step, live in zip(plan.steps, lives, strict=True)
    ]


def show_outcomes(screen: Screen, outcomes: Sequence[WorkloadOutcome]) -> None:
    """Write the outcomes as asked."""
    match screen.output:
        case "name":
            screen.lines(str(each.step.id) for each in outcomes)
        case "jsonl":
            screen.records("EnsureResult", [_outcome_body(each) for each in outcomes])
        case "table":
            _show_outcome_table(screen, outcomes)
        case _:
            counts = Counter(each.outcome for each in outcomes)
            bodies = [_outcome_body(each) for each in outcomes]
            screen.document("EnsureResult", {"summary": dict(counts), "workloads": bodies})


def describe_changes(outcomes: Sequence[WorkloadOutcome]) -> str:
    """Say in a sentence what was changed; empty where nothing was."""
    changed = [each for each in outcomes if each.outcome in _OUTCOME_STYLES]
    if len(changed) <= MAX_NAMED:
        return " ".join(f"Workload {each.step.id} was {each.outcome}." for each in changed)
    counts = Counter(each.outcome for each in changed)
    return ", ".join(f"{number} workloads {outcome}" for outcome, number in counts.items()) + "."


def _show_outcome_table(screen: Screen, outcomes: Sequence[WorkloadOutcome]) -> None:
    width = max(len(str(each.step.id)) for each in outcomes)
    for each in outcomes:
        style = _OUTCOME_STYLES.get(each.outcome, TextStyle.PLAIN)
        mark = screen.paint(_OUTCOME_MARKS[each.outcome], style)
        fields = len(each.step.fields)
        what = f"{each.outcome:<9}  {count(fields, 'field')}" if fields else each.outcome
        screen.line(f"{mark} {each.step.id!s:<{width}}  {what}")
    planned = tuple(each.step for each in outcomes if each.outcome == "planned")
    if planned:
        plan = Plan(steps=planned)
        text = plan_text(plan, paint=screen.paint, ascii_only=screen.ascii_only)
        screen.lines(["", text])
    counts = Counter(_SUMMARY_WORDS.get(each.outcome, each.outcome) for each in outcomes)
    screen.line(", ".join(f"{number} {outcome}" for outcome, number in counts.items()) + ".")


def _outcome_body(each: WorkloadOutcome) -> dict[str, object]:
    live = each.live
    return {
        "project": each.step.id.project,
        "slug": each.step.id.slug,
        "outcome": each.outcome,
        "generation": live.generation if live else None,
        "endpoint": live.status.endpoint if live else None,
        "step": step_body(each.step),
    }
