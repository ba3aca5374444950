"""Says which addresses may be sent to. Pure; called by the one sender, for every address."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from holdfast.core.errors import ConfigurationError
from holdfast.core.reach import Address, Reach, reach_of
from holdfast.core.redact import Secret

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
    reach = reach_of(address)
    if reach is Reach.RESERVED:
        return "it leads to an address that is reserved, link-local or a metadata service"
    if reach is not Reach.PUBLIC and not allow_private:
        return "it leads to a private address, which the operator did not allow"
    if scheme == "http" and reach is not Reach.LOOPBACK:
        return "http is for this machine alone"
    return ""


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
