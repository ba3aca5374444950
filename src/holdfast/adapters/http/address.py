"""Tells this machine from others by address."""

from __future__ import annotations


def is_loopback(host: str) -> bool:
    """True for a host that cannot be anywhere but this machine."""
    parts = host.split(".")
    four = len(parts) == 4 and parts[0] == "127" and all(part.isdigit() for part in parts)
    return four or host in ("localhost", "::1")
