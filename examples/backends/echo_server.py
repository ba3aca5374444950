"""An OpenAI-compatible backend that repeats what it is told, in the standard library alone.

It stands in for an inference server where none can be installed, and where a
test needs answers in milliseconds. It computes nothing, but it behaves on the
wire as one does: a port that is open before the model is loaded, streams that
take their time, answers that say which process gave them.

    python examples/backends/echo_server.py --port 8080 --model tiny

Where `--host` or `--port` is absent, HOST or PORT from the environment counts.
Port 0 lets the system choose; the first line of output names the address.
Tests make backends that misbehave by overriding methods of `EchoBackend`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

# Any: request and answer bodies are JSON of the caller's choosing.
Json = dict[str, Any]

BODY_LIMIT = 16 * 1024 * 1024
TOO_LARGE = f"A body may have {BODY_LIMIT} bytes at most."
EMBEDDING_LENGTH = 64
BROKEN = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)
GET_ROUTES = frozenset({"/health", "/v1/models", "/metrics"})
POST_ROUTES = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    body: bytes
    client_left: Callable[[], bool]

    def json(self) -> Json:
        try:
            value = json.loads(self.body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise BadRequest(400, "The body must be a JSON object.")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes back: `body` at once or, where `stream` is set, its pieces as they come."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    stream: AsyncGenerator[bytes, None] | None = None


@dataclass
class BadRequest(Exception):
    status: int
    message: str


@dataclass(kw_only=True)
class EchoBackend:
    """Answers requests; `serve` gives it a port."""

    model: str = "echo"
    startup_delay: float = 0.0
    token_delay: float = 0.0
    tokens: int | None = None
    """How many words each answer has; None is as many as the echo needs."""

    stop_signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)
    started: float = field(default_factory=time.monotonic)
    requests_total: int = 0
    running: int = 0
    tokens_total: int = 0

    def announce(self, url: str) -> None:
        """Say that the port is open; called once."""
        print(f"listening on {url}", flush=True)

    async def answer(self, request: Request) -> Answer:
        """Answer one request."""
        if time.monotonic() < self.started + self.startup_delay:
            return failure(503, "Loading model")
        path = request.path.partition("?")[0]
        if request.method in ("GET", "HEAD") and path in GET_ROUTES:
            return self._describe(path)
        if request.method == "POST" and path in POST_ROUTES:
            return await self._infer(path, request)
        if path in GET_ROUTES | POST_ROUTES:
            return failure(405, f"{path} does not take {request.method}.")
        return failure(404, f"There is no {path} here.")

    def _describe(self, path: str) -> Answer:
        if path == "/health":
            return reply({"status": "ok"})
        if path == "/v1/models":
            model = {"id": self.model, "object": "model", "created": 0, "owned_by": "holdfast"}
            return reply({"object": "list", "data": [model]})
        text = (
            f"# TYPE echo_requests_total counter\necho_requests_total {self.requests_total}\n"
            f"# TYPE echo_requests_running gauge\necho_requests_running {self.running}\n"
            f"# TYPE echo_tokens_total counter\necho_tokens_total {self.tokens_total}\n"
        )
        return Answer(body=text.encode(), content_type="text/plain; version=0.0.4")

    async def _infer(self, path: str, request: Request) -> Answer:
        asked = request.json()
        self.requests_total += 1
        if path == "/v1/embeddings":
            return reply(self._embed(asked))
        if path == "/v1/rerank":
            return reply(self._rerank(asked))
        chat = path == "/v1/chat/completions"
        prompt = _last_user_message(asked) if chat else _first_text(asked.get("prompt"))
        words, finish = self._words(prompt, asked)
        head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{os.getpid()}-{self.requests_total}",
            "created": int(time.time()),
            "model": self.model,
        }
        used = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(words)}
        used["total_tokens"] = sum(used.values())
        if asked.get("stream"):
            options = asked.get("stream_options")
            tell_usage = isinstance(options, dict) and options.get("include_usage")
            return Answer(
                content_type="text/event-stream",
                stream=self._stream(request, head, words, finish, chat, used if tell_usage else {}),
            )
        self.running += 1
        try:  # A plain answer takes as long as its stream would.
            await _pause(self.token_delay * len(words), request.client_left)
        finally:
            self.running -= 1
        self.tokens_total += len(words)
        text = "".join(words)
        choice: Json = {"index": 0, "finish_reason": finish, "logprobs": None}
        choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        kind = "chat.completion" if chat else "text_completion"
        return reply(head | {"object": kind, "choices": [choice], "usage": used})

    def _words(self, prompt: str, asked: Json) -> tuple[list[str], str]:
        """Give the answer word by word, and why it ends."""
        spoken = f"echo: {prompt}".split(" ")
        if self.tokens is not None:
            padding = (f"token{number}" for number in itertools.count(1))
            spoken = list(itertools.islice(itertools.chain(spoken, padding), self.tokens))
        words = [word if place == 0 else f" {word}" for place, word in enumerate(spoken)]
        limit = asked.get("max_completion_tokens", asked.get("max_tokens"))
        if isinstance(limit, int) and 0 < limit < len(words):
            return words[:limit], "length"
        return words, "stop"

    async def _stream(
        self, request: Request, head: Json, words: list[str], finish: str, chat: bool, used: Json
    ) -> AsyncGenerator[bytes, None]:
        kind = "chat.completion.chunk" if chat else "text_completion"

        def event(text: str | None, reason: str | None) -> bytes:
            choice: Json = {"index": 0, "finish_reason": reason}
            if chat:
                choice["delta"] = {} if text is None else {"role": "assistant", "content": text}
            else:
                choice["text"] = text or ""
            return _event(head | {"object": kind, "choices": [choice]})

        self.running += 1
        try:
            for word in words:
                await _pause(self.token_delay, request.client_left)
                self.tokens_total += 1
                yield event(word, None)
            yield event(None, finish)
            if used:
                yield _event(head | {"object": kind, "choices": [], "usage": used})
            yield b"data: [DONE]\n\n"
        finally:
            self.running -= 1

    def _embed(self, asked: Json) -> Json:
        given = asked.get("input")
        texts: list[Any] = given if isinstance(given, list) else [given]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise BadRequest(400, "`input` must be a string or a list of strings.")
        rows = [
            {"object": "embedding", "index": place, "embedding": _embedding(text)}
            for place, text in enumerate(texts)
        ]
        count = sum(len(text.split()) for text in texts)
        usage = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "model": self.model, "data": rows, "usage": usage}

    def _rerank(self, asked: Json) -> Json:
        query, documents = asked.get("query"), asked.get("documents")
        if not isinstance(query, str) or not isinstance(documents, list):
            raise BadRequest(400, "`query` must be a string and `documents` a list.")
        words = set(query.lower().split())
        scored = []
        for place, document in enumerate(documents):
            shared = len(words & set(_first_text(document).lower().split()))
            scored.append({"index": place, "relevance_score": shared / max(len(words), 1)})
        scored.sort(key=lambda row: -row["relevance_score"])
        top = asked.get("top_n")
        kept = scored[:top] if isinstance(top, int) and top > 0 else scored
        return {"object": "list", "model": self.model, "results": kept}


def reply(value: Json, status: int = 200) -> Answer:
    return Answer(status=status, body=json.dumps(value).encode())


def failure(status: int, message: str) -> Answer:
    kind = "unavailable_error" if status == 503 else "invalid_request_error"
    return reply({"error": {"message": message, "type": kind, "code": status}}, status)


async def serve(backend: EchoBackend, host: str, port: int) -> None:
    """Listen until a signal says stop, then cut what is open and return."""
    stop = asyncio.Event()
    for number in backend.stop_signals:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Broken peers, and the cancellation at the end, are a connection's ordinary ends.
        with suppress(*BROKEN, asyncio.CancelledError):
            while await _serve_one(backend, reader, writer):
                pass
        writer.close()

    server = await asyncio.start_server(connected, host, port, backlog=1024)
    address, bound = server.sockets[0].getsockname()[:2]
    backend.announce(
        f"http://[{address}]:{bound}" if ":" in address else f"http://{address}:{bound}"
    )
    await stop.wait()
    server.close()


async def _serve_one(
    backend: EchoBackend, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Answer one request; say whether the connection can carry another."""
    keep, silent = False, False
    try:
        request, keep = await _read_request(reader, writer)
        silent = request.method == "HEAD"
        answer = await backend.answer(request)
    except BadRequest as error:
        answer = failure(error.status, error.message)
    head = [
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        f"Content-Type: {answer.content_type}",
        f"X-Backend-Pid: {os.getpid()}",
        f"X-Backend-Model: {backend.model}",
        "Connection: keep-alive" if keep else "Connection: close",
    ]
    if answer.stream is None:
        head.append(f"Content-Length: {len(answer.body)}")
        writer.write(_join(head) + (b"" if silent else answer.body))
        await writer.drain()
        return keep
    writer.write(_join([*head, "Cache-Control: no-cache", "Transfer-Encoding: chunked"]))
    try:
        async for piece in answer.stream:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
    finally:
        # Closed here, so that a client who left is no longer counted as running.
        await answer.stream.aclose()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return keep


async def _read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[Request, bool]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, version = lines[0].split(" ", 2)
    headers = {}
    for line in lines[1:-2]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = await _read_chunks(reader)
    else:
        size = int(headers.get("content-length", "0"))
        if size > BODY_LIMIT:
            raise BadRequest(413, TOO_LARGE)
        body = await reader.readexactly(size)
    asked = headers.get("connection", "").lower()
    keep = asked == "keep-alive" if version == "HTTP/1.0" else asked != "close"

    def client_left() -> bool:
        return reader.at_eof() or writer.is_closing()  # it closed, or reset the connection

    return Request(method=method, path=path, body=body, client_left=client_left), keep


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readline()).partition(b";")[0], 16):
        if len(body) + size > BODY_LIMIT:
            raise BadRequest(413, TOO_LARGE)
        body += await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():  # trailers carry nothing that we use
        pass
    return bytes(body)


async def _pause(seconds: float, client_left: Callable[[], bool]) -> None:
    """Wait, but no longer than the client does: a server stops computing for nobody."""
    until = time.monotonic() + seconds
    while (remaining := until - time.monotonic()) > 0:
        await asyncio.sleep(min(remaining, 0.05))
        if client_left():
            raise ConnectionResetError("the client left")


def _join(lines: list[str]) -> bytes:
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def _event(value: Json) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _last_user_message(asked: Json) -> str:
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest(400, "`messages` must be a list with at least one message.")
    spoken = [m for m in messages if isinstance(m, dict) and m.get("role") == "user"]
    return _first_text(spoken[-1].get("content")) if spoken else ""


def _first_text(value: object) -> str:
    """Give the text of a string, a list of parts, or an object with a `text`."""
    if isinstance(value, list):
        value = value[0] if value else ""
    if isinstance(value, dict):
        value = value.get("text", "")
    return value if isinstance(value, str) else ""


def _embedding(text: str) -> list[float]:
    """Count characters, scaled to length 1: equal letters give equal vectors."""
    counts = [0.0] * EMBEDDING_LENGTH
    for character in text:
        counts[ord(character) % EMBEDDING_LENGTH] += 1
    length = math.hypot(*counts) or 1.0
    return [count / length for count in counts]


def add_address_arguments(parser: argparse.ArgumentParser) -> None:
    host, port = os.environ.get("HOST"), os.environ.get("PORT")
    parser.add_argument("--host", default=host or "127.0.0.1")
    parser.add_argument("--port", type=int, default=port, required=not port)


def run(backend: EchoBackend, host: str, port: int) -> None:
    try:
        asyncio.run(serve(backend, host, port))
    except OSError as error:
        sys.exit(f"echo_server: cannot listen on {host}:{port}: {error.strerror}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_address_arguments(parser)
    option = parser.add_argument
    option("--model", default="echo", metavar="NAME", help="the name in answers")
    option("--startup-delay", type=float, default=0.0, metavar="S", help="503 for S seconds")
    option("--token-delay", type=float, default=0.0, metavar="S", help="seconds before each word")
    option("--tokens", type=int, metavar="N", help="make each answer N words long")
    options = vars(parser.parse_args())
    host, port = options.pop("host"), options.pop("port")
    run(EchoBackend(**options), host, port)


if __name__ == "__main__":
    main()
