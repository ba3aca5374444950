"""Credentials as text: how one is made, read and compared.

A token is `ik_<kind>_<id>_<secret>`: the kind is `sdk` (control plane, one project) or `live`
(data plane, one workload), the id has 8 hexadecimal digits and may be shown, the secret has 64
and may not. The last 8 digits are no secret: they are the CRC-32 of everything before them, so
that a scanner which finds a token in a file can tell a real one from a look-alike without
asking any server. The other 56 digits are 224 random bits, which is why a plain SHA-256 is
kept instead of a slow password hash. Two more kinds have this form and are no bearer tokens: `ui`
is the value of a session's cookie, `link` the code of a sign-in link.

Called by the control plane for every request and by whoever creates a token. Pure: the caller
brings the random bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.core.redact import Secret

RANDOM_BYTES = 32
"""How many random bytes `mint` takes: 4 for the id, 28 for the secret."""

BEARER_KINDS = ("sdk", "live")
SESSION_KIND, LINK_KIND = "ui", "link"
_KINDS = (*BEARER_KINDS, SESSION_KIND, LINK_KIND)
_TOKEN = re.compile(r"ik_(sdk|live|ui|link)_([0-9a-f]{8})_[0-9a-f]{64}")
_UNKNOWN_TOKEN_HASH = hashlib.sha256(b"no token has this hash").digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class MintedToken:
    """A new token. `secret` is shown to its owner once; only `secret_hash` is kept."""

    id: str
    secret: Secret
    secret_hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedToken:
    """The public parts of a token that is well formed, which says nothing of its being valid."""

    kind: str
    id: str


def mint(kind: str, random: bytes) -> MintedToken:
    """Make a token of a kind from 32 random bytes."""
    if kind not in _KINDS or len(random) != RANDOM_BYTES:
        raise ValueError("a token needs one of the known kinds, and 32 random bytes")
    body = f"ik_{kind}_{random[:4].hex()}_{random[4:].hex()}"
    text = body + _checksum(body)
    return MintedToken(id=random[:4].hex(), secret=Secret(text), secret_hash=hash_token(text))


def parse(text: str, *, kinds: Sequence[str] = BEARER_KINDS) -> ParsedToken | None:
    """Read a token's kind and id; None when it is malformed, of another kind, or a look-alike."""
    found = _TOKEN.fullmatch(text)
    if found is None or found[1] not in kinds or text[-8:] != _checksum(text[:-8]):
        return None
    return ParsedToken(kind=found[1], id=found[2])


def hash_token(text: str) -> bytes:
    """Return what is stored in place of a token."""
    return hashlib.sha256(text.encode()).digest()


def verify(text: str, secret_hash: bytes | None) -> bool:
    """Compare a token with a stored hash in constant time.

    Pass None for an id that is not known: the work is the same, and the answer is no.
    """
    same = hmac.compare_digest(hash_token(text), secret_hash or _UNKNOWN_TOKEN_HASH)
    return same and secret_hash is not None


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"
