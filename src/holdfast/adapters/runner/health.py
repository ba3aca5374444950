"""Asks a backend whether it is alive, and whether its model answers.

An answer is a value: a refused connection, a 503 and a silent port are three ways of saying
"not yet", and the text says which.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from holdfast.adapters.outbound import NoResponse, OutboundClient, OutboundResponse, sanitize
from holdfast.core.backends import BackendProfile, ModelProbe

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
"""The least that a model can be asked, by task. Images and sound have no cheap target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a probe found."""

    ok: bool
    detail: str
    refused: bool = False
    """Nothing listens on the port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    """What to ask one replica."""

    url: str
    backend: BackendProfile
    path: str | None
    """The declared health path, which outranks the backend's usual one."""
    model: str
    task: str


class Prober:
    """Holds the HTTP client; one for the whole runner."""

    def __init__(self) -> None:
        # A probe on a kept connection would not see that the listener is gone.
        self._client = OutboundClient(timeout=_FIRST_TOKEN_TIMEOUT, max_bytes=0, keep_alive=False)

    async def close(self) -> None:
        """Close the client."""
        await self._client.aclose()

    async def check_loaded(
        self, target: ProbeTarget, *, probe_timeout: float, within: float
    ) -> ProbeResult:
        """Say whether a starting replica can serve: it is alive and its model answers."""
        within = max(0.1, within)
        result = await self.check_alive(target, probe_timeout=min(probe_timeout, within))
        if result.ok:
            result = await self.check_model(target, probe_timeout=min(_FIRST_TOKEN_TIMEOUT, within))
        return result

    async def check_healthy(
        self, target: ProbeTarget, *, probe_timeout: float, doubted: bool
    ) -> ProbeResult:
        """Say whether a serving replica still does; ask its model too if there is a doubt."""
        result = await self.check_alive(target, probe_timeout=probe_timeout)
        if result.ok and doubted:
            result = await self.check_model(
                target, probe_timeout=max(probe_timeout, _QUEUED_TOKEN_TIMEOUT)
            )
        return result

    async def check_alive(self, target: ProbeTarget, *, probe_timeout: float) -> ProbeResult:
        """Ask the health path."""
        path = target.path or target.backend.health_path
        response = await self._request("GET", target.url + (path or "/health"), probe_timeout)
        if path is None:
            # A backend of the user's own need not have a health path: any answer will do.
            return _probe_result(response, below=500)
        return _probe_result(response, below=400)

    async def check_model(self, target: ProbeTarget, *, probe_timeout: float) -> ProbeResult:
        """Ask the model itself for the least it can do, where the backend has a way."""
        match target.backend.model_probe:
            case ModelProbe.NOTHING:
                return ProbeResult(ok=True, detail="")
            case ModelProbe.GENERATE_HEALTH:
                response = await self._request(
                    "GET", f"{target.url}/health_generate", probe_timeout
                )
            case ModelProbe.LOAD:
                response = await self._request(
                    "POST", f"{target.url}/api/generate", probe_timeout, {"model": target.model}
                )
                if _is_missing_model(response):
                    where = target.backend.title
                    return ProbeResult(
                        ok=False, detail=f"model {target.model} is not on this {where}"
                    )
            case ModelProbe.ONE_TOKEN:
                least = _CHEAPEST_REQUESTS.get(target.task or "text2text")
                if least is None:
                    return ProbeResult(ok=True, detail="")
                path, body = least
                name = await self._fetch_served_name(target.url, probe_timeout)
                response = await self._request(
                    "POST", target.url + path, probe_timeout, {"model": name or target.model} | body
                )
        # A refusal is an answer too: the server is up and simply does another task than this.
        return _probe_result(response, below=500, also=501)

    async def _fetch_served_name(self, url: str, probe_timeout: float) -> str | None:
        """Return the name under which the model is served, which may be an alias."""
        response = await self._request("GET", f"{url}/v1/models", probe_timeout, limit=64 * 1024)
        if isinstance(response, NoResponse):
            return None
        try:
            first = json.loads(response.body)["data"][0]["id"]
        except (ValueError, KeyError, IndexError, TypeError):
            return None
        return first if isinstance(first, str) else None

    async def _request(
        self,
        method: str,
        url: str,
        probe_timeout: float,
        body: dict[str, object] | None = None,
        *,
        limit: int = 2048,
    ) -> OutboundResponse | NoResponse:
        return await self._client.send(
            method, url, json=body, request_timeout=probe_timeout, truncate_at=limit
        )


def _is_missing_model(response: OutboundResponse | NoResponse) -> bool:
    return (
        isinstance(response, OutboundResponse)
        and response.status == 404
        and b"not found" in response.body
    )


def _probe_result(
    response: OutboundResponse | NoResponse, *, below: int, also: int = 0
) -> ProbeResult:
    if isinstance(response, NoResponse):
        return ProbeResult(ok=False, detail=response.reason, refused=not response.sent)
    ok = response.status < below or response.status == also
    shown = sanitize(response.body.decode(errors="replace"), limit=_DETAIL_LIMIT)
    return ProbeResult(ok=ok, detail=f"{response.status} {shown}".strip())
