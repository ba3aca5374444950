"""The data plane: passes a request to a replica of its workload and the answer back.

Nothing is held back on the way: pieces go on as they come, in both directions. A request
whose replica could not be reached, or died before it answered, goes to another one as long
as the client has seen nothing and the body is still at hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from holdfast.adapters.runner import Lease
from holdfast.apps.server.authorize import keyed_record
from holdfast.apps.server.body import (
    ClientLeft,
    check_body,
    declared_length,
    next_part,
    read_body,
    too_large,
)
from holdfast.apps.server.errors import HttpError
from holdfast.apps.server.request import Answer, Headers, Request, Stream
from holdfast.apps.server.services import Services
from holdfast.apps.server.streams import Ended, event, watching
from holdfast.core.live import Phase, Status
from holdfast.core.names import WorkloadId
from holdfast.core.quantity import shown_seconds
from holdfast.core.tree import Fields

ATTEMPTS = 3
_WHOLE = 256 * 1024
"""Answers up to this size are read before anything is sent, so that they can be had anew."""

_HOP = frozenset(
    (
        b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te"
        b" trailer trailers transfer-encoding upgrade"
    ).split()
)
_NOT_SENT = _HOP | frozenset(
    (
        b"authorization host content-length cookie expect forwarded x-forwarded-for"
        b" x-forwarded-host x-forwarded-proto x-real-ip x-request-id"
    ).split()
)
_RETURNED = frozenset(
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
_SANDBOX: Headers = [
    (b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
"""A page that a workload answers with runs nothing and belongs to no origin."""
_SKIPPED = frozenset({"User-Agent", "Accept-Encoding", "Accept", "Content-Type"})
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Interrupted(Exception):
    """The replica stopped in the middle of its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A workload that may be asked, wherever it runs."""

    id: WorkloadId
    fields: Fields
    acquire: Callable[[], Lease | None]
    """Take a replica for one request; None while there is none."""
    status: Callable[[], Status]


async def proxy(services: Services, request: Request) -> Answer | Stream:
    """Pass a request to the workload that the key opens."""
    record = keyed_record(services.store, services.recent, request)
    supervisor = services.supervisor
    served = Served(
        id=record.id,
        fields=record.fields,
        acquire=partial(supervisor.acquire, record.uid),
        status=partial(supervisor.status, record.uid),
    )
    return await pass_on(services, request, served)


async def pass_on(services: Services, request: Request, served: Served) -> Answer | Stream:
    """Pass a request that was let in to its workload."""
    limits = services.config.limits
    check_body(request, limits.data_body)
    length = declared_length(request)
    if length is None and b"transfer-encoding" not in request.headers:
        length = 0
    upload = None
    body = b""
    if length is not None and length <= limits.replay_body:
        body = await read_body(request, limits.replay_body)
    else:
        upload = _Upload(request, limits.data_body)
    async with watching(
        services, request, until_closing=False, body_read=upload.done if upload else None
    ) as watch:
        if upload is None:
            return await _first_answer(services, request, served, body)
        return await _only_answer(services, request, served, upload)
    raise ClientLeft if watch.ended is Ended.LEFT else _revoked()


async def _first_answer(
    services: Services, request: Request, served: Served, body: bytes
) -> Answer | Stream:
    tried: list[str] = []
    while True:
        lease = _lease(services, served)
        if lease.replica in tried or len(tried) >= ATTEMPTS:
            lease.release()
            services.metrics.proxied.labels("unreachable").inc()
            raise _unreachable()
        if tried:
            services.metrics.retries.inc()
        tried.append(lease.replica)
        # A replica that failed is doubted, so the next lease prefers another.
        with suppress(aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
            return await _open(services, request, served, body, lease)


async def _only_answer(
    services: Services, request: Request, served: Served, upload: _Upload
) -> Answer | Stream:
    try:
        return await _open(services, request, served, upload, _lease(services, served))
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
        if upload.problem is not None:
            raise upload.problem from error
        services.metrics.proxied.labels("unreachable").inc()
        raise _unreachable() from error


async def _open(
    services: Services,
    request: Request,
    served: Served,
    body: bytes | _Upload,
    lease: Lease,
) -> Answer | Stream:
    """Send the request and wait for the head of the answer. The lease is given back always."""
    limits = services.config.limits
    answer: aiohttp.ClientResponse | None = None
    kept = False
    try:
        sent = _named_model(body, served, lease) if isinstance(body, bytes) else aiter(body)
        async with asyncio.timeout(limits.answer_time):
            answer = await services.session.request(
                request.method,
                _url(request, lease),
                headers=_request_headers(request),
                data=sent or None,
                skip_auto_headers=_SKIPPED,
                allow_redirects=False,
            )
            if not 200 <= answer.status <= 599:
                raise _not_http()
            headers = _answer_headers(answer, lease)
            length = answer.content_length
            if (length is not None and length <= _WHOLE) or request.method == "HEAD":
                whole = Answer(status=answer.status, body=await answer.read(), headers=headers)
                services.metrics.proxied.labels("answered").inc()
                return whole
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        chunks = _chunks(services, answer, lease)
        kept = True
        return Stream(status=answer.status, headers=headers, chunks=chunks)
    except TimeoutError as error:
        lease.failed()
        services.metrics.proxied.labels("timeout").inc()
        raise HttpError(
            504,
            "workload_timeout",
            f"The workload did not begin its answer within {shown_seconds(limits.answer_time)}.",
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


async def _chunks(
    services: Services, answer: aiohttp.ClientResponse, lease: Lease
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
                    raise Interrupted from error
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
    return b"\n\n" + event(
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
                part, more = await next_part(self._request.receive)
                size += len(part)
                if size > self._limit:
                    raise too_large(self._limit)
                if part:
                    yield part
        except (HttpError, ClientLeft) as problem:
            self.problem = problem
            raise
        finally:
            self.done.set()


def _lease(services: Services, served: Served) -> Lease:
    lease = served.acquire()
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


def _named_model(body: bytes, served: Served, lease: Lease) -> bytes:
    """Let clients call the model by the workload's slug, which is all they have to know."""
    slug = f'"{served.id.slug}"'.encode()
    if slug not in body:
        return body
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fields = _FIELDS.decode(body)
        if bytes(fields.get("model", b"")) == slug:
            model = served.fields.get("model")
            canary = served.fields.get("canary")
            if lease.group == "canary" and isinstance(canary, dict):
                model = canary.get("model", model)
            fields["model"] = msgspec.Raw(msgspec.json.encode(model))
            return msgspec.json.encode(fields)
    return body


def _url(request: Request, lease: Lease) -> URL:
    query = request.scope["query_string"].decode("ascii")
    path = f"{lease.url}/v1/{request.params['path']}"
    return URL(f"{path}?{query}" if query else path, encoded=True)


def _request_headers(request: Request) -> CIMultiDict[str]:
    dropped = _NOT_SENT | _named_in(request.headers.get(b"connection", b""))
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in request.scope["headers"]:
        if name not in dropped:
            headers.add(name.decode("latin-1"), value.decode("latin-1"))
    headers["X-Request-Id"] = request.id
    return headers


def _answer_headers(answer: aiohttp.ClientResponse, lease: Lease) -> Headers:
    connection = answer.headers.get("connection", "").encode("latin-1", "replace")
    dropped = _named_in(connection)
    headers = [(name.lower(), value) for name, value in answer.raw_headers]
    kept = [
        (name, value)
        for name, value in headers
        if (name in _RETURNED or name.startswith(_RETURNED_PREFIXES)) and name not in dropped
    ]
    return [*kept, *_SANDBOX, (b"x-holdfast-replica", lease.replica.encode())]


def _named_in(connection: bytes) -> frozenset[bytes]:
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
