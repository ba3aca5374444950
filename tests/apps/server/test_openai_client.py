"""The `openai` package against the data plane, over an echo and over llama.cpp."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.apps.server.api import ECHO, Api, spec
from tests.support.processes import BACKENDS, llama_command, rogue_command
from tests.support.server import RunningServer, running_server

openai = pytest.importorskip("openai")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("openai")) as running:
        yield running


def client(server: RunningServer, project: str, command: str, **more: object) -> openai.OpenAI:
    """Run a workload and give a client whose base URL is its endpoint."""
    with httpx2.Client(base_url=server.url, timeout=90) as http:
        api = Api(server=server, http=http, project=project)
        made = api.ask("POST", "ensure", json={"spec": spec(command=command, **more)})
        assert made.status_code == 200, made.text
        ready = api.ask("GET", "workloads/bot/readiness-events").text
        assert '"phase":"ready"' in ready, ready
        endpoint = api.get()["status"]["endpoint"]
    key = server.data_key(project, "bot")
    return openai.OpenAI(base_url=endpoint, api_key=key, max_retries=0)


def test_a_chat_is_answered_whole_and_in_pieces(runner: RunningServer) -> None:
    with client(runner, "echo", ECHO) as ai:
        messages = [{"role": "user", "content": "one two"}]
        whole = ai.chat.completions.create(model="bot", messages=messages)
        assert whole.choices[0].message.content == "echo: one two"
        pieces = ai.chat.completions.create(model="bot", messages=messages, stream=True)
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
        assert text == "echo: one two"
        assert ai.models.list().data
        assert len(ai.embeddings.create(model="bot", input=["a", "b"]).data) == 2


def test_a_broken_stream_raises(tmp_path: Path) -> None:
    silent = " ".join(rogue_command("silent-stream"))
    with (
        running_server(tmp_path, limits={"idle_time": 0.5}) as server,
        client(server, "broken", silent) as ai,
    ):
        messages = [{"role": "user", "content": "a b c d"}]
        stream = ai.chat.completions.create(model="bot", messages=messages, stream=True)
        with pytest.raises(openai.APIError, match="incomplete"):
            list(stream)


def test_a_wrong_key_is_an_authentication_error_with_its_message(runner: RunningServer) -> None:
    with (
        openai.OpenAI(base_url=f"{runner.url}/endpoint/echo/bot/v1", api_key="nothing") as ai,
        pytest.raises(openai.AuthenticationError) as refused,
    ):
        ai.models.list()
    assert refused.value.type == "authentication_error"
    assert refused.value.code == "unauthenticated"
    said = refused.value.body
    assert isinstance(said, dict) and "credential" in said["message"].lower()


def test_a_workload_that_is_not_ready_says_why(runner: RunningServer) -> None:
    with httpx2.Client(base_url=runner.url, timeout=90) as http:
        api = Api(server=runner, http=http, project="waiting")
        crash = " ".join(rogue_command("crash"))
        assert api.ask("POST", "ensure", json={"spec": spec(command=crash)}).status_code == 200
        base = api.get()["status"]["endpoint"]
    key = runner.data_key("waiting", "bot")
    with (
        openai.OpenAI(base_url=base, api_key=key, max_retries=0) as ai,
        pytest.raises(openai.InternalServerError, match="is not ready") as refused,
    ):
        ai.models.list()
    assert (refused.value.type, refused.value.code) == ("server_error", "not_ready")


def test_a_path_that_is_not_there_is_told_in_the_same_shape(runner: RunningServer) -> None:
    answer = httpx2.get(f"{runner.url}/endpoint/echo/bot/models")
    assert answer.status_code == 404
    said = answer.json()
    assert said["error"]["message"] == said["message"]
    assert said["error"]["type"] == "invalid_request_error"
    assert said["error"]["code"] == "no_such_route" and said["error"]["param"] is None
    assert said["request_id"]


def test_llama_cpp_answers_through_the_data_plane(runner: RunningServer, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")
    sys.path.insert(0, str(BACKENDS))
    try:
        from tiny_model import write_chat_model
    finally:
        sys.path.remove(str(BACKENDS))
    model = write_chat_model(tmp_path / "chat.gguf")
    command = " ".join(llama_command("--model", str(model), "--port", "${PORT}"))
    with client(runner, "llama", command) as ai:
        messages = [{"role": "user", "content": "hello"}]
        whole = ai.chat.completions.create(model="bot", messages=messages, temperature=0)
        assert whole.choices[0].message.content == "abcdefghijklmnopqrstuvwxyz."
        pieces = list(
            ai.chat.completions.create(
                model="bot", messages=messages, temperature=0, stream=True, max_tokens=12
            )
        )
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
        assert text == "abcdefghijkl"
        assert len(pieces) > 6


def run_workloads(server: RunningServer, project: str, *slugs: str) -> None:
    with httpx2.Client(base_url=server.url, timeout=90) as http:
        api = Api(server=server, http=http, project=project)
        for slug in slugs:
            made = api.ask("POST", "ensure", json={"spec": spec(slug, command=ECHO, model=slug)})
            assert made.status_code == 200, made.text
        for slug in slugs:
            ready = api.ask("GET", f"workloads/{slug}/readiness-events").text
            assert '"phase":"ready"' in ready, ready


def test_one_base_url_serves_every_workload_of_a_project(runner: RunningServer) -> None:
    run_workloads(runner, "whole", "chat", "other")
    base = f"{runner.url}/p/whole/v1"
    with openai.OpenAI(base_url=base, api_key=runner.project_key("whole"), max_retries=0) as ai:
        listed = ai.models.list().data
        assert [(each.id, each.owned_by) for each in listed] == [
            ("chat", "whole"),
            ("other", "whole"),
        ]
        assert all(each.created > 1_700_000_000 for each in listed)
        assert ai.models.retrieve("chat").id == "chat"
        replicas = set()
        for slug in ("chat", "other"):
            messages = [{"role": "user", "content": slug}]
            raw = ai.chat.completions.with_raw_response.create(model=slug, messages=messages)
            assert raw.parse().choices[0].message.content == f"echo: {slug}"
            replicas.add(raw.headers["x-backend-pid"])
            pieces = ai.chat.completions.create(model=slug, messages=messages, stream=True)
            text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
            assert text == f"echo: {slug}"
            assert len(ai.embeddings.create(model=slug, input=["a"]).data) == 1
        assert len(replicas) == 2, "each workload answered for itself"
        with pytest.raises(openai.NotFoundError) as absent:
            ai.chat.completions.create(model="none", messages=messages)
        assert absent.value.code == "model_not_found"
        for strange in ("../chat", "chat/../other", "Chat", "", "x" * 300):
            with pytest.raises(openai.NotFoundError):
                ai.chat.completions.create(model=strange, messages=messages)
        with pytest.raises(openai.NotFoundError):
            ai.models.retrieve("none")


def test_the_key_of_one_workload_opens_that_one_at_the_projects_base_url(
    runner: RunningServer,
) -> None:
    run_workloads(runner, "one-of-two", "chat", "other")
    base = f"{runner.url}/p/one-of-two/v1"
    key = runner.data_key("one-of-two", "chat")
    messages = [{"role": "user", "content": "x"}]
    with openai.OpenAI(base_url=base, api_key=key, max_retries=0) as ai:
        assert [each.id for each in ai.models.list().data] == ["chat"]
        assert ai.chat.completions.create(model="chat", messages=messages).choices
        for slug in ("other", "none", "not a slug"):  # which of them exists cannot be told
            with pytest.raises(openai.PermissionDeniedError) as refused:
                ai.chat.completions.create(model=slug, messages=messages)
            assert refused.value.code == "scope_insufficient"
        with pytest.raises(openai.PermissionDeniedError):
            ai.models.retrieve("other")


def test_a_key_of_a_project_opens_the_endpoint_of_each_workload(runner: RunningServer) -> None:
    run_workloads(runner, "each", "chat")
    key = runner.project_key("each")
    with openai.OpenAI(
        base_url=f"{runner.url}/endpoint/each/chat/v1", api_key=key, max_retries=0
    ) as ai:
        assert ai.models.list().data
    with (
        openai.OpenAI(
            base_url=f"{runner.url}/endpoint/each/none/v1", api_key=key, max_retries=0
        ) as ai,
        pytest.raises(openai.NotFoundError),
    ):
        ai.models.list()
    with (
        openai.OpenAI(base_url=f"{runner.url}/p/whole/v1", api_key=key, max_retries=0) as ai,
        pytest.raises(openai.PermissionDeniedError) as refused,
    ):
        ai.models.list()
    assert refused.value.code == "project_scope_mismatch"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", 400),
        (b"not json", 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"model": 7}', 400),
        (b'{"model": null}', 400),
        (b"[" * 100_000, 400),
        (b'{"model": "chat", "x": "' + b"a" * (9 << 20) + b'"}', 413),
    ],
    ids=["empty", "text", "list", "no model", "number", "null", "deep", "large"],
)
def test_a_body_without_a_workload_reaches_none(
    runner: RunningServer, sent: bytes, status: int
) -> None:
    answer = httpx2.post(
        f"{runner.url}/p/bodies/v1/chat/completions",
        content=sent,
        headers={"Authorization": f"Bearer {runner.project_key('bodies')}"},
        timeout=30,
    )
    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_large_body_is_routed_too(runner: RunningServer) -> None:
    """Over what is kept for another try at a workload's own endpoint."""
    run_workloads(runner, "large", "chat")
    key = runner.project_key("large")
    text = "word " * 400_000
    with openai.OpenAI(base_url=f"{runner.url}/p/large/v1", api_key=key, max_retries=0) as ai:
        made = ai.embeddings.create(model="chat", input=[text])
        assert made.usage.prompt_tokens == 400_000
