"""Where tokens are kept: in a store file on this machine, or behind a control plane.

The file is opened beside a running server, so the first token needs nobody's permission but
the file's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

import msgspec

from holdfast.adapters.clock import BlockingClock
from holdfast.apps.cli.connect import MANAGER, no_token, sdk_settings
from holdfast.apps.cli.session import Session
from holdfast.core import tokens
from holdfast.core.errors import NotFound
from holdfast.core.live import Writer
from holdfast.core.names import WorkloadId
from holdfast.core.redact import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.adapters.http.transport import Transport
    from holdfast.adapters.store import Store, Token, Transaction


class TokenRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A token without its secret."""

    id: str
    kind: str
    project: str
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class _NewTokenRow(TokenRow, kw_only=True):
    token: str


class _TokenList(msgspec.Struct):
    tokens: list[TokenRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A token to be made: with scopes for the control plane, or for one workload."""

    name: str
    scopes: Sequence[str]
    workload: str | None
    lifetime: float | None
    """Seconds; None is until it is revoked."""

    @property
    def kind(self) -> str:
        """What it is for."""
        return "live" if self.workload else "sdk"


class Desk(Protocol):
    """Makes and ends the tokens of one project."""

    def list(self) -> Sequence[TokenRow]:
        """Return every token, the revoked ones too."""

    def create(self, order: Order) -> tuple[TokenRow, Secret]:
        """Make a token; its secret exists nowhere else."""

    def revoke(self, id: str) -> bool:
        """End a token at once; False when it was not valid any more."""


@contextmanager
def open_desk(session: Session, db: str | None) -> Iterator[Desk]:
    """Choose the store file when one is named or configured, else the control plane."""
    settings = sdk_settings(session.settings, db=db)
    if settings.path is not None:
        from holdfast.adapters.store import Mode, Store

        with Store.open(settings.path, mode=Mode.ADMIN, clock=BlockingClock()) as store:
            yield StoreDesk(store, session.project)
        return
    if settings.token is None:
        raise no_token(settings.url)
    from holdfast.apps.sdk.connect import Options, transport
    from holdfast.reconcile.colour import run

    options = Options(timeout=30.0, max_retries=2, manager=MANAGER, blocking=True)
    line = transport(settings, options, settings.token)
    try:
        yield ServerDesk(line, session.project)
    finally:
        run(line.aclose())


class StoreDesk:
    """Tokens in a store file."""

    def __init__(self, store: Store, project: str) -> None:
        self._store = store
        self._project = project

    @property
    def path(self) -> Path:
        """The store's file."""
        return self._store.path

    def list(self) -> Sequence[TokenRow]:
        """Read them all."""
        return [_row(token) for token in self._store.tokens(self._project)]

    def create(self, order: Order) -> tuple[TokenRow, Secret]:
        """Make one, and its project when there is none."""
        from holdfast.adapters.store import Scope, TokenKind

        minted = tokens.mint(order.kind, os.urandom(tokens.RANDOM_BYTES))

        def work(tx: Transaction) -> Token:
            tx.ensure_project(self._project, writer=_writer())
            uid = None
            if order.workload:
                where = WorkloadId(project=self._project, slug=order.workload)
                record = tx.record(where)
                if record is None:
                    raise NotFound(
                        f"There is no workload {where}.", todo="holdfast status lists them."
                    )
                uid = record.uid
            lifetime = timedelta(seconds=order.lifetime) if order.lifetime else None
            return tx.create_token(
                id=minted.id,
                kind=TokenKind(order.kind),
                project=self._project,
                name=order.name,
                scopes=[Scope(scope) for scope in order.scopes],
                secret_hash=minted.secret_hash,
                workload_uid=uid,
                expires_at=BlockingClock().now() + lifetime if lifetime else None,
                writer=_writer(),
            )

        return _row(self._store.write(work)), minted.secret

    def revoke(self, id: str) -> bool:
        """End one of this project."""
        token = self._store.token(id)
        if token is None or token.project != self._project:
            raise _no_token(id, self._project)
        return self._store.write(lambda tx: tx.revoke_token(id, writer=_writer()))


class ServerDesk:
    """Tokens behind a control plane; needs a token with the scope admin."""

    def __init__(self, line: Transport, project: str) -> None:
        self._line = line
        self._project = project
        self._path = f"/api/projects/{quote(project, safe='')}/tokens"

    def list(self) -> Sequence[TokenRow]:
        """Ask for them all."""
        return msgspec.json.decode(self._ask("GET", self._path), type=_TokenList).tokens

    def create(self, order: Order) -> tuple[TokenRow, Secret]:
        """Ask for one; the answer holds its secret, this once."""
        body: dict[str, object] = {"name": order.name, "kind": order.kind}
        if order.workload:
            body["workload"] = order.workload
        else:
            body["scopes"] = list(order.scopes)
        if order.lifetime:
            body["expires_in"] = max(1, int(order.lifetime))
        made = msgspec.json.decode(self._ask("POST", self._path, body), type=_NewTokenRow)
        return made, Secret(made.token)

    def revoke(self, id: str) -> bool:
        """Ask for its end."""
        if not any(token.id == id and token.revoked_at is None for token in self.list()):
            if any(token.id == id for token in self.list()):
                return False
            raise _no_token(id, self._project)
        self._ask("DELETE", f"{self._path}/{quote(id, safe='')}")
        return True

    def _ask(self, method: str, path: str, body: object = None) -> bytes:
        from holdfast.adapters.http.answers import error_of
        from holdfast.adapters.http.deadline import deadline_in
        from holdfast.reconcile.colour import run

        data = None if body is None else msgspec.json.encode(body)
        deadline = deadline_in(30.0, self._line.clock)
        answer = run(self._line.ask(method, path, deadline=deadline, body=data))
        if answer.status >= 300:
            raise error_of(answer)
        return answer.body


def _row(token: Token) -> TokenRow:
    return TokenRow(
        id=token.id,
        kind=token.kind.value,
        project=token.project,
        name=token.name,
        scopes=sorted(token.scopes),
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
    )


def _no_token(id: str, project: str) -> NotFound:
    return NotFound(
        f"There is no token {id[:60]} in project {project}.", todo="holdfast token list shows them."
    )


def _writer() -> Writer:
    import getpass

    try:
        return Writer(manager=MANAGER, actor=getpass.getuser())
    except (OSError, KeyError):
        return Writer(manager=MANAGER)
