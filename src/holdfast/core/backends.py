"""What each inference server needs in a pod, as data.

Read by the renderer of pods and by the rules that say which fields must be given. Images are
pinned: a new default here would restart every model that relies on it, so a change of this table
changes the golden files of the tests, and has to be meant.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_BACKEND = "vllm"
POD_PORT = 8000
POD_HOST = "0.0.0.0"  # noqa: S104  # inside a pod, where the network policy decides who may call
RESERVED_VARIABLES = ("HOST", "PORT", "OLLAMA_HOST", "OLLAMA_MODEL")
"""Environment variables that the renderer sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendProfile:
    """How one backend is started, asked and stopped inside a pod."""

    image: str | None = None
    command: tuple[str, ...] = ()
    """Empty leaves the entry point to the image."""
    address_flags: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    path: str = "/health"
    startup_path: str | None = None
    """Asked until the model has answered once, where that is more than `path` asks."""
    startup: int = 600
    parallel_flag: str | None = None
    """Spreads one model over several GPUs."""
    names_flag: str | None = None
    """Takes the names under which a model answers; others are refused by the backend."""
    drain_flag: str | None = None
    post_start: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    """A command that succeeds once the model is there, where no path says so."""
    shared_memory: bool = False
    local_model_flag: tuple[str, str] | None = None
    """Another flag names the model when it is a path inside the image or a volume."""


_ADDRESS = ("--host", POD_HOST, "--port", str(POD_PORT))
_MODEL = "${MODEL}"

_PROFILES = {
    "vllm": BackendProfile(
        image="vllm/vllm-openai:v0.32.0",
        command=("vllm", "serve", _MODEL),
        address_flags=_ADDRESS,
        parallel_flag="--tensor-parallel-size",
        names_flag="--served-model-name",
        drain_flag="--shutdown-timeout",
        shared_memory=True,
    ),
    "vllm-omni": BackendProfile(
        command=("vllm", "serve", _MODEL, "--omni"),
        address_flags=_ADDRESS,
        parallel_flag="--tensor-parallel-size",
        names_flag="--served-model-name",
        shared_memory=True,
    ),
    "sglang": BackendProfile(
        image="lmsysorg/sglang:v0.5.23",
        command=("python3", "-m", "sglang.launch_server", "--model-path", _MODEL),
        address_flags=_ADDRESS,
        startup_path="/health_generate",
        parallel_flag="--tp-size",
        shared_memory=True,
    ),
    "llamacpp": BackendProfile(
        image="ghcr.io/ggml-org/llama.cpp:server-b11669",
        command=("/app/llama-server", "--hf-repo", _MODEL, "--metrics"),
        address_flags=_ADDRESS,
        startup=300,
        local_model_flag=("--hf-repo", "--model"),
    ),
    "ollama": BackendProfile(
        image="ollama/ollama:0.17.4",
        command=("ollama", "serve"),
        env=(("OLLAMA_HOST", f"{POD_HOST}:{POD_PORT}"), ("OLLAMA_MODEL", _MODEL)),
        path="/api/version",
        # The server starts without a model; the pod counts as started once it has been pulled.
        post_start=(
            "/bin/sh",
            "-c",
            'until ollama list >/dev/null 2>&1; do sleep 1; done; exec ollama pull "$OLLAMA_MODEL"',
        ),
        ready=("ollama", "show", _MODEL),
    ),
}
_CUSTOM = BackendProfile()
BACKENDS_WITH_IMAGE = tuple(name for name, engine in _PROFILES.items() if engine.image)


def backend_profile(backend: str | None) -> BackendProfile:
    """Return what is known of a backend; one of the user's own is asked on /health."""
    return _PROFILES.get(backend or DEFAULT_BACKEND, _CUSTOM)
