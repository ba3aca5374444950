"""Turns what a forge answered into an error of our tree.

An answer that is not in a forge's words came from something in between: its 404 is not taken
for a repository that is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import msgspec

from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    ApiError,
    AuthError,
    ConfigurationError,
    Conflict,
    HoldfastError,
    NotFound,
    PermissionDenied,
    TargetUnavailable,
    ValidationError,
)
from holdfast.core.ink import clean
from holdfast.core.redact import MASK, Secret, redact

LONGEST_WAIT = 3600.0
"""Limits that are counted by the hour end within one; who asks for more is asked again."""
AFTER_LIMIT = 60.0
"""What to wait where a limit was reached and no time is told."""
_LATER = frozenset({408, 500, 502, 503, 504})
_LIMIT = re.compile(r"(?i)rate limit|abuse detection")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer of a forge."""

    method: str
    where: str
    """Forge, method and path, for messages."""
    status: int
    headers: Mapping[str, str] = field(repr=False)
    """By names in lower case."""
    body: bytes = field(repr=False)

    @property
    def writes(self) -> bool:
        """True when the request may have changed something."""
        return self.method != "GET"


def error_of(reply: Reply, token: Secret) -> HoldfastError:
    """Return the error that an answer means. What it quotes of the token is masked."""
    said = words_of(reply.body)
    shown = _shown(said or "", token)
    happened = f"{reply.where} answered {reply.status}{': ' + shown if shown else ''}."
    match reply.status:
        case 429:
            return _limited(reply, happened)
        case 403 if _is_limit(reply, said or ""):
            return _limited(reply, happened)
        case 401:
            return AuthError(happened, todo="Give the forge's credential a token that is valid.")
        case 403:
            return PermissionDenied(
                happened, todo="Let the token read and write pull requests of this repository."
            )
        case 404 | 410 if said is not None:
            return NotFound(
                happened,
                todo="Check the repository's address, and that the token may see the repository.",
            )
        case 409 | 412:
            return Conflict(happened)
        case 400 | 413 | 422:
            return ValidationError(happened)
        case code if 300 <= code < 400:
            return ConfigurationError(
                f"{reply.where} answered {code}, which leads elsewhere and was not followed.",
                todo="Set the forge's own address to where it answers now.",
            )
        case code if code in _LATER or said is None:
            return _unavailable(reply, happened)
        case code:
            unknown = reply.writes and code >= 500
            return ApiError(
                happened, status=code, changed=OUTCOME_UNKNOWN if unknown else NOTHING_CHANGED
            )


def unreadable(reply: Reply) -> HoldfastError:
    """Return the error for an answer that says yes and nothing that a forge would say."""
    return TargetUnavailable(
        f"{reply.where} answered {reply.status}, and not as a forge answers.",
        changed=OUTCOME_UNKNOWN if reply.writes else NOTHING_CHANGED,
        todo="Check the forge's address and what stands between here and there.",
    )


def words_of(body: bytes) -> str | None:
    """Return what a forge says went wrong; None when these are not a forge's words."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(said, dict) or not {"message", "error", "errors"} & set(said):
        return None
    parts = (said.get(key) for key in ("message", "error", "error_description", "errors"))
    return "; ".join(dict.fromkeys(text for part in parts for text in _texts(part)))


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the answer asks us to wait; None when it asks for nothing.

    A time of day is counted from the answer's own, so that clocks need not agree.
    """
    after = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", after):
        return min(float(after), LONGEST_WAIT)
    now = _time(headers.get("date", ""))
    until = _time(after)
    if until is None and _remaining(headers) == "0":
        reset = headers.get("x-ratelimit-reset", headers.get("ratelimit-reset", "")).strip()
        until = float(reset) if re.fullmatch(r"[0-9]{1,12}", reset) else None
    if now is None or until is None:
        return None
    return min(max(0.0, until - now), LONGEST_WAIT)


def _limited(reply: Reply, happened: str) -> TargetUnavailable:
    wait = asked_wait(reply.headers)
    error = TargetUnavailable(happened, todo="The forge limits how often it is asked; wait.")
    error.retry_after = AFTER_LIMIT if wait is None else wait
    return error


def _unavailable(reply: Reply, happened: str) -> TargetUnavailable:
    error = TargetUnavailable(
        happened,
        changed=OUTCOME_UNKNOWN if reply.writes else NOTHING_CHANGED,
        todo="Try again later.",
    )
    error.retry_after = asked_wait(reply.headers)
    return error


def _is_limit(reply: Reply, said: str) -> bool:
    asked = "retry-after" in reply.headers or _remaining(reply.headers) == "0"
    return asked or bool(_LIMIT.search(said))


def _remaining(headers: Mapping[str, str]) -> str:
    return headers.get("x-ratelimit-remaining", headers.get("ratelimit-remaining", "")).strip()


def _texts(said: object, depth: int = 3) -> Iterator[str]:
    """Find the sentences in a message, which GitLab sends as lists and by fields, too."""
    if isinstance(said, str):
        yield said
    elif depth and isinstance(said, list):
        for each in said[:10]:
            yield from _texts(each, depth - 1)
    elif depth and isinstance(said, dict):
        for each in list(said.values())[:10]:
            yield from _texts(each, depth - 1)


def _shown(text: str, token: Secret) -> str:
    secret = token.reveal()
    hidden = text[:4000].replace(secret, MASK) if secret else text[:4000]
    del secret  # a traceback with locals shows it otherwise
    return clean(" ".join(redact(hidden).split()))[:400].rstrip(".")


def _time(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
