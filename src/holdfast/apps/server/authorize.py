"""Who may do what: the one place that decides it.

It runs once for each request, on the route that was matched and on the parameters taken from
the raw path, before any of the body is read. The credential is looked up in the store every
time, unless nothing at all was committed since it was read, so a revocation counts from the
next request on. One form is accepted: exactly one header `Authorization: Bearer ik_…`, as
described in `core.tokens`.

An id that is unknown costs the same comparison as one that is known, and what belongs to
another project is answered exactly as what does not exist.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

from holdfast.adapters.store import Store, Token, TokenKind, TokenScope, WorkloadRecord
from holdfast.apps.server.errors import CHALLENGE, HttpError, not_found_error
from holdfast.apps.server.request import Request
from holdfast.apps.server.routes import ApiRoute, RouteCredential
from holdfast.core import tokens
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
        scopes = frozenset(scope for scope in TokenScope if token.allows(scope))
        bearer = self._bearers[header] = (token, scopes)
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
        failures: TokenBuckets,
        rates: TokenBuckets | None,
    ) -> None:
        self._store = store
        self._cache = cache
        self._failures = failures
        self._rates = rates

    def authorize(self, request: Request, route: ApiRoute, now: datetime) -> None:
        """Let the request pass, with its token, or raise the refusal."""
        if route.credential is RouteCredential.OPEN:
            return
        token, scopes = self._authenticate(request, now)
        if token.kind is not _TOKEN_KINDS[route.credential]:
            raise _wrong_kind(route.credential)
        project = request.params.get("project")
        if project is not None and project != token.project:
            raise HttpError(
                403,
                "project_scope_mismatch",
                "Not permitted. This credential is for another project. Nothing was changed. "
                "Use a credential of the project you ask for.",
            )
        if route.scope is not None and route.scope not in scopes:
            raise insufficient_scope(route.scope)
        if self._rates is not None and (wait := self._rates.take(token.id)):
            raise _rate_limited(wait, "This credential sends too many requests.")
        request.token = token

    def still_good(self, token: Token, now: datetime) -> bool:
        """Ask again about a credential that passed before; for streams that stay open."""
        current = self._store.token(token.id)
        return current is not None and current.active(now)

    def _authenticate(self, request: Request, now: datetime) -> AuthorizedToken:
        given = request.headers.get(b"authorization")
        if given is None:
            raise self._refusal(request, "No credential was given.")
        self._cache.refresh()
        bearer = self._cache.bearer(given) or self._verify(request, given)
        token = bearer[0]
        if not token.active(now):
            ended = "was revoked" if token.revoked_at else "has expired"
            raise self._refusal(request, f"The credential {ended}.")
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
            f"Send a token of this server, and send it in the Authorization header.",
            headers=CHALLENGE,
        )


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


def find_keyed_record(store: Store, cache: StoreCache, request: Request) -> WorkloadRecord:
    """Return the workload that a data key opens, if it is the one in the path."""
    token = request.token
    if token is None or token.workload_uid is None:
        raise _wrong_kind(RouteCredential.DATA)
    record = cache.record(request.params["project"], request.params["workload"])
    if record is not None and record.uid == token.workload_uid:
        return record
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
