"""Renders a plan for a terminal, for Markdown and for a notebook, from one structure."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff

from holdfast.core.cost import describe_cost
from holdfast.core.drift import DriftedField
from holdfast.core.plan import Action, Disruption, Plan, Step
from holdfast.core.quantity import canonical_quantity, parse_quantity, readable_quantity
from holdfast.core.redact import MASK, is_reference, names_a_secret, redact, redact_tree
from holdfast.core.text_style import Painter, TextStyle, escape_unprintable, no_paint
from holdfast.core.tree import Path, Tree, show_path

MAX_CELL_WIDTH = 34
"""Longest value shown in a row of a change; longer ones are cut in the middle."""
MAX_VALUE_WIDTH = 200
"""Longest value shown where there is room."""
MAX_LINES = 60
"""Lines of a unified diff; what is beyond is counted."""
_MAX_COMPARED_LINES = 2_000
"""Lines that are compared at all, after those that both sides begin and end with."""
_AMOUNTS = frozenset({"memory", "gpu_memory", "gpuMemory", "storage", "ephemeral-storage", "cpu"})
_AMOUNTS_IN = frozenset({"resources", "requests", "limits", "hard", "capacity"})


def step_symbol(step: Step, *, ascii_only: bool = False) -> str:
    """Return the symbol of a step; it carries the meaning without colour."""
    match step.action:
        case Action.CREATE:
            return "+"
        case Action.DELETE:
            return "-"
        case Action.NOTHING:
            return "="
        case Action.UPDATE if _restarts(step):
            return "~r" if ascii_only else "~↻"
        case _:
            return "~"


def _restarts(step: Step) -> bool:
    """Whether replicas are replaced; by the fields alone where the cost is unknown."""
    return step.cost.pods > 0 if step.cost else step.disruption is Disruption.RESTART


def plan_text(plan: Plan, *, paint: Painter = no_paint, ascii_only: bool = False) -> str:
    """Render for a terminal."""
    lines: list[str] = []
    for step in plan.changes:
        style = {Action.CREATE: TextStyle.CREATE, Action.DELETE: TextStyle.REMOVE}.get(
            step.action, TextStyle.CHANGE
        )
        shown = step_symbol(step, ascii_only=ascii_only)
        what = f"{step.action}: {describe_step_cost(step, ascii_only=ascii_only)}"
        lines.append(f"  {paint(f'{shown:<2}', style)} {step.id}    {paint(what, TextStyle.FAINT)}")
        lines.extend(_change_rows(step, paint, ascii_only))
        lines.extend(_created_rows(step, paint, ascii_only))
        lines.extend(f"       why: {text}" for text in _reasons(step, ascii_only=ascii_only))
        lines.append("")
    if total := describe_total_cost(plan, ascii_only=ascii_only):
        lines.append(f"Together: {total}")
    lines.append(plan_summary(plan))
    return "\n".join(lines)


def describe_total_cost(plan: Plan, *, ascii_only: bool = False) -> str:
    """Say what several steps cost together; empty for one step, and where that is unknown."""
    if len(plan.changes) < 2 or plan.cost is None:
        return ""
    said = describe_cost(plan.cost, "replica")
    return escape_unprintable(redact(said), ascii_only=ascii_only)


def describe_step_cost(step: Step, *, ascii_only: bool = False) -> str:
    """Say what a step costs. A workload is replicas, whatever they run as on its target."""
    ends = step.cost is None and step.action is Action.DELETE
    said = "stops serving" if ends else describe_cost(step.cost, "replica")
    return escape_unprintable(redact(said), ascii_only=ascii_only)


def plan_summary(plan: Plan) -> str:
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
    lines = [f"**{plan_summary(plan)}**", ""]
    for step in plan.changes:
        lines.append(f"#### `{step_symbol(step)}` {step.id}")
        lines += ["", f"{step.action}: {_code(describe_step_cost(step))}", ""]
        if step.fields:
            lines += ["| field | live | declared | kind | changed by |", "|---|---|---|---|---|"]
            lines += [
                "| "
                + " | ".join(
                    _cell(text)
                    for text in (
                        _code(_path_text(field)),
                        _code(show_value(field, live=True, width=MAX_VALUE_WIDTH)),
                        _code(show_value(field, live=False, width=MAX_VALUE_WIDTH)),
                        field.kind.value,
                        _code(_writer_text(field)) if field.writer else "unknown",
                    )
                )
                + " |"
                for field in step.fields
            ]
            for field in step.fields:
                more = value_diff(field)
                if more:
                    lines += ["", f"{_code(_path_text(field))}:", "", *_fenced(more, "diff")]
            lines += [line for text in _reasons(step) for line in ("", _prose(text))]
        elif step.action is Action.CREATE and step.write:
            lines += ["| field | declared |", "|---|---|"]
            lines += [
                f"| {_cell(_code(path))} | {_cell(_code(text))} |"
                for path, text in _created_fields(step, ascii_only=False)
            ]
        else:
            lines.append(_prose(step.reason))
        lines.append("")
    if total := describe_total_cost(plan):
        lines += [f"together: {_code(total)}", ""]
    lines.append(f"<sub>{plan.id} · `{plan.digest}`</sub>")
    return "\n".join(lines)


def plan_html(plan: Plan) -> str:
    """Render for a notebook."""
    rows = ""
    for step in plan.changes:
        head = html.escape(f"{step_symbol(step)} {step.id}")
        cost = html.escape(describe_step_cost(step))
        rows += f"<tr><th colspan=4 style='text-align:left'><code>{head}</code> {cost}</th></tr>"
        for field in step.fields:
            cells = (
                _path_text(field),
                show_value(field, live=True, width=MAX_VALUE_WIDTH),
                show_value(field, live=False, width=MAX_VALUE_WIDTH),
                _writer_text(field) if field.writer else "unknown",
            )
            rows += _table_row(cells)
        if step.action is Action.CREATE:
            for path, text in _created_fields(step, ascii_only=False):
                rows += _table_row((path, "", text, ""))
        for text in _reasons(step):
            rows += f"<tr><td colspan=4>{html.escape(text)}</td></tr>"
    head = "<tr><th>field</th><th>live</th><th>declared</th><th>changed by</th></tr>"
    table = f"<table>{head}{rows}</table>" if rows else ""
    total = describe_total_cost(plan)
    together = f"<div>Together: {html.escape(total)}</div>" if total else ""
    head = f"<b>{html.escape(plan_summary(plan))}</b>"
    return f"<div>{head}{table}{together}<small>{plan.id}</small></div>"


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
    value = readable_value(field.change.path, redact_tree(value))
    if width and (lines := line_count(value)) > 1:
        return f"({lines} lines)"
    text = _value_text(value)
    if isinstance(value, str) and (not value or text == _value_text(other)):
        text = json.dumps(value, ensure_ascii=False)
    text = escape_unprintable(text, ascii_only=ascii_only)
    return shorten_middle(text, width, ascii_only=ascii_only) if width else text


def shorten_middle(text: str, width: int, *, ascii_only: bool = False) -> str:
    """Take out the middle of a text that is too long."""
    if len(text) <= width:
        return text
    gap = "..." if ascii_only else "…"
    keep = width // 2
    return f"{text[: keep - len(gap)]}{gap}{text[-keep:]}"


def readable_value(path: Sequence[str], value: Tree) -> Tree:
    """Write an amount as people do (`8Gi`), though it is compared as a number."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or len(path) < 2:
        return value
    is_amount = (path[-1] in _AMOUNTS and path[-2] in _AMOUNTS_IN) or path[-1] == "sizeLimit"
    if not is_amount:
        return value
    return canonical_quantity(value) if _is_count(path[-1], value) else readable_quantity(value)


def _is_count(name: str, value: str | int | float) -> bool:
    """True for whole CPUs: `1024` of them are not `1Ki`."""
    amount = parse_quantity(value)
    return name == "cpu" and amount is not None and amount == int(amount)


def line_count(value: Tree) -> int:
    """Return how many lines a text has; what is no text has one."""
    return len(value.splitlines()) if isinstance(value, str) else 1


def value_diff(field: DriftedField, *, ascii_only: bool = False) -> list[str]:
    """Compare the two sides of a change line by line, where one of them has several lines."""
    path, change = field.change.path, field.change
    if any(names_a_secret(part) for part in path):
        return []
    return text_diff(change.live, change.desired, ascii_only=ascii_only)


def text_diff(
    live: Tree, desired: Tree, *, wanted: str = "declared", ascii_only: bool = False
) -> list[str]:
    """Give a unified diff of two values where one has several lines; else nothing.

    Bounded in lines, in their length and in what is compared, however long the values are.
    Credentials are masked, and control characters escaped.
    """
    sides = [redact_tree(side) for side in (live, desired)]
    if max(map(line_count, sides)) < 2:
        return []
    old, new = (
        [] if side is None else side.splitlines() if isinstance(side, str) else [_value_text(side)]
        for side in sides
    )
    head = _common_prefix(old, new)
    start = max(0, head - 3)
    tail = _common_prefix(old[head:][::-1], new[head:][::-1])
    ends = (len(old) - max(0, tail - 3), len(new) - max(0, tail - 3))
    cropped = max(end - start for end in ends) > _MAX_COMPARED_LINES
    old, new = (
        side[start : min(end, start + _MAX_COMPARED_LINES)]
        for side, end in zip((old, new), ends, strict=True)
    )
    lines = ["--- live", f"+++ {wanted}"]
    for line in list(unified_diff(old, new, lineterm=""))[2:]:
        found = _HUNK.fullmatch(line)
        if found and start:  # the lines before were left out, and count
            shifted = [str(int(part) + start) for part in (found[1], found[3])]
            line = f"@@ -{shifted[0]}{found[2]} +{shifted[1]}{found[4]} @@"
        lines.append(
            shorten_middle(
                escape_unprintable(line, ascii_only=ascii_only),
                MAX_VALUE_WIDTH,
                ascii_only=ascii_only,
            )
        )
    over = len(lines) - MAX_LINES
    if over > 0 or cropped:
        lines = lines[:MAX_LINES]
        rest = f"{over} more lines" if over > 0 and not cropped else "more"
        lines.append(f"({rest}; -o json shows both values whole)")
    return lines


_HUNK = re.compile(r"@@ -([0-9]+)((?:,[0-9]+)?) \+([0-9]+)((?:,[0-9]+)?) @@")


def _common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines two texts have in common at their beginning."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _value_text(value: Tree) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_reference(value: Tree) -> bool:
    return isinstance(value, str) and is_reference(value)


def _path_text(field: DriftedField, *, ascii_only: bool = False) -> str:
    return escape_unprintable(redact(show_path(field.change.path)), ascii_only=ascii_only)


def _writer_text(field: DriftedField, *, ascii_only: bool = False) -> str:
    return (
        escape_unprintable(redact(str(field.writer)), ascii_only=ascii_only) if field.writer else ""
    )


def _reasons(step: Step, *, ascii_only: bool = False) -> list[str]:
    """Why what is written does not run, each reason once."""
    texts = dict.fromkeys(field.evidence for field in step.fields if field.evidence)
    return [escape_unprintable(redact(text), ascii_only=ascii_only) for text in texts]


def _change_rows(step: Step, paint: Painter, ascii_only: bool) -> list[str]:
    if not step.fields:
        return []
    arrow = "->" if ascii_only else "→"
    paths = [_path_text(field, ascii_only=ascii_only) for field in step.fields]
    wide = max(len("field"), *(len(path) for path in paths))
    lives, wanteds = (
        [
            show_value(each, live=side, width=MAX_CELL_WIDTH, ascii_only=ascii_only)
            for each in step.fields
        ]
        for side in (True, False)
    )
    wide_live = max(len("live"), *(len(text) for text in lives))
    rows = [paint(f"       {'field':<{wide}}  {'live':<{wide_live}}     declared", TextStyle.FAINT)]
    for field, path, live, wanted in zip(step.fields, paths, lives, wanteds, strict=True):
        symbol, style = "~", TextStyle.CHANGE
        if field.change.desired is None:
            symbol, style = "-", TextStyle.REMOVE
        elif field.change.live is None:
            symbol, style = "+", TextStyle.CREATE
        who = _writer_text(field, ascii_only=ascii_only)
        by = f"   {field.kind}, by {who}" if who else f"   {field.kind}"
        rows.append(
            f"     {paint(symbol, style)} {path:<{wide}}  {live:<{wide_live}}  {arrow}  {wanted}"
            f"{paint(by, TextStyle.FAINT)}"
        )
        rows += [f"         {line}" for line in value_diff(field, ascii_only=ascii_only)]
    return rows


def _created_fields(step: Step, *, ascii_only: bool) -> Iterator[tuple[str, str]]:
    """The fields that a step creates, each with the value that it will have."""
    for path, value in _leaves(step.write):
        named = any(names_a_secret(part) for part in path) and path[0] != "secrets"
        if named and not _is_reference(value):
            text = MASK
        else:
            text = _value_text(readable_value(path, redact_tree(value)))
        shown = escape_unprintable(redact(show_path(path)), ascii_only=ascii_only)
        yield (
            shown,
            shorten_middle(
                escape_unprintable(text, ascii_only=ascii_only),
                MAX_VALUE_WIDTH,
                ascii_only=ascii_only,
            ),
        )


def _leaves(value: Tree, path: Path = ()) -> Iterator[tuple[Path, Tree]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif value is not None and path:
        yield path, value


def _created_rows(step: Step, paint: Painter, ascii_only: bool) -> list[str]:
    if step.action is not Action.CREATE:
        return []
    fields = list(_created_fields(step, ascii_only=ascii_only))
    wide = max((len(path) for path, _ in fields), default=0)
    return [f"     {paint('+', TextStyle.CREATE)} {path:<{wide}}  {text}" for path, text in fields]


def _table_row(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _fenced(lines: Sequence[str], language: str) -> list[str]:
    """A Markdown block that its own lines cannot end."""
    runs = [len(run) for line in lines for run in re.findall("`+", line)]
    fence = "`" * max(3, 1 + max(runs, default=0))
    return [f"{fence}{language}", *lines, fence]


def _code(text: str) -> str:
    """A Markdown code span that its own text cannot end."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _prose(text: str) -> str:
    """A Markdown sentence in which nothing but words has a meaning."""
    text = re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", escape_unprintable(redact(text)))
    return f"{text[:1].upper()}{text[1:]}." if text else ""
