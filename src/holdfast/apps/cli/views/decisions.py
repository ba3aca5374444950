"""Shows what is about to be decided, and what was: the fields, the effect and the digest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.apps.cli.exits import Exit, exit_code_of
from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.application_drifts import show_drift_fields, writer_name
from holdfast.apps.cli.views.applications import object_name
from holdfast.apps.cli.views.output import masked_json, show_result
from holdfast.apps.cli.views.text import age, count, one_line
from holdfast.core.errors import HoldfastError
from holdfast.core.text_style import TextStyle
from holdfast.wire.gitops_http_v1 import WaitingPlanForm
from holdfast.wire.gitops_v1 import ApplicationDriftForm

_STEP_OUTCOMES = {"+": "created", "~": "updated", "-": "deleted"}
APPROVAL_NEEDED = "approval-needed"
"""The error code of what waits for a person."""
_KINDS_WITH_ROLLOUT = ("Deployment", "StatefulSet", "DaemonSet")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOutcome:
    """What became of one decision: what to say of it, or why it was refused."""

    id: str
    message: str = ""
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


def show_decision(
    screen: Screen, form: ApplicationDriftForm | WaitingPlanForm, lines: Iterable[str]
) -> None:
    """Write what was decided about one drift, or about a plan that a guard blocked."""
    kind = "WaitingPlan" if isinstance(form, WaitingPlanForm) else "Drift"
    names, body = [form.id], lambda: masked_json(form)
    show_result(screen, kind, lines=map(one_line, lines), names=names, body=body)


def show_decisions(screen: Screen, outcomes: Sequence[DecisionOutcome], *, verb: str) -> None:
    """Write each decision on a line of its own."""
    show_result(
        screen,
        "DecisionList",
        lines=_decision_lines(screen, outcomes, verb),
        names=(each.id for each in outcomes if each.error is None),
        body=lambda: {"items": [_decision_body(each, verb) for each in outcomes]},
    )


def _decision_lines(
    screen: Screen, outcomes: Sequence[DecisionOutcome], verb: str
) -> Iterator[str]:
    for each in outcomes:
        message, mark, style = each.message, "+", TextStyle.CREATE
        if each.error is not None:
            message = f"not {verb}: {each.error.happened} {each.error.hint}"
            mark, style = "x", TextStyle.REMOVE
        elif each.waits:
            mark, style = "~", TextStyle.CHANGE
        yield f"{screen.paint(mark, style)} {each.id}  {one_line(message).rstrip()}"
    failed = sum(each.error is not None for each in outcomes)
    waiting = sum(each.waits for each in outcomes)
    parts = [f"{len(outcomes) - failed - waiting} of {len(outcomes)} {verb}"]
    if waiting:
        parts.append(f"{waiting} waiting for another person")
    if failed:
        parts.append(f"{failed} not")
    yield f"{', '.join(parts)}."


def _decision_body(outcome: DecisionOutcome, verb: str) -> Mapping[str, object]:
    body: dict[str, object] = {"id": outcome.id, "outcome": verb, "exitCode": int(outcome.exit)}
    if (error := outcome.error) is not None:
        refusal = {"code": error.code, "happened": error.happened, "next": error.hint}
        return {**body, "outcome": "refused", **refusal}
    body["now"] = masked_json(outcome.form)
    if outcome.waits:
        body |= {"outcome": "waiting", "code": APPROVAL_NEEDED, "happened": outcome.message}
    return body


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
    reason = f"route {drift.route}" if drift.route else "no route matches it"
    if drift.requested_by:
        reason = f"asked for by {drift.requested_by}"
    writers = one_line(", ".join(dict.fromkeys(writer_name(entry) for entry in drift.entries)))
    ago = age(drift.first_seen, now)
    screen.line(f"Changed by {writers}, seen {ago} ago; {one_line(reason)}.")
    screen.line(f"Plan:   {drift.plan}")


def show_plan_approval(screen: Screen, plan: WaitingPlanForm, *, now: datetime) -> None:
    """Write what the approval of a blocked plan would do."""
    head = f"{plan.id}  {plan.application}  made {age(plan.made_at, now)} ago"
    screen.line(screen.paint(one_line(head), TextStyle.CHANGE))
    screen.line(one_line(plan.told))
    screen.lines(f"  {one_line(step)}" for step in plan.steps)
    marks = Counter(step[:1] for step in plan.steps)
    counts = (f"{marks[mark]} {word}" for mark, word in _STEP_OUTCOMES.items() if marks[mark])
    done, commit = ", ".join(counts), plan.commit[:7]
    effect = f"{done}, as {commit} declares" if done else f"{commit} is followed"
    screen.lines([f"Effect: {effect}.", f"Plan:   {plan.digest}"])


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
