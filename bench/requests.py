"""Requests per second of a lookup by slug, against a bare ASGI app on the same uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.control_plane import PROJECT, control_plane
from bench.report import Row

CONNECTIONS = 32
SECONDS = 3.0
BARE = """
import uvicorn
BODY = b'x' * {size}
HEAD = [(b'content-type', b'application/json'), (b'content-length', str(len(BODY)).encode())]
async def app(scope, receive, send):
    if scope['type'] == 'http':
        await send({{'type': 'http.response.start', 'status': 200, 'headers': HEAD}})
        await send({{'type': 'http.response.body', 'body': BODY}})
uvicorn.run(app, port={port}, log_level='error', access_log=False, loop='uvloop', http='httptools')
"""


def measure() -> list[Row]:
    """One loader, both servers, in turn; the ratio is our rate over the bare one's."""
    with control_plane(workloads=1_000) as server:
        path = f"/api/projects/{PROJECT}/workloads/w-000007"
        host, port = server.url.removeprefix("http://").split(":")
        request = (
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Authorization: Bearer {server.token}\r\n\r\n"
        ).encode()
        size = asyncio.run(_one(host, int(port), request))
        with _bare(size) as bare_port:
            plain = f"GET / HTTP/1.1\r\nHost: {host}:{bare_port}\r\n\r\n".encode()
            ours, bare = [], []
            for _ in range(3):
                ours.append(asyncio.run(_load(host, int(port), request)))
                bare.append(asyncio.run(_load(host, bare_port, plain)))
    mine, peer = sorted(ours)[1], sorted(bare)[1]
    return [
        Row(
            what="`GET` of one workload against a bare ASGI app (same uvicorn, same size)",
            ours=f"{mine:,.0f}/s",
            peer=f"{peer:,.0f}/s",
            ratio=mine / peer,
            goal=0.5,
        )
    ]


@contextlib.contextmanager
def _bare(size: int) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    child = subprocess.Popen([sys.executable, "-c", BARE.format(size=size, port=port)])
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield port
    finally:
        child.terminate()
        child.wait()


async def _one(host: str, port: int, request: bytes) -> int:
    """Send one request and return the size of its body."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    size = await _answer(reader)
    writer.close()
    return size


async def _load(host: str, port: int, request: bytes) -> float:
    """Keep every connection busy for a while and return answers per second."""
    ending = time.perf_counter() + SECONDS

    async def connection() -> int:
        reader, writer = await asyncio.open_connection(host, port)
        count = 0
        while time.perf_counter() < ending:
            writer.write(request)
            await _answer(reader)
            count += 1
        writer.close()
        return count

    counts = await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return sum(counts) / SECONDS


async def _answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"unexpected answer: {head[:200]!r}")
    mark = head.lower().index(b"content-length:") + len(b"content-length:")
    size = int(head[mark : head.index(b"\r", mark)])
    await reader.readexactly(size)
    return size
