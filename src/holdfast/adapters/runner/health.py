"""Asks a backend whether it is alive, and whether its model answers.

An answer is a value: a refused connection, a 503 and a silent port are three ways of saying
"not yet", and the text tells a person which.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import aiohttp

from holdfast.adapters.runner.backends import Ask, BackendFacts
from holdfast.core.quantity import shown_seconds
from holdfast.core.redact import redact

_SHOWN = 200
_FIRST_TOKEN = 60.0
"""A first token can take long on a CPU; the start-up budget bounds it as well."""
_QUEUED_TOKEN = 30.0
"""A full server lets a probe queue: it must not be taken for a dead one too soon."""

_LEAST: dict[str, tuple[str, dict[str, object]]] = {
    "text2text": ("/v1/completions", {"prompt": "a", "max_tokens": 1}),
    "embedding": ("/v1/embeddings", {"input": "a"}),
    "reranker": ("/v1/rerank", {"query": "a", "documents": ["a"]}),
}
"""The least that a model can be asked, by task. Images and sound have no cheap question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a probe found."""

    ok: bool
    detail: str
    refused: bool = False
    """Nothing listens on the port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    status: int
    """0 when there was none."""
    text: str
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
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

    async def loaded(self, question: Question, *, patience: float, within: float) -> Answer:
        """Say whether a starting replica can serve: it is alive and its model answers."""
        within = max(0.1, within)
        answer = await self.alive(question, patience=min(patience, within))
        if answer.ok:
            answer = await self.answers(question, patience=min(_FIRST_TOKEN, within))
        return answer

    async def healthy(self, question: Question, *, patience: float, doubted: bool) -> Answer:
        """Say whether a serving replica still does; ask its model too if there is a doubt."""
        answer = await self.alive(question, patience=patience)
        if answer.ok and doubted:
            answer = await self.answers(question, patience=max(patience, _QUEUED_TOKEN))
        return answer

    async def alive(self, question: Question, *, patience: float) -> Answer:
        """Ask the health path."""
        path = question.path or question.backend.health
        reply = await self._send("GET", question.url + (path or "/health"), patience)
        if path is None:
            # A backend of the user's own need not have a health path: any answer will do.
            return _judged(reply, below=500)
        return _judged(reply, below=400)

    async def answers(self, question: Question, *, patience: float) -> Answer:
        """Ask the model itself for the least it can do, where the backend has a way."""
        match question.backend.ask:
            case Ask.NOTHING:
                return Answer(ok=True, detail="")
            case Ask.GENERATE_HEALTH:
                reply = await self._send("GET", f"{question.url}/health_generate", patience)
            case Ask.LOAD:
                reply = await self._send(
                    "POST", f"{question.url}/api/generate", patience, {"model": question.model}
                )
                if reply.status == 404 and "not found" in reply.text:
                    return Answer(ok=False, detail=f"model {question.model} is not on this Ollama")
            case Ask.ONE_TOKEN:
                least = _LEAST.get(question.task or "text2text")
                if least is None:
                    return Answer(ok=True, detail="")
                path, body = least
                name = await self._served_name(question.url, patience)
                reply = await self._send(
                    "POST", question.url + path, patience, {"model": name or question.model} | body
                )
        # A refusal is an answer too: the server is up and simply does another task than this.
        return _judged(reply, below=500, also=501)

    async def _served_name(self, url: str, patience: float) -> str | None:
        """Return the name under which the model is served, which may be an alias."""
        reply = await self._send("GET", f"{url}/v1/models", patience, most=64 * 1024)
        try:
            first = json.loads(reply.text)["data"][0]["id"]
        except (ValueError, KeyError, IndexError, TypeError):
            return None
        return first if isinstance(first, str) else None

    async def _send(
        self,
        method: str,
        url: str,
        patience: float,
        body: dict[str, object] | None = None,
        *,
        most: int = 2048,
    ) -> _Reply:
        try:
            async with (
                asyncio.timeout(patience),
                self._session.request(method, url, json=body, allow_redirects=False) as response,
            ):
                data = await response.content.read(most)
                return _Reply(status=response.status, text=data.decode(errors="replace"))
        except TimeoutError:
            return _Reply(status=0, text=f"no answer in {shown_seconds(patience)}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            refused = isinstance(error, aiohttp.ClientConnectorError | ConnectionRefusedError)
            return _Reply(status=0, text=_reason(error), refused=refused)


def _judged(reply: _Reply, *, below: int, also: int = 0) -> Answer:
    if reply.status == 0:
        return Answer(ok=False, detail=reply.text, refused=reply.refused)
    ok = reply.status < below or reply.status == also
    shown = " ".join(redact(reply.text).split())[:_SHOWN]
    return Answer(ok=ok, detail=f"{reply.status} {shown}".strip())


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError | ConnectionRefusedError):
        return "connection refused"
    return "the connection was cut" if isinstance(error, OSError) else type(error).__name__
