"""The inference servers that Holdfast knows, one row each: how to start, probe, ask and stop them.

The only table of them. Pods are rendered from it, local processes are started and probed by it,
an existing Deployment is recognised by it, command lines are compared by it, and what an engine
answers is read by the functions that its row names; so a new engine is a member of `Backend` and a
row, and no other module names one (`tests/test_engines.py`). Any other backend is one of the
user's own, and gets the plainest treatment.

Images are pinned: a new default here would restart every model that relies on it, so a change of
this table changes the golden files of the tests, and has to be meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto

from holdfast.core.engine_answer import (
    MAX_ANSWER_TEXT,
    EngineReport,
    LoadedAdapter,
    StoredModel,
    UnreadableAnswer,
    Unreported,
    expect_count,
    expect_list,
    expect_object,
    expect_text,
    is_number,
    optional_count,
    optional_text,
)
from holdfast.core.tree import Tree

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineQuery:
    """One GET by which an engine is asked what it serves."""

    paths: tuple[str, ...]
    """A later one is asked where the engine does not know an earlier one."""
    tells: tuple[str, ...]
    """The fields of the report that are unknown without an answer."""
    read: Callable[[Tree, EngineReport], EngineReport]
    """Put an answer into the report, or raise `UnreadableAnswer`."""


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
    title: str = ""
    """Its name, as its makers write it."""
    command: tuple[str, ...] = ()
    """Empty leaves it to the image; a process then needs a command of its own."""
    address_flags: bool = False
    """Takes `--host` and `--port`."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables that it reads, beside HOST and PORT."""
    health_path: str | None = None
    """None asks /health, and takes any answer of a process below 500 as a sign of life."""

    # Where its model comes from.
    own_registry: bool = False
    """Models are pulled by tag from a registry of its own; no path and no revision is taken."""
    single_file: bool = False
    """Loads one file in GGUF format, and of a hub's repository the one of a quantisation, named
    behind a colon."""
    other_hub_variables: tuple[str, ...] = ()
    """Variables that have it download from a hub of another kind."""

    # In a pod.
    image: str | None = None
    version_field: str | None = None
    """The field of a declaration that chooses the tag of its image."""
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

    inherited_prefix: str | None = None
    """Variables of this machine that begin so are handed to it."""

    # How others start it.
    programs: tuple[str, ...] = ()
    python_module: str = ""
    images: tuple[str, ...] = ()
    """Parts of the names of its images."""
    variant: tuple[str, str] | None = None
    """Another backend and a flag: with that flag, the program of the other one is this one."""
    model_flags: tuple[str, ...] = ()
    model_words: tuple[str, ...] = ()
    """Words of its command line that a model follows."""
    model_first: bool = False
    """The entry point of its image takes a model as its first argument."""
    model_variables: tuple[str, ...] = ()
    """Variables that name a model."""
    entry_words: tuple[str, ...] = ()
    """What the entry point of its image is given in order to serve."""
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


# What engines answer.


def _read_model_cards(tree: Tree, report: EngineReport) -> EngineReport:
    cards = [expect_object(card) for card in expect_list(expect_object(tree).get("data"), "data")]
    bases = [card for card in cards if not card.get("parent")]
    if not bases:
        raise UnreadableAnswer("it lists no model")
    roots = dict.fromkeys(optional_text(card.get("root")) for card in bases)
    lengths = {optional_count(card.get("max_model_len")) for card in bases}
    root, length = next(iter(roots)), next(iter(lengths))
    return replace(
        report,
        model=root if root and len(roots) == 1 else Unreported(reason="It lists no single root."),
        names=tuple(expect_text(card.get("id"), "id") for card in bases),
        length=length
        if length and len(lengths) == 1
        else Unreported(reason="It lists no single maximum length."),
        adapters=tuple(
            LoadedAdapter(
                name=expect_text(card.get("id"), "id"), source=optional_text(card.get("root")) or ""
            )
            for card in cards
            if card.get("parent")
        ),
    )


def _read_model_info(tree: Tree, report: EngineReport) -> EngineReport:
    # Its list of models has the served name as root, so this alone tells the model.
    return replace(report, model=expect_text(expect_object(tree).get("model_path"), "model_path"))


def _read_llama_props(tree: Tree, report: EngineReport) -> EngineReport:
    props = expect_object(tree)
    settings = expect_object(props.get("default_generation_settings"))
    return replace(
        report,
        model=expect_text(props.get("model_path"), "model_path"),
        length=expect_count(settings.get("n_ctx"), "n_ctx"),
        slots=expect_count(props.get("total_slots"), "total_slots"),
        length_step=256,  # it rounds a context up to a multiple of this
    )


def _read_llama_models(tree: Tree, report: EngineReport) -> EngineReport:
    names: dict[str, None] = {}
    for each in expect_list(expect_object(tree).get("data"), "data"):
        card = expect_object(each)
        aliases = card.get("aliases")
        listed = expect_list(aliases, "aliases") if aliases else [card.get("id")]
        names |= dict.fromkeys(expect_text(name, "a name") for name in listed)
    if not names:
        raise UnreadableAnswer("it lists no model")
    return replace(report, names=tuple(names))


def _read_llama_adapters(tree: Tree, report: EngineReport) -> EngineReport:
    found = []
    for each in expect_list(tree, "the list"):
        item = expect_object(each)
        scale, id = item.get("scale"), item.get("id")
        if not is_number(scale) or not isinstance(id, int) or isinstance(id, bool):
            raise UnreadableAnswer("an adapter has no id or no scale")
        path = expect_text(item.get("path"), "path")
        found.append(LoadedAdapter(name="", source=path, scale=float(scale), id=id))
    return replace(report, adapters=tuple(found))


def _read_ollama_tags(tree: Tree, report: EngineReport) -> EngineReport:
    stored = _ollama_models(tree)
    told = ", ".join(each.name for each in stored)[:MAX_ANSWER_TEXT] or "no model"
    return replace(report, model=told, stored=stored, default_tag="latest")


def _read_ollama_loaded(tree: Tree, report: EngineReport) -> EngineReport:
    return replace(report, loaded=_ollama_models(tree), default_tag="latest")


def _ollama_models(tree: Tree) -> tuple[StoredModel, ...]:
    listed = expect_list(expect_object(tree).get("models"), "models")
    models = [expect_object(each) for each in listed]
    return tuple(
        StoredModel(
            name=expect_text(each.get("name"), "name"),
            digest=f"sha256:{expect_text(each.get('digest'), 'digest').removeprefix('sha256:')}",
        )
        for each in models
    )


_MODEL_CARDS = EngineQuery(
    paths=("/v1/models",),
    tells=("model", "names", "length", "adapters"),
    read=_read_model_cards,
)

BACKENDS: Mapping[str, BackendProfile] = {
    "vllm": BackendProfile(
        title="vLLM",
        command=("vllm", "serve", "${MODEL}"),
        address_flags=True,
        health_path="/health",
        other_hub_variables=("VLLM_USE_MODELSCOPE",),
        image="vllm/vllm-openai:v0.32.0",
        version_field="vllm_version",
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
        inherited_prefix="VLLM_",
        programs=("vllm", "vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"),
        python_module="vllm",
        images=("vllm",),
        model_flags=("--model",),
        model_words=("serve",),
        model_first=True,
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
        title="vLLM-Omni",
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
        programs=("vllm",),
        variant=("vllm", "--omni"),
        model_flags=("--model",),
        model_words=("serve",),
        model_first=True,
    ),
    "sglang": BackendProfile(
        title="SGLang",
        command=("python3", "-m", "sglang.launch_server", "--model-path", "${MODEL}"),
        address_flags=True,
        health_path="/health",
        other_hub_variables=("SGLANG_USE_MODELSCOPE",),
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
                paths=("/model_info", "/get_model_info"),
                tells=("model",),
                read=_read_model_info,
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
        title="llama.cpp",
        command=("/app/llama-server", "--hf-repo", "${MODEL}", "--metrics"),
        address_flags=True,
        health_path="/health",
        single_file=True,
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
        model_variables=("LLAMA_ARG_HF_REPO", "LLAMA_ARG_MODEL"),
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
            EngineQuery(paths=("/props",), tells=("model", "length"), read=_read_llama_props),
            EngineQuery(paths=("/v1/models",), tells=("names",), read=_read_llama_models),
            EngineQuery(paths=("/lora-adapters",), tells=("adapters",), read=_read_llama_adapters),
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
        title="Ollama",
        command=("ollama", "serve"),
        env=(("OLLAMA_HOST", "${HOST}:${PORT}"),),
        health_path="/api/version",
        own_registry=True,
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
        model_words=("pull", "run"),
        model_variables=("OLLAMA_MODEL",),
        entry_words=("serve",),
        queries=(
            EngineQuery(paths=("/api/tags",), tells=("model",), read=_read_ollama_tags),
            EngineQuery(paths=("/api/ps",), tells=("loaded",), read=_read_ollama_loaded),
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
