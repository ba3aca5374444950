"""How often one client may ask: token buckets in a bounded table.

A full table forgets the bucket that was idle longest, which gives its owner a full bucket
again. So crowding the table can free someone and can lock nobody out.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable


class Buckets:
    """One bucket for each key: `burst` at once, then `rate` a second."""

    def __init__(
        self, *, rate: float, burst: float, monotonic: Callable[[], float], size: int = 4_096
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._monotonic = monotonic
        self._size = size
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> int:
        """Take one; return 0, or the whole seconds to wait when the bucket is empty."""
        now = self._monotonic()
        left, at = self._buckets.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        wait = 0
        if left >= 1:
            left -= 1
        else:
            wait = max(1, math.ceil((1 - left) / self._rate))
        self._buckets[key] = (left, now)
        if len(self._buckets) > self._size:
            self._buckets.popitem(last=False)
        return wait

    def __len__(self) -> int:
        return len(self._buckets)


def peer_key(address: str) -> str:
    """Give the key of a peer: its address, or its /64 network where it has a whole one to use."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if parsed.version == 6:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address
