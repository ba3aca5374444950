"""`holdfast sync`: have Git applied now."""

from __future__ import annotations

import time

import click

from holdfast.core.errors import WaitTimeout
from holdfast.doors.cli import options
from holdfast.doors.cli.controller import Controller, required
from holdfast.doors.cli.exits import Exit
from holdfast.doors.cli.group import Verb
from holdfast.doors.cli.session import Session, pass_session
from holdfast.doors.cli.views.syncs import show_sync_plan, show_synced
from holdfast.wire.gitops_http_v1 import LONGEST_WAIT, FollowedForm, SyncedForm

PASS = 10
"""Seconds that are given to the pass which takes it up; whether it serves is for --wait."""
POLL = 0.5


@click.command(
    "sync",
    cls=Verb,
    examples=[
        "holdfast sync shop --dry-run        # what would be applied",
        "holdfast sync shop --wait           # apply, and wait until all of it is healthy",
        "holdfast sync shop --prune          # also delete what is no longer declared",
    ],
)
@click.argument("application", shell_complete=options.workload_names)
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
@options.connection
@options.output(*options.ONE)
@pass_session
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
    What the mass-change guard parks ends with exit code 3: somebody has to approve it.
    """
    screen = session.screen
    with required(session) as controller:
        if dry_run:
            if _planned(session, controller, application, prune=prune, force=force) and exit_code:
                ctx.exit(Exit.CHANGES)
            return
        first = min(LONGEST_WAIT, max(1, int(timeout))) if wait else PASS
        outcome = controller.ask(
            controller.api.sync(application, prune=prune, force=force, wait=first)
        )
        if wait and not outcome.refused and not _waiting(outcome.application):
            outcome.application = _awaited(controller, application, timeout)
            outcome.done = True
    show_synced(screen, outcome)
    _finish(ctx, session, outcome, awaited=wait)


def _planned(
    session: Session, controller: Controller, name: str, *, prune: bool, force: bool
) -> bool:
    """Show what a sync would do; True when it would do something."""
    plan = controller.ask(controller.api.plan(name, prune=prune))
    taken = ("report", "self-heal", "review", "pull-request") if force else ("report", "self-heal")
    drifts = [
        each
        for each in controller.ask(controller.api.drifts(application=name))
        if each.remediation in taken and each.healable and each.state != "held"
    ]
    show_sync_plan(session.screen, plan, drifts)
    more = " --prune" * prune + " --force" * force
    something = bool(plan.steps or drifts)
    session.screen.next(f"holdfast sync {name}{more}" if something else f"holdfast diff {name}")
    return something


def _finish(ctx: click.Context, session: Session, outcome: SyncedForm, *, awaited: bool) -> None:
    found = outcome.application
    waiting = bool(found.awaiting) if awaited else bool(_waiting(found))
    if plan := _waiting(found):
        session.screen.next(f"holdfast approve {plan}")
    elif found.awaiting:
        session.screen.next(f"holdfast drift list {found.id} --state awaiting-approval")
    else:
        session.screen.next(f"holdfast status {found.id}")
    if outcome.refused:
        ctx.exit(Exit.ERROR)
    if waiting:
        ctx.exit(Exit.POLICY)


def _waiting(found: FollowedForm) -> str:
    """The plan that somebody has to approve first."""
    return next((plan.id for plan in found.plans if not plan.approved_by), "")


def _awaited(controller: Controller, name: str, timeout: float) -> FollowedForm:
    end = time.monotonic() + timeout
    while True:
        found = controller.ask(controller.api.application(name))
        if (found.sync == "synced" and found.health == "healthy") or found.awaiting:
            return found
        if time.monotonic() >= end:
            raise WaitTimeout(
                f"{found.id} is {found.sync} and {found.health} after {timeout:g} s. "
                f"{found.message}",
                changed="It was asked for, and the controller goes on.",
                todo=f"holdfast status {found.id} shows what is missing.",
            )
        time.sleep(min(POLL, max(0.0, end - time.monotonic())))
