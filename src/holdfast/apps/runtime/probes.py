"""A controller's own address: metrics, and whether it is alive and ready.

`/healthz` fails when a part of the controller has ended, so that the pod is restarted; `/readyz`
fails until everything has been listed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from holdfast.core.errors import ConfigurationError

LAG_INTERVAL = 0.25


@asynccontextmanager
async def serve_probes(
    address: str,
    *,
    registry: CollectorRegistry,
    alive: Callable[[], bool],
    ready: Callable[[], bool],
) -> AsyncIterator[str]:
    """Answer on host and port while the block runs; gives the URL, empty for none."""
    if not address:
        yield ""
        return
    host, port = _split_address(address)

    def probe(ok: bool, problem: str) -> web.Response:
        return web.Response(text="ok\n" if ok else f"{problem}\n", status=200 if ok else 503)

    async def metrics(request: web.Request) -> web.Response:
        body = generate_latest(registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(request: web.Request) -> web.Response:
        return probe(alive(), "a part of the operator has ended")

    async def readyz(request: web.Request) -> web.Response:
        return probe(ready(), "not every kind has been listed yet")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/livez", healthz)
    app.router.add_get("/readyz", readyz)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host or None, port).start()
        except OSError as error:
            raise ConfigurationError(
                f"Cannot listen on {address}: {error.strerror}.",
                hint="Choose another --metrics-address, such as 127.0.0.1:0.",
            ) from None
        yield f"http://{host or '127.0.0.1'}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def measure_loop_lag(observe: Callable[[float], None]) -> None:
    """Measure how late the event loop is, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_INTERVAL
        await asyncio.sleep(LAG_INTERVAL)
        observe(max(0.0, loop.time() - due))


def _split_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(
            f"{address} is not an address to listen on.", hint="Write HOST:PORT or :PORT."
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
