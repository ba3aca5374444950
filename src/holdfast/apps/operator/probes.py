"""The operator's own address: figures, and whether it is alive and ready.

`/healthz` fails when the loop or a part of it stands still, so that the pod is restarted;
`/readyz` fails until every copy is whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from holdfast.apps.operator.metrics import CONTENT_TYPE, OperatorMetrics
from holdfast.core.errors import ConfigurationError

TICK = 0.25


@asynccontextmanager
async def serve_probes(
    address: str, *, metrics: OperatorMetrics, alive: Callable[[], bool], ready: Callable[[], bool]
) -> AsyncIterator[str]:
    """Answer on host and port while the block runs; gives the address, empty for none."""
    if not address:
        yield ""
        return
    host, port = _split(address)

    def said(holds: Callable[[], bool], words: str) -> web.Response:
        held = holds()
        return web.Response(text="ok\n" if held else f"{words}\n", status=200 if held else 503)

    async def figures(request: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    async def healthz(request: web.Request) -> web.Response:
        return said(alive, "a part of the operator has ended")

    async def readyz(request: web.Request) -> web.Response:
        return said(ready, "not every kind has been listed yet")

    app = web.Application()
    app.router.add_get("/metrics", figures)
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
        bound = runner.addresses[0]
        yield f"http://{host or '127.0.0.1'}:{bound[1]}"
    finally:
        await runner.cleanup()


async def measure_lag(metrics: OperatorMetrics) -> None:
    """Note how late the loop is, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK
        await asyncio.sleep(TICK)
        metrics.lag.observe(max(0.0, loop.time() - due))


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(
            f"{address} is not an address to listen on.", hint="Write HOST:PORT or :PORT."
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
