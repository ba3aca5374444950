"""`holdfast approve`: agree to exactly one plan, by its digest."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from holdfast.core.errors import ValidationError
from holdfast.doors.cli import options
from holdfast.doors.cli.application_drift import next_command
from holdfast.doors.cli.controller import Controller, required
from holdfast.doors.cli.exits import Exit
from holdfast.doors.cli.group import Verb
from holdfast.doors.cli.session import Session, pass_session
from holdfast.doors.cli.views.decisions import show_approval, show_decided, show_plan_approval
from holdfast.doors.cli.views.forms import masked


@click.command(
    "approve",
    cls=Verb,
    examples=[
        "holdfast approve drf-57557f5b59",
        "holdfast approve drf-57557f5b59 --comment 'window agreed' --yes",
        "holdfast approve plan-1f0a77c2                       # one that a guard parked",
        "holdfast approve drf-57557f5b59 --plan-digest sha256:a44c…   # what was reviewed before",
    ],
)
@click.argument("id")
@options.comment()
@click.option(
    "--plan-digest", metavar="DIGEST", help="The plan that was reviewed; another one is refused."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.connection
@options.output(*options.ONE)
@pass_session
@click.pass_context
def command(
    ctx: click.Context, session: Session, id: str, comment: str, plan_digest: str | None, yes: bool
) -> None:
    """Approve a drift's plan, or a plan that a guard parked.

    Shows what is approved, its effect and its digest, and asks on a terminal. Elsewhere it needs
    --yes or --plan-digest, and ends with exit code 3 without. When the plan is another one by
    now, nothing is approved and the exit code is 5.
    """
    with required(session) as controller:
        if id.startswith("plan-"):
            _plan(ctx, session, controller, id, comment, plan_digest, yes)
        else:
            _drift(ctx, session, controller, id, comment, plan_digest, yes)


def _drift(
    ctx: click.Context,
    session: Session,
    controller: Controller,
    id: str,
    comment: str,
    digest: str | None,
    yes: bool,
) -> None:
    screen = session.screen
    drift = controller.ask(controller.api.drift(id))
    plan = digest or drift.plan
    if not plan or (drift.resolved_at is not None and digest is None):
        stands = f"it ended ({drift.resolution})" if drift.resolved_at else f"it is {drift.state}"
        raise ValidationError(
            f"{id} waits for no approval: {stands}. Its policy is {drift.remediation}.",
            todo=next_command(drift),
        )
    if screen.for_people and drift.plan == plan:
        show_approval(screen, drift, now=datetime.now(UTC))
    if not _agreed(ctx, session, plan, sure=yes or digest is not None):
        return
    after = controller.ask(controller.api.approve(id, plan=plan, comment=comment))
    told = f"Approved by {after.decided_by}; it is applied with the next pass, if nothing moves."
    if after.resolved_at is not None:
        told = f"Approved by {after.decided_by}, and applied."
    show_decided(screen, after, [told])
    screen.next(f"holdfast drift show {id}")


def _plan(
    ctx: click.Context,
    session: Session,
    controller: Controller,
    id: str,
    comment: str,
    digest: str | None,
    yes: bool,
) -> None:
    screen = session.screen
    kept = controller.ask(controller.api.waiting_plan(id))
    if screen.for_people:
        show_plan_approval(screen, kept, now=datetime.now(UTC))
    plan = digest or kept.digest
    if not _agreed(ctx, session, plan, sure=yes or digest is not None):
        return
    after = controller.ask(controller.api.approve_plan(id, plan=plan, comment=comment))
    if screen.output == "table":
        screen.line(
            f"Approved by {after.approved_by}; carried out with the next pass, if the same."
        )
    elif screen.output == "name":
        screen.line(after.id)
    else:
        screen.document("WaitingPlan", masked(after))
    screen.next(f"holdfast status {after.application}")


def _agreed(ctx: click.Context, session: Session, plan: str, *, sure: bool) -> bool:
    if sure:
        return True
    screen = session.screen
    if not screen.interactive:
        screen.error(
            "approval-needed",
            "Approving needs a yes, and there is nobody to ask.",
            ["Nothing was changed.", f"Next: add --plan-digest {plan}, or --yes"],
        )
        ctx.exit(Exit.POLICY)
    if click.confirm("Approve exactly this plan?", err=True):
        return True
    screen.note("Nothing was changed.")
    return False
