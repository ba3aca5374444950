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

from datetime import datetime

from holdfast.adapters.store import Record, Scope, Store, Token, TokenKind
from holdfast.apps.server.errors import CHALLENGE, HttpError, not_found
from holdfast.apps.server.limits import Buckets, peer_key
from holdfast.apps.server.recent import Bearer, Recent
from holdfast.apps.server.request import Request
from holdfast.apps.server.routes import Credential, Route
from holdfast.core import tokens

_KINDS = {Credential.CONTROL: TokenKind.SDK, Credential.DATA: TokenKind.LIVE}


class Authorizer:
    """Decides for one server; holds the counts of refused credentials."""

    def __init__(
        self, store: Store, recent: Recent, *, failures: Buckets, rates: Buckets | None
    ) -> None:
        self._store = store
        self._recent = recent
        self._failures = failures
        self._rates = rates

    def authorize(self, request: Request, route: Route, now: datetime) -> None:
        """Let the request pass, with its token, or raise the refusal."""
        if route.credential is Credential.OPEN:
            return
        token, scopes = self._authenticate(request, now)
        if token.kind is not _KINDS[route.credential]:
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
            raise lacking(route.scope)
        if self._rates is not None and (wait := self._rates.take(token.id)):
            raise _slow_down(wait, "This credential sends too many requests.")
        request.token = token

    def still_good(self, token: Token, now: datetime) -> bool:
        """Ask again about a credential that passed before; for streams that stay open."""
        current = self._store.token(token.id)
        return current is not None and current.active(now)

    def _authenticate(self, request: Request, now: datetime) -> Bearer:
        given = request.headers.get(b"authorization")
        if given is None:
            raise self._refused(request, "No credential was given.")
        self._recent.refresh()
        bearer = self._recent.bearer(given) or self._verified(request, given)
        token = bearer[0]
        if not token.active(now):
            ended = "was revoked" if token.revoked_at else "has expired"
            raise self._refused(request, f"The credential {ended}.")
        return bearer

    def _verified(self, request: Request, given: bytes) -> Bearer:
        text = given.decode("latin-1")
        parsed = tokens.parse(text[7:]) if text.startswith("Bearer ") else None
        if parsed is None:
            raise self._refused(request, "The credential is malformed.")
        token = self._store.token(parsed.id)
        if not tokens.verify(text[7:], token.secret_hash if token else None) or token is None:
            raise self._refused(request, "The credential is not known.")
        if token.kind.value != parsed.kind:
            raise self._refused(request, "The credential is not known.")
        return self._recent.remember_bearer(given, token)

    def _refused(self, request: Request, happened: str) -> HttpError:
        # Only refusals are counted: a good credential from the same address always passes.
        if wait := self._failures.take(peer_key(request.peer)):
            return _slow_down(wait, "Too many refused credentials came from this address.")
        return HttpError(
            401,
            "unauthenticated",
            f"Not authenticated. {happened} Nothing was changed. "
            f"Send a token of this server, and send it in the Authorization header.",
            headers=CHALLENGE,
        )


def lacking(scope: Scope) -> HttpError:
    """A credential that is good, and not for this."""
    return HttpError(
        403,
        "scope_insufficient",
        f"Not permitted. This credential lacks the scope {scope}. Nothing was changed. "
        f"Use one with that scope, or have it created.",
    )


def own_record(store: Store, request: Request) -> Record:
    """Return the workload whose id is in the path; another project's is as good as none."""
    record = store.record_by_uid(request.params["id"])
    if record is None or request.token is None or record.id.project != request.token.project:
        raise not_found()
    return record


def keyed_record(store: Store, recent: Recent, request: Request) -> Record:
    """Return the workload that a data key opens, if it is the one in the path."""
    token = request.token
    if token is None or token.workload_uid is None:
        raise _wrong_kind(Credential.DATA)
    record = recent.record(request.params["project"], request.params["workload"])
    if record is not None and record.uid == token.workload_uid:
        return record
    if store.record_by_uid(token.workload_uid) is None:
        raise not_found()
    raise wrong_workload()


def wrong_workload() -> HttpError:
    """A data key for another workload than the one in the path."""
    return HttpError(
        403,
        "scope_insufficient",
        "Not permitted. This key opens another workload. Nothing was changed. "
        "Use the key of the workload you ask for.",
    )


def _wrong_kind(wanted: Credential) -> HttpError:
    what = (
        "a control token (ik_sdk_…)" if wanted is Credential.CONTROL else "a data key (ik_live_…)"
    )
    return HttpError(
        403,
        "wrong_credential_type",
        f"Not permitted. This route takes {what}. Nothing was changed.",
    )


def _slow_down(wait: int, happened: str) -> HttpError:
    return HttpError(
        429,
        "rate_limited",
        f"{happened} Nothing was changed. Try again in {wait} s.",
        retry_after=wait,
    )
