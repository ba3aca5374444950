"""Changes to the events of a watch on their way through the fault proxy.

A change gets whole events and gives what the client is to see in their place. Used by
tests/faults/kube_faults.py alone.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeAlias
from urllib.parse import parse_qs, urlsplit

from tests.support.certificates import Authority, Certificate
from tests.support.cluster import Cluster
from tests.support.control_plane import write_kubeconfig
from tests.support.fault_proxy import (
    HEAD_LIMIT,
    FaultProxy,
    Head,
    Recorded,
    Response,
    When,
    _Client,
    _discard,
    _Ended,
    _Faults,
    unchunk,
)

Event: TypeAlias = dict[str, Any]  # Any: objects of the Kubernetes API as they come over the wire
Change: TypeAlias = Callable[[Event], list[Event]]
Send: TypeAlias = Callable[[bytes], Awaitable[None]]

LAST_CHUNK = b"0\r\n\r\n"


class StreamSilenced(Exception):
    """From now on the client hears nothing, and the connection stays open."""


class StreamEnded(Exception):
    """The stream ends, in good order, after these events."""

    def __init__(self, *events: Event) -> None:
        self.events = list(events)


def silence_after(events: int) -> Change:
    return _raise_after(events, StreamSilenced())


def expire_after(events: int, status: Event) -> Change:
    return _raise_after(events, StreamEnded({"type": "ERROR", "object": status}))


def duplicate_event(event: Event) -> list[Event]:
    return [event, event]


def swap_events() -> Change:
    """Give the events two by two in the wrong order; bookmarks keep their place."""
    held: list[Event] = []

    def change(event: Event) -> list[Event]:
        if event["type"] == "BOOKMARK":
            return [*_take_all(held), event]
        if not held:
            held.append(event)
            return []
        return [event, *_take_all(held)]

    return change


def coalesce_events() -> Change:
    """Leave out every event that another one about the same object follows directly."""
    held: list[Event] = []

    def change(event: Event) -> list[Event]:
        if held and _object_key(held[-1]) == _object_key(event) and event["type"] == "MODIFIED":
            # What began as an addition still looks like one to who never saw it.
            event = {**event, "type": held.pop()["type"]}
        out = _take_all(held)
        if event["type"] == "BOOKMARK":
            return [*out, event]
        held.append(event)
        return out

    return change


class EventFilter:
    """Sits in a response: passes its head on, and its events as the change has them."""

    def __init__(self, change: Change, send: Send) -> None:
        self._change = change
        self._send = send
        self._head = True
        self._partial = b""
        self._silent = False

    async def __call__(self, data: bytes) -> None:
        if self._head:
            self._head = False
            await self._send(data)
            return
        if self._silent:
            return
        if data == LAST_CHUNK:
            await self._send(data)
            return
        *lines, self._partial = (self._partial + unchunk(data + LAST_CHUNK)).split(b"\n")
        for line in lines:
            try:
                events = self._change(json.loads(line))
            except StreamSilenced:
                self._silent = True
                return
            except StreamEnded as over:
                await self._events(over.events)
                await self._send(LAST_CHUNK)
                raise _Ended from None
            await self._events(events)

    async def _events(self, events: list[Event]) -> None:
        if events:
            text = b"".join(json.dumps(event).encode() + b"\n" for event in events)
            await self._send(b"%x\r\n%b\r\n" % (len(text), text))


def _raise_after(events: int, then: Exception) -> Change:
    seen = 0

    def change(event: Event) -> list[Event]:
        nonlocal seen
        if seen == events:
            raise then
        seen += event["type"] != "BOOKMARK"
        return [event]

    return change


def _take_all(held: list[Event]) -> list[Event]:
    out = list(held)
    held.clear()
    return out


def _object_key(event: Event) -> tuple[str, str]:
    metadata = event["object"]["metadata"]
    return metadata.get("namespace", ""), metadata.get("name", "")


HTML = b"<html><body><h1>%d</h1>The gateway could not complete your request.</body></html>"
REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
"""What the API server says beside each status. 502 only ever comes from something in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """One request in the API server's own terms."""

    method: str
    resource: str
    """The plural, with its subresource; empty for a path that is about no kind."""
    namespace: str
    name: str
    manager: str
    user_agent: str
    watch: bool
    dry_run: bool
    status: int | None
    """What the API server answered, whatever the client was told."""

    @property
    def about(self) -> str:
        """The object, to count by: `deployments/NAMESPACE/NAME`."""
        return "/".join((self.resource, self.namespace, self.name))

    @property
    def write(self) -> bool:
        return self.method not in ("GET", "HEAD", "OPTIONS") and not self.dry_run


_PATH = re.compile(
    r"/(?:api/[^/]+|apis/[^/]+/[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"(?:/(?P<resource>[^/]+))?(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?$"
)


def api_call_of(request: Recorded) -> ApiCall:
    """Read what a request was about from its address."""
    parts = urlsplit(request.path)
    query = parse_qs(parts.query)
    found = _PATH.fullmatch(parts.path)
    part: dict[str, str] = {k: v or "" for k, v in found.groupdict().items()} if found else {}
    sub = part.get("subresource", "")
    name = part.get("name", "")
    if request.method == "POST" and not name and request.body.startswith(b"{"):
        name = json.loads(request.body).get("metadata", {}).get("name", "")
    return ApiCall(
        method=request.method,
        resource=part.get("resource", "") + (f"/{sub}" if sub else ""),
        namespace=part.get("namespace", ""),
        name=name,
        manager=query.get("fieldManager", [""])[0],
        user_agent=request.headers.get("user-agent", ""),
        watch=query.get("watch", [""])[0] in ("true", "1"),
        dry_run="dryRun" in query,
        status=request.status,
    )


class calls:  # noqa: N801  # reads as a phrase: answer(calls("GET"), 503)
    """The nth and the following requests that match. Each use counts for itself."""

    def __init__(
        self,
        method: str = "",
        path: str = "",
        *,
        nth: int = 1,
        times: int | None = 1,
        watch: bool | None = None,
        writes: bool | None = None,
    ) -> None:
        self._method = method
        self._path = re.compile(path)
        self._watch = watch
        self._writes = writes
        self._first = nth
        self._last = None if times is None else nth + times - 1
        self.seen = 0
        """How many requests matched, whether their turn had come or not."""

    def __call__(self, request: Recorded) -> bool:
        call = api_call_of(request)
        if (
            (self._method and call.method != self._method)
            or not self._path.search(request.path)
            or (self._watch is not None and call.watch != self._watch)
            or (self._writes is not None and call.write != self._writes)
        ):
            return False
        self.seen += 1
        return self.seen >= self._first and (self._last is None or self.seen <= self._last)

    @property
    def hit(self) -> bool:
        """Whether the fault has happened at least once."""
        return self.seen >= self._first


def failure_status(code: int) -> Event:
    """Give the API server's form of a refusal."""
    said = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**said, "code": code, "reason": REASONS.get(code, ""), "message": "scripted"}


class KubeFaults(FaultProxy):
    """The proxy; `kubeconfig` points at it while its `with` block runs."""

    def __init__(
        self,
        server: str,
        authority: Authority,
        directory: Path,
        *,
        user: str = "fault-proxy",
        groups: tuple[str, ...] = ("system:masters",),
        namespace: str = "default",
        tls: bool = False,
    ) -> None:
        upstream = ssl.create_default_context(cafile=str(authority.certificate))
        _load(upstream, authority.issue(user, groups=groups))
        super().__init__(server, upstream_tls=upstream)
        self.kubeconfig = directory / f"{user}.kubeconfig"
        self._authority = authority
        self._namespace = namespace
        self._serving: ssl.SSLContext | None = None
        if tls:
            self._serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            _load(self._serving, authority.issue("faults", hosts=["IP:127.0.0.1"]))
        self._streams: list[tuple[When, Callable[[], Change]]] = []
        self._resets: list[tuple[When, bool]] = []
        self._frozen: list[tuple[When, dict[str, Response]]] = []
        # What was chosen for requests that are under way, by identity.
        self._changes: dict[int, Change] = {}
        self._to_reset: dict[int, bool] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        if self._serving is not None:
            self.url = self.url.replace("http://", "https://")
        write_kubeconfig(
            self.kubeconfig,
            server=self.url,
            authority=self._authority.certificate,
            user={},
            namespace=self._namespace,
        )
        return self

    @property
    def calls(self) -> list[ApiCall]:
        """Every request so far, in order, in the API server's terms."""
        return [api_call_of(request) for request in self.requests]

    def created(self) -> Counter[str]:
        """Count by object what the API server says it created, by whichever verb."""
        return Counter(call.about for call in self.calls if call.write and call.status == 201)

    def deleted(self) -> Counter[str]:
        """Count by object the deletions that the API server granted."""
        found = (call for call in self.calls if call.method == "DELETE")
        return Counter(call.about for call in found if call.status in (200, 202))

    def heal(self) -> None:
        """Forget the faults; what was recorded stays, and open connections keep theirs."""
        with self._lock:
            self._chosen, self._streams, self._resets, self._frozen = [], [], [], []

    def answer(
        self, when: When, code: int, *, html: bool = False, retry_after: int | None = None
    ) -> None:
        """Answer in the API server's place: as it would, or as a gateway before it would."""
        headers = {"content-type": "text/html" if html else "application/json"}
        if retry_after is not None:
            headers["retry-after"] = str(retry_after)
        body = HTML % code if html else json.dumps(failure_status(code)).encode()
        self.rewrite_status(when, code, headers=headers, body=body)

    def lose_answer(self, when: When, code: int) -> None:
        """Let the server do what it was asked, and answer as a gateway that gave up waiting."""
        body = HTML % code
        lost = Response(status=code, headers={"content-type": "text/html"}, body=body)
        self.rewrite_response(when, lambda _: lost)

    def reset_connection(self, when: When, *, after_commit: bool = False) -> None:
        """Reset the connection (RST, no orderly end), before or after the server did its part."""
        with self._lock:
            self._resets.append((when, after_commit))

    def freeze(self, when: When) -> None:
        """Answer with the first answer that each address got, as a server left behind does."""
        with self._lock:
            self._frozen.append((when, {}))

    def change_events(self, when: When, make: Callable[[], Change]) -> None:
        """Pass the events of a watch through a change, made anew for each watch."""
        with self._lock:
            self._streams.append((when, make))

    def expire(self, when: When, *, after: int) -> None:
        """End a watch with an ERROR event of code 410 in its 200 stream, after so many events."""
        self.change_events(when, lambda: expire_after(after, failure_status(410)))

    def silence(self, when: When, *, after: int) -> None:
        """Let a watch fall silent after so many events, its connection open."""
        self.change_events(when, lambda: silence_after(after))

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(
            self._connected, "127.0.0.1", 0, backlog=1024, limit=HEAD_LIMIT, ssl=self._serving
        )

    def _record(self, head: Head, body: bytes) -> tuple[Recorded, _Faults]:
        request, faults = super()._record(head, body)
        with self._lock:
            for when, make in self._streams:
                if _matches(when, request):
                    self._changes[id(request)] = make()
            for when, after_commit in self._resets:
                if _matches(when, request):
                    self._to_reset[id(request)] = after_commit
            for when, kept in self._frozen:
                if _matches(when, request):
                    faults = replace(faults, rewrite=partial(kept.setdefault, request.path))
        return request, faults

    async def _carry(self, request: Recorded, message: bytes, client: _Client) -> bool:
        try:
            after_commit = self._to_reset.pop(id(request), None)
            if after_commit is None:
                return await super()._carry(request, message, client)
            if after_commit:
                await self._exchange(request, message, _discard)
            _reset(client.writer)
            raise _Ended
        finally:
            self._changes.pop(id(request), None)

    async def _exchange(self, request: Recorded, message: bytes, send: Send) -> Head:
        change = self._changes.get(id(request))
        return await super()._exchange(
            request, message, send if change is None else EventFilter(change, send)
        )


def faults_before(cluster: Cluster, directory: Path, **options: Any) -> KubeFaults:  # Any: as there
    """Give a proxy before the cluster of the test run."""
    return KubeFaults(
        cluster.server, Authority(directory=cluster.directory / "pki"), directory, **options
    )


def _matches(when: When, request: Recorded) -> bool:
    return when(request) if callable(when) else when == request.number


def _reset(writer: asyncio.StreamWriter) -> None:
    held: socket.socket | None = writer.get_extra_info("socket")
    if held is not None:
        # A zero linger makes the close a reset; only the descriptor behind asyncio's wrapper can.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _load(context: ssl.SSLContext, identity: Certificate) -> None:
    context.load_cert_chain(identity.certificate, identity.key)
