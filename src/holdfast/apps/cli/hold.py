"""`holdfast pause` and `resume`: hold an application, or one object, for an emergency change."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.connect import require_controller
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.applications import hold_lines, object_address, object_name
from holdfast.apps.cli.views.output import masked_json, show_list, show_result
from holdfast.apps.cli.views.text import one_line
from holdfast.core.gitops.application import HoldEnd
from holdfast.wire.gitops_http_v1 import HoldForm


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
@options.connected(*options.SINGLE_FORMATS)
def pause(
    session: Session, application: str, object: str, seconds: int, reason: str, then: str | None
) -> None:
    """Hold an application, or one object of it: nothing is written to it meanwhile.

    Counts at once, also in the middle of a sync, and always ends. What was changed under it goes
    to Git by a pull request at its end, or is put back; it is never forgotten.
    """
    with require_controller(session) as controller:
        end = HoldEnd(then) if then else None
        hold = controller.call(
            controller.api.pause(
                application, object=object, seconds=seconds, reason=reason, end=end
            )
        )
    show_result(
        session.screen,
        "Hold",
        lines=hold_lines(hold, now=datetime.now(UTC)),
        names=[hold.id],
        body=lambda: masked_json(hold),
    )
    what = f" {object_address(hold.object)}" if hold.object else ""
    session.screen.next(f"holdfast resume {hold.application}{what}")


@click.command(
    "resume",
    cls=Verb,
    examples=["holdfast resume shop", "holdfast resume shop Deployment/chat/support-bot"],
)
@click.argument("application", shell_complete=options.complete_names)
@click.argument("object", required=False, default="", metavar="[KIND/NAMESPACE/NAME]")
@options.connected(*options.SINGLE_FORMATS)
def resume(session: Session, application: str, object: str) -> None:
    """End the holds of an application, or those of one object, before their time.

    Drift that was held is then handled by its route. A hold that an annotation began ends when
    the annotation is removed.
    """
    with require_controller(session) as controller:
        ended = controller.call(controller.api.resume(application, object=object))

    def describe(hold: HoldForm) -> str:
        what = object_name(hold.object) if hold.object else f"all of {hold.application}"
        return f"No longer on hold: {one_line(what)} ({one_line(hold.reason)})"

    show_list(
        session.screen,
        "HoldList",
        ended,
        lines=map(describe, ended),
        name=lambda hold: hold.id,
        body=masked_json,
    )
    session.screen.next(f"holdfast status {application}")
