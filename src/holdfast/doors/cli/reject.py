"""`holdfast reject`: the live side stays as it is."""

from __future__ import annotations

import click

from holdfast.core.errors import HoldfastError
from holdfast.doors.cli import options
from holdfast.doors.cli.controller import Controller, required
from holdfast.doors.cli.exits import exit_of
from holdfast.doors.cli.group import Verb
from holdfast.doors.cli.session import Session, pass_session
from holdfast.doors.cli.views.decisions import Decided, show_decided, show_decisions


@click.command(
    "reject",
    cls=Verb,
    examples=[
        "holdfast reject drf-57557f5b59 --comment 'raised for the launch, see INC-1432'",
        "holdfast reject drf-57557f5b59 drf-0c1d2e3f4a --comment 'the same, twice'",
    ],
)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options.comment(required=True)
@options.connection
@options.output(*options.ONE)
@pass_session
@click.pass_context
def command(ctx: click.Context, session: Session, ids: tuple[str, ...], comment: str) -> None:
    """Reject the plans of drifts: the live side stays as it is.

    Each is asked about again only when it changes. Of several, each has a line of its own; the
    exit code is that of the first that could not be rejected.
    """
    chosen = list(dict.fromkeys(ids))
    with required(session) as controller:
        if len(chosen) == 1:
            after = controller.ask(controller.api.reject(chosen[0], comment=comment))
            told = _told(chosen[0], after.decided_by)
            show_decided(session.screen, after, [told])
            session.screen.next(f"holdfast codify {chosen[0]} writes the live value to Git")
            return
        decided = [_reject(controller, id, comment) for id in chosen]
    show_decisions(session.screen, decided, verb="rejected")
    session.screen.next("holdfast drift list")
    refused = next((each.error for each in decided if each.error is not None), None)
    if refused is not None:
        ctx.exit(exit_of(refused))


def _reject(controller: Controller, id: str, comment: str) -> Decided:
    try:
        after = controller.ask(controller.api.reject(id, comment=comment))
    except HoldfastError as error:
        return Decided(id=id, error=error)
    return Decided(id=id, told=_told(id, after.decided_by), form=after)


def _told(id: str, who: str) -> str:
    return f"{id} was rejected by {who}. The live value stays; Git still differs."
