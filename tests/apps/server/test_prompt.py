"""A prompt through the control plane: the workload's text, and nothing else of it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.apps.server.api import ECHO, Api, spec
from tests.support.processes import rogue_command, wait_until
from tests.support.server import RunningServer, bearer, running_server

from holdfast.adapters.store import TokenScope

HELLO = {"messages": [{"role": "user", "content": "one two"}]}


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    limits = {"idle_time": 0.5, "recheck_time": 0.2}
    with running_server(tmp_path_factory.mktemp("prompt"), limits=limits) as running:
        yield running


@pytest.fixture
def asked(runner: RunningServer, request: pytest.FixtureRequest) -> Iterator[Api]:
    with httpx2.Client(base_url=runner.url, timeout=30) as http:
        project = f"q{abs(hash(request.node.nodeid)) % 10**12}"
        yield Api(server=runner, http=http, project=project)


def serve(api: Api, command: str, **more: Any) -> None:
    made = api.ask("POST", "ensure", json={"spec": spec(command=command, **more)})
    assert made.status_code == 200, made.text
    ready = api.ask("GET", "workloads/bot/readiness-events").text
    assert '"phase":"ready"' in ready, ready


def prompt(api: Api, form: dict[str, Any] = HELLO, **headers: str) -> httpx2.Response:
    return api.ask("POST", "workloads/bot/prompt", json=form, headers=headers)


def events_of(answer: httpx2.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream"
    found = []
    for block in answer.text.split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith(":")]
        if lines:
            (line,) = lines
            assert line.startswith("data: "), "our own events have nothing but data"
            found.append(json.loads(line.removeprefix("data: ")))
    return found


def test_a_prompt_is_answered_in_pieces_and_then_done(asked: Api) -> None:
    serve(asked, ECHO)
    *pieces, last = events_of(prompt(asked))
    assert [piece["text"] for piece in pieces] == ["echo:", " one", " two"]
    assert last == {"done": True, "finish_reason": "stop"}
    *pieces, last = events_of(prompt(asked, {**HELLO, "max_tokens": 2, "temperature": 0.5}))
    assert "".join(piece["text"] for piece in pieces) == "echo: one"
    assert last == {"done": True, "finish_reason": "length"}


def test_a_known_engine_is_asked_for_its_counts(asked: Api) -> None:
    serve(asked, ECHO, backend="llamacpp")
    last = events_of(prompt(asked))[-1]
    assert last["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}


@pytest.mark.parametrize("misbehaviour", ["hostile-page", "hostile-stream"])
def test_nothing_of_a_hostile_workload_but_text_arrives(asked: Api, misbehaviour: str) -> None:
    serve(asked, " ".join(rogue_command(misbehaviour)))
    answer = prompt(asked)
    events = events_of(answer)
    for name in (
        "set-cookie",
        "clear-site-data",
        "access-control-allow-origin",
        "access-control-allow-credentials",
        "service-worker-allowed",
        "content-security-policy",
        "location",
        "refresh",
        "x-backend-pid",
        "x-holdfast-replica",
    ):
        assert name not in answer.headers, name
    assert answer.headers["x-content-type-options"] == "nosniff"
    if misbehaviour == "hostile-page":
        assert events == [{"error": "The workload's answer is not one of OpenAI's API."}]
    else:
        assert events == [
            {"text": "<script>1</script>"},
            {"text": "a\n\nevent: reset\ndata: {}"},
            {"error": "The workload's answer is not one of OpenAI's API."},
        ]


@pytest.mark.parametrize("misbehaviour", ["hostile-page", "hostile-stream"])
@pytest.mark.parametrize("where", ["/endpoint/{project}/bot/v1", "/p/{project}/v1"])
def test_a_hostile_answer_of_the_data_plane_is_confined(
    asked: Api, misbehaviour: str, where: str
) -> None:
    serve(asked, " ".join(rogue_command(misbehaviour)))
    key = bearer(asked.server.data_key(asked.project, "bot"))
    url = where.format(project=asked.project) + "/chat/completions"
    headers = asked.http.post(url, json={"model": "bot"}, headers=key).headers
    assert headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    dropped = ("set-cookie", "clear-site-data", "service-worker-allowed", "location", "refresh")
    assert [name for name in dropped if name in headers] == []
    assert [name for name in headers if name.startswith("access-control")] == []


def test_a_stream_that_falls_silent_is_told_as_incomplete(asked: Api) -> None:
    serve(asked, " ".join(rogue_command("silent-stream")))
    *pieces, last = events_of(prompt(asked))
    assert len(pieces) == 2
    assert "incomplete" in last["error"]


def test_a_workloads_own_refusal_is_told_with_its_words(asked: Api) -> None:
    serve(asked, " ".join(rogue_command("ready-then-500")))
    key = bearer(asked.server.data_key(asked.project, "bot"))
    models = asked.http.get(f"/endpoint/{asked.project}/bot/v1/models", headers=key)
    os.kill(int(models.headers["x-backend-pid"]), signal.SIGUSR1)
    dead = {"error": "The workload answered 500: The engine is dead"}
    wait_until(lambda: events_of(prompt(asked)) == [dead], 10, "the refusal")


def test_a_workload_that_is_not_ready_is_an_error_of_the_request(asked: Api) -> None:
    crash = " ".join(rogue_command("crash"))
    assert asked.ask("POST", "ensure", json={"spec": spec(command=crash)}).status_code == 200
    answer = prompt(asked)
    assert (answer.status_code, answer.json()["error"]) == (503, "not_ready")


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"messages": []},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {**HELLO, "max_tokens": 0},
        {**HELLO, "temperature": 3},
        {**HELLO, "model": "another"},
        {**HELLO, "stream": False},
    ],
    ids=str,
)
def test_a_prompt_that_makes_no_sense_is_refused(asked: Api, form: dict[str, Any]) -> None:
    asked.create()
    assert prompt(asked, form).status_code == 400


def test_a_reader_may_not_prompt(asked: Api) -> None:
    asked.create()
    token = asked.server.token(asked.project, [TokenScope.READ])
    answer = asked.ask("POST", "workloads/bot/prompt", json=HELLO, token=token)
    assert (answer.status_code, answer.json()["error"]) == (403, "scope_insufficient")
