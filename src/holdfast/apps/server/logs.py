"""Logs as a constant event name with key-value pairs, one per line, secrets masked.

`event()` is the only way the server logs. Text or JSON is a matter of the handler.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime

import msgspec

from holdfast.adapters.log_stream import (
    encode_json,
    format_value,
    log_event,
    send_to_stderr,
    write_stderr,
)
from holdfast.core.tree import Tree

logger = logging.getLogger("holdfast.server")

# The server library's own errors are ours to report, or answers that we left incomplete on
# purpose.
_LIBRARIES = {
    "holdfast": logging.DEBUG,
    "uvicorn": logging.CRITICAL,
    "aiohttp": logging.WARNING,
    "asyncio": logging.WARNING,
}


def event(name: str, *, level: int = logging.INFO, exc: bool = False, **fields: Tree) -> None:
    """Log one event. The name is constant; what varies goes into the fields."""
    log_event(logger, name, level, fields, exc=exc)


class _AccessLine(msgspec.Struct, kw_only=True):
    at: str
    level: str = "info"
    event: str = "request"
    request_id: str
    method: str
    path: str
    status: int
    ms: float
    token: str
    peer: str


def _format_access_line(entry: _AccessLine) -> bytes:
    fields = list(entry.__struct_fields__[3:])
    pairs = " ".join(f"{name}={format_value(getattr(entry, name))}" for name in fields)
    return f"{entry.at[11:19]} info    request {pairs}".encode()


class AccessLog:
    """The access log: one line a request, gathered and written a few times a second.

    It bypasses `logging`, which takes longer over a line than the server over the request.
    """

    def __init__(self) -> None:
        self.on = False
        self._text = False
        self._lines: list[bytes] = []
        self._second = 0
        self._clock = ""
        self._due = False

    def configure(self, *, on: bool, text: bool) -> None:
        """Switch it on or off."""
        self.on, self._text = on, text

    def line(
        self,
        *,
        request_id: str,
        method: str,
        path: str,
        status: int,
        ms: float,
        token: str,
        peer: str,
    ) -> None:
        """Add a line. Call it in the event loop."""
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second = second
            self._clock = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        entry = _AccessLine(
            at=f"{self._clock}.{int((now - second) * 1000):03}Z",
            request_id=request_id,
            method=method,
            path=path,
            status=status,
            ms=ms,
            token=token,
            peer=peer,
        )
        self._lines.append(_format_access_line(entry) if self._text else encode_json(entry))
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(0.2, self.flush)

    def flush(self) -> None:
        """Write what was gathered. A log that cannot be written stops nobody."""
        lines, self._lines, self._due = self._lines, [], False
        if lines:
            write_stderr(b"\n".join([*lines, b""]).decode())


access_log = AccessLog()


def configure(*, form: str, level: str) -> None:
    """Send our logs, and those of the server library, to stderr."""
    numeric = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    send_to_stderr(form, {name: max(numeric, least) for name, least in _LIBRARIES.items()})
    access_log.configure(on=numeric <= logging.INFO, text=form == "text")
