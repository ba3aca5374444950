"""The data plane: passes a request to a replica of its workload and the answer back.

Nothing is held back on the way: pieces go on as they come, in both directions. A request
whose replica could not be reached, or died before it answered, goes to another one as long
as the client has seen nothing and the body is still at hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from holdfast.adapters.runner import ReplicaLease
from holdfast.adapters.store import WorkloadRecord
from holdfast.apps.server.authorize import find_keyed_record
from holdfast.apps.server.config import MEBIBYTE
from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.request import (
    ClientDisconnected,
    Headers,
    HttpResponse,
    HttpStream,
    Request,
    body_too_large,
    check_body,
    declared_length,
    read_body,
    receive_part,
)
from holdfast.apps.server.services import Services
from holdfast.apps.server.streams import StreamEnd, server_sent_event, watch_client
from holdfast.core.live import Phase, Status
from holdfast.core.names import WorkloadId
from holdfast.core.quantity import format_seconds
from holdfast.core.tree import Fields

MAX_ATTEMPTS = 3
_MAX_BUFFERED = 256 * 1024
"""Answers up to this size are read before anything is sent, so that they can be had anew."""

_HOP_BY_HOP = frozenset(
    (
        b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te"
        b" trailer trailers transfer-encoding upgrade"
    ).split()
)
_DROPPED_REQUEST_HEADERS = _HOP_BY_HOP | frozenset(
    (
        b"authorization host content-length cookie expect forwarded x-forwarded-for"
        b" x-forwarded-host x-forwarded-proto x-real-ip x-request-id"
    ).split()
)
_RETURNED_HEADERS = frozenset(
    (
        b"content-type content-encoding content-language content-disposition content-range"
        b" accept-ranges retry-after allow x-accel-buffering"
    ).split()
)
_RETURNED_PREFIXES = (
    b"openai-", b"x-backend-", b"x-ratelimit-", b"x-compute-", b"x-inference-", b"x-model-",
    b"x-prompt-", b"x-generated-", b"x-queue-", b"x-validation-", b"x-total-", b"x-time-",
)  # fmt: skip
"""What a workload may say beside its answer. The rest is dropped: on this origin a cookie, a
permission for other origins, a redirect or an order to a proxy would speak for the server."""
_SANDBOX_HEADERS: Headers = [
    (b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
"""A page that a workload answers with runs nothing and belongs to no origin."""
_SKIPPED_AUTO_HEADERS = frozenset({"User-Agent", "Accept-Encoding", "Accept", "Content-Type"})
_BODY_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


class StreamInterrupted(Exception):
    """The replica stopped in the middle of its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedWorkload:
    """A workload that may be asked, wherever it runs."""

    id: WorkloadId
    fields: Fields
    acquire: Callable[[Collection[str]], ReplicaLease | None]
    """Take a replica for one request, and none of those given; None while there is none."""
    status: Callable[[], Status]
    wake: Callable[[Collection[str]], Awaitable[ReplicaLease | None]] | None = None
    """Wait for a replica, and none of those given, and take it; gives None where it waited in vain,
    or where one of those given is still there. None for a workload that always has replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """What is sent to a replica."""

    method: str
    path: str
    """Below `/v1/`, with its query."""
    headers: CIMultiDict[str]
    body: bytes | _Upload


async def proxy_request(services: Services, request: Request) -> HttpResponse | HttpStream:
    """Pass a request to the workload that the key opens."""
    record = find_keyed_record(services.store, services.cache, request, request.params["workload"])
    return await forward_request(services, request, serve_record(services, record))


def serve_record(services: Services, record: WorkloadRecord) -> ServedWorkload:
    """Say how a workload of this machine is reached."""
    supervisor = services.supervisor
    return ServedWorkload(
        id=record.id,
        fields=record.fields,
        acquire=partial(supervisor.acquire, record.uid),
        status=partial(supervisor.status, record.uid),
    )


async def forward_request(
    services: Services, request: Request, served: ServedWorkload, body: bytes | None = None
) -> HttpResponse | HttpStream:
    """Pass a request that was let in to its workload; `body` where it was read already."""
    limits = services.config.limits
    sent: bytes | _Upload
    if body is not None:
        sent = body
    else:
        check_body(request, limits.data_body)
        length = declared_length(request)
        if length is None and b"transfer-encoding" not in request.headers:
            length = 0
        if length is not None and length <= limits.replay_body:
            sent = await read_body(request, limits.replay_body)
        else:
            sent = _Upload(request, limits.data_body)
    query = request.scope["query_string"].decode("ascii")
    path = request.params["path"]
    upstream = UpstreamRequest(
        method=request.method,
        path=f"{path}?{query}" if query else path,
        headers=_request_headers(request),
        body=sent,
    )
    return await ask_replica(services, request, served, upstream)


async def ask_replica(
    services: Services, request: Request, served: ServedWorkload, upstream: UpstreamRequest
) -> HttpResponse | HttpStream:
    """Send a request to a replica, and to another one where that is safe.

    Ends when the client of `request` leaves, or may no longer ask.
    """
    body = upstream.body
    uploaded = None if isinstance(body, bytes) else body.done
    async with watch_client(services, request, until_closing=False, body_read=uploaded) as watch:
        if isinstance(body, bytes):
            return await _forward_with_retries(services, served, upstream)
        return await _forward_once(services, served, upstream, body)
    raise ClientDisconnected if watch.ended is StreamEnd.LEFT else _revoked()


async def _forward_with_retries(
    services: Services, served: ServedWorkload, upstream: UpstreamRequest
) -> HttpResponse | HttpStream:
    tried: list[str] = []
    lease = await _acquire_lease(services, served)
    while True:
        tried.append(lease.replica)
        with suppress(aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
            return await _send_to_replica(services, served, upstream, lease)
        another = None
        if len(tried) < MAX_ATTEMPTS:
            another = served.acquire(tried)
            if another is None and served.wake is not None:
                another = await served.wake(tried)
        if another is None:
            services.metrics.proxied.labels("unreachable").inc()
            raise _unreachable()
        services.metrics.retries.inc()
        lease = another


async def _forward_once(
    services: Services, served: ServedWorkload, upstream: UpstreamRequest, upload: _Upload
) -> HttpResponse | HttpStream:
    try:
        lease = await _acquire_lease(services, served)
        return await _send_to_replica(services, served, upstream, lease)
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
        if upload.problem is not None:
            raise upload.problem from error
        services.metrics.proxied.labels("unreachable").inc()
        raise _unreachable() from error


async def _send_to_replica(
    services: Services, served: ServedWorkload, upstream: UpstreamRequest, lease: ReplicaLease
) -> HttpResponse | HttpStream:
    """Send the request and wait for the head of the answer. The lease is given back always."""
    limits, body = services.config.limits, upstream.body
    answer: aiohttp.ClientResponse | None = None
    kept = False
    try:
        sent = _with_model_name(body, served, lease) if isinstance(body, bytes) else aiter(body)
        async with asyncio.timeout(limits.answer_time):
            answer = await services.session.request(
                upstream.method,
                URL(f"{lease.url}/v1/{upstream.path}", encoded=True),
                headers=upstream.headers,
                # Large bytes at one go would hold everybody up while they are written.
                data=BytesIO(sent)
                if isinstance(sent, bytes) and len(sent) > MEBIBYTE
                else sent or None,
                skip_auto_headers=_SKIPPED_AUTO_HEADERS,
                allow_redirects=False,
            )
            if not 200 <= answer.status <= 599:
                raise _not_http()
            headers = _response_headers(answer, lease)
            length = answer.content_length
            if (length is not None and length <= _MAX_BUFFERED) or upstream.method == "HEAD":
                whole = HttpResponse(
                    status=answer.status, body=await answer.read(), headers=headers
                )
                services.metrics.proxied.labels("answered").inc()
                return whole
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        chunks = _response_chunks(services, answer, lease)
        kept = True
        return HttpStream(status=answer.status, headers=headers, chunks=chunks)
    except TimeoutError as error:
        lease.failed()
        services.metrics.proxied.labels("timeout").inc()
        raise HttpError(
            504,
            "workload_timeout",
            f"The workload did not begin its answer within {format_seconds(limits.answer_time)}.",
        ) from error
    except aiohttp.ClientError as error:
        lease.failed()
        if isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError):
            raise
        services.metrics.proxied.labels("unreadable").inc()
        raise _not_http() from error
    finally:
        if not kept:
            if answer is not None:
                answer.close() if not answer.content.at_eof() else answer.release()
            lease.release()


async def _response_chunks(
    services: Services, answer: aiohttp.ClientResponse, lease: ReplicaLease
) -> AsyncIterator[bytes]:
    """Yield the body as it comes. A stream of events that breaks ends with an error event."""
    events = answer.content_type == "text/event-stream"
    outcome = "abandoned"
    try:
        while True:
            try:
                async with asyncio.timeout(services.config.limits.idle_time):
                    chunk = await answer.content.readany()
            except (TimeoutError, aiohttp.ClientError) as error:
                lease.failed()
                outcome = "interrupted"
                late = isinstance(error, TimeoutError)
                if not events:
                    raise StreamInterrupted from error
                yield interrupted_event("fell silent" if late else "broke off")
                return
            if not chunk:
                outcome = "answered"
                return
            yield chunk
    finally:
        services.metrics.proxied.labels(outcome).inc()
        # An answer that was not read to its end leaves a connection that cannot be used again.
        answer.close() if outcome != "answered" else answer.release()
        lease.release()


def interrupted_event(how: str) -> bytes:
    """Say in the stream itself that it is incomplete. No [DONE] follows."""
    message = f"The workload's answer {how}; what came so far is incomplete."
    return b"\n\n" + server_sent_event(
        {"error": {"message": message, "type": "upstream_error", "code": "stream_interrupted"}}
    )


class _Upload:
    """A large body, passed on as it comes. It can be sent once."""

    def __init__(self, request: Request, limit: int) -> None:
        self._request = request
        self._limit = limit
        self.done = asyncio.Event()
        self.problem: Exception | None = None
        """Why it broke off. The HTTP client hides what is raised while it sends."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        more = True
        try:
            while more:
                part, more = await receive_part(self._request.receive)
                size += len(part)
                if size > self._limit:
                    raise body_too_large(self._limit)
                if part:
                    yield part
        except (HttpError, ClientDisconnected) as problem:
            self.problem = problem
            raise
        finally:
            self.done.set()


async def _acquire_lease(services: Services, served: ServedWorkload) -> ReplicaLease:
    lease = served.acquire(())
    if lease is None and served.wake is not None:
        lease = await served.wake(())
    if lease is not None:
        return lease
    services.metrics.proxied.labels("not_ready").inc()
    status = served.status()
    raise HttpError(
        503,
        "not_ready",
        f"Workload {served.id} is not ready ({status.phase}): {status.message}",
        retry_after=30 if status.phase is Phase.ERROR else 2,
    )


def _with_model_name(body: bytes, served: ServedWorkload, lease: ReplicaLease) -> bytes:
    """Let clients call the model by the workload's slug, which is all they have to know."""
    slug = f'"{served.id.slug}"'.encode()
    if slug not in body:
        return body
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fields = _BODY_DECODER.decode(body)
        if bytes(fields.get("model", b"")) == slug:
            model = served.fields.get("model")
            if model is None:  # it answers to the slug by itself
                return body
            canary = served.fields.get("canary")
            if lease.group == "canary" and isinstance(canary, dict):
                model = canary.get("model", model)
            fields["model"] = msgspec.Raw(msgspec.json.encode(model))
            return msgspec.json.encode(fields)
    return body


def _request_headers(request: Request) -> CIMultiDict[str]:
    dropped = _DROPPED_REQUEST_HEADERS | _header_tokens(request.headers.get(b"connection", b""))
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in request.scope["headers"]:
        if name not in dropped:
            headers.add(name.decode("latin-1"), value.decode("latin-1"))
    headers["X-Request-Id"] = request.id
    return headers


def _response_headers(answer: aiohttp.ClientResponse, lease: ReplicaLease) -> Headers:
    connection = answer.headers.get("connection", "").encode("latin-1", "replace")
    dropped = _header_tokens(connection)
    headers = [(name.lower(), value) for name, value in answer.raw_headers]
    kept = [
        (name, value)
        for name, value in headers
        if (name in _RETURNED_HEADERS or name.startswith(_RETURNED_PREFIXES))
        and name not in dropped
    ]
    return [*kept, *_SANDBOX_HEADERS, (b"x-holdfast-replica", lease.replica.encode())]


def _header_tokens(connection: bytes) -> frozenset[bytes]:
    return frozenset(part.strip().lower() for part in connection.split(b","))


def _unreachable() -> HttpError:
    return HttpError(
        502,
        "workload_unreachable",
        "No replica of the workload could be reached, or each broke off before it answered. "
        "Try again.",
        retry_after=1,
    )


def _not_http() -> HttpError:
    """Also for a change of protocols, which nobody asked for: it would not be HTTP after it."""
    return HttpError(502, "bad_gateway", "The workload gave an answer that is not HTTP.")


def _revoked() -> HttpError:
    return HttpError(401, "unauthenticated", "Not authenticated. The credential has ended.")
