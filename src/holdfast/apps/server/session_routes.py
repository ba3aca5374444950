"""Signing in and out, one's own sessions, and who one is.

A session is begun by a token that is pasted once, by the code of a sign-in link, or by an OpenID
Connect issuer (`openid_routes`). Signing in always makes a new session with a new secret, whatever
cookie came along, so nobody can be given one to sign in with.
"""

from __future__ import annotations

import os
from datetime import timedelta

from holdfast.adapters.store import SignedInSession, Token, TokenScope
from holdfast.apps.server import logs
from holdfast.apps.server.errors import HttpError, not_found_error
from holdfast.apps.server.forms import (
    MeForm,
    OwnSessionForm,
    OwnTokenForm,
    ProjectScopesForm,
    ServerForm,
    SessionForm,
    SessionListForm,
    SignInForm,
    SignInLinkForm,
)
from holdfast.apps.server.request import HttpResponse, Request, json_response, read_form
from holdfast.apps.server.services import Services
from holdfast.apps.server.sessions import (
    LINK_SECONDS,
    MAX_SESSIONS,
    PERSON_SESSION_LIFE,
    PRIVATE_HEADERS,
    TOKEN_SESSION_LIFE,
    cookie_name,
    describe_agent,
    own_base,
    set_cookie,
)
from holdfast.core import tokens
from holdfast.core.people import Person
from holdfast.version import __version__

MAX_BODY = 16 * 1024


async def sign_in(services: Services, request: Request) -> HttpResponse:
    """Begin a session by a control token, or by the code of a sign-in link.

    The session may do what the token may do, and ends with it.
    """
    services.authorizer.check_sign_in(request)
    form = await read_form(request, SignInForm, MAX_BODY)
    if (form.token is None) == (form.code is None):
        raise HttpError(400, "invalid", "Give a token or a code. Nothing was changed.")
    now = services.clock.now()
    if form.token is not None:
        token: Token | None = services.authorizer.verify_token(request, form.token, now)
    else:
        taken = services.sign_in_links.take(form.code or "")
        token = services.store.token(taken) if taken else None
    if token is None or not token.active(now):
        raise services.authorizer.refuse(
            request, "The link was used already, or is older than a minute."
        )
    session, cookie = await begin_session(services, request, token=token)
    me = _me_of(services, session, token)
    return json_response(me, status=201, headers=[cookie, *PRIVATE_HEADERS])


async def begin_session(
    services: Services,
    request: Request,
    *,
    token: Token | None = None,
    person: Person | None = None,
    provider: str = "",
    claims: dict[str, tuple[str, ...]] | None = None,
) -> tuple[SignedInSession, tuple[bytes, bytes]]:
    """Keep a new session and return it with the header that sets its cookie."""
    name = cookie_name(services.config, request)
    if name is None:
        raise insecure_way()
    minted = tokens.mint(tokens.SESSION_KIND, os.urandom(tokens.RANDOM_BYTES))
    now = services.clock.now()
    life = PERSON_SESSION_LIFE if token is None else TOKEN_SESSION_LIFE
    ends = now + life
    session = SignedInSession(
        id=minted.id,
        secret_hash=minted.secret_hash,
        created_at=now,
        last_seen=now,
        expires_at=min(ends, token.expires_at or ends) if token else ends,
        token_id=token.id if token else None,
        provider=provider,
        person=person if person else (token.person if token else None),
        claims=claims or {},
        agent=describe_agent(request),
        peer=request.peer,
    )
    await services.store.submit(lambda tx: tx.create_session(session, limit=MAX_SESSIONS))
    logs.event("session_begun", session=session.id, token=session.token_id or "")
    seconds = int((session.expires_at - now) / timedelta(seconds=1))
    return session, set_cookie(name, minted.secret.reveal(), seconds=seconds)


async def list_sessions(services: Services, request: Request) -> HttpResponse:
    """List the sessions of the token or the person that asks."""
    now = services.clock.now()
    own = [each for each in _own_sessions(services, request) if each.active(now)]
    current = request.session.id if request.session else ""
    form = SessionListForm(
        sessions=[
            SessionForm(
                id=each.id,
                created_at=each.created_at,
                last_seen=each.last_seen,
                expires_at=each.expires_at,
                current=each.id == current,
                agent=each.agent,
                peer=each.peer,
            )
            for each in own
        ]
    )
    return json_response(form, headers=PRIVATE_HEADERS)


async def sign_out(services: Services, request: Request) -> HttpResponse:
    """End the session that asks, and take its cookie away."""
    if request.session is None:
        raise HttpError(
            404, "not_found", "Not found. This request came without a session. Nothing was changed."
        )
    await _end(services, request.session.id)
    return HttpResponse(status=204, headers=_without_cookie(services, request))


async def end_session(services: Services, request: Request) -> HttpResponse:
    """End one of the sessions of the token or the person that asks, at once."""
    id = request.params["id"]
    if id not in {each.id for each in _own_sessions(services, request)}:
        raise not_found_error()
    await _end(services, id)
    current = request.session is not None and request.session.id == id
    return HttpResponse(status=204, headers=_without_cookie(services, request) if current else [])


async def create_sign_in_link(services: Services, request: Request) -> HttpResponse:
    """Make a link that signs a browser in as the token that asks: once, within a minute."""
    token = request.token
    if token is None or request.session is not None:
        raise HttpError(
            403,
            "wrong_credential_type",
            "Not permitted. This route takes a control token (ik_sdk_…) and no session. "
            "Nothing was changed.",
        )
    if cookie_name(services.config, request) is None and not services.config.base_url:
        raise insecure_way()
    code = services.sign_in_links.create(token.id)
    form = SignInLinkForm(
        url=f"{own_base(services.config, request)}/ui/login#code={code}",
        expires_at=services.clock.now() + timedelta(seconds=LINK_SECONDS),
    )
    return json_response(form, status=201, headers=PRIVATE_HEADERS)


async def get_me(services: Services, request: Request) -> HttpResponse:
    """Say who asks, what they may do in which project, and what this server has."""
    assert request.token is not None  # noqa: S101  # the route asks for one
    return json_response(_me_of(services, request.session, request.token), headers=PRIVATE_HEADERS)


def insecure_way() -> HttpError:
    """A cookie would travel in the clear."""
    return HttpError(
        403,
        "insecure_transport",
        "Not permitted. A session needs TLS, and this request came by plain HTTP from beyond this "
        "machine. Nothing was changed. Start the server with --tls-cert and --tls-key, or with "
        "--base-url https://… where a proxy has TLS.",
    )


def _me_of(services: Services, session: SignedInSession | None, token: Token) -> MeForm:
    person = session is not None and session.token_id is None
    known = token.person
    if session is not None:
        grants = services.authorizer.grants(session)
    else:
        grants = {token.project: frozenset(each for each in TokenScope if token.allows(each))}
    return MeForm(
        name=token.name,
        kind="person" if person else "token",
        issuer=known.issuer if known else "",
        subject=known.subject if known else "",
        email=known.email if known else "",
        projects=[
            ProjectScopesForm(
                project=project, scopes=[each for each in TokenScope if each in scopes]
            )
            for project, scopes in sorted(grants.items())
        ],
        token=None
        if person
        else OwnTokenForm(id=token.id, name=token.name, expires_at=token.expires_at),
        session=OwnSessionForm(
            id=session.id, created_at=session.created_at, expires_at=session.expires_at
        )
        if session
        else None,
        server=_server_form(services),
    )


def _server_form(services: Services) -> ServerForm:
    features = ["workloads", "data-plane"]
    target = "embedded" if services.cluster is None else "kubernetes"
    if services.review_service is not None:
        features, target = ["applications"], "gitops"
    return ServerForm(
        version=__version__, target=target, features=features, base_url=services.config.base_url
    )


def _own_sessions(services: Services, request: Request) -> list[SignedInSession]:
    """Return the sessions of who asks: all of a person's, however they signed in."""
    token = request.token
    assert token is not None  # noqa: S101  # every one of these routes asks for one
    person = request.session.person if request.session else None
    if request.session is not None and request.session.token_id is None and person is not None:
        return services.store.sessions(person_id=person.id)
    return services.store.sessions(token_id=token.id)


async def _end(services: Services, id: str) -> None:
    await services.store.submit(lambda tx: tx.end_session(id))
    logs.event("session_ended", session=id)


def _without_cookie(services: Services, request: Request) -> list[tuple[bytes, bytes]]:
    name = cookie_name(services.config, request)
    return [*PRIVATE_HEADERS, *([set_cookie(name, "", seconds=0)] if name else [])]
