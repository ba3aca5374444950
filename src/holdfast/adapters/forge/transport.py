"""Turns what a forge answered into an error of our tree.

An answer that is not in a forge's words came from something in between: its 404 is not taken
for a repository that is gone.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import aiohttp
import msgspec
from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from holdfast.adapters.outbound import describe_connection_error, proxy_for
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
from holdfast.core.quantity import format_seconds
from holdfast.core.redact import MASK, Secret, redact
from holdfast.core.text_style import escape_unprintable
from holdfast.version import __version__

MAX_RETRY_DELAY = 3600.0
"""Limits that are counted by the hour end within one; who asks for more is asked again."""
RATE_LIMIT_DELAY = 60.0
"""What to wait where a limit was reached and no time is told."""
_RETRY_STATUSES = frozenset({408, 500, 502, 503, 504})
_RATE_LIMIT_TEXT = re.compile(r"(?i)rate limit|abuse detection")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeResponse:
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


def response_error(reply: ForgeResponse, token: Secret) -> HoldfastError:
    """Return the error that an answer means. What it quotes of the token is masked."""
    said = forge_message(reply.body)
    shown = _mask_text(said or "", token)
    happened = f"{reply.where} answered {reply.status}{': ' + shown if shown else ''}."
    match reply.status:
        case 429:
            return _rate_limited(reply, happened)
        case 403 if _is_rate_limit(reply, said or ""):
            return _rate_limited(reply, happened)
        case 401:
            return AuthError(happened, hint="Give the forge's credential a token that is valid.")
        case 403:
            return PermissionDenied(
                happened, hint="Let the token read and write pull requests of this repository."
            )
        case 404 | 410 if said is not None:
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
                f"{reply.where} answered {code}, which leads elsewhere and was not followed.",
                hint="Set the forge's own address to where it answers now.",
            )
        case code if code in _RETRY_STATUSES or said is None:
            return _unavailable(reply, happened)
        case code:
            unknown = reply.writes and code >= 500
            return ApiError(
                happened, status=code, changed=OUTCOME_UNKNOWN if unknown else NOTHING_CHANGED
            )


def unreadable_response(reply: ForgeResponse) -> HoldfastError:
    """Return the error for an answer that says yes and nothing that a forge would say."""
    return TargetUnavailable(
        f"{reply.where} answered {reply.status}, and not as a forge answers.",
        changed=OUTCOME_UNKNOWN if reply.writes else NOTHING_CHANGED,
        hint="Check the forge's address and what stands between here and there.",
    )


def forge_message(body: bytes) -> str | None:
    """Return what a forge says went wrong; None when these are not a forge's words."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(said, dict) or not {"message", "error", "errors"} & set(said):
        return None
    parts = (said.get(key) for key in ("message", "error", "error_description", "errors"))
    return "; ".join(dict.fromkeys(text for part in parts for text in _sentences(part)))


def retry_delay(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the answer asks us to wait; None when it asks for nothing.

    A time of day is counted from the answer's own, so that clocks need not agree.
    """
    after = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", after):
        return min(float(after), MAX_RETRY_DELAY)
    now = _parse_http_date(headers.get("date", ""))
    until = _parse_http_date(after)
    if until is None and _remaining(headers) == "0":
        reset = headers.get("x-ratelimit-reset", headers.get("ratelimit-reset", "")).strip()
        until = float(reset) if re.fullmatch(r"[0-9]{1,12}", reset) else None
    if now is None or until is None:
        return None
    return min(max(0.0, until - now), MAX_RETRY_DELAY)


def _rate_limited(reply: ForgeResponse, happened: str) -> TargetUnavailable:
    wait = retry_delay(reply.headers)
    error = TargetUnavailable(happened, hint="The forge limits how often it is asked; wait.")
    error.retry_after = RATE_LIMIT_DELAY if wait is None else wait
    return error


def _unavailable(reply: ForgeResponse, happened: str) -> TargetUnavailable:
    error = TargetUnavailable(
        happened,
        changed=OUTCOME_UNKNOWN if reply.writes else NOTHING_CHANGED,
        hint="Try again later.",
    )
    error.retry_after = retry_delay(reply.headers)
    return error


def _is_rate_limit(reply: ForgeResponse, said: str) -> bool:
    asked = "retry-after" in reply.headers or _remaining(reply.headers) == "0"
    return asked or bool(_RATE_LIMIT_TEXT.search(said))


def _remaining(headers: Mapping[str, str]) -> str:
    return headers.get("x-ratelimit-remaining", headers.get("ratelimit-remaining", "")).strip()


def _sentences(said: object, depth: int = 3) -> Iterator[str]:
    """Find the sentences in a message, which GitLab sends as lists and by fields, too."""
    if isinstance(said, str):
        yield said
    elif depth and isinstance(said, list):
        for each in said[:10]:
            yield from _sentences(each, depth - 1)
    elif depth and isinstance(said, dict):
        for each in list(said.values())[:10]:
            yield from _sentences(each, depth - 1)


def _mask_text(text: str, token: Secret) -> str:
    secret = token.reveal()
    hidden = text[:4000].replace(secret, MASK) if secret else text[:4000]
    del secret  # a traceback with locals shows it otherwise
    return escape_unprintable(" ".join(redact(hidden).split()))[:400].rstrip(".")


def _parse_http_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


DEFAULT_TIMEOUT = 30.0
LIMIT = 16 << 20
"""More bytes than fifty pull requests with the longest bodies have."""
PER_PAGE = 50
MAX_PAGES = 40
MAX_REDIRECTS = 3
_METHOD_KEEPING_STATUSES = frozenset({307, 308})
_REDIRECT_STATUSES = frozenset({301, 302}) | _METHOD_KEEPING_STATUSES

T = TypeVar("T")
Query = Mapping[str, str | int]
Body = Mapping[str, Any]  # Any: JSON, made by the module of each forge


@dataclass(frozen=True, slots=True)
class _NoResponse:
    why: str
    sent: bool = True
    """False when the request surely never left."""


class ForgeTransport:
    """Requests to one forge."""

    def __init__(
        self,
        *,
        forge: str,
        base: str,
        token: Secret,
        authority: str = "",
        accept: str = "application/json",
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
        self._allow_loopback = allow_loopback
        self._forge = forge
        self._base = base.rstrip("/")
        self._token = _check_token(token)
        self._own_headers = {
            "Accept": accept,
            "User-Agent": f"holdfast/{__version__}",
            **(headers or {}),
        }
        self._tls = _tls_context(authority)
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def ask(
        self,
        method: str,
        path: str,
        form: type[T],
        *,
        query: Query | None = None,
        body: Body | None = None,
    ) -> T:
        """Send one request and return its answer, read as `form`."""
        return _decode(await self._reply(method, path, query, body), form)

    async def tell(self, method: str, path: str, *, body: Body) -> None:
        """Send one request whose answer says nothing that is needed."""
        await self._reply(method, path, None, body)

    async def pages(
        self, path: str, form: type[list[T]], *, query: Query | None = None, size: str = "per_page"
    ) -> AsyncGenerator[T, None]:
        """Yield what a list holds, page by page; `size` is the forge's name for their length.

        Ends after 2,000: what stands behind them is older than anything that is looked for.
        """
        for page in range(1, MAX_PAGES + 1):
            asked = {**(query or {}), "page": page, size: PER_PAGE}
            reply = await self._reply("GET", path, asked, None)
            found = _decode(reply, form)
            for each in found:
                yield each
            link = reply.headers.get("link")
            # Only some lists say whether they go on, and a forge may give less than was asked for.
            if not found or ('rel="next"' not in link if link else len(found) < PER_PAGE):
                return

    async def aclose(self) -> None:
        """Let go of the connections. Safe to call twice."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _reply(
        self, method: str, path: str, query: Query | None, body: Body | None
    ) -> ForgeResponse:
        """Return an answer that says yes, following the forge within its own address."""
        where = f"{self._forge} ({method} {path})"
        url = self._base + path + (f"?{urlencode(query)}" if query else "")
        for _ in range(MAX_REDIRECTS):
            reply = await self._exchange(method, url, where, body)
            url = self._next(url, reply)
            if not url:
                break
        if 200 <= reply.status < 300:
            return reply
        raise response_error(reply, self._token)

    async def _exchange(
        self, method: str, url: str, where: str, body: Body | None
    ) -> ForgeResponse:
        got = await self._sent(method, url, where, body)
        if isinstance(got, _NoResponse):
            raise TargetUnavailable(
                f"{where} {got.why}.",
                changed=OUTCOME_UNKNOWN if got.sent and method != "GET" else NOTHING_CHANGED,
                hint="Check that the forge runs and can be reached from here.",
            )
        return got

    async def _sent(
        self, method: str, url: str, where: str, body: Body | None
    ) -> ForgeResponse | _NoResponse:
        """Return the answer, or why there is none.

        A value rather than an exception: that of the library leads to frames that hold the token.
        """
        if self._session is None:
            # What a proxy is asked for, it resolves itself; the proxy is the operator's choice.
            guarded = (
                None if proxy_for(url) else _CheckedResolver(allow_loopback=self._allow_loopback)
            )
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=guarded),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=self._timeout),
            )
        try:
            async with self._session.request(
                method,
                URL(url, encoded=True),
                headers={
                    **self._own_headers,
                    "Authorization": f"Bearer {self._token.reveal()}",
                },
                json=body,
                ssl=self._tls if url.startswith("https:") else True,
                proxy=proxy_for(url) or None,
                allow_redirects=False,
            ) as answer:
                read = bytearray()
                async for piece in answer.content.iter_chunked(1 << 16):
                    read += piece
                    if len(read) > LIMIT:
                        return _NoResponse(f"answered with more than {LIMIT} bytes")
                return ForgeResponse(
                    method=method,
                    where=where,
                    status=answer.status,
                    headers={name.lower(): value for name, value in answer.headers.items()},
                    body=bytes(read),
                )
        except TimeoutError:
            return _NoResponse(f"gave no answer in {format_seconds(self._timeout)}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.InvalidURL)
            return _NoResponse(describe_connection_error(error), sent=not unsent)

    def _next(self, url: str, reply: ForgeResponse) -> str:
        """Return where an answer leads within the forge; empty when it is not to be followed."""
        followed = _METHOD_KEEPING_STATUSES if reply.writes else _REDIRECT_STATUSES
        location = reply.headers.get("location", "")
        if reply.status not in followed or not location:
            return ""
        try:
            target = urljoin(url, location)
            return target if _origin(target) == _origin(url) else ""
        except ValueError:  # no address at all
            return ""


class _CheckedResolver(ThreadedResolver):
    """Gives no address that a forge may not be at, whatever the name service says."""

    def __init__(self, *, allow_loopback: bool) -> None:
        super().__init__()
        self._allow_loopback = allow_loopback

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        for each in found:
            if source_problem(each["host"], allow_loopback=self._allow_loopback):
                raise OSError(errno.EACCES, "its name leads to an address that is not allowed")
        return found


def _decode(reply: ForgeResponse, form: type[T]) -> T:
    try:
        return msgspec.json.decode(reply.body, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise unreadable_response(reply) from None


def _check_token(token: Secret) -> Secret:
    """Return a token without the line end that a file put behind it."""
    if not re.fullmatch(r"[!-~]+", token.reveal().strip()):
        raise ConfigurationError(
            "The forge's token is empty or has characters that no token has.",
            hint="Put the token alone into the credential.",
        )
    return Secret(token.reveal().strip())


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port


def _tls_context(authority: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=authority or None)
    except ssl.SSLError:
        raise ConfigurationError(
            "The certificate authority of the forge is not a PEM certificate.",
            hint="Put the authority's certificate into the credential as PEM.",
        ) from None
