"""Who may do what: the one place that decides it.

It runs once for each request, on the route that was matched and on the parameters taken from
the raw path, before any of the body is read. The credential is looked up in the store every
time, unless nothing at all was committed since it was read, so a revocation counts from the
next request on. Two forms are accepted: exactly one header `Authorization: Bearer ik_…`, as
described in `core.tokens`, or, where there is no such header, the cookie of a session, on the
routes of the control plane and under the conditions in `sessions`. A session gets what its token
may do, or what the rules give the person in the project of the path.

An id that is unknown costs the same comparison as one that is known, and what belongs to
another project is answered exactly as what does not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from holdfast.adapters.store import (
    SignedInSession,
    Store,
    Token,
    TokenKind,
    TokenScope,
    WorkloadRecord,
)
from holdfast.apps.server import sessions
from holdfast.apps.server.config import ServerConfig
from holdfast.apps.server.errors import CHALLENGE, HttpError, not_found_error
from holdfast.apps.server.request import Request
from holdfast.apps.server.routes import ApiRoute, RouteCredential
from holdfast.core import tokens
from holdfast.core.errors import HoldfastError
from holdfast.core.live import Status
from holdfast.core.names import WorkloadId


class TokenBuckets:
    """One bucket for each key: `burst` at once, then `rate` a second."""

    def __init__(
        self, *, rate: float, burst: float, monotonic: Callable[[], float], size: int = 4_096
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._monotonic = monotonic
        self._size = size
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> int:
        """Take one; return 0, or the whole seconds to wait when the bucket is empty."""
        now = self._monotonic()
        left, at = self._buckets.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        wait = 0
        if left >= 1:
            left -= 1
        else:
            wait = max(1, math.ceil((1 - left) / self._rate))
        self._buckets[key] = (left, now)
        if len(self._buckets) > self._size:
            self._buckets.popitem(last=False)
        return wait

    def __len__(self) -> int:
        return len(self._buckets)


def peer_key(address: str) -> str:
    """Give the key of a peer: its address, or its /64 network where it has a whole one to use."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if parsed.version == 6:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address


MAX_CACHED = 4_096

AuthorizedToken: TypeAlias = tuple[Token, frozenset[TokenScope]]
"""A good credential, and every scope that it includes."""
Grants: TypeAlias = Mapping[str, frozenset[TokenScope]]
"""What somebody may do, by project."""


class StoreCache:
    """One per server. Used from the event loop only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._serial = -1
        self._checked = False
        self._bearers: dict[bytes, AuthorizedToken] = {}
        self._records: dict[tuple[str, str], WorkloadRecord] = {}
        self._bodies: dict[str, tuple[WorkloadRecord, Status, bytes]] = {}

    def refresh(self) -> None:
        """Forget everything if there was a commit. Call it first in each request."""
        if self._checked:
            return
        serial = self._store.serial
        self._checked = True
        asyncio.get_running_loop().call_soon(self._next_turn)
        if serial != self._serial:
            self._serial = serial
            self._bearers.clear()
            self._records.clear()
            self._bodies.clear()

    def _next_turn(self) -> None:
        self._checked = False

    def bearer(self, header: bytes) -> AuthorizedToken | None:
        """Return what an Authorization header that was found good stands for."""
        return self._bearers.get(header)

    def remember_bearer(self, header: bytes, token: Token) -> AuthorizedToken:
        """Keep a header that was found good."""
        if len(self._bearers) >= MAX_CACHED:
            self._bearers.clear()
        bearer = self._bearers[header] = (token, _scopes_of(token))
        return bearer

    def record(self, project: str, slug: str) -> WorkloadRecord | None:
        """Return a workload. Only for code that has not awaited since `refresh`."""
        found = self._records.get((project, slug))
        if found is None:
            found = self._store.record(WorkloadId(project=project, slug=slug))
            if found is not None:
                if len(self._records) >= MAX_CACHED:
                    self._records.clear()
                    self._bodies.clear()
                self._records[project, slug] = found
        return found

    def body(self, record: WorkloadRecord, status: Status) -> bytes | None:
        """Return the answer that was given for this workload in this state."""
        found = self._bodies.get(record.uid)
        if found is not None and found[0] is record and (found[1] is status or found[1] == status):
            return found[2]
        return None

    def remember_body(self, record: WorkloadRecord, status: Status, body: bytes) -> None:
        """Keep an answer."""
        self._bodies[record.uid] = (record, status, body)


_TOKEN_KINDS = {RouteCredential.CONTROL: TokenKind.SDK, RouteCredential.DATA: TokenKind.LIVE}


class Authorizer:
    """Decides for one server; holds the counts of refused credentials."""

    def __init__(
        self,
        store: Store,
        cache: StoreCache,
        *,
        config: ServerConfig,
        failures: TokenBuckets,
        sign_ins: TokenBuckets,
        rates: TokenBuckets | None,
        person_grants: Callable[[SignedInSession], Grants] = lambda session: {},
    ) -> None:
        self._store = store
        self._cache = cache
        self._config = config
        self._failures = failures
        self._sign_ins = sign_ins
        self._rates = rates
        self._person_grants = person_grants
        self._touches: dict[str, asyncio.Task[None]] = {}
        """Notes of a last use that are being written, by session."""

    def authorize(self, request: Request, route: ApiRoute, now: datetime) -> None:
        """Let the request pass, with its token, or raise the refusal."""
        if route.credential is RouteCredential.OPEN:
            return
        token, scopes = self._identify(request, route, now)
        if token.kind is not _TOKEN_KINDS[route.credential]:
            raise _wrong_kind(route.credential)
        project = request.params.get("project")
        if project is not None and project != token.project:
            raise _other_project()
        if route.scope is not None and route.scope not in scopes:
            raise insufficient_scope(route.scope)
        if self._rates is not None and (wait := self._rates.take(token.id)):
            raise _rate_limited(wait, "This credential sends too many requests.")
        request.token = token

    def still_good(self, token: Token, now: datetime) -> bool:
        """Ask again about a credential that passed before; for streams that stay open."""
        if token.session_id:
            session = self._store.session(token.session_id)
            if session is None or not session.active(now):
                return False
            if session.token_id is None:
                return True
            token = replace(token, id=session.token_id)
        current = self._store.token(token.id)
        return current is not None and current.active(now)

    def check_sign_in(self, request: Request) -> None:
        """Refuse a sign-in that another site has a browser ask for."""
        sessions.check_same_origin(self._config, request, csrf_header=False)

    def limit_sign_ins(self, who: str) -> None:
        """Count one who is let in: too often is refused, and hinders nobody else.

        Who is not let in is counted by `refuse`. Neither looks at the address alone, which behind
        a proxy is everybody's.
        """
        if wait := self._sign_ins.take(who):
            raise _rate_limited(wait, "There were too many sign-ins by this credential.")

    def find_session(self, request: Request, now: datetime) -> SignedInSession | None:
        """Return the session that a browser has already. It is no credential for this request."""
        cookie = sessions.session_cookie(self._config, request)
        session = self._session_of(cookie) if cookie is not None else None
        return session if session is not None and session.active(now) else None

    def refuse(self, request: Request, happened: str) -> HttpError:
        """Give the refusal of a credential that came by another way than a header."""
        return self._refusal(request, happened)

    def verify_token(self, request: Request, text: str, now: datetime) -> Token:
        """Return the control token of this text, or raise the refusal."""
        self._cache.refresh()
        token, _ = self._verify(request, f"Bearer {text}".encode("latin-1", "replace"))
        if not token.active(now):
            raise self._refusal(request, f"The credential {_ended(token)}.")
        if token.kind is not TokenKind.SDK:
            raise _wrong_kind(RouteCredential.CONTROL)
        return token

    def grants(self, session: SignedInSession) -> Grants:
        """Say what a session may do, in each of its projects."""
        if session.token_id is None:
            return self._person_grants(session)
        token = self._store.token(session.token_id)
        return {token.project: _scopes_of(token)} if token else {}

    def _identify(self, request: Request, route: ApiRoute, now: datetime) -> AuthorizedToken:
        if b"authorization" not in request.headers and route.credential is RouteCredential.CONTROL:
            cookie = sessions.session_cookie(self._config, request)
            if cookie is not None:
                return self._authenticate_session(request, cookie, now)
        return self._authenticate(request, now)

    def _authenticate_session(
        self, request: Request, cookie: str, now: datetime
    ) -> AuthorizedToken:
        self._cache.refresh()
        session = self._session_of(cookie)
        if session is None:
            raise self._refusal(request, "The session is not known, or was ended.")
        if not session.active(now):
            raise self._refusal(request, "The session has expired.")
        sessions.check_same_origin(self._config, request, csrf_header=True)
        request.session = session
        self._note_use(session, now)
        if session.token_id is not None:
            token = self._store.token(session.token_id)
            if token is None or not token.active(now):
                ended = _ended(token) if token else "is not known"
                raise self._refusal(request, f"The token of this session {ended}.")
            return replace(token, session_id=session.id), _scopes_of(token)
        return self._authenticate_person(request, session)

    def _session_of(self, cookie: str) -> SignedInSession | None:
        parsed = tokens.parse(cookie, kinds=(tokens.SESSION_KIND,))
        session = self._store.session(parsed.id) if parsed else None
        known = tokens.verify(cookie, session.secret_hash if session else None)
        return session if known else None

    def _note_use(self, session: SignedInSession, now: datetime) -> None:
        """Have it written that a session was used, now and then and beside the request."""
        if now - session.last_seen < sessions.TOUCH_AFTER or session.id in self._touches:
            return

        async def touch() -> None:
            with contextlib.suppress(HoldfastError):  # the next request tries again
                await self._store.submit(lambda tx: tx.touch_session(session.id))

        task = self._touches[session.id] = asyncio.get_running_loop().create_task(touch())
        task.add_done_callback(lambda _: self._touches.pop(session.id, None))

    def _authenticate_person(self, request: Request, session: SignedInSession) -> AuthorizedToken:
        grants = self._person_grants(session)
        project = self._project_of(request, grants)
        if project and project not in grants:
            raise _other_project()
        assert session.person is not None  # noqa: S101  # it is no token's
        scopes = grants.get(project, frozenset())
        token = Token(
            id=f"ui-{session.id}",
            kind=TokenKind.SDK,
            project=project,
            name=session.person.name,
            scopes=scopes,
            secret_hash=b"",
            created_at=session.created_at,
            expires_at=session.expires_at,
            person=session.person,
            session_id=session.id,
        )
        return token, _scopes_of(token)

    def _project_of(self, request: Request, grants: Grants) -> str:
        """Say in which project a person asks; a workload's id stands for its project."""
        named = request.params.get("project") or request.header(b"holdfast-project")
        if named is not None:
            return named
        record = self._store.record_by_uid(request.params.get("id", ""))
        if record is not None and record.id.project in grants:
            return record.id.project
        return next(iter(sorted(grants)), "")

    def _authenticate(self, request: Request, now: datetime) -> AuthorizedToken:
        given = request.headers.get(b"authorization")
        if given is None:
            raise self._refusal(request, "No credential was given.")
        self._cache.refresh()
        bearer = self._cache.bearer(given) or self._verify(request, given)
        token = bearer[0]
        if not token.active(now):
            raise self._refusal(request, f"The credential {_ended(token)}.")
        return bearer

    def _verify(self, request: Request, given: bytes) -> AuthorizedToken:
        text = given.decode("latin-1")
        parsed = tokens.parse(text[7:]) if text.startswith("Bearer ") else None
        if parsed is None:
            raise self._refusal(request, "The credential is malformed.")
        token = self._store.token(parsed.id)
        if not tokens.verify(text[7:], token.secret_hash if token else None) or token is None:
            raise self._refusal(request, "The credential is not known.")
        if token.kind.value != parsed.kind:
            raise self._refusal(request, "The credential is not known.")
        return self._cache.remember_bearer(given, token)

    def _refusal(self, request: Request, happened: str) -> HttpError:
        # Only refusals are counted: a good credential from the same address always passes.
        if wait := self._failures.take(peer_key(request.peer)):
            return _rate_limited(wait, "Too many refused credentials came from this address.")
        return HttpError(
            401,
            "unauthenticated",
            f"Not authenticated. {happened} Nothing was changed. "
            f"Send a token of this server in the Authorization header, or sign in.",
            headers=CHALLENGE,
        )


def _scopes_of(token: Token) -> frozenset[TokenScope]:
    return frozenset(scope for scope in TokenScope if token.allows(scope))


def _ended(token: Token) -> str:
    return "was revoked" if token.revoked_at else "has expired"


def _other_project() -> HttpError:
    return HttpError(
        403,
        "project_scope_mismatch",
        "Not permitted. This credential is for another project. Nothing was changed. "
        "Use a credential of the project you ask for.",
    )


def missing_scope(request: Request, scope: TokenScope) -> str:
    """Say that a credential lacks a scope; empty where it does not."""
    if request.token is not None and request.token.allows(scope):
        return ""
    return f"This credential lacks the scope {scope}."


def insufficient_scope(scope: TokenScope) -> HttpError:
    """A credential that is good, and not for this."""
    return HttpError(
        403,
        "scope_insufficient",
        f"Not permitted. This credential lacks the scope {scope}. Nothing was changed. "
        f"Use one with that scope, or have it created.",
    )


def find_own_record(store: Store, request: Request) -> WorkloadRecord:
    """Return the workload whose id is in the path; another project's is as good as none."""
    record = store.record_by_uid(request.params["id"])
    if record is None or request.token is None or record.id.project != request.token.project:
        raise not_found_error()
    return record


def find_keyed_record(
    store: Store, cache: StoreCache, request: Request, slug: str
) -> WorkloadRecord:
    """Return a workload of the project in the path, if the data key opens it.

    A key of the whole project opens each of its workloads. Only for code that has not awaited
    since `cache` was refreshed.
    """
    token = request.token
    if token is None:
        raise _wrong_kind(RouteCredential.DATA)
    record = cache.record(request.params["project"], slug)
    if record is not None and token.workload_uid in (record.uid, None):
        return record
    if token.workload_uid is None:
        raise not_found_error()
    if store.record_by_uid(token.workload_uid) is None:
        raise not_found_error()
    raise wrong_workload()


def wrong_workload() -> HttpError:
    """A data key for another workload than the one in the path."""
    return HttpError(
        403,
        "scope_insufficient",
        "Not permitted. This key opens another workload. Nothing was changed. "
        "Use the key of the workload you ask for.",
    )


def _wrong_kind(wanted: RouteCredential) -> HttpError:
    what = (
        "a control token (ik_sdk_…)"
        if wanted is RouteCredential.CONTROL
        else "a data key (ik_live_…)"
    )
    return HttpError(
        403,
        "wrong_credential_type",
        f"Not permitted. This route takes {what}. Nothing was changed.",
    )


def _rate_limited(wait: int, happened: str) -> HttpError:
    return HttpError(
        429,
        "rate_limited",
        f"{happened} Nothing was changed. Try again in {wait} s.",
        retry_after=wait,
    )
