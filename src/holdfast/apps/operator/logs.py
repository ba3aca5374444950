"""One line for each thing that happened: a constant event name and what varies, secrets masked.

JSON for machines, and text where a person looks on. Everything of Holdfast logs through the
logger `holdfast` with `extra`; this only decides how it is written.
"""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime

import msgspec

from holdfast.adapters.log_stream import StderrHandler
from holdfast.core.redact import redact, redact_tree
from holdfast.core.tree import Tree

_logger = logging.getLogger("holdfast.operator")
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_encode = msgspec.json.Encoder(enc_hook=str).encode


def event(name: str, *, level: int = logging.INFO, exc: bool = False, **fields: Tree) -> None:
    """Log one event. The name is constant; what varies goes into the fields."""
    _logger.log(level, name, extra=fields, exc_info=exc)


def configure(form: str) -> None:
    """Send what Holdfast logs to stderr, as `json` or `text`."""
    handler = StderrHandler()
    handler.setFormatter(_Text() if form == "text" else _Json())
    levels = {"holdfast": logging.INFO, "aiohttp": logging.WARNING, "asyncio": logging.WARNING}
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {"at": at, "level": record.levelname.lower(), "event": redact(record.getMessage())}
        return _encode({**head, **_fields(record)}).decode()


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        fields = _fields(record).items()
        pairs = " ".join(f"{name}={_encode(value).decode()}" for name, value in fields)
        return f"{at} {record.levelname.lower():7} {redact(record.getMessage())} {pairs}".rstrip()


def _fields(record: logging.LogRecord) -> dict[str, Tree]:
    fields: dict[str, Tree] = {
        name: value for name, value in vars(record).items() if name not in _STANDARD
    }
    if record.exc_info and record.exc_info[0] is not None:
        # The frames alone: local values may hold what an object carried.
        lines = traceback.extract_tb(record.exc_info[2])[-12:]
        fields["exception"] = record.exc_info[0].__name__
        fields["frames"] = [f"{line.filename}:{line.lineno} {line.name}" for line in lines]
    masked = redact_tree(fields)
    assert isinstance(masked, dict)  # noqa: S101  # a mapping is masked into a mapping
    return masked
