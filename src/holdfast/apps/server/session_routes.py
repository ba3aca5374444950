"""Signing in and out, one's own sessions, and who one is.

A session is begun by a token that is pasted once, by the code of a sign-in link, or by an OpenID
Connect issuer (`openid_routes`). Signing in always makes a new session with a new secret, and ends
the one whose cookie came along, so nobody can be given a cookie to sign in with. A link can be
given to somebody, who would then act in the giver's name: so one is opened only when that is
confirmed, unless nobody is signed in and it was made and is opened on this machine.
"""

from __future__ import annotations

import os
from datetime import timedelta

from holdfast.adapters.store import SignedInSession, Token, TokenScope, Transaction
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
    can_sign_in_at,
    cookie_name,
    describe_agent,
    is_near,
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
    if form.token is not None:
        token = services.authorizer.verify_token(request, form.token, services.clock.now())
    else:
        token = _open_link(services, request, form.code or "", confirmed=form.confirmed)
    session, cookie = await begin_session(services, request, token=token)
    me = _me_of(services, session, token)
    return json_response(me, status=201, headers=[cookie, *PRIVATE_HEADERS])


def _open_link(services: Services, request: Request, code: str, *, confirmed: bool) -> Token:
    """Return the token that a link stands for, and use the link up."""
    now = services.clock.now()
    link = services.sign_in_links.find(code)
    token = services.store.token(link.token_id) if link else None
    if link is None or token is None or not token.active(now):
        raise services.authorizer.refuse(
            request, "The link was used already, or is older than a minute."
        )
    before = services.authorizer.find_session(request, now)
    # A port that was forwarded to a server elsewhere looks like this machine: so only where
    # nobody beyond it can connect is its word good for the request.
    here = services.config.loopback and link.local and is_near(request)
    harmless = before.token_id == token.id if before is not None else here
    if not confirmed and not harmless:
        name = _name_of(services, before) if before else ""
        raise HttpError(
            409,
            "confirmation_needed",
            f"This link signs the browser in by the token {token.name} of project "
            f"{token.project}{f', in place of {name}' if name else ''}. Nothing was changed. "
            f"Confirm it only if you had the link made yourself.",
        )
    services.sign_in_links.use_up(code)
    return token


def _name_of(services: Services, session: SignedInSession) -> str:
    token = services.store.token(session.token_id) if session.token_id else None
    known = token or session.person
    return known.name if known else "somebody"


async def begin_session(
    services: Services,
    request: Request,
    *,
    token: Token | None = None,
    person: Person | None = None,
    provider: str = "",
    claims: dict[str, tuple[str, ...]] | None = None,
) -> tuple[SignedInSession, tuple[bytes, bytes]]:
    """Keep a new session and return it with the header that sets its cookie.

    The session that the browser had before ends.
    """
    name = cookie_name(services.config, request)
    if name is None:
        raise insecure_way()
    services.authorizer.limit_sign_ins(token.id if token else person.id if person else "")
    minted = tokens.mint(tokens.SESSION_KIND, os.urandom(tokens.RANDOM_BYTES))
    now = services.clock.now()
    before = services.authorizer.find_session(request, now)
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

    def work(tx: Transaction) -> None:
        if before is not None:
            tx.end_session(before.id)
        tx.create_session(session, limit=MAX_SESSIONS)

    await services.store.submit(work)
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
    if not can_sign_in_at(services.config, request):
        raise insecure_way()
    code = services.sign_in_links.create(token.id, local=is_near(request))
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
        "Not permitted. A session needs TLS, or a browser on the server's own machine that asks "
        "for 127.0.0.1 or localhost, without a proxy. Nothing was changed. Start the server with "
        "--tls-cert and --tls-key, or with --base-url https://… where a proxy has TLS.",
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
