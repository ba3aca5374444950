"""One watch: the events of a kind from a version until the stream ends.

Failures are distinguished for the informer: an end is normal, an expired version needs a new
list, and silence is a failure, as a live watch says something at least once a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import aiohttp
import msgspec

from holdfast.adapters.kubernetes.connection import KubeConnection
from holdfast.adapters.kubernetes.objects import Object, Resource
from holdfast.adapters.kubernetes.responses import (
    ApiStatus,
    KubeResponse,
    response_error,
    stream_error,
)
from holdfast.core.errors import NotFound, TargetUnavailable
from holdfast.core.quantity import format_seconds
from holdfast.reconcile.kube import KindNotServed, WatchEvent, WatchEventType

LINE_LIMIT = 64 * 2**20
"""No object comes near this; a line that does is no event."""


class LineTooLong(Exception):
    """The other side does not speak in lines."""


class LineFramer:
    """Takes bytes as they come and gives whole lines, without their ends and without empty ones."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes. Raises LineTooLong."""
        first, *rest = chunk.split(b"\n")
        # Parts are joined once per line: a long line in small chunks must not cost its square.
        self._parts.append(first)
        self._held += len(first)
        if self._held > self._limit:
            raise LineTooLong(f"a line of more than {self._limit} bytes")
        if not rest:
            return []
        lines = [b"".join(self._parts), *rest[:-1]]
        self._parts = [rest[-1]]
        self._held = len(rest[-1])
        return [line for line in (each.rstrip(b"\r") for each in lines) if line]

    @property
    def partial(self) -> int:
        """How many bytes of an unfinished line are held."""
        return self._held


SILENCE_TIMEOUT = 75.0
"""Bookmarks come about every 61 s, whether anything happens or not."""
RESPONSE_TIMEOUT = 30.0
_MIN_SECONDS, _MAX_SECONDS = 300.0, 600.0
"""A watch ends by itself after this long, spread so that not all end at once."""


class WatchSilent(TargetUnavailable):
    """Nothing came for too long: the stream is dead, or its version is from the future."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceScope:
    """Which objects are followed."""

    resource: Resource
    namespace: str = ""
    labels: str = ""
    fields: str = ""

    @property
    def selectors(self) -> dict[str, str]:
        """The query parameters that select these objects."""
        chosen = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in chosen.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """A part of a list. `token` asks for the next; it is empty on the last."""

    items: list[Object]
    version: str
    token: str


class _WatchLine(msgspec.Struct):
    type: str
    object: Object


_decoder = msgspec.json.Decoder(_WatchLine)


async def watch_resource(
    connection: KubeConnection,
    scope: ResourceScope,
    *,
    version: str,
    silence: float = SILENCE_TIMEOUT,
    opened: Callable[[], None] = lambda: None,
) -> AsyncGenerator[WatchEvent, None]:
    """Yield what happens after a version, for some minutes. Calls `opened` once the server agreed.

    Raises VersionExpired, in whichever of its two forms the server says so, WatchSilent, and
    TargetUnavailable for a stream that broke. Half a line at the end is a broken stream too.
    """
    seconds = _MIN_SECONDS + (_MAX_SECONDS - _MIN_SECONDS) * connection.chance()
    path = scope.resource.path(namespace=scope.namespace)
    where = f"Watching {path} of {connection.config.server}"
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(round(seconds)),
        **scope.selectors,
    }
    framer = LineFramer()
    async with connection.stream(path, params=params, within=RESPONSE_TIMEOUT) as response:
        if response.status != 200:
            raise await _watch_error(response, where, scope.resource.secret)
        opened()
        while True:
            try:
                async with asyncio.timeout(silence):
                    chunk = await response.content.readany()
            except TimeoutError:
                raise WatchSilent(f"{where} sent nothing for {format_seconds(silence)}.") from None
            except (aiohttp.ClientError, OSError) as error:
                raise TargetUnavailable(f"{where} broke off ({type(error).__name__}).") from None
            if not chunk:
                break
            try:
                lines = framer.feed(chunk)
            except LineTooLong as error:
                raise TargetUnavailable(f"{where} sent {error}.") from None
            for line in lines:
                yield _parse_event(line, where, scope.resource.secret)
    if framer.partial:
        raise TargetUnavailable(f"{where} ended inside an event.")


def _parse_event(line: bytes, where: str, secret: bool) -> WatchEvent:
    try:
        read = _decoder.decode(line)
        if read.type == "ERROR":
            status = msgspec.convert(read.object, ApiStatus)
            raise stream_error(where, status, secret=secret)
        return WatchEvent(type=WatchEventType(read.type), item=read.object)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        raise TargetUnavailable(f"{where} sent a line that is not an event.") from None


async def _watch_error(response: aiohttp.ClientResponse, where: str, secret: bool) -> Exception:
    try:
        async with asyncio.timeout(RESPONSE_TIMEOUT):
            body = await response.read()
    except (TimeoutError, aiohttp.ClientError, OSError):
        body = b""
    error = response_error(
        KubeResponse(
            method="GET", where=where, status=response.status, headers={}, body=body, secret=secret
        )
    )
    return not_served(error) if isinstance(error, NotFound) else error


def not_served(error: NotFound) -> KindNotServed:
    """A list exists even when nothing is in it, so one that is not found is a kind's absence."""
    return KindNotServed(error.happened, hint="Install the kind's definition.")
