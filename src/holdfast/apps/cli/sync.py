"""`holdfast sync`: have Git applied now."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.application_wait import (
    Blocker,
    WaitGoal,
    first_blocker,
    show_blocker,
    wait_for_application,
)
from holdfast.apps.cli.connect import ControllerClient, require_controller
from holdfast.apps.cli.exits import Exit
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.application_diff import show_sync_plan, show_sync_result
from holdfast.apps.cli.workload_wait import hint_on_interrupt
from holdfast.core.errors import report_changes
from holdfast.wire.gitops_http_v1 import MAX_WAIT_SECONDS, FollowedForm, SyncedForm

PASS_SECONDS = 10
"""How long to wait for the pass that applies it; whether it serves is for --wait."""


@click.command(
    "sync",
    cls=Verb,
    examples=[
        "holdfast sync shop --dry-run        # what would be applied",
        "holdfast sync shop --wait           # apply, and wait until all of it is healthy",
        "holdfast sync shop --prune          # also delete what is no longer declared",
    ],
)
@click.argument("application", shell_complete=options.complete_names)
@click.option("--prune", is_flag=True, help="Delete what was applied and is no longer declared.")
@click.option(
    "--force",
    is_flag=True,
    help="Also what a guard or a window holds back, and drift that waits for a review.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--wait", is_flag=True, help="Wait until it is in sync and healthy.")
@options.timeout("15m")
@options.exit_code
@options.connected(*options.SINGLE_FORMATS)
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    application: str,
    prune: bool,
    force: bool,
    dry_run: bool,
    wait: bool,
    timeout: float,
    exit_code: bool,
) -> None:
    """Have an application brought to what Git declares now.

    Objects on hold are left out, and so is drift whose route asks for a review, unless --force.
    Exit code 3 says that somebody has to approve or resume something first, 1 that Git could not
    be read or that objects were refused.
    """
    with require_controller(session) as controller:
        if dry_run:
            if _show_dry_run(session, controller, application, prune, force) and exit_code:
                ctx.exit(Exit.CHANGES)
            return
        goal = WaitGoal(state="ready", requested=True, prunes=prune)
        if wait:
            outcome, blocker = _sync_and_wait(
                session, controller, application, goal, force=force, timeout=timeout
            )
        else:
            api = controller.api
            outcome = controller.call(
                api.sync(application, prune=prune, force=force, wait=PASS_SECONDS)
            )
            now = datetime.now(UTC)
            blocker = first_blocker(outcome.application, (), (), goal, until=now)
    show_sync_result(session.screen, outcome)
    if blocker is not None and not _undecided_plan(outcome.application):
        show_blocker(session, blocker)
        ctx.exit(blocker.exit)
    _finish(ctx, session, outcome)


def _sync_and_wait(
    session: Session,
    controller: ControllerClient,
    name: str,
    goal: WaitGoal,
    *,
    force: bool,
    timeout: float,
) -> tuple[SyncedForm, Blocker | None]:
    """Request a sync, and wait until the application is ready; not where objects were refused."""
    end = time.monotonic() + timeout
    with hint_on_interrupt(session, "ready", [name], timeout, going_on="the controller carries on"):
        wait = min(MAX_WAIT_SECONDS, max(1, int(timeout)))
        outcome = controller.call(
            controller.api.sync(name, prune=goal.prunes, force=force, wait=wait)
        )
        if outcome.refused:
            return outcome, None
        with report_changes(f"The sync of {name} was begun."):
            outcome.application, blocker = wait_for_application(
                session, controller, name, goal, end=end, timeout=timeout
            )
    outcome.done = outcome.done or blocker is None
    return outcome, blocker


def _show_dry_run(
    session: Session, controller: ControllerClient, name: str, prune: bool, force: bool
) -> bool:
    """Show what a sync would do; True when it would do something."""
    plan = controller.call(controller.api.plan(name, prune=prune))
    drifts = [
        each
        for each in controller.call(controller.api.drifts(application=name))
        if (force or each.remediation.ends_with_sync)
        and each.healable
        and each.state != "held"
        and (each.where or each.remediation != "report")  # what nobody declared stays
    ]
    show_sync_plan(session.screen, plan, drifts)
    more = " --prune" * prune + " --force" * force
    changes = bool(plan.steps or drifts)
    session.screen.next(f"holdfast sync {name}{more}" if changes else f"holdfast diff {name}")
    return changes


def _finish(ctx: click.Context, session: Session, outcome: SyncedForm) -> None:
    found = outcome.application
    plan = _undecided_plan(found)
    if plan:
        session.screen.next(f"holdfast approve {plan}")
    elif found.awaiting:
        session.screen.next(f"holdfast drift list {found.id} --state awaiting-approval")
    else:
        session.screen.next(f"holdfast status {found.id}")
    if found.source.stale and not plan:
        session.screen.warn(f"The newest commit was not followed: {found.source.stale}")
    if outcome.refused or (found.source.stale and not plan):
        ctx.exit(Exit.ERROR)
    if plan:
        ctx.exit(Exit.POLICY)


def _undecided_plan(found: FollowedForm) -> str:
    """The plan that somebody has to approve first."""
    return next((plan.id for plan in found.plans if not plan.decided), "")
