"""`holdfast logs`: what a workload's processes wrote."""

from __future__ import annotations

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.text import one_line


@click.command(
    "logs",
    cls=Verb,
    examples=["holdfast logs support-bot", "holdfast logs support-bot -f --tail 20"],
)
@click.argument("workload", shell_complete=options.complete_names)
@click.option("--follow", "-f", is_flag=True, help="Keep following as new lines come.")
@click.option(
    "--tail",
    type=click.IntRange(0, 100_000),
    default=100,
    show_default=True,
    help="Lines to begin with.",
)
@options.connection
@options.colour
@pass_session
def command(session: Session, workload: str, follow: bool, tail: int) -> None:
    """Show the log of a workload, each line with the name of its replica.

    Control characters are escaped and credentials are masked.
    """
    where = session.workload(workload)
    with session.client() as client:
        session.find(client, where)
        lines = 0
        for line in client.logs(where.slug, tail=tail, follow=follow, project=where.project):
            session.screen.line(one_line(line.rstrip("\r\n")))
            lines += 1
    if not lines:
        session.screen.info(f"{where} has written nothing yet.")
        session.screen.next(f"holdfast status {where} -o wide")
