"""Who is let in without a token of ours: the people file, its issuers, and sign-ins under way.

A sign-in under way is kept by the browser, in a cookie that is signed here, lives ten minutes and
is used once; the server remembers only which were used. So nobody can crowd out the sign-ins of
others, and a code that was brought to another browser signs nobody in.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import msgspec

from holdfast.adapters.clock import SystemClock
from holdfast.adapters.openid import OpenIdIssuer
from holdfast.adapters.store import SignedInSession, TokenScope
from holdfast.apps.server.authorize import Grants
from holdfast.core.errors import ConfigurationError
from holdfast.core.people import CiIssuer, OpenIdProvider, PeopleConfig, SecretReference
from holdfast.core.redact import Secret
from holdfast.wire.people_v1 import HINT, read_people

LOGIN_SECONDS = 600
_MAX_FILE = 1024 * 1024
_PART = r"(?:[A-Za-z0-9._~!*'():-]|%[0-9A-Fa-f]{2})"
_NEXT = re.compile(rf"/ui/(?:{_PART}+/)*{_PART}*(?:\?(?:{_PART}|[=&+,;/?@$])*)?")
"""What the page makes of paths and queries by the browser's own encoding, and little beside it."""


class PendingLogin(msgspec.Struct, kw_only=True, frozen=True):
    """A sign-in under way, as the browser keeps it."""

    provider: str
    state: str
    next: str
    ends: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSecrets:
    """What a sign-in is told by; made of its state with a key that this process alone has."""

    nonce: str
    verifier: str

    @property
    def challenge(self) -> str:
        """What the issuer gets to see of the verifier at first (PKCE, S256)."""
        return _encode(hashlib.sha256(self.verifier.encode()).digest())


class LoginStates:
    """Signs what the browser keeps, and takes it once."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._key = os.urandom(32)
        self._used: OrderedDict[str, int] = OrderedDict()

    def begin(self, provider: str, next: str) -> tuple[PendingLogin, str]:
        """Begin a sign-in; return the value of its cookie too."""
        login = PendingLogin(
            provider=provider,
            state=_encode(os.urandom(24)),
            next=next,
            ends=int(self._now()) + LOGIN_SECONDS,
        )
        body = _encode(msgspec.json.encode(login))
        return login, f"{body}.{self._sign('cookie', body)}"

    def take(self, cookie: str | None, *, provider: str, state: str) -> PendingLogin | None:
        """Return the sign-in of a cookie if it is the one that this state is of, once."""
        body, _, signature = (cookie or "").partition(".")
        if not hmac.compare_digest(self._sign("cookie", body).encode(), signature.encode()):
            return None
        try:
            login = msgspec.json.decode(_decode(body), type=PendingLogin)
        except (msgspec.MsgspecError, binascii.Error):
            return None
        now = self._now()
        fits = hmac.compare_digest(login.state.encode(), state.encode())
        if not fits or login.provider != provider or now >= login.ends:
            return None
        while self._used and next(iter(self._used.values())) <= now:
            self._used.popitem(last=False)
        if login.state in self._used:
            return None
        self._used[login.state] = login.ends
        return login

    def secrets_of(self, state: str) -> LoginSecrets:
        """Return what belongs to a state."""
        return LoginSecrets(
            nonce=self._sign("nonce", state), verifier=self._sign("verifier", state)
        )

    def _sign(self, purpose: str, text: str) -> str:
        return _encode(hmac.new(self._key, f"{purpose}\n{text}".encode(), "sha256").digest())


class Identities:
    """The people file at work. Close it when done."""

    def __init__(self, config: PeopleConfig, clock: SystemClock) -> None:
        self.config = config
        self.logins = LoginStates(lambda: clock.now().timestamp())
        self._issuers = {
            issuer: OpenIdIssuer(
                issuer, monotonic=clock.monotonic, now=lambda: clock.now().timestamp()
            )
            for issuer in {
                *(each.issuer for each in config.openid),
                *(each.issuer for each in config.ci),
            }
        }

    @classmethod
    def open(cls, path: Path | None, clock: SystemClock) -> Identities:
        """Read the file, and every secret that it names. Raises ConfigurationError."""
        config = PeopleConfig()
        if path is not None:
            try:
                with path.open("rb") as file:
                    data = file.read(_MAX_FILE + 1)
            except OSError as error:
                raise ConfigurationError(
                    f"The people file {path} cannot be read: {error.strerror}.", hint=HINT
                ) from error
            if len(data) > _MAX_FILE:
                raise ConfigurationError(f"The people file {path} is over 1 MiB.", hint=HINT)
            config = read_people(data, source=str(path))
        for provider in config.openid:
            read_secret(provider.client_secret)
        return cls(config, clock)

    async def aclose(self) -> None:
        """Close the connections to issuers."""
        for issuer in self._issuers.values():
            await issuer.aclose()

    def issuer(self, entry: OpenIdProvider | CiIssuer) -> OpenIdIssuer:
        """Return the issuer of an entry of the file."""
        return self._issuers[entry.issuer]

    def provider(self, id: str) -> OpenIdProvider | None:
        """Return an issuer for people by its id."""
        return next((each for each in self.config.openid if each.id == id), None)

    def ci_issuer(self, issuer: str) -> CiIssuer | None:
        """Return an issuer for CI jobs by its address."""
        return next((each for each in self.config.ci if each.issuer == issuer), None)

    def grants(self, session: SignedInSession) -> Grants:
        """Say what a person's session may do now, by the rules as they are now."""
        if session.person is None:
            return {}
        found = self.config.grants(session.provider, session.person.issuer, session.claims)
        return {
            project: frozenset[TokenScope]().union(*(TokenScope(each).implied for each in scopes))
            for project, scopes in found.items()
        }


def read_secret(reference: SecretReference | None) -> Secret | None:
    """Read a secret from where the file says, each time: it may be changed while we run."""
    if reference is None:
        return None
    if reference.env:
        text, where = os.environ.get(reference.env, ""), f"the variable {reference.env}"
    else:
        where = reference.file
        try:
            text = Path(reference.file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"A secret that the people file names cannot be read from {where}.", hint=HINT
            ) from error
    if not text.strip():
        raise ConfigurationError(
            f"The people file names a secret, and {where} is empty.", hint=HINT
        )
    return Secret(text.strip())


def is_own_page(next: str) -> bool:
    """True for a path below `/ui/` that leads nowhere else, whatever a browser makes of it."""
    path = next.partition("?")[0]
    plain = all(unquote(part) not in (".", "..") for part in path.split("/"))
    return len(next) <= 1_000 and _NEXT.fullmatch(next) is not None and plain


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
