"""Asks a backend whether it is alive, and whether its model answers.

An answer is a value: a refused connection, a 503 and a silent port are three ways of saying
"not yet", and the text tells a person which.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import aiohttp

from holdfast.adapters.runner.backends import BackendFacts, ModelProbe
from holdfast.core.quantity import format_seconds
from holdfast.core.redact import redact

_DETAIL_LIMIT = 200
_FIRST_TOKEN_TIMEOUT = 60.0
"""A first token can take long on a CPU; the start-up budget bounds it as well."""
_QUEUED_TOKEN_TIMEOUT = 30.0
"""A full server lets a probe queue: it must not be taken for a dead one too soon."""

_CHEAPEST_REQUESTS: dict[str, tuple[str, dict[str, object]]] = {
    "text2text": ("/v1/completions", {"prompt": "a", "max_tokens": 1}),
    "embedding": ("/v1/embeddings", {"input": "a"}),
    "reranker": ("/v1/rerank", {"query": "a", "documents": ["a"]}),
}
"""The least that a model can be asked, by task. Images and sound have no cheap question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a probe found."""

    ok: bool
    detail: str
    refused: bool = False
    """Nothing listens on the port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProbeResponse:
    status: int
    """0 when there was none."""
    text: str
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    """What to ask one replica."""

    url: str
    backend: BackendFacts
    path: str | None
    """The declared health path, which outranks the backend's usual one."""
    model: str
    task: str


class Prober:
    """Holds the HTTP client; one for the whole runner."""

    def __init__(self) -> None:
        # No pooling: a probe on a kept connection would not see that the listener is gone.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Let go of the client."""
        await self._session.close()

    async def check_loaded(
        self, question: ProbeTarget, *, probe_timeout: float, within: float
    ) -> ProbeResult:
        """Say whether a starting replica can serve: it is alive and its model answers."""
        within = max(0.1, within)
        answer = await self.check_alive(question, probe_timeout=min(probe_timeout, within))
        if answer.ok:
            answer = await self.check_model(
                question, probe_timeout=min(_FIRST_TOKEN_TIMEOUT, within)
            )
        return answer

    async def check_healthy(
        self, question: ProbeTarget, *, probe_timeout: float, doubted: bool
    ) -> ProbeResult:
        """Say whether a serving replica still does; ask its model too if there is a doubt."""
        answer = await self.check_alive(question, probe_timeout=probe_timeout)
        if answer.ok and doubted:
            answer = await self.check_model(
                question, probe_timeout=max(probe_timeout, _QUEUED_TOKEN_TIMEOUT)
            )
        return answer

    async def check_alive(self, question: ProbeTarget, *, probe_timeout: float) -> ProbeResult:
        """Ask the health path."""
        path = question.path or question.backend.health
        reply = await self._send("GET", question.url + (path or "/health"), probe_timeout)
        if path is None:
            # A backend of the user's own need not have a health path: any answer will do.
            return _probe_result(reply, below=500)
        return _probe_result(reply, below=400)

    async def check_model(self, question: ProbeTarget, *, probe_timeout: float) -> ProbeResult:
        """Ask the model itself for the least it can do, where the backend has a way."""
        match question.backend.ask:
            case ModelProbe.NOTHING:
                return ProbeResult(ok=True, detail="")
            case ModelProbe.GENERATE_HEALTH:
                reply = await self._send("GET", f"{question.url}/health_generate", probe_timeout)
            case ModelProbe.LOAD:
                reply = await self._send(
                    "POST", f"{question.url}/api/generate", probe_timeout, {"model": question.model}
                )
                if reply.status == 404 and "not found" in reply.text:
                    return ProbeResult(
                        ok=False, detail=f"model {question.model} is not on this Ollama"
                    )
            case ModelProbe.ONE_TOKEN:
                least = _CHEAPEST_REQUESTS.get(question.task or "text2text")
                if least is None:
                    return ProbeResult(ok=True, detail="")
                path, body = least
                name = await self._served_name(question.url, probe_timeout)
                reply = await self._send(
                    "POST",
                    question.url + path,
                    probe_timeout,
                    {"model": name or question.model} | body,
                )
        # A refusal is an answer too: the server is up and simply does another task than this.
        return _probe_result(reply, below=500, also=501)

    async def _served_name(self, url: str, probe_timeout: float) -> str | None:
        """Return the name under which the model is served, which may be an alias."""
        reply = await self._send("GET", f"{url}/v1/models", probe_timeout, most=64 * 1024)
        try:
            first = json.loads(reply.text)["data"][0]["id"]
        except (ValueError, KeyError, IndexError, TypeError):
            return None
        return first if isinstance(first, str) else None

    async def _send(
        self,
        method: str,
        url: str,
        probe_timeout: float,
        body: dict[str, object] | None = None,
        *,
        most: int = 2048,
    ) -> _ProbeResponse:
        try:
            async with (
                asyncio.timeout(probe_timeout),
                self._session.request(method, url, json=body, allow_redirects=False) as response,
            ):
                data = await response.content.read(most)
                return _ProbeResponse(status=response.status, text=data.decode(errors="replace"))
        except TimeoutError:
            return _ProbeResponse(status=0, text=f"no answer in {format_seconds(probe_timeout)}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            refused = isinstance(error, aiohttp.ClientConnectorError | ConnectionRefusedError)
            return _ProbeResponse(status=0, text=_failure_reason(error), refused=refused)


def _probe_result(reply: _ProbeResponse, *, below: int, also: int = 0) -> ProbeResult:
    if reply.status == 0:
        return ProbeResult(ok=False, detail=reply.text, refused=reply.refused)
    ok = reply.status < below or reply.status == also
    shown = " ".join(redact(reply.text).split())[:_DETAIL_LIMIT]
    return ProbeResult(ok=ok, detail=f"{reply.status} {shown}".strip())


def _failure_reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError | ConnectionRefusedError):
        return "connection refused"
    return "the connection was cut" if isinstance(error, OSError) else type(error).__name__
