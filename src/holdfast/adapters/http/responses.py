"""Reads what a control plane responds: the expected form, a stream of events, or an error.

A response that is not what was asked for never passes for success.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    AlreadyExists,
    Ambiguous,
    ApiError,
    AuthError,
    Conflict,
    DriftError,
    HoldfastError,
    InvalidState,
    NotFound,
    PermissionDenied,
    Problem,
    RefusedByPolicy,
    StalePlan,
    StoreUnavailable,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.redact import redact
from holdfast.wire.decode import prepare_type
from holdfast.wire.plan_v1 import plan_from_json

UNAVAILABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 507})
_MAYBE_APPLIED = frozenset({408, 500, 502, 503, 504})
"""Statuses after which a write may have taken effect all the same."""
REPLICA_HEADER = "x-holdfast-replica"
"""Names the replica that answered; on responses of workloads alone."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A whole response. `lost` says that an earlier try of the same write got no response."""

    method: str
    where: str
    """The address without its credentials, for messages."""
    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)
    """May say anything back, a credential too, so no traceback shows it."""
    lost: bool = False

    @property
    def turned_away(self) -> bool:
        """True when the request surely was not begun, so even an unkeyed write may be repeated.

        A gateway answers 503 also when the server broke off in the middle, and names no time then.
        """
        at_the_door = not self.headers.keys().isdisjoint(("retry-after", REPLICA_HEADER))
        return self.status == 429 or (self.status == 503 and at_the_door)

    @property
    def changed(self) -> str:
        """What an error about this response may say of its effect."""
        maybe_applied = self.status in _MAYBE_APPLIED and not self.turned_away
        if self.method == "GET" or not (self.lost or maybe_applied):
            return NOTHING_CHANGED
        return OUTCOME_UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialHints:
    """What to do about a credential that is refused."""

    check: str
    permitted: str
    forbidden: Mapping[str, str]
    """By the control plane's own code."""


_KINDS = "Workloads need an ik_sdk_ token, inference an ik_live_ key."
TOKEN_HINTS = CredentialHints(
    check="Check the token (HOLDFAST_TOKEN): it is unknown, expired or revoked.",
    permitted="Use a token that is permitted to do this.",
    forbidden={
        "wrong_credential_type": _KINDS,
        "project_scope_mismatch": "Use a token of this project, or name the token's project.",
        "scope_insufficient": "Use a token with a wider scope.",
    },
)
DATA_KEY_HINTS = CredentialHints(
    check="Check the workload's key (api_key=, or HOLDFAST_API_KEY): it is unknown, expired or "
    "revoked.",
    permitted="Use the key of this workload (api_key=, or HOLDFAST_API_KEY).",
    forbidden={"wrong_credential_type": _KINDS},
)


class _ProblemForm(msgspec.Struct):
    field: str = ""
    reason: str = ""
    fix: str = ""


class _ErrorForm(msgspec.Struct):
    error: str
    message: str = ""
    request_id: str | None = None
    problems: list[_ProblemForm] = msgspec.field(default_factory=list)
    plan: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


def decode_response(response: Response, form: type[T]) -> T:
    """Decode a success. Raises the error that the response carries, or ApiError."""
    if not 200 <= response.status < 300:
        raise response_error(response)
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise _unreadable(response, f"a body of type {kind or 'unknown'}"[:60])
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise _unreadable(response, "a compressed body that was not asked for")
    try:
        return msgspec.json.decode(response.body, type=prepare_type(form))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        size = len(response.body)
        raise _unreadable(response, f"{size} bytes that are no {form.__name__}") from error


def is_absent(response: Response) -> bool:
    """True only when the control plane itself says that there is no such thing.

    A 404 from a proxy, or from something else on that port, is not an answer of the control plane.
    """
    form = _error_form(response)
    return response.status == 404 and form is not None and form.error == "not_found"


def response_error(
    response: Response, *, credential: CredentialHints | None = None
) -> HoldfastError:
    """Return the error that a response of the control plane means; a token was sent with it."""
    credential = credential or TOKEN_HINTS
    form = _error_form(response)
    code = form.error if form else ""
    happened, changed = _what_happened(response, form), response.changed
    match response.status:
        case 400 | 413 | 422 if form:
            problems = [
                Problem(
                    field=printable(each.field),
                    reason=printable(each.reason),
                    fix=printable(each.fix),
                )
                for each in form.problems
            ]
            return ValidationError(happened, problems=problems, changed=changed)
        case 401:
            return AuthError(happened, changed=changed, hint=credential.check)
        case 403:
            hint = credential.forbidden.get(code, credential.permitted)
            return PermissionDenied(
                happened, reason=code or "forbidden", changed=changed, hint=hint
            )
        case 404 if form:
            return NotFound(happened, changed=changed, hint=_not_found_hint(response, code))
        case 409 if form and code == "drift":
            return _drift_error(response, form, happened)
        case 409 if form and code in _CONFLICT_ERRORS:
            return _CONFLICT_ERRORS[code](happened, changed=changed)
        case 409 | 412 if form:
            return Conflict(happened, changed=changed, hint="Observe again and retry.")
        case status if status in UNAVAILABLE_STATUSES:
            unknown = changed == OUTCOME_UNKNOWN
            hint = "Look at what is there before you repeat it." if unknown else "Try again later."
            return TargetUnavailable(happened, changed=changed, hint=hint)
        case status if 300 <= status < 400:
            return ApiError(
                f"{response.where} answered {status}: redirects are not followed, as they would "
                "carry the token elsewhere.",
                status=status,
                changed=changed,
                hint="Set the URL to where it leads.",
            )
        case status:
            return ApiError(
                happened,
                status=status,
                reason=code,
                changed=changed,
                hint="" if form else "Check that the URL is that of a Holdfast control plane.",
            )


def _not_found_hint(response: Response, code: str) -> str:
    if code == "no_such_route" and response.headers.get("holdfast-target") == "gitops":
        return "This is a GitOps controller: it has applications, which holdfast status lists."
    return ""


def _what_happened(response: Response, form: _ErrorForm | None) -> str:
    """Quote the server, less what our own error says again: its summary and the effect."""
    if form is None or not form.message:
        return f"{response.where} answered {response.status}."
    said = form.message.partition("\n")[0]
    for effect in (NOTHING_CHANGED, OUTCOME_UNKNOWN):
        said = said.replace(effect, "")
    first, stop, rest = said.partition(". ")
    if stop and first in _SUMMARIES:
        said = rest
    request = f" (request {printable(form.request_id)})" if form.request_id else ""
    return (
        f"{response.where} answered {response.status}{request}: {' '.join(printable(said).split())}"
    )


_CONFLICT_ERRORS: Mapping[str, type[HoldfastError]] = {
    "already_exists": AlreadyExists,
    "ambiguous": Ambiguous,
    "invalid_state": InvalidState,
    "refused": RefusedByPolicy,
    "slug_taken": AlreadyExists,
}
"""What a 409 means where no other writer was first, by the control plane's own code."""


_SUMMARIES = frozenset(
    kind.summary
    for kind in (
        AlreadyExists,
        Ambiguous,
        ApiError,
        AuthError,
        Conflict,
        DriftError,
        InvalidState,
        NotFound,
        PermissionDenied,
        RefusedByPolicy,
        StalePlan,
        StoreUnavailable,
        TargetUnavailable,
        ValidationError,
    )
)


def printable(text: str) -> str:
    """Make text from the other side fit for a message: short, printable, without secrets."""
    return "".join(char if char.isprintable() else " " for char in redact(text[:2000]))[:500]


def _error_form(response: Response) -> _ErrorForm | None:
    try:
        return msgspec.json.decode(response.body, type=prepare_type(_ErrorForm))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _drift_error(response: Response, form: _ErrorForm, happened: str) -> HoldfastError:
    try:
        return DriftError(happened, plan=plan_from_json(bytes(form.plan)))
    except ValidationError:
        return ApiError(
            happened, status=response.status, reason=form.error, changed=response.changed
        )


def _unreadable(response: Response, what: str) -> ApiError:
    changed = NOTHING_CHANGED if response.method == "GET" else OUTCOME_UNKNOWN
    return ApiError(
        f"{response.where} answered {response.status} with {what}.",
        status=response.status,
        reason="unreadable",
        changed=changed,
        hint="Check that the URL is that of a Holdfast control plane and that nothing in between "
        "rewrites its responses.",
    )


MAX_EVENT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSentEvent:
    """One event; `data` may be empty for a comment that only keeps the line open."""

    name: str
    data: str


async def read_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str]:
    """Yield whole lines; what follows the last line end is dropped, for it may be cut."""
    rest = b""
    async for chunk in chunks:
        rest += chunk
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode("utf-8", "replace")
        if len(rest) > MAX_EVENT_BYTES:
            raise ApiError(f"A line of over {MAX_EVENT_BYTES >> 20} MiB came in a stream.")


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[ServerSentEvent]:
    """Yield each event once its closing blank line is there."""
    name, data, size = "message", list[str](), 0
    async for line in read_lines(chunks):
        if not line:
            if data:
                yield ServerSentEvent(name=name, data="\n".join(data))
            name, data, size = "message", [], 0
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
            size += len(value)
            if size > MAX_EVENT_BYTES:
                raise ApiError(f"An event of over {MAX_EVENT_BYTES >> 20} MiB came in a stream.")
        elif not field:
            yield ServerSentEvent(name="comment", data="")
