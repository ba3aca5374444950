"""`holdfast backup`: copy the store, also while a server writes to it."""

from __future__ import annotations

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.connect import administered
from holdfast.apps.cli.group import Verb
from holdfast.apps.cli.session import Session, pass_session


@click.command(
    "backup",
    cls=Verb,
    examples=["holdfast backup /backups/holdfast.db --db /var/lib/holdfast/holdfast.db"],
)
@click.argument("copy", type=click.Path(dir_okay=False))
@options.db
@options.connection
@options.colour
@pass_session
def command(session: Session, copy: str, db: str | None) -> None:
    """Copy the store, also while a server writes to it.

    The copy is one committed state, however much is written meanwhile. To restore it, stop the
    server, put it in place, and start once with --accept-rollback.
    """
    with administered(session, db) as store:
        store.backup(copy)
        shown = store.path
    session.screen.line(f"{copy} is a copy of {shown}.")
    session.screen.next("holdfast serve --accept-rollback, once, if you ever put it in place")
