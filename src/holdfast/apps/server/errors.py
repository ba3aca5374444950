"""The one shape of every HTTP error, and the table from our errors to status and code."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.errors import (
    MAX_PROBLEMS,
    AlreadyExists,
    Ambiguous,
    AuthError,
    Conflict,
    DriftError,
    HoldfastError,
    InvalidState,
    NotFound,
    PermissionDenied,
    Problem,
    RefusedByPolicy,
    StoreFull,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.plan import Plan
from holdfast.core.redact import redact
from holdfast.wire.plan_v1 import PlanForm, plan_to_json


class ProblemForm(msgspec.Struct, kw_only=True):
    """One thing wrong with the request."""

    field: str
    reason: str
    fix: str


class ErrorForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Every error of the control plane.

    `error` is stable and safe to match on; `message` is for people.
    """

    error: str
    message: str
    request_id: str = ""
    problems: list[ProblemForm] = []
    plan: PlanForm | None = None


class OpenAIErrorForm(msgspec.Struct, kw_only=True):
    """An error as clients of OpenAI's API read it."""

    message: str
    type: str
    code: str
    """Ours: stable and safe to match on."""
    param: str | None = None


class EndpointErrorForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Every error of the data plane that is not the workload's own."""

    error: OpenAIErrorForm
    message: str
    request_id: str = ""
    problems: list[ProblemForm] = []


class HttpError(Exception):
    """An answer other than success, decided by the server itself."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        problems: Sequence[Problem] = (),
        plan: Plan | None = None,
        retry_after: int | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.problems = tuple(problems[:MAX_PROBLEMS])
        self.plan = plan
        self.headers = list(headers)
        self.close = close
        """The rest of the request is not worth reading."""
        if retry_after is not None:
            self.headers.append((b"retry-after", str(retry_after).encode()))

    def form(self, request_id: str) -> ErrorForm:
        """Write the body. What came from the request is masked on its way back."""
        return ErrorForm(
            error=self.code,
            message=redact(self.message),
            request_id=request_id,
            problems=[
                ProblemForm(field=redact(each.field), reason=redact(each.reason), fix=each.fix)
                for each in self.problems
            ],
            plan=plan_to_json(self.plan) if self.plan else None,
        )

    def endpoint_form(self, request_id: str) -> EndpointErrorForm:
        """Write the body as clients of a workload's endpoint read it."""
        form = self.form(request_id)
        return EndpointErrorForm(
            error=OpenAIErrorForm(
                message=form.message,
                type=_openai_type(self.status),
                code=form.error,
                param=form.problems[0].field if form.problems else None,
            ),
            message=form.message,
            request_id=request_id,
            problems=form.problems,
        )


def _openai_type(status: int) -> str:
    known = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    return known.get(status, "server_error" if status >= 500 else "invalid_request_error")


def to_http_error(error: HoldfastError) -> HttpError:
    """Give one of our errors its status and its code on the wire."""
    text = str(error)
    match error:
        case DriftError():
            return HttpError(409, "drift", text, plan=error.plan)
        case ValidationError():
            return HttpError(400, "invalid", text, problems=error.problems)
        case AuthError():
            return HttpError(401, "unauthenticated", text, headers=CHALLENGE)
        case PermissionDenied():
            return HttpError(403, error.reason, text)
        case NotFound():
            return HttpError(404, "not_found", text)
        case AlreadyExists():
            return HttpError(409, "already_exists", text)
        case Conflict():
            return HttpError(409, "conflict", text)
        case InvalidState():
            return HttpError(409, "invalid_state", text)
        case Ambiguous():
            return HttpError(409, "ambiguous", text)
        case RefusedByPolicy():
            return HttpError(409, "refused", text)
        case StoreFull() if error.nothing_changed:
            return HttpError(507, "out_of_space", text, retry_after=10)
        case TargetUnavailable():
            return unavailable_error(error, text, retry_after=5)
        case _:
            return HttpError(500, "internal", text)


def unavailable_error(error: HoldfastError, message: str, *, retry_after: int) -> HttpError:
    """Answer for what is away: 503 only where nothing was begun, as clients repeat that unasked."""
    if error.nothing_changed:
        return HttpError(503, "unavailable", message, retry_after=retry_after)
    return HttpError(504, "outcome_unknown", message, retry_after=retry_after)


def cluster_refusal(error: HoldfastError, *, whose: str) -> HttpError:
    """Answer for a cluster that refuses our own credentials: the caller's were good."""
    message = f"The cluster refuses {whose} own credentials. {error.changed}"
    return unavailable_error(error, message, retry_after=30)


CHALLENGE = ((b"www-authenticate", b"Bearer"),)


def not_found_error() -> HttpError:
    """One answer for what is absent and for what is another's."""
    return HttpError(
        404,
        "not_found",
        "Not found. There is nothing of that name or id in this project. Nothing was changed. "
        "Check the slug or id.",
    )


def internal_error() -> HttpError:
    """A fault of ours. The log has the rest, under the request id."""
    return HttpError(
        500,
        "internal",
        "The server failed to answer this request; whether it took effect is unknown. "
        "Its log says more, under the request id.",
    )
