"""A controller's own address: what it answers, and what it refuses to listen on."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge
from tests.adapters.kubernetes.harness import eventually

from holdfast.apps.runtime import probes
from holdfast.apps.runtime.probes import measure_loop_lag, serve_probes
from holdfast.core.errors import ConfigurationError


async def test_it_tells_whether_it_is_alive_and_ready() -> None:
    registry, states = CollectorRegistry(), {"alive": True, "ready": False}
    Gauge("parts", "Parts that run", registry=registry).set(3)
    async with (
        serve_probes(
            "127.0.0.1:0",
            registry=registry,
            alive=lambda: states["alive"],
            ready=lambda: states["ready"],
        ) as url,
        aiohttp.ClientSession() as session,
    ):

        async def ask(path: str) -> tuple[int, str]:
            async with session.get(f"{url}{path}") as response:
                return response.status, await response.text()

        assert await ask("/healthz") == (200, "ok\n")
        assert await ask("/livez") == (200, "ok\n")
        assert (await ask("/readyz"))[0] == 503
        assert "parts 3.0\n" in (await ask("/metrics"))[1]
        states.update(alive=False, ready=True)
        assert (await ask("/healthz"))[0] == 503
        assert await ask("/readyz") == (200, "ok\n")


async def test_without_an_address_nothing_listens() -> None:
    async with serve_probes(
        "", registry=CollectorRegistry(), alive=lambda: True, ready=lambda: True
    ) as url:
        assert url == ""


@pytest.mark.parametrize("address", ["8080", "localhost", ":http", "127.0.0.1:65536"])
async def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="not an address"):
        async with serve_probes(
            address, registry=CollectorRegistry(), alive=lambda: True, ready=lambda: True
        ):
            pass


async def test_an_address_in_use_is_refused() -> None:
    registry = CollectorRegistry()

    def yes() -> bool:
        return True

    async with serve_probes("127.0.0.1:0", registry=registry, alive=yes, ready=yes) as url:
        with pytest.raises(ConfigurationError, match="Cannot listen"):
            async with serve_probes(
                url.removeprefix("http://"), registry=registry, alive=yes, ready=yes
            ):
                pass


async def test_a_loop_that_is_held_up_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "LAG_INTERVAL", 0.001)
    measured: list[float] = []
    task = asyncio.ensure_future(measure_loop_lag(measured.append))
    await eventually(lambda: len(measured) >= 3, "some measurements")
    task.cancel()
    assert min(measured) >= 0.0
