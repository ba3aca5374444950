"""Writes log lines to stderr from a thread of its own, so that no event loop ever waits for it.

Whoever started the process may not read its stderr: a pipe holds 64 KiB, and the write after
that waits for ever. Here lines wait in a queue instead. A full queue drops lines and says how
many, once there is room again.

A line is a constant event name with key-value pairs, as JSON or as text, secrets masked.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.redact import redact, redact_tree
from holdfast.core.tree import Tree

MAX_WAITING = 4 * 1024 * 1024
"""Bytes of lines that wait to be read; what comes beyond is dropped."""
_FIELDS = "holdfast_fields"
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", _FIELDS}
encode_json = msgspec.json.Encoder(enc_hook=str).encode


class LogStream:
    """A file descriptor that is written without waiting. Safe to use from several threads."""

    def __init__(self, descriptor: int, *, max_waiting: int = MAX_WAITING) -> None:
        self._descriptor = descriptor
        self._max_waiting = max_waiting
        self._lines: deque[bytes] = deque()
        self._waiting = 0
        self._dropped = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, line: bytes) -> None:
        """Take a line, with its end, to be written soon."""
        with self._changed:
            if self._waiting + len(line) > self._max_waiting:
                self._dropped += 1
                return
            self._lines.append(line)
            self._waiting += len(line)
            if self._thread is None:
                # A daemon: a write that never returns must not keep the process from ending.
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float = 1.0) -> bool:
        """Wait until all lines are written, but no longer than this; True when they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                lines = b"".join(self._lines)
                self._lines.clear()
                dropped, self._dropped = self._dropped, 0
            if dropped:
                lines += f'{{"event":"log_lines_dropped","lines":{dropped}}}\n'.encode()
            self._put(lines)
            with self._changed:
                self._waiting = sum(map(len, self._lines))
                self._changed.notify_all()

    def _put(self, data: bytes) -> None:
        """Write all of it. A log that cannot be written stops nobody."""
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]


_streams: dict[int, LogStream] = {}


def stderr_stream() -> LogStream | None:
    """Return the stream of the present stderr; None where it is no file, as in a test."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return None
    return _streams.setdefault(descriptor, LogStream(descriptor))


class StderrHandler(logging.Handler):
    """Sends formatted records to stderr without waiting for whoever reads it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record."""
        try:
            write_stderr(self.format(record) + "\n")
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Give what is queued a moment, as at the end of the process."""
        stream = stderr_stream()
        if stream is not None:
            stream.flush()


def write_stderr(text: str) -> None:
    """Queue text for stderr."""
    stream = stderr_stream()
    if stream is not None:
        stream.write(text.encode(errors="backslashreplace"))
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text)
        sys.stderr.flush()


def log_event(
    logger: logging.Logger, name: str, level: int, fields: Mapping[str, Tree], *, exc: bool
) -> None:
    """Log one event. The name is constant; what varies goes into the fields."""
    if logger.isEnabledFor(level):
        logger.log(level, name, extra={_FIELDS: fields}, exc_info=exc)


def send_to_stderr(form: str, levels: Mapping[str, int]) -> None:
    """Send what these loggers log to stderr from their level on, as `json` or `text`."""
    handler = StderrHandler()
    handler.setFormatter(TextFormat() if form == "text" else JsonFormat())
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)


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
        masked = redact_tree(fields)
        assert isinstance(masked, dict)  # noqa: S101  # a mapping is masked into a mapping
        return masked


class JsonFormat(_RecordFormat):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        head = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": redact(record.getMessage()),
        }
        return encode_json({**head, **self._fields(record)}).decode()


class TextFormat(_RecordFormat):
    """One line for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record; control characters cannot reach the terminal."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        fields = self._fields(record).items()
        pairs = " ".join(f"{name}={format_value(value)}" for name, value in fields)
        message = redact(record.getMessage())
        return f"{at} {record.levelname.lower():7} {format_value(message)} {pairs}".rstrip()


def format_value(value: Tree) -> str:
    """Write a value on one line, quoted where it needs it."""
    text = value if isinstance(value, str) else encode_json(value).decode()
    return text if text.isprintable() and " " not in text else ascii(text)
