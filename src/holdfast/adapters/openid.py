"""Asks an OpenID Connect issuer: its description, its keys, a code's tokens; and checks a token.

Signatures and registered claims are joserfc's to check; what is asked goes out by the one exchange
of `outbound`. An issuer is named in a file by whoever runs the server, but what its description
names is the issuer's word: those addresses must be TLS, and never lead to a metadata service or,
unless the issuer is there itself, to this machine.

Used by the server, for people who sign in and for CI jobs that change their forge's token into one
of ours.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

from joserfc import jwk, jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from holdfast.adapters.outbound import NoResponse, OutboundClient, sanitize
from holdfast.core.address_reach import source_problem
from holdfast.core.redact import Secret
from holdfast.wire.people_v1 import is_loopback_issuer

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519",
    "EdDSA",
)  # fmt: skip
"""Signatures by a key that the issuer alone has. Never `none`, nor any with a shared key: whoever
knows a public key could sign with it."""
LEEWAY = 60
"""Seconds that clocks may differ."""
METADATA_SECONDS = 3600.0
REFRESH_SECONDS = 60.0
"""At least so long between two questions for keys, whatever unknown ids tokens name."""
RETRY_SECONDS = 5.0
"""The same after an answer that could not be used."""
MAX_EXCHANGES = 8
"""Codes that are exchanged at once."""
MAX_TOKEN = 16 * 1024
MAX_RESPONSE = 256 * 1024
PublicKey: TypeAlias = RSAKey | ECKey | OKPKey
Claims: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityRefused:
    """Why nobody is let in. A sentence's end, for the log and for the caller; it has no token."""

    reason: str
    unavailable: bool = False
    """True when the issuer could not be asked, so that trying later may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerMetadata:
    """What an issuer's description is needed for."""

    keys_url: str
    authorization_url: str = ""
    token_url: str = ""
    post_secret: bool = False
    """The client's secret goes into the form, and not into a header."""


class OpenIdIssuer:
    """One issuer. Close it when done."""

    def __init__(
        self,
        issuer: str,
        *,
        monotonic: Callable[[], float],
        now: Callable[[], float],
        timeout: float = 10.0,
    ) -> None:
        self.issuer = issuer
        self._monotonic = monotonic
        self._now = now
        self._local = is_loopback_issuer(issuer)
        self._client = OutboundClient(
            timeout=timeout,
            max_bytes=MAX_RESPONSE,
            address_rule=lambda address: source_problem(str(address), allow_loopback=self._local),
            use_proxy=True,
        )
        self._metadata: IssuerMetadata | None = None
        self._described: IssuerMetadata | IdentityRefused | None = None
        """What the last look at the description came to."""
        self._described_until = 0.0
        self._describing = asyncio.Lock()
        self._exchanging = asyncio.Semaphore(MAX_EXCHANGES)
        self._keys: dict[str, PublicKey] = {}
        self._keys_until = 0.0
        self._keys_next = 0.0
        """When the keys may be asked for again."""
        self._reading = asyncio.Lock()

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._client.aclose()

    async def metadata(self) -> IssuerMetadata | IdentityRefused:
        """Read the issuer's description, at most once an hour while it answers.

        One that does not is not asked again at once, however many want to sign in.
        """
        async with self._describing:
            if self._described is None or self._monotonic() >= self._described_until:
                self._described, seconds = await self._describe()
                self._described_until = self._monotonic() + seconds
            return self._described

    async def _describe(self) -> tuple[IssuerMetadata | IdentityRefused, float]:
        """Ask for the description; return what counts now, and for how many seconds."""
        url = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = await self._fetch_json("GET", url)
        if isinstance(found, IdentityRefused):
            return self._metadata or found, RETRY_SECONDS
        made = self._read_metadata(found)
        if isinstance(made, IdentityRefused):
            return made, RETRY_SECONDS
        self._metadata = made
        return made, METADATA_SECONDS

    async def verify(
        self, token: str, *, audience: str, nonce: str | None = None
    ) -> Claims | IdentityRefused:
        """Return the claims of a token of this issuer for this audience, or why they do not count.

        With a `nonce` the token must bear it. One that is for several must say by `azp` that it was
        issued to this audience.
        """
        if len(token) > MAX_TOKEN:
            return IdentityRefused(reason="the token is too long")
        try:
            header = jws.extract_compact(token.encode("ascii")).headers()
        except (JoseError, ValueError, KeyError, TypeError, RecursionError):
            return IdentityRefused(reason="the token cannot be read")
        algorithm, kid = header.get("alg"), header.get("kid", "")
        if algorithm not in ALGORITHMS or not isinstance(kid, str):
            return IdentityRefused(reason="the token is not signed in a way that is accepted here")
        key = await self._find_key(kid)
        if isinstance(key, IdentityRefused):
            return key
        try:
            claims = jwt.decode(token, key, algorithms=[str(algorithm)]).claims
        except RecursionError:
            return IdentityRefused(reason="the token cannot be read")
        except (JoseError, ValueError, TypeError):
            return IdentityRefused(reason="the signature is not the issuer's")
        return self._check_claims(claims, audience, nonce)

    async def exchange_code(
        self,
        code: str,
        *,
        verifier: str,
        redirect_url: str,
        client_id: str,
        client_secret: Secret | None,
    ) -> str | IdentityRefused:
        """Give a code back to the issuer; return the id token that it stands for.

        A few at once: whoever makes codes up keeps the issuer no busier than that, and keeps
        others waiting and not out.
        """
        metadata = await self.metadata()
        if isinstance(metadata, IdentityRefused):
            return metadata
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_url,
            "code_verifier": verifier,
            "client_id": client_id,
        }
        headers = {"Accept": "application/json"}
        if client_secret is not None:
            if metadata.post_secret:
                form["client_secret"] = client_secret.reveal()
            else:
                headers["Authorization"] = _basic(client_id, client_secret)
        async with self._exchanging:
            found = await self._fetch_json("POST", metadata.token_url, data=form, headers=headers)
        if isinstance(found, IdentityRefused):
            return found
        token = found.get("id_token")
        if not isinstance(token, str):
            return IdentityRefused(reason="the issuer gave no id token for the code")
        return token

    async def _find_key(self, kid: str) -> PublicKey | IdentityRefused:
        """Return the key of an id; an unknown id has the keys read anew, once in a while."""
        async with self._reading:
            if self._monotonic() >= self._keys_until or not self._key_of(kid):
                refused = await self._refresh_keys()
                if refused is not None and not self._key_of(kid):
                    return refused
        key = self._key_of(kid)
        return key or IdentityRefused(reason="the token is signed by a key the issuer has not")

    def _key_of(self, kid: str) -> PublicKey | None:
        if not kid and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid) if kid else None

    async def _refresh_keys(self) -> IdentityRefused | None:
        now = self._monotonic()
        if now < self._keys_next:
            return None
        self._keys_next = now + RETRY_SECONDS
        metadata = await self.metadata()
        if isinstance(metadata, IdentityRefused):
            return metadata
        found = await self._fetch_json("GET", metadata.keys_url)
        if isinstance(found, IdentityRefused):
            return found
        self._keys_next = now + REFRESH_SECONDS
        self._keys = _read_keys(found.get("keys"))
        self._keys_until = now + METADATA_SECONDS
        return None

    def _check_claims(
        self, claims: dict[str, Any], audience: str, nonce: str | None
    ) -> Claims | IdentityRefused:
        registry = jwt.JWTClaimsRegistry(
            now=int(self._now()),
            leeway=LEEWAY,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
            iat={"essential": True},
            sub={"essential": True},
        )
        try:
            registry.validate(claims)
        except JoseError as error:
            claim = getattr(error, "claim", "")
            about = f"its claim {claim} " if claim in ("iss", "aud", "exp", "iat", "nbf") else "it "
            return IdentityRefused(reason=f"the token is not for us: {about}does not fit")
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if nonce is not None and claims.get("azp", None if several else audience) != audience:
            return IdentityRefused(reason="the token was issued to another client")
        subject = claims["sub"]
        if not (isinstance(subject, str) and 0 < len(subject) <= 255 and subject.isprintable()):
            return IdentityRefused(reason="the token names no subject")
        given = claims.get("nonce")
        if nonce is not None and not (
            isinstance(given, str) and hmac.compare_digest(given.encode(), nonce.encode())
        ):
            return IdentityRefused(reason="the token belongs to another sign-in")
        return claims

    def _read_metadata(self, found: Mapping[str, Any]) -> IssuerMetadata | IdentityRefused:
        if found.get("issuer") != self.issuer:
            return IdentityRefused(
                reason="the issuer's description is of another issuer than the people file names"
            )
        urls = {
            name: str(found.get(name) or "")
            for name in ("jwks_uri", "authorization_endpoint", "token_endpoint")
        }
        for name, url in urls.items():
            if url and not self._is_acceptable(url):
                return IdentityRefused(reason=f"its {name} is no https:// address")
        if not urls["jwks_uri"]:
            return IdentityRefused(reason="its description names no keys")
        methods = found.get("token_endpoint_auth_methods_supported")
        return IssuerMetadata(
            keys_url=urls["jwks_uri"],
            authorization_url=urls["authorization_endpoint"],
            token_url=urls["token_endpoint"],
            post_secret=isinstance(methods, list)
            and "client_secret_basic" not in methods
            and "client_secret_post" in methods,
        )

    def _is_acceptable(self, url: str) -> bool:
        parts = urlsplit(url)
        return bool(parts.hostname) and (
            parts.scheme == "https" or (parts.scheme == "http" and self._local)
        )

    async def _fetch_json(
        self,
        method: str,
        url: str,
        *,
        data: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any] | IdentityRefused:
        if not url:
            return IdentityRefused(reason="the issuer's description does not say where to ask")
        response = await self._client.send(method, url, data=data, headers=headers)
        if isinstance(response, NoResponse):
            return IdentityRefused(reason=f"the issuer {response.reason}", unavailable=True)
        if response.status != 200:
            # An OAuth error is a short word; anything longer is not repeated.
            word = _error_word(response.body)
            return IdentityRefused(
                reason=f"the issuer answered {response.status}{word}",
                unavailable=response.status >= 500 or response.status == 429,
            )
        try:
            found = json.loads(response.body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            return IdentityRefused(reason="the issuer answered with something else than JSON")
        return found


def unverified_issuer(token: str) -> str:
    """Read which issuer a token claims to be from, to know whose keys to ask for; else empty."""
    if len(token) > MAX_TOKEN:
        return ""
    try:
        claims = json.loads(jws.extract_compact(token.encode("ascii")).payload)
    except (JoseError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    found = claims.get("iss") if isinstance(claims, dict) else None
    return found if isinstance(found, str) else ""


def _read_keys(found: object) -> dict[str, PublicKey]:
    """Read the keys that sign. One that cannot be read, or is shared, is left out."""
    keys: dict[str, PublicKey] = {}
    for index, each in enumerate(found if isinstance(found, list) else ()):
        if not isinstance(each, dict) or each.get("use", "sig") != "sig":
            continue
        if each.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        try:
            key = jwk.import_key({name: value for name, value in each.items() if name != "d"})
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if isinstance(key, RSAKey | ECKey | OKPKey):
            kid = each.get("kid")
            keys[kid if isinstance(kid, str) and kid else f"#{index}"] = key
    return keys


def _basic(client_id: str, secret: Secret) -> str:
    pair = f"{quote(client_id, safe='')}:{quote(secret.reveal(), safe='')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _error_word(body: bytes) -> str:
    try:
        found = json.loads(body).get("error")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return f" ({sanitize(found, limit=60)})" if isinstance(found, str) else ""
