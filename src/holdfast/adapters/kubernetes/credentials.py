"""Who we are to a cluster: a token, a client certificate, or both.

The connection asks for the identity before each request, so that a rotated token or certificate
is used at once, and says when the cluster did not accept it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.adapters.kubernetes.files import RotatedFile
from holdfast.core.errors import ConfigurationError
from holdfast.core.redact import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificate:
    """A certificate and its key, in PEM."""

    certificate: str
    key: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What one request carries."""

    token: Secret | None = None
    certificate: ClientCertificate | None = None


class Credentials(Protocol):
    """Where identities come from."""

    async def identity(self) -> Identity:
        """Return the identity to use now. Raises ConfigurationError when there is none."""

    def rejected(self, identity: Identity) -> bool:
        """Take note that the cluster answered 401. True when asking again may help."""


class FixedCredentials:
    """What a kubeconfig holds in itself; nobody, when it holds nothing."""

    def __init__(self, identity: Identity | None = None) -> None:
        self._identity = identity or Identity()

    async def identity(self) -> Identity:
        """Return the same identity always."""
        return self._identity

    def rejected(self, identity: Identity) -> bool:
        """Nothing else is known."""
        return False


class FileCredentials:
    """A token, or a certificate and its key, in files that may be replaced at any time."""

    def __init__(
        self,
        *,
        token: RotatedFile | None = None,
        certificate: tuple[RotatedFile, RotatedFile] | None = None,
        fixed: Identity | None = None,
    ) -> None:
        self._token = token
        self._certificate = certificate
        self._fixed = fixed or Identity()

    async def identity(self) -> Identity:
        """Return what the files say now; what they do not give comes from the kubeconfig."""
        token, certificate = self._fixed.token, self._fixed.certificate
        if self._token is not None:
            token = token_from(self._token)
        if self._certificate is not None:
            chain, key = (each.read().decode("utf-8", "replace") for each in self._certificate)
            certificate = ClientCertificate(certificate=chain, key=Secret(key))
        return Identity(token=token, certificate=certificate)

    def rejected(self, identity: Identity) -> bool:
        """A file that was replaced in the meantime is worth another try."""
        files = [*(self._certificate or ()), *([self._token] if self._token else [])]
        replaced = [each.forget() for each in files]
        return any(replaced)


def token_from(file: RotatedFile) -> Secret:
    """Read a token that can stand in a header. Raises ConfigurationError, without quoting it."""
    return checked_token(file.read().decode("utf-8", "replace").strip(), f"The file {file.path}")


def checked_token(text: str, where: str) -> Secret:
    """Refuse what would break the header it is sent in."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigurationError(
            f"{where} holds a token with characters that no token has.",
            todo="Get a fresh token; it is one line without spaces.",
        )
    return Secret(text)
