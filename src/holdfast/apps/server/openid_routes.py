"""Signing in at an OpenID Connect issuer, and a CI job's token for one of ours.

The way of a sign-in is the code flow with PKCE: to the issuer with a state that only this browser
has, back with a code, and the code against an id token, from server to server. Every way back is
a redirection to the login page, with a word for what went wrong; the log has the reason.
"""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from typing import NoReturn
from urllib.parse import quote, urlencode

import msgspec

from holdfast.adapters.openid import Claims, IdentityRefused, unverified_issuer
from holdfast.adapters.store import Token, TokenKind, TokenScope, Transaction
from holdfast.apps.server import logs
from holdfast.apps.server.errors import HttpError, not_found_error
from holdfast.apps.server.forms import (
    LoginForm,
    LoginProviderForm,
    NewTokenForm,
    TokenExchangeForm,
    token_to_json,
)
from holdfast.apps.server.identities import LOGIN_SECONDS, PendingLogin, is_own_page, read_secret
from holdfast.apps.server.request import HttpResponse, Request, json_response, read_form
from holdfast.apps.server.services import Services
from holdfast.apps.server.session_routes import begin_session, insecure_way
from holdfast.apps.server.sessions import (
    PRIVATE_HEADERS,
    cookie_name,
    named_cookie,
    own_base,
    set_cookie,
)
from holdfast.core import tokens
from holdfast.core.live import Writer
from holdfast.core.people import CiIssuer, OpenIdProvider, Person, claim_values, shown_name
from holdfast.version import __version__

MAX_BODY = 32 * 1024
CI_MANAGER = "holdfast-ci"
"""The writer of tokens that CI jobs were given."""
_LOGIN_COOKIE = "{session}-login"
_NO_RULE = (
    "Not permitted. No rule of the people file gives this CI job anything in this project. "
    "Nothing was changed. Compare the token's claims with the rules."
)


async def describe_login(services: Services, request: Request) -> HttpResponse:
    """Say what a login screen can offer."""
    providers = [
        LoginProviderForm(id=each.id, name=each.name, url=f"/api/openid/{each.id}/login")
        for each in services.identities.config.openid
    ]
    form = LoginForm(openid=providers, token=True, version=__version__)
    return json_response(form, headers=PRIVATE_HEADERS)


async def begin_login(services: Services, request: Request) -> HttpResponse:
    """Send a browser to the issuer. `next` is where on the page it comes back to.

    What is no path of the page leads to its front: nobody is sent elsewhere.
    """
    provider = _provider_of(services, request)
    cookie = cookie_name(services.config, request)
    if cookie is None:
        raise insecure_way()
    asked = request.known_query("next").get("next", "")
    after = asked if is_own_page(asked) else "/ui/"
    metadata = await services.identities.issuer(provider).metadata()
    if isinstance(metadata, IdentityRefused):
        return _refuse(services, "issuer_unavailable", provider, metadata.reason)
    login, value = services.identities.logins.begin(provider.id, after)
    secrets = services.identities.logins.secrets_of(login.state)
    query = urlencode(
        {
            "response_type": "code",
            "client_id": provider.client_id,
            "redirect_uri": _callback_url(services, request, provider),
            "scope": " ".join(provider.scopes),
            "state": login.state,
            "nonce": secrets.nonce,
            "code_challenge": secrets.challenge,
            "code_challenge_method": "S256",
        }
    )
    joint = "&" if "?" in metadata.authorization_url else "?"
    kept = set_cookie(_LOGIN_COOKIE.format(session=cookie), value, seconds=LOGIN_SECONDS)
    return _redirect(f"{metadata.authorization_url}{joint}{query}", kept)


async def finish_login(services: Services, request: Request) -> HttpResponse:
    """Take the issuer's code, and begin the session of the person it stands for."""
    provider = _provider_of(services, request)
    cookie = cookie_name(services.config, request)
    if cookie is None:
        raise insecure_way()
    name = _LOGIN_COOKIE.format(session=cookie)
    state = request.query.get("state", "")
    login = services.identities.logins.take(
        named_cookie(request, name), provider=provider.id, state=state
    )
    ended = set_cookie(name, "", seconds=0)
    if login is None:
        reason = "the sign-in is not this browser's, is over, or was used before"
        return _refuse(services, "login_expired", provider, reason, ended)
    if request.query.get("iss", provider.issuer) != provider.issuer:
        return _refuse(services, "identity_refused", provider, "another issuer answered", ended)
    if "code" not in request.query:
        word = "".join(
            char for char in request.query.get("error", "")[:60] if char.isalnum() or char in "_-"
        )
        return _refuse(services, "login_refused", provider, f"the issuer said {word!r}", ended)
    claims = await _claims_of(services, request, provider, login)
    if isinstance(claims, IdentityRefused):
        code = "issuer_unavailable" if claims.unavailable else "identity_refused"
        return _refuse(services, code, provider, claims.reason, ended)
    person = _person_of(provider, claims)
    known = _rule_claims(provider, claims)
    if not services.identities.config.grants(provider.id, provider.issuer, known):
        reason = f"no rule of the people file is about {person.id}"
        return _refuse(services, "no_access", provider, reason, ended)
    _, begun = await begin_session(
        services, request, person=person, provider=provider.id, claims=known
    )
    logs.event("signed_in", provider=provider.id, person=person.id)
    return _redirect(login.next, ended, begun)


async def _claims_of(
    services: Services, request: Request, provider: OpenIdProvider, login: PendingLogin
) -> Claims | IdentityRefused:
    issuer = services.identities.issuer(provider)
    secrets = services.identities.logins.secrets_of(login.state)
    token = await issuer.exchange_code(
        request.query["code"],
        verifier=secrets.verifier,
        redirect_url=_callback_url(services, request, provider),
        client_id=provider.client_id,
        client_secret=read_secret(provider.client_secret),
    )
    if isinstance(token, IdentityRefused):
        return token
    return await issuer.verify(token, audience=provider.client_id, nonce=secrets.nonce)


def _person_of(provider: OpenIdProvider, claims: Claims) -> Person:
    subject = str(claims["sub"])
    email = claims.get("email") if claims.get("email_verified") is True else ""
    return Person(
        issuer=provider.issuer,
        subject=subject,
        name=shown_name(claims.get("name"), claims.get("preferred_username"), subject),
        email=email if isinstance(email, str) and email.isprintable() else "",
    )


def _rule_claims(entry: OpenIdProvider | CiIssuer, claims: Claims) -> dict[str, tuple[str, ...]]:
    """Return the claims that a rule of the file asks for, and no others."""
    asked = {name for rule in entry.rules for name in rule.claims}
    return {name: claim_values(claims, name) for name in sorted(asked)}


def _provider_of(services: Services, request: Request) -> OpenIdProvider:
    provider = services.identities.provider(request.params["id"])
    if provider is None:
        raise not_found_error()
    return provider


def _callback_url(services: Services, request: Request, provider: OpenIdProvider) -> str:
    return f"{own_base(services.config, request)}/api/openid/{provider.id}/callback"


def _refuse(
    services: Services,
    code: str,
    provider: OpenIdProvider,
    reason: str,
    *cookies: tuple[bytes, bytes],
) -> HttpResponse:
    logs.event(
        "sign_in_refused", level=logging.WARNING, provider=provider.id, code=code, reason=reason
    )
    return _redirect(f"/ui/login#error={code}", *cookies)


def _redirect(url: str, *headers: tuple[bytes, bytes]) -> HttpResponse:
    # Quoted again, so that no byte of it can end the header.
    location = quote(url, safe="/:?#[]@!$&'()*+,;=%~-._").encode("ascii")
    return HttpResponse(status=302, headers=[(b"location", location), *headers, *PRIVATE_HEADERS])


async def exchange_token(services: Services, request: Request) -> HttpResponse:
    """Give a CI job a short token of ours for its forge's, as the rules of the people file say."""
    if not services.identities.config.ci:
        raise HttpError(
            404,
            "not_found",
            "Not found. This server takes no tokens of CI jobs. Nothing was changed.",
        )
    form = await read_form(request, TokenExchangeForm, MAX_BODY)
    entry = services.identities.ci_issuer(unverified_issuer(form.id_token))
    if entry is None:
        raise services.authorizer.refuse(
            request, "The token is of no CI issuer that is known here."
        )
    claims = await services.identities.issuer(entry).verify(form.id_token, audience=entry.audience)
    if isinstance(claims, IdentityRefused):
        _refuse_job(services, request, claims)
    known = _rule_claims(entry, claims)
    project = request.params["project"]
    rules = [each for each in entry.rules if each.project == project and each.allows(known)]
    if not rules or services.store.project(project) is None:
        raise HttpError(403, "scope_insufficient", _NO_RULE)
    name = _job_name(entry, claims)
    job = Person(issuer=entry.issuer, subject=str(claims["sub"]), name=name, job=True)
    services.authorizer.limit_sign_ins(job.id)
    minted = tokens.mint(TokenKind.SDK.value, os.urandom(tokens.RANDOM_BYTES))
    ends = services.clock.now() + timedelta(seconds=min(rule.seconds for rule in rules))

    def work(tx: Transaction) -> Token:
        return tx.create_token(
            id=minted.id,
            kind=TokenKind.SDK,
            project=project,
            name=name,
            scopes={TokenScope(scope) for rule in rules for scope in rule.scopes},
            secret_hash=minted.secret_hash,
            expires_at=ends,
            person=job,
            writer=Writer(manager=CI_MANAGER, actor=name, operation="create"),
        )

    token = await services.store.submit(work)
    logs.event("token_exchanged", issuer=entry.id, token=token.id, job=name)
    shown = msgspec.structs.asdict(token_to_json(token))
    return json_response(
        NewTokenForm(**shown, token=minted.secret.reveal()), status=201, headers=PRIVATE_HEADERS
    )


def _refuse_job(services: Services, request: Request, refused: IdentityRefused) -> NoReturn:
    logs.event("token_exchange_refused", level=logging.WARNING, reason=refused.reason)
    if refused.unavailable:
        raise HttpError(
            503,
            "unavailable",
            f"The token could not be checked: {refused.reason}. Nothing was changed.",
            retry_after=5,
        )
    raise services.authorizer.refuse(request, f"The token was refused: {refused.reason}.")


def _job_name(entry: CiIssuer, claims: Claims) -> str:
    """Name a job by what its issuer says of it; GitHub's and GitLab's words for a repository."""
    where = shown_name(claims.get("repository"), claims.get("project_path"), claims.get("sub"))
    return shown_name(f"{entry.id}:{where}")
