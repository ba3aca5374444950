"""`holdfast diff`: the fields that differ, without the words around them."""

from __future__ import annotations

import click

from holdfast.core.plan import Action, Plan
from holdfast.core.show import show_value
from holdfast.core.tree import show_path
from holdfast.doors.cli import options
from holdfast.doors.cli.exits import Exit
from holdfast.doors.cli.group import Verb
from holdfast.doors.cli.inputs import load
from holdfast.doors.cli.screen import Screen
from holdfast.doors.cli.session import Session, pass_session
from holdfast.doors.cli.views.plan import show_plan
from holdfast.doors.cli.views.text import columns, count


@click.command(
    "diff",
    cls=Verb,
    examples=["holdfast diff -f chat.yaml", "holdfast diff -f deploy/ --exit-code -o json"],
)
@options.files()
@options.exit_code
@options.connection
@options.output(*options.LISTS)
@pass_session
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    paths: tuple[str, ...],
    recursive: bool,
    exit_code: bool,
) -> None:
    """Show the fields in which live differs from declared.

    Long values are shown whole. `(not set)` on the live side is added by ensure, on the
    declared side removed.
    """
    screen = session.screen
    declared = load(paths, recursive=recursive)
    with session.client() as client:
        plan = client.plan([each.spec for each in declared])
    if screen.output in ("table", "wide"):
        _table(screen, plan)
        given = options.given_files(paths, recursive=recursive)
        screen.next(f"holdfast plan {given}" if plan else "holdfast status")
    else:
        show_plan(screen, plan, kind="Diff")
    if plan and exit_code:
        ctx.exit(Exit.CHANGES)


def _table(screen: Screen, plan: Plan) -> None:
    rows = [
        [
            str(step.id),
            show_path(field.change.path),
            show_value(field, live=True),
            show_value(field, live=False),
            field.kind.value,
            str(field.writer or "unknown"),
        ]
        for step in plan.changes
        for field in step.fields
    ]
    rows += [
        [str(step.id), "(all)", "(absent)", "(declared)", "-", "-"]
        for step in plan.changes
        if step.action is Action.CREATE
    ]
    if rows:
        heads = ["WORKLOAD", "FIELD", "LIVE", "DECLARED", "KIND", "CHANGED BY"]
        for line in columns(heads, rows):
            screen.line(line)
    else:
        screen.line(f"No difference in {count(len(plan.steps), 'workload')}.")
