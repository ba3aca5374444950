"""Hides secrets before values become text.

`Secret` is the only type that may hold one. The two scanners find secrets where they do not
belong: in a declaration, which is then refused, and in text on its way out, which is masked.
"""

from __future__ import annotations

import hmac
import re
from typing import NoReturn

from holdfast.core.tree import Tree

MASK = "***"

TOKEN = re.compile(r"ik_(?:sdk|live)_([0-9A-Za-z]{1,64})_[0-9A-Za-z]+")
_CREDENTIALS = re.compile(
    r"""(?x)
    ik_(?:sdk|live)_[0-9A-Za-z]+_[0-9A-Za-z]+
    | \bhf_[A-Za-z0-9]{16,} | \bsk-[A-Za-z0-9_-]{16,} | \bgh[pousr]_[A-Za-z0-9]{20,}
    | \bglpat-[A-Za-z0-9_-]{16,} | \bxox[abprs]-[A-Za-z0-9-]{10,} | \bAKIA[0-9A-Z]{16}\b
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+
    | -----BEGIN[A-Z ]*PRIVATE[ ]KEY-----[\s\S]*?(?:-----END[A-Z ]*PRIVATE[ ]KEY-----|\Z)
    | (?<=://)[^/\s:@]+:[^/\s@]+(?=@)
    """
)
_SECRET_NAME = re.compile(
    r"(?i)(?:^|[-_.])(?:token|secret|password|passwd|passphrase|api[-_]?key|access[-_]?key"
    r"|secret[-_]?key|private[-_]?key|auth[-_]?key|credentials?)$"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+")
_FLAG = re.compile(r"(--?[A-Za-z][\w.-]*)([=\s]+)(\S+)")


class Secret:
    """A value that cannot be printed, compared in the open, pickled or stored.

    `reveal()` is the one way out, and is easy to search for.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the secret itself. Use it at the point of need and keep no copy."""
        return self._value

    def fingerprint(self, key: bytes) -> str:
        """Return a keyed mark: equal for equal secrets under one key, useless without it."""
        return hmac.new(key, self._value.encode(), "sha256").hexdigest()[:16]

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    __hash__ = None  # type: ignore[assignment]  # a hash would let a set or dict reveal equality

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled")


def names_a_secret(name: str) -> bool:
    """True when a variable, flag or key of this name usually holds a credential."""
    return bool(_SECRET_NAME.search(name))


def credential_in(text: str) -> str | None:
    """Say what kind of credential a text contains, or None. Never returns the text itself."""
    found = _CREDENTIALS.search(text)
    if not found:
        return None
    return "a Holdfast token" if TOKEN.match(found.group()) else "a credential"


def redact(text: str) -> str:
    """Mask every credential in a text on its way to a person, a log or a file."""
    text = _CREDENTIALS.sub(_masked, text)
    text = _BEARER.sub(lambda found: f"{found.group(1)} {MASK}", text)
    return _FLAG.sub(_masked_flag, text)


def redact_tree(value: Tree, *, name: str = "") -> Tree:
    """Mask credentials anywhere in a tree, by their look and by the name they stand under."""
    if isinstance(value, dict):
        return {key: redact_tree(item, name=key) for key, item in value.items()}
    if isinstance(value, list):
        return [redact_tree(item, name=name) for item in value]
    if isinstance(value, str):
        return MASK if value and names_a_secret(name) else redact(value)
    return value


def _masked(found: re.Match[str]) -> str:
    token = TOKEN.match(found.group())
    if token:
        kind = found.group().split("_", 2)[1]
        return f"ik_{kind}_{token.group(1)[:8]}…"
    return MASK


def _masked_flag(found: re.Match[str]) -> str:
    flag, gap, value = found.groups()
    if names_a_secret(flag.lstrip("-")) and not value.startswith(("$", "-")):
        return f"{flag}{gap}{MASK}"
    return found.group()
