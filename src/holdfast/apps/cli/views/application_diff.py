"""Shows where an application differs from Git, what a sync would do, and what became of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.application_drifts import (
    WHOLE_OBJECT,
    diff_value_lines,
    format_object_value,
)
from holdfast.apps.cli.views.applications import object_name
from holdfast.apps.cli.views.output import masked_json, show_result, show_unified_diff
from holdfast.apps.cli.views.text import age, count, format_table, one_line
from holdfast.core.cost import total_cost
from holdfast.core.live import Writer
from holdfast.core.plan import Action
from holdfast.core.text_style import TextStyle
from holdfast.wire.decode import reshape
from holdfast.wire.gitops_http_v1 import (
    DiffFieldForm,
    DiffForm,
    DiffState,
    ObjectDiffForm,
    SyncedForm,
    SyncPlanForm,
)
from holdfast.wire.gitops_v1 import ApplicationDriftForm
from holdfast.wire.plan_v1 import cost_from_json, describe_form

_HEADS = ["", "path", "live", "git", "why"]
_SECRET_MARK = "*"
_MARKS = {DiffState.DRIFTED: "~", DiffState.PENDING: ">", DiffState.TOLERATED: "="}
_LEGEND = {
    "~": "~ drifted: somebody changed it",
    ">": "> pending: Git moved, not applied yet",
    "=": "= tolerated, left as it is",
    "*": "* a secret drifted; its value is never shown",
}
_STYLES = {
    "~": TextStyle.CHANGE,
    ">": TextStyle.CREATE,
    "=": TextStyle.FAINT,
    "*": TextStyle.SECRET,
}
_SYNC_STATUS_TEXTS = {
    "ahead": "declared in Git, and not there yet",
    "drifted": "somebody deleted it, and it was made anew",
    "left-over": "applied before, and no longer declared",
    "orphan": "there, and not declared in Git",
    "unknown": "it could not be read",
    "in-sync": "as declared",
}


def show_application_diff(screen: Screen, diff: DiffForm, *, now: datetime) -> None:
    """Write a diff as asked."""
    if diff.stale:
        screen.warn(stale_source_warning(diff.commit, diff.stale))
    match screen.output:
        case "table" | "wide":
            _show_text(screen, diff, now)
        case "markdown":
            _show_markdown(screen, diff, now)
        case "name":
            screen.lines(object_name(each.object) for each in _out_of_sync(diff))
        case "jsonl":
            screen.records("ApplicationDiff", [masked_json(each) for each in diff.objects])
        case _:
            screen.document(
                "ApplicationDiff",
                {
                    "application": diff.application,
                    "commit": diff.commit,
                    "stale": diff.stale,
                    "lookedAt": diff.looked_at,
                    "objects": [masked_json(each) for each in diff.objects],
                },
            )


def stale_source_warning(commit: str, stale: str) -> str:
    """Say that a comparison is with what was known of Git before."""
    why = one_line(stale)
    return f"Git may have moved since {commit[:7]}, which this is compared with. {why}"


def has_differences(diff: DiffForm) -> bool:
    """True when something is not as declared, whatever is tolerated beside."""
    return bool(_out_of_sync(diff))


def _out_of_sync(diff: DiffForm) -> list[ObjectDiffForm]:
    return [each for each in diff.objects if each.standing != "in-sync"]


def _show_text(screen: Screen, diff: DiffForm, now: datetime) -> None:
    screen.line(f"{diff.application} compared with {diff.commit[:7]}")
    marks: Counter[str] = Counter()
    for each in diff.objects:
        screen.line()
        where = f"  {one_line(each.where)}" if each.where else ""
        drift = f"  {each.drift}" if each.drift else ""
        screen.line(f"{one_line(object_name(each.object))}  {each.standing}{drift}{where}")
        if each.owner:
            screen.line(f"  {each.owner} applies it, so it is observed and never written")
        elif each.standing != "in-sync":
            screen.line(f"  cost: {describe_form(each.cost)}")
        fields = [field for field in each.fields if field.path]
        if len(fields) < len(each.fields) or not fields:
            screen.line(f"  {_describe_object(each)}")
        if not fields:
            continue
        rows = [_row(field, now) for field in fields]
        head, *lines = format_table(_HEADS, rows)
        screen.line(screen.paint(f"  {head}", TextStyle.FAINT))
        for row, line in zip(rows, lines, strict=True):
            marks[row[0]] += 1
            screen.line(f"  {screen.paint(line, _STYLES[row[0]])}")
        for field in fields:
            if field.kind != "secret":
                lines = diff_value_lines(screen, field.live, field.git)
                show_unified_diff(screen, field.path, lines)
    if marks:
        legend = "   ".join(text for mark, text in _LEGEND.items() if marks[mark])
        screen.lines(["", screen.paint(legend, TextStyle.FAINT)])
    screen.line(_summary(diff))


def _describe_object(each: ObjectDiffForm) -> str:
    """Say how an object as a whole differs."""
    if each.message:
        return one_line(each.message)
    deleted = each.standing == "drifted" and each.health == "missing"
    return "somebody deleted it" if deleted else _SYNC_STATUS_TEXTS[each.standing]


def _row(field: DiffFieldForm, now: datetime) -> list[str]:
    secret = field.kind == "secret" and field.state is not DiffState.TOLERATED
    mark = _SECRET_MARK if secret else _MARKS[field.state]
    live, git = (format_object_value(side, field.path) for side in (field.live, field.git))
    return [mark, field.path, live, git, _describe_cause(field, now)]


def _describe_cause(field: DiffFieldForm, now: datetime) -> str:
    if field.state is DiffState.TOLERATED:
        return f"tolerated: {f'rule {field.rule}' if field.rule else field.evidence}"
    where = f", declared in {field.where}" if field.where else ""
    if field.state is DiffState.PENDING:
        return f"{field.kind}, Git moved{where}"
    writer = reshape(Writer, field.writer) if field.writer else None
    ago = f" {age(writer.at, now)} ago" if writer and writer.at else ""
    return f"{field.kind}, {writer or 'unknown'}{ago} ({field.cause}){where}"


def _summary(diff: DiffForm) -> str:
    out_of_sync = _out_of_sync(diff)
    if not out_of_sync:
        return "No difference." if not diff.objects else "No difference that is not tolerated."
    counts = Counter(
        field.state.value for each in diff.objects for field in each.fields if field.path
    )
    fields = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    detail = f" ({fields})" if fields else ""
    return f"{count(len(out_of_sync), 'object')} not as declared{detail}."


def _show_markdown(screen: Screen, diff: DiffForm, now: datetime) -> None:
    screen.line(f"**{_summary(diff)}** `{diff.application}` at `{diff.commit[:7]}`")
    for each in diff.objects:
        title = f"#### {_markdown_cell(object_name(each.object))}: {each.standing}"
        screen.lines(["", title, "", "| | path | live | git | why |", "|---|---|---|---|---|"])
        for field in each.fields:
            cells = [_markdown_cell(cell) for cell in _row(field, now)]
            if not field.path:
                cells = [cells[0], WHOLE_OBJECT, "", "", _markdown_cell(_describe_object(each))]
            screen.line("| " + " | ".join(cells) + " |")


def _markdown_cell(text: str) -> str:
    safe = one_line(text).replace("|", "\\|").replace("`", "'")
    return f"`{safe}`" if safe else ""


_ACTION_MARKS = {Action.CREATE: "+", Action.UPDATE: "~", Action.DELETE: "-"}
_ACTION_STYLES = {
    Action.CREATE: TextStyle.CREATE,
    Action.UPDATE: TextStyle.CHANGE,
    Action.DELETE: TextStyle.REMOVE,
}


def show_sync_plan(
    screen: Screen, plan: SyncPlanForm, drifts: Sequence[ApplicationDriftForm]
) -> None:
    """Write what a sync would do, and which drift it would put back besides."""
    if plan.stale:
        screen.warn(stale_source_warning(plan.commit, plan.stale))
    show_result(
        screen,
        "SyncPlan",
        lines=_sync_plan_lines(screen, plan, drifts),
        names=(object_name(step.object) for step in plan.steps),
        body=lambda: {**masked_json(plan), "drifts": [each.id for each in drifts]},
    )


def _sync_plan_lines(
    screen: Screen, plan: SyncPlanForm, drifts: Sequence[ApplicationDriftForm]
) -> Iterator[str]:
    for step in plan.steps:
        style = _ACTION_STYLES.get(step.action, TextStyle.PLAIN)
        mark = screen.paint(_ACTION_MARKS.get(step.action, "="), style)
        yield f"{mark} {one_line(object_name(step.object))}  {one_line(step.reason)}"
        yield f"    cost: {describe_form(step.cost)}"
        rows = [
            [field.path, format_object_value(field.live), "→", format_object_value(field.desired)]
            for field in step.fields
            if field.path
        ]
        yield from (f"    {line}" for line in format_table(["", "", "", ""], rows)[1:])
    for drift in drifts:
        mark = screen.paint("~", TextStyle.CHANGE)
        yield f"{mark} {one_line(object_name(drift.object))}  puts back {drift.id}"
        yield f"    cost: {describe_form(drift.cost)}"
    costs = [*(step.cost for step in plan.steps), *(drift.cost for drift in drifts)]
    total = total_cost(map(cost_from_json, costs))
    if len(costs) > 1 and total is not None:
        yield f"Together: {total}"
    if plan.steps or drifts:
        counts = Counter(step.action for step in plan.steps)
        also = f", {count(len(drifts), 'drift')} to put back" if drifts else ""
        yield (
            f"Plan: {counts[Action.CREATE]} to create, {counts[Action.UPDATE]} to update, "
            f"{counts[Action.DELETE]} to delete, from {plan.commit[:7]}{also}."
        )
    else:
        yield (
            f"Nothing to apply: {plan.application} is as {plan.commit[:7]} declares, "
            "except for what is on hold or waits for somebody."
        )
    if not plan.prune:
        yield "What is no longer declared would stay; --prune deletes it."


def show_sync_result(screen: Screen, outcome: SyncedForm) -> None:
    """Write what became of a sync."""
    found = outcome.application
    show_result(
        screen,
        "SyncResult",
        lines=_sync_result_lines(screen, outcome),
        names=[found.id],
        body=lambda: {
            "done": outcome.done,
            "told": outcome.told,
            "refused": [
                {"object": object_name(each.object), "message": each.message}
                for each in outcome.refused
            ],
            "application": masked_json(found),
        },
    )


def _sync_result_lines(screen: Screen, outcome: SyncedForm) -> Iterator[str]:
    found = outcome.application
    yield from map(one_line, outcome.told)
    if not outcome.told and outcome.done:
        yield "There was nothing to apply."
    for each in outcome.refused:
        text = f"Refused: {one_line(object_name(each.object))}: {one_line(each.message)}"
        yield screen.paint(text, TextStyle.REMOVE)
    if not outcome.done:
        yield f"Requested. {found.id} is not there yet; the controller carries on."
    yield f"{found.id} is {found.sync} and {found.health}. {one_line(found.message)}"
