"""Steady load on a server, and a count of what was lost. Run inside the node's network:

    python -m tests.support.node.load http://10.96.1.2:8000 STOP-FILE short keep-alive stream stream

A path in the URL goes before /v1, and the variable KEY is sent as a bearer token, for a data plane.
Each kind of caller that is named has a thread of its own: one with a new connection for each
request, one that keeps its connection, and one that reads streams of some seconds. It goes on until
the file exists. It prints a line once each has been answered, and in the end a JSON object with
what each kind sent and lost.

Nothing is tried again, with one exception, which Go, urllib3 and OpenAI's client make too: where a
connection that was used before ends without one byte of an answer, the request goes out once more
on a new one. A pod that stops closes connections at rest, and a request may just be on its way.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.node.handle import Node
from tests.support.processes import ROOT

CHAT = {"messages": [{"role": "user", "content": "hello"}]}
STREAM = {"prompt": "a", "stream": True, "max_tokens": 400, "ignore_eos": True}
TIMEOUT = 60.0
PAUSE = 0.1
ALL_CALLERS = ("short", "keep-alive", "stream", "stream")


@contextmanager
def load(
    node: Node, url: str, directory: Path, *, key: str = "", callers: tuple[str, ...] = ALL_CALLERS
) -> Iterator[dict[str, Any]]:  # Any: counts and what was lost, by the kind of caller
    """Keep up load inside the block; the counts are in the value after it."""
    stop = directory / "stop"
    stop.unlink(missing_ok=True)
    counts: dict[str, Any] = {}
    command = node.command_inside(sys.executable, "-m", __name__, url, str(stop), *callers)
    environment = {**os.environ, "KEY": key}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline(), "the load ended before it had begun"
            yield counts
        finally:
            stop.touch()
        counts.update(json.load(process.stdout))


class Caller(threading.Thread):
    """Sends one kind of request after another, and remembers what came of it."""

    def __init__(self, url: str, stop: Path, kind: str) -> None:
        super().__init__(name=kind)
        parts = urlsplit(url)
        self._address = parts.netloc
        self._prefix = parts.path
        self._stop_file = stop
        self._connection: http.client.HTTPConnection | None = None
        self.begun = threading.Event()
        self.sent = 0
        self.lost: list[str] = []

    def run(self) -> None:
        while not self._stop_file.exists():
            self.sent += 1
            try:
                self._send_on_living_connection()
            except (OSError, http.client.HTTPException, AssertionError) as failure:
                self.lost.append(f"{time.strftime('%T')} {type(failure).__name__}: {failure}")
                self._close()
            time.sleep(PAUSE)
        self._close()

    def _send_on_living_connection(self) -> None:
        """Send; once more on a new connection where the kept one was closed without an answer."""
        reused = self._connection is not None
        try:
            response = self._ask()
        except (http.client.RemoteDisconnected, ConnectionError):
            self._close()
            if not reused:
                raise
            response = self._ask()
        self._read(response)

    def _ask(self) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._address, timeout=TIMEOUT)
        streams = self.name == "stream"
        path, body = ("/v1/completions", STREAM) if streams else ("/v1/chat/completions", CHAT)
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("KEY"):
            headers["Authorization"] = f"Bearer {key}"
        self._connection.request("POST", self._prefix + path, json.dumps(body), headers)
        return self._connection.getresponse()

    def _read(self, response: http.client.HTTPResponse) -> None:
        self.begun.set()
        text = response.read()
        streams = self.name == "stream"
        assert response.status == 200, f"{response.status}: {text[:200]!r}"
        assert not streams or text.rstrip().endswith(b"[DONE]"), f"cut after {len(text)} bytes"
        if self.name != "keep-alive" or response.will_close:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def main(url: str, stop: Path, *kinds: str) -> None:
    callers = [Caller(url, stop, kind) for kind in kinds]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.begun.wait(TIMEOUT)
    print("begun", flush=True)
    for caller in callers:
        caller.join()
    counted = {
        kind: {
            "sent": sum(caller.sent for caller in callers if caller.name == kind),
            "lost": [each for caller in callers if caller.name == kind for each in caller.lost],
        }
        for kind in dict.fromkeys(kinds)
    }
    print(json.dumps(counted))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
