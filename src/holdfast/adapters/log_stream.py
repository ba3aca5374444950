"""Writes log lines to stderr from a thread of its own, so that no event loop ever waits for it.

Whoever started the process may not read its stderr: a pipe holds 64 KiB, and the write after
that waits for ever. Here lines wait in a queue instead. A full queue drops lines and says how
many, once there is room again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections import deque

MAX_WAITING = 4 * 1024 * 1024
"""Bytes of lines that wait to be read; what comes beyond is dropped."""


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
