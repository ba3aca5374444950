"""What the proxy adds to each token of a stream, against a direct connection."""

from __future__ import annotations

import json
import statistics
import sys
import time
import urllib.request
from pathlib import Path

from bench.control_plane import PROJECT, control_plane
from bench.report import Row
from holdfast import ManagementClient, WorkloadSpec

TOKENS = 2_000
ECHO = Path(__file__).resolve().parent.parent / "examples" / "backends" / "echo_server.py"


def measure() -> list[Row]:
    """Stream the same answer both ways, in turn."""
    command = f"{sys.executable} {ECHO} --model tiny --tokens {TOKENS}"
    spec = WorkloadSpec(name="stream", model="tiny", backend="echo", command=command)
    with control_plane(run=True) as server:
        mgmt = ManagementClient(server.url, project=PROJECT, token=server.token)
        mgmt.ensure(spec)
        mgmt.wait_until_ready("stream", silent=True)
        endpoint = mgmt.get("stream").status.endpoint
        direct_url = _backend_address(server.pid)
        key = server.data_key("stream")
        proxied_url = f"{server.url}/endpoint/{PROJECT}/stream/v1/chat/completions"
        proxied, direct = [], []
        for _ in range(7):
            proxied.append(_stream(proxied_url, key))
            direct.append(_stream(f"{direct_url}/v1/chat/completions", ""))
        mgmt.delete("stream")
        mgmt.close()
    del endpoint
    through, straight = statistics.median(proxied), statistics.median(direct)
    return [
        Row(
            what=f"one token of a stream of {TOKENS:,}, through the proxy against direct",
            ours=f"{through * 1e6 / TOKENS:.0f} µs",
            peer=f"{straight * 1e6 / TOKENS:.0f} µs",
            ratio=straight / through,
        )
    ]


def _stream(url: str, key: str) -> float:
    body = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "go"}]}
    request = urllib.request.Request(url, data=json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    begin = time.perf_counter()
    with urllib.request.urlopen(request) as answer:
        lines = sum(1 for line in answer if line.startswith(b"data:"))
    if lines < TOKENS:
        raise SystemExit(f"the stream ended after {lines} lines")
    return time.perf_counter() - begin


def _backend_address(server: int) -> str:
    """Find the port of the echo server by the PORT variable that the runner gave it."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes()
            if str(ECHO).encode() not in arguments or int(entry.name) == server:
                continue
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for pair in environment:
            if pair.startswith(b"PORT="):
                return f"http://127.0.0.1:{pair[5:].decode()}"
    raise SystemExit("no echo server is running")
