"""Sessions of browsers: the cookie, what a request with one must show, and sign-in links.

A cookie goes along with every request that a browser sends here, whoever had it sent. So it counts
only for what our own page asks: a request from another site is refused, and a write must carry a
header that no form can set. The cookie holds an id and a secret in the form of `core.tokens`; the
store keeps a hash of it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from holdfast.apps.server.config import ServerConfig
from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.request import Headers, Request
from holdfast.core import tokens
from holdfast.core.redact import redact

COOKIE = "holdfast"
SECURE_COOKIE = "__Host-holdfast"
"""The prefix has browsers refuse it unless it is Secure, of this host alone and for every path."""
TOKEN_SESSION_LIFE = timedelta(days=7)
PERSON_SESSION_LIFE = timedelta(hours=24)
"""Shorter: what an issuer says of a person is asked at each sign-in, and not in between."""
TOUCH_AFTER = timedelta(minutes=5)
"""How old the note of a session's last use may get: not every request is worth a write."""
MAX_SESSIONS = 20
"""Of one token or one person; signing in once more ends the oldest."""
LINK_SECONDS = 60
MAX_LINKS = 1_000
CSRF_HEADER = b"holdfast-csrf"
PRIVATE_HEADERS: Headers = [
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
"""On the answers about who somebody is: they are nobody else's to frame, embed or be told of."""
_LOOPBACK_NAME = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?")
_PROXY_HEADERS = frozenset((b"forwarded", b"via", b"x-real-ip"))


def cookie_name(config: ServerConfig, request: Request) -> str | None:
    """Return the name of the session cookie; None where the way here is open to eavesdroppers."""
    if config.secure:
        return SECURE_COOKIE
    return COOKIE if is_near(request) else None


def is_near(request: Request) -> bool:
    """True for a request from this machine itself, as far as it shows.

    A proxy on this machine has a peer's address here too: the name that was asked for, and what
    proxies add, tell it apart. One that hides both cannot be told apart.
    """
    return (
        _is_loopback(request.peer)
        and _is_loopback_name(request.header(b"host") or "")
        and not any(
            name in _PROXY_HEADERS or name.startswith(b"x-forwarded-") for name in request.headers
        )
    )


def session_cookie(config: ServerConfig, request: Request) -> str | None:
    """Return the one session cookie of a request. Two of them are none: one is not ours."""
    name = cookie_name(config, request) if b"cookie" in request.headers else None
    return named_cookie(request, name) if name else None


def named_cookie(request: Request, name: str) -> str | None:
    """Return the one cookie of a name."""
    given = request.headers.get(b"cookie", b"")
    pairs = [part.strip().partition("=") for part in given.decode("latin-1").split(";")]
    found = [value for key, _, value in pairs if key == name]
    return found[0] if len(found) == 1 else None


def set_cookie(name: str, value: str, *, seconds: int) -> tuple[bytes, bytes]:
    """Make the header that sets a cookie, or with no time left takes it away."""
    secure = "; Secure" if name.startswith("__Host-") else ""
    text = f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
    return b"set-cookie", text.encode("ascii")


def check_same_origin(config: ServerConfig, request: Request, *, csrf_header: bool) -> None:
    """Refuse what another site has a browser ask in our user's name."""
    site = request.header(b"sec-fetch-site")
    origin = request.header(b"origin")
    write = request.method not in ("GET", "HEAD")
    if site is not None:
        allowed = site == "same-origin" or (site == "none" and not write)
    elif origin is not None:
        allowed = origin == own_origin(config, request)
    else:
        allowed = not (write and csrf_header)
    if allowed and write and csrf_header:
        allowed = request.headers.get(CSRF_HEADER) == b"1"
    if not allowed:
        raise HttpError(
            403,
            "cross_site",
            "Not permitted. This request with a session cookie does not come from our own page. "
            "Nothing was changed. Scripts use a token; the page sends Holdfast-CSRF: 1.",
        )


def own_base(config: ServerConfig, request: Request) -> str:
    """Return where a browser reaches us: the base URL, or the address that was asked for."""
    if config.base_url:
        return config.base_url.rstrip("/")
    host = request.header(b"host") or f"{config.host}:{config.port}"
    return f"{'https' if config.secure else 'http'}://{host}"


def can_sign_in_at(config: ServerConfig, request: Request) -> bool:
    """Say whether a browser that opens our own base gets a cookie there."""
    return config.secure or (
        is_near(request) and _is_loopback_name(urlsplit(own_base(config, request)).netloc)
    )


def own_origin(config: ServerConfig, request: Request) -> str:
    """Return our origin as browsers write it."""
    parts = urlsplit(own_base(config, request))
    return f"{parts.scheme}://{parts.netloc}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInLink:
    """A code that was given out, as kept: whose it is and until when."""

    token_id: str
    ends: float
    local: bool
    """Made from this machine itself."""


class SignInLinks:
    """Codes that sign in once. Kept by this process alone, by their hashes."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._links: OrderedDict[bytes, SignInLink] = OrderedDict()

    def create(self, token_id: str, *, local: bool) -> str:
        """Give out a code that stands for a token."""
        code = tokens.mint(tokens.LINK_KIND, os.urandom(tokens.RANDOM_BYTES)).secret.reveal()
        ends = self._monotonic() + LINK_SECONDS
        self._links[_hash(code)] = SignInLink(token_id=token_id, ends=ends, local=local)
        while len(self._links) > MAX_LINKS:
            self._links.popitem(last=False)
        return code

    def find(self, code: str) -> SignInLink | None:
        """Return what a code stands for, while it is good."""
        link = self._links.get(_hash(code))
        return link if link is not None and self._monotonic() < link.ends else None

    def use_up(self, code: str) -> None:
        """Take a code away: it signs in once."""
        self._links.pop(_hash(code), None)


def describe_agent(request: Request) -> str:
    """Say what program a session was begun with, as it calls itself."""
    agent = request.header(b"user-agent") or ""
    return redact("".join(char for char in agent if char.isprintable()))[:200]


def _hash(code: str) -> bytes:
    return hashlib.sha256(code.encode()).digest()


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _is_loopback_name(host: str) -> bool:
    return _LOOPBACK_NAME.fullmatch(host) is not None
