"""`holdfast diff`: the fields that differ, without the words around them."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.exits import Exit
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.inputs import load_specs
from holdfast.apps.cli.screen import Screen
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.output import show_unified_diff
from holdfast.apps.cli.views.plan import show_plan
from holdfast.apps.cli.views.text import count
from holdfast.core.drift import DriftedField
from holdfast.core.plan import Action, Plan
from holdfast.core.show import (
    MAX_VALUE_WIDTH,
    describe_step_cost,
    describe_total_cost,
    show_value,
    value_diff,
)
from holdfast.core.tree import show_path


@click.command(
    "diff",
    cls=Verb,
    examples=[
        "holdfast diff -f chat.yaml",
        "holdfast diff -f deploy/ --exit-code -o json",
        "holdfast diff shop        # an application, looked at now",
    ],
)
@click.argument("application", shell_complete=options.complete_names, required=False)
@options.files(required=False)
@options.exit_code
@options.connected(*options.LIST_FORMATS)
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    application: str | None,
    paths: tuple[str, ...],
    recursive: bool,
    exit_code: bool,
) -> None:
    """Show the fields in which live differs from declared.

    Compares specs with workloads, or an application that a GitOps controller follows with its
    repository. `(not set)` on the live side is added by ensure, on the declared side removed. A
    long value is cut, and one of several lines stands below as a unified diff; -o json has them
    whole. Values of Secrets are never shown.
    """
    if bool(application) == bool(paths):
        ctx.fail("Give either -f or the name of an application.")
    if application:
        if _show_application_diff(session, application) and exit_code:
            ctx.exit(Exit.CHANGES)
        return
    screen = session.screen
    declared = load_specs(paths, recursive=recursive)
    with session.client() as client:
        plan = client.plan([each.spec for each in declared])
    if screen.output in ("table", "wide"):
        _show_table(screen, plan)
        given = options.repeat_files(paths, recursive=recursive)
        screen.next(f"holdfast plan {given}" if plan else "holdfast status")
    else:
        show_plan(screen, plan, kind="Diff")
    if plan and exit_code:
        ctx.exit(Exit.CHANGES)


def _show_application_diff(session: Session, name: str) -> bool:
    from holdfast.apps.cli.connect import require_controller
    from holdfast.apps.cli.views.application_diff import has_differences, show_application_diff

    with require_controller(session) as controller:
        found = controller.call(controller.api.diff(name))
    show_application_diff(session.screen, found, now=datetime.now(UTC))
    drift = next((each.drift for each in found.objects if each.drift), "")
    if drift:
        session.screen.next(f"holdfast drift show {drift}")
    elif has_differences(found):
        session.screen.next(f"holdfast sync {found.application} --dry-run")
    else:
        session.screen.next(f"holdfast status {found.application}")
    return has_differences(found)


def _show_table(screen: Screen, plan: Plan) -> None:
    def side(field: DriftedField, *, live: bool) -> str:
        return show_value(field, live=live, width=MAX_VALUE_WIDTH, ascii_only=screen.ascii_only)

    rows = [
        [
            str(step.id),
            show_path(field.change.path),
            side(field, live=True),
            side(field, live=False),
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
        screen.table(heads, rows)
        screen.line("")
        for step in plan.changes:
            cost = describe_step_cost(step, ascii_only=screen.ascii_only)
            screen.line(f"{step.id}  {step.action}: {cost}")
        if total := describe_total_cost(plan, ascii_only=screen.ascii_only):
            screen.line(f"Together: {total}")
        for step in plan.changes:
            for field in step.fields:
                lines = value_diff(field, ascii_only=screen.ascii_only)
                show_unified_diff(screen, f"{step.id} {show_path(field.change.path)}", lines)
    else:
        screen.line(f"No difference in {count(len(plan.steps), 'workload')}.")
