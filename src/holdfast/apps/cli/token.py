"""`holdfast token`: make, list and revoke credentials."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from holdfast.apps.cli import options
from holdfast.apps.cli.group import Verb, Verbs
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.tokens import Order, TokenRow, open_desk
from holdfast.apps.cli.views.text import age, columns, count
from holdfast.core.names import checked_slug


@click.group(
    "token",
    cls=Verbs,
    examples=[
        "holdfast token create --name ci --scope write -p acme",
        "holdfast token create --name app --workload support-bot -p acme",
        "holdfast token create --name maria --scope approve -p acme",
        "holdfast token list -p acme",
        "holdfast token revoke 3f9a01bc -p acme",
    ],
)
def command() -> None:
    """Create, list and revoke tokens.

    Works on the store file of this machine, or, when the address of a control plane is set, over
    HTTP with a token of the scope admin.
    """


@command.command(
    "create",
    cls=Verb,
    examples=[
        "holdfast token create --name ci --scope write -p acme",
        "holdfast token create --name app --workload support-bot -p acme --expires 720h",
        "export HOLDFAST_TOKEN=$(holdfast token create --name me --scope admin -o name)",
    ],
)
@click.option("--name", required=True, help="Who or what will use it; shown in the history.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["read", "write", "approve", "admin"]),
    help="What it may do in the control plane; write and approve include read, admin includes "
    "all. May be repeated.",
)
@click.option("--workload", help="Make a data key for this workload instead.")
@click.option("--expires", type=options.Duration(), help="Valid for this long, such as 720h.")
@options.db
@options.connection
@options.output("table", "json", "yaml", "name")
@pass_session
@click.pass_context
def create(
    ctx: click.Context,
    session: Session,
    name: str,
    scopes: tuple[str, ...],
    workload: str | None,
    expires: float | None,
    db: str | None,
) -> None:
    """Create a token and show its secret, once.

    With -o name only the token itself is printed, for use in a script.
    """
    if bool(scopes) == bool(workload):
        ctx.fail("Give either --scope (control plane) or --workload (data key).")
    order = Order(
        name=name,
        scopes=scopes,
        workload=checked_slug(workload, field="workload") if workload else None,
        lifetime=expires,
    )
    with open_desk(session, db) as desk:
        row, secret = desk.create(order)
    screen = session.screen
    # The one place where a secret is meant to be seen; it cannot be asked for again.
    if screen.output == "name":
        click.echo(secret.reveal())
    elif not screen.for_people:
        screen.document("Token", {**_body(row), "token": secret.reveal()})
    else:
        variable = "HOLDFAST_API_KEY" if row.kind == "live" else "HOLDFAST_TOKEN"
        screen.line(f"Token {row.id} for {row.name}, project {row.project}: {_what(row)}.")
        screen.line()
        click.echo(f"  export {variable}={secret.reveal()}")
        screen.line()
        screen.line("Keep it now: only a hash is stored, so it cannot be shown again.")
        screen.next(f"holdfast token list -p {row.project}")


@command.command("list", cls=Verb, examples=["holdfast token list -p acme"])
@options.db
@options.connection
@options.output("table", "json", "yaml", "jsonl", "name")
@pass_session
def list_all(session: Session, db: str | None) -> None:
    """List the tokens of a project, the revoked ones too. Secrets are not kept."""
    with open_desk(session, db) as desk:
        rows = desk.list()
    screen, now = session.screen, datetime.now(UTC)
    match screen.output:
        case "name":
            for row in rows:
                screen.line(row.id)
        case "jsonl":
            screen.records("TokenList", [_body(row) for row in rows])
        case "table":
            table = [
                [row.id, row.name, _what(row), age(row.created_at, now), _state(row, now)]
                for row in rows
            ]
            if table:
                for line in columns(["ID", "NAME", "FOR", "AGE", "STATE"], table):
                    screen.line(line)
            screen.line(f"{count(len(rows), 'token')} in project {session.project}.")
            screen.next("holdfast token create --name NAME --scope read")
        case _:
            screen.document("TokenList", {"items": [_body(row) for row in rows]})


@command.command("revoke", cls=Verb, examples=["holdfast token revoke 3f9a01bc -p acme"])
@click.argument("id")
@options.db
@options.connection
@options.colour
@pass_session
def revoke(session: Session, id: str, db: str | None) -> None:
    """Revoke a token: its next request is refused. Saying it twice is no error."""
    with open_desk(session, db) as desk:
        ended = desk.revoke(id)
    session.screen.line(f"Token {id} {'is revoked' if ended else 'was not valid any more'}.")
    session.screen.next("holdfast token list")


def _what(row: TokenRow) -> str:
    return "one workload" if row.kind == "live" else ",".join(row.scopes)


def _state(row: TokenRow, now: datetime) -> str:
    if row.revoked_at:
        return "revoked"
    if row.expires_at and row.expires_at <= now:
        return "expired"
    return f"until {row.expires_at:%Y-%m-%d}" if row.expires_at else "valid"


def _body(row: TokenRow) -> dict[str, object]:
    return {
        "id": row.id,
        "kind": row.kind,
        "project": row.project,
        "name": row.name,
        "scopes": row.scopes,
        "createdAt": row.created_at,
        "expiresAt": row.expires_at,
        "revokedAt": row.revoked_at,
    }
