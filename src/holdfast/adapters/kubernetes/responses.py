"""What the response of an API server means: an error of our tree, and whether to try again.

The API server gives `reason` and `causes` in a Status object; its text is for people. A response
without a Status came from something in between and never counts as the cluster's word: in
particular, its 404 is not an absent object. Retries are pure: time and chance are arguments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

from holdfast.adapters.outbound import retry_after
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    ApiError,
    AuthError,
    HoldfastError,
    NotFound,
    PermissionDenied,
    Problem,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.redact import redact
from holdfast.reconcile.kube import (
    ConflictReason,
    FieldOwner,
    KindNotServed,
    KubeConflict,
    VersionExpired,
)

MAX_RETRY_AFTER = 60.0
"""Longest wait that a server may ask for."""
MAX_ATTEMPTS = 5
_NOT_PROCESSED = frozenset({429, 503})
_RETRIED_READS = frozenset({429, 500, 502, 503, 504})


def back_off(attempt: int, chance: float, *, first: float = 0.2, longest: float = 8.0) -> float:
    """Return seconds to wait before another attempt: doubling, with jitter from `chance`."""
    return min(longest, first * 2.0 ** min(attempt, 30)) * (0.5 + chance / 2)


def retry_delay(
    *, method: str, status: int, headers: dict[str, str], attempt: int, chance: float
) -> float | None:
    """Return seconds after which to try again; None when the response stands.

    A read is repeated on anything that passes. A write only when the server says that it was not
    begun: 429, or 503 with Retry-After.
    """
    requested = retry_after(headers, longest=MAX_RETRY_AFTER)
    if method == "GET":
        again = status in _RETRIED_READS
    else:
        again = status in _NOT_PROCESSED and (status == 429 or requested is not None)
    if not again or attempt + 1 >= MAX_ATTEMPTS:
        return None
    jitter = back_off(attempt, chance)
    return jitter if requested is None else requested + min(jitter, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeResponse:
    """A whole response of an API server."""

    method: str
    where: str
    """Method, path and cluster, for messages."""
    status: int
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    secret: bool = False
    """The response may quote a secret, so no text of it is shown."""
    dry_run: bool = False

    @property
    def writes(self) -> bool:
        """True when the request may have changed something."""
        return self.method != "GET" and not self.dry_run


class _StatusCause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _StatusDetails(msgspec.Struct):
    name: str = ""
    kind: str = ""
    causes: list[_StatusCause] | None = None


class ApiStatus(msgspec.Struct):
    """The API server's own form of an error."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: _StatusDetails | None = None

    @property
    def causes(self) -> list[_StatusCause]:
        """What was wrong, one by one."""
        return (self.details.causes if self.details else None) or []


_OWNER_PATTERN = re.compile(
    r'conflict with "(?P<manager>.*?)"(?: with subresource "(?P<sub>[^"]*)")?'
    r"(?: using (?P<version>\S+?))?(?: at .*)?:?$"
)
_UNAUTHORIZED = re.compile(r'User ".*" cannot ', re.DOTALL)
"""How the authorizer words a refusal; quotas, limits and other admission use their own words."""
_UNTYPED = re.compile(
    r"failed to create typed (?:patch|live) object|field not declared in schema"
    r"|failed to convert new object"
    r"|expected (?:numeric|string|boolean|list|map)|duplicate entries for key"
)
"""What the API server answers with 500 although the object sent is at fault."""
_OTHER_UID = re.compile(r"uid mismatch|Precondition failed: UID|does not match the UID in record")
"""Such a conflict has no reason of its own: an apply, a write and a deletion each say it so."""
_UNAVAILABLE = frozenset({408, 429, 500, 502, 503, 504})


def response_error(response: KubeResponse) -> HoldfastError:
    """Return the error that a response means."""
    status = parse_status(response.body)
    code = response.status
    if status is None and code == 404:
        return KindNotServed(
            f"{response.where} answered 404: the cluster does not serve this kind.",
            hint="Install its custom resource definition, or check the server's address.",
        )
    if status is None and code in (400, 409, 422):
        return TargetUnavailable(
            f"{response.where} answered {code}, and not as an API server answers.",
            changed=OUTCOME_UNKNOWN if response.writes else NOTHING_CHANGED,
            hint="Check what stands between here and the cluster, and try again later.",
        )
    return _error_of_status(response, status or ApiStatus(), code)


def stream_error(where: str, status: ApiStatus, *, secret: bool) -> HoldfastError:
    """Return the error that an ERROR event of a watch means."""
    response = KubeResponse(
        method="GET", where=where, status=status.code or 500, headers={}, body=b"", secret=secret
    )
    return _error_of_status(response, status, response.status)


def parse_status(body: bytes) -> ApiStatus | None:
    """Read a Status; None for anything else."""
    try:
        found = msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.kind == "Status" else None


def _forbidden_hint(message: str) -> str:
    """Say what helps against a 403: a right that is missing is one reason, admission another."""
    if not message or _UNAUTHORIZED.search(message):
        return "Grant the permission (RBAC), or use another identity."
    return "Change what is asked for, or the quota, limit or policy of the cluster that refused it."


def _error_of_status(response: KubeResponse, status: ApiStatus, code: int) -> HoldfastError:
    happened = _what_happened(response, status, code)
    match code:
        case 401:
            return AuthError(happened, hint="Renew the credentials of this cluster.")
        case 403:
            return PermissionDenied(
                happened, reason=status.reason or "Forbidden", hint=_forbidden_hint(status.message)
            )
        case 404:
            return NotFound(happened)
        case 409:
            return _conflict_error(happened, status)
        case 410:
            return VersionExpired(happened, hint="List again.")
        case 422 if any(cause.field == "metadata.uid" for cause in status.causes):
            return KubeConflict(happened, reason=ConflictReason.REPLACED)
        case 400 | 413 | 422:
            return _validation_error(response, status, happened)
        case 500 if response.method == "PATCH" and _UNTYPED.search(status.message):
            return _validation_error(response, status, happened)
        case _ if code in _UNAVAILABLE:
            # A gateway answers 503 also when the server broke off in the middle.
            begun = code != 429 and not (code == 503 and "retry-after" in response.headers)
            unknown = response.writes and begun
            unavailable = TargetUnavailable(
                happened,
                changed=OUTCOME_UNKNOWN if unknown else NOTHING_CHANGED,
                hint="Try again later.",
            )
            unavailable.retry_after = retry_after(response.headers, longest=MAX_RETRY_AFTER)
            unavailable.failed = code == 500 and bool(status.message)
            return unavailable
        case _:
            return ApiError(
                happened,
                status=code,
                reason=status.reason,
                changed=OUTCOME_UNKNOWN if response.writes and code >= 500 else NOTHING_CHANGED,
            )


def _conflict_error(happened: str, status: ApiStatus) -> KubeConflict:
    owners = tuple(
        _field_owner(cause) for cause in status.causes if cause.reason == "FieldManagerConflict"
    )
    reason = ConflictReason.CHANGED
    if owners:
        reason = ConflictReason.OWNED
    elif status.reason == "AlreadyExists":
        reason = ConflictReason.EXISTS
    elif _OTHER_UID.search(status.message):
        reason = ConflictReason.REPLACED
    return KubeConflict(happened, reason=reason, owners=owners)


def _field_owner(cause: _StatusCause) -> FieldOwner:
    found = _OWNER_PATTERN.search(cause.message)
    if found is None:
        return FieldOwner(path=cause.field, manager="")
    return FieldOwner(
        path=cause.field,
        manager=found["manager"],
        api_version=found["version"] or "",
        subresource=found["sub"] or "",
    )


def _validation_error(response: KubeResponse, status: ApiStatus, happened: str) -> ValidationError:
    problems = [
        Problem(
            field=printable(cause.field) or "object",
            reason=cause.reason if response.secret else printable(cause.message),
            fix="",
        )
        for cause in status.causes
    ]
    return ValidationError(happened, problems=problems, hint="Fix the object and send it again.")


def _what_happened(response: KubeResponse, status: ApiStatus, code: int) -> str:
    said = status.reason if response.secret else printable(status.message or status.reason)
    return f"{response.where} answered {code}{': ' + said if said else ''}."


def printable(text: str) -> str:
    """Make text of the cluster fit for a message: short, printable, without secrets."""
    clean = "".join(char if char.isprintable() else " " for char in redact(text[:2000]))
    return " ".join(clean.split())[:500].rstrip(".")
