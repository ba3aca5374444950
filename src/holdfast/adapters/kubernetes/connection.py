"""HTTP to one API server: identity, TLS, proxy, deadlines, and asking again where that is safe.

What the responses mean is for `responses`; which requests there are is for `api` and `watch`.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from holdfast.adapters.kubernetes.credentials import ClientCertificate, Identity, RotatedFile
from holdfast.adapters.kubernetes.kubeconfig import ClusterConfig
from holdfast.adapters.kubernetes.responses import MAX_ATTEMPTS, KubeResponse, back_off, retry_delay
from holdfast.adapters.outbound import UsedConnections, describe_connection_error, proxy_for
from holdfast.core.errors import (
    NOTHING_CHANGED,
    OUTCOME_UNKNOWN,
    ConfigurationError,
    HoldfastError,
    TargetUnavailable,
)
from holdfast.core.quantity import format_seconds
from holdfast.reconcile.ports import Clock
from holdfast.version import __version__


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
        made_from = (pem, certificate)
        if self._context is None or self._made_from != made_from:
            self._context = self._make(pem, certificate)
            self._made_from = made_from
        return self._context

    def _make(self, pem: bytes | None, certificate: ClientCertificate | None) -> ssl.SSLContext:
        try:
            text = None if pem is None else pem.decode("ascii", "replace")
            context = ssl.create_default_context(cadata=text)
        except ssl.SSLError:
            raise ConfigurationError(
                f"The certificate authority of {self._config.source} is not a PEM certificate.",
                hint="Fetch the kubeconfig again.",
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
            file = Path(folder) / "identity.pem"
            file.touch(mode=0o600)
            file.write_text(f"{certificate.certificate}\n{certificate.key.reveal()}\n")
            try:
                # A key behind a passphrase would ask on the terminal; refuse it instead.
                context.load_cert_chain(file, password="")
            except (ssl.SSLError, OSError, ValueError):
                raise ConfigurationError(
                    f"The client certificate of {self._config.source} and its key cannot be used "
                    "together, or are not PEM.",
                    hint="Fetch the kubeconfig again.",
                ) from None


CONNECT_TIMEOUT = 10.0
"""Seconds for a connection to stand; a cluster that takes longer is not there."""


class KubeConnection:
    """A cluster as one identity sees it. Close it when done."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        clock: Clock,
        user_agent: str = f"holdfast/{__version__}",
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.config = config
        self.clock = clock
        self.chance = chance
        self._user_agent = user_agent
        self._tls = TlsContexts(config)
        self._https = config.server.startswith("https://")
        self._proxy = config.proxy_url or proxy_for(config.server)
        self._session: aiohttp.ClientSession | None = None
        self._connections = UsedConnections()

    def __repr__(self) -> str:
        return f"Connection({self.config.server!r})"

    async def aclose(self) -> None:
        """Close every connection. Safe to call twice."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await self._connections.abort()

    async def request(
        self,
        method: str,
        path: str,
        *,
        within: float,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        secret: bool = False,
        dry_run: bool = False,
    ) -> KubeResponse:
        """Return the server's response, whatever its status, within so many seconds.

        Reads are repeated. A write is repeated only when it was certainly not begun. Raises
        TargetUnavailable, which says whether a write may have taken effect.
        """
        ends = self.clock.monotonic() + within
        where = f"{method} {path} of {self.config.server}"
        headers = {"Content-Type": content_type} if body is not None else {}
        attempt, renewed = 0, False
        while True:
            sent = SendTracker(once=method != "GET")
            wait: float | None
            try:
                async with asyncio.timeout(max(ends - self.clock.monotonic(), 0.001)):
                    identity = await self.config.credentials.identity()
                    async with self._open(
                        method, path, identity, sent, params=params, body=body, headers=headers
                    ) as raw:
                        body_read = await raw.read()
                response = KubeResponse(
                    method=method,
                    where=where,
                    status=raw.status,
                    headers={name.lower(): value for name, value in raw.headers.items()},
                    body=body_read,
                    secret=secret,
                    dry_run=dry_run,
                )
                if response.status == 401 and not renewed:
                    renewed = True
                    if self.config.credentials.invalidate(identity):
                        continue
                wait = retry_delay(
                    method=method,
                    status=response.status,
                    headers=response.headers,
                    attempt=attempt,
                    chance=self.chance(),
                )
                if wait is None or self.clock.monotonic() + wait >= ends:
                    return response
            except TimeoutError:
                writes = method != "GET" and not dry_run and sent.maybe
                raise _no_response(
                    where, f"gave no answer in {format_seconds(within)}", writes
                ) from None
            except (aiohttp.ClientError, OSError) as error:
                safe = method == "GET" or not sent.maybe
                wait = back_off(attempt, self.chance())
                late = self.clock.monotonic() + wait >= ends or attempt + 1 >= MAX_ATTEMPTS
                if not safe or late or isinstance(error, aiohttp.ClientSSLError):
                    writes = method != "GET" and not dry_run and sent.maybe
                    raise _no_response(where, describe_connection_error(error), writes) from None
            attempt += 1
            await self.clock.sleep(wait)

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], within: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a watch: the head of the response has come in time, its body may take for ever.

        Raises TargetUnavailable when there is no response.
        """
        where = f"GET {path} of {self.config.server}"
        for last in (False, True):
            identity = await self.config.credentials.identity()
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(within):
                        response = await stack.enter_async_context(
                            self._open("GET", path, identity, SendTracker(), params=params)
                        )
                except TimeoutError:
                    raise _no_response(
                        where, f"gave no answer in {format_seconds(within)}", False
                    ) from None
                except (aiohttp.ClientError, OSError) as error:
                    raise _no_response(where, describe_connection_error(error), False) from None
                # A watch is not read to its end, so its connection cannot serve again.
                stack.callback(_abort_stream, response)
                renew = response.status == 401 and not last
                if renew and self.config.credentials.invalidate(identity):
                    continue
                yield response
                return

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        identity: Identity,
        sent: SendTracker,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            self._session = _open_session(self._user_agent, self._connections)
        async with self._session.request(
            method,
            URL(self.config.server + path, encoded=True),
            params=dict(params or {}),
            data=body,
            headers=self._headers(identity, headers or {}),
            ssl=self._tls.context(identity.certificate) if self._https else True,
            server_hostname=self.config.tls_server_name or None,
            proxy=self._proxy or None,
            allow_redirects=False,
            trace_request_ctx=sent,
        ) as response:
            yield response

    def _headers(self, identity: Identity, more: Mapping[str, str]) -> CIMultiDict[str]:
        headers = CIMultiDict({"Accept": "application/json", **more})
        if identity.token is not None:
            headers["Authorization"] = f"Bearer {identity.token.reveal()}"
        acting = self.config.impersonation
        if acting.user:
            headers["Impersonate-User"] = acting.user
        if acting.uid:
            headers["Impersonate-Uid"] = acting.uid
        for group in acting.groups:
            headers.add("Impersonate-Group", group)
        for name, values in acting.extra.items():
            for value in values:
                headers.add(f"Impersonate-Extra-{name}", value)
        return headers


def _abort_stream(response: aiohttp.ClientResponse) -> None:
    """End a stream at once: ending TLS may wait for the peer longer than the loop lives."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


class SendTracker:
    """Whether any part of a request may have left, which decides if it may be repeated."""

    def __init__(self, *, once: bool = False) -> None:
        self.once = once
        self.maybe = False

    def leaving(self) -> None:
        """Record that the request goes out now.

        The library repeats a DELETE by itself on a connection that broke, although the name may
        be another object's by then: the second time is refused.
        """
        if self.once and self.maybe:
            raise aiohttp.ServerDisconnectedError
        self.maybe = True


def _open_session(user_agent: str, connections: UsedConnections) -> aiohttp.ClientSession:
    trace = aiohttp.TraceConfig()

    async def leaving(
        session: aiohttp.ClientSession,
        context: object,
        params: aiohttp.TraceRequestHeadersSentParams,
    ) -> None:
        sent = getattr(context, "trace_request_ctx", None)
        if isinstance(sent, SendTracker):
            sent.leaving()

    trace.on_request_headers_sent.append(leaving)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=100, limit_per_host=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        headers={"User-Agent": user_agent},
        cookie_jar=aiohttp.DummyCookieJar(),
        trace_configs=[trace],
        read_bufsize=2**20,
        response_class=connections.response_class,
    )


def _no_response(where: str, why: str, writes: bool) -> HoldfastError:
    return TargetUnavailable(
        f"{where} {why}.",
        changed=OUTCOME_UNKNOWN if writes else NOTHING_CHANGED,
        hint="Check that the API server runs and can be reached from here.",
    )
