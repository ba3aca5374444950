"""Says what is behind a network address: the world, a private network, or this machine.

The tables are written out rather than asked of `ipaddress`, whose idea of a private address
differs between versions of Python. Notifications, repositories and forges are held to them.
"""

from __future__ import annotations

from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

IpAddress: TypeAlias = IPv4Address | IPv6Address

_V4_PRIVATE = tuple(map(IPv4Network, (
    "10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16",
)))  # fmt: skip
_V4_NEVER = tuple(map(IPv4Network, (
    "0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    # Metadata services that lie in private ranges.
    "100.100.100.200/32", "168.63.129.16/32",
)))  # fmt: skip
_V6_PRIVATE = tuple(map(IPv6Network, ("fc00::/7",)))
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


class AddressReach(StrEnum):
    """What lies behind an address."""

    PUBLIC = "public"
    PRIVATE = "private"
    LOOPBACK = "loopback"
    RESERVED = "reserved"
    """Link-local, a metadata service, or no place at all."""


def reach_of(address: IpAddress) -> AddressReach:
    """Say what an address leads to; one that carries another leads to where that does."""
    address = _embedded_address(address)
    if isinstance(address, IPv4Address):
        if any(address in network for network in _V4_NEVER):
            return AddressReach.RESERVED
        if address.is_loopback:
            return AddressReach.LOOPBACK
        private = any(address in network for network in _V4_PRIVATE)
        return AddressReach.PRIVATE if private else AddressReach.PUBLIC
    if any(address in network for network in _V6_NEVER) or address.scope_id:
        return AddressReach.RESERVED
    if address.is_loopback:
        return AddressReach.LOOPBACK
    if any(address in network for network in _V6_PRIVATE):
        return AddressReach.PRIVATE
    return AddressReach.PUBLIC if address in _V6_GLOBAL else AddressReach.RESERVED


def source_problem(text: str, *, allow_loopback: bool) -> str:
    """Say why neither a repository nor a forge may be at an address; empty when one may.

    Private networks are where most of them are; what only this machine reaches is not.
    """
    reach = reach_of(ip_address(text))
    if reach is AddressReach.RESERVED:
        return "it leads to an address that is reserved, link-local or a metadata service"
    if reach is AddressReach.LOOPBACK and not allow_loopback:
        return "it leads to the controller's own machine, which the operator did not allow"
    return ""


def literal_address(host: str) -> str:
    """Return a host that is an address itself; empty for a name."""
    try:
        return str(ip_address(host))
    except ValueError:
        return ""


def _embedded_address(address: IpAddress) -> IpAddress:
    """Take an IPv4 address out of the IPv6 address that carries it."""
    if isinstance(address, IPv6Address):
        for network, shift in _V6_CARRIES_V4:
            if address in network:
                return IPv4Address((int(address) >> shift) & 0xFFFFFFFF)
    return address
