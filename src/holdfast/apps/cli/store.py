"""`holdfast project` and `backup`: administer a store file on this machine."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.connect import open_store
from holdfast.apps.cli.group import Verb, VerbGroup
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.output import show_list
from holdfast.apps.cli.views.text import age, format_table


@click.group(
    "project",
    cls=VerbGroup,
    examples=["holdfast project create acme", "holdfast project list"],
)
def project() -> None:
    """Create and list projects.

    Works on the store file, also while a server has it open; a token belongs to one project, so
    there is no credential that could do this over the network.
    """


@project.command("create", cls=Verb, examples=["holdfast project create acme --db holdfast.db"])
@click.argument("slug")
@options.db
@options.connection
@options.colour
@pass_session
def create(session: Session, slug: str, db: str | None) -> None:
    """Create a project."""
    with open_store(session, db) as store:
        created = store.write(lambda tx: tx.create_project(slug))
    session.screen.line(f"Project {created.slug} is created.")
    session.screen.next(f"holdfast token create --name me --scope admin -p {created.slug}")


@project.command("list", cls=Verb, examples=["holdfast project list -o json"])
@options.db
@options.connected("table", "json", "yaml", "jsonl", "name")
def list_all(session: Session, db: str | None) -> None:
    """List the projects."""
    with open_store(session, db) as store:
        projects = store.projects()
        counts = {each.slug: len(store.records(each.slug)) for each in projects}
    now = datetime.now(UTC)
    rows = [[each.slug, str(counts[each.slug]), age(each.created_at, now)] for each in projects]
    table = format_table(["PROJECT", "WORKLOADS", "AGE"], rows)
    show_list(
        session.screen,
        "ProjectList",
        projects,
        lines=table if rows else ["No projects."],
        name=lambda each: each.slug,
        body=lambda each: {
            "slug": each.slug,
            "id": each.id,
            "workloads": counts[each.slug],
            "createdAt": each.created_at,
        },
    )
    session.screen.next("holdfast project create SLUG")


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
def backup(session: Session, copy: str, db: str | None) -> None:
    """Copy the store, also while a server writes to it.

    The copy is one committed state, however much is written meanwhile. To restore it, stop the
    server, put it in place, and start once with --accept-rollback.
    """
    with open_store(session, db) as store:
        store.backup(copy)
        original = store.path
    session.screen.line(f"{copy} is a copy of {original}.")
    session.screen.next("holdfast serve --accept-rollback, once, if you ever put it in place")
