"""Logs as a constant event name with key-value pairs, one per line, secrets masked.

`event()` is the only way the server logs. Text or JSON is a matter of the handler.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from datetime import UTC, datetime

import msgspec

from holdfast.adapters.log_stream import StderrHandler, write_stderr
from holdfast.core.errors import HoldfastError
from holdfast.core.redact import redact, redact_tree
from holdfast.core.tree import Tree

logger = logging.getLogger("holdfast.server")

_encode = msgspec.json.Encoder(enc_hook=str).encode
_FIELDS = "holdfast_fields"
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", _FIELDS}
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
    if logger.isEnabledFor(level):
        logger.log(level, name, extra={_FIELDS: fields}, exc_info=exc)


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
    pairs = " ".join(f"{name}={_format_value(getattr(entry, name))}" for name in fields)
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
        self._lines.append(_format_access_line(entry) if self._text else _encode(entry))
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(0.2, self.flush)

    def flush(self) -> None:
        """Write what was gathered. A log that cannot be written stops nobody."""
        lines, self._lines, self._due = self._lines, [], False
        if lines:
            write_stderr(b"\n".join([*lines, b""]).decode())


access_log = AccessLog()


class _RecordFormat(logging.Formatter):
    def _fields(self, record: logging.LogRecord) -> dict[str, Tree]:
        # Other libraries log whole sentences: they are masked as text. Adapters log as we do,
        # with what varies as attributes of the record.
        given: dict[str, Tree] = getattr(record, _FIELDS, None) or {}
        ours = record.name.startswith("holdfast")  # what others attach may be a whole request
        said = {
            name: redact(str(value))
            for name, value in vars(record).items()
            if ours and name not in _STANDARD
        }
        fields: dict[str, Tree] = {**said, **given}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            lines = traceback.extract_tb(error.__traceback__)
            fields["exception"] = type(error).__name__
            # Local values, and the messages of other exceptions, may hold what a request carried.
            if isinstance(error, HoldfastError | OSError):
                fields["reason"] = str(error)[:500]
            fields["frames"] = [
                f"{line.filename}:{line.lineno} {line.name}" for line in lines[-12:]
            ]
        return fields


class JsonFormat(_RecordFormat):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        head = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": redact(record.getMessage()),
        }
        masked = redact_tree(self._fields(record))
        assert isinstance(masked, dict)  # noqa: S101  # a mapping is masked into a mapping
        return _encode({**head, **masked}).decode()


class TextFormat(_RecordFormat):
    """One line for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record; control characters cannot reach the terminal."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        masked = redact_tree(self._fields(record))
        assert isinstance(masked, dict)  # noqa: S101  # a mapping is masked into a mapping
        pairs = " ".join(f"{name}={_format_value(value)}" for name, value in masked.items())
        message = redact(record.getMessage())
        return f"{at} {record.levelname.lower():7} {_format_value(message)} {pairs}".rstrip()


def configure(*, form: str, level: str) -> None:
    """Send our logs, and those of the server library, to stderr."""
    handler = StderrHandler()
    handler.setFormatter(TextFormat() if form == "text" else JsonFormat())
    numeric = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    for name, least in _LIBRARIES.items():
        each = logging.getLogger(name)
        each.handlers = [handler]
        each.propagate = False
        each.setLevel(max(numeric, least))
    access_log.configure(on=numeric <= logging.INFO, text=form == "text")


def _format_value(value: Tree) -> str:
    text = value if isinstance(value, str) else _encode(value).decode()
    return text if text.isprintable() and " " not in text else ascii(text)
