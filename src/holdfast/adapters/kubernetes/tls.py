"""TLS towards one cluster, made anew when its authority or our certificate changes."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from holdfast.adapters.kubernetes.config import ClusterConfig
from holdfast.adapters.kubernetes.credentials import ClientCertificate
from holdfast.adapters.kubernetes.files import RotatedFile
from holdfast.core.errors import ConfigurationError


class TlsContexts:
    """Gives the context for a request; the same one for as long as nothing changed.

    Connections are pooled by context, so a new one also means new connections.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._made_from: tuple[bytes | None, ClientCertificate | None] | None = None
        self._context: ssl.SSLContext | None = None

    def context(self, certificate: ClientCertificate | None) -> ssl.SSLContext:
        """Return the context for this identity. Raises ConfigurationError."""
        authority = self._config.authority
        pem = authority.read() if isinstance(authority, RotatedFile) else authority
        wanted = (pem, certificate)
        if self._context is None or self._made_from != wanted:
            self._context = self._make(pem, certificate)
            self._made_from = wanted
        return self._context

    def _make(self, pem: bytes | None, certificate: ClientCertificate | None) -> ssl.SSLContext:
        try:
            text = None if pem is None else pem.decode("ascii", "replace")
            context = ssl.create_default_context(cadata=text)
        except ssl.SSLError:
            raise ConfigurationError(
                f"The certificate authority of {self._config.source} is not a PEM certificate.",
                todo="Fetch the kubeconfig again.",
            ) from None
        # Python 3.13 asks for extensions that the authorities of many clusters lack.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self._config.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            self._load(context, certificate)
        return context

    def _load(self, context: ssl.SSLContext, certificate: ClientCertificate) -> None:
        # OpenSSL reads a key from a file only; the folder is ours alone and goes at once.
        with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
            place = Path(folder) / "identity.pem"
            place.touch(mode=0o600)
            place.write_text(f"{certificate.certificate}\n{certificate.key.reveal()}\n")
            try:
                # A key behind a passphrase would ask on the terminal; refuse it instead.
                context.load_cert_chain(place, password="")
            except (ssl.SSLError, OSError, ValueError):
                raise ConfigurationError(
                    f"The client certificate of {self._config.source} and its key cannot be used "
                    "together, or are not PEM.",
                    todo="Fetch the kubeconfig again.",
                ) from None
