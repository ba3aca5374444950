"""One line for each thing that happened: a constant event name and what varies, secrets masked.

JSON for machines, and text where a person looks on. Everything of Holdfast logs through the
logger `holdfast`; this only decides what is written.
"""

from __future__ import annotations

import logging

from holdfast.adapters.log_stream import log_event, send_to_stderr
from holdfast.core.tree import Tree

_logger = logging.getLogger("holdfast.operator")


def event(name: str, *, level: int = logging.INFO, exc: bool = False, **fields: Tree) -> None:
    """Log one event. The name is constant; what varies goes into the fields."""
    log_event(_logger, name, level, fields, exc=exc)


def configure(form: str, level: str) -> None:
    """Send what Holdfast logs from a level on to stderr, as `json` or `text`."""
    numeric = logging.getLevelNamesMapping()[level.upper()]
    others = max(numeric, logging.WARNING)
    send_to_stderr(form, {"holdfast": numeric, "aiohttp": others, "asyncio": others})
