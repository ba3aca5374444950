"""TLS of the server itself: certificate files, taken up anew when they change.

A certificate that is renewed must not need a restart, nor cost a connection. So each handshake is
given the newest context that could be made, while connections that stand keep theirs. Files that
cannot be used, as between two writes of a renewal, change nothing, and are tried again.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from holdfast.apps.server import logs
from holdfast.core.errors import ConfigurationError


class ServerTls:
    """A certificate with its key, as files. Used from the event loop only."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read both. Raises ConfigurationError for files that are no certificate and its key."""
        self._certificate = certificate
        self._key = key
        self._stamp = self._read_stamp()
        self._refused = self._stamp
        """Of the files that were refused last, so that the log has them once."""
        try:
            self._newest = self._make_context()
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"TLS cannot be used with {certificate} and {key}: {_describe(error)}.",
                hint="Give a PEM certificate, with its chain, by --tls-cert, and the key that it "
                "was made for, without a password, by --tls-key.",
            ) from error
        self.context = self._make_context()
        """For the listener. It hands every handshake on to the newest one."""
        self.context.sni_callback = self._choose

    async def watch(self, seconds: float) -> None:
        """Look at the files again and again, and take up what has changed."""
        while True:
            await asyncio.sleep(seconds)
            self.reload()

    def reload(self) -> bool:
        """Take up files that have changed since; False when they are the same or cannot be used."""
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return False
        try:
            self._newest = self._make_context()
        except (OSError, ssl.SSLError) as error:
            if stamp != self._refused:
                self._refused = stamp
                logs.event("tls-not-reloaded", level=logging.ERROR, reason=_describe(error))
            return False
        self._stamp = stamp
        logs.event("tls-reloaded", certificate=str(self._certificate))
        return True

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        connection.context = self._newest

    def _make_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # A key with a password would be asked for on the terminal, which nobody watches.
        context.load_cert_chain(self._certificate, self._key, password=lambda: b"")
        return context

    def _read_stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Tell versions of the files apart, also where a link was turned to another folder."""
        return tuple(map(_file_stamp, (self._certificate, self._key)))


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    # The time of the last change of anything: the one of the content can be set, and often is.
    return found.st_ino, found.st_ctime_ns, found.st_size


def _describe(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "they cannot be read").replace("_", " ").lower()
        return reason if reason != "pem lib" else "they are no PEM files"
    return str(getattr(error, "strerror", None) or error)
