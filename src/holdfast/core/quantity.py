"""Kubernetes-style quantities, durations and times, read exactly and written one way."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Context, Decimal

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)"
)
_SCALE = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip
_LARGE_SUFFIXES = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki", "E", "P", "T", "G", "M")
"""Suffixes to write with, best first. A thousand is no kilo of anything here."""
_DURATION = re.compile(
    r"(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+(?:\.[0-9]+)?)s)?(?:([0-9]+)ms)?"
    r"|([0-9]+(?:\.[0-9]+)?)"
)
MOMENT_PATTERN = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)$"
"""RFC 3339 in whole seconds, with the offset that makes it one moment for everybody."""
_MOMENT = re.compile(MOMENT_PATTERN)
_SECONDS = (Decimal(3600), Decimal(60), Decimal(1), Decimal("0.001"), Decimal(1))
_EXACT = Context(prec=100)
_MAX_LENGTH = 40
"""Digits and letters of the longest quantity or duration that is read at all."""


def parse_quantity(value: str | int | float) -> Decimal | None:
    """Return the exact value of `500m`, `16Gi`, `1e3`, `2`; None for what is no quantity."""
    found = _QUANTITY.fullmatch(_bounded_text(value))
    if not found:
        return None
    number, exponent, suffix = found.groups()
    return _EXACT.multiply(Decimal(number + (exponent or "")), _SCALE[suffix or ""])


def canonical_quantity(value: str | int | float) -> str:
    """Write equal quantities alike (`0.5` and `500m` both `0.5`); leave anything else as it is."""
    amount = parse_quantity(value)
    if amount is None:
        return str(value)
    return format(amount.normalize(_EXACT), "f") if amount else "0"


def readable_quantity(value: str | int | float) -> str:
    """Write an amount of memory or CPU as people do: `8Gi`, `5G`, `500m`. For display alone.

    An amount that no suffix fits exactly stands as a number.
    """
    amount = parse_quantity(value)
    if amount is None:
        return str(value)
    whole = amount == amount.to_integral_value(context=_EXACT)
    suffixes = _LARGE_SUFFIXES if whole else ("m",)
    for suffix in suffixes:
        number = _EXACT.divide(amount, _SCALE[suffix])
        fits = number == number.to_integral_value(context=_EXACT)
        if fits and (abs(number) >= 1 or not whole):
            return f"{int(number)}{suffix}"
    return canonical_quantity(value)


def parse_duration(value: str | int | float) -> float | None:
    """Return seconds for `10s`, `1m30s`, `500ms`, `2.5`; None for what is no duration."""
    if isinstance(value, float):
        return value
    text = _bounded_text(value)
    found = _DURATION.fullmatch(text)
    if not text or not found:
        return None
    parts = zip(found.groups(), _SECONDS, strict=True)
    return float(sum(Decimal(part) * unit for part, unit in parts if part))


def parse_moment(value: object) -> datetime | None:
    """Return the time of `2026-11-20T18:00:00Z`; None for what is none, or no day there is."""
    if not isinstance(value, str) or not _MOMENT.match(value):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def format_seconds(seconds: float) -> str:
    """Write a time in seconds for people: `15 s`, `2.5 s`, and never `14.9941 s`."""
    rounded = round(seconds) if seconds >= 10 else round(seconds, 1) or round(seconds, 3)
    return f"{rounded} s" if isinstance(rounded, int) else f"{rounded:g} s"


def _bounded_text(value: str | int | float) -> str:
    """The text of a value, or "" when it is too long to be meant."""
    if isinstance(value, int) and (isinstance(value, bool) or abs(value) >= 10**_MAX_LENGTH):
        return ""
    text = str(value).strip()
    return text if len(text) <= _MAX_LENGTH else ""
