"""What engines say, read strictly, beside what was declared.

Shapes: vLLM `OpenAIServingModels.show_available_models`; SGLang 0.5.23 `http_server.py`
(`available_models`, `model_info`); llama.cpp `/props`, `/v1/models` and `/lora-adapters` as the
server of xllamacpp 2026.10 answered; Ollama's documented `/api/tags` and `/api/ps`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.backends import BACKENDS, backend_profile
from holdfast.core.engine_answer import MAX_ANSWER, LoadedAdapter, Unreported
from holdfast.core.engine_report import (
    DeclaredRuntime,
    RuntimeMatch,
    adapter_requests,
    compare_runtime,
    read_declaration,
    read_report,
    served_digest,
)
from holdfast.core.lora import LoraAdapter

SQL = LoraAdapter(name="sql", source="/lora/sql")
CARDS = "/v1/models"
MODEL_INFO = "/model_info"
PROPS, LLAMA_ADAPTERS = "/props", "/lora-adapters"
TAGS, LOADED = "/api/tags", "/api/ps"


def card(id: str, root: str | None, **more: Any) -> dict[str, Any]:  # Any: JSON
    return {"id": id, "object": "model", "created": 1, "owned_by": "vllm", "root": root,
            "parent": None, "max_model_len": 8192, "permission": [], **more}  # fmt: skip


VLLM = {
    CARDS: {
        "object": "list",
        "data": [
            card("bot", "org/base"),
            card("org/base", "org/base"),
            card("sql", "/lora/sql", parent="bot", max_model_len=None),
        ],
    }
}
SGLANG = {
    CARDS: {"object": "list", "data": [card("bot", "bot"), card("sql", "/lora/sql", parent="bot")]},
    MODEL_INFO: {
        "model_path": "org/base",
        "tokenizer_path": "org/base",
        "is_generation": True,
        "weight_version": "default",
    },
}
LLAMA = {
    PROPS: {
        "default_generation_settings": {"n_ctx": 4096, "params": {"lora": []}},
        "total_slots": 2,
        "model_alias": "tiny",
        "model_path": "/models/base.gguf",
        "build_info": "b11669",
    },
    CARDS: {
        "object": "list",
        "data": [{"id": "tiny", "aliases": ["tiny"], "object": "model", "owned_by": "llamacpp",
                  "meta": {"n_ctx_train": 8192}}],
    },
    LLAMA_ADAPTERS: [
        {"id": 0, "path": "/lora/sql", "scale": 1.0, "task_name": "", "prompt_prefix": ""}
    ],
}  # fmt: skip
OLLAMA = {
    TAGS: {
        "models": [{"name": "llama3:latest", "model": "llama3:latest", "size": 1, "digest": "aa11",
                    "details": {"format": "gguf"}}]
    },
    LOADED: {
        "models": [{"name": "llama3:latest", "model": "llama3:latest", "digest": "aa11",
                    "expires_at": "2026-11-18T08:00:00Z", "size_vram": 0}]
    },
}  # fmt: skip
RESPONSES: dict[str, dict[str, Any]] = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "llamacpp": LLAMA,
    "ollama": OLLAMA,
}
LINES = {
    "vllm": "vllm serve org/base --served-model-name bot org/base --max_model_len=8192".split(),
    "sglang": "python3 -m sglang.launch_server --model-path org/base --served-model-name bot "
    "--context-length 8192".split(),
    "llamacpp": "/app/llama-server -m /models/base.gguf -c 8192 -a tiny".split(),
    "ollama": ["ollama", "serve"],
}


def declared(backend: str, adapters: tuple[LoraAdapter, ...] | None = (SQL,)) -> DeclaredRuntime:
    kept = None if backend == "ollama" else adapters
    return read_declaration(LINES[backend], backend_profile(backend), model="llama3", adapters=kept)


def comparisons(
    backend: str,
    responses: dict[str, Any],
    wanted: DeclaredRuntime | None = None,
) -> dict[str, tuple[str, str | None, str | None]]:
    encoded = {
        name: value if isinstance(value, Unreported | bytes) else json.dumps(value).encode()
        for name, value in responses.items()
    }
    report = read_report(backend_profile(backend), encoded)
    found = compare_runtime(wanted or declared(backend), report)
    return {each.field: (each.match.value, each.declared, each.served) for each in found}


@pytest.mark.parametrize("backend", RESPONSES)
def test_what_is_served_as_declared_is_in_sync_in_every_field(backend: str) -> None:
    found = comparisons(backend, RESPONSES[backend])
    fields = (
        {"model", "digest"} if backend == "ollama" else {"model", "names", "maxLength", "adapters"}
    )
    assert set(found) == fields
    assert {each[0] for each in found.values()} == {"in-sync"}, found


def changed(backend: str, endpoint: str, value: Any) -> dict[str, Any]:
    return {**RESPONSES[backend], endpoint: value}


def cards(*held: dict[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": list(held)}


DIFFERENCES = [
    ("vllm", changed("vllm", CARDS, cards(card("bot", "org/other"), card("org/base", "org/other"),
                                          card("sql", "/lora/sql", parent="bot"))),
     {"model": ("org/base", "org/other")}),
    ("vllm", changed("vllm", CARDS, cards(card("bot", "org/base"))),
     {"names": ("bot, org/base", "bot"), "adapters.sql": ("/lora/sql", None)}),
    ("vllm", changed("vllm", CARDS, cards(
        *(card(name, "org/base", max_model_len=4096) for name in ("bot", "org/base")),
        card("sql", "/lora/other", parent="bot"), card("extra", "/lora/x", parent="bot"))),
     {"maxLength": ("8192", "4096"), "adapters.sql": ("/lora/sql", "/lora/other"),
      "adapters.extra": (None, "/lora/x")}),
    ("sglang", changed("sglang", MODEL_INFO, {"model_path": "org/updated"}),
     {"model": ("org/base", "org/updated")}),
    ("llamacpp", changed("llamacpp", LLAMA_ADAPTERS,
                         [{"id": 0, "path": "/lora/sql", "scale": 0.25}]),
     {"adapters.sql.scale": ("1", "0.25")}),
    ("llamacpp", changed("llamacpp", LLAMA_ADAPTERS,
                         [{"id": 0, "path": "/lora/sql", "scale": 1.0},
                          {"id": 1, "path": "/lora/x.gguf", "scale": 1.0}]),
     {"adapters.x.gguf": (None, "/lora/x.gguf")}),
    ("llamacpp", changed("llamacpp", PROPS,
                         {**LLAMA[PROPS],
                          "default_generation_settings": {"n_ctx": 1024}}),
     {"maxLength": ("8192", "2048")}),
    ("ollama", changed("ollama", TAGS,
                       {"models": [{"name": "qwen:0.5b", "digest": "bb"}]}),
     {"model": ("llama3", "qwen:0.5b")}),
    ("ollama", changed("ollama", TAGS,
                       {"models": [{"name": "llama3:latest", "digest": "bb22"}]}),
     {"digest": ("sha256:bb22", "sha256:aa11")}),
]  # fmt: skip


@pytest.mark.parametrize(("backend", "responses", "expected"), DIFFERENCES)
def test_each_difference_has_its_field_and_both_values(
    backend: str, responses: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = comparisons(backend, responses)
    differs = {field: each[1:] for field, each in found.items() if each[0] == "differs"}
    assert differs == expected


@pytest.mark.parametrize("n_ctx", [4096, 8192, 8447])
def test_a_context_shared_out_or_given_whole_and_rounded_up_is_in_sync(n_ctx: int) -> None:
    """8192 among two slots is 4096 each; with one cache for all, each has 8192."""
    props = {**LLAMA[PROPS], "default_generation_settings": {"n_ctx": n_ctx}}
    found = comparisons("llamacpp", changed("llamacpp", PROPS, props))
    assert found["maxLength"][0] == "in-sync"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/root/.cache/llama.cpp/org_base-GGUF_base-q4.gguf", "in-sync"),
        ("/root/.cache/huggingface/hub/models--org--base-GGUF/snapshots/1/base.gguf", "in-sync"),
        ("/root/.cache/llama.cpp/other.gguf", "unknown"),
    ],
)
def test_a_downloaded_file_tells_its_repository_or_nothing(path: str, expected: str) -> None:
    props = {**LLAMA[PROPS], "model_path": path}
    profile = backend_profile("llamacpp")
    wanted = read_declaration(["llama-server", "-hf", "org/base-GGUF:q4"], profile, model="")
    assert wanted.model == "org/base-GGUF:q4"
    found = comparisons("llamacpp", {PROPS: props}, wanted)
    assert found["model"][0] == expected


def test_an_engine_that_does_not_answer_is_unknown_in_every_field_with_the_reason() -> None:
    refused = Unreported(reason="It asks for a key (401).")
    report = read_report(backend_profile("vllm"), {CARDS: refused})
    found = compare_runtime(declared("vllm"), report)
    assert {each.match for each in found} == {RuntimeMatch.UNKNOWN}
    assert {each.reason for each in found} == {"It asks for a key (401)."}


def test_half_an_answer_leaves_the_rest_unknown() -> None:
    found = comparisons("sglang", {CARDS: SGLANG[CARDS]})
    assert found["model"][0] == "unknown"  # the root of a card is the served name
    assert found["names"][0] == "in-sync"


BAD = [
    b"", b"\xff\xfe", b"null", b"[]", b"{}", b"<html>", b'{"data": 1}', b'{"data": [1]}',
    b'{"data": [{"id": 1}]}', b'{"data": []}', b'{"data": [{"id": "a", "max_model_len": -1}]}',
    b'{"data": [{"id": "a", "root": "' + b"x" * 400 + b'"}]}', b'{"data": [' + b"[" * 100_000,
    b'{"data": [{"id": "a", "max_model_len": NaN}]}', b" " * (MAX_ANSWER + 1),
    b'{"data": [' + b",".join([b'{"id": "a"}'] * 501) + b"]}",
]  # fmt: skip


SAID = {
    "adapters.sql": [("llamacpp", BAD[3])],
    "names": [("llamacpp", BAD[place]) for place in (10, 11)],
}
"""Fields that some of these do tell llama.cpp's reader: no adapter, or the name `a`."""


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("backend", RESPONSES)
def test_garbage_is_unknown_and_says_why(backend: str, body: bytes) -> None:
    responses = dict.fromkeys(RESPONSES[backend], body)
    report = read_report(backend_profile(backend), responses)
    found = compare_runtime(declared(backend), report)
    assert found
    for each in found:
        if (backend, body) in SAID.get(each.field, ()):
            continue  # a whole answer to that question, whatever it is to the others
        assert each.match is RuntimeMatch.UNKNOWN, each
        assert each.reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["data", "id", "root", "parent", "max_model_len", "models", "name", "digest",
                 "model_path", "total_slots", "default_generation_settings", "n_ctx", "path",
                 "scale", "aliases"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from(sorted(RESPONSES)), st.lists(st.binary() | JSON, max_size=3))
@example("vllm", [{"data": [{"id": "bot\x1b[2J", "root": "hf_" + "a1B2" * 9}]}])
def test_whatever_an_engine_says_is_bounded_and_never_raises(
    backend: str, bodies: list[Any]
) -> None:
    profile = backend_profile(backend)
    responses = {
        query.paths[0]: body if isinstance(body, bytes) else json.dumps(body).encode()
        for query, body in zip(profile.queries, bodies, strict=False)
    }
    for each in compare_runtime(declared(backend), read_report(profile, responses)):
        for text in (each.field, each.declared or "", each.served or "", each.reason):
            assert len(text) <= 300
            assert text.isprintable()
            assert "a1B2" not in text
        assert each.match is not RuntimeMatch.UNKNOWN or each.reason


@pytest.mark.parametrize(
    ("backend", "line", "model", "names", "length"),
    [
        ("vllm", "vllm serve org/a", "org/a", None, None),
        (
            "vllm",
            "python3 -m vllm.entrypoints.openai.api_server --model=org/a",
            "org/a",
            None,
            None,
        ),
        ("vllm", "vllm serve org/a --max-model-len 32k", "org/a", None, 32_000),
        ("vllm", "vllm serve org/a --max-model-len 32K", "org/a", None, 32_768),
        ("vllm", "vllm serve org/a --max-model-len auto", "org/a", None, None),
        ("vllm", "--model org/a", "org/a", None, None),
        ("vllm", "vllm serve $(MODEL_DIR)", "/weights", None, None),
        ("vllm", "vllm serve $(ABSENT)", None, None, None),
        ("vllm", "/entrypoint.sh", None, None, None),
        ("sglang", "sglang serve --model org/a", "org/a", None, None),
        ("llamacpp", "llama-server --model /m.gguf --alias a,b -c 0", "/m.gguf", ("a", "b"), None),
    ],
)
def test_the_declaration_is_read_off_the_command_line(
    backend: str, line: str, model: str | None, names: tuple[str, ...] | None, length: int | None
) -> None:
    variables = {"MODEL_DIR": "/weights"}
    profile = backend_profile(backend)
    found = read_declaration(line.split(), profile, model="unused", variables=variables)
    assert (found.model, found.names, found.length) == (model, names, length)
    assert bool(found.unreadable) == (model is None)


def test_nothing_is_said_of_what_a_script_starts() -> None:
    found = read_declaration(["sh", "-c", "vllm serve x"], BACKENDS["vllm"], model="x")
    report = read_report(BACKENDS["vllm"], {CARDS: json.dumps(VLLM[CARDS]).encode()})
    (model,) = compare_runtime(found, report)
    assert model.match is RuntimeMatch.UNKNOWN
    assert "script" in model.reason


def test_what_is_not_declared_is_not_compared() -> None:
    wanted = read_declaration(["vllm", "serve", "org/base"], BACKENDS["vllm"], model="")
    assert set(comparisons("vllm", VLLM, wanted)) == {"model"}


def test_adapters_declared_as_none_must_not_be_there() -> None:
    found = comparisons("vllm", VLLM, declared("vllm", adapters=()))
    assert found["adapters.sql"] == ("differs", None, "/lora/sql")


HUB_SQL = LoraAdapter(name="sql", source="org/sql-lora")


@pytest.mark.parametrize(
    ("source", "told", "expected"),
    [
        ("org/sql-lora", "org/sql-lora", "in-sync"),
        ("org/sql-lora", "evil/other-lora", "differs"),
        ("org/sql-lora", "/root/.cache/huggingface/hub/x", "unknown"),
        ("org/sql-lora", "./lora/sql", "unknown"),
        ("./lora/sql", "/work/lora/sql", "unknown"),
        ("org/sql-lora", None, "unknown"),
        ("/lora/sql", "/lora/sql/", "in-sync"),
        ("/lora/sql", "org/sql-lora", "differs"),
        ("/lora/sql", None, "unknown"),
    ],
)
def test_an_adapter_is_in_sync_only_where_its_source_was_told(
    source: str, told: str | None, expected: str
) -> None:
    loaded = changed("vllm", CARDS, cards(card("bot", "org/base"), card("org/base", "org/base"),
                                          card("sql", told, parent="bot")))  # fmt: skip
    adapter = LoraAdapter(name="sql", source=source)
    found = comparisons("vllm", loaded, declared("vllm", adapters=(adapter,)))
    field = "adapters" if expected == "in-sync" else "adapters.sql"
    assert found[field][0] == expected
    assert set(found) == {"model", "names", "maxLength", field}


def test_an_adapter_whose_source_is_not_known_is_neither_unloaded_nor_loaded() -> None:
    loaded = (
        LoadedAdapter(name="sql", source="/root/.cache/x"),
        LoadedAdapter(name="own", source="/lora/other"),
    )
    own = LoraAdapter(name="own", source="/lora/own")
    sent = adapter_requests(BACKENDS["vllm"], (HUB_SQL, own), loaded)
    assert [each.body for each in sent or ()] == [
        {"lora_name": "own"},
        {"lora_name": "own", "lora_path": "/lora/own"},
    ]


A, B, C = (f"sha256:{letter * 64}" for letter in "abc")


def ollama(stored: str | None, loaded: str | Unreported | None) -> dict[str, Any]:
    def models(digest: str | None) -> Any:  # Any: JSON
        bare = digest and digest.removeprefix("sha256:")
        return {"models": [{"name": "llama3:latest", "digest": bare}] if bare else []}

    return {
        TAGS: models(stored),
        LOADED: loaded if isinstance(loaded, Unreported) else models(loaded),
    }


SILENT = Unreported(reason="GET /api/ps: it answered with 500.")


@pytest.mark.parametrize(
    ("wanted", "stored", "loaded", "expected"),
    [
        (A, A, A, ("in-sync", A, A)),
        (A, A, None, ("in-sync", A, A)),
        (A, B, None, ("differs", A, B)),
        (A, B, B, ("differs", A, B)),
        (A, A, B, ("differs", A, B)),
        # It serves what is declared, whatever was pulled since; that counts once it is loaded.
        (A, B, A, ("in-sync", A, A)),
        (A, A, SILENT, ("unknown", A, None)),
        (None, A, SILENT, ("unknown", A, None)),
        (A, None, None, ("unknown", A, None)),
        (None, A, B, ("differs", A, B)),
    ],
)
def test_a_declared_digest_is_compared_with_what_ollama_serves(
    wanted: str | None, stored: str | None, loaded: Any, expected: tuple[str, str, str | None]
) -> None:
    declaration = read_declaration(
        LINES["ollama"], BACKENDS["ollama"], model="llama3", digest=wanted
    )
    found = comparisons("ollama", ollama(stored, loaded), declaration)
    assert found["digest"] == expected


def test_a_digest_is_not_compared_where_none_is_declared_and_nothing_is_loaded() -> None:
    assert set(comparisons("ollama", ollama(A, None))) == {"model"}


@pytest.mark.parametrize(
    ("stored", "loaded", "expected"),
    [(A, None, A), (A, B, B), (None, None, None), (A, SILENT, None)],
)
def test_the_digest_that_is_served_is_the_loaded_one_or_the_one_to_be_loaded(
    stored: str | None, loaded: Any, expected: str | None
) -> None:
    encoded = {
        name: each if isinstance(each, Unreported) else json.dumps(each).encode()
        for name, each in ollama(stored, loaded).items()
    }
    report = read_report(BACKENDS["ollama"], encoded)
    assert served_digest(declared("ollama"), report) == expected
