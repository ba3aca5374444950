"""`holdfast ignore`: hide a drift, or one field of it, for a while."""

from __future__ import annotations

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.controller import required
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.forms import masked
from holdfast.apps.cli.views.text import one_line, stamp


@click.command(
    "ignore",
    cls=Verb,
    examples=[
        "holdfast ignore drf-57557f5b59 --for 7d --reason 'load test'",
        "holdfast ignore drf-57557f5b59 --field spec.replicas --manager kubectl",
    ],
)
@click.argument("id")
@click.option("--field", default="", metavar="PATH", help="Only this field; all of it otherwise.")
@click.option("--manager", default="", metavar="NAME", help="Only while this tool wrote it.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with the rule.")
@options.lasting("7d")
@options.connection
@options.output(*options.ONE)
@pass_session
def command(
    session: Session, id: str, field: str, manager: str, reason: str, seconds: float
) -> None:
    """Hide a drift, or one field of it, for a limited time.

    A hidden field is neither reported nor written. A field that concerns security can be hidden
    only by a rule in the Application, and a whole object not at all.
    """
    with required(session) as controller:
        rules = controller.ask(
            controller.api.ignore(
                id, seconds=max(1, int(seconds)), reason=reason, path=field, manager=manager
            )
        )
    screen = session.screen
    match screen.output:
        case "table":
            for rule in rules:
                by = f" while {one_line(rule.manager)} wrote it" if rule.manager else ""
                what = f"{one_line(rule.path)} of {one_line(rule.object)}"
                screen.line(f"= {what} is hidden until {stamp(rule.expires)}{by} ({rule.name})")
        case "name":
            for rule in rules:
                screen.line(rule.name)
        case _:
            screen.document("IgnoreRuleList", {"items": [masked(each) for each in rules]})
    screen.next("holdfast drift list")
