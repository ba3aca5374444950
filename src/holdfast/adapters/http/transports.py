"""One HTTP exchange under one total deadline: a request out, a status and a stream of bytes back.

Two transports of one port, a blocking one and one for an event loop; nothing above this module
knows which it has. The library below is httpcore2, the part of httpx2 that accepts our own
sockets. HTTP libraries bound each read and write by itself, so a peer that sends one byte now and
then can hold a caller for ever; here every read asks how much of the total is left.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from holdfast.reconcile.ports import Clock

if TYPE_CHECKING:
    import asyncio

    import httpcore2


def is_loopback(host: str) -> bool:
    """True for a host that cannot be anywhere but this machine."""
    parts = host.split(".")
    four = len(parts) == 4 and parts[0] == "127" and all(part.isdigit() for part in parts)
    return four or host in ("localhost", "::1")


NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """The moment by which a call must have ended."""

    clock: Clock
    seconds: float
    """The whole budget, for messages."""
    at: float
    """On the monotonic clock."""

    def left(self) -> float:
        """Seconds that remain; zero or less when the time is up."""
        return self.at - self.clock.monotonic()


def deadline_in(seconds: float | None, clock: Clock) -> Deadline:
    """Start a budget now; None is no bound."""
    budget = NEVER if seconds is None else seconds
    return Deadline(clock=clock, seconds=budget, at=clock.monotonic() + budget)


class DeadlineTimeout(float):
    """What the HTTP library hands to each read and write as its time-out.

    It passes the object along untouched, so the socket can ask it anew each time.
    """

    deadline: Deadline
    idle: float

    def __new__(cls, deadline: Deadline, idle: float = NEVER) -> DeadlineTimeout:
        """Bound each operation by `idle` and all of them by the deadline."""
        made = super().__new__(cls, min(max(deadline.left(), 0.0), idle, 86_400.0))
        made.deadline = deadline
        made.idle = idle
        return made

    def now(self) -> float:
        """Seconds that the next operation may take."""
        return min(max(self.deadline.left(), 0.001), self.idle, 86_400.0)


def allowed_seconds(timeout: float | None) -> float | None:
    """Turn what the library passed along into seconds for the next operation."""
    return timeout.now() if isinstance(timeout, DeadlineTimeout) else timeout


MAX_CONNECTIONS = 100
KEEP_ALIVE = 4.0
"""Seconds an idle connection is kept; below the 5 s after which common servers close it."""


class TransportError(Exception):
    """The exchange failed below HTTP. `sent` says whether the server may have seen it.

    `untrusted` means that the other side could not prove who it is: asking again is no use.
    """

    def __init__(
        self, why: str, *, sent: bool, timed_out: bool = False, untrusted: bool = False
    ) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent
        self.timed_out = timed_out
        self.untrusted = untrusted


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """What is sent, and how long it and the response may take."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None
    deadline: Deadline
    idle: float = NEVER
    """Longest silence between two reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingResponse:
    """A response whose body is still to be read. Close it."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    chunks: AsyncIterator[bytes]
    """Raises TransportError when the body breaks off."""
    aclose: Callable[[], Awaitable[None]]
    """Let the connection go, whether or not the body was read."""


class HttpTransport(Protocol):
    """Carries one request at a time; any number at once."""

    async def send(self, request: HttpRequest) -> StreamingResponse:
        """Send a request and return once the head of the response is there."""

    async def aclose(self) -> None:
        """Close every connection."""


class BlockingTransport:
    """For the sync clients: its coroutines never suspend."""

    def __init__(self) -> None:
        self._pool: httpcore2.ConnectionPool | None = None
        self._making = threading.Lock()

    async def send(self, request: HttpRequest) -> StreamingResponse:
        """Send a request, blocking until the head of the response is there."""
        try:
            response = self._connections(request.url).handle_request(_to_library(request))
        except Exception as error:
            raise _transport_error(error) from error
        return StreamingResponse(
            status=response.status,
            headers=_headers_of(response),
            chunks=_blocking_chunks(response),
            aclose=partial(_close_blocking, response),
        )

    async def aclose(self) -> None:
        """Close every connection."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _connections(self, url: str) -> httpcore2.ConnectionPool:
        with self._making:
            if self._pool is None:
                import httpcore2

                from holdfast.adapters.http.sockets import BlockingBackend

                self._pool = httpcore2.ConnectionPool(
                    max_connections=MAX_CONNECTIONS,
                    keepalive_expiry=KEEP_ALIVE,
                    network_backend=BlockingBackend(),
                    proxy=_proxy_for(url),
                )
                # A script that just ends should not be warned of sockets it never saw.
                weakref.finalize(self, self._pool.close)
            return self._pool


class AsyncTransport:
    """For the async clients. Connections belong to the loop that made them."""

    def __init__(self) -> None:
        self._pool: httpcore2.AsyncConnectionPool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, request: HttpRequest) -> StreamingResponse:
        """Send a request and wait for the head of the response."""
        try:
            pool = self._connections(request.url)
            response = await pool.handle_async_request(_to_library(request))
        except Exception as error:
            raise _transport_error(error) from error
        return StreamingResponse(
            status=response.status,
            headers=_headers_of(response),
            chunks=_async_chunks(response),
            aclose=response.aclose,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        if self._pool is not None:
            await self._pool.aclose()
            self._pool = None

    def _connections(self, url: str) -> httpcore2.AsyncConnectionPool:
        import asyncio

        loop = asyncio.get_running_loop()
        if self._pool is None or self._loop is not loop:
            import httpcore2

            from holdfast.adapters.http.sockets import AsyncBackend

            self._loop = loop
            self._pool = httpcore2.AsyncConnectionPool(
                max_connections=MAX_CONNECTIONS,
                keepalive_expiry=KEEP_ALIVE,
                network_backend=AsyncBackend(),
                proxy=_proxy_for(url),
            )
        return self._pool


async def _blocking_chunks(response: httpcore2.Response) -> AsyncIterator[bytes]:
    try:
        for chunk in response.iter_stream():
            yield chunk
    except Exception as error:
        raise _transport_error(error) from error


async def _close_blocking(response: httpcore2.Response) -> None:
    response.close()


async def _async_chunks(response: httpcore2.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_stream():
            yield chunk
    except Exception as error:
        raise _transport_error(error) from error


def _to_library(request: HttpRequest) -> httpcore2.Request:
    import httpcore2

    content = request.body or b""
    headers = [("Host", urlsplit(request.url).netloc), *request.headers.items()]
    if content or request.method not in ("GET", "HEAD", "DELETE"):
        headers.append(("Content-Length", str(len(content))))
    timeout = DeadlineTimeout(request.deadline, request.idle)
    timeouts = dict.fromkeys(("connect", "read", "write", "pool"), timeout)
    return httpcore2.Request(
        request.method,
        request.url,
        headers=headers,
        content=content,
        extensions={"timeout": timeouts},
    )


def _headers_of(response: httpcore2.Response) -> dict[str, str]:
    return {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
    }


def _proxy_for(url: str) -> httpcore2.Proxy | None:
    """Honour HTTP_PROXY, HTTPS_PROXY and NO_PROXY; never for this machine itself."""
    from urllib.request import getproxies, proxy_bypass

    import httpcore2

    parts = urlsplit(url)
    host = parts.hostname or ""
    address = getproxies().get(parts.scheme)
    if not address or is_loopback(host) or proxy_bypass(host):
        return None
    found = urlsplit(address if "://" in address else f"http://{address}")
    auth = (found.username or "", found.password or "") if found.username else None
    port = f":{found.port}" if found.port else ""
    return httpcore2.Proxy(f"{found.scheme}://{found.hostname}{port}", auth=auth)


def _transport_error(error: Exception) -> TransportError:
    import httpcore2

    unsent = (
        httpcore2.ConnectError,
        httpcore2.ConnectTimeout,
        httpcore2.PoolTimeout,
        httpcore2.ProxyError,
        httpcore2.UnsupportedProtocol,
        httpcore2.LocalProtocolError,
    )
    timed_out = isinstance(error, httpcore2.TimeoutException)
    if isinstance(error, unsent):
        why, untrusted = _failure_reason(error)
        return TransportError(why, sent=False, timed_out=timed_out, untrusted=untrusted)
    return TransportError(_failure_reason(error)[0], sent=True, timed_out=timed_out)


def _failure_reason(error: Exception) -> tuple[str, bool]:
    """Say why in the system's words, which both transports have somewhere down the chain.

    The second value says that a certificate was refused.
    """
    import ssl

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate was refused ({cause.verify_message})", True
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed ({cause.reason or 'no reason given'})", False
        if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
            return os.strerror(cause.errno), False
        inner = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else None
        cause = inner or cause.__cause__ or cause.__context__
    return str(error) or "the connection was lost", False
