"""Turns what an API server answered into an error of our tree.

The API server says `reason` and `causes` in a Status object; the text is for people. An answer
that is no Status came from something in between and is never taken for the cluster's word: in
particular, its 404 is not an absent object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

from holdfast.adapters.kubernetes.retry import asked_wait
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
    Expired,
    FieldOwner,
    KindNotServed,
    KubeConflict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer of an API server."""

    method: str
    where: str
    """Method, path and cluster, for messages."""
    status: int
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    secret: bool = False
    """The answer may quote a secret, so no text of it is shown."""
    dry_run: bool = False

    @property
    def writes(self) -> bool:
        """True when the request may have changed something."""
        return self.method != "GET" and not self.dry_run


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct):
    name: str = ""
    kind: str = ""
    causes: list[_Cause] | None = None


class Status(msgspec.Struct):
    """The API server's own form of an error."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None

    @property
    def causes(self) -> list[_Cause]:
        """What was wrong, one by one."""
        return (self.details.causes if self.details else None) or []


_OWNER = re.compile(
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


def error_of(reply: Reply) -> HoldfastError:
    """Return the error that an answer means."""
    status = status_in(reply.body)
    code = reply.status
    if status is None and code == 404:
        return KindNotServed(
            f"{reply.where} answered 404: the cluster does not serve this kind.",
            todo="Install its custom resource definition, or check the server's address.",
        )
    if status is None and code in (400, 409, 422):
        return TargetUnavailable(
            f"{reply.where} answered {code}, and not as an API server answers.",
            changed=OUTCOME_UNKNOWN if reply.writes else NOTHING_CHANGED,
            todo="Check what stands between here and the cluster, and try again later.",
        )
    return _translated(reply, status or Status(), code)


def error_in_stream(where: str, status: Status, *, secret: bool) -> HoldfastError:
    """Return the error that an ERROR event of a watch means."""
    reply = Reply(
        method="GET", where=where, status=status.code or 500, headers={}, body=b"", secret=secret
    )
    return _translated(reply, status, reply.status)


def status_in(body: bytes) -> Status | None:
    """Read a Status; None for anything else."""
    try:
        found = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.kind == "Status" else None


def _way_out(message: str) -> str:
    """Say what helps against a 403: a right that is missing is one reason, admission another."""
    if not message or _UNAUTHORIZED.search(message):
        return "Grant the permission (RBAC), or use another identity."
    return "Change what is asked for, or the quota, limit or policy of the cluster that refused it."


def _translated(reply: Reply, status: Status, code: int) -> HoldfastError:
    happened = _happened(reply, status, code)
    match code:
        case 401:
            return AuthError(happened, todo="Renew the credentials of this cluster.")
        case 403:
            return PermissionDenied(
                happened,
                reason=status.reason or "Forbidden",
                todo=_way_out(status.message),
            )
        case 404:
            return NotFound(happened)
        case 409:
            return _conflict(happened, status)
        case 410:
            return Expired(happened, todo="List again.")
        case 422 if any(cause.field == "metadata.uid" for cause in status.causes):
            return KubeConflict(happened, reason=ConflictReason.REPLACED)
        case 400 | 413 | 422:
            return _invalid(reply, status, happened)
        case 500 if reply.method == "PATCH" and _UNTYPED.search(status.message):
            return _invalid(reply, status, happened)
        case _ if code in _UNAVAILABLE:
            # A gateway answers 503 also when the server broke off in the middle.
            begun = code != 429 and not (code == 503 and "retry-after" in reply.headers)
            unknown = reply.writes and begun
            unavailable = TargetUnavailable(
                happened,
                changed=OUTCOME_UNKNOWN if unknown else NOTHING_CHANGED,
                todo="Try again later.",
            )
            unavailable.retry_after = asked_wait(reply.headers)
            unavailable.failed = code == 500 and bool(status.message)
            return unavailable
        case _:
            return ApiError(
                happened,
                status=code,
                reason=status.reason,
                changed=OUTCOME_UNKNOWN if reply.writes and code >= 500 else NOTHING_CHANGED,
            )


def _conflict(happened: str, status: Status) -> KubeConflict:
    owners = tuple(
        _owner(cause) for cause in status.causes if cause.reason == "FieldManagerConflict"
    )
    reason = ConflictReason.CHANGED
    if owners:
        reason = ConflictReason.OWNED
    elif status.reason == "AlreadyExists":
        reason = ConflictReason.EXISTS
    elif _OTHER_UID.search(status.message):
        reason = ConflictReason.REPLACED
    return KubeConflict(happened, reason=reason, owners=owners)


def _owner(cause: _Cause) -> FieldOwner:
    found = _OWNER.search(cause.message)
    if found is None:
        return FieldOwner(path=cause.field, manager="")
    return FieldOwner(
        path=cause.field,
        manager=found["manager"],
        api_version=found["version"] or "",
        subresource=found["sub"] or "",
    )


def _invalid(reply: Reply, status: Status, happened: str) -> ValidationError:
    problems = [
        Problem(
            field=shown(cause.field) or "object",
            reason=cause.reason if reply.secret else shown(cause.message),
            fix="",
        )
        for cause in status.causes
    ]
    return ValidationError(happened, problems=problems, todo="Fix the object and send it again.")


def _happened(reply: Reply, status: Status, code: int) -> str:
    said = status.reason if reply.secret else shown(status.message or status.reason)
    return f"{reply.where} answered {code}{': ' + said if said else ''}."


def shown(text: str) -> str:
    """Make text of the cluster fit for a message: short, printable, without secrets."""
    clean = "".join(char if char.isprintable() else " " for char in redact(text[:2000]))
    return " ".join(clean.split())[:500].rstrip(".")
