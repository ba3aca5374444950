"""A plan on screen: golden examples, and nothing in it that misleads or leaks."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import credentials, drifts

from holdfast.core.cost import NO_COST, Cost, CostKind, DeviceNeed
from holdfast.core.diff import Change
from holdfast.core.drift import Drift, DriftedField, DriftKind, find_drift
from holdfast.core.live import Absent, Live, Writer
from holdfast.core.names import WorkloadId
from holdfast.core.plan import Action, Disruption, Plan, Step, delete_plan, make_plan, with_cost
from holdfast.core.show import (
    MAX_LINES,
    MAX_VALUE_WIDTH,
    plan_html,
    plan_markdown,
    plan_summary,
    plan_text,
    show_value,
    step_symbol,
    text_diff,
    value_diff,
)
from holdfast.core.text_style import TextStyle, escape_unprintable
from holdfast.core.tree import Tree
from holdfast.core.workload import Desired


def where(slug: str) -> WorkloadId:
    return WorkloadId(project="acme", slug=slug)


LIVE = Live(
    id=where("chat"),
    uid="u1",
    version="v1",
    generation=1,
    fields={
        "command": "vllm serve m --max-model-len=16384 --quiet",
        "env": {"A": "é", "B": "|`<b>"},
        "config": {"n": 1},
    },
    writers={"command": Writer(manager="kubectl-edit", actor="maria")},
)
COST = Cost(kind=CostKind.ROLLING, pods=2, cold_start=41)
_PLAN = make_plan(
    [
        find_drift(
            desired=Desired(
                id=where("chat"),
                fields={
                    "command": "vllm serve m --max-model-len 8192",
                    "env": {"A": ""},
                    "config": {"n": "1"},
                    "image": "y" * 40,
                },
            ),
            live=LIVE,
        ),
        find_drift(desired=Desired(id=where("embed"), fields={}), live=Absent(id=where("embed"))),
        find_drift(
            desired=Desired(id=where("same"), fields={"model": "m"}),
            live=replace(LIVE, id=where("same"), fields={"model": "m"}),
        ),
    ]
)
PLAN = Plan(steps=(with_cost(_PLAN.steps[0], COST), *_PLAN.steps[1:]))

TEXT = """\
  ~↻ acme/chat    update: rolling restart of 2 replicas; last cold start 41 s
       field                    live          declared
     ~ command.--max-model-len  16384      →  8192   configuration, by kubectl-edit (maria)
     - command.--quiet          true       →  (not set)   configuration, by kubectl-edit (maria)
     ~ config.n                 1          →  "1"   configuration
     ~ env.A                    é          →  ""   configuration
     - env.B                    |`<b>      →  (not set)   configuration
     + image                    (not set)  →  yyyyyyyyyyyyyyyy…yyyyyyyyyyyyyyyyy   image

  +  acme/embed    create: cost unknown

Together: rolling restart of 2 replicas; last cold start 41 s; the rest unknown
Plan: 1 to create, 1 to update, 0 to delete."""

MARKDOWN = """\
**Plan: 1 to create, 1 to update, 0 to delete.**

#### `~↻` acme/chat

update: `rolling restart of 2 replicas; last cold start 41 s`

| field | live | declared | kind | changed by |
|---|---|---|---|---|
| `command.--max-model-len` | `16384` | `8192` | configuration | `kubectl-edit (maria)` |
| `command.--quiet` | `true` | `(not set)` | configuration | `kubectl-edit (maria)` |
| `config.n` | `1` | `"1"` | configuration | unknown |
| `env.A` | `é` | `""` | configuration | unknown |
| `env.B` | `` \\|`<b> `` | `(not set)` | configuration | unknown |
| `image` | `(not set)` | `yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy` | image | unknown |

#### `+` acme/embed

create: `cost unknown`

It is declared and not there.

together: `rolling restart of 2 replicas; last cold start 41 s; the rest unknown`

<sub>{id} · `{digest}`</sub>"""

# What a value, a key or a tool's name may try.
HOSTILE = "\x1b[2J\r\u202e\u200b\x00<script>`|[x](javascript:1)\n| a |"


def hostile_plan(text: str) -> Plan:
    field = DriftedField(
        change=Change(path=("config", text), desired=text, live={text: [text]}),
        kind=DriftKind.CONFIGURATION,
        writer=Writer(manager=text, actor=text),
    )
    step = Step(
        id=where("chat"), action=Action.UPDATE, reason=text, disruption=Disruption.NONE,
        fields=(field,), write={}, uid="u", version="v",
        cost=Cost(kind=CostKind.NONE, devices=(DeviceNeed(resource=text, needed=1),)),
    )  # fmt: skip
    return Plan(steps=(step, replace(step, fields=(), action=Action.DELETE)))


def drifted(desired: Tree, live: Tree, *path: str) -> DriftedField:
    return DriftedField(
        change=Change(path=path or ("config", "a"), desired=desired, live=live),
        kind=DriftKind.CONFIGURATION,
    )


def test_a_plan_on_a_terminal() -> None:
    assert plan_text(PLAN) == TEXT
    assert str(PLAN) == TEXT


def test_a_plan_in_markdown() -> None:
    assert plan_markdown(PLAN) == MARKDOWN.format(id=PLAN.id, digest=PLAN.digest)
    assert PLAN.to_markdown() == plan_markdown(PLAN)


def test_a_plan_in_a_notebook() -> None:
    page = plan_html(PLAN)
    assert page == PLAN._repr_html_()
    assert page.startswith("<div><b>Plan: 1 to create, 1 to update, 0 to delete.</b><table>")
    row = "<tr><td>env.B</td><td>|`&lt;b&gt;</td><td>(not set)</td><td>unknown</td></tr>"
    assert row in page
    total = "rolling restart of 2 replicas; last cold start 41 s; the rest unknown"
    assert page.endswith(f"</table><div>Together: {total}</div><small>{PLAN.id}</small></div>")


def test_a_plan_without_changes_has_no_table() -> None:
    same = Plan(steps=PLAN.steps[2:])
    assert str(same) == "No changes. 1 workload is as declared."
    assert str(Plan(steps=())) == "No changes. 0 workloads are as declared."
    assert "<table>" not in plan_html(same)


def test_a_deletion_says_that_serving_stops() -> None:
    plan = delete_plan(LIVE)
    assert str(plan).splitlines()[0] == "  -  acme/chat    delete: stops serving"
    assert "Asked for." in plan_markdown(plan)
    assert plan_summary(plan) == "Plan: 0 to create, 0 to update, 1 to delete."


def test_marks_carry_the_meaning_without_colour() -> None:
    update, create, same = PLAN.steps
    assert [step_symbol(step) for step in (update, create, same)] == ["~↻", "+", "="]
    assert step_symbol(update, ascii_only=True) == "~r"
    assert step_symbol(replace(update, cost=None)) == "~↻"
    assert step_symbol(replace(update, cost=None, disruption=Disruption.NONE)) == "~"
    # What the target says counts, whatever the fields alone would mean.
    assert step_symbol(with_cost(update, NO_COST)) == "~"
    assert step_symbol(with_cost(update, Cost(kind=CostKind.GAP, pods=1))) == "~↻"


def test_paint_gets_every_mark_with_its_meaning() -> None:
    inks: set[TextStyle] = set()

    def paint(text: str, ink: TextStyle) -> str:
        inks.add(ink)
        return f"<{text}>"

    assert "<~>" in plan_text(PLAN, paint=paint)
    assert inks == {TextStyle.CREATE, TextStyle.CHANGE, TextStyle.REMOVE, TextStyle.FAINT}


def test_ascii_only_has_nothing_else() -> None:
    text = plan_text(PLAN, ascii_only=True)
    assert text.isascii()
    assert "~r acme/chat" in text
    assert "->" in text
    assert r"\xe9" in text
    assert plan_text(hostile_plan(HOSTILE + "é日"), ascii_only=True).isascii()


@given(drifts())
def test_ascii_only_holds_for_every_plan(drift: Drift) -> None:
    assert plan_text(make_plan([drift]), ascii_only=True).isascii()


@given(st.one_of(st.just(HOSTILE), st.text(min_size=1)))
def test_nothing_in_a_plan_can_move_the_cursor_or_turn_the_text(text: str) -> None:
    plan = hostile_plan(text)
    for shown in (plan_text(plan), plan_markdown(plan), plan_html(plan)):
        assert all(char.isprintable() or char == "\n" for char in shown)


@given(st.one_of(st.just(HOSTILE), st.text(min_size=1)))
def test_a_value_cannot_add_a_row_or_end_its_cell(text: str) -> None:
    lines = plan_markdown(hostile_plan(text)).split("\n")
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 3
    assert len(re.findall(r"(?<!\\)\|", rows[2])) == 6


@given(st.one_of(st.just(HOSTILE), st.text(min_size=1)))
def test_a_value_cannot_become_markup(text: str) -> None:
    page = plan_html(hostile_plan(text))
    tags = set(re.findall(r"</?([a-z]+)", page))
    assert tags == {"div", "b", "table", "tr", "th", "td", "code", "small"}
    assert html.unescape(page)


@given(credentials())
def test_no_secret_survives_in_a_shown_plan(pair: tuple[str, str]) -> None:
    text, secret = pair
    plan = hostile_plan(text)
    for shown in (plan_text(plan), plan_markdown(plan), plan_html(plan)):
        assert secret not in shown


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        (drifted(None, "x"), "(not set)"),
        (drifted("x", None), "x"),
        (drifted(5, None), "5"),
        (drifted(True, 1), "true"),
        (drifted("1", 1), '"1"'),
        (drifted(1, "1"), "1"),
        (drifted("", None), '""'),
        (drifted("é", None), "é"),
        (drifted("a\nb", None), r"a\nb"),
        (drifted([1, "é"], None), '[1, "é"]'),
        (drifted("hunter2", None, "env", "API_KEY"), "***"),
        (drifted("hunter2", None, "env", "[name=HF_TOKEN]", "value"), "***"),
        (drifted("hunter2", None, "command", "--api-key"), "***"),
        (drifted("${KEY}", None, "command", "--api-key"), "${KEY}"),
        (drifted({"api_key": "hunter2"}, None), '{"api_key": "***"}'),
        (drifted(["--api-key", "hunter2"], None), '["--api-key", "***"]'),
    ],
)
def test_a_declared_value_is_shown(field: DriftedField, shown: str) -> None:
    assert show_value(field, live=False) == shown


def test_the_live_side_is_shown_likewise() -> None:
    assert show_value(drifted("1", 1), live=True) == "1"
    assert show_value(drifted(1, "1"), live=True) == '"1"'
    assert show_value(drifted("x", None), live=True) == "(not set)"


@given(st.text(), st.integers(10, 40), st.booleans())
def test_a_long_value_is_cut_to_its_width(text: str, width: int, ascii_only: bool) -> None:
    shown = show_value(drifted(text, None), live=False, width=width, ascii_only=ascii_only)
    assert len(shown) <= width


@given(st.text())
def test_clean_text_is_printable_and_says_the_same(text: str) -> None:
    assert escape_unprintable(text).isprintable()
    assert escape_unprintable(text, ascii_only=True).isascii()
    if text.isprintable():
        assert escape_unprintable(text) == text
    assert json.dumps(escape_unprintable(text))


CREATE = make_plan(
    [
        find_drift(
            desired=Desired(
                id=where("new"),
                fields={
                    "name": "new",
                    "command": "vllm serve m",
                    "env": {"A": "1", "API_TOKEN": "hunter2"},
                    "secrets": {"HF_TOKEN": {"name": "hub", "key": "token"}},
                    "resources": {"memory": "8589934592", "cpu": "2048", "gpu": 1024},
                    "args": ["--a", "b"],
                    "description": "x" * 1_000,
                },
            ),
            live=Absent(id=where("new")),
        )
    ]
)


def test_a_plan_that_creates_shows_what_it_creates() -> None:
    long = "x" * 99 + "…" + "x" * 100
    assert plan_text(CREATE) == (
        "  +  acme/new    create: cost unknown\n"
        "     + name                   new\n"
        "     + command                vllm serve m\n"
        "     + env.A                  1\n"
        "     + env.API_TOKEN          ***\n"
        "     + secrets.HF_TOKEN.name  hub\n"
        "     + secrets.HF_TOKEN.key   token\n"
        "     + resources.memory       8Gi\n"
        "     + resources.cpu          2048\n"
        "     + resources.gpu          1024\n"
        '     + args                   ["--a", "b"]\n'
        f"     + description            {long}\n"
        "\n"
        "Plan: 1 to create, 0 to update, 0 to delete."
    )
    for page in (plan_markdown(CREATE), plan_html(CREATE)):
        assert "vllm serve m" in page
        assert "8Gi" in page
        assert "hunter2" not in page


def test_memory_is_shown_as_it_is_written_and_a_text_of_that_name_as_it_is() -> None:
    field = drifted("8589934592", "17179869184", "resources", "memory")
    assert show_value(field, live=True) == "16Gi"
    assert show_value(field, live=False) == "8Gi"
    assert show_value(drifted("8589934592", "1", "env", "memory"), live=False) == "8589934592"
    assert show_value(drifted("8589934592", "1", "data", "limits", "x"), live=False) == "8589934592"


def test_values_of_several_lines_are_shown_line_by_line() -> None:
    old = "\n".join(f"line {number}" for number in range(50_000))
    new = old.replace("line 25000\n", "line x\x1b[31m\nmore\n")
    field = drifted(new, old)
    assert show_value(field, live=True, width=34) == "(50000 lines)"
    assert value_diff(field) == [
        "--- live",
        "+++ declared",
        "@@ -24998,7 +24998,8 @@",
        " line 24997",
        " line 24998",
        " line 24999",
        "-line 25000",
        "+line x\\x1b[31m",
        "+more",
        " line 25001",
        " line 25002",
        " line 25003",
    ]
    text = plan_text(Plan(steps=(replace(PLAN.steps[0], fields=(field,)),)))
    assert "         +more\n" in text
    assert len(text) < 2_000
    markdown = plan_markdown(Plan(steps=(replace(PLAN.steps[0], fields=(field,)),)))
    assert "```diff\n--- live\n" in markdown


@given(st.lists(st.text(max_size=5)), st.lists(st.text(max_size=5)))
def test_a_diff_of_lines_is_bounded_and_applies(old: list[str], new: list[str]) -> None:
    lines = text_diff("\n".join(["same"] * 9 + old), "\n".join(["same"] * 9 + new))
    assert len(lines) <= MAX_LINES + 1
    assert all(len(line) <= MAX_VALUE_WIDTH for line in lines)


def test_two_huge_values_with_nothing_in_common_are_compared_in_bounded_time_and_space() -> None:
    lines = text_diff(
        "\n".join(f"{number} a" * 40 for number in range(40_000)),
        "\n".join(f"{number} b" * 40 for number in range(40_000)),
    )
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == "(more; -o json shows both values whole)"


def test_a_value_that_was_one_line_or_was_not_there_is_compared_too() -> None:
    assert text_diff(None, "a\nb")[2:] == ["@@ -0,0 +1,2 @@", "+a", "+b"]
    assert text_diff("a", "a\nb")[3:] == [" a", "+b"]
    assert text_diff("a", "b") == []
    assert text_diff("a\nHF_TOKEN=hunter2hunter2\n", None)[3:] == ["-a", "-HF_TOKEN=***"]


def test_the_lines_of_a_secret_are_not_shown() -> None:
    assert value_diff(drifted("a\nb", "c\nd", "env", "API_TOKEN")) == []
