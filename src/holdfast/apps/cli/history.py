"""`holdfast history`: who did what to which workload or application, and when."""

from __future__ import annotations

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.connect import find_controller
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.views.history import show_history, show_journal


@click.command(
    "history",
    cls=Verb,
    examples=[
        "holdfast history",
        "holdfast history support-bot --limit 20 -o wide",
        "holdfast history --about drf-57557f5b59",
    ],
)
@click.argument("name", shell_complete=options.complete_names, required=False)
@click.option("--about", metavar="ID", help="Only of this drift, plan or hold. For applications.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Rows to show."
)
@options.connected("table", "wide", "json", "yaml", "jsonl")
@click.pass_context
def command(
    ctx: click.Context, session: Session, name: str | None, about: str | None, limit: int
) -> None:
    """Show who did what, newest first.

    BY is the tool and the credential that it used, as they said of themselves.
    """
    with find_controller(session) as controller:
        if controller is not None:
            page = controller.call(
                controller.api.history(application=name or "", subject=about or "", limit=limit)
            )
            show_journal(session.screen, page.entries)
            more = page.next is not None
            session.screen.next(
                "holdfast drift export --journal gives all of it" if more else "holdfast status"
            )
            return
    if about:
        ctx.fail("--about is for a server that follows applications.")
    with session.client() as client:
        if name:
            where = session.workload(name)
            entries = client.history(slug=where.slug, project=where.project, limit=limit)
            if not entries:
                session.find(client, where)
        else:
            entries = client.history(limit=limit)
    show_history(session.screen, entries)
    session.screen.next("holdfast drift history")
