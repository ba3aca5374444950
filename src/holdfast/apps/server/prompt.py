"""A prompt to a workload, by whoever may write in its project: an event stream of our own making.

What the workload says reaches the caller as text alone. None of its headers, and nothing of its
answer's form, arrives on this origin, where the page is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Literal

import msgspec
from multidict import CIMultiDict

from holdfast.adapters.http.responses import read_events
from holdfast.apps.server.cluster_routes import serve_by_slug
from holdfast.apps.server.proxy import (
    ServedWorkload,
    StreamInterrupted,
    UpstreamRequest,
    ask_replica,
    serve_record,
)
from holdfast.apps.server.request import HttpResponse, HttpStream, Request, encode_json, read_form
from holdfast.apps.server.services import Services
from holdfast.apps.server.streams import event_stream_response
from holdfast.apps.server.workload_routes import find_record_by_slug
from holdfast.core.backends import BACKENDS
from holdfast.core.errors import HoldfastError
from holdfast.core.redact import redact
from holdfast.core.tree import Fields

_MAX_MESSAGE = 500
"""Characters of a workload's own error that are repeated."""
_MAX_DOCUMENT = 1024 * 1024
_INCOMPLETE = "The workload's answer broke off; what came so far is incomplete."


class PromptMessageForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class PromptForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A conversation to be continued by the workload."""

    messages: Annotated[list[PromptMessageForm], msgspec.Meta(min_length=1, max_length=256)]
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None


class PromptUsageForm(msgspec.Struct, kw_only=True):
    """How many tokens it took, as the workload counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class PromptEventForm(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A piece of the text; or the end, with its reason; or why there is no more."""

    text: str = ""
    done: bool = False
    finish_reason: str | None = None
    usage: PromptUsageForm | None = None
    error: str = ""


async def prompt_workload(services: Services, request: Request) -> HttpStream:
    """Ask a workload to continue a conversation, and pass its text on as it comes."""
    form = await read_form(request, PromptForm, services.config.limits.control_body)
    if services.cluster is not None:
        served = await serve_by_slug(services, request)
    else:
        served = serve_record(services, find_record_by_slug(services, request))
    upstream = _upstream_request(form, served, request.id)
    answer = await ask_replica(services, request, served, upstream)
    return event_stream_response(services, request, _prompt_events(answer))


def _upstream_request(form: PromptForm, served: ServedWorkload, id: str) -> UpstreamRequest:
    body: Fields = {
        "model": served.id.slug,  # replaced by the model's own name where that is needed
        "messages": [{"role": each.role, "content": each.content} for each in form.messages],
        "stream": True,
    }
    if served.fields.get("backend") in BACKENDS:  # one of the user's own may refuse it
        body["stream_options"] = {"include_usage": True}
    if form.max_tokens is not None:
        body["max_tokens"] = form.max_tokens
    if form.temperature is not None:
        body["temperature"] = form.temperature
    return UpstreamRequest(
        method="POST",
        path="chat/completions",
        headers=CIMultiDict(
            {
                "Content-Type": "application/json",
                "Accept": "text/event-stream",
                "X-Request-Id": id,
            }
        ),
        body=encode_json(body),
    )


class _UpstreamDelta(msgspec.Struct):
    content: str | None = None


class _UpstreamChoice(msgspec.Struct):
    delta: _UpstreamDelta | None = None
    message: _UpstreamDelta | None = None
    """In place of `delta` where the workload does not stream."""
    finish_reason: str | None = None


class _UpstreamError(msgspec.Struct):
    message: str = ""


class _UpstreamChunk(msgspec.Struct):
    choices: list[_UpstreamChoice] = []
    usage: PromptUsageForm | None = None
    error: _UpstreamError | str | None = None


_CHUNKS = msgspec.json.Decoder(_UpstreamChunk)


async def _prompt_events(answer: HttpResponse | HttpStream) -> AsyncIterator[PromptEventForm]:
    """Turn a workload's answer into events of ours. The last one says how it ended."""
    chunks = _one_chunk(answer.body) if isinstance(answer, HttpResponse) else answer.chunks
    media = dict(answer.headers).get(b"content-type", b"").partition(b";")[0].strip().lower()
    streams = answer.status == 200 and media == b"text/event-stream"
    events = _read_stream(chunks) if streams else _read_document(answer.status, chunks)
    try:
        async for event in events:
            yield event
    except (HoldfastError, StreamInterrupted):
        yield PromptEventForm(error=_INCOMPLETE)
    finally:
        for each in (events, chunks):
            close = getattr(each, "aclose", None)
            if close is not None:
                await close()


async def _one_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _read_stream(chunks: AsyncIterator[bytes]) -> AsyncIterator[PromptEventForm]:
    reason: str | None = None
    usage: PromptUsageForm | None = None
    async with aclosing(read_events(chunks)) as events:
        async for event in events:
            if event.name == "comment":
                continue
            if event.data.strip() == "[DONE]":
                yield PromptEventForm(done=True, finish_reason=reason, usage=usage)
                return
            chunk = _decode_chunk(event.data.encode())
            if chunk.error is not None:
                yield PromptEventForm(error=_error_text(chunk))
                return
            usage = chunk.usage or usage
            for choice in chunk.choices[:1]:
                reason = choice.finish_reason or reason
                if choice.delta is not None and choice.delta.content:
                    yield PromptEventForm(text=choice.delta.content)
    if reason is None:
        yield PromptEventForm(error=_INCOMPLETE)
    else:  # some do not say that they are done
        yield PromptEventForm(done=True, finish_reason=reason, usage=usage)


async def _read_document(
    status: int, chunks: AsyncIterator[bytes]
) -> AsyncIterator[PromptEventForm]:
    """Read an answer that is no stream: an error, or the whole text at once."""
    body = b""
    async for chunk in chunks:
        body += chunk
        if len(body) > _MAX_DOCUMENT:
            break
    read = _decode_chunk(body)
    message = read.choices[0].message if read.choices else None
    if status != 200:
        said = _error_text(read) if read.error is not None else "it said no more."
        yield PromptEventForm(error=f"The workload answered {status}: {said}")
    elif read.error is not None or message is None or message.content is None:
        yield PromptEventForm(error=_error_text(read))
    else:
        yield PromptEventForm(text=message.content)
        reason = read.choices[0].finish_reason
        yield PromptEventForm(done=True, finish_reason=reason, usage=read.usage)


def _decode_chunk(data: bytes) -> _UpstreamChunk:
    try:
        return _CHUNKS.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _UpstreamChunk(error="The workload's answer is not one of OpenAI's API.")


def _error_text(chunk: _UpstreamChunk) -> str:
    error = chunk.error
    text = error.message if isinstance(error, _UpstreamError) else error
    return redact(text)[:_MAX_MESSAGE] if text else "The workload gave an answer without a text."
