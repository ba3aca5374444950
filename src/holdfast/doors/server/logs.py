"""Logs as a constant event name with key-value pairs, one per line, secrets masked.

`event()` is the only way the server logs. Text or JSON is a matter of the handler.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime

import msgspec

from holdfast.core.redact import redact, redact_tree
from holdfast.core.tree import Tree

logger = logging.getLogger("holdfast.server")
access = logging.getLogger("holdfast.access")

_encode = msgspec.json.Encoder().encode
_FIELDS = "holdfast_fields"


def event(name: str, *, level: int = logging.INFO, exc: bool = False, **fields: Tree) -> None:
    """Log one event. The name is constant; what varies goes into the fields."""
    if logger.isEnabledFor(level):
        logger.log(level, name, extra={_FIELDS: fields}, exc_info=exc)


def request_line(fields: dict[str, Tree]) -> None:
    """Write one line of the access log. The caller asks `access.isEnabledFor` first."""
    access.info("request", extra={_FIELDS: fields})


class _Format(logging.Formatter):
    def _fields(self, record: logging.LogRecord) -> dict[str, Tree]:
        # Other libraries log whole sentences: they are masked as text.
        fields: dict[str, Tree] = getattr(record, _FIELDS, None) or {}
        if record.exc_info and record.exc_info[0] is not None:
            # The frames alone: local values and messages may hold what a request carried.
            lines = traceback.extract_tb(record.exc_info[2])
            fields = {
                **fields,
                "exception": record.exc_info[0].__name__,
                "reason": str(record.exc_info[1])[:500],
                "frames": [f"{line.filename}:{line.lineno} {line.name}" for line in lines[-12:]],
            }
        return fields


class JsonFormat(_Format):
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


class TextFormat(_Format):
    """One line for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record; control characters cannot reach the terminal."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        masked = redact_tree(self._fields(record))
        assert isinstance(masked, dict)  # noqa: S101  # a mapping is masked into a mapping
        pairs = " ".join(f"{name}={_shown(value)}" for name, value in masked.items())
        message = redact(record.getMessage())
        return f"{at} {record.levelname.lower():7} {_shown(message)} {pairs}".rstrip()


def configure(*, form: str, level: str) -> None:
    """Send our logs, and those of the server library, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormat() if form == "text" else JsonFormat())
    numeric = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    for name in ("holdfast", "uvicorn", "uvicorn.error", "uvicorn.access", "aiohttp", "asyncio"):
        each = logging.getLogger(name)
        each.handlers = [] if "." in name else [handler]
        each.propagate = "." in name
        each.setLevel(max(numeric, logging.WARNING) if name != "holdfast" else numeric)


def _shown(value: Tree) -> str:
    text = value if isinstance(value, str) else _encode(value).decode()
    return text if text.isprintable() and " " not in text else ascii(text)
