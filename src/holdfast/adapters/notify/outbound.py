"""The one way by which notifications leave: a POST that cannot be led astray.

Whoever may name an address must not reach what only the controller can reach. So a name is
resolved once, every answer is checked, and the connection goes to one of the checked addresses;
no redirect is followed, no proxy asked, and nothing of the reply is shown but its status.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import IPv6Address, ip_address

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from holdfast.adapters.notify.addresses import Place, problem, read_url
from holdfast.core.errors import ConfigurationError, TargetUnavailable
from holdfast.core.quantity import shown_seconds
from holdfast.core.reach import Address
from holdfast.core.redact import Secret

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to every address of it."""
LONGEST_WAIT = 3600.0
"""Seconds that a receiver may ask us to wait."""
_LATER = frozenset({408, 425, 429})


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Ask the system for every address of a host."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in found]


class Outbound:
    """Sends bodies to addresses that others chose. Holds nothing open between two of them."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        timeout: float = 10.0,
        authority: str = "",
        resolve: Resolve = system_resolve,
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
        place = read_url(url, allow_private=self._allow_private)
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
            failed = f"gave no answer in {shown_seconds(self._timeout)}"
        except aiohttp.ClientConnectorCertificateError:
            failed = "has a certificate that is not trusted"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failed = f"could not be reached ({type(error).__name__})"
        if refused:
            raise ConfigurationError(
                f"A notification to {place.host} was refused: {refused}.",
                changed="Nothing was sent.",
                todo="Give the address of a public host, or let the operator allow private ones.",
            )
        if failed:
            raise _unavailable(place, failed, None)
        if status in _LATER or status >= 500:
            raise _unavailable(place, f"answered with status {status}", wait)
        if not 200 <= status < 300:
            moved = " Redirects are not followed." if 300 <= status < 400 else ""
            raise ConfigurationError(
                f"{place.host} refused a notification with status {status}.{moved}",
                changed="It was not delivered.",
                todo="Check the address and the secret of this channel.",
            )

    async def _addresses(self, place: Place) -> Sequence[Address]:
        literal = place.literal
        if literal is not None:
            return [literal]
        found = await self._resolve(place.host, place.port)
        return [ip_address(text) for text in dict.fromkeys(found)]

    def _problem(self, addresses: Sequence[Address], place: Place) -> str:
        if not addresses:
            return "its host has no address"
        found = (
            problem(address, scheme=place.scheme, allow_private=self._allow_private)
            for address in addresses
        )
        return next(filter(None, found), "")

    async def _send(
        self,
        place: Place,
        addresses: Sequence[Address],
        body: bytes,
        headers: Mapping[str, str],
    ) -> tuple[int, float | None]:
        if self._tls is None and place.scheme == "https":
            self._tls = await asyncio.to_thread(self._make_tls)
        connector = aiohttp.TCPConnector(
            resolver=_Pinned(addresses),
            use_dns_cache=False,
            force_close=True,
            ssl=self._tls or True,
        )
        async with (
            aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
            ) as session,
            session.post(
                _url(place),
                data=body,
                headers={"User-Agent": "holdfast", **headers},
                allow_redirects=False,
            ) as answer,
        ):
            return answer.status, _asked_wait(answer.headers.get("Retry-After", ""))

    def _make_tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._authority:
            context.load_verify_locations(cadata=self._authority)
        return context


class _Pinned(AbstractResolver):
    """Answers every question with the addresses that were checked."""

    def __init__(self, addresses: Sequence[Address]) -> None:
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


def _url(place: Place) -> URL:
    """Build the URL of the checked parts, so that no second parser reads the first text anew."""
    return URL.build(
        scheme=place.scheme,
        host=place.host,
        port=place.port,
        path=place.path.reveal(),
        query_string=place.query.reveal(),
        encoded=True,
    )


def _unavailable(place: Place, what: str, wait: float | None) -> TargetUnavailable:
    error = TargetUnavailable(
        f"{place.host} {what}.",
        changed="Whether the notification arrived is unknown, so it will be sent again.",
    )
    error.retry_after = wait
    return error


def _asked_wait(text: str) -> float | None:
    return min(float(text), LONGEST_WAIT) if re.fullmatch(r"[0-9]{1,9}", text.strip()) else None
