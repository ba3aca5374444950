"""One thing to tell people or machines outside: what the messages are made of.

Built by `message`, grouped by `grouping`, carried by the channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.core.tree import Fields


class Severity(StrEnum):
    """How loud a notice is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to tell, already redacted."""

    id: str
    """Equal for the same fact, so that it is told once."""
    type: str
    """A CloudEvents type: `dev.holdfast.drift.detected.v1`."""
    source: str
    subject: str
    at: datetime
    severity: Severity
    title: str
    text: str
    data: Fields
    """The facts as JSON, for machines."""
    url: str = ""


def loudest(notices: Iterable[Notice]) -> Severity:
    """Return the highest severity among some notices."""
    order = list(Severity)
    return max((notice.severity for notice in notices), key=order.index, default=Severity.INFO)
