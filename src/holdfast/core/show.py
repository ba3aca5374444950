"""Renders a plan for a terminal, for Markdown and for a notebook, from one structure."""

from __future__ import annotations

import html
import json
import re

from holdfast.core.drift import DriftedField
from holdfast.core.ink import Ink, Paint, clean, no_paint
from holdfast.core.plan import Action, Disruption, Plan, Step
from holdfast.core.redact import MASK, is_reference, names_a_secret, redact, redact_tree
from holdfast.core.tree import Tree, show_path

WIDTH = 34
"""Longest value shown in a row; longer ones are cut in the middle."""


_WORDS = {
    Disruption.NONE: "in place, nothing restarts",
    Disruption.RESTART: "rolling restart, no request lost",
    Disruption.STOP: "stops serving",
}


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
                    text.replace("|", "\\|")
                    for text in (
                        _code(_path(field)),
                        _code(show_value(field, live=True)),
                        _code(show_value(field, live=False)),
                        field.kind.value,
                        _code(_writer(field)) if field.writer else "unknown",
                    )
                )
                + " |"
                for field in step.fields
            ]
        else:
            lines.append(_prose(step.reason))
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
                _path(field),
                show_value(field, live=True),
                show_value(field, live=False),
                _writer(field) if field.writer else "unknown",
            )
            rows += "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
    head = "<tr><th>field</th><th>live</th><th>declared</th><th>changed by</th></tr>"
    table = f"<table>{head}{rows}</table>" if rows else ""
    return f"<div><b>{html.escape(summary(plan))}</b>{table}<small>{plan.id}</small></div>"


def show_value(field: DriftedField, *, live: bool, width: int = 0, ascii_only: bool = False) -> str:
    """Write one side of a change: secrets masked, control characters escaped.

    Text stands as it is, unless the other side would look the same: `"1"` is not `1`.
    """
    value, other = field.change.live, field.change.desired
    if not live:
        value, other = other, value
    if value is None:
        return "(not set)"
    if any(names_a_secret(part) for part in field.change.path) and not _is_reference(value):
        return MASK
    value = redact_tree(value)
    text = _written(value)
    if isinstance(value, str) and (not value or text == _written(other)):
        text = json.dumps(value, ensure_ascii=False)
    text = clean(text, ascii_only=ascii_only)
    if width and len(text) > width:
        gap = "..." if ascii_only else "…"
        keep = width // 2
        text = f"{text[: keep - len(gap)]}{gap}{text[-keep:]}"
    return text


def _written(value: Tree) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_reference(value: Tree) -> bool:
    return isinstance(value, str) and is_reference(value)


def _path(field: DriftedField, *, ascii_only: bool = False) -> str:
    return clean(redact(show_path(field.change.path)), ascii_only=ascii_only)


def _writer(field: DriftedField, *, ascii_only: bool = False) -> str:
    return clean(redact(str(field.writer)), ascii_only=ascii_only) if field.writer else ""


def _rows(step: Step, paint: Paint, ascii_only: bool) -> list[str]:
    if not step.fields:
        return []
    arrow = "->" if ascii_only else "→"
    paths = [_path(field, ascii_only=ascii_only) for field in step.fields]
    wide = max(len("field"), *(len(path) for path in paths))
    lives, wanteds = (
        [show_value(each, live=side, width=WIDTH, ascii_only=ascii_only) for each in step.fields]
        for side in (True, False)
    )
    wide_live = max(len("live"), *(len(text) for text in lives))
    rows = [paint(f"       {'field':<{wide}}  {'live':<{wide_live}}     declared", Ink.FAINT)]
    for field, path, live, wanted in zip(step.fields, paths, lives, wanteds, strict=True):
        mark, ink = "~", Ink.CHANGE
        if field.change.desired is None:
            mark, ink = "-", Ink.REMOVE
        elif field.change.live is None:
            mark, ink = "+", Ink.CREATE
        who = _writer(field, ascii_only=ascii_only)
        by = f"   {field.kind}, by {who}" if who else f"   {field.kind}"
        rows.append(
            f"     {paint(mark, ink)} {path:<{wide}}  {live:<{wide_live}}  {arrow}  {wanted}"
            f"{paint(by, Ink.FAINT)}"
        )
    return rows


def _code(text: str) -> str:
    """A Markdown code span that its own text cannot end."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _prose(text: str) -> str:
    """A Markdown sentence in which nothing but words has a meaning."""
    text = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", clean(redact(text)))
    return f"{text[:1].upper()}{text[1:]}." if text else ""
