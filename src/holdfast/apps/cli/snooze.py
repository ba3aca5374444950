"""`holdfast snooze`: be asked again later."""

from __future__ import annotations

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.controller import required
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.decisions import show_decided
from holdfast.apps.cli.views.text import stamp


@click.command("snooze", cls=Verb, examples=["holdfast snooze drf-57557f5b59 --for 4h"])
@click.argument("id")
@options.lasting()
@options.comment()
@options.connection
@options.output(*options.ONE)
@pass_session
def command(session: Session, id: str, seconds: float, comment: str) -> None:
    """Put off the decision about a drift. Nothing is written meanwhile.

    It is asked about again when the time is over, or as soon as it changes.
    """
    with required(session) as controller:
        after = controller.ask(
            controller.api.snooze(id, seconds=max(1, int(seconds)), comment=comment)
        )
    until = stamp(after.until) if after.until else "later"
    told = f"{id} is left alone until {until}, or until it changes."
    show_decided(session.screen, after, [told])
    session.screen.next("holdfast drift list --state awaiting-approval")
