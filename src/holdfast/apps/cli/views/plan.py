"""Shows a plan in every format, from one structure."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.forms import masked
from holdfast.core.plan import Action, Plan, Step
from holdfast.core.show import plan_markdown, plan_text, symbol
from holdfast.core.tree import Fields
from holdfast.wire.plan_v1 import step_to_json


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
            for step in plan.changes:
                screen.line(str(step.id))
        case "jsonl":
            screen.records(kind, [step_body(step) for step in plan.steps])
        case _:
            screen.document(kind, plan_body(plan))


def plan_body(plan: Plan) -> Mapping[str, object]:
    """Write a plan for programs. Values are masked, so this is not what `--out` saves."""
    counts = {action.value: sum(step.action is action for step in plan.steps) for action in Action}
    return {
        "id": plan.id,
        "digest": plan.digest,
        "changes": bool(plan),
        "summary": counts,
        "steps": [step_body(step) for step in plan.steps],
    }


def step_body(step: Step) -> Fields:
    """Write one step, with credentials masked."""
    return {"symbol": symbol(step, ascii_only=True), **masked(step_to_json(step))}
