"""`holdfast resume`: end holds before their time."""

from __future__ import annotations

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.controller import required
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.applications import named
from holdfast.apps.cli.views.forms import masked
from holdfast.apps.cli.views.text import one_line


@click.command(
    "resume",
    cls=Verb,
    examples=["holdfast resume shop", "holdfast resume shop Deployment/chat/support-bot"],
)
@click.argument("application", shell_complete=options.workload_names)
@click.argument("object", required=False, default="", metavar="[KIND/NAMESPACE/NAME]")
@options.connection
@options.output(*options.ONE)
@pass_session
def command(session: Session, application: str, object: str) -> None:
    """End the holds of an application, or those of one object, before their time.

    Drift that was held then goes the way of its route. A hold that an annotation began ends when
    the annotation is removed.
    """
    with required(session) as controller:
        ended = controller.ask(controller.api.resume(application, object=object))
    screen = session.screen
    match screen.output:
        case "table":
            for hold in ended:
                what = named(hold.object) if hold.object else f"all of {hold.application}"
                screen.line(f"No longer on hold: {one_line(what)} ({one_line(hold.reason)})")
        case "name":
            for hold in ended:
                screen.line(hold.id)
        case _:
            screen.document("HoldList", {"items": [masked(each) for each in ended]})
    screen.next(f"holdfast status {application}")
