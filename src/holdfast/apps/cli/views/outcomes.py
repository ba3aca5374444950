"""Shows what was done to each workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.plan import step_body
from holdfast.apps.cli.views.text import count
from holdfast.core.ink import Ink
from holdfast.core.live import Live
from holdfast.core.outcome import EndpointRef
from holdfast.core.plan import Action, Plan, Step
from holdfast.core.show import plan_text

_PARTICIPLES = {
    Action.CREATE: "created",
    Action.UPDATE: "updated",
    Action.DELETE: "deleted",
    Action.NOTHING: "unchanged",
}
_INKS = {"created": Ink.CREATE, "updated": Ink.CHANGE, "deleted": Ink.REMOVE}
_MARKS = {
    "created": "+",
    "updated": "~",
    "deleted": "-",
    "unchanged": "=",
    "left": "!",
    "planned": "?",
}

_SUMMED = {"left": "left as found"}
"""How an outcome is counted, where the word alone would not say it."""
NAMED = 3
"""Up to so many changed workloads are named in an error; more are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One step and what became of it."""

    step: Step
    outcome: str
    live: Live | None


def done_of_ref(ref: EndpointRef) -> Done:
    """Take what `ensure` answered."""
    return Done(step=ref.plan.steps[0], outcome=ref.outcome.value, live=ref.live)


def done_of_plan(plan: Plan, lives: Sequence[Live | None]) -> list[Done]:
    """Take what `apply` answered, step by step."""
    return [
        Done(step=step, outcome=_PARTICIPLES[step.action], live=live)
        for step, live in zip(plan.steps, lives, strict=True)
    ]


def show_done(screen: Screen, done: Sequence[Done]) -> None:
    """Write the outcomes as asked."""
    match screen.output:
        case "name":
            for each in done:
                screen.line(str(each.step.id))
        case "jsonl":
            screen.records("EnsureResult", [_body(each) for each in done])
        case "table":
            _table(screen, done)
        case _:
            counts = Counter(each.outcome for each in done)
            screen.document(
                "EnsureResult",
                {"summary": dict(counts), "workloads": [_body(each) for each in done]},
            )


def changes_made(done: Sequence[Done]) -> str:
    """Say in a sentence what was changed; empty where nothing was."""
    made = [each for each in done if each.outcome in ("created", "updated", "deleted")]
    if len(made) <= NAMED:
        return " ".join(f"Workload {each.step.id} was {each.outcome}." for each in made)
    counts = Counter(each.outcome for each in made)
    return ", ".join(f"{number} workloads {outcome}" for outcome, number in counts.items()) + "."


def _table(screen: Screen, done: Sequence[Done]) -> None:
    wide = max(len(str(each.step.id)) for each in done)
    for each in done:
        mark = screen.paint(_MARKS[each.outcome], _INKS.get(each.outcome, Ink.PLAIN))
        fields = len(each.step.fields)
        what = f"{each.outcome:<9}  {count(fields, 'field')}" if fields else each.outcome
        screen.line(f"{mark} {each.step.id!s:<{wide}}  {what}")
    planned = tuple(each.step for each in done if each.outcome == "planned")
    if planned:
        screen.line()
        plan = Plan(steps=planned)
        screen.line(plan_text(plan, paint=screen.paint, ascii_only=screen.ascii_only))
    counts = Counter(each.outcome for each in done)
    told = (f"{number} {_SUMMED.get(outcome, outcome)}" for outcome, number in counts.items())
    screen.line(", ".join(told) + ".")


def _body(done: Done) -> dict[str, object]:
    live = done.live
    return {
        "project": done.step.id.project,
        "slug": done.step.id.slug,
        "outcome": done.outcome,
        "generation": live.generation if live else None,
        "endpoint": live.status.endpoint if live else None,
        "step": step_body(done.step),
    }
