"""`holdfast reject`: say no to plans, so that the live side stays as it is."""

from __future__ import annotations

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.controller import Controller, required
from holdfast.apps.cli.exits import exit_of
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.decisions import (
    Decided,
    show_decided,
    show_decided_plan,
    show_decisions,
)
from holdfast.core.errors import HoldfastError
from holdfast.wire.gitops_http_v1 import WaitingPlanForm


@click.command(
    "reject",
    cls=Verb,
    examples=[
        "holdfast reject drf-57557f5b59 --comment 'raised for the launch, see INC-1432'",
        "holdfast reject drf-57557f5b59 drf-0c1d2e3f4a --comment 'the same, twice'",
        "holdfast reject plan-1f0a77c2 --comment 'the branch was set back by mistake'",
    ],
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options.comment(required=True)
@options.connection
@options.output(*options.ONE)
@pass_session
@click.pass_context
def command(ctx: click.Context, session: Session, ids: tuple[str, ...], comment: str) -> None:
    """Reject plans of drifts, and parked ones: nothing is changed.

    The live side of a drift stays as it is, and a parked plan is not carried out. Each is asked
    about again only when it changes; of a parked plan also when somebody asks for a sync. Of
    several, each has a line of its own; the exit code is that of the first that could not be
    rejected.
    """
    chosen = list(dict.fromkeys(ids))
    with required(session) as controller:
        if len(chosen) == 1:
            _show_one(session, _reject(controller, chosen[0], comment))
            return
        decided = [_try(controller, id, comment) for id in chosen]
    show_decisions(session.screen, decided, verb="rejected")
    session.screen.next("holdfast drift list")
    refused = next((each.error for each in decided if each.error is not None), None)
    if refused is not None:
        ctx.exit(exit_of(refused))


def _reject(controller: Controller, id: str, comment: str) -> Decided:
    if id.startswith("plan-"):
        plan = controller.ask(controller.api.reject_plan(id, comment=comment))
        told = f"{id} was rejected by {plan.rejected_by}. It is not carried out; Git still differs."
        return Decided(id=id, told=told, form=plan)
    drift = controller.ask(controller.api.reject(id, comment=comment))
    told = f"{id} was rejected by {drift.decided_by}. The live value stays; Git still differs."
    return Decided(id=id, told=told, form=drift)


def _try(controller: Controller, id: str, comment: str) -> Decided:
    try:
        return _reject(controller, id, comment)
    except HoldfastError as error:
        return Decided(id=id, error=error)


def _show_one(session: Session, decided: Decided) -> None:
    screen, form = session.screen, decided.form
    if isinstance(form, WaitingPlanForm):
        show_decided_plan(screen, form, decided.told)
        screen.next(f"holdfast status {form.application}")
    elif form is not None:
        show_decided(screen, form, [decided.told])
        screen.next(f"holdfast codify {decided.id} writes the live value to Git")
