"""HTTP/1.1 on one connection, with deadlines and without leniency.

The server library gives a connection as much time as it likes to take, and resets what timers
it has at each byte. Here every phase has an absolute deadline: the head, the body, unread
output, idleness. What a parser might read in two ways is answered with 400, and the
connection is closed; the same holds for a second request sent before the first was answered.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import resource
import socket
import struct
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Protocol

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from holdfast.apps.server.authorize import peer_key
from holdfast.apps.server.config import ServerLimits
from holdfast.apps.server.request import encode_json

_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}")
_MAX_SIZE_LINE = 8 + 2


class BadFraming(Exception):
    """The body is not framed as we accept it."""


class ChunkedBody:
    """The state of one chunked body."""

    __slots__ = ("_data", "_last", "_line", "ended")

    def __init__(self) -> None:
        self._data = 0
        """How much of the current chunk is to come, its line end included."""
        self._line = b""
        self._last = False
        self.ended = False

    def feed(self, piece: bytes) -> bytes:
        """Check the next piece; return what lies beyond the end of the body."""
        place = 0
        while place < len(piece) and not self.ended:
            if self._data > 2:
                step = min(self._data - 2, len(piece) - place)
                self._data -= step
                place += step
            elif self._data:
                if piece[place] != b"\r\n"[2 - self._data]:
                    raise BadFraming("a chunk is longer than it said")
                self._data -= 1
                place += 1
            else:
                place = self._size_line(piece, place)
        return piece[place:]

    def _size_line(self, piece: bytes, place: int) -> int:
        end = piece.find(b"\n", place)
        stop = len(piece) if end < 0 else end + 1
        self._line += piece[place:stop]
        if len(self._line) > _MAX_SIZE_LINE:
            raise BadFraming("a chunk has an extension")
        if end < 0:
            return stop
        line, self._line = self._line, b""
        if not line.endswith(b"\r\n"):
            raise BadFraming("a line ends without a carriage return")
        if self._last:
            if line != b"\r\n":
                raise BadFraming("there are trailers")
            self.ended = True
            return stop
        if not _CHUNK_SIZE.fullmatch(line[:-2]):
            raise BadFraming("a chunk has no plain size")
        size = int(line[:-2], 16)
        self._last = size == 0
        self._data = size + 2 if size else 0
        return stop


_HOST_PATTERN = re.compile(
    rb"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?"
)
_CHECKED_HEADERS = frozenset((b"host", b"content-length", b"transfer-encoding"))
_known_hosts: set[bytes] = set()
"""Good Host headers: a server is called by very few names."""
MAX_SKIPPED_BODY = 64 * 1024
"""Up to so much of a body that nobody wants is received, to keep the connection."""
_LINGER_SECONDS = 1.0
"""Seconds in which a refused client may still send, so that it gets to read the refusal."""


PROBE_PATHS = frozenset({b"/healthz", b"/readyz", b"/metrics"})
"""What may be asked even when there is no room for anything else."""
SEND_WHOLE_EXTENSION = "holdfast.whole"
"""The ASGI extension under which the application finds `send_whole`."""


class RequestRefused(Exception):
    """This request ends here, and with it the connection."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class _LingeringTransport:
    """The transport as an answer sees it: closing waits until the client could read."""

    __slots__ = ("_protocol", "is_closing", "write")

    def __init__(self, protocol: StrictProtocol) -> None:
        self._protocol = protocol
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing

    def close(self) -> None:
        self._protocol.close_gently()


class StrictProtocol(HttpToolsProtocol):
    """One connection. Made by `make_protocol`, which gives it its limits."""

    limits: ServerLimits
    room: ConnectionLimiter

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # Any: the library's own
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._received = 0
        self._in_head = False
        self._head = b""
        """The head so far, while it comes in pieces."""
        self._behind = 0
        """How many bytes came behind the end of the head, in the same piece."""
        self._chunks: ChunkedBody | None = None
        """The framing of a chunked body that has not ended."""
        self._left = 0
        """How much of a body with a length is to come."""
        self._gone = False
        """Nothing that comes now is read any more."""
        self._place = Admission.FULL

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self.limits.write_buffer)
        self._closing = _LingeringTransport(self)
        self._extensions = {SEND_WHOLE_EXTENSION: self.send_whole}
        self._place = self.room.enter(self, transport.get_extra_info("peername"))
        if self._place is Admission.NONE:
            self._refuse(_crowded())
        else:
            self._began = self.loop.time()
            self._timer = self.loop.call_later(self.limits.head_time, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        self._cancel_timers()
        self.room.leave(self)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        if self._gone:
            return
        self._unset_keepalive_if_required()
        try:
            if self._left > 0 or self._chunks is not None:
                data = self._take_body(data)
            if data:
                self._check_head(data)
                self.parser.feed_data(data)
        except RequestRefused as refused:
            self._refuse(refused)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, RequestRefused) else _malformed())
        except httptools.HttpParserUpgrade:
            # We speak nothing else. What follows would not be HTTP to the parser.
            self._gone = True
            if self.cycle is not None:
                self.cycle.keep_alive = False
                self.cycle.more_body = False
                self.cycle.message_event.set()
        except httptools.HttpParserError:
            self._refuse(_malformed())
        else:
            if self._timer is not None or self._in_head or self._in_body:
                self._watch_the_clock()

    def on_headers_complete(self) -> None:
        if len(self.url) > self.limits.url_bytes:
            raise RequestRefused(
                414, "url_too_long", f"The URL is over {self.limits.url_bytes} bytes."
            )
        if len(self.headers) > self.limits.head_fields:
            raise RequestRefused(
                431, "head_too_large", f"There are over {self.limits.head_fields} headers."
            )
        version = self.parser.get_http_version()
        if version != "1.1" and (version != "1.0" or self._chunks is not None):
            raise _malformed()
        if not self.url.startswith(b"/") or b"#" in self.url:
            raise _malformed()
        self._check_fields(version)
        if self._place is Admission.PROBE and self.url.partition(b"?")[0] not in PROBE_PATHS:
            raise _crowded()
        super().on_headers_complete()
        if self._place is Admission.PROBE:
            self.cycle.keep_alive = False
        self.cycle.transport = self._closing  # type: ignore[assignment]  # what it uses of it
        self.scope["extensions"] = self._extensions  # type: ignore[typeddict-item]  # and ours

    def send_whole(self, status: int, head: bytes, body: bytes) -> bool:
        """Send a whole answer at once; False when it has to be sent in the usual way.

        `head` holds complete header lines that the caller vouches for. In place of the library's
        two messages, each checked and written apart, this takes a third of the time.
        """
        cycle = self.cycle
        if cycle.response_started or self.flow.write_paused:
            return False
        if cycle.disconnected:
            return True
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        lines = [STATUS_LINE[status]]
        for name, value in self.server_state.default_headers:
            lines += (name, b": ", value, b"\r\n")
        lines += (head, b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
        if self.scope["method"] != "HEAD":
            lines.append(body)
        self.transport.write(b"".join(lines))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.close_gently()
        cycle.on_response()
        return True

    def on_response_complete(self) -> None:
        if self._chunks is not None or self._left > MAX_SKIPPED_BODY:
            # Answered before the body was read, and the rest is not worth waiting for.
            self.server_state.total_requests += 1
            self.close_gently()
            return
        super().on_response_complete()

    def close_gently(self) -> None:
        """End the connection; while a body is still coming, not before the client could read."""
        if self._in_body and not self._gone:
            self._close_after_lingering()
        elif not self._in_body:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.limits.write_time, self._cut)

    def _cut(self) -> None:
        """Drop the connection with all that is unread, instead of leaving it to the kernel."""
        held = self.transport.get_extra_info("socket")
        if held is not None:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    @property
    def idle(self) -> bool:
        """True while no whole request of it is being answered."""
        return not self._gone and (self.cycle is None or self.cycle.response_complete)

    def make_room(self) -> None:
        """End an idle connection in favour of a new one."""
        self._gone = True
        self._cancel_timers()
        self.transport.close()

    @property
    def _in_body(self) -> bool:
        return self._left > 0 or self._chunks is not None

    def _take_body(self, data: bytes) -> bytes:
        """Give the parser what belongs to the body; return what lies behind it."""
        self._received += len(data)
        if self._chunks is not None:
            behind = self._feed_chunks(self._chunks, data)
            data = data[: len(data) - len(behind)]
        else:
            data, behind = data[: self._left], data[self._left :]
            self._left -= len(data)
        if behind and not self.cycle.response_complete:
            raise _pipelined()
        self.parser.feed_data(data)
        return behind

    def _check_head(self, data: bytes) -> None:
        """Check a piece that begins or continues a head, before the parser sees it."""
        if self._in_head:
            self._received += len(data)
            head = self._head + data
        else:
            if self.cycle is not None and not self.cycle.response_complete:
                raise _pipelined()
            if data[0] in b"\r\n":
                raise _malformed()
            self._received = len(data)
            self._began = self.loop.time()
            head = data
        end = head.find(b"\r\n\r\n")
        if (len(head) if end < 0 else end) > self.limits.head_bytes:
            if b"\r\n" not in head[: self.limits.head_bytes]:
                raise RequestRefused(414, "url_too_long", "The URL is too long.")
            raise RequestRefused(
                431, "head_too_large", f"The head is over {self.limits.head_bytes} bytes."
            )
        self._in_head = end < 0
        self._head = head if end < 0 else b""
        self._behind = len(head) - end - 4
        if end >= 0 and b"\r\ntransfer-encoding:" in head[:end].lower():
            self._chunks = ChunkedBody()
            if self._feed_chunks(self._chunks, head[end + 4 :]):
                raise _pipelined()

    def _feed_chunks(self, chunks: ChunkedBody, data: bytes) -> bytes:
        try:
            behind = chunks.feed(data)
        except BadFraming as error:
            raise RequestRefused(400, "bad_request", f"The body is malformed: {error}.") from error
        if chunks.ended:
            self._chunks = None
        return behind

    def _check_fields(self, version: str) -> None:
        hosts = 0
        length = 0
        chunked = False
        for name, value in self.headers:
            if name in _CHECKED_HEADERS:
                if name == b"host":
                    hosts += 1
                    if value not in _known_hosts:
                        _check_host(value)
                elif name == b"content-length":
                    if not value.isdigit():
                        raise _malformed()
                    length = int(value)
                elif value.lower() == b"chunked" and version == "1.1":
                    chunked = True
                else:
                    raise RequestRefused(
                        400, "bad_request", "The only transfer encoding is chunked."
                    )
        if hosts != 1 and (hosts or version == "1.1"):
            raise RequestRefused(400, "bad_request", "There must be exactly one Host header.")
        if not chunked:
            self._left = length - self._behind
            if self._left < 0:
                raise _pipelined()

    def _watch_the_clock(self) -> None:
        """Arm a deadline while a request is incomplete; a whole one costs no timer."""
        if self._timer is not None:
            if not (self._in_head or self._in_body):
                self._timer.cancel()
                self._timer = None
        else:
            limit = self.limits.head_time if self._in_head else self.limits.body_time
            self._timer = self.loop.call_later(limit, self._late)

    def _late(self) -> None:
        self._timer = None
        if self._gone:
            return
        if self._in_body:
            earned = self._received / self.limits.body_rate
            left = self._began + self.limits.body_time + earned - self.loop.time()
        else:
            left = self._began + self.limits.head_time - self.loop.time()
        if left > 0:
            self._timer = self.loop.call_later(left, self._late)
        elif not self._received:
            self.transport.close()
        else:
            self._refuse(RequestRefused(408, "too_slow", "The request did not arrive in time."))

    def _refuse(self, refused: RequestRefused) -> None:
        busy = self.cycle is not None and not self.cycle.response_complete
        if busy and self.cycle.response_started:
            # An answer is under way and may end; this connection then ends too.
            self._gone = True
            self.cycle.keep_alive = False
            if self._in_body:
                self.transport.close()
            return
        if busy and refused.code == "pipelined":
            self._gone = True
            self.cycle.keep_alive = False
            return
        body = encode_json({"error": refused.code, "message": refused.message})
        head = [
            STATUS_LINE[refused.status],
            b"content-type: application/json\r\ncontent-length: ",
            str(len(body)).encode(),
            b"\r\nretry-after: 1" if refused.status == 503 else b"",
            b"\r\nconnection: close\r\n\r\n",
        ]
        self.transport.write(b"".join([*head, body]))
        if busy:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._close_after_lingering()

    def _close_after_lingering(self) -> None:
        """Close once the client has had time to read: unread input would reset the connection."""
        self._gone = True
        self._cancel_timers()
        self.flow.resume_reading()
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        self._timer = self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def eof_received(self) -> None:
        # The other side has said all it will; lingering has no more purpose.
        if self._gone and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._write_timer = None


def _check_host(value: bytes) -> None:
    if not _HOST_PATTERN.fullmatch(value):
        raise RequestRefused(400, "bad_request", "The Host header is malformed.")
    if len(_known_hosts) < 256:
        _known_hosts.add(value)


def make_protocol(limits: ServerLimits) -> type[StrictProtocol]:
    """Return the protocol class for a server with these limits.

    Each connection is an open file, and one to a workload may be another: there are never more
    than half of what the system allows.
    """
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed != resource.RLIM_INFINITY:
        most = min(limits.connections, max(16, allowed // 2 - limits.probe_connections))
        limits = replace(limits, connections=most)
    return type(
        "LimitedProtocol", (StrictProtocol,), {"limits": limits, "room": ConnectionLimiter(limits)}
    )


class Admission(Enum):
    """What a connection may be used for."""

    FULL = auto()
    PROBE = auto()
    """Probes alone: everything else is taken."""
    NONE = auto()


class LimitedConnection(Protocol):
    """What the room asks of a connection."""

    @property
    def idle(self) -> bool: ...
    def make_room(self) -> None: ...


class ConnectionLimiter:
    """Who is connected, so that nobody can take up all the room by holding on to it.

    A new connection that finds a limit reached takes the place of the longest idle one under
    that limit: of its own address, or else of the address that has the most. Only when all of
    them are being answered is it let in for probes alone, and then refused.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._peers: dict[str, dict[LimitedConnection, None]] = {}
        self._peer_of: dict[LimitedConnection, str] = {}

    def enter(self, connection: LimitedConnection, peer: object) -> Admission:
        """Find a place for a connection that was accepted."""
        address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        key, local = peer_key(address), _is_loopback(address)
        limits = self._limits
        own = self._peers.get(key, {})
        most = limits.connections - (0 if local else limits.loopback_connections)
        place = Admission.FULL
        if not local and len(own) >= limits.peer_connections:
            place = Admission.FULL if self._closed_one(own) else Admission.PROBE
        elif len(self._peer_of) >= most:
            crowd = max(self._peers.values(), key=len, default={})
            place = (
                Admission.FULL
                if self._closed_one(crowd) or self._closed_one(own)
                else Admission.PROBE
            )
        if (
            place is Admission.PROBE
            and len(self._peer_of) >= limits.connections + limits.probe_connections
        ):
            return Admission.NONE
        self._peers.setdefault(key, {})[connection] = None
        self._peer_of[connection] = key
        return place

    def leave(self, connection: LimitedConnection) -> None:
        """Forget a connection that ended."""
        key = self._peer_of.pop(connection, None)
        if key is not None:
            self._peers[key].pop(connection, None)
            if not self._peers[key]:
                del self._peers[key]

    def _closed_one(self, connections: Iterable[LimitedConnection]) -> bool:
        """End the oldest idle one; False when none is idle."""
        found = next((each for each in connections if each.idle), None)
        if found is not None:
            self.leave(found)
            found.make_room()
        return found is not None


def _is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address == ""  # a socket in the file system
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def _crowded() -> RequestRefused:
    return RequestRefused(503, "too_many_connections", "The server has no room left. Try again.")


def _malformed() -> RequestRefused:
    return RequestRefused(400, "bad_request", "The request is malformed.")


def _pipelined() -> RequestRefused:
    return RequestRefused(400, "pipelined", "Send the next request once this one is answered.")
