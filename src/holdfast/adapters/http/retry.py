"""When to ask again, and after how long. Pure: time and chance are arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
CAP = 60.0
"""Longest wait that a server may ask for."""
FIRST = 0.25
LONGEST = 8.0


def back_off(attempt: int, chance: float) -> float:
    """Return seconds to wait before another attempt: doubling, with jitter from `chance`."""
    return min(LONGEST, FIRST * 2.0**attempt) * (0.5 + chance / 2)


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Return what `Retry-After` asks for, at most the cap; None when it makes no sense.

    A date is read against the `Date` of the same answer, so our own clock does not matter.
    """
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,12}", text):
        return min(float(text), CAP)
    try:
        wait = (
            parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))
        ).total_seconds()
    except (TypeError, ValueError):
        return None
    return min(wait, CAP) if wait >= 0 else None
