"""Kubernetes-style quantities and durations, read exactly and written one way."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

_QUANTITY = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)"
)
_SCALE = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12, "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")


def parse_quantity(text: str | int | float) -> Decimal | None:
    """Return the exact value of `500m`, `16Gi`, `1e3`, `2`; None for what is no quantity."""
    if isinstance(text, bool) or len(str(text)) > 40:
        return None
    found = _QUANTITY.fullmatch(str(text).strip())
    if not found:
        return None
    number, exponent, suffix = found.groups()
    try:
        return Decimal(number + (exponent or "")) * _SCALE[suffix or ""]
    except InvalidOperation:
        return None


def canonical_quantity(text: str | int | float) -> str:
    """Write equal quantities alike (`0.5` and `500m` both `0.5`); leave anything else as it is."""
    value = parse_quantity(text)
    if value is None:
        return str(text)
    shown = format(value.normalize(), "f")
    return "0" if shown in ("-0", "") else shown


def parse_duration(value: str | int | float) -> float | None:
    """Return seconds for `10s`, `1m30s`, `500ms`, `2.5`; None for what is no duration."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    text = value.strip()
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    found = _DURATION.fullmatch(text)
    if not text or not found or len(text) > 20:
        return None
    hours, minutes, seconds, millis = (float(part) if part else 0.0 for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds + millis / 1000
