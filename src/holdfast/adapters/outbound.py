"""HTTP that goes out: the one exchange by which forges, channels, Prometheus, probes, engines,
the heads of models and issuers of sign-ins are asked.

It decides for all of them which addresses may be reached, which proxy is used, how long to wait,
how much to read, and how a broken connection is described. What a status means is the caller's
to say. The Kubernetes client has a connection of its own and shares proxies and descriptions;
downloads of models are `adapters/hub.py`, which streams to a file and resumes.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from yarl import URL

from holdfast.core.address_reach import IpAddress, literal_address
from holdfast.core.quantity import format_seconds
from holdfast.core.redact import MASK, Secret, redact
from holdfast.core.text_style import escape_unprintable
from holdfast.version import __version__

MAX_RETRY_DELAY = 3600.0
"""Rate limits that are counted by the hour end within one; whoever asks for more is asked again."""

AddressRule = Callable[[IpAddress], str]
"""Says why an address must not be connected to; empty when it may be."""
HostResolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to every address of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundResponse:
    """A response, read to its end or to where it was cut."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    """By names in lower case."""
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoResponse:
    """Why there is no response. A value, because aiohttp's exceptions hold URLs and headers."""

    reason: str
    """Completes a sentence that begins with who was asked."""
    sent: bool = True
    """False when the request surely never left."""
    forbidden: str = ""
    """Why the address must not be connected to, where that is the reason."""


def look_up_host(host: str, port: int) -> Sequence[str]:
    """Ask the system for every address of a host, which may take its time."""
    return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Look a host up in a thread."""
    return await asyncio.to_thread(look_up_host, host, port)


class OutboundClient:
    """Sends requests within limits and follows no redirect. Close it when done."""

    def __init__(
        self,
        *,
        timeout: float,
        max_bytes: int,
        address_rule: AddressRule | None = None,
        resolve: HostResolver = resolve_host,
        authority: str = "",
        use_proxy: bool = False,
        keep_alive: bool = True,
    ) -> None:
        """`authority` holds PEM certificates to trust in place of the system's.

        With `use_proxy` the environment's proxy is asked where there is one. It resolves names
        itself, so the address rule does not hold for it: the operator chose the proxy.
        """
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._address_rule = address_rule
        self._resolve = resolve
        self._authority = authority
        self._use_proxy = use_proxy
        self._keep_alive = keep_alive
        self._session: aiohttp.ClientSession | None = None
        self._connections = UsedConnections()

    async def send(
        self,
        method: str,
        url: URL | str,
        *,
        headers: Mapping[str, str] | None = None,
        data: bytes | Mapping[str, str] | None = None,
        json: Any = None,  # Any: whatever JSON has
        request_timeout: float | None = None,
        truncate_at: int | None = None,
    ) -> OutboundResponse | NoResponse:
        """Send one request. A mapping as `data` is sent as a form.

        A response over the limit is none, unless it is to be cut off at `truncate_at` bytes.
        """
        seconds = self._timeout if request_timeout is None else request_timeout
        try:
            url = URL(url) if isinstance(url, str) else url
            proxy = proxy_for(str(url)) if self._use_proxy else ""
            problem = "" if proxy else self._literal_problem(url.host or "")
            if problem:
                return _forbidden(problem)
            async with (
                asyncio.timeout(seconds),
                self._open_session(proxied=bool(proxy)).request(
                    method,
                    url,
                    headers={"User-Agent": f"holdfast/{__version__}", **(headers or {})},
                    data=data,
                    json=json,
                    ssl=await self._tls() if url.scheme == "https" else True,
                    proxy=proxy or None,
                    allow_redirects=False,
                ) as response,
            ):
                limit = self._max_bytes + 1 if truncate_at is None else truncate_at
                body = await _read_body(response, limit)
                if truncate_at is None and len(body) > self._max_bytes:
                    return NoResponse(reason=f"answered with more than {self._max_bytes} bytes")
                names = {name.lower(): value for name, value in response.headers.items()}
                return OutboundResponse(status=response.status, headers=names, body=body)
        except TimeoutError:
            return NoResponse(reason=f"gave no answer in {format_seconds(seconds)}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            cause = getattr(error, "os_error", error)
            if isinstance(cause, _ForbiddenAddress):
                return _forbidden(cause.problem)
            unsent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.InvalidURL)
            return NoResponse(reason=describe_connection_error(error), sent=not unsent)

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await self._connections.abort()

    async def _tls(self) -> ssl.SSLContext:
        return await asyncio.to_thread(tls_context, self._authority)

    def _open_session(self, *, proxied: bool) -> aiohttp.ClientSession:
        if self._session is None:
            checked = None
            if self._address_rule is not None and not proxied:
                checked = _CheckedResolver(self._address_rule, self._resolve)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=checked,
                    use_dns_cache=self._keep_alive,
                    force_close=not self._keep_alive,
                    limit=0,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                response_class=self._connections.response_class,
            )
        return self._session

    def _literal_problem(self, host: str) -> str:
        """Check a host that is an address itself, which no resolver is asked for."""
        literal = literal_address(host)
        return self._address_rule(ip_address(literal)) if literal and self._address_rule else ""


class UsedConnections:
    """The connections that carried requests, so that none of them outlives its session.

    One that was given up is closed by the library, which over TLS waits for the peer's farewell:
    of a server that hangs it comes later than the loop lives.
    """

    def __init__(self) -> None:
        record = self._record

        class RecordedResponse(aiohttp.ClientResponse):
            async def start(self, connection: Connection) -> aiohttp.ClientResponse:
                record(connection)
                return await super().start(connection)

        self._transports: set[asyncio.Transport] = set()
        self.response_class: type[aiohttp.ClientResponse] = RecordedResponse
        """For a session, which records its connections here."""

    async def abort(self) -> None:
        """End what is still closing, once the session is closed."""
        for transport in list(self._transports):
            transport.abort()
        for _ in range(3):  # the loop closes a socket two turns later
            await asyncio.sleep(0)

    def _record(self, connection: Connection) -> None:
        transport, protocol = connection.transport, connection.protocol
        closed = protocol.closed if protocol is not None else None
        if transport is None or closed is None or transport in self._transports:
            return
        self._transports.add(transport)

        def forget(closed: asyncio.Future[None]) -> None:
            self._transports.discard(transport)
            if not closed.cancelled():
                closed.exception()  # taken note of, so that nobody calls it never retrieved

        closed.add_done_callback(forget)


class _ForbiddenAddress(OSError):
    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class _CheckedResolver(AbstractResolver):
    """Resolves a name once and checks every address: the connection goes to a checked one."""

    def __init__(self, rule: AddressRule, resolve: HostResolver) -> None:
        self._rule = rule
        self._resolve = resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = [ip_address(text) for text in dict.fromkeys(await self._resolve(host, port))]
        if not addresses:
            raise _ForbiddenAddress("its host has no address")
        for address in addresses:
            if problem := self._rule(address):
                raise _ForbiddenAddress(problem)
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _forbidden(problem: str) -> NoResponse:
    return NoResponse(reason=f"was not asked: {problem}", sent=False, forbidden=problem)


async def _read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    body = bytearray()
    while len(body) < limit and (chunk := await response.content.read(limit - len(body))):
        body += chunk
    return bytes(body)


@lru_cache(maxsize=64)
def tls_context(authority: str) -> ssl.SSLContext:
    """Return the TLS settings for an authority, PEM; for the system's when empty.

    Raises ssl.SSLError for what is no certificate.
    """
    return ssl.create_default_context(cadata=authority or None)


def proxy_for(url: str) -> str:
    """Return the environment's proxy for a URL; empty for what is reached directly.

    That is so for what runs on this machine, whatever the environment says.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
        return ""
    return getproxies_environment().get(parts.scheme, "")


def describe_connection_error(error: Exception) -> str:
    """Say what broke, without the library's own text, which may hold a proxy's password."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            return "showed a certificate that is not trusted here or is for another name"
        case aiohttp.ClientSSLError():
            return "could not agree on TLS"
        case aiohttp.ClientProxyConnectionError():
            return "could not be reached, as its proxy did not answer"
        case aiohttp.ClientHttpProxyError():
            return "could not be reached, as its proxy refused"
        case aiohttp.ClientConnectorError(os_error=OSError() as cause):
            number = cause.errno or 0
            reason = os.strerror(number) if number > 0 else cause.strerror
            return f"could not be reached: {reason or 'no connection'}"
        case aiohttp.ClientConnectorError():
            return "could not be reached: no connection"
        case _:
            return f"broke the connection off ({type(error).__name__})"


def retry_delay(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds a response asks us to wait, by itself or by its rate limit."""
    delay = retry_after(headers, longest=MAX_RETRY_DELAY)
    if delay is None and rate_limit_remaining(headers) == "0":
        reset = headers.get("x-ratelimit-reset", headers.get("ratelimit-reset", "")).strip()
        now = _parse_http_date(headers.get("date", ""))
        if now is not None and re.fullmatch(r"[0-9]{1,12}", reset):
            return min(max(0.0, float(reset) - now), MAX_RETRY_DELAY)
    return delay


def retry_after(headers: Mapping[str, str], *, longest: float) -> float | None:
    """Return the seconds that `Retry-After` asks for, at most so many; None when for nothing.

    A time of day is counted from the response's own, so that clocks need not agree.
    """
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return min(float(text), longest)
    until, now = _parse_http_date(text), _parse_http_date(headers.get("date", ""))
    return None if until is None or now is None else min(max(0.0, until - now), longest)


def rate_limit_remaining(headers: Mapping[str, str]) -> str:
    """Return how many requests are left, as the response says it; empty when it does not."""
    return headers.get("x-ratelimit-remaining", headers.get("ratelimit-remaining", "")).strip()


def sanitize(text: str, *secrets: Secret, limit: int = 400) -> str:
    """Make one printable line of what a server said, without secrets, not longer than a limit."""
    text = text[: 10 * limit]
    for each in secrets:
        # Within the call, so that no local of a traceback holds it.
        text = text.replace(each.reveal(), MASK) if each.reveal() else text
    return escape_unprintable(" ".join(redact(text).split()))[:limit]


def _parse_http_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
