"""The inference servers that Holdfast knows, one row each: how to start, address, probe and stop.

The only table of them. Pods are rendered from it, local processes are started and probed by it,
an existing Deployment is recognised by it, and command lines are compared by it; so a new engine
is a member of `Backend` and a row. Any other backend is one of the user's own, and gets the
plainest treatment.

Images are pinned: a new default here would restart every model that relies on it, so a change of
this table changes the golden files of the tests, and has to be meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto

DEFAULT_BACKEND = "vllm"
"""Of a custom resource that names none."""
POD_PORT = 8000
POD_HOST = "0.0.0.0"  # noqa: S104  # inside a pod, where the network policy decides who may call


class Backend(StrEnum):
    """The inference server. Any other slug names a custom backend."""

    OLLAMA = "ollama"
    VLLM = "vllm"
    VLLM_OMNI = "vllm-omni"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    STABLEDIFFUSIONCPP = "stablediffusioncpp"


class ModelProbe(Enum):
    """The question whose answer shows that the model is loaded.

    No two servers agree: one opens its port before the model is loaded, one refuses connections
    for minutes, one says 200 with no model at all.
    """

    NOTHING = auto()
    ONE_TOKEN = auto()
    """An OpenAI-style request for one token, or for what the task type offers instead."""
    GENERATE_HEALTH = auto()
    """SGLang generates a token by itself on GET /health_generate."""
    LOAD = auto()
    """Ollama loads a model when it is asked to generate nothing with it."""


class EngineEndpoint(Enum):
    """Where an engine tells what it serves; `core/engine_report.py` reads what comes back."""

    MODEL_CARDS = auto()
    """Models as OpenAI lists them, with root, maximum length and, of an adapter, its parent."""
    MODEL_INFO = auto()
    """SGLang's own: the path of the model, which a weight update moves."""
    LLAMA_PROPS = auto()
    LLAMA_MODELS = auto()
    LLAMA_ADAPTERS = auto()
    OLLAMA_TAGS = auto()
    OLLAMA_LOADED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineQuery:
    """One GET. A later path is asked where the engine does not know an earlier one."""

    endpoint: EngineEndpoint
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterLoading:
    """How an engine takes LoRA adapters: at its start, and while it runs."""

    flags: tuple[str, ...]
    """The last one takes the adapters; those before it switch them on."""
    item: str
    """One adapter as that flag takes it, from `{name}`, `{source}` and `{scale}`."""
    separator: str = ""
    """Between two in one value; empty where each is a value of its own."""
    scaled: bool = False
    """An adapter has a scale."""
    local_only: bool = False
    """A source is a file where the engine runs, and no name on a hub."""
    load_path: str = ""
    unload_path: str = ""
    scale_path: str = ""
    """Where adapters are changed while it runs; empty where the engine cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendProfile:
    """What is known of one backend. `${MODEL}`, `${HOST}` and `${PORT}` are filled in."""

    # Everywhere.
    command: tuple[str, ...] = ()
    """Empty leaves it to the image; a process then needs a command of its own."""
    address_flags: bool = False
    """Takes `--host` and `--port`."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables that it reads, beside HOST and PORT."""
    health_path: str | None = None
    """None asks /health, and takes any answer of a process below 500 as a sign of life."""

    # In a pod.
    image: str | None = None
    pod_env: tuple[tuple[str, str], ...] = ()
    startup_path: str | None = None
    """Asked until the model has answered once, where that is more than `health_path` asks."""
    ready: tuple[str, ...] = ()
    """A command that succeeds once the model is there, where no path says so."""
    post_start: tuple[str, ...] = ()
    pod_startup: int = 600
    """Seconds to pull weights and load them."""
    parallel_flag: str | None = None
    """Spreads one model over several GPUs."""
    nodes_flags: tuple[str, ...] = ()
    """Join the pods of one replica to one server. `${NODES}` is filled in here; the kubelet fills
    in what a LeaderWorkerSet tells each pod. Empty: no way to do so is known."""
    worker_flags: tuple[str, ...] = ()
    """Given to the pods beside the first, which answer no requests themselves."""
    stages_flag: str | None = None
    """Takes the number of nodes that a model's layers are divided over. None: `parallel_flag`
    counts the GPUs of all nodes."""
    scaling_presets: tuple[tuple[str, tuple[str, float]], ...] = ()
    """What to scale by: the name of a preset, its metric, and the usual value per pod."""
    metrics_flag: str | None = None
    """Without it, no metrics are reported."""
    names_flag: str | None = None
    """Takes the names under which a model answers; others are refused by the backend."""
    revision_flag: str | None = None
    """Takes the revision of a model that it downloads by itself, tokenizer included."""
    local_name_flag: str | None = None
    """Takes the one name under which a model from a path answers, where `names_flag` has none."""
    drain_flag: str | None = None
    busy_metrics: tuple[str, ...] = ()
    """Gauges on /metrics of requests that it runs or has queued. A pod is stopped once they are 0:
    on SIGTERM most servers stop generating, and cut the streams that they were sending."""
    drains_by_connections: bool = False
    """It counts no requests, so that a pod is stopped once no caller is connected."""
    local_model_flag: tuple[str, str] | None = None
    """Another flag names the model when it is a path inside the image or a volume."""
    shared_memory: bool = False

    # As a process of this machine.
    process_command: tuple[str, ...] = ()
    """Where it differs: programs are on the path, and weights on the disk."""
    process_startup: float = 120.0
    model_probe: ModelProbe = ModelProbe.NOTHING

    # How others start it.
    programs: tuple[str, ...] = ()
    python_module: str = ""
    images: tuple[str, ...] = ()
    """Parts of the names of its images."""
    model_flags: tuple[str, ...] = ()
    flag_aliases: Mapping[str, str] = field(default_factory=dict)
    """The other spellings of a flag, and the one that it is compared under. Only what the program
    documents: two flags that are taken for one would hide drift."""
    ignores_underscores: bool = False
    """Reads `--max_model_len` as `--max-model-len`."""

    # What it says that it serves.
    queries: tuple[EngineQuery, ...] = ()
    """Empty for an engine that nobody knows how to ask."""
    alias_flag: str | None = None
    """Takes the names under which a model is listed, where `names_flag` is not that flag."""
    tells_digest: bool = False
    """It says which weights it has by their digest, which a declared one is compared with."""
    length_flag: str | None = None
    """The longest request, prompt and answer together, in tokens."""
    adapter_loading: AdapterLoading | None = None


_MODEL_CARDS = EngineQuery(endpoint=EngineEndpoint.MODEL_CARDS, paths=("/v1/models",))

BACKENDS: Mapping[str, BackendProfile] = {
    "vllm": BackendProfile(
        command=("vllm", "serve", "${MODEL}"),
        address_flags=True,
        health_path="/health",
        image="vllm/vllm-openai:v0.32.0",
        parallel_flag="--tensor-parallel-size",
        nodes_flags=(
            *("--nnodes", "${NODES}"),
            *("--node-rank", "$(LWS_WORKER_INDEX)"),
            *("--master-addr", "$(LWS_LEADER_ADDRESS)"),
        ),
        worker_flags=("--headless",),
        stages_flag="--pipeline-parallel-size",
        scaling_presets=(
            ("queue", ("vllm:num_requests_waiting", 5.0)),
            ("kv-cache", ("vllm:kv_cache_usage_perc", 0.8)),
        ),
        names_flag="--served-model-name",
        revision_flag="--revision",
        drain_flag="--shutdown-timeout",
        busy_metrics=("vllm:num_requests_running", "vllm:num_requests_waiting"),
        shared_memory=True,
        process_startup=600.0,
        model_probe=ModelProbe.ONE_TOKEN,
        programs=("vllm", "vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"),
        python_module="vllm",
        images=("vllm",),
        model_flags=("--model",),
        flag_aliases={
            "-tp": "--tensor-parallel-size",
            "-pp": "--pipeline-parallel-size",
            "-dp": "--data-parallel-size",
            "-dcp": "--decode-context-parallel-size",
            "-pcp": "--prefill-context-parallel-size",
            "-dpn": "--data-parallel-rank",
            "-dpr": "--data-parallel-start-rank",
            "-dpl": "--data-parallel-size-local",
            "-dpa": "--data-parallel-address",
            "-dpp": "--data-parallel-rpc-port",
            "-dpb": "--data-parallel-backend",
            "-ep": "--enable-expert-parallel",
            "-q": "--quantization",
        },
        ignores_underscores=True,
        queries=(_MODEL_CARDS,),
        length_flag="--max-model-len",
        adapter_loading=AdapterLoading(
            flags=("--enable-lora", "--lora-modules"),
            item="{name}={source}",
            # Only where the user sets VLLM_ALLOW_RUNTIME_LORA_UPDATING; else 404.
            load_path="/v1/load_lora_adapter",
            unload_path="/v1/unload_lora_adapter",
        ),
    ),
    "vllm-omni": BackendProfile(
        command=("vllm", "serve", "${MODEL}", "--omni"),
        address_flags=True,
        health_path="/health",
        busy_metrics=("vllm:num_requests_running", "vllm:num_requests_waiting"),
        scaling_presets=(("queue", ("vllm:num_requests_waiting", 5.0)),),
        parallel_flag="--tensor-parallel-size",
        names_flag="--served-model-name",
        revision_flag="--revision",
        shared_memory=True,
        process_startup=600.0,
        model_probe=ModelProbe.ONE_TOKEN,
        model_flags=("--model",),
    ),
    "sglang": BackendProfile(
        command=("python3", "-m", "sglang.launch_server", "--model-path", "${MODEL}"),
        address_flags=True,
        health_path="/health",
        image="lmsysorg/sglang:v0.5.23",
        startup_path="/health_generate",
        parallel_flag="--tp-size",
        revision_flag="--revision",
        local_name_flag="--served-model-name",
        nodes_flags=(
            *("--nnodes", "${NODES}"),
            *("--node-rank", "$(LWS_WORKER_INDEX)"),
            *("--dist-init-addr", "$(LWS_LEADER_ADDRESS):20000"),
        ),
        scaling_presets=(
            ("queue", ("sglang:num_queue_reqs", 5.0)),
            ("kv-cache", ("sglang:token_usage", 0.8)),
        ),
        metrics_flag="--enable-metrics",
        shared_memory=True,
        process_startup=600.0,
        model_probe=ModelProbe.GENERATE_HEALTH,
        programs=("sglang.launch_server", "sglang"),
        python_module="sglang",
        images=("sglang",),
        model_flags=("--model-path", "--model"),
        flag_aliases={
            "--model": "--model-path",
            "--tp": "--tensor-parallel-size",
            "--tp-size": "--tensor-parallel-size",
            "--pp-size": "--pipeline-parallel-size",
            "--dp": "--data-parallel-size",
            "--dp-size": "--data-parallel-size",
        },
        queries=(
            _MODEL_CARDS,
            EngineQuery(
                endpoint=EngineEndpoint.MODEL_INFO, paths=("/model_info", "/get_model_info")
            ),
        ),
        alias_flag="--served-model-name",
        length_flag="--context-length",
        adapter_loading=AdapterLoading(
            flags=("--lora-paths",),
            item="{name}={source}",
            load_path="/load_lora_adapter",
            unload_path="/unload_lora_adapter",
        ),
    ),
    "llamacpp": BackendProfile(
        command=("/app/llama-server", "--hf-repo", "${MODEL}", "--metrics"),
        address_flags=True,
        health_path="/health",
        image="ghcr.io/ggml-org/llama.cpp:server-b11669",
        pod_startup=300,
        busy_metrics=("llamacpp:requests_processing", "llamacpp:requests_deferred"),
        scaling_presets=(("queue", ("llamacpp:requests_deferred", 2.0)),),
        metrics_flag="--metrics",
        local_model_flag=("--hf-repo", "--model"),
        local_name_flag="--alias",
        process_command=("llama-server", "--model", "${MODEL}"),
        model_probe=ModelProbe.ONE_TOKEN,
        programs=("llama-server",),
        images=("llama.cpp", "llama-cpp", "llamacpp", "llama-server"),
        model_flags=("--hf-repo", "-hf", "-hfr", "--model", "-m"),
        flag_aliases={
            "-m": "--model",
            "-a": "--alias",
            "-c": "--ctx-size",
            "-b": "--batch-size",
            "-ub": "--ubatch-size",
            "-t": "--threads",
            "-tb": "--threads-batch",
            "-np": "--parallel",
            "-ngl": "--gpu-layers",
            "--n-gpu-layers": "--gpu-layers",
            "-sm": "--split-mode",
            "-ts": "--tensor-split",
            "-mg": "--main-gpu",
            "-ctk": "--cache-type-k",
            "-ctv": "--cache-type-v",
            "-fa": "--flash-attn",
            "-hf": "--hf-repo",
            "-hff": "--hf-file",
        },
        ignores_underscores=True,
        queries=(
            EngineQuery(endpoint=EngineEndpoint.LLAMA_PROPS, paths=("/props",)),
            EngineQuery(endpoint=EngineEndpoint.LLAMA_MODELS, paths=("/v1/models",)),
            EngineQuery(endpoint=EngineEndpoint.LLAMA_ADAPTERS, paths=("/lora-adapters",)),
        ),
        alias_flag="--alias",
        length_flag="--ctx-size",
        adapter_loading=AdapterLoading(
            flags=("--lora-scaled",),
            item="{source}:{scale}",
            separator=",",
            scaled=True,
            local_only=True,
            scale_path="/lora-adapters",
        ),
    ),
    "ollama": BackendProfile(
        command=("ollama", "serve"),
        env=(("OLLAMA_HOST", "${HOST}:${PORT}"),),
        health_path="/api/version",
        image="ollama/ollama:0.17.4",
        pod_env=(("OLLAMA_MODEL", "${MODEL}"),),
        # The server starts without a model; the pod counts as started once it has been pulled.
        post_start=(
            "/bin/sh",
            "-c",
            'until ollama list >/dev/null 2>&1; do sleep 1; done; exec ollama pull "$OLLAMA_MODEL"',
        ),
        ready=("ollama", "show", "${MODEL}"),
        drains_by_connections=True,
        model_probe=ModelProbe.LOAD,
        programs=("ollama",),
        images=("ollama",),
        queries=(
            EngineQuery(endpoint=EngineEndpoint.OLLAMA_TAGS, paths=("/api/tags",)),
            EngineQuery(endpoint=EngineEndpoint.OLLAMA_LOADED, paths=("/api/ps",)),
        ),
        tells_digest=True,
    ),
}
BACKENDS_WITH_IMAGE = tuple(name for name, backend in BACKENDS.items() if backend.image)
MULTI_NODE_BACKENDS = tuple(name for name, backend in BACKENDS.items() if backend.nodes_flags)
RESERVED_VARIABLES = (
    "HOST",
    "PORT",
    *(name for each in BACKENDS.values() for name, _ in (*each.env, *each.pod_env)),
)
"""Environment variables that Holdfast sets in a pod."""
_CUSTOM = BackendProfile()


def backend_profile(backend: str) -> BackendProfile:
    """Return what is known of a backend; one of the user's own is asked on /health."""
    return BACKENDS.get(backend, _CUSTOM)
