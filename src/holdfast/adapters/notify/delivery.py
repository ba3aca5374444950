"""Delivers notifications to URLs that others chose: a POST that cannot be led astray.

Whoever may name a URL must not reach what only the controller can reach. So the URL is checked,
its name is resolved once and every address is checked, no redirect is followed, no proxy is used,
and nothing of the response is shown but its status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from yarl import URL

from holdfast.adapters.outbound import (
    HostResolver,
    NoResponse,
    OutboundClient,
    OutboundResponse,
    resolve_host,
    retry_delay,
)
from holdfast.core.address_reach import AddressReach, IpAddress, literal_address, reach_of
from holdfast.core.errors import ConfigurationError, TargetUnavailable
from holdfast.core.redact import Secret

_HOST_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"{_HOST_LABEL}(?:\.{_HOST_LABEL})*")
_NUMERIC = re.compile(r"(?:[0-9]+|0[xX][0-9A-Fa-f]*)")
_URL_CHARACTERS = re.compile(r"[!-~]*")
_MAX_URL_LENGTH = 2048
_DEFAULT_PORTS = {"https": 443, "http": 80}
_RETRY_STATUSES = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundUrl:
    """A checked URL in parts. All but the host may hold a secret."""

    scheme: str
    host: str
    port: int
    path: Secret
    query: Secret


class NotificationSender:
    """Posts bodies. Holds nothing open between two of them."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        timeout: float = 10.0,
        authority: str = "",
        resolve: HostResolver = resolve_host,
    ) -> None:
        """`allow_private` is the operator's decision, never an application's."""
        self._allow_private = allow_private
        self._timeout = timeout
        self._authority = authority
        self._resolve = resolve

    async def post(self, url: Secret, body: bytes, headers: Mapping[str, str]) -> None:
        """Deliver a body. Raises TargetUnavailable to be tried again, ConfigurationError when
        that cannot help; neither shows more of the URL than its host.
        """
        target = parse_outbound_url(url, allow_private=self._allow_private)
        response = await self._send(target, body, headers)
        if isinstance(response, NoResponse):
            if response.forbidden:
                raise ConfigurationError(
                    f"A notification to {target.host} was refused: {response.forbidden}.",
                    changed="Nothing was sent.",
                    hint="Give the address of a public host, or let the operator allow private "
                    "ones.",
                )
            raise _undelivered(f"{target.host} {response.reason}.", None)
        status = response.status
        if status in _RETRY_STATUSES or status >= 500:
            wait = retry_delay(response.headers)
            raise _undelivered(f"{target.host} answered with status {status}.", wait)
        if not 200 <= status < 300:
            moved = " Redirects are not followed." if 300 <= status < 400 else ""
            raise ConfigurationError(
                f"{target.host} refused a notification with status {status}.{moved}",
                changed="It was not delivered.",
                hint="Check the address and the secret of this channel.",
            )

    async def _send(
        self, target: OutboundUrl, body: bytes, headers: Mapping[str, str]
    ) -> OutboundResponse | NoResponse:
        # Built of the checked parts, so that no second parser reads the text again.
        url = URL.build(
            scheme=target.scheme,
            host=f"[{target.host}]" if ":" in target.host else target.host,
            port=target.port,
            path=target.path.reveal(),
            query_string=target.query.reveal(),
            encoded=True,
        )
        client = OutboundClient(
            timeout=self._timeout,
            max_bytes=0,
            address_rule=partial(
                address_problem, scheme=target.scheme, allow_private=self._allow_private
            ),
            resolve=self._resolve,
            authority=self._authority,
            keep_alive=False,
        )
        headers = {"User-Agent": "holdfast", **headers}
        try:
            return await client.send("POST", url, headers=headers, data=body, truncate_at=0)
        finally:
            await client.aclose()


def parse_outbound_url(url: Secret, *, allow_private: bool) -> OutboundUrl:
    """Take a URL apart. Raises ConfigurationError, which shows nothing but the host."""
    # In a function of its own, so that no frame of the error holds the URL.
    target, reason, host = _parse_url(url, allow_private)
    if target is None:
        at = f" for {host}" if host else ""
        raise ConfigurationError(
            f"A notification address{at} was refused: {reason}.",
            changed="Nothing was sent.",
            hint="Give an https URL of a public host, or let the operator allow private addresses.",
        )
    return target


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


def _parse_url(url: Secret, allow_private: bool) -> tuple[OutboundUrl | None, str, str]:
    """Return the parts, or the reason why there are none and the host that may be named."""
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
    if not literal_address(host) and not _is_host_name(host):
        return None, "its host is neither a name nor an address in its usual form", ""
    if "@" in parts.netloc:
        return None, "it holds a user or password", host
    if parts.scheme == "http" and not allow_private:
        return None, "its scheme is http, and what is sent could be read on the way", host
    if port not in _DEFAULT_PORTS.values() and port < 1024:
        return None, f"port {port} belongs to another service", host
    path, query = Secret(parts.path or "/"), Secret(parts.query)
    return OutboundUrl(scheme=parts.scheme, host=host, port=port, path=path, query=query), "", host


def _is_host_name(host: str) -> bool:
    """False for `2130706433`, `0x7f.1` and `127.1`, which resolvers take for addresses."""
    last = host.rpartition(".")[2]
    return len(host) <= 253 and bool(_HOST_NAME.fullmatch(host)) and not _NUMERIC.fullmatch(last)


def _undelivered(what: str, wait: float | None) -> TargetUnavailable:
    error = TargetUnavailable(
        what, changed="Whether the notification arrived is unknown, so it will be sent again."
    )
    error.retry_after = wait
    return error
