"""The line to one forge: requests with a token, a deadline and limits, and nothing followed away.

The token is in the Authorization header of requests to the forge's own address and nowhere else.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import aiohttp
import msgspec
from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from holdfast.adapters.forge.answers import Reply, error_of, unreadable
from holdfast.adapters.outward import proxy_for, why_broken
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    ConfigurationError,
    TargetUnavailable,
)
from holdfast.core.quantity import shown_seconds
from holdfast.core.reach import literal, source_problem
from holdfast.core.redact import Secret
from holdfast.version import __version__

TIMEOUT = 30.0
LIMIT = 16 << 20
"""More bytes than fifty pull requests with the longest bodies have."""
PER_PAGE = 50
PAGES = 40
REDIRECTS = 3
_KEEPS_METHOD = frozenset({307, 308})
_REDIRECTS = frozenset({301, 302}) | _KEEPS_METHOD

T = TypeVar("T")
Query = Mapping[str, str | int]
Body = Mapping[str, Any]  # Any: JSON, made by the module of each forge


@dataclass(frozen=True, slots=True)
class _Unanswered:
    why: str
    sent: bool = True
    """False when the request surely never left."""


class Line:
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
        timeout: float = TIMEOUT,
        allow_loopback: bool = True,
    ) -> None:
        """`base` is where the API begins; `authority` holds certificates of an own authority."""
        host = literal(urlsplit(base).hostname or "")
        if host and (problem := source_problem(host, allow_loopback=allow_loopback)):
            raise ConfigurationError(
                f"{forge} was not asked: {problem}.",
                todo="Set pullRequests.api to the address of your forge, or start the controller "
                "with --allow-local if it is meant to use what runs on its own machine.",
            )
        self._allow_loopback = allow_loopback
        self._forge = forge
        self._base = base.rstrip("/")
        self._token = _checked(token)
        self._own_headers = {
            "Accept": accept,
            "User-Agent": f"holdfast/{__version__}",
            **(headers or {}),
        }
        self._tls = _context(authority)
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
        return _read(await self._reply(method, path, query, body), form)

    async def tell(self, method: str, path: str, *, body: Body) -> None:
        """Send one request whose answer says nothing that is needed."""
        await self._reply(method, path, None, body)

    async def pages(
        self, path: str, form: type[list[T]], *, query: Query | None = None, size: str = "per_page"
    ) -> AsyncGenerator[T, None]:
        """Yield what a list holds, page by page; `size` is the forge's name for their length.

        Ends after 2,000: what stands behind them is older than anything that is looked for.
        """
        for page in range(1, PAGES + 1):
            asked = {**(query or {}), "page": page, size: PER_PAGE}
            reply = await self._reply("GET", path, asked, None)
            found = _read(reply, form)
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

    async def _reply(self, method: str, path: str, query: Query | None, body: Body | None) -> Reply:
        """Return an answer that says yes, following the forge within its own address."""
        where = f"{self._forge} ({method} {path})"
        url = self._base + path + (f"?{urlencode(query)}" if query else "")
        for _ in range(REDIRECTS):
            reply = await self._exchange(method, url, where, body)
            url = self._next(url, reply)
            if not url:
                break
        if 200 <= reply.status < 300:
            return reply
        raise error_of(reply, self._token)

    async def _exchange(self, method: str, url: str, where: str, body: Body | None) -> Reply:
        got = await self._sent(method, url, where, body)
        if isinstance(got, _Unanswered):
            raise TargetUnavailable(
                f"{where} {got.why}.",
                changed=OUTCOME_UNKNOWN if got.sent and method != "GET" else NOTHING_CHANGED,
                todo="Check that the forge runs and can be reached from here.",
            )
        return got

    async def _sent(
        self, method: str, url: str, where: str, body: Body | None
    ) -> Reply | _Unanswered:
        """Return the answer, or why there is none.

        A value rather than an exception: that of the library leads to frames that hold the token.
        """
        if self._session is None:
            # What a proxy is asked for, it resolves itself; the proxy is the operator's choice.
            guarded = None if proxy_for(url) else _Guarded(allow_loopback=self._allow_loopback)
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
                        return _Unanswered(f"answered with more than {LIMIT} bytes")
                return Reply(
                    method=method,
                    where=where,
                    status=answer.status,
                    headers={name.lower(): value for name, value in answer.headers.items()},
                    body=bytes(read),
                )
        except TimeoutError:
            return _Unanswered(f"gave no answer in {shown_seconds(self._timeout)}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.InvalidURL)
            return _Unanswered(why_broken(error), sent=not unsent)

    def _next(self, url: str, reply: Reply) -> str:
        """Return where an answer leads within the forge; empty when it is not to be followed."""
        followed = _KEEPS_METHOD if reply.writes else _REDIRECTS
        location = reply.headers.get("location", "")
        if reply.status not in followed or not location:
            return ""
        try:
            target = urljoin(url, location)
            return target if _origin(target) == _origin(url) else ""
        except ValueError:  # no address at all
            return ""


class _Guarded(ThreadedResolver):
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


def _read(reply: Reply, form: type[T]) -> T:
    try:
        return msgspec.json.decode(reply.body, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise unreadable(reply) from None


def _checked(token: Secret) -> Secret:
    """Return a token without the line end that a file put behind it."""
    if not re.fullmatch(r"[!-~]+", token.reveal().strip()):
        raise ConfigurationError(
            "The forge's token is empty or has characters that no token has.",
            todo="Put the token alone into the credential.",
        )
    return Secret(token.reveal().strip())


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port


def _context(authority: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=authority or None)
    except ssl.SSLError:
        raise ConfigurationError(
            "The certificate authority of the forge is not a PEM certificate.",
            todo="Put the authority's certificate into the credential as PEM.",
        ) from None
