"""Says which addresses may be sent to. Pure; called by the one sender, for every address.

The tables are written out rather than asked of `ipaddress`, whose idea of a private address
differs between versions of Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias
from urllib.parse import urlsplit

from holdfast.core.errors import ConfigurationError
from holdfast.core.redact import Secret

Address: TypeAlias = IPv4Address | IPv6Address

_V4_LOCAL = tuple(map(IPv4Network, (
    "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
)))  # fmt: skip
_V4_NEVER = tuple(map(IPv4Network, (
    "0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    # Metadata services that lie in private ranges.
    "100.100.100.200/32", "168.63.129.16/32",
)))  # fmt: skip
_V6_LOCAL = tuple(map(IPv6Network, ("::1/128", "fc00::/7")))
_V6_NEVER = tuple(map(IPv6Network, (
    "2001::/23", "2001:db8::/32", "3fff::/20", "fd00:ec2::254/128", "fd20:ce::254/128",
)))  # fmt: skip
_V6_GLOBAL = IPv6Network("2000::/3")
_V6_CARRIES_V4 = (
    # Network, and how many bits stand after the address of the older kind.
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
)
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMERIC = re.compile(r"(?:[0-9]+|0[xX][0-9A-Fa-f]*)")
_REST = re.compile(r"[!-~]*")
_LONGEST = 2048
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A checked URL in parts. All but the host may hold a secret."""

    scheme: str
    host: str
    port: int
    path: Secret
    query: Secret

    @property
    def literal(self) -> Address | None:
        """The host, when it is an address and not a name."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


def read_url(url: Secret, *, allow_private: bool) -> Place:
    """Take a URL apart. Raises ConfigurationError, which shows nothing but the host."""
    # In a function of its own, so that no frame of the error's holds the URL.
    place, why, host = _read(url, allow_private)
    if place is None:
        at = f" for {host}" if host else ""
        raise ConfigurationError(
            f"A notification address{at} was refused: {why}.",
            changed="Nothing was sent.",
            todo="Give an https URL of a public host, or let the operator allow private addresses.",
        )
    return place


def problem(address: Address, *, scheme: str, allow_private: bool) -> str:
    """Say why an address must not be sent to; empty when it may."""
    where = _where(_innermost(address))
    if where == "never":
        return "it leads to an address that is reserved, link-local or a metadata service"
    if where == "local" and not allow_private:
        return "it leads to a private address, which the operator did not allow"
    if scheme == "http" and not _innermost(address).is_loopback:
        return "http is for this machine alone"
    return ""


def _where(address: Address) -> str:
    if isinstance(address, IPv4Address):
        if any(address in network for network in _V4_NEVER):
            return "never"
        return "local" if any(address in network for network in _V4_LOCAL) else "global"
    if any(address in network for network in _V6_NEVER) or address.scope_id:
        return "never"
    if any(address in network for network in _V6_LOCAL):
        return "local"
    return "global" if address in _V6_GLOBAL else "never"


def _innermost(address: Address) -> Address:
    """Take an IPv4 address out of the IPv6 address that carries it."""
    if isinstance(address, IPv6Address):
        for network, shift in _V6_CARRIES_V4:
            if address in network:
                return IPv4Address((int(address) >> shift) & 0xFFFFFFFF)
    return address


def _is_name(host: str) -> bool:
    """False for `2130706433`, `0x7f.1` and `127.1`, which resolvers take for addresses."""
    last = host.rpartition(".")[2]
    return len(host) <= 253 and bool(_NAME.fullmatch(host)) and not _NUMERIC.fullmatch(last)


def _read(url: Secret, allow_private: bool) -> tuple[Place | None, str, str]:
    """Return the parts, or why there are none and the host that may be named."""
    text = url.reveal()
    if len(text) > _LONGEST or not _REST.fullmatch(text) or "\\" in text:
        return None, "it is too long, or has characters that a URL cannot have", ""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None, "it is not a URL", ""
    if parts.scheme not in _PORTS:
        return None, "its scheme is not https", ""
    if port is None:
        port = _PORTS[parts.scheme]
    path, query = Secret(parts.path or "/"), Secret(parts.query)
    place = Place(scheme=parts.scheme, host=host, port=port, path=path, query=query)
    if place.literal is None and not _is_name(host):
        return None, "its host is neither a name nor an address in its usual form", ""
    if "@" in parts.netloc:
        return None, "it holds a user or password", host
    if parts.scheme == "http" and not allow_private:
        return None, "its scheme is http, and what is sent could be read on the way", host
    if port not in _PORTS.values() and port < 1024:
        return None, f"port {port} belongs to another service", host
    return place, "", host
