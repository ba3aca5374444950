"""One watch: the events of a kind from a version on, until the stream ends.

What went wrong is told apart for the informer: an end is normal, an expired version needs a new
list, and silence is a failure, as a live watch says something at least once a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import aiohttp
import msgspec

from holdfast.adapters.kubernetes.api import KubeApi
from holdfast.adapters.kubernetes.errors import Reply, Status, error_in_stream, error_of
from holdfast.adapters.kubernetes.framing import LineFramer, LineTooLong
from holdfast.adapters.kubernetes.objects import Object, Resource
from holdfast.core.errors import TargetUnavailable
from holdfast.reconcile.kube import EventType, WatchEvent

SILENCE = 75.0
"""Bookmarks come about every 61 s, whether anything happens or not."""
HEAD = 30.0


class WatchSilent(TargetUnavailable):
    """Nothing came for too long: the stream is dead, or its version is from the future."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which objects are followed."""

    resource: Resource
    namespace: str = ""
    labels: str = ""
    fields: str = ""


class _Line(msgspec.Struct):
    type: str
    object: Object


_decoder = msgspec.json.Decoder(_Line)


async def watch(
    api: KubeApi, scope: Scope, *, version: str, lasting: float, silence: float = SILENCE
) -> AsyncGenerator[WatchEvent, None]:
    """Yield what happens after a version, for at most `lasting` seconds.

    Raises Expired, in whichever of its two forms the server says so, WatchSilent, and
    TargetUnavailable for a stream that broke. Half a line at the end is a broken stream too.
    """
    path = scope.resource.path(namespace=scope.namespace)
    where = f"Watching {path} of {api.connection.config.server}"
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(max(1, round(lasting))),
        **({"labelSelector": scope.labels} if scope.labels else {}),
        **({"fieldSelector": scope.fields} if scope.fields else {}),
    }
    framer = LineFramer()
    async with api.connection.stream(path, params=params, within=HEAD) as response:
        if response.status != 200:
            raise await _refusal(response, where, scope.resource.secret)
        while True:
            try:
                async with asyncio.timeout(silence):
                    chunk = await response.content.readany()
            except TimeoutError:
                raise WatchSilent(f"{where} brought nothing for {silence:g} s.") from None
            except (aiohttp.ClientError, OSError) as error:
                raise TargetUnavailable(f"{where} broke off ({type(error).__name__}).") from None
            if not chunk:
                break
            try:
                lines = framer.feed(chunk)
            except LineTooLong as error:
                raise TargetUnavailable(f"{where} brought {error}.") from None
            for line in lines:
                yield _event(line, where, scope.resource.secret)
    if framer.partial:
        raise TargetUnavailable(f"{where} ended inside an event.")


def _event(line: bytes, where: str, secret: bool) -> WatchEvent:
    try:
        read = _decoder.decode(line)
        if read.type == "ERROR":
            status = msgspec.convert(read.object, Status)
            raise error_in_stream(where, status, secret=secret)
        return WatchEvent(type=EventType(read.type), item=read.object)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        raise TargetUnavailable(f"{where} brought a line that is no event.") from None


async def _refusal(response: aiohttp.ClientResponse, where: str, secret: bool) -> Exception:
    try:
        async with asyncio.timeout(HEAD):
            body = await response.read()
    except (TimeoutError, aiohttp.ClientError, OSError):
        body = b""
    return error_of(
        Reply(
            method="GET",
            where=where,
            status=response.status,
            headers={},
            body=body,
            secret=secret,
        )
    )
