"""Reads plain YAML scalars as Kubernetes' own library reads them, and writes text so that it does.

Parsers disagree about `no`, `0755`, `1e3` or `1:30`. Holdfast reads them as `kubectl` does, so
that what is reviewed is what is applied.
"""

from __future__ import annotations

import re

from holdfast.core.tree import Leaf

MIN_INT = -(2**63)
MAX_INT = 2**63 - 1
_WORDS: dict[str, Leaf] = {
    **dict.fromkeys("y Y yes Yes YES true True TRUE on On ON".split(), True),
    **dict.fromkeys("n N no No NO false False FALSE off Off OFF".split(), False),
    **dict.fromkeys(["", "~", "null", "Null", "NULL"], None),
}
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)"
    r"|(?P<dec>0|[1-9][0-9]*))"
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]*[0-9]")
_BASES = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}
_LONGEST = 66
"""Digits of the longest 64-bit number, written in binary. Longer is refused before it is read."""


def plain_scalar(text: str) -> Leaf:
    """Give a plain (unquoted) scalar its value.

    Raises ValueError, saying why, for numbers that have no exact or finite value here.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _NOT_FINITE.fullmatch(text):
        raise ValueError("it is not a finite number")
    digits = text if text[0] == "." else text.replace("_", "")
    found = _INTEGER.fullmatch(digits)
    if found:
        return _integer(found)
    if _FLOAT.fullmatch(digits):
        if len(digits) > 400:
            raise ValueError("the number is too long")
        number = float(digits)
        # Beyond the range of a float, Kubernetes leaves the text as it is: 12e3456 may be a
        # commit.
        return text if number in (float("inf"), float("-inf")) else tidy_number(number)
    return text


def leading_zero(text: str) -> int | None:
    """Return what a number such as `010`, which parsers read as 8 or as 10, is read as here."""
    if not _LEADING_ZERO.fullmatch(text):
        return None
    value = plain_scalar(text)
    return value if isinstance(value, int) else None


def reads_as_text(text: str) -> bool:
    """True when the text, written plain, would be read back as this text."""
    try:
        return plain_scalar(text) is text
    except ValueError:
        return False


def tidy_number(number: float) -> int | float:
    """Give equal numbers one form: `1e3` is 1000, and minus zero is zero."""
    if number.is_integer() and abs(number) < 2**53:
        return int(number)
    return number


def bounded_integer(digits: str, base: int = 10) -> int:
    """Read an integer of at most 64 bits. Raises ValueError for a larger one."""
    if len(digits) <= _LONGEST:
        value = int(digits, base)
        if MIN_INT <= value <= MAX_INT:
            return value
    raise ValueError("the number does not fit in 64 bits")


def _integer(found: re.Match[str]) -> int:
    name = next(name for name in _BASES if found[name] is not None)
    digits = found[name].lstrip("0") or "0"
    return bounded_integer(f"{found['sign']}{digits}", _BASES[name])
