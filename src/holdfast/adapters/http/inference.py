"""Calls one workload's endpoint over the OpenAI-shaped routes of the data plane.

A stream that breaks off, falls silent or carries an error raises; it never looks complete.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar
from urllib.parse import quote

import msgspec

from holdfast.adapters.http.client import HttpClient
from holdfast.adapters.http.responses import (
    DATA_KEY_HINTS,
    REPLICA_HEADER,
    Response,
    decode_response,
    printable,
    read_events,
    response_error,
)
from holdfast.adapters.http.results import (
    EmbedResult,
    RerankItem,
    RerankResult,
    TextChunk,
    TextResult,
)
from holdfast.adapters.http.transports import deadline_in
from holdfast.core.errors import ApiError, BackendError, HoldfastError, TargetUnavailable
from holdfast.core.names import WorkloadId
from holdfast.core.tree import Fields
from holdfast.wire.decode import prepare_type

BODY_LIMIT = 256 * 1024 * 1024
"""Largest response that is read into memory; embeddings can be many."""
PARTLY_SERVED = "Part of the reply may have been produced."
_TRANSIENT_STATUSES = frozenset({429, 502, 503, 504})

T = TypeVar("T")


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message = msgspec.field(default_factory=_Message)
    delta: _Message = msgspec.field(default_factory=_Message)
    finish_reason: str | None = None


class _Chat(msgspec.Struct):
    choices: list[_Choice]
    model: str = ""


class _Embedding(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _Embeddings(msgspec.Struct):
    data: list[_Embedding]
    model: str = ""


class _RerankScores(msgspec.Struct):
    results: list[RerankItem]
    model: str = ""


class InferenceClient:
    """One workload's endpoint."""

    def __init__(self, client: HttpClient, workload: WorkloadId) -> None:
        self._client = client
        self._workload = workload
        self._root = f"/endpoint/{quote(workload.project)}/{quote(workload.slug)}/v1"

    @property
    def base_url(self) -> str:
        """The address that OpenAI clients take as theirs."""
        return self._client.base_url + self._root

    async def chat(self, body: Mapping[str, object], *, seconds: float) -> TextResult:
        """Complete a chat in one response."""
        form, raw = await self._post("chat/completions", body, _Chat, seconds)
        if not form.choices:
            raise ApiError(f"The endpoint of {self._workload} answered without a choice.")
        choice = form.choices[0]
        return TextResult(
            text=choice.message.content or "",
            model=form.model,
            finish_reason=choice.finish_reason,
            raw=raw,
        )

    async def chat_stream(
        self, body: Mapping[str, object], *, seconds: float | None, idle: float
    ) -> AsyncGenerator[TextChunk]:
        """Complete a chat in chunks, until the stream says that it is done."""
        sent = msgspec.json.encode({"model": self._workload.slug, **body, "stream": True})
        async with (
            self._client.stream(
                "POST",
                f"{self._root}/chat/completions",
                body=sent,
                deadline=deadline_in(seconds, self._client.clock),
                idle=idle,
                errors=self._error,
            ) as chunks,
            aclosing(read_events(chunks)) as events,
        ):
            async for event in events:
                if event.name == "comment":
                    continue
                if event.data.strip() == "[DONE]":
                    return
                if event.name == "error":
                    raise self._broken(event.data)
                yield self._chunk(event.data)
        raise TargetUnavailable(
            f"The reply of {self._workload} broke off before it was complete.",
            changed=PARTLY_SERVED,
            hint="Ask again.",
        )

    async def embed(self, body: Mapping[str, object], *, seconds: float) -> EmbedResult:
        """Make vectors."""
        form, raw = await self._post("embeddings", body, _Embeddings, seconds)
        ordered = sorted(form.data, key=lambda each: each.index)
        return EmbedResult(
            embeddings=[each.embedding for each in ordered], model=form.model, raw=raw
        )

    async def rerank(self, body: Mapping[str, object], *, seconds: float) -> RerankResult:
        """Score documents."""
        form, raw = await self._post("rerank", body, _RerankScores, seconds)
        best_first = sorted(form.results, key=lambda each: -each.relevance_score)
        return RerankResult(results=best_first, model=form.model, raw=raw)

    async def _post(
        self, route: str, body: Mapping[str, object], form: type[T], seconds: float
    ) -> tuple[T, Fields]:
        response = await self._client.request(
            "POST",
            f"{self._root}/{route}",
            body=msgspec.json.encode({"model": self._workload.slug, **body}),
            deadline=deadline_in(seconds, self._client.clock),
            limit=BODY_LIMIT,
        )
        if not 200 <= response.status < 300:
            raise self._error(response)
        decoded = decode_response(response, form)
        return decoded, msgspec.json.decode(response.body, type=dict)

    def _chunk(self, data: str) -> TextChunk:
        try:
            raw = msgspec.json.decode(data, type=dict)
            if "error" in raw:
                raise self._broken(data)
            form = msgspec.convert(raw, prepare_type(_Chat))
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._broken(data) from error
        # The chunk that only carries the usage has no choice.
        choice = form.choices[0] if form.choices else _Choice()
        return TextChunk(
            text=choice.delta.content or "", finish_reason=choice.finish_reason, raw=raw
        )

    def _error(self, response: Response) -> HoldfastError:
        """Tell the workload's own error from one of the control plane before it."""
        if REPLICA_HEADER not in response.headers:
            return response_error(
                replace(response, body=_control_plane_error(response)), credential=DATA_KEY_HINTS
            )
        reason, message = _error_in(response.body)
        happened = f"The server of {self._workload} answered {response.status}"
        happened += f": {message}" if message else " and said nothing more."
        if response.status in _TRANSIENT_STATUSES:
            return TargetUnavailable(happened, changed="", hint="Try again later.")
        hint = "Its log says more: holdfast logs." if response.status >= 500 else ""
        return BackendError(
            happened, message=message, status=response.status, reason=reason, hint=hint
        )

    def _broken(self, data: str) -> BackendError:
        reason, message = _error_in(data.encode())
        error = BackendError(
            f"The reply of {self._workload} ended in an error: {message}",
            message=message,
            reason=reason or "stream_error",
            hint="Ask again; read the workload's log if it goes on.",
        )
        error.changed = PARTLY_SERVED
        return error


class _ValidationDetail(msgspec.Struct):
    loc: list[str | int] = msgspec.field(default_factory=list)
    msg: str = ""


class _OpenAiError(msgspec.Struct):
    message: str = ""
    type: str | None = None
    code: str | int | None = None


class _ErrorBody(msgspec.Struct):
    """The ways in which servers speak of an error: OpenAI's, older vLLM's, FastAPI's, Ollama's."""

    error: _OpenAiError | str | None = None
    message: str = ""
    type: str | None = None
    detail: list[_ValidationDetail] | str | None = None


def _error_in(body: bytes) -> tuple[str, str]:
    """Return a backend's own code or type of an error, and its message."""
    try:
        form = msgspec.json.decode(body, type=prepare_type(_ErrorBody))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", _single_line(body[:4000].decode(errors="replace"))
    if isinstance(form.error, _OpenAiError):
        code = form.error.code if isinstance(form.error.code, str) else None
        return printable(code or form.error.type or ""), _single_line(form.error.message)
    if isinstance(form.detail, list):
        parts = (f"{'.'.join(map(str, each.loc))}: {each.msg}" for each in form.detail)
        return printable(form.type or ""), _single_line("; ".join(parts))
    text = form.message or form.error or form.detail or body[:4000].decode(errors="replace")
    return printable(form.type or ""), _single_line(text)


def _single_line(text: str) -> str:
    return " ".join(printable(text).split())


def _control_plane_error(response: Response) -> bytes:
    """Write an error of OpenAI's shape, which the data plane speaks, in the control plane's."""
    try:
        form = msgspec.json.decode(response.body, type=prepare_type(_ErrorBody))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return response.body
    if not isinstance(form.error, _OpenAiError) or not isinstance(form.error.code, str):
        return response.body
    said = {"error": form.error.code, "message": form.error.message}
    return msgspec.json.encode({**said, "request_id": response.headers.get("x-request-id")})
