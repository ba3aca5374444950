"""Which names this server goes by, and which other origins may read its answers.

A page of a stranger can make a browser resolve the stranger's own name to this server's address.
The browser then takes both for one origin; only the Host header still says the stranger's name. So
a server that knows its own names answers to no other. It knows them when it has a base URL, and
when it listens on loopback; the addresses and the name of loopback cannot be pointed elsewhere.

Scripts of other origins may read what the API and the data plane answer only where their origin is
listed, and never with cookies: what they may do is what their token allows.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from holdfast.apps.server.config import ServerConfig
from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.protocol import PROBE_PATHS
from holdfast.apps.server.request import Headers, HttpResponse, Request
from holdfast.core.page_links import parse_origin

_MAX_KNOWN = 256
_SHARED_PREFIXES = (b"/api/", b"/endpoint/", b"/p/")
"""Paths that other origins may be allowed to ask: the API and the data plane, never the page."""
_HEADER_NAMES = re.compile(rb"[A-Za-z0-9-]+(?: ?, ?[A-Za-z0-9-]+)*")
_COOKIE_HEADER = b"holdfast-csrf"
"""What a write with a cookie needs; no other origin has a use for it."""
_EXPOSED = b"etag, location, retry-after, x-request-id, x-holdfast-replica, holdfast-target"
_PREFLIGHT_SECONDS = b"600"


class KnownHosts:
    """The Host headers that are answered."""

    def __init__(self, config: ServerConfig) -> None:
        self._base_url = config.base_url
        self.checked = bool(self._base_url) or config.loopback
        """False where nobody said by which name the server is reached."""
        self.known: set[bytes] = {b""}
        """Those that were found good, so that most requests cost one lookup."""

    def check(self, request: Request) -> None:
        """Refuse a request that was sent to another name, unless it is a probe."""
        host = request.headers.get(b"host", b"")
        if not self.checked or self._is_ours(host.decode("latin-1").lower()):
            if len(self.known) < _MAX_KNOWN:
                self.known.add(host)
        elif request.scope["raw_path"] not in PROBE_PATHS:
            use = self._base_url or "an address of this machine, such as 127.0.0.1"
            raise HttpError(
                421,
                "misdirected_request",
                "This server does not go by the name that the request was sent to. Nothing was "
                f"changed. Use {use}; --base-url says which name it goes by.",
                close=True,
            )

    def _is_ours(self, host: str) -> bool:
        scheme = self._base_url.partition(":")[0] or "http"
        if self._base_url and parse_origin(f"{scheme}://{host}") == self._base_url:
            return True
        name = re.sub(r":[0-9]*$", "", host).strip("[]")
        if name == "localhost":
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


class SharedOrigins:
    """The other origins whose scripts may read answers."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins: dict[bytes, Headers] = {
            origin.encode(): [
                (b"access-control-allow-origin", origin.encode()),
                (b"access-control-expose-headers", _EXPOSED),
                (b"vary", b"origin"),
            ]
            for origin in origins
        }

    def headers(self, request: Request) -> Headers:
        """Return what an answer to this request needs, so that its origin may read it."""
        if not request.scope["raw_path"].startswith(_SHARED_PREFIXES):
            return []
        return self._origins.get(request.headers.get(b"origin", b""), [(b"vary", b"origin")])

    def answer_preflight(self, request: Request, methods: Iterable[str]) -> HttpResponse | None:
        """Answer a browser that asks before it sends; None where that is not for its origin.

        The answer is the same whoever asks: credentials are not sent with this question.
        """
        if b"access-control-request-method" not in request.headers:
            return None
        if request.headers.get(b"origin") not in self._origins or not self.headers(request):
            return None
        asked = request.headers.get(b"access-control-request-headers", b"")
        wanted = asked.lower().split(b",") if _HEADER_NAMES.fullmatch(asked) else []
        names = [each.strip() for each in wanted if each.strip() != _COOKIE_HEADER]
        headers = [
            (b"access-control-allow-methods", ", ".join(sorted(methods)).encode()),
            (b"access-control-allow-headers", b", ".join(names)),
            (b"access-control-max-age", _PREFLIGHT_SECONDS),
        ]
        return HttpResponse(status=204, headers=headers)
