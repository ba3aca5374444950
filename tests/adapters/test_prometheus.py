"""One number from a Prometheus server, or none: whatever it says, nobody is held up by it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from holdfast.adapters.prometheus import MAX_RESPONSE, PrometheusSource
from holdfast.reconcile.ports import MetricSource

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/prometheus/api/v1/query", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/prometheus"
    finally:
        await runner.cleanup()


def ask(handler: Handler, expression: str = "up", timeout: float = 5.0) -> float | None:
    async def main() -> float | None:
        async with serving(handler) as url:
            source: MetricSource = PrometheusSource(url, timeout=timeout)
            try:
                return await source.query(expression)
            finally:
                assert isinstance(source, PrometheusSource)
                await source.aclose()
                await source.aclose()

    return asyncio.run(main())


def answering(body: Any, status: int = 200) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status)

    return handler


def success(kind: str, result: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": kind, "result": result}}


def series(*values: str) -> dict[str, Any]:
    return success("vector", [{"metric": {}, "value": [1, value]} for value in values])


def test_the_expression_arrives_as_it_was_written() -> None:
    asked = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append((await request.post())["query"])
        return web.json_response(series("0.5"))

    expression = 'sum(rate(errors{pod=~"my-llama-canary-.*"}[5m])) / 2 > bool 0 # + & %'
    assert ask(handler, expression) == 0.5
    assert asked == [expression]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (series("0.25"), 0.25),
        (success("scalar", [1, "3"]), 3.0),
        (series("+Inf"), float("inf")),
        (series("-1e-3"), -0.001),
    ],
)
def test_a_number_is_a_number(body: Any, value: float) -> None:
    assert ask(answering(body)) == value


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (series(), "0 series"),
        (series("1", "2"), "2 series"),
        (series("NaN"), "NaN"),
        (success("matrix", []), "matrix"),
        (success("string", [1, "text"]), "string"),
        ({"status": "error", "error": "parse error"}, "parse error"),
        ({"status": "success"}, "not Prometheus's"),
        (success("vector", [{"value": []}]), "not Prometheus's"),
        (success("vector", None), "not Prometheus's"),
        (["success"], "not Prometheus's"),
        (None, "not Prometheus's"),
        (series("a lot"), "not Prometheus's"),
    ],
)
def test_what_is_not_one_number_is_none_and_the_log_says_why(
    body: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        assert ask(answering(body)) is None
    (record,) = caplog.records
    assert record.message == "metric-without-value"
    assert reason in record.__dict__["reason"]


def test_a_server_that_refuses_or_misbehaves_is_no_value() -> None:
    async def hangs(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    async def breaks_off(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async def redirects(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("http://169.254.169.254/")

    async def page(request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>")

    async def flood(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b" " * (2 * MAX_RESPONSE) + b"{}")

    assert ask(hangs, timeout=0.2) is None
    for handler in (breaks_off, redirects, page, flood):
        assert ask(handler) is None
    assert ask(answering({"status": "error", "error": "no"}, status=422)) is None


def test_a_server_that_is_not_there_is_no_value() -> None:
    async def main() -> float | None:
        async with serving(answering({})) as url:
            pass
        source = PrometheusSource(url, timeout=5)
        try:
            return await source.query("up")
        finally:
            await source.aclose()

    assert asyncio.run(main()) is None


def test_a_source_goes_on_after_a_failure() -> None:
    async def main() -> list[float | None]:
        found = iter([None, "1", None, "2"])

        async def handler(request: web.Request) -> web.StreamResponse:
            value = next(found)
            return web.json_response(series(value) if value else {}, status=200 if value else 503)

        async with serving(handler) as url:
            source = PrometheusSource(url)
            try:
                return [await source.query("up") for _ in range(4)]
            finally:
                await source.aclose()

    assert asyncio.run(main()) == [None, 1.0, None, 2.0]
