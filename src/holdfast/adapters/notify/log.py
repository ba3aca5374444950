"""Writes notices to the log, one line each, for those who collect logs and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast.core.gitops.notice import Notice, Severity

_LOG = logging.getLogger("holdfast.notices")
_LEVELS = {
    Severity.INFO: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.CRITICAL: logging.ERROR,
}


class LogChannel:
    """The log of this process. Always delivers."""

    def __init__(self, name: str = "log") -> None:
        self.name = name

    async def send(self, notices: Sequence[Notice]) -> None:
        """Write one line for each notice."""
        for notice in notices:
            _LOG.log(
                _LEVELS[notice.severity],
                "notice",
                extra={
                    "notice": notice.id,
                    "type": notice.type,
                    "source": notice.source,
                    "subject": notice.subject,
                    "severity": notice.severity.value,
                    "title": notice.title,
                    "text": notice.text,
                    "url": notice.url,
                    "facts": notice.data,
                },
            )
