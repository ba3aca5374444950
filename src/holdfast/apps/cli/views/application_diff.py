"""Shows where an application differs from what Git declares: path, live, git, and why."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.views.application_drifts import WHOLE, value, value_lines
from holdfast.apps.cli.views.applications import named
from holdfast.apps.cli.views.forms import masked, show_block
from holdfast.apps.cli.views.text import age, columns, count, one_line
from holdfast.core.ink import Ink
from holdfast.wire.gitops_http_v1 import DiffFieldForm, DiffForm, DiffState, ObjectDiffForm
from holdfast.wire.plan_v1 import writer_from_json

_HEADS = ["", "path", "live", "git", "why"]
_SECRET = "*"
_MARKS = {DiffState.DRIFTED: "~", DiffState.PENDING: ">", DiffState.TOLERATED: "="}
_LEGEND = {
    "~": "~ drifted: somebody changed it",
    ">": "> pending: Git moved, not applied yet",
    "=": "= tolerated, left as it is",
    "*": "* a secret drifted; its value is never shown",
}
_INKS = {"~": Ink.CHANGE, ">": Ink.CREATE, "=": Ink.FAINT, "*": Ink.SECRET}
_WHOLE = {
    "ahead": "declared in Git, and not there yet",
    "drifted": "somebody deleted it, and it was made anew",
    "left-over": "applied before, and no longer declared",
    "orphan": "there, and not declared in Git",
    "unknown": "it could not be read",
    "in-sync": "as declared",
}


def show_diff(screen: Screen, diff: DiffForm, *, now: datetime) -> None:
    """Write a diff as asked."""
    if diff.stale:
        screen.warn(not_newest(diff.commit, diff.stale))
    match screen.output:
        case "table" | "wide":
            _text(screen, diff, now)
        case "markdown":
            _markdown(screen, diff, now)
        case "name":
            for each in diff.objects:
                if each.standing != "in-sync":
                    screen.line(named(each.object))
        case "jsonl":
            screen.records("ApplicationDiff", [masked(each) for each in diff.objects])
        case _:
            screen.document(
                "ApplicationDiff",
                {
                    "application": diff.application,
                    "commit": diff.commit,
                    "stale": diff.stale,
                    "lookedAt": diff.looked_at,
                    "objects": [masked(each) for each in diff.objects],
                },
            )


def not_newest(commit: str, stale: str) -> str:
    """Say that a comparison is with what was known of Git before."""
    why = one_line(stale)
    return f"Git may have moved since {commit[:7]}, which this is compared with. {why}"


def differs(diff: DiffForm) -> bool:
    """True when something is not as declared, whatever is tolerated beside."""
    return any(each.standing != "in-sync" for each in diff.objects)


def _text(screen: Screen, diff: DiffForm, now: datetime) -> None:
    screen.line(f"{diff.application} compared with {diff.commit[:7]}")
    marks: Counter[str] = Counter()
    for each in diff.objects:
        screen.line()
        where = f"  {one_line(each.where)}" if each.where else ""
        drift = f"  {each.drift}" if each.drift else ""
        screen.line(f"{one_line(named(each.object))}  {each.standing}{drift}{where}")
        if each.owner:
            screen.line(f"  {each.owner} applies it, so it is observed and never written")
        fields = [field for field in each.fields if field.path]
        if len(fields) < len(each.fields) or not fields:
            screen.line(f"  {_told(each)}")
        if not fields:
            continue
        rows = [_row(field, now) for field in fields]
        head, *lines = columns(_HEADS, rows)
        screen.line(screen.paint(f"  {head}", Ink.FAINT))
        for row, line in zip(rows, lines, strict=True):
            marks[row[0]] += 1
            screen.line(f"  {screen.paint(line, _INKS[row[0]])}")
        for field in fields:
            if field.kind != "secret":
                show_block(screen, field.path, value_lines(screen, field.live, field.git))
    if marks:
        screen.line()
        screen.line(screen.paint("   ".join(_LEGEND[each] for each in _LEGEND if marks[each]),
                                 Ink.FAINT))  # fmt: skip
    screen.line(_summary(diff))


def _told(each: ObjectDiffForm) -> str:
    """Say how an object as a whole stands."""
    deleted = each.standing == "drifted" and each.health == "missing"
    told = "somebody deleted it" if deleted else _WHOLE[each.standing]
    return one_line(each.message) or told


def _row(field: DiffFieldForm, now: datetime) -> list[str]:
    return [
        _mark(field),
        field.path,
        value(field.live, field.path),
        value(field.git, field.path),
        _why(field, now),
    ]


def _mark(field: DiffFieldForm) -> str:
    if field.kind == "secret" and field.state is not DiffState.TOLERATED:
        return _SECRET
    return _MARKS[field.state]


def _why(field: DiffFieldForm, now: datetime) -> str:
    if field.state is DiffState.TOLERATED:
        return f"tolerated: {f'rule {field.rule}' if field.rule else field.evidence}"
    where = f", declared in {field.where}" if field.where else ""
    if field.state is DiffState.PENDING:
        return f"{field.kind}, Git moved{where}"
    writer = writer_from_json(field.writer) if field.writer else None
    ago = f" {age(writer.at, now)} ago" if writer and writer.at else ""
    return f"{field.kind}, {writer or 'unknown'}{ago} ({field.cause}){where}"


def _summary(diff: DiffForm) -> str:
    apart = [each for each in diff.objects if each.standing != "in-sync"]
    if not apart:
        return "No difference." if not diff.objects else "No difference that is not tolerated."
    counts = Counter(
        field.state.value for each in diff.objects for field in each.fields if field.path
    )
    fields = ", ".join(f"{number} {word}" for word, number in sorted(counts.items()))
    told = f" ({fields})" if fields else ""
    return f"{count(len(apart), 'object')} not as declared{told}."


def _markdown(screen: Screen, diff: DiffForm, now: datetime) -> None:
    screen.line(f"**{_summary(diff)}** `{diff.application}` at `{diff.commit[:7]}`")
    for each in diff.objects:
        screen.line()
        screen.line(f"#### {_cell(named(each.object))}: {each.standing}")
        screen.line()
        screen.line("| | path | live | git | why |")
        screen.line("|---|---|---|---|---|")
        for field in each.fields:
            cells = [_cell(cell) for cell in _row(field, now)]
            if not field.path:
                cells = [cells[0], WHOLE, "", "", _cell(_told(each))]
            screen.line("| " + " | ".join(cells) + " |")


def _cell(text: str) -> str:
    shown = one_line(text).replace("|", "\\|").replace("`", "'")
    return f"`{shown}`" if shown else ""
