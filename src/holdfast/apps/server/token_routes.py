"""Tokens: listed, created with their secret shown once, revoked at once."""

from __future__ import annotations

import os
from datetime import timedelta

import msgspec

from holdfast.adapters.store import Token, TokenKind, TokenScope, Transaction
from holdfast.apps.server.errors import HttpError, not_found_error
from holdfast.apps.server.forms import (
    NewTokenForm,
    TokenListForm,
    TokenRequestForm,
    token_to_json,
)
from holdfast.apps.server.request import HttpResponse, Request, json_response, read_form
from holdfast.apps.server.services import Services
from holdfast.core import tokens
from holdfast.core.errors import Problem
from holdfast.core.names import WorkloadId
from holdfast.core.redact import credential_in


async def list_tokens(services: Services, request: Request) -> HttpResponse:
    """List the tokens of a project, revoked ones included. Secrets are not kept."""
    found = services.store.tokens(request.params["project"])
    return json_response(TokenListForm(tokens=[token_to_json(token) for token in found]))


async def create_token(services: Services, request: Request) -> HttpResponse:
    """Create a token. The answer holds its secret, this once."""
    form = await read_form(request, TokenRequestForm, services.config.limits.control_body)
    project = request.params["project"]
    _check_token_request(form)
    minted = tokens.mint(form.kind.value, os.urandom(tokens.RANDOM_BYTES))
    expires_at = (
        services.clock.now() + timedelta(seconds=form.expires_in) if form.expires_in else None
    )

    cluster = services.cluster
    known = cluster and form.workload and await cluster.uid_of(project, form.workload)

    def work(tx: Transaction) -> Token:
        uid = known or None
        if form.workload is not None and cluster is None:
            record = tx.record(WorkloadId(project=project, slug=form.workload))
            if record is None:
                raise not_found_error()
            uid = record.uid
        return tx.create_token(
            id=minted.id,
            kind=form.kind,
            project=project,
            name=form.name,
            scopes=form.scopes,
            secret_hash=minted.secret_hash,
            workload_uid=uid,
            elsewhere=cluster is not None,
            expires_at=expires_at,
            person=request.token.person if request.token else None,
            writer=request.writer("create"),
        )

    token = await services.store.submit(work)
    shown = msgspec.structs.asdict(token_to_json(token))
    return json_response(NewTokenForm(**shown, token=minted.secret.reveal()), status=201)


async def revoke_token(services: Services, request: Request) -> HttpResponse:
    """Revoke a token. Its next request is refused."""
    project, id = request.params["project"], request.params["id"]
    writer = request.writer("revoke")

    def work(tx: Transaction) -> None:
        token = tx.token(id)
        if token is None or token.project != project:
            raise not_found_error()
        tx.revoke_token(id, writer=writer)

    await services.store.submit(work)
    return HttpResponse(status=204)


def _check_token_request(form: TokenRequestForm) -> None:
    problems = []
    if not form.name.isprintable() or credential_in(form.name):
        problems.append(
            Problem(field="name", reason="it is not plain text.", fix="Give a short name.")
        )
    live = form.kind is TokenKind.LIVE
    if live and form.scopes:
        problems.append(
            Problem(field="scopes", reason="a data key has no scopes.", fix="Leave them out.")
        )
    if not live and form.workload is not None:
        problems.append(
            Problem(field="workload", reason="it is for data keys.", fix="Leave it out.")
        )
    if not live and not form.scopes:
        problems.append(
            Problem(
                field="scopes",
                reason="there are none.",
                fix=f"Give some of {', '.join(TokenScope)}.",
            )
        )
    if problems:
        raise HttpError(400, "invalid", "The token was not created.", problems=problems)
