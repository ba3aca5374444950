"""`holdfast project`: make and list projects, in a store file on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from holdfast.core.errors import ConfigurationError
from holdfast.doors.cli import options
from holdfast.doors.cli.connect import sdk_settings
from holdfast.doors.cli.group import Verb, Verbs
from holdfast.doors.cli.session import Session, pass_session
from holdfast.doors.cli.views.text import age, columns

if TYPE_CHECKING:
    from holdfast.adapters.store import Store

_db = click.option(
    "--db",
    type=click.Path(dir_okay=False),
    help="Store file to work on, also beside a running server.",
)
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
@_db
@_url
@options.colour
@pass_session
def create(session: Session, slug: str, db: str | None) -> None:
    """Create a project."""
    with _store(session, db) as store:
        project = store.write(lambda tx: tx.create_project(slug))
    session.screen.line(f"Project {project.slug} is created.")
    session.screen.next(f"holdfast token create --name me --scope admin -p {project.slug}")


@command.command("list", cls=Verb, examples=["holdfast project list -o json"])
@_db
@_url
@options.output("table", "json", "yaml", "jsonl", "name")
@pass_session
def list_all(session: Session, db: str | None) -> None:
    """List the projects."""
    with _store(session, db) as store:
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


@contextmanager
def _store(session: Session, db: str | None) -> Iterator[Store]:
    from holdfast.adapters.store import Mode, Store

    path = sdk_settings(session.settings, db=db).path
    if path is None:
        raise ConfigurationError(
            f"Projects are made in a store file, and {session.settings.get('url')} is none.",
            todo="Run this where the server's file is, with --db FILE.",
        )
    with Store.open(path, mode=Mode.ADMIN) as store:
        yield store
