"""Renders a plan for a terminal, for Markdown and for a notebook, from one structure."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from enum import StrEnum

from holdfast.core.drift import DriftedField
from holdfast.core.plan import Action, Disruption, Plan, Step
from holdfast.core.redact import MASK, names_a_secret, redact
from holdfast.core.tree import Tree, show_path

WIDTH = 34
"""Longest value shown in a row; longer ones are cut in the middle."""


class Ink(StrEnum):
    """What a piece of text means; the terminal decides on a colour."""

    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"
    SECRET = "secret"
    FAINT = "faint"
    PLAIN = "plain"


Paint = Callable[[str, Ink], str]
_WORDS = {
    Disruption.NONE: "in place, nothing restarts",
    Disruption.RESTART: "rolling restart, no request lost",
    Disruption.STOP: "stops serving",
}


def no_paint(text: str, ink: Ink) -> str:
    """Paint nothing."""
    return text


def symbol(step: Step, *, ascii_only: bool = False) -> str:
    """Return the mark of a step; it carries the meaning without colour."""
    match step.action:
        case Action.CREATE:
            return "+"
        case Action.DELETE:
            return "-"
        case Action.NOTHING:
            return "="
        case Action.UPDATE if step.disruption is Disruption.RESTART:
            return "~r" if ascii_only else "~↻"
        case _:
            return "~"


def plan_text(plan: Plan, *, paint: Paint = no_paint, ascii_only: bool = False) -> str:
    """Render for a terminal."""
    lines: list[str] = []
    for step in plan.changes:
        ink = {Action.CREATE: Ink.CREATE, Action.DELETE: Ink.REMOVE}.get(step.action, Ink.CHANGE)
        mark = symbol(step, ascii_only=ascii_only)
        what = _WORDS[step.disruption] if step.action is not Action.CREATE else "create"
        lines.append(f"  {paint(f'{mark:<2}', ink)} {step.id}    {paint(what, Ink.FAINT)}")
        lines.extend(_rows(step, paint, ascii_only))
        lines.append("")
    lines.append(summary(plan))
    return "\n".join(lines)


def summary(plan: Plan) -> str:
    """One sentence: how many to create, update, delete."""
    if not plan:
        count = len(plan.steps)
        return (
            f"No changes. {count} {'workload is' if count == 1 else 'workloads are'} as declared."
        )
    counts = {action: sum(step.action is action for step in plan.steps) for action in Action}
    return (
        f"Plan: {counts[Action.CREATE]} to create, {counts[Action.UPDATE]} to update, "
        f"{counts[Action.DELETE]} to delete."
    )


def plan_markdown(plan: Plan) -> str:
    """Render for a pull request or a chat."""
    lines = [f"**{summary(plan)}**", ""]
    for step in plan.changes:
        lines.append(f"#### `{symbol(step)}` {step.id}")
        lines.append("")
        if step.fields:
            lines += ["| field | live | declared | kind | changed by |", "|---|---|---|---|---|"]
            lines += [
                "| "
                + " | ".join(
                    _cell(text)
                    for text in (
                        f"`{show_path(field.change.path)}`",
                        f"`{show_value(field, live=True)}`",
                        f"`{show_value(field, live=False)}`",
                        field.kind.value,
                        str(field.writer) if field.writer else "unknown",
                    )
                )
                + " |"
                for field in step.fields
            ]
        else:
            lines.append(step.reason[0].upper() + step.reason[1:] + ".")
        lines.append("")
    lines.append(f"<sub>{plan.id} · `{plan.digest}`</sub>")
    return "\n".join(lines)


def plan_html(plan: Plan) -> str:
    """Render for a notebook."""
    rows = ""
    for step in plan.changes:
        head = html.escape(f"{symbol(step)} {step.id}")
        rows += f"<tr><th colspan=4 style='text-align:left'><code>{head}</code></th></tr>"
        for field in step.fields:
            cells = (
                show_path(field.change.path),
                show_value(field, live=True),
                show_value(field, live=False),
                str(field.writer) if field.writer else "unknown",
            )
            rows += "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
    head = "<tr><th>field</th><th>live</th><th>declared</th><th>changed by</th></tr>"
    table = f"<table>{head}{rows}</table>" if rows else ""
    return f"<div><b>{html.escape(summary(plan))}</b>{table}<small>{plan.id}</small></div>"


def show_value(field: DriftedField, *, live: bool, width: int = 0) -> str:
    """Write one side of a change: secrets masked, control characters escaped."""
    value: Tree = field.change.live if live else field.change.desired
    if value is None:
        return "(not set)"
    if any(names_a_secret(part) for part in field.change.path):
        return MASK
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = redact(text)
    text = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
    if width and len(text) > width:
        keep = width // 2
        text = f"{text[: keep - 1]}…{text[-keep:]}"
    return text


def _rows(step: Step, paint: Paint, ascii_only: bool) -> list[str]:
    if not step.fields:
        return []
    arrow = "->" if ascii_only else "→"
    paths = [show_path(field.change.path) for field in step.fields]
    wide = max(len("field"), *(len(path) for path in paths))
    lives = [show_value(field, live=True, width=WIDTH) for field in step.fields]
    wide_live = max(len("live"), *(len(text) for text in lives))
    rows = [paint(f"       {'field':<{wide}}  {'live':<{wide_live}}     declared", Ink.FAINT)]
    for field, path, live in zip(step.fields, paths, lives, strict=True):
        wanted = show_value(field, live=False, width=WIDTH)
        mark, ink = "~", Ink.CHANGE
        if field.change.desired is None:
            mark, ink = "-", Ink.REMOVE
        elif field.change.live is None:
            mark, ink = "+", Ink.CREATE
        by = f"   {field.kind}, by {field.writer}" if field.writer else f"   {field.kind}"
        rows.append(
            f"     {paint(mark, ink)} {path:<{wide}}  {live:<{wide_live}}  {arrow}  {wanted}"
            f"{paint(by, Ink.FAINT)}"
        )
    return rows


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
