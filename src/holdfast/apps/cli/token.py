"""`holdfast token`: make, list and revoke credentials.

They are kept in a store file on this machine, or behind a control plane. The file is opened beside
a running server, so the first token needs nobody's permission but the file's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

import click
import msgspec

from holdfast.adapters.clock import BlockingClock
from holdfast.apps.cli import options
from holdfast.apps.cli.connect import MANAGER, connection_settings, missing_token_error
from holdfast.apps.cli.group import Verb, VerbGroup
from holdfast.apps.cli.session import Session, pass_session
from holdfast.apps.cli.views.output import show_list
from holdfast.apps.cli.views.text import age, count, format_table
from holdfast.core import tokens
from holdfast.core.errors import NotFound
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId, require_slug
from holdfast.core.redact import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.adapters.http.client import HttpClient
    from holdfast.adapters.store import Store, Token, Transaction


@click.group(
    "token",
    cls=VerbGroup,
    examples=[
        "holdfast token create --name ci --scope write -p acme",
        "holdfast token create --name app --workload support-bot -p acme",
        "holdfast token create --name gateway --kind live -p acme    # every workload",
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
@click.option(
    "--kind",
    type=click.Choice(["sdk", "live"]),
    help="sdk for the control plane, live for a data key; without --workload one for every "
    "workload of the project (default: by --scope and --workload).",
)
@click.option("--expires", type=options.Duration(), help="Valid for this long, such as 720h.")
@options.db
@options.connected("table", "json", "yaml", "name")
@click.pass_context
def create(
    ctx: click.Context,
    session: Session,
    name: str,
    scopes: tuple[str, ...],
    workload: str | None,
    kind: str | None,
    expires: float | None,
    db: str | None,
) -> None:
    """Create a token and show its secret, once.

    With -o name only the token itself is printed, for use in a script.
    """
    live = kind == "live" or bool(workload)
    if live == bool(scopes) or (live and kind == "sdk"):
        ctx.fail("Give either --scope (control plane), or --workload or --kind live (data key).")
    request = TokenRequest(
        name=name,
        kind="live" if live else "sdk",
        scopes=scopes,
        workload=require_slug(workload, field="workload") if workload else None,
        lifetime=expires,
    )
    with open_token_admin(session, db) as admin:
        row, secret = admin.create(request)
    screen = session.screen
    # The one place where a secret is meant to be seen; it cannot be shown again.
    if screen.output == "name":
        click.echo(secret.reveal())
    elif not screen.for_people:
        screen.document("Token", {**_row_body(row), "token": secret.reveal()})
    else:
        variable = "HOLDFAST_API_KEY" if row.kind == "live" else "HOLDFAST_TOKEN"
        allowed = _describe_scopes(row)
        screen.line(f"Token {row.id} for {row.name}, project {row.project}: {allowed}.\n")
        click.echo(f"  export {variable}={secret.reveal()}\n")
        screen.line("Keep it now: only a hash is stored, so it cannot be shown again.")
        screen.next(f"holdfast token list -p {row.project}")


@command.command("list", cls=Verb, examples=["holdfast token list -p acme"])
@options.db
@options.connected("table", "json", "yaml", "jsonl", "name")
def list_all(session: Session, db: str | None) -> None:
    """List the tokens of a project, the revoked ones too. Secrets are not kept."""
    with open_token_admin(session, db) as admin:
        rows = admin.list()
    now = datetime.now(UTC)
    table = [
        [row.id, row.name, _describe_scopes(row), age(row.created_at, now), _state(row, now)]
        for row in rows
    ]
    heads = ["ID", "NAME", "FOR", "AGE", "STATE"]
    summary = f"{count(len(rows), 'token')} in project {session.project}."
    show_list(
        session.screen,
        "TokenList",
        rows,
        lines=[*(format_table(heads, table) if table else ()), summary],
        name=lambda row: row.id,
        body=_row_body,
    )
    session.screen.next("holdfast token create --name NAME --scope read")


@command.command("revoke", cls=Verb, examples=["holdfast token revoke 3f9a01bc -p acme"])
@click.argument("id")
@options.db
@options.connection
@options.colour
@pass_session
def revoke(session: Session, id: str, db: str | None) -> None:
    """Revoke a token: its next request is refused. Saying it twice is no error."""
    with open_token_admin(session, db) as admin:
        ended = admin.revoke(id)
    session.screen.line(f"Token {id} {'is revoked' if ended else 'was not valid any more'}.")
    session.screen.next("holdfast token list")


def _describe_scopes(row: TokenRow) -> str:
    if row.kind != "live":
        return ",".join(row.scopes)
    return "one workload" if row.workload_id else "every workload"


def _state(row: TokenRow, now: datetime) -> str:
    if row.revoked_at:
        return "revoked"
    if row.expires_at and row.expires_at <= now:
        return "expired"
    return f"until {row.expires_at:%Y-%m-%d}" if row.expires_at else "valid"


def _row_body(row: TokenRow) -> dict[str, object]:
    return {
        "id": row.id,
        "kind": row.kind,
        "project": row.project,
        "name": row.name,
        "scopes": row.scopes,
        "workloadId": row.workload_id,
        "createdAt": row.created_at,
        "expiresAt": row.expires_at,
        "revokedAt": row.revoked_at,
    }


class TokenRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A token without its secret."""

    id: str
    kind: str
    project: str
    name: str
    scopes: list[str]
    created_at: datetime
    workload_id: str | None = None
    """Of a data key: the workload that it opens; None opens every one of the project."""
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class _NewTokenRow(TokenRow, kw_only=True):
    token: str


class _TokenList(msgspec.Struct):
    tokens: list[TokenRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """A token to be made: with scopes for the control plane, or for one workload, or for all."""

    name: str
    kind: str
    scopes: Sequence[str]
    workload: str | None
    lifetime: float | None
    """Seconds; None is until it is revoked."""


@contextmanager
def open_token_admin(
    session: Session, db: str | None
) -> Iterator[StoreTokenAdmin | RemoteTokenAdmin]:
    """Choose the store file when one is named or configured, else the control plane."""
    settings = connection_settings(session.settings, db=db)
    if settings.path is not None:
        from holdfast.adapters.store import OpenMode, Store

        with Store.open(settings.path, mode=OpenMode.ADMIN, clock=BlockingClock()) as store:
            yield StoreTokenAdmin(store, session.project)
        return
    if settings.token is None:
        raise missing_token_error(settings.url)
    from holdfast.apps.sdk.connect import ClientOptions, make_transport
    from holdfast.reconcile.sync_bridge import run_sync

    options = ClientOptions(timeout=30.0, max_retries=2, manager=MANAGER, blocking=True)
    client = make_transport(settings, options, settings.token)
    try:
        yield RemoteTokenAdmin(client, session.project)
    finally:
        run_sync(client.aclose())


class StoreTokenAdmin:
    """Tokens in a store file."""

    def __init__(self, store: Store, project: str) -> None:
        self._store = store
        self._project = project

    def list(self) -> Sequence[TokenRow]:
        """Return every token, the revoked ones too."""
        return [_row_of(token) for token in self._store.tokens(self._project)]

    def create(self, request: TokenRequest) -> tuple[TokenRow, Secret]:
        """Make a token, and its project when there is none."""
        from holdfast.adapters.store import TokenKind, TokenScope

        minted = tokens.mint(request.kind, os.urandom(tokens.RANDOM_BYTES))

        def work(tx: Transaction) -> Token:
            tx.ensure_project(self._project, writer=_cli_writer())
            uid = None
            if request.workload:
                where = WorkloadId(project=self._project, slug=request.workload)
                record = tx.record(where)
                if record is None:
                    raise NotFound(
                        f"There is no workload {where}.", hint="holdfast status lists them."
                    )
                uid = record.uid
            lifetime = timedelta(seconds=request.lifetime) if request.lifetime else None
            return tx.create_token(
                id=minted.id,
                kind=TokenKind(request.kind),
                project=self._project,
                name=request.name,
                scopes=[TokenScope(scope) for scope in request.scopes],
                secret_hash=minted.secret_hash,
                workload_uid=uid,
                expires_at=BlockingClock().now() + lifetime if lifetime else None,
                writer=_cli_writer(),
            )

        return _row_of(self._store.write(work)), minted.secret

    def revoke(self, id: str) -> bool:
        """Revoke a token at once; False when it was not valid any more."""
        token = self._store.token(id)
        if token is None or token.project != self._project:
            raise _unknown_token_error(id, self._project)
        return self._store.write(lambda tx: tx.revoke_token(id, writer=_cli_writer()))


class RemoteTokenAdmin:
    """Tokens behind a control plane; needs a token with the scope admin."""

    def __init__(self, client: HttpClient, project: str) -> None:
        self._client = client
        self._project = project
        self._path = f"/api/projects/{quote(project, safe='')}/tokens"

    def list(self) -> Sequence[TokenRow]:
        """Return every token, the revoked ones too."""
        return msgspec.json.decode(self._request("GET", self._path), type=_TokenList).tokens

    def create(self, request: TokenRequest) -> tuple[TokenRow, Secret]:
        """Make a token; the response holds its secret, this once."""
        body: dict[str, object] = {"name": request.name, "kind": request.kind}
        if request.workload:
            body["workload"] = request.workload
        if request.scopes:
            body["scopes"] = list(request.scopes)
        if request.lifetime:
            body["expires_in"] = max(1, int(request.lifetime))
        made = msgspec.json.decode(self._request("POST", self._path, body), type=_NewTokenRow)
        return made, Secret(made.token)

    def revoke(self, id: str) -> bool:
        """Revoke a token at once; False when it was not valid any more."""
        token = next((each for each in self.list() if each.id == id), None)
        if token is None:
            raise _unknown_token_error(id, self._project)
        if token.revoked_at is not None:
            return False
        self._request("DELETE", f"{self._path}/{quote(id, safe='')}")
        return True

    def _request(self, method: str, path: str, body: object = None) -> bytes:
        from holdfast.adapters.http.responses import response_error
        from holdfast.adapters.http.transports import deadline_in
        from holdfast.reconcile.sync_bridge import run_sync

        data = None if body is None else msgspec.json.encode(body)
        deadline = deadline_in(30.0, self._client.clock)
        response = run_sync(self._client.request(method, path, deadline=deadline, body=data))
        if response.status >= 300:
            raise response_error(response)
        return response.body


def _row_of(token: Token) -> TokenRow:
    return TokenRow(
        id=token.id,
        kind=token.kind.value,
        project=token.project,
        name=token.name,
        scopes=sorted(token.scopes),
        created_at=token.created_at,
        workload_id=token.workload_uid,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
    )


def _unknown_token_error(id: str, project: str) -> NotFound:
    return NotFound(
        f"There is no token {id[:60]} in project {project}.", hint="holdfast token list shows them."
    )


def _cli_writer() -> Writer:
    import getpass

    try:
        return Writer(manager=MANAGER, actor=getpass.getuser())
    except (OSError, KeyError):
        return Writer(manager=MANAGER)
