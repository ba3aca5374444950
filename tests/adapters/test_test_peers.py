"""The peers that other tests trust: the tiny models, the backends and the fault proxy."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.support.processes import (
    BACKENDS,
    RunningBackend,
    echo_command,
    is_alive,
    llama_command,
    rogue_command,
    start_backend,
    wait_until,
)

HELLO = {"messages": [{"role": "user", "content": "hello there"}]}
ALPHABET = "abcdefghijklmnopqrstuvwxyz."


def send(url: str, body: object = None, *, method: str | None = None) -> http.client.HTTPResponse:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    # S310 asks about schemes: every address here is a loopback one that we made.
    request = urllib.request.Request(url, data=data, method=method, headers=headers)  # noqa: S310
    return urllib.request.urlopen(request, timeout=30)  # noqa: S310


def ask(url: str, body: object = None) -> Any:  # Any: whatever JSON the peer gives
    with send(url, body) as response:
        return json.load(response)


def chat_text(url: str, body: object = HELLO) -> str:
    return ask(f"{url}/v1/chat/completions", body)["choices"][0]["message"]["content"]


def status_of(url: str) -> int:
    try:
        with send(url) as response:
            return response.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def events(response: http.client.HTTPResponse) -> Iterator[str]:
    for line in response:
        if line.startswith(b"data: "):
            yield line.removeprefix(b"data: ").decode().strip()


def streamed_text(url: str, body: dict[str, Any] = HELLO) -> str:
    with send(f"{url}/v1/chat/completions", {**body, "stream": True}) as response:
        *pieces, last = events(response)
    assert last == "[DONE]"
    choices = [choice for piece in pieces for choice in json.loads(piece)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def metric(url: str, name: str) -> float:
    with send(f"{url}/metrics") as response:
        lines = response.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


@pytest.fixture(scope="module")
def tiny_model() -> ModuleType:
    pytest.importorskip("gguf")
    spec = importlib.util.spec_from_file_location("tiny_model", BACKENDS / "tiny_model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def llama_wheel() -> None:
    pytest.importorskip("xllamacpp")


@pytest.fixture(scope="module")
def echo() -> Iterator[RunningBackend]:
    with start_backend("--model", "parrot") as backend:
        yield backend


class TestTinyModels:
    @pytest.mark.parametrize("kind", ["chat", "rerank"])
    def test_a_model_has_the_same_bytes_each_time(
        self, tiny_model: ModuleType, tmp_path: Path, kind: str
    ) -> None:
        write = getattr(tiny_model, f"write_{kind}_model")
        first, second = write(tmp_path / "first.gguf"), write(tmp_path / "second.gguf")
        assert first.read_bytes() == second.read_bytes()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["first.gguf", "second.gguf"]


@pytest.mark.usefixtures("llama_wheel")
class TestLlamaServer:
    def test_it_chats_streams_and_embeds(self, tiny_model: ModuleType, tmp_path: Path) -> None:
        model = tiny_model.write_chat_model(tmp_path / "chat.gguf")
        command = llama_command("--model", str(model), "--alias", "tiny", "--embeddings")
        body = {**HELLO, "temperature": 0}
        with start_backend(command=command) as backend:
            assert ask(f"{backend.url}/v1/models")["data"][0]["id"] == "tiny"
            assert chat_text(backend.url, body) == ALPHABET
            assert streamed_text(backend.url, body) == ALPHABET
            rows = ask(f"{backend.url}/v1/embeddings", {"input": ["abc", "cba", "xyz"]})["data"]
            abc, cba, xyz = (row["embedding"] for row in rows)
            assert _cosine(abc, cba) > 0.99
            assert _cosine(abc, xyz) < 0.5
            assert metric(backend.url, "llamacpp:tokens_predicted_total") > 0

    def test_it_reranks(self, tiny_model: ModuleType, tmp_path: Path) -> None:
        model = tiny_model.write_rerank_model(tmp_path / "rerank.gguf")
        with start_backend(command=llama_command("--model", str(model), "--rerank")) as backend:
            body = {"query": "what is it", "documents": ["a panda", "hello", "the bear!"]}
            rows = ask(f"{backend.url}/v1/rerank", body)["results"]
        assert sorted(row["index"] for row in rows) == [0, 1, 2]
        scores = [row["relevance_score"] for row in rows]
        assert scores == sorted(scores, reverse=True)
        assert len(set(scores)) == 3

    def test_sigterm_ends_it_cleanly_in_mid_stream(
        self, tiny_model: ModuleType, tmp_path: Path
    ) -> None:
        model = tiny_model.write_chat_model(tmp_path / "chat.gguf")
        endless = {**HELLO, "stream": True, "ignore_eos": True}
        with (
            start_backend(command=llama_command("--model", str(model))) as backend,
            send(f"{backend.url}/v1/chat/completions", endless) as response,
        ):
            next(events(response))
            backend.process.terminate()
            assert backend.process.wait(30) == 0

    def test_a_missing_model_is_one_line_and_a_failure(self, tmp_path: Path) -> None:
        missing = tmp_path / "none.gguf"
        ended = _run(llama_command("--model", str(missing), "--port", "0"))
        assert ended.returncode != 0
        assert ended.stderr == f"llama_server: there is no model at {missing}\n"

    def test_a_taken_port_is_one_line_and_a_failure(
        self, tiny_model: ModuleType, tmp_path: Path, echo: RunningBackend
    ) -> None:
        model = tiny_model.write_chat_model(tmp_path / "chat.gguf")
        ended = _run(llama_command("--model", str(model), "--port", str(echo.port)))
        assert ended.returncode != 0
        assert ended.stderr.startswith(f"llama_server: cannot listen on 127.0.0.1:{echo.port}")
        assert ended.stderr.count("\n") == 1


class TestEchoServer:
    def test_a_chat_repeats_the_last_user_message_and_says_who_answered(
        self, echo: RunningBackend
    ) -> None:
        body = {"messages": [*HELLO["messages"], {"role": "user", "content": "and again"}]}
        with send(f"{echo.url}/v1/chat/completions", body) as response:
            answer = json.load(response)
        assert answer["choices"][0]["message"]["content"] == "echo: and again"
        assert answer["model"] == "parrot"
        assert response.headers["X-Backend-Model"] == "parrot"
        assert response.headers["X-Backend-Pid"] == str(echo.pid)

    def test_a_stream_spells_the_same_answer_and_ends_with_done(self, echo: RunningBackend) -> None:
        assert streamed_text(echo.url) == chat_text(echo.url) == "echo: hello there"

    def test_max_tokens_cuts_the_answer(self, echo: RunningBackend) -> None:
        answer = ask(f"{echo.url}/v1/chat/completions", {**HELLO, "max_tokens": 2})
        assert answer["choices"][0]["message"]["content"] == "echo: hello"
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 2

    def test_completions_embeddings_and_rerank_answer(self, echo: RunningBackend) -> None:
        completion = ask(f"{echo.url}/v1/completions", {"prompt": "hi"})
        assert completion["choices"][0]["text"] == "echo: hi"
        rows = ask(f"{echo.url}/v1/embeddings", {"input": ["abc", "cba", "xyz"]})["data"]
        assert rows[0]["embedding"] == rows[1]["embedding"] != rows[2]["embedding"]
        body = {"query": "red fox", "documents": ["a blue bird", "a red fox"], "top_n": 1}
        ranked = ask(f"{echo.url}/v1/rerank", body)["results"]
        assert ranked == [{"index": 1, "relevance_score": 1.0}]

    def test_the_openai_client_is_satisfied(self, echo: RunningBackend) -> None:
        openai = pytest.importorskip("openai")
        with openai.OpenAI(base_url=f"{echo.url}/v1", api_key="none") as client:
            messages = HELLO["messages"]
            plain = client.chat.completions.create(model="parrot", messages=messages)
            assert plain.choices[0].message.content == "echo: hello there"
            chunks = list(
                client.chat.completions.create(
                    model="parrot",
                    messages=messages,
                    stream=True,
                    stream_options={"include_usage": True},
                )
            )
            spoken = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            assert spoken == "echo: hello there"
            assert chunks[-1].usage.total_tokens == 5
            vector = client.embeddings.create(model="parrot", input="abc").data[0].embedding
            assert sum(value * value for value in vector) == pytest.approx(1.0)

    @pytest.mark.parametrize(
        ("method", "path", "body", "status"),
        [
            ("GET", "/nothing", None, 404),
            ("GET", "/v1/chat/completions", None, 405),
            ("POST", "/v1/chat/completions", [], 400),
            ("POST", "/v1/chat/completions", {"messages": []}, 400),
            ("POST", "/v1/embeddings", {"input": [1]}, 400),
        ],
    )
    def test_a_bad_request_gets_an_error_body(
        self, echo: RunningBackend, method: str, path: str, body: object, status: int
    ) -> None:
        with pytest.raises(urllib.error.HTTPError) as caught:
            send(echo.url + path, body, method=method)
        with caught.value as error:
            assert error.code == status
            assert json.load(error)["error"]["code"] == status

    def test_it_is_unavailable_while_it_starts(self) -> None:
        with start_backend("--startup-delay", "3600") as backend:
            assert status_of(f"{backend.url}/health") == 503
            assert status_of(f"{backend.url}/v1/models") == 503
        with start_backend("--startup-delay", "0.1") as backend:
            wait_until(lambda: status_of(f"{backend.url}/health") == 200, what="the start")

    def test_it_carries_three_hundred_streams_at_once(self) -> None:
        together = threading.Barrier(301)

        def stream(number: int) -> str:
            body = {"messages": [{"role": "user", "content": f"n{number}"}], "stream": True}
            with send(f"{backend.url}/v1/chat/completions", body) as response:
                first = next(events(response))
                together.wait(60)
                rest = list(events(response))
            assert rest[-1] == "[DONE]"
            assert json.loads(first)["choices"][0]["delta"]["content"] == "echo:"
            return json.loads(rest[0])["choices"][0]["delta"]["content"]

        with (
            start_backend("--tokens", "200", "--token-delay", "0.01") as backend,
            ThreadPoolExecutor(300) as pool,
        ):
            spoken = [pool.submit(stream, number) for number in range(300)]
            together.wait(60)
            assert [each.result() for each in spoken] == [f" n{number}" for number in range(300)]

    def test_a_client_that_leaves_is_no_longer_counted_as_running(self) -> None:
        with start_backend("--token-delay", "600") as backend:
            for stream in (True, False):
                client = http.client.HTTPConnection("127.0.0.1", backend.port)
                body = json.dumps({**HELLO, "stream": stream})
                client.request("POST", "/v1/chat/completions", body)
                wait_until(lambda: metric(backend.url, "echo_requests_running") == 1)
                client.close()
                wait_until(lambda: metric(backend.url, "echo_requests_running") == 0)

    def test_sigterm_ends_it_with_zero_in_mid_stream(self) -> None:
        with start_backend("--tokens", "9", "--token-delay", "600") as backend:
            with send(f"{backend.url}/v1/chat/completions", {**HELLO, "stream": True}):
                backend.process.terminate()
                assert backend.process.wait(30) == 0
            assert backend.log.read_text().splitlines() == [f"listening on {backend.url}"]

    def test_port_and_host_come_from_the_environment(self) -> None:
        ended = _run(rogue_command("crash-after", "0"), PORT="0", HOST="localhost")
        assert ended.stdout.startswith("listening on http://")
        assert "--port" in _run(rogue_command("crash-after", "0"), PORT="").stderr
        refused = _run(echo_command(), PORT="0", HOST="203.0.113.1")
        assert refused.stderr.startswith("echo_server: cannot listen on 203.0.113.1:0")

    def test_a_taken_port_is_one_line_and_a_failure(self, echo: RunningBackend) -> None:
        ended = _run(echo_command("--port", str(echo.port)))
        assert ended.returncode != 0
        assert ended.stderr.startswith(f"echo_server: cannot listen on 127.0.0.1:{echo.port}")
        assert ended.stderr.count("\n") == 1


class TestRogueBackend:
    def test_never_ready_answers_503(self) -> None:
        with start_backend(rogue="never-ready") as backend:
            assert status_of(f"{backend.url}/health") == 503

    def test_crash_exits_with_a_message(self) -> None:
        ended = _run(rogue_command("crash"))
        assert ended.returncode == 1
        assert ended.stderr == "fatal: no usable device was found\n"

    def test_crash_after_serves_and_then_exits(self) -> None:
        ended = _run(rogue_command("crash-after", "0.1", "--port", "0"))
        assert ended.returncode == 1
        assert ended.stdout.startswith("listening on http://127.0.0.1:")
        assert ended.stderr == "fatal: out of memory\n"

    def test_hang_on_stop_outlives_sigterm(self) -> None:
        with start_backend(rogue="hang-on-stop") as backend:
            backend.process.terminate()
            assert chat_text(backend.url) == "echo: hello there"
            assert backend.process.poll() is None
        assert backend.process.returncode == -signal.SIGKILL

    def test_flood_log_writes_megabytes_and_still_serves(self) -> None:
        with start_backend("5", rogue="flood-log") as backend:
            assert chat_text(backend.url) == "echo: hello there"
            wait_until(lambda: backend.log.stat().st_size > 4_000_000, what="the flood")

    def test_fork_child_leaves_a_child_that_only_a_kill_of_the_group_ends(self) -> None:
        with start_backend(rogue="fork-child") as backend:
            child = ask(f"{backend.url}/child")["pid"]
            os.killpg(backend.pid, signal.SIGTERM)
            assert backend.process.wait(30) == 0
            assert is_alive(child)
            assert os.getpgid(child) == backend.pid
        wait_until(lambda: not is_alive(child), what="the child to be killed with its group")

    def test_ready_then_500_breaks_on_a_signal(self) -> None:
        with start_backend(rogue="ready-then-500") as backend:
            assert status_of(f"{backend.url}/health") == 200
            backend.process.send_signal(signal.SIGUSR1)
            wait_until(lambda: status_of(f"{backend.url}/health") == 500, what="the breakdown")

    def test_silent_stream_stops_after_two_chunks(self) -> None:
        with start_backend(rogue="silent-stream") as backend:
            client = http.client.HTTPConnection("127.0.0.1", backend.port, timeout=30)
            client.request("POST", "/v1/chat/completions", json.dumps({**HELLO, "stream": True}))
            with client.getresponse() as response:
                spoken = events(response)
                assert [next(spoken), next(spoken)]
                client.sock.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    next(spoken)
            client.close()

    def test_env_dump_shows_its_environment(self) -> None:
        with start_backend(rogue="env-dump", env={"COLOUR": "teal"}) as backend:
            assert ask(f"{backend.url}/env")["COLOUR"] == "teal"


def _run(command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with variables added to the environment."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **env},
    )


def _cosine(one: list[float], other: list[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / (sum(a * a for a in one) * sum(b * b for b in other)) ** 0.5
