"""When to ask an API server again, and after how long. Pure: time and chance are arguments."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

CAP = 60.0
"""Longest wait that a server may ask for."""
TRIES = 5
_UNPROCESSED = frozenset({429, 503})
_READS = frozenset({429, 500, 502, 503, 504})


def back_off(attempt: int, chance: float, *, first: float = 0.2, longest: float = 8.0) -> float:
    """Return seconds to wait before another attempt: doubling, with jitter from `chance`."""
    return min(longest, first * 2.0 ** min(attempt, 30)) * (0.5 + chance / 2)


def asked_wait(headers: dict[str, str]) -> float | None:
    """Return what `Retry-After` asks for, at most the cap; None when it asks for nothing.

    A time of day is counted from the answer's own, so that clocks need not agree.
    """
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return min(float(text), CAP)
    until, now = _time(text), _time(headers.get("date", ""))
    return None if until is None or now is None else min(max(0.0, until - now), CAP)


def wait_before(
    *, method: str, status: int, headers: dict[str, str], attempt: int, chance: float
) -> float | None:
    """Return seconds after which to ask again; None when the answer stands.

    A read is repeated on anything that passes. A write only when the server says that it was not
    begun: 429, or 503 with Retry-After.
    """
    asked = asked_wait(headers)
    if method == "GET":
        again = status in _READS
    else:
        again = status in _UNPROCESSED and (status == 429 or asked is not None)
    if not again or attempt + 1 >= TRIES:
        return None
    jitter = back_off(attempt, chance)
    return jitter if asked is None else asked + min(jitter, 1.0)


def _time(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
