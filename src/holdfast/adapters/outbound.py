"""What adapters that speak HTTP through aiohttp share: which proxy is asked, and why it failed."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from holdfast.core.address_reach import AddressReach, IpAddress, reach_of
from holdfast.core.errors import ConfigurationError, TargetUnavailable
from holdfast.core.quantity import format_seconds
from holdfast.core.redact import Secret


def proxy_for(url: str) -> str:
    """Return the environment's proxy for an address; empty for what is reached directly.

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
        case aiohttp.ClientConnectorError():
            reason = error.os_error.strerror if isinstance(error.os_error, OSError) else None
            return f"could not be reached: {reason or 'no connection'}"
        case _:
            return f"broke the connection off ({type(error).__name__})"


_HOST_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"{_HOST_LABEL}(?:\.{_HOST_LABEL})*")
_NUMERIC = re.compile(r"(?:[0-9]+|0[xX][0-9A-Fa-f]*)")
_URL_CHARACTERS = re.compile(r"[!-~]*")
_MAX_URL_LENGTH = 2048
_DEFAULT_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundUrl:
    """A checked URL in parts. All but the host may hold a secret."""

    scheme: str
    host: str
    port: int
    path: Secret
    query: Secret

    @property
    def literal(self) -> IpAddress | None:
        """The host, when it is an address and not a name."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


def parse_outbound_url(url: Secret, *, allow_private: bool) -> OutboundUrl:
    """Take a URL apart. Raises ConfigurationError, which shows nothing but the host."""
    # In a function of its own, so that no frame of the error's holds the URL.
    place, why, host = _parse_url(url, allow_private)
    if place is None:
        at = f" for {host}" if host else ""
        raise ConfigurationError(
            f"A notification address{at} was refused: {why}.",
            changed="Nothing was sent.",
            hint="Give an https URL of a public host, or let the operator allow private addresses.",
        )
    return place


def address_problem(address: IpAddress, *, scheme: str, allow_private: bool) -> str:
    """Say why an address must not be sent to; empty when it may."""
    reach = reach_of(address)
    if reach is AddressReach.RESERVED:
        return "it leads to an address that is reserved, link-local or a metadata service"
    if reach is not AddressReach.PUBLIC and not allow_private:
        return "it leads to a private address, which the operator did not allow"
    if scheme == "http" and reach is not AddressReach.LOOPBACK:
        return "http is for this machine alone"
    return ""


def _is_host_name(host: str) -> bool:
    """False for `2130706433`, `0x7f.1` and `127.1`, which resolvers take for addresses."""
    last = host.rpartition(".")[2]
    return len(host) <= 253 and bool(_HOST_NAME.fullmatch(host)) and not _NUMERIC.fullmatch(last)


def _parse_url(url: Secret, allow_private: bool) -> tuple[OutboundUrl | None, str, str]:
    """Return the parts, or why there are none and the host that may be named."""
    text = url.reveal()
    if len(text) > _MAX_URL_LENGTH or not _URL_CHARACTERS.fullmatch(text) or "\\" in text:
        return None, "it is too long, or has characters that a URL cannot have", ""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None, "it is not a URL", ""
    if parts.scheme not in _DEFAULT_PORTS:
        return None, "its scheme is not https", ""
    if port is None:
        port = _DEFAULT_PORTS[parts.scheme]
    path, query = Secret(parts.path or "/"), Secret(parts.query)
    place = OutboundUrl(scheme=parts.scheme, host=host, port=port, path=path, query=query)
    if place.literal is None and not _is_host_name(host):
        return None, "its host is neither a name nor an address in its usual form", ""
    if "@" in parts.netloc:
        return None, "it holds a user or password", host
    if parts.scheme == "http" and not allow_private:
        return None, "its scheme is http, and what is sent could be read on the way", host
    if port not in _DEFAULT_PORTS.values() and port < 1024:
        return None, f"port {port} belongs to another service", host
    return place, "", host


HostResolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to every address of it."""
MAX_RETRY_DELAY = 3600.0
"""Seconds that a receiver may ask us to wait."""
_RETRY_STATUSES = frozenset({408, 425, 429})


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Ask the system for every address of a host."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in found]


class OutboundClient:
    """Sends bodies to addresses that others chose. Holds nothing open between two of them."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        timeout: float = 10.0,
        authority: str = "",
        resolve: HostResolver = resolve_host,
    ) -> None:
        """`allow_private` is the operator's word, never an application's.

        `authority` are certificates of an own authority, PEM, beside those of the system.
        """
        self._allow_private = allow_private
        self._timeout = timeout
        self._authority = authority
        self._resolve = resolve
        self._tls: ssl.SSLContext | None = None

    async def post(self, url: Secret, body: bytes, headers: Mapping[str, str]) -> None:
        """Deliver a body. Raises TargetUnavailable to be tried again, ConfigurationError when
        that cannot help; neither shows more of the address than its host.
        """
        place = parse_outbound_url(url, allow_private=self._allow_private)
        # Errors are made after the handlers are left: what aiohttp raises knows the whole
        # address, and would hang on ours as its context.
        refused = failed = ""
        try:
            async with asyncio.timeout(self._timeout):
                addresses = await self._addresses(place)
                refused = self._problem(addresses, place)
                if not refused:
                    status, wait = await self._send(place, addresses, body, headers)
        except TimeoutError:
            failed = f"gave no answer in {format_seconds(self._timeout)}"
        except aiohttp.ClientConnectorCertificateError:
            failed = "has a certificate that is not trusted"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failed = f"could not be reached ({type(error).__name__})"
        if refused:
            raise ConfigurationError(
                f"A notification to {place.host} was refused: {refused}.",
                changed="Nothing was sent.",
                hint="Give the address of a public host, or let the operator allow private ones.",
            )
        if failed:
            raise _undelivered(place, failed, None)
        if status in _RETRY_STATUSES or status >= 500:
            raise _undelivered(place, f"answered with status {status}", wait)
        if not 200 <= status < 300:
            moved = " Redirects are not followed." if 300 <= status < 400 else ""
            raise ConfigurationError(
                f"{place.host} refused a notification with status {status}.{moved}",
                changed="It was not delivered.",
                hint="Check the address and the secret of this channel.",
            )

    async def _addresses(self, place: OutboundUrl) -> Sequence[IpAddress]:
        literal = place.literal
        if literal is not None:
            return [literal]
        found = await self._resolve(place.host, place.port)
        return [ip_address(text) for text in dict.fromkeys(found)]

    def _problem(self, addresses: Sequence[IpAddress], place: OutboundUrl) -> str:
        if not addresses:
            return "its host has no address"
        found = (
            address_problem(address, scheme=place.scheme, allow_private=self._allow_private)
            for address in addresses
        )
        return next(filter(None, found), "")

    async def _send(
        self,
        place: OutboundUrl,
        addresses: Sequence[IpAddress],
        body: bytes,
        headers: Mapping[str, str],
    ) -> tuple[int, float | None]:
        if self._tls is None and place.scheme == "https":
            self._tls = await asyncio.to_thread(self._make_tls)
        connector = aiohttp.TCPConnector(
            resolver=_PinnedResolver(addresses),
            use_dns_cache=False,
            force_close=True,
            ssl=self._tls or True,
        )
        async with (
            aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            ) as session,
            session.post(
                _build_url(place),
                data=body,
                headers={"User-Agent": "holdfast", **headers},
                allow_redirects=False,
            ) as answer,
        ):
            return answer.status, _retry_delay(answer.headers.get("Retry-After", ""))

    def _make_tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._authority:
            context.load_verify_locations(cadata=self._authority)
        return context


class _PinnedResolver(AbstractResolver):
    """Answers every question with the addresses that were checked."""

    def __init__(self, addresses: Sequence[IpAddress]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _build_url(place: OutboundUrl) -> URL:
    """Build the URL of the checked parts, so that no second parser reads the first text anew."""
    return URL.build(
        scheme=place.scheme,
        host=place.host,
        port=place.port,
        path=place.path.reveal(),
        query_string=place.query.reveal(),
        encoded=True,
    )


def _undelivered(place: OutboundUrl, what: str, wait: float | None) -> TargetUnavailable:
    error = TargetUnavailable(
        f"{place.host} {what}.",
        changed="Whether the notification arrived is unknown, so it will be sent again.",
    )
    error.retry_after = wait
    return error


def _retry_delay(text: str) -> float | None:
    return min(float(text), MAX_RETRY_DELAY) if re.fullmatch(r"[0-9]{1,9}", text.strip()) else None
