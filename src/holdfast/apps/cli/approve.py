"""`holdfast approve`: agree to plans, each by its digest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.application_drift import next_command
from holdfast.apps.cli.controller import Controller, required
from holdfast.apps.cli.exits import Exit
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.decisions import (
    APPROVAL_NEEDED,
    Decided,
    show_approval,
    show_decided,
    show_decided_plan,
    show_decisions,
    show_plan_approval,
)
from holdfast.apps.cli.views.text import count
from holdfast.core.errors import HoldfastError, ValidationError
from holdfast.wire.gitops_http_v1 import WaitingPlanForm
from holdfast.wire.gitops_v1 import ApplicationDriftForm


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A drift or a parked plan, and the digest that is approved."""

    id: str
    found: ApplicationDriftForm | WaitingPlanForm
    digest: str


@click.command(
    "approve",
    cls=Verb,
    examples=[
        "holdfast approve drf-57557f5b59",
        "holdfast approve drf-57557f5b59 --comment 'window agreed' --yes",
        "holdfast approve plan-1f0a77c2 plan-88be01d3         # several, which guards parked",
        "holdfast approve --all                               # all that wait, after one question",
        "holdfast approve drf-57557f5b59 --plan-digest sha256:a44c…   # what was reviewed before",
    ],
)
@click.argument("ids", metavar="ID...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All drifts and plans that wait in the project.")
@options.comment()
@click.option(
    "--plan-digest",
    "digests",
    metavar="DIGEST",
    multiple=True,
    help="The plan that was reviewed; another one is refused. One for each ID, in their order.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@options.connection
@options.output(*options.ONE)
@pass_session
@click.pass_context
def command(
    ctx: click.Context,
    session: Session,
    ids: tuple[str, ...],
    every: bool,
    comment: str,
    digests: tuple[str, ...],
    yes: bool,
) -> None:
    """Approve the plans of drifts, and plans that a guard parked.

    Shows what is approved, its effect and its digest, and asks on a terminal. Elsewhere it needs
    --yes or --plan-digest, and ends with exit code 3 without. When a plan is another one by now,
    it is not approved and the exit code is 5. Where it takes two people, the first approval is
    recorded and still waits for another person, and the exit code is 3. Of several, each is
    approved or refused for itself and has a line of its own; the exit code is that of the first
    that was refused or still waits.
    """
    if bool(ids) == every:
        ctx.fail("Give either the ids of drifts and plans, or --all.")
    if digests and (every or len(digests) != len(ids)):
        ctx.fail("Give --plan-digest once for each ID, in the same order.")
    with required(session) as controller:
        chosen = list(dict.fromkeys(ids)) or _all(controller)
        if digests and len(chosen) != len(digests):
            ctx.fail("An ID was given twice.")
        if len(chosen) == 1 and not every:
            _one(ctx, session, controller, chosen[0], comment, next(iter(digests), None), yes)
        elif chosen:
            _several(ctx, session, controller, chosen, comment, digests, yes)
        else:
            session.screen.line("Nothing waits for an approval.")


def _all(controller: Controller) -> list[str]:
    """Name every drift and every plan that waits for a person."""
    drifts = controller.ask(controller.api.drifts(state="awaiting-approval"))
    plans = (plan for each in controller.applications for plan in each.plans)
    return [*(each.id for each in drifts), *(plan.id for plan in plans if not plan.decided)]


def _waiting(controller: Controller, id: str, digest: str | None) -> Waiting:
    """Find what an id names. Raises ValidationError for a drift that waits for nothing."""
    if id.startswith("plan-"):
        kept = controller.ask(controller.api.waiting_plan(id))
        return Waiting(id=id, found=kept, digest=digest or kept.digest)
    drift = controller.ask(controller.api.drift(id))
    plan = digest or drift.plan
    if not plan or (drift.resolved_at is not None and digest is None):
        stands = f"it ended ({drift.resolution})" if drift.resolved_at else f"it is {drift.state}"
        raise ValidationError(
            f"{id} is not waiting for approval: {stands}. Its policy is {drift.remediation}.",
            todo=next_command(drift),
        )
    return Waiting(id=id, found=drift, digest=plan)


def _show(session: Session, waiting: Waiting) -> None:
    """Show what would be approved, if it is what waits now."""
    now = datetime.now(UTC)
    if isinstance(waiting.found, WaitingPlanForm):
        show_plan_approval(session.screen, waiting.found, now=now)
    elif waiting.found.plan == waiting.digest:
        show_approval(session.screen, waiting.found, now=now)


def _approve(controller: Controller, waiting: Waiting, comment: str) -> Decided:
    api = controller.api
    if isinstance(waiting.found, WaitingPlanForm):
        plan = controller.ask(api.approve_plan(waiting.id, plan=waiting.digest, comment=comment))
        told = f"Approved by {plan.approved_by}; carried out with the next pass, if the same."
        return Decided(id=waiting.id, told=told, form=plan)
    drift = controller.ask(api.approve(waiting.id, plan=waiting.digest, comment=comment))
    told = f"Approved by {drift.decided_by}; it is applied with the next pass, if nothing moves."
    if drift.state == "awaiting-approval":
        told = f"Approved by {drift.first_approver}, the first of two; it waits for another person."
        return Decided(id=waiting.id, told=told, form=drift, waits=True)
    if drift.resolved_at is not None:
        told = f"Approved by {drift.decided_by}, and applied."
    return Decided(id=waiting.id, told=told, form=drift)


def _one(
    ctx: click.Context,
    session: Session,
    controller: Controller,
    id: str,
    comment: str,
    digest: str | None,
    yes: bool,
) -> None:
    screen = session.screen
    waiting = _waiting(controller, id, digest)
    if screen.for_people:
        _show(session, waiting)
    if not _agreed(ctx, session, [waiting], sure=yes or digest is not None):
        return
    after = _approve(controller, waiting, comment)
    if isinstance(after.form, ApplicationDriftForm):
        show_decided(screen, after.form, [after.told])
        if after.waits:
            _tell_waiting(session, after.form)
            ctx.exit(Exit.POLICY)
        screen.next(f"holdfast drift show {id}")
        return
    assert isinstance(after.form, WaitingPlanForm)  # noqa: S101  # there are two sorts
    show_decided_plan(screen, after.form, after.told)
    screen.next(f"holdfast status {after.form.application}")


def _several(
    ctx: click.Context,
    session: Session,
    controller: Controller,
    ids: list[str],
    comment: str,
    digests: tuple[str, ...],
    yes: bool,
) -> None:
    """Approve each by the digest that was shown; what cannot be approved stops none of the rest."""
    screen = session.screen
    done: dict[str, Decided] = {}
    found: list[Waiting] = []
    for id, digest in zip(ids, digests or [None] * len(ids), strict=True):
        try:
            found.append(_waiting(controller, id, digest))
        except HoldfastError as error:
            done[id] = Decided(id=id, error=error)
    if screen.for_people:
        for waiting in found:
            _show(session, waiting)
            screen.line()
    if found and not _agreed(ctx, session, found, sure=yes or bool(digests), several=True):
        return
    for waiting in found:
        try:
            done[waiting.id] = _approve(controller, waiting, comment)
        except HoldfastError as error:
            done[waiting.id] = Decided(id=waiting.id, error=error)
    show_decisions(screen, [done[id] for id in ids], verb="approved")
    screen.next("holdfast status")
    code = next((done[id].exit for id in ids if done[id].exit is not Exit.OK), Exit.OK)
    ctx.exit(code)


def _tell_waiting(session: Session, drift: ApplicationDriftForm) -> None:
    command = f"holdfast approve {drift.id} --plan-digest {drift.plan}"
    session.screen.error(
        APPROVAL_NEEDED,
        f"{drift.id} waits for another person to approve it too.",
        [
            f"Your approval is recorded, and nothing was put back: {drift.application} asks for "
            "four eyes, and nobody knows who made the change.",
            f"Next: have somebody else run {session.caller.spoken(command)}",
        ],
    )


def _agreed(
    ctx: click.Context,
    session: Session,
    plans: list[Waiting],
    *,
    sure: bool,
    several: bool = False,
) -> bool:
    if sure:
        return True
    screen = session.screen
    if not screen.interactive:
        digests = " ".join(f"--plan-digest {each.digest}" for each in plans)
        todo = f"add {digests}, or --yes"
        if several:  # a digest goes with an ID, which --all has none of
            named = f"holdfast approve {' '.join(each.id for each in plans)} {digests}"
            todo = f"{session.caller.spoken(named)}, or add --yes"
        screen.error(
            APPROVAL_NEEDED,
            "Approving needs confirmation, and there is nobody to ask.",
            ["Nothing was changed.", f"Next: {todo}"],
        )
        ctx.exit(Exit.POLICY)
    what = "this plan" if len(plans) == 1 else f"these {count(len(plans), 'plan')}"
    if click.confirm(f"Approve exactly {what}?", err=True):
        return True
    screen.note("Nothing was changed.")
    return False
