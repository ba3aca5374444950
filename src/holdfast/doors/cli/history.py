"""`holdfast history`: who did what to which workload, and when."""

from __future__ import annotations

import click

from holdfast.doors.cli import options
from holdfast.doors.cli.group import Verb
from holdfast.doors.cli.session import Session, pass_session
from holdfast.doors.cli.views.drifts import show_history


@click.command(
    "history",
    cls=Verb,
    examples=["holdfast history", "holdfast history support-bot --limit 20 -o wide"],
)
@click.argument("workload", shell_complete=options.workload_names, required=False)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Rows to show."
)
@options.connection
@options.output("table", "wide", "json", "yaml", "jsonl")
@pass_session
def command(session: Session, workload: str | None, limit: int) -> None:
    """Show who did what, newest first.

    BY is the tool and the credential that it used, as they said of themselves.
    """
    with session.client() as client:
        if workload:
            where = session.workload(workload)
            entries = client.history(slug=where.slug, project=where.project, limit=limit)
        else:
            entries = client.history(limit=limit)
    show_history(session.screen, entries)
    session.screen.next("holdfast drift history")
