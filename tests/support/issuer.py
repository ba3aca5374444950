"""A small OpenID Connect issuer that can also lie: for tests of what a real one never does.

It lets everybody in as `claims` say, checks what a careful issuer checks (redirect address, PKCE,
client secret, one use of a code), and signs with a key of its own. Tests reach in by `tamper`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "holdfast", "the-clients-own-made-up-secret"


def make_key(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig", "alg": "RS256"}, auto_kid=False)


@dataclass
class Issuer:
    """One issuer. `claims` are of whoever signs in next."""

    url: str = ""
    key: RSAKey = field(default_factory=lambda: make_key("first"))
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "7", "name": "Ann"})
    tamper: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Changes the claims of an id token before it is signed."""
    forge: Callable[[dict[str, Any]], str] | None = None
    """Makes the id token in place of the issuer."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Over the description's own fields."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """Paths that were asked for."""

    def sign(self, claims: dict[str, Any], *, key: RSAKey | None = None, **header: Any) -> str:
        by = key or self.key
        return jwt.encode({"alg": "RS256", "kid": by.kid, **header}, claims, by)

    def token(self, **claims: Any) -> str:
        """Sign claims that would do for CI; None takes one away."""
        now = int(time.time())
        every = {"iss": self.url, "sub": "x", "iat": now, "exp": now + 300, **claims}
        return self.sign({name: value for name, value in every.items() if value is not None})

    def description(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            **self.metadata,
        }

    def authorize(self, query: dict[str, str]) -> str:
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def redeem(self, form: dict[str, str], authorization: str) -> dict[str, Any]:
        query = self.codes.pop(form["code"], None)
        if query is None:
            return {"error": "invalid_grant"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        pair = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        checks = (
            challenge == query["code_challenge"],
            query["code_challenge_method"] == "S256",
            form["redirect_uri"] == query["redirect_uri"],
            authorization == f"Basic {pair}",
        )
        if not all(checks):
            return {"error": "invalid_client"}
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": query["nonce"],
            **self.claims,
        }
        claims = self.tamper(claims) if self.tamper else claims
        return {"id_token": self.forge(claims) if self.forge else self.sign(claims)}


def _handler(issuer: Issuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            issuer.asked.append(parts.path)
            if parts.path == "/.well-known/openid-configuration":
                self._json(200, issuer.description())
            elif parts.path == "/keys":
                self._json(200, {"keys": [issuer.key.as_dict(private=False)]})
            elif parts.path == "/authorize":
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                self.send_response(302)
                self.send_header("Location", issuer.authorize(query))
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self._json(404, {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            answer = issuer.redeem(form, self.headers.get("Authorization", ""))
            self._json(200 if "id_token" in answer else 400, answer)

        def _json(self, status: int, value: object) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    """Serve an issuer on loopback until the block ends."""
    issuer = Issuer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(issuer))
    server.daemon_threads = True
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
