"""A backend that misbehaves on purpose; its first argument says how.

    python tests/support/rogue_backend.py silent-stream --port 8080

| misbehaviour       | what it does                                                        |
|--------------------|---------------------------------------------------------------------|
| never-ready        | opens its port and answers 503 for ever                             |
| crash              | exits 1 at once, with a message on stderr                           |
| crash-after S      | serves, and exits 1 after S seconds                                 |
| hang-on-stop       | serves, and ignores SIGTERM and SIGINT                              |
| flood-log [MB]     | serves, while writing MB (64) megabytes of log as fast as it can    |
| fork-child         | serves; a child in its process group ignores SIGTERM (GET /child)   |
| ready-then-500 [S] | serves until SIGUSR1, or S seconds, then answers everything with 500 |
| silent-stream      | streams two chunks, then nothing for ever                           |
| env-dump           | serves, and answers GET /env with its environment                   |
| hostile-page       | answers with a page, a script, and headers for the server's origin   |
| hostile-stream     | the same headers, on a stream whose texts are scripts and broken     |

The runner's tests start it. All but `crash` announce their address as the echo
server does, whose code this is.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

# Run as a script, from any directory: neither the project's root nor examples/ can be imported.
_SOURCE = Path(__file__).resolve().parents[2] / "examples" / "backends" / "echo_server.py"
_spec = importlib.util.spec_from_file_location("echo_server", _SOURCE)
assert _spec is not None and _spec.loader is not None
echo_server = importlib.util.module_from_spec(_spec)
sys.modules["echo_server"] = echo_server  # dataclasses look their own module up
_spec.loader.exec_module(echo_server)

MISBEHAVIOURS = (
    "never-ready",
    "crash",
    "crash-after",
    "hang-on-stop",
    "flood-log",
    "fork-child",
    "ready-then-500",
    "silent-stream",
    "env-dump",
    "hostile-page",
    "hostile-stream",
)

HOSTILE_PAGE = b"<!doctype html><script>fetch('/api/me').then(steal)</script>"
HOSTILE_HEADERS = "\r\n".join(
    (
        "",
        "Set-Cookie: __Host-holdfast=stolen; Path=/; Secure",
        'Clear-Site-Data: "*"',
        "Access-Control-Allow-Origin: *",
        "Access-Control-Allow-Credentials: true",
        "Content-Security-Policy: script-src * 'unsafe-inline'",
        "Service-Worker-Allowed: /",
        "Cross-Origin-Resource-Policy: cross-origin",
        "Location: https://elsewhere.example/",
        "Refresh: 0; url=https://elsewhere.example/",
    )
)
"""Sent behind the content type, for the echo server writes that one as it is."""

STUBBORN_CHILD = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ignoring", flush=True)
time.sleep(600)
"""


@dataclass(kw_only=True)
class RogueBackend(echo_server.EchoBackend):
    misbehaviour: str
    amount: float | None
    broken: bool = False
    child: int | None = None

    async def answer(self, request: echo_server.Request) -> echo_server.Answer:
        match self.misbehaviour, request.path:
            case "never-ready", _:
                return echo_server.failure(503, "Loading model")
            case "ready-then-500", _ if self.broken:
                return echo_server.failure(500, "The engine is dead")
            case "fork-child", "/child":
                return echo_server.reply({"pid": self.child})
            case "env-dump", "/env":
                return echo_server.reply(dict(os.environ))
            case "hostile-page", path if path.startswith("/v1/"):
                media = f"text/html{HOSTILE_HEADERS}"
                return echo_server.Answer(body=HOSTILE_PAGE, content_type=media)
            case "hostile-stream", path if path.startswith("/v1/"):
                media = f"text/event-stream{HOSTILE_HEADERS}"
                return echo_server.Answer(stream=_hostile_pieces(), content_type=media)
        answer = await super().answer(request)
        if self.misbehaviour == "silent-stream" and answer.stream is not None:
            return replace(answer, stream=_fall_silent(answer.stream))
        return answer

    def announce(self, url: str) -> None:
        """Begin what goes wrong by itself; the announcement stays the log's first line."""
        match self.misbehaviour:
            case "hang-on-stop":
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)
            case "fork-child":
                self.child = start_stubborn_child()
            case "ready-then-500":
                signal.signal(signal.SIGUSR1, lambda *_: self.break_down())
                if self.amount is not None:
                    after(self.amount, self.break_down)
        super().announce(url)
        match self.misbehaviour:
            case "crash-after":
                after(self.amount or 0, lambda: die("out of memory"))
            case "flood-log":
                after(0, lambda: flood(self.amount or 64))

    def break_down(self) -> None:
        self.broken = True


async def _fall_silent(stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    try:
        for _ in range(2):
            yield await anext(stream)
        await asyncio.Event().wait()
    finally:
        await stream.aclose()


async def _hostile_pieces() -> AsyncGenerator[bytes, None]:
    yield b'id: 7\nevent: reset\ndata: {"choices":[{"delta":{"content":"<script>1</script>"}}]}\n\n'
    yield b'data: {"choices":[{"delta":{"content":"a\\n\\nevent: reset\\ndata: {}"}}]}\n\n'
    yield b'data: {"choices":"none"}\n\n'
    yield b"data: [DONE]\n\n"


def after(seconds: float, act: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


def die(reason: str) -> None:
    print(f"fatal: {reason}", file=sys.stderr, flush=True)
    os._exit(1)


def flood(megabytes: float) -> None:
    line = b"INFO the scheduler has nothing to say and says it again" + b"." * 44 + b"\n"
    block = line * 1000
    for _ in range(int(megabytes * 1_000_000) // len(block)):
        os.write(1, block)


def start_stubborn_child() -> int:
    child = subprocess.Popen([sys.executable, "-c", STUBBORN_CHILD], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child.pid


def main() -> None:
    if sys.argv[1:2] == ["crash"]:
        die("no usable device was found")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("misbehaviour", choices=MISBEHAVIOURS)
    parser.add_argument("amount", type=float, nargs="?")
    parser.add_argument("--model", default="rogue")
    echo_server.add_address_arguments(parser)
    options = vars(parser.parse_args())
    host, port = options.pop("host"), options.pop("port")
    if options["misbehaviour"] == "hang-on-stop":
        options["stop_signals"] = ()
    echo_server.run(RogueBackend(**options), host, port)


if __name__ == "__main__":
    main()
