"""`holdfast pause`: hold an application, or one object, for an emergency change."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.connect import require_controller
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.applications import object_address, object_name, show_hold
from holdfast.apps.cli.views.output import masked_json
from holdfast.apps.cli.views.text import one_line
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
@click.argument("application", shell_complete=options.complete_names)
@click.argument("object", required=False, default="", metavar="[KIND/NAMESPACE/NAME]")
@options.for_duration()
@click.option("--reason", required=True, metavar="TEXT", help="Why, such as an incident's number.")
@click.option(
    "--then",
    type=click.Choice(["pull-request", "revert"]),
    help="What becomes of changes made meanwhile (default: the application's own rule).",
)
@options.connection
@options.output(*options.SINGLE_FORMATS)
@pass_session
def pause(
    session: Session, application: str, object: str, seconds: float, reason: str, then: str | None
) -> None:
    """Hold an application, or one object of it: nothing is written to it meanwhile.

    Counts at once, also in the middle of a sync, and always ends. What was changed under it goes
    to Git by a pull request at its end, or is put back; it is never forgotten.
    """
    with require_controller(session) as controller:
        hold = controller.call(
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
            screen.document("Hold", masked_json(hold))
    what = f" {object_address(hold.object)}" if hold.object else ""
    screen.next(f"holdfast resume {hold.application}{what}")


@click.command(
    "resume",
    cls=Verb,
    examples=["holdfast resume shop", "holdfast resume shop Deployment/chat/support-bot"],
)
@click.argument("application", shell_complete=options.complete_names)
@click.argument("object", required=False, default="", metavar="[KIND/NAMESPACE/NAME]")
@options.connection
@options.output(*options.SINGLE_FORMATS)
@pass_session
def resume(session: Session, application: str, object: str) -> None:
    """End the holds of an application, or those of one object, before their time.

    Drift that was held then goes the way of its route. A hold that an annotation began ends when
    the annotation is removed.
    """
    with require_controller(session) as controller:
        ended = controller.call(controller.api.resume(application, object=object))
    screen = session.screen
    match screen.output:
        case "table":
            for hold in ended:
                what = object_name(hold.object) if hold.object else f"all of {hold.application}"
                screen.line(f"No longer on hold: {one_line(what)} ({one_line(hold.reason)})")
        case "name":
            for hold in ended:
                screen.line(hold.id)
        case _:
            screen.document("HoldList", {"items": [masked_json(each) for each in ended]})
    screen.next(f"holdfast status {application}")
