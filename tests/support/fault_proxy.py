"""A proxy between a client and a server that loses, delays and repeats what we tell it to.

Tests put it before the control plane or a backend to ask what a client makes of
a network that fails at one exact point, and to count what a client really sent.

    with FaultProxy(server.url) as proxy:
        proxy.drop_response(1)
        ensure_through(proxy.url)
        assert [request.method for request in proxy.mutating] == ["POST", "POST"]

Each method that names a fault takes the number of a request, counted from 1
over all connections in the order in which they were read to their end, or a
predicate over requests. Several faults may meet in one request. A request
without a fault passes as over a direct connection: unbuffered, byte for byte,
and when its client leaves the server sees it leave. A request with a fault is
delivered, and its response awaited, even when the client has given up.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

BLOCK = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A first line and headers; `raw` is how they came, blank line included."""

    raw: bytes
    first_line: str
    headers: dict[str, str]
    """Names in lower case; values of a repeated name are joined by a comma."""

    @property
    def status(self) -> int:
        return int(self.first_line.split(" ", 2)[1])

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A whole response. Its body is free of chunk framing."""

    status: int
    headers: dict[str, str]
    body: bytes

    def encode(self) -> bytes:
        """Give the bytes to send, with the framing that fits the body."""
        framing = ("transfer-encoding", "content-length")
        headers = {name: text for name, text in self.headers.items() if name.lower() not in framing}
        headers["content-length"] = str(len(self.body))
        try:
            phrase = HTTPStatus(self.status).phrase
        except ValueError:
            phrase = "Unknown"
        lines = [f"HTTP/1.1 {self.status} {phrase}"]
        lines += [f"{name}: {text}" for name, text in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + self.body


async def read_head(reader: asyncio.StreamReader) -> Head:
    raw = await reader.readuntil(b"\r\n\r\n")
    first_line, *lines = raw[:-4].decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, text = line.partition(":")
        key = name.strip().lower()
        headers[key] = f"{headers[key]}, {text.strip()}" if key in headers else text.strip()
    return Head(raw=raw, first_line=first_line, headers=headers)


async def request_body(reader: asyncio.StreamReader, head: Head) -> tuple[bytes, bytes]:
    """Read a request's body; give it as it came and as it was meant."""
    if not head.chunked and "content-length" not in head.headers:
        return b"", b""
    raw = b"".join([block async for block in body_blocks(reader, head)])
    return raw, unchunk(raw) if head.chunked else raw


async def body_blocks(reader: asyncio.StreamReader, head: Head) -> AsyncIterator[bytes]:
    """Yield a body as it comes, framing included, up to its end or the connection's."""
    if head.chunked:
        async for block in _chunks(reader):
            yield block
        return
    length = head.headers.get("content-length")
    left = int(length) if length is not None else None
    while left is None or left > 0:
        block = await reader.read(BLOCK if left is None else min(BLOCK, left))
        if not block:
            if left:
                raise EOFError("the body ended before its length")
            return
        left = None if left is None else left - len(block)
        yield block


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if size:
            yield line + await reader.readexactly(size + 2)
            continue
        while (trailer := await reader.readuntil(b"\r\n")) != b"\r\n":
            line += trailer
        yield line + b"\r\n"
        return


def unchunk(raw: bytes) -> bytes:
    """Take the framing off a chunked body that is known to be whole."""
    body, place = bytearray(), 0
    while True:
        end = raw.index(b"\r\n", place)
        size = int(raw[place:end].partition(b";")[0], 16)
        if not size:
            return bytes(body)
        body += raw[end + 2 : end + 2 + size]
        place = end + 2 + size + 2


SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Far above what a server accepts: refusing a large head is for the server to do.
HEAD_LIMIT = 1024 * 1024


@dataclass(slots=True, kw_only=True)
class Recorded:
    """One request as the proxy saw it; what became of it is filled in as it happens."""

    number: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    deliveries: int = 0
    """How often the whole request was written to the server."""
    status: int | None = None
    """What the server answered last; None when it was not asked or has not answered."""
    response_bytes: int = 0
    """How much of the server's last answer was read, head and framing included."""
    finished: bool = False
    """The proxy is done with it; nothing above changes any more."""

    @property
    def reached_upstream(self) -> bool:
        return self.deliveries > 0


When = int | Callable[[Recorded], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Faults:
    """What is to go wrong with one request; the defaults are nothing."""

    drop_request: bool = False
    hold: asyncio.Event | None = None
    delay: float = 0.0
    hang: bool = False
    answer: Response | None = None
    deliveries: int = 1
    delay_response: float = 0.0
    rewrite: Callable[[Response], Response] | None = None
    drop_response: bool = False
    cut_after: int | None = None
    hang_after: int | None = None


class _Ended(Exception):
    """The client's connection is to be closed now."""


@dataclass(slots=True, kw_only=True)
class _Client:
    """One client's connection, and how much of the present response it was sent."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    faults: _Faults = field(default_factory=_Faults)
    sent: int = 0

    async def send(self, data: bytes) -> None:
        """Pass a piece of the response on, up to where a fault ends it."""
        if not self.sent:
            await asyncio.sleep(self.faults.delay_response)
        limit = self.faults.hang_after if self.faults.cut_after is None else self.faults.cut_after
        part = data if limit is None else data[: limit - self.sent]
        # A client that has left takes no more, but the server is still heard out.
        with suppress(ConnectionError):
            self.writer.write(part)
            await self.writer.drain()
        self.sent += len(part)
        if self.sent == self.faults.cut_after:
            raise _Ended
        if self.sent == self.faults.hang_after:
            await self.left()
            raise _Ended

    async def left(self) -> None:
        """Wait until the client is gone; reading instead would take its next request."""
        # A stream tells of a close by the one, of a reset by the other, and of neither by an event.
        while not (self.reader.at_eof() or self.writer.is_closing()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


class FaultProxy:
    """Listens on loopback, in a thread of its own, while its `with` block runs."""

    def __init__(self, upstream_url: str, *, upstream_tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(upstream_url)
        self._upstream_tls = upstream_tls
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._lock = threading.Lock()
        self._requests: list[Recorded] = []
        self._chosen: list[tuple[When, dict[str, object]]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._error: Exception | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._error is not None and error is None:
            raise self._error

    @property
    def requests(self) -> list[Recorded]:
        """Every request so far, in order."""
        with self._lock:
            return list(self._requests)

    @property
    def mutating(self) -> list[Recorded]:
        """The requests that may change something: by their method, and questions left out."""
        return [
            request
            for request in self.requests
            if request.method not in SAFE_METHODS and not request.path.endswith("/cost")
        ]

    def reset(self) -> None:
        """Forget requests and faults and count from 1 again; open connections stay."""
        with self._lock:
            self._requests = []
            self._chosen = []

    def drop_request(self, when: When) -> None:
        """Close the connection; the server never hears of the request."""
        self._choose(when, drop_request=True)

    def drop_response(self, when: When) -> None:
        """Let the server answer in full, then close the connection without a byte of it."""
        self._choose(when, drop_response=True)

    def cut_response(self, when: When, *, after_bytes: int) -> None:
        """Pass on so many bytes of the response, head included, then close the connection."""
        self._choose(when, cut_after=after_bytes)

    def delay(self, when: When, seconds: float) -> None:
        """Wait before forwarding; the request is delivered even if its client has left."""
        self._choose(when, delay=seconds)

    def hold(self, when: When) -> Callable[[], None]:
        """Keep the request back until the function that this returns is called."""
        gate = asyncio.Event()
        self._choose(when, hold=gate)

        def release() -> None:
            self._loop.call_soon_threadsafe(gate.set)

        return release

    def delay_response(self, when: When, seconds: float) -> None:
        """Forward at once, but wait before passing the first byte of the response on."""
        self._choose(when, delay_response=seconds)

    def hang(self, when: When, *, after_bytes: int | None = None) -> None:
        """Never answer, until either side closes.

        With `after_bytes` the request is forwarded and so much of the response
        is passed on first; without, the server never hears of the request.
        """
        if after_bytes is None:
            self._choose(when, hang=True)
        else:
            self._choose(when, hang_after=after_bytes)

    def replay(self, when: When) -> None:
        """Deliver the request twice, one after the other; the client gets the second answer."""
        self._choose(when, deliveries=2)

    def rewrite_status(
        self,
        when: When,
        status: int,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        """Answer in the server's place, without reaching it."""
        self._choose(when, answer=Response(status=status, headers=dict(headers or {}), body=body))

    def rewrite_response(self, when: When, change: Callable[[Response], Response]) -> None:
        """Let the server answer and pass on what `change` makes of it."""
        self._choose(when, rewrite=change)

    def _choose(self, when: When, **faults: object) -> None:
        with self._lock:
            self._chosen.append((when, faults))

    def _record(self, head: Head, body: bytes) -> tuple[Recorded, _Faults]:
        method, path, _ = head.first_line.split(" ", 2)
        with self._lock:
            request = Recorded(
                number=len(self._requests) + 1,
                method=method,
                path=path,
                headers=head.headers,
                body=body,
            )
            self._requests.append(request)
            faults = _Faults()
            for when, chosen in self._chosen:
                if when(request) if callable(when) else when == request.number:
                    faults = replace(faults, **chosen)
        return request, faults

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(
            self._connected, "127.0.0.1", 0, backlog=1024, limit=HEAD_LIMIT
        )

    async def _close(self) -> None:
        # A server closed between accepting a socket and giving it a transport leaves it open.
        for listener in self._server.sockets:
            self._loop.remove_reader(listener.fileno())
        await _turn_loop()
        self._server.close()
        # A task cancelled before it began, or in a TLS handshake or farewell, leaves its
        # connection open; only the loop knows all of them.
        transports = list(self._loop._transports.values())  # type: ignore[attr-defined]
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for transport in transports:
            transport.abort()
        await _turn_loop()  # which closes a connection that was cut some turns later

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The loop lets go of a connection whose client has left, and of its task with it, which
        # may await a server that answers later; nothing but this would keep it from collection.
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            with suppress(_Ended, OSError, EOFError):
                while await self._serve_one(reader, writer):
                    pass
            writer.close()
            await writer.wait_closed()
        except asyncio.CancelledError:
            writer.transport.abort()
        except OSError:
            pass  # the client reset the connection that was being closed
        except Exception as error:
            # A mistake in a test's predicate or rewriting; the test is to hear of it.
            self._error = error
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Carry one request; say whether the connection can carry another."""
        head = await read_head(reader)
        if head.headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        raw, body = await request_body(reader, head)
        request, faults = self._record(head, body)
        client = _Client(reader=reader, writer=writer, faults=faults)
        try:
            return await self._carry(request, head.raw + raw, client)
        finally:
            request.finished = True

    async def _carry(self, request: Recorded, message: bytes, client: _Client) -> bool:
        faults = client.faults
        if faults == _Faults():
            return await self._carry_while_wanted(request, message, client)
        if faults.hold is not None:
            await faults.hold.wait()
        await asyncio.sleep(faults.delay)
        if faults.drop_request:
            raise _Ended
        if faults.hang:
            await client.left()
            raise _Ended
        if faults.answer is not None:
            await client.send(faults.answer.encode())
            return True
        for _ in range(faults.deliveries - 1):
            await self._exchange(request, message, _discard)
        if faults.drop_response:
            await self._exchange(request, message, _discard)
            raise _Ended
        if faults.rewrite is not None:
            pieces: list[bytes] = []
            head = await self._exchange(request, message, _collect(pieces))
            raw = b"".join(pieces[1:])
            body = unchunk(raw) if head.chunked and raw else raw
            response = Response(status=head.status, headers=head.headers, body=body)
            await client.send(faults.rewrite(response).encode())
            return True
        return _reusable(await self._exchange(request, message, client.send))

    async def _carry_while_wanted(self, request: Recorded, message: bytes, client: _Client) -> bool:
        exchange = asyncio.create_task(self._exchange(request, message, client.send))
        left = asyncio.create_task(client.left())
        try:
            await asyncio.wait({exchange, left}, return_when=asyncio.FIRST_COMPLETED)
            if not exchange.done():
                raise _Ended
            return _reusable(exchange.result())
        finally:
            exchange.cancel()
            left.cancel()
            await asyncio.gather(exchange, left, return_exceptions=True)

    async def _exchange(
        self, request: Recorded, message: bytes, send: Callable[[bytes], Awaitable[None]]
    ) -> Head:
        """Deliver the request once, passing the response to `send` as it comes."""
        reader, writer = await asyncio.open_connection(
            *self._upstream, limit=HEAD_LIMIT, ssl=self._upstream_tls
        )
        try:
            writer.write(message)
            await writer.drain()
            request.deliveries += 1
            head = await read_head(reader)
            while head.status < 200:
                head = await read_head(reader)
            request.status = head.status
            request.response_bytes = len(head.raw)
            await send(head.raw)
            if request.method != "HEAD" and head.status not in (204, 304):
                async for block in body_blocks(reader, head):
                    request.response_bytes += len(block)
                    await send(block)
            return head
        finally:
            writer.transport.abort()


def _reusable(head: Head) -> bool:
    """Say whether the client can tell where this response ended without the connection ending."""
    framed = head.chunked or "content-length" in head.headers or head.status in (204, 304)
    return framed and head.headers.get("connection", "").lower() != "close"


async def _turn_loop() -> None:
    """Let the event loop do what it has put off."""
    for _ in range(5):
        await asyncio.sleep(0)


async def _discard(data: bytes) -> None:
    pass


def _collect(pieces: list[bytes]) -> Callable[[bytes], Awaitable[None]]:
    async def send(data: bytes) -> None:
        pieces.append(data)

    return send
