"""`holdfast pause`: hold an application, or one object, for an emergency change."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.controller import required
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.applications import addressed, show_hold
from holdfast.apps.cli.views.forms import masked
from holdfast.core.gitops.application import HoldEnd


@click.command(
    "pause",
    cls=Verb,
    examples=[
        "holdfast pause shop --for 2h --reason INC-1432",
        "holdfast pause shop Deployment/chat/support-bot --for 30m --reason INC-1432",
        "holdfast pause shop --for 2h --reason INC-1432 --then revert",
    ],
)
@click.argument("application", shell_complete=options.workload_names)
@click.argument("object", required=False, default="", metavar="[KIND/NAMESPACE/NAME]")
@options.lasting()
@click.option("--reason", required=True, metavar="TEXT", help="Why, such as an incident's number.")
@click.option(
    "--then",
    type=click.Choice(["pull-request", "revert"]),
    help="What becomes of changes made meanwhile (default: the application's own rule).",
)
@options.connection
@options.output(*options.ONE)
@pass_session
def command(
    session: Session, application: str, object: str, seconds: float, reason: str, then: str | None
) -> None:
    """Hold an application, or one object of it: nothing is written to it meanwhile.

    Counts at once, also in the middle of a sync, and always ends. What was changed under it goes
    to Git by a pull request at its end, or is put back; it is never forgotten.
    """
    with required(session) as controller:
        hold = controller.ask(
            controller.api.pause(
                application, object=object, seconds=max(1, int(seconds)), reason=reason,
                end=HoldEnd(then) if then else None,
            )
        )  # fmt: skip
    screen = session.screen
    match screen.output:
        case "table":
            show_hold(screen, hold, now=datetime.now(UTC))
        case "name":
            screen.line(hold.id)
        case _:
            screen.document("Hold", masked(hold))
    what = f" {addressed(hold.object)}" if hold.object else ""
    screen.next(f"holdfast resume {hold.application}{what}")
