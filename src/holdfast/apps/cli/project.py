"""`holdfast project`: make and list projects, in a store file on this machine."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.connect import administered
from holdfast.apps.cli.group import Verb, Verbs
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.text import age, columns

_url = options.connection


@click.group(
    "project",
    cls=Verbs,
    examples=["holdfast project create acme", "holdfast project list"],
)
def command() -> None:
    """Create and list projects.

    Works on the store file, also while a server has it open; a token belongs to one project, so
    there is no credential that could do this over the network.
    """


@command.command("create", cls=Verb, examples=["holdfast project create acme --db holdfast.db"])
@click.argument("slug")
@options.db
@_url
@options.colour
@pass_session
def create(session: Session, slug: str, db: str | None) -> None:
    """Create a project."""
    with administered(session, db) as store:
        project = store.write(lambda tx: tx.create_project(slug))
    session.screen.line(f"Project {project.slug} is created.")
    session.screen.next(f"holdfast token create --name me --scope admin -p {project.slug}")


@command.command("list", cls=Verb, examples=["holdfast project list -o json"])
@options.db
@_url
@options.output("table", "json", "yaml", "jsonl", "name")
@pass_session
def list_all(session: Session, db: str | None) -> None:
    """List the projects."""
    with administered(session, db) as store:
        projects = store.projects()
        counts = {each.slug: len(store.records(each.slug)) for each in projects}
    screen, now = session.screen, datetime.now(UTC)
    items = [
        {
            "slug": each.slug,
            "id": each.id,
            "workloads": counts[each.slug],
            "createdAt": each.created_at,
        }
        for each in projects
    ]
    match screen.output:
        case "name":
            for each in projects:
                screen.line(each.slug)
        case "jsonl":
            screen.records("ProjectList", items)
        case "table":
            rows = [
                [each.slug, str(counts[each.slug]), age(each.created_at, now)] for each in projects
            ]
            lines = columns(["PROJECT", "WORKLOADS", "AGE"], rows) if rows else ["No projects."]
            for line in lines:
                screen.line(line)
            screen.next("holdfast project create SLUG")
        case _:
            screen.document("ProjectList", {"items": items})
