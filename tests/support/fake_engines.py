"""Engines in memory that answer as real ones do, for tests of what pods serve.

Shapes: vLLM `OpenAIServingModels` (`/v1/models`, `/v1/load_lora_adapter`), SGLang 0.5.23
`http_server.py` (`/v1/models`, `/model_info`), llama.cpp's `/props`, `/v1/models` and
`/lora-adapters` as the server of xllamacpp 2026.10 answers; Ollama's documented `/api/tags` and
`/api/ps`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.backends import BackendProfile, EngineQuery
from holdfast.core.engine_answer import EngineReport, Unreported
from holdfast.core.engine_report import AdapterRequest, read_report


@dataclass(kw_only=True)
class FakeEngine:
    """One process. `adapters` are name to path, or for llama.cpp path to scale."""

    model: str
    names: list[str] = field(default_factory=lambda: ["bot"])
    length: int = 8192
    adapters: dict[str, Any] = field(default_factory=dict)
    stored: str = "a" * 64
    loaded: str = "a" * 64
    """Ollama's digests of the weights, on the disk and in memory."""
    runtime_updates: bool = True
    """False refuses changes of adapters, as vLLM does by default."""
    refusal: str = "POST /v1/load_lora_adapter: it answered with 404."
    hangs: FakeEngine | str | None = None
    """Given, a change of adapters gets no answer, and this is at its address from then on."""
    halved: str = ""
    """The path of the question that it breaks off in the middle of its answer to."""

    def get(self, query: EngineQuery) -> Any:  # Any: JSON
        match query.paths[0]:
            case "/v1/models" if query.tells == ("names",):
                return {"data": [{"id": self.names[0], "aliases": self.names}]}
            case "/v1/models":
                base = [
                    {"id": name, "object": "model", "root": self.model, "parent": None,
                     "max_model_len": self.length}
                    for name in self.names
                ]  # fmt: skip
                lora = [
                    {"id": name, "object": "model", "root": path, "parent": self.names[0],
                     "max_model_len": None}
                    for name, path in self.adapters.items()
                ]  # fmt: skip
                return {"object": "list", "data": [*base, *lora]}
            case "/model_info":
                return {"model_path": self.model, "is_generation": True}
            case "/props":
                settings = {"n_ctx": self.length}
                return {
                    "model_path": self.model,
                    "total_slots": 1,
                    "default_generation_settings": settings,
                }
            case "/lora-adapters":
                return [
                    {"id": place, "path": path, "scale": scale}
                    for place, (path, scale) in enumerate(self.adapters.items())
                ]
            case "/api/tags":
                return {"models": [{"name": self.model, "digest": self.stored}]}
            case "/api/ps":
                return {"models": [{"name": self.model, "digest": self.loaded}]}
            case path:
                raise AssertionError(path)

    def post(self, request: AdapterRequest) -> str | None:
        body: Any = request.body
        if request.path == "/lora-adapters":
            # Those that are left out of the list are set to 0.
            given = {each["id"]: each["scale"] for each in body}
            for place, path in enumerate(self.adapters):
                self.adapters[path] = given.get(place, 0.0)
        elif not self.runtime_updates:
            return self.refusal
        elif request.path.endswith("/load_lora_adapter"):
            self.adapters[body["lora_name"]] = body["lora_path"]
        elif request.path.endswith("/unload_lora_adapter"):
            del self.adapters[body["lora_name"]]
        return None


class FakeEngines:
    """The port `EngineApi` over engines by address."""

    def __init__(self) -> None:
        self.at: dict[str, FakeEngine | str] = {}
        """An engine, or why it does not answer."""
        self.asked: list[str] = []
        self.sent: list[AdapterRequest] = []

    async def report(self, url: str, backend: BackendProfile) -> EngineReport:
        self.asked.append(url)
        found = self.at.get(url, "could not be reached: Connection refused")
        if isinstance(found, str):
            silent = Unreported(reason=f"GET {backend.queries[0].paths[0]}: it {found}.")
            return read_report(backend, {query.paths[0]: silent for query in backend.queries})
        bodies = {}
        for query in backend.queries:
            body = json.dumps(found.get(query)).encode()
            halved = query.paths[0] == found.halved
            bodies[query.paths[0]] = body[: len(body) // 2] if halved else body
        return read_report(backend, bodies)

    async def send(self, url: str, request: AdapterRequest) -> Unreported | None:
        self.sent.append(request)
        found = self.at[url]
        if isinstance(found, str):
            return Unreported(reason=f"POST {request.path}: it {found}.", unreachable=True)
        if found.hangs is not None:
            self.at[url] = found.hangs
            reason = f"POST {request.path}: it gave no answer in 60s."
            return Unreported(reason=reason, unreachable=True)
        refused = found.post(request)
        return Unreported(reason=refused) if refused is not None else None
