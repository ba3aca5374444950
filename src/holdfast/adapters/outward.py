"""What adapters that speak HTTP through aiohttp share: which proxy is asked, and why it failed."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp


def proxy_for(url: str) -> str:
    """Return the environment's proxy for an address; empty for what is reached directly.

    That is so for what runs on this machine, whatever the environment says.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
        return ""
    return getproxies_environment().get(parts.scheme, "")


def why_broken(error: Exception) -> str:
    """Say what broke, without the library's own text, which may hold a proxy's password."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            return "showed a certificate that is not trusted here or is for another name"
        case aiohttp.ClientSSLError():
            return "could not agree on TLS"
        case aiohttp.ClientProxyConnectionError():
            return "could not be reached, as its proxy did not answer"
        case aiohttp.ClientHttpProxyError():
            return "could not be reached, as its proxy refused"
        case aiohttp.ClientConnectorError():
            reason = error.os_error.strerror if isinstance(error.os_error, OSError) else None
            return f"could not be reached: {reason or 'no connection'}"
        case _:
            return f"broke the connection off ({type(error).__name__})"
