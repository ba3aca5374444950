"""What each inference server expects and how it shows that it is ready, as data.

No two agree: one opens its port before the model is loaded, one refuses connections for
minutes, one says 200 with no model at all. So readiness is a question put to the model
itself wherever the server has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

LOOPBACK = "127.0.0.1"


class ModelProbe(Enum):
    """The question whose answer shows that the model is loaded."""

    NOTHING = auto()
    ONE_TOKEN = auto()
    """An OpenAI-style request for one token, or for what the task type offers instead."""
    GENERATE_HEALTH = auto()
    """SGLang generates a token by itself on GET /health_generate."""
    LOAD = auto()
    """Ollama loads a model when it is asked to generate nothing with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendFacts:
    """How one kind of backend is started and judged."""

    command: str | None = None
    """What to run when a workload gives no command."""
    address_flags: bool = False
    """Takes `--host` and `--port`."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables that tell it where to listen, beside HOST and PORT."""
    health: str | None = None
    """None asks /health, and takes any answer below 500 as a sign of life."""
    ask: ModelProbe = ModelProbe.NOTHING
    startup: float = 120.0


_VLLM = BackendFacts(
    command="vllm serve ${MODEL}",
    address_flags=True,
    health="/health",
    ask=ModelProbe.ONE_TOKEN,
    startup=600.0,
)
_CUSTOM = BackendFacts()
_FACTS = {
    "vllm": _VLLM,
    "vllm-omni": BackendFacts(
        command="vllm serve ${MODEL} --omni",
        address_flags=True,
        health="/health",
        ask=ModelProbe.ONE_TOKEN,
        startup=600.0,
    ),
    "sglang": BackendFacts(
        command="python3 -m sglang.launch_server --model-path ${MODEL}",
        address_flags=True,
        health="/health",
        ask=ModelProbe.GENERATE_HEALTH,
        startup=600.0,
    ),
    "llamacpp": BackendFacts(
        command="llama-server --model ${MODEL}",
        address_flags=True,
        health="/health",
        ask=ModelProbe.ONE_TOKEN,
    ),
    "ollama": BackendFacts(
        command="ollama serve",
        env=(("OLLAMA_HOST", "${HOST}:${PORT}"),),
        health="/api/version",
        ask=ModelProbe.LOAD,
    ),
}


def facts_of(backend: str) -> BackendFacts:
    """Return what is known of a backend; one of the user's own gets the plainest treatment."""
    return _FACTS.get(backend, _CUSTOM)
