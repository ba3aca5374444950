"""What counts as ready: each backend shows it, and its absence, in a way of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from aiohttp import web
from tests.support.processes import free_port

from holdfast.adapters.runner.health import Prober, ProbeResult, ProbeTarget
from holdfast.core.backends import backend_profile

Answers = Mapping[str, tuple[int, str]]
UP = {"/health": (200, "")}


def ask(
    backend: str,
    answers: Answers,
    *,
    path: str | None = None,
    task: str = "",
    asked: list[tuple[str, str]] | None = None,
) -> ProbeResult:
    """Put the readiness question to a server that gives these answers, by path."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if asked is not None:
            asked.append((request.path, await request.text()))
        status, text = answers.get(request.path, (404, "no such path"))
        if status == 0:
            await asyncio.sleep(1)  # longer than the question is patient
        return web.Response(status=status, text=text)

    async def work() -> ProbeResult:
        server = web.ServerRunner(web.Server(handle), shutdown_timeout=0)
        await server.setup()
        site = web.TCPSite(server, "127.0.0.1", 0)
        await site.start()
        prober = Prober()
        try:
            target = ProbeTarget(
                url=f"http://127.0.0.1:{server.addresses[0][1]}",
                backend=backend_profile(backend),
                path=path,
                model="tiny",
                task=task,
            )
            return await prober.check_loaded(target, probe_timeout=0.3, within=0.3)
        finally:
            await prober.close()
            await server.cleanup()

    return asyncio.run(work())


@pytest.mark.parametrize(
    ("backend", "answers", "ready"),
    [
        ("own", {"/health": (200, "")}, True),
        ("own", {}, True),  # no health path, but somebody answers
        ("own", {"/health": (503, "loading")}, False),
        ("own", {"/health": (0, "")}, False),
        ("llamacpp", {"/health": (503, "Loading model")}, False),
        ("llamacpp", UP | {"/v1/completions": (200, "{}")}, True),
        ("llamacpp", UP | {"/v1/completions": (0, "")}, False),  # 200, yet wedged
        ("llamacpp", UP | {"/v1/completions": (501, "Start it with --embeddings")}, True),
        ("vllm", {}, False),
        ("vllm", UP | {"/v1/completions": (404, "pooling only")}, True),
        ("vllm", UP | {"/v1/completions": (500, "engine dead")}, False),
        ("sglang", UP | {"/health_generate": (503, "")}, False),
        ("sglang", UP | {"/health_generate": (200, "")}, True),
        ("ollama", {"/api/version": (200, "{}"), "/api/generate": (200, "{}")}, True),
        (
            "ollama",
            {"/api/version": (200, "{}"), "/api/generate": (404, "model 'tiny' not found")},
            False,
        ),
    ],
)
def test_readiness_is_an_answer_of_the_model_where_the_backend_has_one(
    backend: str, answers: Answers, ready: bool
) -> None:
    assert ask(backend, answers).ok is ready


def test_a_declared_health_path_outranks_the_usual_one() -> None:
    assert ask("own", {"/live": (200, ""), "/health": (500, "")}, path="/live").ok
    assert not ask("own", {"/health": (200, "")}, path="/live").ok


@pytest.mark.parametrize(
    ("task", "path"),
    [
        ("", "/v1/completions"),
        ("text2text", "/v1/completions"),
        ("embedding", "/v1/embeddings"),
        ("reranker", "/v1/rerank"),
        ("text2image", None),
    ],
)
def test_the_question_fits_the_task_and_the_served_name(task: str, path: str | None) -> None:
    asked: list[tuple[str, str]] = []
    models = {"/v1/models": (200, '{"data": [{"id": "alias"}]}')}
    assert ask("vllm", UP | models, task=task, asked=asked).ok
    posted = [(where, body) for where, body in asked if body]
    assert [where for where, _ in posted] == ([path] if path else [])
    assert all('"alias"' in body for _, body in posted)


def test_a_refused_connection_is_an_answer_for_people() -> None:
    async def work() -> ProbeResult:
        prober = Prober()
        try:
            target = ProbeTarget(
                url=f"http://127.0.0.1:{free_port()}",
                backend=backend_profile("vllm"),
                path=None,
                model="m",
                task="",
            )
            return await prober.check_loaded(target, probe_timeout=1, within=1)
        finally:
            await prober.close()

    detail = "could not be reached: Connection refused"
    assert asyncio.run(work()) == ProbeResult(ok=False, detail=detail, refused=True)
