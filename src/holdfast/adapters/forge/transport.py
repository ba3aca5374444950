"""Requests to one forge, with its token, and what its responses mean as errors of ours.

The token is in the Authorization header of requests to the forge's own address and nowhere else.
A response that is not in a forge's form came from something in between: its 404 is not taken for
a repository that is gone.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec
from yarl import URL

from holdfast.adapters.outbound import (
    NoResponse,
    OutboundClient,
    OutboundResponse,
    rate_limit_remaining,
    retry_delay,
    sanitize,
    tls_context,
)
from holdfast.core.address_reach import literal_address, source_problem
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
from holdfast.core.redact import Secret

DEFAULT_TIMEOUT = 30.0
MAX_RESPONSE = 16 << 20
"""More bytes than fifty pull requests with the longest bodies have."""
PER_PAGE = 50
MAX_PAGES = 40
MAX_REDIRECTS = 3
RATE_LIMIT_DELAY = 60.0
"""Seconds to wait where a limit was reached and no time is given."""
_RETRY_STATUSES = frozenset({408, 500, 502, 503, 504})
_RATE_LIMIT_TEXT = re.compile(r"(?i)rate limit|abuse detection")
_METHOD_KEEPING_STATUSES = frozenset({307, 308})
_REDIRECT_STATUSES = frozenset({301, 302}) | _METHOD_KEEPING_STATUSES

T = TypeVar("T")
Query = Mapping[str, str | int]
Body = Mapping[str, Any]  # Any: JSON, made by the module of each forge


class ForgeTransport:
    """Requests to one forge."""

    def __init__(
        self,
        *,
        forge: str,
        base: str,
        token: Secret,
        authority: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        allow_loopback: bool = True,
    ) -> None:
        """`base` is where the API begins; `authority` holds certificates of an own authority."""
        host = literal_address(urlsplit(base).hostname or "")
        if host and (problem := source_problem(host, allow_loopback=allow_loopback)):
            raise ConfigurationError(
                f"{forge} was not asked: {problem}.",
                hint="Set pullRequests.api to the address of your forge, or start the controller "
                "with --allow-local if it is meant to use what runs on its own machine.",
            )
        self._forge = forge
        self._base = base.rstrip("/")
        self._token = _check_token(token)
        self._headers = {"Accept": "application/json", **(headers or {})}
        _check_authority(authority)
        self._client = OutboundClient(
            timeout=timeout,
            max_bytes=MAX_RESPONSE,
            address_rule=lambda address: source_problem(
                str(address), allow_loopback=allow_loopback
            ),
            authority=authority,
            use_proxy=True,
        )

    async def request(
        self, method: str, path: str, form: type[T], *, body: Body | None = None
    ) -> T:
        """Send one request and return its response, decoded as `form`."""
        where = self._describe(method, path)
        return _decode(await self._send(method, path, None, body), form, where, method)

    async def send(self, method: str, path: str, *, body: Body) -> None:
        """Send one request whose response says nothing that is needed."""
        await self._send(method, path, None, body)

    async def list_pages(
        self, path: str, form: type[list[T]], *, query: Query | None = None, size: str = "per_page"
    ) -> AsyncGenerator[T, None]:
        """Yield what a list holds, page by page; `size` is the forge's name for their length.

        Ends after 2,000: what comes after them is older than anything that is looked for.
        """
        where = self._describe("GET", path)
        for page in range(1, MAX_PAGES + 1):
            paged = {**(query or {}), "page": page, size: PER_PAGE}
            response = await self._send("GET", path, paged, None)
            items = _decode(response, form, where, "GET")
            for item in items:
                yield item
            link = response.headers.get("link")
            # Only some lists say whether they go on, and a forge may give less than was asked for.
            if not items or ('rel="next"' not in link if link else len(items) < PER_PAGE):
                return

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._client.aclose()

    async def _send(
        self, method: str, path: str, query: Query | None, body: Body | None
    ) -> OutboundResponse:
        """Return a successful response, following redirects within the forge's own address."""
        url = self._base + path + (f"?{urlencode(query)}" if query else "")
        for _ in range(MAX_REDIRECTS):
            response = await self._exchange(method, url, path, body)
            url = _redirect_target(method, url, response)
            if not url:
                break
        if 200 <= response.status < 300:
            return response
        raise response_error(response, self._describe(method, path), method, self._token)

    async def _exchange(
        self, method: str, url: str, path: str, body: Body | None
    ) -> OutboundResponse:
        response = await self._client.send(
            method,
            URL(url, encoded=True),
            # Held by no local, so that no frame of an error shows the token.
            headers={**self._headers, "Authorization": f"Bearer {self._token.reveal()}"},
            json=body,
        )
        if isinstance(response, NoResponse):
            unknown = response.sent and method != "GET"
            raise TargetUnavailable(
                f"{self._describe(method, path)} {response.reason}.",
                changed=OUTCOME_UNKNOWN if unknown else NOTHING_CHANGED,
                hint="Check that the forge runs and can be reached from here.",
            )
        return response

    def _describe(self, method: str, path: str) -> str:
        return f"{self._forge} ({method} {path})"


def response_error(
    response: OutboundResponse, where: str, method: str, token: Secret
) -> HoldfastError:
    """Return the error that a response means. What it quotes of the token is masked."""
    message = forge_message(response.body)
    shown = sanitize(message or "", token).rstrip(".")
    happened = f"{where} answered {response.status}{': ' + shown if shown else ''}."
    match response.status:
        case 429:
            return _rate_limited(response, happened)
        case 403 if _is_rate_limit(response, message or ""):
            return _rate_limited(response, happened)
        case 401:
            return AuthError(happened, hint="Give the forge's credential a token that is valid.")
        case 403:
            return PermissionDenied(
                happened, hint="Let the token read and write pull requests of this repository."
            )
        case 404 | 410 if message is not None:
            return NotFound(
                happened,
                hint="Check the repository's address, and that the token may see the repository.",
            )
        case 409 | 412:
            return Conflict(happened)
        case 400 | 413 | 422:
            return ValidationError(happened)
        case code if 300 <= code < 400:
            return ConfigurationError(
                f"{where} answered {code}, which leads elsewhere and was not followed.",
                hint="Set the forge's own address to where it answers now.",
            )
        case code if code in _RETRY_STATUSES or message is None:
            error = TargetUnavailable(
                happened,
                changed=OUTCOME_UNKNOWN if method != "GET" else NOTHING_CHANGED,
                hint="Try again later.",
            )
            error.retry_after = retry_delay(response.headers)
            return error
        case code:
            unknown = method != "GET" and code >= 500
            return ApiError(
                happened, status=code, changed=OUTCOME_UNKNOWN if unknown else NOTHING_CHANGED
            )


def forge_message(body: bytes) -> str | None:
    """Return what a forge says went wrong; None when the body is not in a forge's form."""
    try:
        content = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(content, dict) or not {"message", "error", "errors"} & set(content):
        return None
    parts = (content.get(key) for key in ("message", "error", "error_description", "errors"))
    return "; ".join(dict.fromkeys(text for part in parts for text in _sentences(part)))


def _rate_limited(response: OutboundResponse, happened: str) -> TargetUnavailable:
    wait = retry_delay(response.headers)
    error = TargetUnavailable(happened, hint="The forge limits how often it is asked; wait.")
    error.retry_after = RATE_LIMIT_DELAY if wait is None else wait
    return error


def _is_rate_limit(response: OutboundResponse, message: str) -> bool:
    headers = response.headers
    asked = "retry-after" in headers or rate_limit_remaining(headers) == "0"
    return asked or bool(_RATE_LIMIT_TEXT.search(message))


def _sentences(content: object, depth: int = 3) -> Iterator[str]:
    """Find the sentences in a message, which GitLab also sends as lists and by field."""
    if isinstance(content, str):
        yield content
    elif depth and isinstance(content, list | dict):
        items = list(content.values() if isinstance(content, dict) else content)
        for item in items[:10]:
            yield from _sentences(item, depth - 1)


def _redirect_target(method: str, url: str, response: OutboundResponse) -> str:
    """Return where a response leads within the forge; empty when it is not to be followed."""
    followed = _REDIRECT_STATUSES if method == "GET" else _METHOD_KEEPING_STATUSES
    location = response.headers.get("location", "")
    if response.status not in followed or not location:
        return ""
    try:
        target = urljoin(url, location)
        return target if _origin(target) == _origin(url) else ""
    except ValueError:  # no URL at all
        return ""


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port


def _decode(response: OutboundResponse, form: type[T], where: str, method: str) -> T:
    try:
        return msgspec.json.decode(response.body, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TargetUnavailable(
            f"{where} answered {response.status}, and not as a forge answers.",
            changed=OUTCOME_UNKNOWN if method != "GET" else NOTHING_CHANGED,
            hint="Check the forge's address and what stands between here and there.",
        ) from None


def _check_token(token: Secret) -> Secret:
    """Return a token without the line end that a file put behind it."""
    if not re.fullmatch(r"[!-~]+", token.reveal().strip()):
        raise ConfigurationError(
            "The forge's token is empty or has characters that no token has.",
            hint="Put the token alone into the credential.",
        )
    return Secret(token.reveal().strip())


def _check_authority(authority: str) -> None:
    try:
        tls_context(authority)
    except ssl.SSLError:
        raise ConfigurationError(
            "The certificate authority of the forge is not a PEM certificate.",
            hint="Put the authority's certificate into the credential as PEM.",
        ) from None
