"""Sockets that keep a total deadline, blocking and asynchronous, for the connection pools.

Imported on first use: this is where the HTTP library gets loaded.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable

import httpcore2

from holdfast.adapters.http.transports import allowed_seconds


class BlockingBackend(httpcore2.NetworkBackend):
    """Opens blocking connections."""

    def __init__(self) -> None:
        self._inner = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        """Try each address of the host; all of them share what is left of the time."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        failure: Exception = httpcore2.ConnectError("the name has no address")
        for *_, address in found:
            try:
                stream = self._inner.connect_tcp(
                    str(address[0]), port, allowed_seconds(timeout), local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
            else:
                return BlockingStream(stream)
        raise failure


class BlockingStream(httpcore2.NetworkStream):
    """One blocking connection."""

    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what is there, within what is left of the time."""
        return self._inner.read(max_bytes, allowed_seconds(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of it, within what is left of the time."""
        self._inner.write(buffer, allowed_seconds(timeout))

    def close(self) -> None:
        """Close the connection."""
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        """Shake hands, within what is left of the time."""
        return BlockingStream(
            self._inner.start_tls(ssl_context, server_hostname, allowed_seconds(timeout))
        )

    def get_extra_info(self, info: str) -> object:
        """Tell the pool about the socket."""
        return self._inner.get_extra_info(info)


class AsyncBackend(httpcore2.AsyncNetworkBackend):
    """Opens connections in the running event loop."""

    def __init__(self) -> None:
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # the library's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect, within what is left of the time."""
        stream = await self._inner.connect_tcp(
            host, port, allowed_seconds(timeout), local_address, socket_options
        )
        return AsyncStream(stream)


class AsyncStream(httpcore2.AsyncNetworkStream):
    """One connection in the running event loop."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(
        self,
        max_bytes: int,
        timeout: float | None = None,  # noqa: ASYNC109  # the library's signature
    ) -> bytes:
        """Read what is there, within what is left of the time."""
        return await self._inner.read(max_bytes, allowed_seconds(timeout))

    async def write(
        self,
        buffer: bytes,
        timeout: float | None = None,  # noqa: ASYNC109  # the library's signature
    ) -> None:
        """Write all of it, within what is left of the time."""
        await self._inner.write(buffer, allowed_seconds(timeout))

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the library's signature
    ) -> httpcore2.AsyncNetworkStream:
        """Shake hands, within what is left of the time."""
        return AsyncStream(
            await self._inner.start_tls(ssl_context, server_hostname, allowed_seconds(timeout))
        )

    def get_extra_info(self, info: str) -> object:
        """Tell the pool about the socket."""
        return self._inner.get_extra_info(info)
