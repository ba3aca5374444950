"""`holdfast reject`: the live side stays as it is."""

from __future__ import annotations

import click

from holdfast.doors.cli import options
from holdfast.doors.cli.controller import required
from holdfast.doors.cli.group import Verb
from holdfast.doors.cli.session import Session, pass_session
from holdfast.doors.cli.views.decisions import show_decided


@click.command(
    "reject",
    cls=Verb,
    examples=["holdfast reject drf-57557f5b59 --comment 'raised for the launch, see INC-1432'"],
)
@click.argument("id")
@options.comment(required=True)
@options.connection
@options.output(*options.ONE)
@pass_session
def command(session: Session, id: str, comment: str) -> None:
    """Reject the plan of a drift: the live side stays as it is.

    It is asked about again only when it changes.
    """
    with required(session) as controller:
        after = controller.ask(controller.api.reject(id, comment=comment))
    told = f"{id} was rejected by {after.decided_by}. The live value stays; Git still differs."
    show_decided(session.screen, after, [told])
    session.screen.next(f"holdfast codify {id} writes the live value to Git")
