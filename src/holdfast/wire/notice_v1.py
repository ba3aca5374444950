"""JSON form of a notice, as the ledger keeps it until every channel has it.

`{"notice": {…}, "channels": {"<name>": "waiting" | "sent" | …}}`. Written and read by the outbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from holdfast.core.gitops.notification import Notice, Severity
from holdfast.core.tree import Fields, Tree

WAITING = "waiting"


def outbox_to_json(notice: Notice, channels: Mapping[str, str]) -> Fields:
    """Write a notice and how it stands with each channel."""
    named: Tree = {name: str(word) for name, word in channels.items()}
    return {
        "notice": {
            "id": notice.id,
            "type": notice.type,
            "source": notice.source,
            "subject": notice.subject,
            "at": notice.at.isoformat(),
            "severity": notice.severity.value,
            "title": notice.title,
            "text": notice.text,
            "data": notice.data,
            "url": notice.url,
        },
        "channels": named,
    }


def outbox_from_json(body: Fields) -> tuple[Notice, dict[str, str]] | None:
    """Read it back; None for what is no notice of this version."""
    try:
        fields, channels = body["notice"], body["channels"]
        if not isinstance(fields, dict) or not isinstance(channels, dict):
            return None
        data = fields["data"]
        if not isinstance(data, dict):
            return None
        notice = Notice(
            id=str(fields["id"]),
            type=str(fields["type"]),
            source=str(fields["source"]),
            subject=str(fields["subject"]),
            at=datetime.fromisoformat(str(fields["at"])),
            severity=Severity(str(fields["severity"])),
            title=str(fields["title"]),
            text=str(fields["text"]),
            data=data,
            url=str(fields["url"]),
        )
    except (KeyError, ValueError):
        return None
    if notice.at.tzinfo is None:
        return None
    return notice, {name: str(word) for name, word in channels.items()}
